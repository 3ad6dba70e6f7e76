"""Tests that readers dropped without stop, close or a with block return their messages."""

from __future__ import annotations

import gc
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from jsync.jetstream.pulls.engine import grace_after

from ....support.connection_faults import resident_bytes, subscribed
from ....support.processes import run_child
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder
from .support import QUICK, Pulls, fill, numbers, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import jsync
    from jsync.server import LocalServer

    from ....support.connection_faults import Events
    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


def messages(consumer: jsync.Consumer) -> Iterator[jsync.JetStreamMsg]:
    return iter(consumer.messages(max_messages=30))


def open_fetch(consumer: jsync.Consumer) -> Iterator[jsync.JetStreamMsg]:
    return iter(consumer.fetch(100, timeout=60))


def full_fetch(consumer: jsync.Consumer) -> Iterator[jsync.JetStreamMsg]:
    return iter(consumer.fetch(30, timeout=60))


ways = pytest.mark.parametrize("way", [messages, open_fetch, full_fetch])
Way: TypeAlias = "Callable[[jsync.Consumer], Iterator[jsync.JetStreamMsg]]"


@ways
def test_leaving_a_loop_gives_the_rest_back(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer, way: Way
) -> None:
    fill(nc, stream, 50)
    before = subscribed(nc)
    for msg in way(worker):
        assert int(msg.data) == 0
        wait_for(lambda: worker.info().num_ack_pending >= 30)
        msg.ack()
        break
    # This must not take the ack_wait of a minute.
    with worker.fetch(49, timeout=SOON) as rest:
        assert sorted(numbers(rest)) == list(range(1, 50))
    wait_for(lambda: subscribed(nc) == before)


@ways
def test_garbage_collection_on_the_io_thread_returns_messages(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer, way: Way
) -> None:
    fill(nc, stream, 50)
    kept: list[Any] = [way(worker)]
    kept.append(kept)
    wait_for(lambda: worker.info().num_ack_pending >= 30)
    collected = Recorder()
    del kept

    def collect() -> None:
        gc.collect()
        collected()

    gc.disable()
    try:
        nc._session.call_later(0, collect)
        collected.get()
    finally:
        gc.enable()
    with worker.fetch(50, timeout=SOON) as rest:
        assert sorted(numbers(rest)) == list(range(50))


def test_messages_in_flight_to_dropped_iterators_are_returned(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
) -> None:
    fill(nc, stream, 50)
    proxy.deaf("server")
    kept = [far_worker.messages(max_messages=50)]
    wait_for(lambda: worker.info().num_ack_pending == 50)
    assert kept[0].pending == 0
    kept.clear()
    proxy.hear()
    with worker.fetch(50, timeout=SOON) as rest:
        assert sorted(numbers(rest)) == list(range(50))


def test_an_iteration_dropped_while_disconnected_returns_its_messages(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    pulls: Pulls,
    events: Events,
) -> None:
    fill(nc, stream, 20)
    kept = [far_worker.messages(max_messages=100)]
    wait_for(lambda: kept[0].pending == 20)
    proxy.refuse()
    proxy.cut()
    events.wait("disconnect")
    before = pulls.count
    kept.clear()
    proxy.accept()
    events.wait("reconnect")
    with worker.fetch(20, timeout=SOON) as rest:
        assert sorted(numbers(rest)) == list(range(20))
    assert pulls.count == before
    wait_for(lambda: not far._session.interests.keys() - {1})


@pytest.mark.parametrize("kind", ["messages", "fetch"])
def test_messages_after_leaving_go_back(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    waits = []
    ping = far._session.ping

    def measured(deadline: float) -> None:
        waits.append(deadline - monotonic())
        ping(deadline)

    monkeypatch.setattr(far._session, "ping", measured)
    proxy.deaf("server")
    fill(nc, stream, 10)
    with (
        far_worker.fetch(100, timeout=60)
        if kind == "fetch"
        else far_worker.messages(max_messages=30)
    ):
        wait_for(lambda: worker.info().num_ack_pending == 10)
    (wait,) = waits
    assert wait <= grace_after(far._session.round_trip)
    proxy.hear()
    # This must not take the ack_wait of a minute.
    with worker.fetch(10, timeout=SOON) as rest:
        assert sorted(numbers(rest)) == list(range(10))


@ways
def test_without_acks_it_only_ends(
    nc: jsync.Connection, stream: jsync.Stream, way: Way
) -> None:
    reader = stream.create_consumer(name="reader", ack_policy="none")
    fill(nc, stream, 50)
    before, sent = subscribed(nc), nc.stats().out_messages
    for msg in way(reader):
        assert int(msg.data) == 0
        break
    wait_for(lambda: subscribed(nc) <= before)
    assert nc.stats().out_messages <= sent + 2  # the pull, and one more of messages()


def test_a_batch_filling_while_dropped_returns_its_subscription(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    before = subscribed(nc)
    busy, done = threading.Event(), threading.Event()

    def keep_the_io_thread() -> None:
        busy.set()
        done.wait(SOON)

    batch = worker.fetch(30, timeout=60)
    mailbox = batch._pull.inbox.mailbox
    nc.flush()
    nc._session.call_later(0, keep_the_io_thread)
    assert busy.wait(SOON)
    del batch
    try:
        # A thread that waits for a reply reads the socket, including the messages of the batch.
        fill(nc, stream, 30)
        wait_for(lambda: worker.info().num_ack_pending == 30 and mailbox.full)
    finally:
        done.set()
    wait_for(lambda: subscribed(nc) == before)
    with worker.fetch(30, timeout=SOON) as rest:
        assert sorted(numbers(rest)) == list(range(30))


def test_messages_in_use_are_not_dropped(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 60)
    iterator = iter(worker.messages(max_messages=10))
    got = []
    for number in range(60):
        if number % 10 == 0:
            gc.collect()
        msg = next(iterator)
        got.append(int(msg.data))
        msg.ack()
    assert got == list(range(60))


def test_a_dropped_consume_continues(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    got: list[int] = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        got.append(int(msg.data))
        msg.ack()

    worker.consume(handle)
    gc.collect()
    fill(nc, stream, 10)
    wait_for(lambda: got == list(range(10)))
    worker.delete()


def test_a_child_dropping_its_parents_iteration_returns_nothing(
    server: LocalServer,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    nc: jsync.Connection,
) -> None:
    fill(nc, stream, 20)
    script = """
        import gc, os, sys, time, jsync
        nc = jsync.connect(sys.argv[1])
        consumer = nc.jetstream().stream(sys.argv[2]).consumer("worker")
        messages, batch = consumer.messages(max_messages=10), consumer.fetch(10)
        while messages.pending < 10 or len(batch._pull.inbox.mailbox) < 10:
            time.sleep(0.01)
        if not (child := os.fork()):
            del messages, batch
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        nc.flush()
        print(consumer.info().num_redelivered, messages.pending, len(list(batch)))
        messages.stop()
        nc.close()
    """
    assert run_child(script, server.url, stream.name).split() == ["0", "10", "10"]


@pytest.mark.parametrize("closed", [True, False])
def test_an_interpreter_with_messages_left_ends_silently(
    server: LocalServer,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    nc: jsync.Connection,
    closed: bool,
) -> None:
    fill(nc, stream, 20)
    script = """
        import sys, jsync
        nc = jsync.connect(sys.argv[1])
        consumer = nc.jetstream().stream(sys.argv[2]).consumer("worker")
        messages, batch = consumer.messages(max_messages=10), consumer.fetch(10)
        next(iter(batch)), messages.next()
        cycle = [messages, batch]
        cycle.append(cycle)
        if sys.argv[3] == "True":
            nc.close()
    """
    assert run_child(script, server.url, stream.name, closed) == ""


@pytest.mark.parametrize("rounds", [500, pytest.param(50_000, marks=pytest.mark.fault)])
@pytest.mark.parametrize("way", ["next", "fetch", "dropped fetch", "messages"])
def test_nothing_leaks_with_each_pull(
    nc: jsync.Connection, stream: jsync.Stream, rounds: int, way: str
) -> None:
    reader = stream.create_consumer(
        name="reader", ack_policy="none", mem_storage=True, deliver_policy="all"
    )
    before = subscribed(nc)

    def pull() -> None:
        if way == "messages":
            reader.messages(max_messages=1, **QUICK).stop()
            return
        batch = reader.fetch_nowait(1)
        if way == "next":
            batch.close()
        elif way == "fetch":
            assert list(batch) == []

    def run(count: int) -> int:
        for number in range(count):
            pull()
            if number % 500 == 0:
                # Without a GIL this thread is faster than the I/O thread, and the pulls
                # that wait for their end there are no leak.
                nc.flush(timeout=LONG)
        nc.flush(timeout=LONG)
        wait_for(lambda: subscribed(nc) == before)
        gc.collect()
        return resident_bytes()

    # The first run includes pulls that are still on their way for a second.
    run(min(rounds, 5_000))
    base = run(min(rounds, 5_000))
    # A leak would be an inbox or a pull of some hundred bytes for each round.
    assert any(run(rounds) - base < (5 << 20) + 100 * rounds for _ in range(2))


def test_an_abandoned_iterator_does_not_disturb_another_one(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 30)
    with worker.messages(max_messages=10) as kept:
        wait_for(lambda: kept.pending == 10)
        worker.messages(max_messages=20)
        got = [*take(kept, 10)]
        while len(got) < 30:
            got += take(kept, 1)
    assert sorted(got) == list(range(30))
