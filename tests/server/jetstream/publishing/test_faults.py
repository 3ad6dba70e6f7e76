"""Tests that messages reported as stored are in the stream, whatever fails."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.campaign import SECONDS, seeded
from ....support.proxy import FaultProxy, frame_filter
from ....support.servers import wait_for
from ....support.threads import LONG, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.proxy import Side

pytestmark = pytest.mark.server

FAST: dict[str, Any] = {"reconnect_wait": 0.01}


@pytest.fixture
def js(server: LocalServer) -> Iterator[jsync.JetStream]:
    with jsync.connect(server.url) as connection:
        yield connection.jetstream()


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
    yield stream
    stream.delete()


def in_stream(js: jsync.JetStream, name: str) -> list[tuple[int, bytes]]:
    """Return the sequence and the payload of every message of the stream."""
    reader = js.create_consumer(name, ack_policy="none")
    left, found = js.stream(name).info().state.messages, []
    while left:
        for msg in reader.fetch(min(left, 1000), timeout=LONG):
            found.append((msg.metadata.stream_sequence, msg.data))
            left -= 1
    return found


def reported(
    futures: list[tuple[bytes, jsync.PubAckFuture]],
) -> tuple[dict[int, bytes], list[bytes]]:
    """Return the acknowledged messages by sequence, and the others."""
    acked: dict[int, bytes] = {}
    failed: list[bytes] = []
    for data, future in futures:
        assert future.done()
        if future.exception() is None:
            acked[future.result().seq] = data
        else:
            failed.append(data)
    return acked, failed


def check_honest(
    js: jsync.JetStream, name: str, futures: list[tuple[bytes, jsync.PubAckFuture]]
) -> None:
    """Check that each message reported as stored has its sequence, and that none is stored twice."""
    held = dict(in_stream(js, name))
    acked, failed = reported(futures)
    assert {seq: held.get(seq) for seq in acked} == acked
    assert max(Counter(held.values()).values(), default=1) == 1
    assert set(held.values()) <= {b"first", *acked.values(), *failed}


@pytest.mark.parametrize("to", ["client", "server"])
@pytest.mark.parametrize("resend", [False, True])
def test_a_cut_at_any_byte_invents_no_ack(
    js: jsync.JetStream,
    stream: jsync.Stream,
    server: LocalServer,
    to: Side,
    resend: bool,
) -> None:
    name, futures = stream.name, []
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        jsync.connect(proxy.url, **FAST) as nc,
        nc.jetstream().publisher(resend=resend) as publisher,
    ):
        publisher.publish(f"{name}.a", b"first", msg_id="first").result(LONG)
        for size in range(0, 400, 11):
            proxy.cut_after(size, to)
            for number in range(4):
                data = b"%d %d" % (size, number)
                future = publisher.publish(f"{name}.a", data, msg_id=data.decode())
                futures.append((data, future))
            with contextlib.suppress(errors.PublisherError):
                publisher.flush(LONG)
    check_honest(js, name, futures)
    if resend:
        # Some bytes of a `cut_after` remained, so later messages were cut and sent again.
        assert not reported(futures)[1]
    assert nc.stats().reconnects > 10


def test_only_lost_acks_are_failures(
    js: jsync.JetStream, stream: jsync.Stream, server: LocalServer
) -> None:
    lost = seeded()
    dropped = 0

    def keeps(frame: bytes, to: Side) -> bool:
        nonlocal dropped
        drop = to == "client" and b'"seq"' in frame and lost.random() < 0.1
        dropped += drop
        return not drop

    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        jsync.connect(proxy.url, **FAST) as nc,
    ):
        publisher = nc.jetstream().publisher(window=50, ack_timeout=1.0)
        publisher.publish(f"{stream.name}.a", b"first").result(LONG)
        proxy.rewrite(frame_filter(keeps))
        futures = [
            (b"%d" % i, publisher.publish(f"{stream.name}.a", b"%d" % i))
            for i in range(1000)
        ]
        with pytest.raises(errors.PublisherError) as caught:
            publisher.close()
    _, failed = reported(futures)
    assert caught.value.count == len(failed) == dropped
    assert {type(f.error) for f in caught.value.failures} == {errors.TimeoutError}
    assert stream.info().state.messages == 1001
    check_honest(js, stream.name, futures)


def test_a_stream_deleted_midway_fails_the_later_messages(
    js: jsync.JetStream, stream: jsync.Stream, nc: jsync.Connection
) -> None:
    told: list[Exception] = []
    publisher = nc.jetstream().publisher(
        ack_timeout=1.0, on_error=lambda _, error: told.append(error)
    )
    futures = []
    for i in range(10_000):
        futures.append(publisher.publish(f"{stream.name}.a", b"%d" % i))
        if i == 5000:
            js.delete_stream(stream.name)
    js.create_stream(name=stream.name, subjects=[f"{stream.name}.>"])
    with pytest.raises(errors.PublisherError):
        publisher.close()
    kinds = Counter(type(future.exception()) for future in futures)
    # The stream had accepted some messages when it was deleted, and never acknowledges them.
    assert set(kinds) <= {
        type(None),
        errors.NoStreamResponseError,
        errors.TimeoutError,
    }
    assert kinds[errors.NoStreamResponseError] > 0
    wait_for(lambda: len(told) == len(futures) - kinds[type(None)])


def test_many_publishers_leave_nothing_in_the_connection(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    js = nc.jetstream()
    for _ in range(300):
        with js.publisher(window=10) as publisher:
            publisher.publish_many(f"{stream.name}.a", [b"1"] * 20)
    session = nc._session
    assert len(session.interests) <= 1  # the inbox for replies
    assert len(session.timers._heap) + len(session.deadlines._heap) <= 300
    assert stream.info().state.messages == 6000


@pytest.mark.fault
@pytest.mark.parametrize("resend", [False, True])
def test_a_campaign_of_cuts_and_kills(own_server: StartServer, resend: bool) -> None:
    rng = seeded()
    server = own_server()
    writers, until = 3, time.monotonic() + SECONDS
    sent: list[list[tuple[bytes, jsync.PubAckFuture]]] = [[] for _ in range(writers)]
    refused: Counter[str] = Counter()

    def write(publisher: jsync.Publisher, number: int) -> None:
        count = 0
        while time.monotonic() < until:
            data = b"%d %d %s" % (number, count, b"x" * (count * 7 % 3000))
            count += 1
            try:
                future = publisher.publish("s.a", data, msg_id=f"{number}.{count}")
            except (errors.StallTimeoutError, errors.WriteTimeoutError) as error:
                refused[type(error).__name__] += 1
                continue
            sent[number].append((data, future))
            if count % 1000 == 0:
                time.sleep(0.005)

    with FaultProxy("127.0.0.1", server.port) as proxy:
        with jsync.connect(
            proxy.url, **FAST, write_buffer_size=1 << 18, write_timeout=0.5
        ) as nc:
            nc.jetstream().create_stream(
                name="S", subjects=["s.>"], max_bytes=-1, duplicate_window=120
            )
            publisher = nc.jetstream().publisher(
                window=500, resend=resend, ack_timeout=60, stall_timeout=0.5
            )
            threads = [Thread(write, publisher, number) for number in range(writers)]
            done = threading.Event()

            def harm() -> None:
                while time.monotonic() < until - 1:
                    time.sleep(rng.uniform(0.02, 0.4))
                    match rng.randrange(6):
                        case 0:
                            server.kill()
                            server.start()
                        case 1:
                            proxy.cut(rng.choice(["reset", "fin"]))
                        case 2:
                            proxy.deaf(rng.choice(["client", "server"]))
                            time.sleep(rng.uniform(0, 0.3))
                            proxy.hear()
                        case _:
                            side: Side = rng.choice(["client", "server"])
                            proxy.cut_after(rng.randrange(100_000), side)
                done.set()

            harm()
            for thread in threads:
                thread.result()
            assert done.is_set()
            with contextlib.suppress(errors.PublisherError):
                publisher.close(60)
            assert nc.stats().reconnects > 3
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        futures = [pair for pairs in sent for pair in pairs]
        check_honest(js, "S", futures)
        acked, failed = reported(futures)
        assert len(acked) > 100
        if resend:
            assert not failed
            held = [data for _, data in in_stream(js, "S")]
            for number, pairs in enumerate(sent):
                mine = [d for d in held if d.startswith(b"%d " % number)]
                assert sorted(mine) == sorted(data for data, _ in pairs)


# Threads that cannot be started --------------------------------------------------------


@pytest.fixture
def without_threads(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[jsync.Connection]:
    """Make the start of threads for a publisher fail three times."""
    with jsync.connect(server.url) as nc:
        factory = nc._session.thread_factory
        start, asked = factory.start, itertools.count(1)

        def start_or_not(name: str, run: Callable[[], object]) -> threading.Thread:
            if "-publisher-" in name and next(asked) <= 3:
                raise RuntimeError("can't start new thread")
            return start(name, run)

        monkeypatch.setattr(factory, "start", start_or_not)
        yield nc
        assert next(asked) > 3
        assert nc._session.reconnects == 0


def test_a_message_is_resent_once_a_thread_starts(
    without_threads: jsync.Connection, unique: str
) -> None:
    js = without_threads.jetstream()
    with js.publisher(retry_attempts=100, retry_wait=0.2) as publisher:
        future = publisher.publish(f"{unique}.a", b"1")
        wait_for(lambda: publisher.pending == 1)
        js.create_stream(name=unique, subjects=[f"{unique}.>"])
        assert future.result(LONG).seq == 1
    js.delete_stream(unique)


def test_ack_timeout_ends_a_message_without_a_thread(
    without_threads: jsync.Connection, server: LocalServer, unique: str
) -> None:
    done = threading.Event()
    with jsync.connect(server.url) as other:
        # receives the message and never replies
        other.subscribe(unique, callback=lambda _: None)
        other.flush()
        publisher = without_threads.jetstream().publisher(ack_timeout=5, resend=True)
        future = publisher.publish(unique, b"1", msg_id="1")
        future.add_done_callback(lambda _: done.set())  # no thread waits for it
        assert done.wait(LONG)
    assert isinstance(future.exception(), errors.TimeoutError)
    publisher.close()
