"""Tests of the errors that end messages and consume, and of those that do not."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.pulls import consumer_check

from ....support.connection_faults import Events, connect
from ....support.servers import wait_for
from ....support.threads import LONG, Recorder, Thread
from .support import (
    QUICK,
    Handler,
    Pulls,
    at_work,
    both_faces,
    fill,
    take,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


def delete_the_consumer(stream: jsync.Stream, worker: jsync.Consumer) -> None:
    worker.delete()


def delete_the_stream(stream: jsync.Stream, worker: jsync.Consumer) -> None:
    stream.delete()


both_deletions = pytest.mark.parametrize(
    "delete", [delete_the_consumer, delete_the_stream]
)


@both_deletions
def test_a_deletion_ends_messages_that_wait(
    stream: jsync.Stream,
    worker: jsync.Consumer,
    delete: Callable[[jsync.Stream, jsync.Consumer], None],
) -> None:
    messages = worker.messages()
    reader = Thread(lambda: list(messages))
    wait_for(lambda: worker.info().num_waiting == 1)
    delete(stream, worker)
    assert isinstance(reader.error(), errors.ConsumerDeletedError)
    assert messages.closed
    with pytest.raises(errors.ConsumerDeletedError):
        messages.next(1)
    messages.stop()
    messages.drain()


def test_pulling_from_push_consumers_names_the_call(
    stream: jsync.Stream,
) -> None:
    stream.create_push_consumer(durable_name="audit", deliver_subject="audit")
    with pytest.raises(errors.ConsumerDeletedError, match="push_consumer"):
        stream.consumer("audit").next(timeout=LONG)


@both_deletions
def test_a_deletion_ends_a_consume_that_waits(
    stream: jsync.Stream,
    worker: jsync.Consumer,
    delete: Callable[[jsync.Stream, jsync.Consumer], None],
) -> None:
    told = Recorder()
    consuming = worker.consume(print, on_error=told)
    wait_for(lambda: worker.info().num_waiting == 1)
    waiter = Thread(consuming.wait)
    delete(stream, worker)
    assert isinstance(waiter.error(), errors.ConsumerDeletedError)
    assert isinstance(consuming.error, errors.ConsumerDeletedError)
    assert consuming.closed
    with pytest.raises(errors.ConsumerDeletedError):
        consuming.wait(0)
    consuming.stop()
    assert told.waiting == 0


def test_received_messages_are_read_before_deletion_is_raised(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 3)
    messages = worker.messages()
    wait_for(lambda: messages.pending == 3)
    worker.delete()
    wait_for(lambda: messages.closed)
    assert take(messages, 3) == [0, 1, 2]
    with pytest.raises(errors.ConsumerDeletedError):
        next(iter(messages))


@both_faces
def test_a_missing_consumer_is_reported_without_spinning(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    far_worker: jsync.Consumer,
    pulls: Pulls,
    face: str,
) -> None:
    worker.delete()
    told, handler = Recorder(), Handler()
    with at_work(face, far_worker, handler, on_error=told):
        for _ in range(3):
            assert isinstance(told.get(), errors.NoRespondersError)
        assert pulls.count <= 4
        # With the consumer back, reading continues.
        fill(nc, stream, 3)
        stream.create_consumer(durable_name="worker")
        wait_for(lambda: handler.numbers == [0, 1, 2])


def test_consumer_limits_are_reported_without_spinning(
    far: jsync.Connection, stream: jsync.Stream, pulls: Pulls
) -> None:
    stream.create_consumer(durable_name="limited", max_batch=5)
    limited = far.jetstream().stream(stream.name).consumer("limited")
    told = Recorder()
    with limited.messages(max_messages=10, on_error=told):
        error = told.get()
        assert isinstance(error, errors.PullError)
        assert "MaxRequestBatch" in str(error)
        far.flush()
        assert pulls.count <= 3


def test_a_consumer_allowing_few_pulls_is_read_completely(
    nc: jsync.Connection, far: jsync.Connection, stream: jsync.Stream
) -> None:
    # The server ignores pull requests with heartbeats beyond max_waiting. After the open pull
    # ends, heartbeats are missing, and jsync pulls again.
    stream.create_consumer(durable_name="narrow", max_waiting=1)
    narrow = far.jetstream().stream(stream.name).consumer("narrow")
    told = Recorder()
    options: dict[str, Any] = {"max_messages": 4, "threshold_messages": 4, **QUICK}
    with narrow.messages(**options, on_error=told) as messages:
        for number in range(12):
            nc.jetstream().publish(f"{stream.name}.a", b"%d" % number)
            assert take(messages, 1) == [number]
    while told.waiting:
        assert isinstance(told.get(), errors.MissedHeartbeatError)


@both_faces
def test_closing_the_connection_ends_it(
    server: LocalServer, stream: jsync.Stream, worker: jsync.Consumer, face: str
) -> None:
    nc = jsync.connect(server.url)
    consumer = nc.jetstream().stream(stream.name).consumer("worker")
    ended: Thread[Any]
    if face == "messages":
        messages = consumer.messages()
        ended = Thread(lambda: list(messages))
    else:
        consuming = consumer.consume(print)
        ended = Thread(consuming.wait)
    wait_for(lambda: worker.info().num_waiting == 1)
    nc.close()
    assert isinstance(ended.error(), errors.ConnectionClosedError)
    with pytest.raises(errors.ConnectionClosedError):
        consumer.messages()
    with pytest.raises(errors.ConnectionClosedError):
        consumer.consume(print)


def test_a_connection_that_may_not_reconnect_ends_it(
    proxy: FaultProxy, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    with connect(proxy.url, Events(), allow_reconnect=False) as nc:
        messages = nc.jetstream().stream(stream.name).consumer("worker").messages()
        reader = Thread(lambda: list(messages))
        wait_for(lambda: worker.info().num_waiting == 1)
        proxy.cut()
        assert isinstance(reader.error(), errors.ConnectionClosedError)


def test_a_second_thread_on_messages_is_refused(
    worker: jsync.Consumer,
) -> None:
    messages = worker.messages()
    reader = Thread(lambda: list(messages))
    reader.wait_until_blocked()
    with pytest.raises(errors.ConcurrentUseError):
        messages.next(1)
    with pytest.raises(errors.ConcurrentUseError):
        next(iter(messages))
    messages.stop()
    assert reader.result() == []


@both_faces
@both_deletions
def test_a_deletion_while_disconnected_ends_it(
    stream: jsync.Stream,
    worker: jsync.Consumer,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
    face: str,
    delete: Callable[[jsync.Stream, jsync.Consumer], None],
) -> None:
    """The server announces a deletion only to clients that are connected."""
    monkeypatch.setattr(consumer_check, "CONFIRM_SECONDS", 0.1)
    told = Recorder()

    def end(consuming: Any) -> None:
        if face == "consume":
            consuming.wait(LONG)
        else:
            consuming.next(LONG)

    with contextlib.suppress(errors.ConsumerDeletedError):
        with getattr(far_worker, face)(
            *([Handler()] if face == "consume" else []), on_error=told
        ) as consuming:
            wait_for(lambda: worker.info().num_waiting == 1)
            proxy.refuse()
            proxy.cut()
            events.wait("disconnect")
            delete(stream, worker)
            proxy.accept()
            with pytest.raises(errors.ConsumerDeletedError, match="any more"):
                Thread(end, consuming).result()
    assert isinstance(told.get(), errors.NoRespondersError)


def test_reading_continues_when_a_consumer_returns_in_time(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_check, "CONFIRM_SECONDS", 2.0)
    handler, told = Handler(), Recorder()
    with far_worker.consume(handler, on_error=told) as consuming:
        proxy.refuse()
        proxy.cut()
        events.wait("disconnect")
        worker.delete()
        proxy.accept()
        assert isinstance(told.get(), errors.NoRespondersError)
        stream.create_consumer(durable_name="worker")
        fill(nc, stream, 1)
        wait_for(lambda: handler.numbers == [0])
        assert not consuming.wait(2.5)
