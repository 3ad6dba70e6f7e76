"""Tests of fast ingest of large messages: bytes in flight, and streams that are overloaded."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors
from jsync.jetstream.atomic import driver as atomic_driver
from jsync.jetstream.publishing import backoff

from ....support.connection_faults import Events, connect
from ....support.threads import LONG, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync import FastIngest, JetStream, Stream

    from ....conftest import StartServer

pytestmark = pytest.mark.server

LARGE = 1_000_000
WRITERS = 8
SMALL_BUFFER = "jetstream { max_buffered_size: 3MB }"
"""The bytes that this server buffers for a stream. The default is 128 MB."""


def payloads(writer: int, count: int, size: int = LARGE) -> list[bytes]:
    return [b"%d %d " % (writer, n) + bytes(size - 20) for n in range(count)]


def labels(stream: Stream) -> list[tuple[int, int]]:
    """Return the writer and the number of each message in the stream."""
    count = stream.info().state.messages
    found = []
    with stream.ordered_consumer().fetch(count, timeout=LONG) as batch:
        for msg in batch:
            writer, number, _ = bytes(msg.data[:40]).split(b" ", 2)
            found.append((int(writer), int(number)))
    return found


@pytest.fixture
def tight(own_server: StartServer, unique: str) -> Iterator[tuple[str, Stream]]:
    """A server with a small buffer for streams, and a stream there."""
    server = own_server(config=SMALL_BUFFER)
    with connect(server.url, Events()) as nc:
        yield (
            server.url,
            nc.jetstream().create_stream(
                name=unique, subjects=[f"{unique}.>"], allow_batched=True
            ),
        )


def write_at_once(
    url: str, subject: str, count: int, **options: Any
) -> list[FastIngest]:
    """Run eight writers, each with its own connection, and raise the error of any writer."""

    def work(writer: int) -> FastIngest:
        with connect(url, Events()) as nc:
            with nc.jetstream().fast_ingest(**options) as ingest:
                for payload in payloads(writer, count):
                    ingest.add(subject, payload)
        return ingest

    threads = [Thread(work, writer) for writer in range(WRITERS)]
    return [thread._future.result(4 * LONG) for thread in threads]


def test_eight_writers_store_all_large_messages_once(
    tight: tuple[str, Stream], unique: str
) -> None:
    url, stream = tight
    write_at_once(url, f"{unique}.a", 20)
    found = labels(stream)
    assert sorted(found) == [(w, n) for w in range(WRITERS) for n in range(20)]
    for writer in range(WRITERS):
        assert [n for w, n in found if w == writer] == list(range(20))


def test_ok_names_each_message_that_found_no_room(
    tight: tuple[str, Stream], unique: str
) -> None:
    url, stream = tight
    ingests = write_at_once(url, f"{unique}.a", 20, gaps="ok", on_error=Recorder())
    lost = {
        (writer, n - 1)
        for writer, ingest in enumerate(ingests)
        for one in ingest.lost
        for n in range(one.first, one.last + 1)
    }
    found = labels(stream)
    assert len(found) == len(set(found))
    assert set(found) | lost == {(w, n) for w in range(WRITERS) for n in range(20)}
    assert not set(found) & lost
    assert not any(ingest.unconfirmed_ranges for ingest in ingests)


def test_the_bytes_under_way_never_exceed_the_window(
    own_server: StartServer, unique: str
) -> None:
    server = own_server()
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        stream = js.create_stream(
            name=unique, subjects=[f"{unique}.>"], allow_batched=True
        )
        ingest = js.fast_ingest(window_bytes=1_000_000)
        began = threading.Event()

        def work() -> None:
            with ingest:
                for number, payload in enumerate(payloads(0, 100, 100_000)):
                    if number == 50:
                        server.pause()
                        began.set()
                    ingest.add(f"{unique}.a", payload)

        thread = Thread(work)
        assert began.wait(LONG)
        thread.wait_until_blocked()
        assert 100_000 < ingest._writer.under_way <= 1_000_000
        server.resume()
        thread.result()
        assert labels(stream) == [(0, n) for n in range(100)]


def test_a_message_larger_than_the_window_goes_alone(
    js: JetStream, unique: str
) -> None:
    stream = js.create_stream(name=unique, subjects=[unique], allow_batched=True)
    with js.fast_ingest(window_bytes=1) as ingest:
        for payload in payloads(0, 5, 1000):
            ingest.add(unique, payload)
            assert ingest._writer.under_way <= 1000
    assert labels(stream) == [(0, n) for n in range(5)]
    js.delete_stream(unique)


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("sizes", [(100, 50_000), (50_000, 100), (100, 50_000, 100)])
def test_messages_of_varying_size_await_only_due_acks(
    js: JetStream, unique: str, sizes: tuple[int, ...], many: bool
) -> None:
    stream = js.create_stream(name=unique, subjects=[unique], allow_batched=True)
    # A single wait of this length would exceed the time limit of the test.
    with js.fast_ingest(window_bytes=1_000_000, ack_timeout=LONG) as ingest:
        parts = list(sizes)
        for part, size in enumerate(parts):
            messages = payloads(part, 300, size)
            if many:
                ingest.add_many(unique, messages)
            else:
                for payload in messages:
                    ingest.add(unique, payload)
            # If every ack comes in time, small messages do not begin another batch yet.
            is_last = part + 1 == len(parts) < 100
            if is_last and size == 100 and ingest._engine.requested_flow <= 20:
                parts.append(size)
        assert (ingest._engine.requested_flow > 20) == (sizes[-1] == 100)
    assert labels(stream) == [(p, n) for p in range(len(parts)) for n in range(300)]
    assert ingest.pub_ack.count == 300 * len(parts)
    js.delete_stream(unique)


def test_an_always_full_stream_raises_its_own_error(
    own_server: StartServer, unique: str
) -> None:
    server = own_server(config="jetstream { max_buffered_size: 1KB }")
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[unique], allow_batched=True)
        with pytest.raises(errors.TooManyRequestsError):
            with js.fast_ingest(ack_timeout=0.5) as ingest:
                ingest.add(unique, bytes(2000))
        ingest = js.fast_ingest(ack_timeout=0.5)
        ingest.add(unique, b"0")
        ingest.add(unique, bytes(2000))
        with pytest.raises(errors.IngestError) as caught:
            ingest.close()
        assert isinstance(caught.value.__cause__, errors.TooManyRequestsError)
        assert (caught.value.acked, caught.value.unconfirmed) == (1, None)
        assert [one[:2] for one in caught.value.lost] == [(2, 2)]
        assert js.stream(unique).info().state.messages == 1


def test_atomic_batches_retry_messages_that_found_no_room(
    own_server: StartServer, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejections: list[int] = []

    def backoff_delay(count: int) -> float:
        rejections.append(count)
        return backoff.backoff_delay(count)

    monkeypatch.setattr(atomic_driver, "backoff_delay", backoff_delay)
    server = own_server(config="jetstream { max_buffered_msgs: 2 }")
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[f"{unique}.>"], allow_atomic=True)
        stop = threading.Event()
        stored = 0

        def flood() -> None:
            with connect(server.url, Events()) as other:
                while not stop.is_set():
                    other.publish(f"{unique}.flood", b"x")

        flooding = Thread(flood)
        try:
            while len(rejections) < 5:
                batch = js.atomic_batch(timeout=LONG)
                batch.add(f"{unique}.a", b"0", ack=True)
                batch.add(f"{unique}.a", b"1", ack=True)
                assert batch.commit(f"{unique}.a", b"2").count == 3
                stored += 3
        finally:
            stop.set()
            flooding.result()
        info = js.stream(unique).info(subjects_filter=f"{unique}.a")
        assert info.state.subjects == {f"{unique}.a": stored}


def test_a_batch_never_finding_room_is_not_stored(
    own_server: StartServer, unique: str
) -> None:
    server = own_server(config="jetstream { max_buffered_size: 1KB }")
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[unique], allow_atomic=True)
        batch = js.atomic_batch(timeout=3)  # a busy server answers the last try
        batch.add(unique, b"0", ack=True)
        with pytest.raises(errors.TooManyRequestsError):
            batch.commit(unique, bytes(2000))
        assert js.stream(unique).info().state.messages == 0
