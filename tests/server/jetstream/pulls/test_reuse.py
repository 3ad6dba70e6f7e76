"""Tests that one subscription serves several calls of `next` or `fetch`, and loses no message."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.core.session import MAX_IDLE_INBOXES

from ....support.connection_faults import subscribed
from ....support.processes import run_child
from ....support.servers import monitor, wait_for
from ....support.threads import LONG, SOON, Thread
from .support import Pulls, fill, numbers

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ....support.connection_faults import Events
    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


def pull(consumer: jsync.Consumer, way: str) -> int:
    """Return the number in the next message, and ack it."""
    if way == "next":
        msg = consumer.next(SOON)
    else:
        with consumer.fetch(1, timeout=SOON) as batch:
            (msg,) = batch
    msg.ack()
    return int(msg.data)


ways = pytest.mark.parametrize("way", ["next", "fetch"])


@ways
def test_answered_pulls_leave_their_subscription_to_the_next(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
    way: str,
) -> None:
    fill(nc, stream, 10)
    assert [pull(far_worker, way) for _ in range(5)] == [0, 1, 2, 3, 4]
    subscriptions = pulls.subscriptions
    assert [pull(far_worker, way) for _ in range(5)] == [5, 6, 7, 8, 9]
    assert pulls.subscriptions == subscriptions
    # Each pull still has a different reply subject.
    assert len(pulls.replies) == pulls.count == 10


def test_expired_pulls_leave_their_subscription_to_the_next(
    nc: jsync.Connection, stream: jsync.Stream, far_worker: jsync.Consumer, pulls: Pulls
) -> None:
    with pytest.raises(errors.TimeoutError):
        far_worker.next(0.1)
    subscriptions = pulls.subscriptions
    assert numbers(far_worker.fetch(3, timeout=0.1)) == []
    assert numbers(far_worker.fetch_nowait(3)) == []
    with pytest.raises(errors.TimeoutError):
        far_worker.next(0.1)
    fill(nc, stream, 1)
    assert far_worker.next(SOON).data
    assert pulls.subscriptions == subscriptions


def test_consumers_of_a_connection_share_them(
    nc: jsync.Connection, stream: jsync.Stream, far: jsync.Connection, pulls: Pulls
) -> None:
    fill(nc, stream, 10)
    for number in range(20):
        consumer = far.jetstream().create_consumer(
            stream.name, name=f"c{number}", mem_storage=True
        )
        assert int(consumer.next(SOON).data) == 0
        assert numbers(consumer.fetch(4, timeout=SOON)) == [1, 2, 3, 4]
        del consumer
    assert len(far._session.idle_inboxes) <= 2
    assert subscribed(far) <= 1  # for the replies to requests


@ways
def test_an_abandoned_fetch_with_reused_subscription_loses_nothing(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer, way: str
) -> None:
    fill(nc, stream, 2)
    assert [pull(worker, way) for _ in range(2)] == [0, 1]
    for turn in range(5):
        if way == "next":
            interrupt_next(worker)
        else:
            with worker.fetch(10, timeout=LONG):
                pass
        wait_for(lambda: worker.info().num_waiting == 0)
        fill(nc, stream, 2)
        # This must not take the ack_wait of a minute.
        assert [pull(worker, way) for _ in range(2)] == [2 + 2 * turn, 3 + 2 * turn]


class InterruptError(Exception):
    """The error that the signal handler raises."""


def interrupt_next(consumer: jsync.Consumer) -> None:
    """Leave `next` by an exception of a signal handler."""

    def interrupt(*_: object) -> None:
        raise InterruptError

    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt_when_waiting() -> None:
        wait_for(lambda: consumer.info().num_waiting == 1)
        signal.pthread_kill(main, signal.SIGUSR1)

    interrupting = Thread(interrupt_when_waiting)
    try:
        with pytest.raises(InterruptError):
            consumer.next(LONG)
        interrupting.result()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_late_statuses_do_not_end_the_next_pull(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    far_worker: jsync.Consumer,
    pulls: Pulls,
) -> None:
    fill(nc, stream, 2)
    for way in ("next", "fetch"):
        pull(far_worker, way)
    for way in ("next", "fetch"):
        before = pulls.count
        waiting = Thread(pull, far_worker, way)
        wait_for(lambda: worker.info().num_waiting == 1)
        reply = pulls.each_reply[-1]
        earlier = [
            i
            for i, other in enumerate(pulls.each_reply[:before])
            if other.rpartition(b".")[0] == reply.rpartition(b".")[0]
        ]
        pulls.answer("409 Leadership Change", pull=earlier[-1])
        pulls.answer("100 Idle Heartbeat")
        fill(nc, stream, 1)
        assert waiting.result() > 1
        assert pulls.count == before + 1


@ways
def test_a_kept_subscription_is_restored_after_a_reconnect(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    events: Events,
    way: str,
) -> None:
    fill(nc, stream, 6)
    for turn in range(1, 4):
        assert pull(far_worker, way) == 2 * turn - 2
        proxy.cut()
        events.wait("reconnect", turn)
        assert pull(far_worker, way) == 2 * turn - 1


@ways
def test_a_pull_losing_its_connection_leaves_no_subscription(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    worker: jsync.Consumer,
    proxy: FaultProxy,
    events: Events,
    way: str,
) -> None:
    fill(nc, stream, 1)
    assert pull(far_worker, way) == 0
    before = subscribed(far)
    waiting = Thread(pull, far_worker, way)
    wait_for(lambda: worker.info().num_waiting == 1)
    proxy.cut()
    assert isinstance(waiting.error(), errors.ConnectionLostError)
    events.wait("reconnect")
    # A busy server may see the end of the old connection last, and send the message there.
    wait_for(lambda: worker.info().num_waiting == 0)
    fill(nc, stream, 1)
    assert pull(far_worker, way) == 1
    wait_for(lambda: subscribed(far) <= before)


@ways
def test_while_disconnected_it_waits_for_the_connection(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    events: Events,
    way: str,
) -> None:
    fill(nc, stream, 2)
    assert pull(far_worker, way) == 0
    proxy.refuse()
    proxy.cut()
    events.wait("disconnect")
    waiting = Thread(pull, far_worker, way)
    waiting.wait_until_blocked()
    proxy.accept()
    assert waiting.result() == 1


@ways
def test_many_threads_pull_from_one_consumer_at_once(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer, way: str
) -> None:
    threads, each = 24, 20
    fill(nc, stream, threads * each)
    readers = [
        Thread(lambda: [pull(worker, way) for _ in range(each)]) for _ in range(threads)
    ]
    got = [number for reader in readers for number in reader.result()]
    assert sorted(got) == list(range(threads * each))
    assert len(nc._session.idle_inboxes) <= MAX_IDLE_INBOXES
    wait_for(lambda: subscribed(nc) <= 2)  # one for replies, and one of `next`


def test_surplus_subscriptions_end_at_the_server(
    server: LocalServer, nc: jsync.Connection, worker: jsync.Consumer
) -> None:
    def at_the_server() -> int:
        (connection,) = monitor(server, f"connz?cid={nc.client_id}")["connections"]
        return int(connection["subscriptions"])

    batches = [worker.fetch(1, timeout=0.5) for _ in range(2 * MAX_IDLE_INBOXES)]
    assert [numbers(batch) for batch in batches] == [[]] * len(batches)
    batches.clear()
    wait_for(lambda: len(nc._session.interests) == subscribed(nc) + MAX_IDLE_INBOXES)
    wait_for(lambda: at_the_server() == len(nc._session.interests))
    assert len(nc._session.idle_inboxes) == MAX_IDLE_INBOXES


@ways
def test_pulls_raise_after_the_connection_has_closed(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream, way: str
) -> None:
    with jsync.connect(server.url) as near:
        consumer = near.jetstream().create_consumer(stream.name, name="reader")
        fill(nc, stream, 1)
        assert pull(consumer, way) == 0
    with pytest.raises(errors.ConnectionClosedError):
        pull(consumer, way)


@ways
def test_close_wakes_a_pull_on_a_reused_subscription(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    worker: jsync.Consumer,
    way: str,
) -> None:
    fill(nc, stream, 1)
    assert pull(far_worker, way) == 0
    waiting = Thread(pull, far_worker, way)
    wait_for(lambda: worker.info().num_waiting == 1)
    far.close()
    assert isinstance(waiting.error(), errors.ConnectionClosedError)


def test_forked_children_take_no_messages_of_their_parent(
    server: LocalServer,
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
) -> None:
    fill(nc, stream, 4)
    script = """
        import gc, os, sys, jsync
        nc = jsync.connect(sys.argv[1])
        consumer = nc.jetstream().stream(sys.argv[2]).consumer("worker")
        print(int(consumer.next().data), [int(m.data) for m in consumer.fetch(1)])
        if not (child := os.fork()):
            for call in (consumer.next, lambda: consumer.fetch(1)):
                try:
                    call()
                except jsync.errors.ForkedProcessError:
                    continue
                os._exit(1)
            del consumer, call
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(int(consumer.next().data), [int(m.data) for m in consumer.fetch(1)])
        nc.close()
    """
    told = run_child(script, server.url, stream.name).split()
    assert told == ["0", "[1]", "2", "[3]"]


def test_a_kept_pull_keeps_no_connection_alive(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    worker = stream.create_consumer(name="reader")
    fill(nc, stream, 2)

    def use() -> weakref.ref[jsync.Connection]:
        forgotten = jsync.connect(server.url)
        consumer = forgotten.jetstream().consumer(stream.name, worker.name)
        for way in ("next", "fetch"):
            pull(consumer, way)
        return weakref.ref(forgotten)

    def forget() -> None:
        connection = use()
        wait_for(lambda: gc.collect() >= 0 and connection() is None)

    with pytest.warns(ResourceWarning):
        forget()


def test_a_finished_iterator_takes_nothing_from_the_next(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 4)
    first = worker.fetch(2, timeout=SOON)
    iterator = iter(first)
    assert [int(next(iterator).data) for _ in range(2)] == [0, 1]
    first.close()
    second = worker.fetch(2, timeout=SOON)
    wait_for(lambda: len(second._pull.inbox.mailbox) == 2)
    assert list(iterator) == list(first) == []
    assert first.close() == []
    assert numbers(second) == [2, 3]


@pytest.mark.parametrize("face", ["messages", "fetch", "consume"])
def test_an_only_reader_needs_no_other_thread(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer, face: str
) -> None:
    # A thread that waits alone for messages reads the socket itself.
    fill(nc, stream, 200)
    worker.next(SOON).nak()
    held, release = threading.Event(), threading.Event()

    def hold_the_io_thread() -> None:
        held.set()
        release.wait(LONG)

    nc._session.call_later(0, hold_the_io_thread)
    assert held.wait(SOON)
    try:
        options: dict[str, Any] = {"max_messages": 20, "stop_after": 200}
        got: list[int] = []
        if face == "messages":
            got = numbers(worker.messages(**options))
        elif face == "fetch":
            for _ in range(10):
                got += numbers(worker.fetch(20, timeout=LONG))
        else:
            # The I/O thread would have to start the thread of a pool.
            consuming = worker.consume(
                lambda msg: got.append(int(msg.data)), workers=1, **options
            )
            assert consuming.wait(LONG)
        assert sorted(got) == list(range(200))
        assert not release.is_set()
    finally:
        release.set()
