"""Tests of handlers at the end of their connection: they have handled all that had come."""

from __future__ import annotations

import gc
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Thread
from .support import Handler, fill, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ....conftest import StartServer

pytestmark = pytest.mark.server


@pytest.fixture
def other(server: LocalServer) -> Iterator[jsync.Connection]:
    """The connection that is drained, from which the tests do not look at the server."""
    other = jsync.connect(server.url, drain_timeout=LONG)
    yield other
    other.close()


def on(nc: jsync.Connection, consumer: jsync.Consumer) -> jsync.Consumer:
    """Return the same consumer of another connection."""
    return nc.jetstream().stream(consumer.stream_name).consumer(consumer.name)


def unacked(stream: jsync.Stream, consumer: str) -> int:
    return stream.consumer(consumer).info().num_ack_pending or 0


def drain_until(nc: jsync.Connection, release: threading.Event) -> None:
    """Drain the connection, whose handler waits for the event: set once the drain waits."""
    draining = Thread(nc.drain)
    draining.wait_until_blocked()
    assert not draining.ended
    release.set()
    draining.result()


def slow(msg: jsync.JetStreamMsg) -> None:
    time.sleep(0.002)
    msg.ack()


@pytest.mark.parametrize("workers", [1, 4])
def test_leaving_the_connection_block_handles_all_received_messages(
    server: LocalServer,
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    workers: int,
) -> None:
    fill(nc, stream, 200)
    handled: list[int] = []
    release = threading.Event()

    def handle(msg: jsync.JetStreamMsg) -> None:
        assert release.wait(SOON)
        slow(msg)
        handled.append(int(msg.data))

    with jsync.connect(server.url) as leaving:
        on(leaving, worker).consume(handle, max_messages=50, workers=workers)
        wait_for(lambda: worker.info().num_ack_pending == 50)
        threading.Timer(0.1, release.set).start()
    assert sorted(handled) == list(range(50))
    info = worker.info()
    assert (info.num_ack_pending, info.num_redelivered) == (0, 0)
    with worker.fetch(150, timeout=SOON) as rest:
        assert numbers(rest) == list(range(50, 200))
    assert len(handled) == 50


def test_a_drain_lets_push_consumers_handle_received_messages(
    nc: jsync.Connection, stream: jsync.Stream, other: jsync.Connection, unique: str
) -> None:
    pushing = stream.create_push_consumer(
        durable_name="pushing", deliver_subject=f"to.{unique}", ack_wait=60
    )
    fill(nc, stream, 50)
    handled: list[int] = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        slow(msg)
        handled.append(int(msg.data))

    other.jetstream().stream(stream.name).push_consumer("pushing").consume(handle)
    wait_for(lambda: pushing.info().num_pending == 0)
    other.drain()
    assert handled == list(range(50))
    info = pushing.info()
    assert (info.num_ack_pending, info.num_redelivered) == (0, 0)


def test_without_acks_all_is_handled_that_had_come(
    nc: jsync.Connection, stream: jsync.Stream, other: jsync.Connection
) -> None:
    fill(nc, stream, 50)
    ackless = stream.create_consumer(durable_name="ackless", ack_policy="none")
    handler = Handler()
    handler.open.clear()
    on(other, ackless).consume(handler, max_messages=30)
    assert handler.entered.wait(SOON)
    wait_for(lambda: ackless.info().num_pending == 20)
    drain_until(other, handler.open)
    assert handler.numbers == list(range(30))
    assert ackless.info().num_pending == 20


def test_a_drain_lets_ordered_handlers_handle_received_messages(
    nc: jsync.Connection, stream: jsync.Stream, other: jsync.Connection
) -> None:
    fill(nc, stream, 50)
    handled: list[int] = []
    entered, release = threading.Event(), threading.Event()

    def handle(msg: jsync.JetStreamMsg) -> None:
        entered.set()
        assert release.wait(SOON)
        handled.append(int(msg.data))

    ordered = other.jetstream().stream(stream.name).ordered_consumer()
    consuming = ordered.consume(handle, max_messages=30)
    assert entered.wait(SOON)
    wait_for(lambda: len(consuming._delivery.mailbox) == 29)
    drain_until(other, release)
    assert handled == list(range(30))
    assert consuming.wait(0)


def test_a_drain_leaves_stuck_handlers_and_returns_messages(
    nc: jsync.Connection, stream: jsync.Stream, other: jsync.Connection
) -> None:
    fill(nc, stream, 20)
    handlers = Handler(), Handler()
    try:
        for name, handler in zip("ab", handlers, strict=True):
            handler.open.clear()
            made = stream.create_consumer(durable_name=name, ack_wait=60)
            on(other, made).consume(handler)
            assert handler.entered.wait(SOON)
        wait_for(lambda: unacked(stream, "a") == unacked(stream, "b") == 20)
        with pytest.raises(errors.DrainTimeoutError, match="handler"):
            other.drain(timeout=0.5)
        assert other.is_closed
        for name in "ab":
            # This must not take the ack_wait of a minute.
            with stream.consumer(name).fetch(19, timeout=SOON) as rest:
                assert sorted(numbers(rest)) == list(range(1, 20))
    finally:
        for handler in handlers:
            handler.open.set()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_drain_in_a_handler_returns_the_rest(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    other: jsync.Connection,
    workers: int,
) -> None:
    fill(nc, stream, 20)
    come, drained = threading.Event(), threading.Event()
    begun: list[int] = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        begun.append(int(msg.data))
        assert come.wait(SOON)
        if int(msg.data) == 0:
            msg.ack()
            other.drain()
            drained.set()
        else:  # another worker
            assert drained.wait(SOON)

    consuming = on(other, worker).consume(handle, workers=workers)
    wait_for(lambda: worker.info().num_ack_pending == 20)
    wait_for(lambda: len(begun) == workers)
    come.set()
    assert consuming.wait(SOON)
    assert other.is_closed
    assert sorted(begun) == list(range(workers))
    with worker.fetch(20 - workers, timeout=SOON) as rest:
        assert sorted(numbers(rest)) == list(range(workers, 20))


def test_unread_messages_do_not_hold_up_a_drain(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    other: jsync.Connection,
) -> None:
    fill(nc, stream, 20)
    messages = on(other, worker).messages()
    wait_for(lambda: messages.pending == 20)
    Thread(other.drain).result()
    assert other.is_closed


def test_an_exception_of_the_block_awaits_no_handler(
    server: LocalServer,
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
) -> None:
    fill(nc, stream, 20)
    handler = Handler()
    handler.open.clear()
    try:
        error = Thread(leave_with_an_exception, server, worker, handler).error()
        assert isinstance(error, LookupError)
    finally:
        handler.open.set()


def leave_with_an_exception(
    server: LocalServer, worker: jsync.Consumer, handler: Handler
) -> None:
    with jsync.connect(server.url, drain_timeout=LONG) as nc:
        on(nc, worker).consume(handler)
        assert handler.entered.wait(SOON)
        raise LookupError


@pytest.mark.parametrize("end", ["stop", "drain", "block"])
def test_the_connection_forgets_a_handler_that_has_ended(
    stream: jsync.Stream, worker: jsync.Consumer, other: jsync.Connection, end: str
) -> None:
    for _ in range(3):
        consuming: Any = on(other, worker).consume(slow)
        if end == "block":
            with consuming:
                pass
        else:
            getattr(consuming, end)()
        assert consuming.wait(0)
        del consuming

    def adopted() -> int:
        gc.collect()  # the thread of the handler may be about to end
        return len(other._session._drainables.all())

    wait_for(lambda: adopted() == 0)


def test_a_dropped_handler_is_drained_all_the_same(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    other: jsync.Connection,
) -> None:
    fill(nc, stream, 20)
    handler = Handler()
    handler.open.clear()
    on(other, worker).consume(handler)
    gc.collect()
    assert handler.entered.wait(SOON)
    wait_for(lambda: worker.info().num_ack_pending == 20)
    drain_until(other, handler.open)
    assert handler.numbers == list(range(20))
    assert worker.info().num_ack_pending == 0


def test_a_drain_during_a_handler_exception_returns_messages(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    other: jsync.Connection,
) -> None:
    fill(nc, stream, 20)
    handler = Handler(bad=0)
    handler.open.clear()
    on(other, worker).consume(handler, on_exception="stop")
    assert handler.entered.wait(SOON)
    wait_for(lambda: worker.info().num_ack_pending == 20)
    drain_until(other, handler.open)
    assert handler.numbers == [0]
    with worker.fetch(19, timeout=SOON) as rest:
        assert sorted(numbers(rest)) == list(range(1, 20))


def test_handlers_bound_no_drain_of_a_silent_server(
    own_server: StartServer, unique: str
) -> None:
    server = own_server()
    nc = jsync.connect(server.url)
    stream = nc.jetstream().create_stream(name=unique, storage="memory")
    consumer = stream.create_consumer(durable_name="worker")
    for _ in range(50):
        consumer.consume(slow)
    nc.flush()
    server.pause()
    draining: Thread[None] = Thread(nc.drain, 0.2)
    assert isinstance(draining.error(), errors.DrainTimeoutError)
    assert nc.is_closed
