"""Tests of the end of reading in order: by an error, by stop and drain, and by the handler."""

from __future__ import annotations

import contextlib
import threading
import time
from itertools import islice
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors
from jsync.jetstream.ordered import batch as fetching

from ....support.connection_faults import Events, connect
from ....support.proxy import Frames
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Thread
from .support import QUICK, delete_consumers, fill, numbers, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy
    from ....support.threads import Recorder

pytestmark = pytest.mark.server


def end_of(consumer: jsync.OrderedConsumer, face: str) -> Callable[[], object]:
    """Return a call that reads until an error ends it, and raises that error."""

    def read() -> None:
        if face == "messages":
            with consumer.messages(**QUICK) as messages:
                for _ in messages:
                    pass
        elif face == "consume":
            with consumer.consume(lambda m: None, **QUICK) as work:
                work.wait(LONG)
        elif face == "fetch":
            while True:
                with (
                    contextlib.suppress(errors.TimeoutError),
                    consumer.fetch(10, timeout=1.0) as batch,
                ):
                    for _ in batch:
                        pass
        else:
            while True:
                with contextlib.suppress(errors.TimeoutError):
                    consumer.next(1.0)

    return read


ways = pytest.mark.parametrize("face", ["messages", "consume", "fetch", "next"])


@ways
@pytest.mark.parametrize("successor", [False, True], ids=["gone", "another"])
def test_a_deleted_and_recreated_stream_is_an_error(
    nc: jsync.Connection, stream: jsync.Stream, face: str, successor: bool
) -> None:
    fill(nc, stream, 10)
    reading = Thread(end_of(stream.ordered_consumer(), face))
    reading.wait_until_blocked()
    stream.delete()
    if successor:
        nc.jetstream().create_stream(stream.config)
    assert isinstance(reading.error(), errors.StreamNotFoundError)


@ways
def test_closing_the_connection_is_an_error(
    server: LocalServer, stream: jsync.Stream, face: str
) -> None:
    nc = jsync.connect(server.url)
    consumer = nc.jetstream().ordered_consumer(stream.name)
    reading = Thread(end_of(consumer, face))
    reading.wait_until_blocked()
    nc.close()
    assert isinstance(reading.error(), errors.ConnectionClosedError)


@ways
def test_closing_without_the_server_is_an_error(
    stream: jsync.Stream, proxy: FaultProxy, face: str
) -> None:
    nc = connect(proxy.url, Events())
    reading = Thread(end_of(nc.jetstream().ordered_consumer(stream.name), face))
    reading.wait_until_blocked()
    proxy.refuse()
    proxy.cut()
    nc.close()
    assert isinstance(reading.error(), errors.ConnectionClosedError)


def test_an_ordered_read_ends_when_consumer_creation_fails(
    nc: jsync.Connection, stream: jsync.Stream, proxy: FaultProxy, told: Recorder
) -> None:
    fill(nc, stream, 1)
    with connect(proxy.url, Events()) as far:
        js = far.jetstream(timeout=0.2)
        consumer = js.ordered_consumer(stream.name, max_reset_attempts=2)
        with consumer.messages(**QUICK, on_error=told) as messages:
            take(messages, 1)  # creates the consumer that is then lost
            proxy.rewrite(Frames(lambda frame: b"consumer_create" not in frame))
            proxy.cut()
            with pytest.raises(errors.OrderedConsumerResetError) as caught:
                messages.next(LONG)
        assert isinstance(caught.value.__cause__, errors.TimeoutError)
        # On a busy machine an earlier creation may have been late as well.
        kinds = set[type]()
        while len(kinds) < 2:
            kinds.add(type(told.get()))
        assert kinds == {errors.OrderedConsumerResetError, errors.TimeoutError}


def test_stop_ends_it_while_the_server_is_away(
    stream: jsync.Stream, far_stream: jsync.Stream, proxy: FaultProxy
) -> None:
    consumer = far_stream.ordered_consumer()
    messages = consumer.messages()
    reading = Thread(lambda: numbers(messages))
    reading.wait_until_blocked()
    proxy.refuse()
    proxy.cut()
    messages.stop()
    assert reading.result() == []
    proxy.accept()


def test_messages_unread_at_a_stop_are_read_next(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 100)
    consumer = stream.ordered_consumer()
    with consumer.messages() as messages:
        assert take(messages, 3) == [0, 1, 2]
        wait_for(lambda: messages.pending > 50)
    with consumer.fetch(20) as batch:
        assert numbers(islice(batch, 4)) == [3, 4, 5, 6]
    for msg in consumer.messages():
        assert int(msg.data) == 7
        break
    for msg in consumer.fetch(50):
        assert int(msg.data) == 8
        break
    assert int(consumer.next().data) == 9


def test_drain_reads_the_received_messages_and_no_more(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 100)
    consumer = stream.ordered_consumer()
    messages = consumer.messages(max_messages=10)
    got = take(messages, 1)
    messages.drain()
    got += numbers(messages)
    assert got == list(range(len(got)))
    assert len(got) < 100
    assert int(consumer.next().data) == len(got)


def test_consume_drains_and_stops(nc: jsync.Connection, stream: jsync.Stream) -> None:
    fill(nc, stream, 100)
    consumer = stream.ordered_consumer()
    got: list[int] = []
    begun = threading.Event()

    def handle(msg: jsync.JetStreamMsg) -> None:
        got.append(int(msg.data))
        if len(got) == 5:
            assert begun.wait(SOON)
            work.stop()

    work = consumer.consume(handle, max_messages=10)
    begun.set()
    assert work.wait(SOON)
    assert got == [0, 1, 2, 3, 4]
    with consumer.consume(lambda m: got.append(int(m.data)), max_messages=10):
        pass
    assert got == list(range(len(got)))


def test_handler_exceptions_are_reported_and_may_end_reads(
    nc: jsync.Connection, stream: jsync.Stream, told: Recorder
) -> None:
    fill(nc, stream, 10)

    def handle(msg: jsync.JetStreamMsg) -> None:
        if int(msg.data) == 3:
            raise ValueError("three")

    consumer = stream.ordered_consumer()
    work = consumer.consume(handle, on_exception="stop", on_error=told)
    with pytest.raises(errors.CallbackError):
        work.wait(SOON)
    assert isinstance(told.get(), errors.CallbackError)
    assert int(consumer.next().data) == 4


def test_a_fetch_keeps_the_error_that_it_raised(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 3)
    with stream.ordered_consumer().fetch(10, timeout=LONG) as batch:
        assert int(next(batch).data) == 0
        assert batch.error is None
        stream.delete()
        with pytest.raises(errors.StreamNotFoundError) as caught:
            numbers(batch)
        assert batch.error is caught.value


def test_a_fetch_out_of_time_announces_no_replacement(
    nc: jsync.Connection, stream: jsync.Stream, told: Recorder
) -> None:
    fill(nc, stream, 3)
    consumer = stream.ordered_consumer()
    with consumer.fetch(10, timeout=1.0, on_error=told) as batch:
        begun = time.monotonic()
        wait_for(lambda: batch._fetch.pending == 3)
        delete_consumers(nc, stream)
        wait_for(lambda: time.monotonic() - begun > 1.0)
        assert numbers(batch) == [0, 1, 2]
        assert isinstance(batch.error, errors.ConsumerDeletedError)
    nc._session.callbacks.submit(told, "end")
    assert told.get() == "end"
    fill(nc, stream, 1)
    assert int(consumer.next(SOON).data) == 3


def test_a_short_fetch_reports_the_deleted_stream(
    stream: jsync.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MIN_GRACE", SOON)
    with stream.ordered_consumer() as reader:
        reader.fetch(1, timeout=SOON).close()  # the next fetch needs another consumer
        stream.delete()
        # No time is left for the answer of the server, except for this grace.
        with pytest.raises(errors.StreamNotFoundError):
            reader.fetch(1, timeout=0.000_001)
