"""Tests of two threads on one ordered read: one ends it while its consumer is replaced."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors
from jsync.jetstream.ordered import engine as ordered_engine, session as ordered_session
from jsync.jetstream.ordered.engine import ReadState
from jsync.jetstream.push import engine as push_engine, ownership as push_ownership
from jsync.jetstream.push.engine import Ownership

from ....support.servers import wait_for
from ....support.threads import Interrupting, Thread
from .support import QUICK, consumers, delete_consumers, fill, numbers, take

if TYPE_CHECKING:
    import jsync

ROUNDS = 25


@pytest.mark.parametrize("state", [ReadState.LIVE, ReadState.BETWEEN])
def test_a_read_stopped_during_consumer_replacement_stays_stopped(
    nc: jsync.Connection,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
    state: ReadState,
) -> None:
    table = Interrupting(ordered_engine.TRANSITIONS, state)
    monkeypatch.setattr(ordered_session, "TRANSITIONS", table)
    fill(nc, stream, 10)
    with stream.ordered_consumer() as consumer:
        messages = consumer.messages(max_messages=4)
        assert take(messages, 3) == [0, 1, 2]
        read = messages._pull._ordered  # type: ignore[attr-defined]
        table.call = messages.stop
        nc._session.call_soon(lambda: read.reset(None))
        wait_for(lambda: table.thread is not None)
        assert table.thread is not None
        table.thread.result()
        assert read.state.current is ReadState.ENDED
        wait_for(lambda: not consumers(nc, stream))
        assert numbers(consumer.messages(until_end=True)) == list(range(3, 10))


@pytest.mark.parametrize("state", [ReadState.LIVE, ReadState.BETWEEN])
def test_a_subscription_ended_during_replacement_leaves_no_consumer(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
    state: ReadState,
) -> None:
    table = Interrupting(ordered_engine.TRANSITIONS, state)
    monkeypatch.setattr(ordered_session, "TRANSITIONS", table)
    sub = js.subscribe(f"{stream.name}.>", ordered=True)
    fill(nc, stream, 3)
    assert [int(sub.next().data) for _ in range(3)] == [0, 1, 2]
    read = sub._delivery._ordered  # type: ignore[attr-defined]
    table.call = sub.unsubscribe
    nc._session.call_soon(lambda: read.reset(None))
    wait_for(lambda: table.thread is not None)
    assert table.thread is not None
    table.thread.result()
    assert read.state.current is ReadState.ENDING
    wait_for(lambda: not consumers(nc, stream))


@pytest.mark.parametrize("call", ["subscribe", "pull_subscribe"])
def test_one_of_the_unsubscribing_threads_deletes_the_consumer(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
) -> None:
    table = Interrupting(push_engine.OWNERSHIP_TRANSITIONS, Ownership.OURS)
    monkeypatch.setattr(push_ownership, "OWNERSHIP_TRANSITIONS", table)
    deletions: list[jsync.Msg] = []
    watch = nc.subscribe(
        f"$JS.API.CONSUMER.DELETE.{stream.name}.*", callback=deletions.append
    )
    nc.flush()
    sub = getattr(js, call)(f"{stream.name}.>")
    table.call = sub.unsubscribe
    sub.unsubscribe()
    assert table.thread is not None
    table.thread.result()
    watch.drain()
    assert len(deletions) == 1
    assert consumers(nc, stream) == []


@pytest.mark.usefixtures("hasty")
def test_reads_stopped_by_other_threads_continue_in_place(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    total = 40 * ROUNDS
    fill(nc, stream, total)
    got: list[int] = []
    with stream.ordered_consumer() as consumer:
        for number in range(ROUNDS):
            # the threads that stop the read were slower than the reads
            if len(got) == total:
                break
            messages = consumer.messages(max_messages=8, **QUICK)
            read = threading.Event()

            def stop(messages: Any = messages, read: Any = read) -> None:
                read.wait()
                messages.stop()

            threads = [Thread(stop) for _ in range(2)]
            if number % 2:
                threads.append(Thread(delete_consumers, nc, stream))
            for msg in messages:
                got.append(int(msg.data))
                if len(got) % 20 == 0:
                    read.set()
                if len(got) == total:
                    break
            read.set()
            for thread in threads:
                thread.result()
        got += numbers(consumer.messages(until_end=True))
    assert got == list(range(total))
    wait_for(lambda: not consumers(nc, stream))


@pytest.mark.usefixtures("hasty")
def test_subscriptions_that_two_threads_end_leave_no_consumer(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(nc, stream, 20)
    for _ in range(ROUNDS):
        sub = js.subscribe(f"{stream.name}.>", ordered=True)
        assert int(sub.next().data) == 0
        threads = [
            Thread(sub.unsubscribe),
            Thread(sub.drain),
            Thread(delete_consumers, nc, stream),
        ]
        for thread in threads:
            assert isinstance(thread.error(), errors.Error | None)
        sub.unsubscribe()
    wait_for(lambda: not consumers(nc, stream))
