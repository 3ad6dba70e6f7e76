"""Tests of stop, drain and with blocks, and of the messages that were prefetched."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import SOON, Thread
from .support import (
    Handler,
    at_work,
    both_faces,
    fill,
    take,
)

if TYPE_CHECKING:
    from ....support.connection_faults import Events
    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


def test_stopped_messages_give_the_rest_back_at_once(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 50)
    messages = worker.messages(max_messages=30)
    iterator = iter(messages)
    assert int(next(iterator).data) == 0
    wait_for(lambda: messages.pending == 29)
    messages.stop()
    assert messages.closed
    assert messages.pending == 0
    with pytest.raises(StopIteration):
        next(iterator)
    with pytest.raises(errors.SubscriptionClosedError):
        messages.next(1)
    # This must not take the ack_wait of a minute.
    with worker.fetch(49, timeout=SOON) as rest:
        assert sorted(int(msg.data) for msg in rest) == list(range(1, 50))


def test_a_stopped_consume_returns_the_rest_at_once(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 20)
    handler = Handler()
    handler.open.clear()
    consuming = worker.consume(handler, max_messages=10)
    assert handler.entered.wait(SOON)
    stopping = Thread(consuming.stop)
    # jsync returns the messages while the handler still works on another message.
    with worker.fetch(19, timeout=SOON) as rest:
        assert sorted(int(msg.data) for msg in rest) == list(range(1, 20))
    assert not stopping.ended
    handler.open.set()
    stopping.result()
    assert consuming.closed
    assert handler.numbers == [0]
    assert consuming.wait(0)


def test_drained_messages_end_after_the_prefetched_messages(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 50)
    messages = worker.messages(max_messages=30)
    assert take(messages, 1) == [0]
    wait_for(lambda: messages.pending == 29)
    messages.drain()
    got = []
    for msg in messages:
        got.append(int(msg.data))
        msg.ack()
    assert got == list(range(1, 30))
    wait_for(lambda: worker.info().num_ack_pending == 0)
    assert worker.info().num_pending == 20


def test_a_drained_consume_handles_all_including_the_last(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 50)
    handler = Handler()
    handler.open.clear()
    consuming = worker.consume(handler, max_messages=30)
    assert handler.entered.wait(SOON)
    wait_for(lambda: worker.info().num_ack_pending == 30)
    draining = Thread(consuming.drain)
    draining.wait_until_blocked()
    assert not consuming.closed
    handler.open.set()
    draining.result()
    assert handler.numbers == list(range(30))
    wait_for(lambda: worker.info().num_ack_pending == 0)


def test_a_handler_that_never_returns_is_a_timeout(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 1)
    handler = Handler()
    handler.open.clear()
    consuming = worker.consume(handler)
    assert handler.entered.wait(SOON)
    with pytest.raises(errors.DrainTimeoutError):
        consuming.stop(timeout=0.05)
    with pytest.raises(errors.DrainTimeoutError):
        consuming.drain(timeout=0.05)
    assert not consuming.wait(0.05)
    handler.open.set()
    assert consuming.wait(SOON)


@pytest.mark.parametrize("how", ["stop", "drain"])
def test_ending_a_consume_from_its_own_handler(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer, how: str
) -> None:
    fill(nc, stream, 20)
    made: list[jsync.ConsumeContext] = []
    ready = threading.Event()
    numbers = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        assert ready.wait(SOON)
        numbers.append(int(msg.data))
        msg.ack()
        for _ in range(2):  # twice, and for each message
            getattr(made[0], how)()

    made.append(worker.consume(handle, max_messages=10))
    wait_for(lambda: worker.info().num_ack_pending == 10)
    ready.set()
    assert made[0].wait(SOON)
    assert numbers == (list(range(10)) if how == "drain" else [0])
    with worker.fetch(20 - len(numbers), timeout=SOON) as rest:
        assert sorted(int(msg.data) for msg in rest) == list(range(len(numbers), 20))


def test_a_handler_waiting_for_itself_is_an_error(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 1)
    made: list[jsync.ConsumeContext] = []
    raised: list[Exception] = []
    ready = threading.Event()

    def handle(msg: jsync.JetStreamMsg) -> None:
        assert ready.wait(SOON)
        try:
            made[0].wait()
        except errors.BlockingCallError as error:
            raised.append(error)
        msg.ack()

    made.append(worker.consume(handle))
    ready.set()
    wait_for(lambda: len(raised) == 1)
    made[0].stop()


@both_faces
@pytest.mark.parametrize("how", ["stop", "drain"])
def test_many_threads_may_end_a_consume_at_once(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    how: str,
    face: str,
) -> None:
    fill(nc, stream, 200)
    numbers = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        numbers.append(int(msg.data))
        msg.ack()

    with at_work(face, worker, handle, max_messages=20) as work:
        wait_for(lambda: len(numbers) > 10)
        for thread in [Thread(getattr(work, how)) for _ in range(4)]:
            thread.result()
        getattr(work, how)()
        if how == "drain":
            # The handler still gets the prefetched messages.
            wait_for(lambda: work.closed and not getattr(work, "pending", 0))
    assert work.closed
    assert numbers == list(range(len(numbers)))
    left: list[int] = []

    def is_all_there() -> bool:
        # The server can process the returned messages after this request.
        with worker.fetch_nowait(200) as rest:
            for msg in rest:
                left.append(int(msg.data))
                msg.ack()
        return len(numbers) + len(left) >= 200

    # This must not take the ack_wait of a minute.
    wait_for(is_all_there, timeout=SOON)
    assert sorted(numbers + left) == list(range(200))


def test_a_stop_ends_a_drain_under_way(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 10)
    handler = Handler()
    handler.open.clear()
    consuming = worker.consume(handler)
    assert handler.entered.wait(SOON)
    wait_for(lambda: worker.info().num_ack_pending == 10)
    draining = Thread(consuming.drain)
    draining.wait_until_blocked()
    stopping = Thread(consuming.stop)
    # It waits for the server first, and then for the handler.
    wait_for(lambda: len(consuming._delivery.mailbox) == 0)
    stopping.wait_until_blocked()
    handler.open.set()
    draining.result()
    stopping.result()
    assert handler.numbers == [0]


def test_stopping_while_disconnected_does_not_hang(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    events: Events,
) -> None:
    fill(nc, stream, 20)
    messages = far_worker.messages(max_messages=10)
    wait_for(lambda: messages.pending == 10)
    proxy.refuse()
    proxy.cut()
    events.wait("disconnect")
    messages.stop()
    assert messages.closed
    proxy.accept()
    events.wait("reconnect")
    # The naks were buffered, and are sent by now.
    with worker.fetch(20, timeout=SOON) as rest:
        assert sorted(int(msg.data) for msg in rest) == list(range(20))


@both_faces
def test_the_end_leaves_no_subscription(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer, face: str
) -> None:
    fill(nc, stream, 10)
    before = len(nc._session.interests)
    for how in ("stop", "drain", "stop_after"):
        options: dict[str, Any] = {"stop_after": 1} if how == "stop_after" else {}
        if face == "messages":
            messages = worker.messages(**options)
            messages.next(SOON).nak()
            if not options:
                getattr(messages, how)()
            for msg in messages:
                msg.nak()
        else:
            consuming = worker.consume(jsync.JetStreamMsg.nak, **options)
            if not options:
                getattr(consuming, how)()
            assert consuming.wait(SOON)
    wait_for(lambda: len(nc._session.interests) == before)


def test_leaving_a_consume_block_drains_it(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 30)
    handler = Handler()
    handler.open.clear()
    with worker.consume(handler, max_messages=30) as consuming:
        wait_for(lambda: worker.info().num_ack_pending == 30)
        handler.open.set()
    assert consuming.closed
    assert handler.numbers == list(range(30))


def test_leaving_a_messages_block_stops_it(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 30)
    with worker.messages() as messages:
        for msg in messages:
            msg.ack()
            break
    assert messages.closed
    with worker.fetch(29, timeout=SOON) as rest:
        assert sorted(int(msg.data) for msg in rest) == list(range(1, 30))


def test_a_body_exception_stops_messages_and_stays_unmasked(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 30)
    with pytest.raises(ZeroDivisionError):
        with worker.messages() as messages:
            raise ZeroDivisionError(take(messages, 1))
    with worker.fetch(29, timeout=SOON) as rest:
        assert sorted(int(msg.data) for msg in rest) == list(range(1, 30))


def test_a_body_exception_stops_consume_and_stays_unmasked(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 30)
    handler = Handler()
    handler.open.clear()

    def fail() -> None:
        with worker.consume(handler, max_messages=30):
            # The server counts messages as delivered that the thread of the handler has not seen
            # yet.
            assert handler.entered.wait(SOON)
            wait_for(lambda: worker.info().num_ack_pending == 30)
            raise ZeroDivisionError

    failing = Thread(fail)
    assert handler.entered.wait(SOON)
    # jsync returns the messages before the handler ends.
    with worker.fetch(29, timeout=SOON) as rest:
        assert sorted(int(msg.data) for msg in rest) == list(range(1, 30))
    handler.open.set()
    assert isinstance(failing.error(), ZeroDivisionError)
    assert handler.numbers == [0]


def delete_in_its_block(worker: jsync.Consumer, error: Exception | None) -> None:
    with worker.consume(print) as consuming:
        wait_for(lambda: worker.info().num_waiting == 1)
        worker.delete()
        wait_for(lambda: consuming.closed)
        if error is not None:
            raise error


def test_a_deleted_consumer_does_not_mask_body_exceptions(
    worker: jsync.Consumer,
) -> None:
    with pytest.raises(ZeroDivisionError):
        delete_in_its_block(worker, ZeroDivisionError())


def test_leaving_a_failed_consumes_block_raises_its_error(
    worker: jsync.Consumer,
) -> None:
    with pytest.raises(errors.ConsumerDeletedError):
        delete_in_its_block(worker, None)
