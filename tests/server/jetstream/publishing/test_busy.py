"""Tests of publishing to an overloaded server, and of windows that are full of bytes."""

from __future__ import annotations

import json
import signal
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import jsync
from jsync import errors
from jsync.jetstream.publishing import ack_tracker, publish

from ....support.proxy import frame_filter
from ....support.servers import RawClient, wait_for
from ....support.threads import LONG, SOON, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server

LARGE = 200_000
WRITERS, EACH = 8, 30
TOO_MANY = {"code": 429, "err_code": 10167, "description": "too many requests"}


@pytest.fixture
def busy(own_server: StartServer) -> LocalServer:
    """A server that rejects messages while three large ones wait to be stored.

    It writes each message to the disk before the next one, so that they do have to wait.
    """
    limit = f"max_buffered_size: {3 * LARGE + 2000}"
    return own_server(config=f"jetstream {{ {limit}, sync_interval: always }}")


def body(writer: int, number: int) -> bytes:
    return b"%d %d " % (writer, number) + bytes(LARGE)


def written_at_once(
    url: str, write: Callable[[jsync.JetStream, int], object]
) -> tuple[list[tuple[int, int]], int]:
    """Run several writers at once. Return the stored messages and the number of sent ones."""
    start = threading.Barrier(WRITERS)
    sent: list[int] = []

    def writer(number: int) -> None:
        with jsync.connect(url) as nc:
            start.wait(SOON)
            write(nc.jetstream(timeout=LONG), number)
            sent.append(nc.stats().out_messages)

    with jsync.connect(url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="S", subjects=["s"])
        threads = [Thread(writer, number) for number in range(WRITERS)]
        wait_for(lambda: all(thread.ended for thread in threads), LONG)
        for thread in threads:
            thread.result()
        reader = js.create_consumer("S", ack_policy="none")
        stored: list[tuple[int, int]] = []
        while len(stored) < stream.info().state.messages:
            for msg in reader.fetch(20, timeout=LONG):
                first, second, _ = msg.data.split(b" ", 2)
                stored.append((int(first), int(second)))
    return stored, sum(sent)


EVERYTHING = [(w, n) for w in range(WRITERS) for n in range(EACH)]


@pytest.mark.parametrize("ids", [False, True])
def test_writers_of_large_messages_lose_and_double_none(
    busy: LocalServer, ids: bool
) -> None:
    def write(js: jsync.JetStream, writer: int) -> None:
        with js.publisher() as publisher:
            for number in range(EACH):
                msg_id = f"{writer}-{number}" if ids else None
                publisher.publish("s", body(writer, number), msg_id=msg_id)

    stored, sent = written_at_once(busy.url, write)
    assert sorted(stored) == EVERYTHING
    assert sent > len(stored)


def test_a_busy_server_stores_columns_of_large_messages(
    busy: LocalServer,
) -> None:
    def write(js: jsync.JetStream, writer: int) -> None:
        rows = [body(writer, number) for number in range(EACH)]
        with js.publisher() as publisher:
            if writer % 2:
                publisher.publish_many("s", rows)
            else:
                publisher.publish_arrow(pa.table({"d": rows}), subject="s", data="d")

    stored, sent = written_at_once(busy.url, write)
    assert sorted(stored) == EVERYTHING
    assert sent > len(stored)


def test_a_window_of_one_keeps_order_under_load(
    busy: LocalServer,
) -> None:
    def write(js: jsync.JetStream, writer: int) -> None:
        with js.publisher(window=1) as publisher:
            for number in range(EACH):
                publisher.publish("s", body(writer, number))

    stored, _ = written_at_once(busy.url, write)
    for writer in range(WRITERS):
        assert [n for w, n in stored if w == writer] == list(range(EACH))


def test_a_busy_server_stores_all_single_messages(busy: LocalServer) -> None:
    def write(js: jsync.JetStream, writer: int) -> None:
        with js.publisher() as publisher:
            for number in range(EACH - 3):
                publisher.publish("s", body(writer, number))
            for number in range(EACH - 3, EACH):
                js.publish("s", body(writer, number), timeout=LONG)

    stored, _ = written_at_once(busy.url, write)
    assert sorted(stored) == EVERYTHING


# A server that is too busy for as long as a test wants -----------------------------------


class Stream:
    """A stream whose replies the test controls."""

    def __init__(self, server: LocalServer, subject: str) -> None:
        self.client = RawClient(server.url)
        self.client.connect(headers=True)
        self.client.send(f"SUB {subject} 1\r\nPING\r\n".encode())
        self.sequence = 0
        while self.client.read_line() != "PONG":
            pass

    def take(self) -> tuple[str, str]:
        """Return the payload and the reply subject of the next message."""
        *_, reply, _ = self.client.read_line().split()
        return self.client.read_line(), reply

    def refuse(self, reply: str) -> None:
        self.answer(reply, {"stream": "S", "error": TOO_MANY})

    def store(self, reply: str) -> None:
        self.sequence += 1
        self.answer(reply, {"stream": "S", "seq": self.sequence})

    def answer(self, reply: str, answer: object) -> None:
        text = json.dumps(answer, separators=(",", ":")).encode()
        self.client.send(f"PUB {reply} {len(text)}\r\n".encode() + text + b"\r\n")


@pytest.fixture
def scripted(server: LocalServer, unique: str) -> Iterator[Stream]:
    stream = Stream(server, unique)
    with stream.client:
        yield stream


def test_messages_refused_while_busy_go_before_new_ones(
    js: jsync.JetStream,
    unique: str,
    scripted: Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "jsync.jetstream.publishing.ack_tracker.backoff_delay", lambda _: 1.0
    )
    with js.publisher() as publisher:
        publisher.publish(unique, b"1")
        publisher.publish(unique, b"2")
        replies = [scripted.take()[1] for _ in range(2)]
        for reply in replies:
            scripted.refuse(reply)
        wait_for(lambda: "busy" in repr(publisher))
        third = Thread(publisher.publish, unique, b"3")
        for expected in "123":
            data, reply = scripted.take()
            scripted.store(reply)
            assert data == expected
        assert third.result().result(SOON).seq == 3
    assert (publisher.published, publisher.failed) == (3, 0)


def test_a_constantly_busy_server_raises_and_stores_nothing(
    js: jsync.JetStream,
    unique: str,
    scripted: Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The third pause ends after the timeout.
    monkeypatch.setattr(
        ack_tracker, "backoff_delay", lambda number: 0.01 + 3600 * (number > 1)
    )
    publisher = js.publisher(ack_timeout=4.0)
    future = publisher.publish(unique, b"1")
    for _ in range(3):
        scripted.refuse(scripted.take()[1])
    assert isinstance(future.exception(LONG), errors.TooManyRequestsError)
    publisher.close()


def test_single_messages_are_resent_until_there_is_room(
    js: jsync.JetStream,
    unique: str,
    scripted: Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher = Thread(lambda: js.publish(unique, b"1", timeout=LONG))
    for _ in range(4):
        scripted.refuse(scripted.take()[1])
    scripted.store(scripted.take()[1])
    assert publisher.result().seq == 1
    # The third pause would end after the timeout.
    monkeypatch.setattr(
        publish, "backoff_delay", lambda number: 0.01 + 3600 * (number > 1)
    )
    publisher = Thread(lambda: js.publish(unique, b"2", timeout=LONG))
    for _ in range(3):
        scripted.refuse(scripted.take()[1])
    assert isinstance(publisher.error(), errors.TooManyRequestsError)


def test_closing_ends_the_wait_for_a_busy_server(
    js: jsync.JetStream,
    unique: str,
    scripted: Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "jsync.jetstream.publishing.ack_tracker.backoff_delay", lambda _: 1.0
    )
    publisher = js.publisher()
    future = publisher.publish(unique, b"1")
    scripted.refuse(scripted.take()[1])
    wait_for(lambda: "busy" in repr(publisher))
    waiting = Thread(publisher.publish, unique, b"2")
    waiting.wait_until_blocked()
    with pytest.raises(errors.PublisherError):
        publisher.close(0)
    assert isinstance(waiting.error(), errors.PublisherClosedError)
    assert isinstance(future.exception(), errors.PublisherClosedError)


# Windows that are full of bytes ----------------------------------------------------------


def test_threads_awaiting_the_buffer_respect_the_byte_window(
    stream: jsync.Stream, proxy: FaultProxy
) -> None:
    with (
        jsync.connect(proxy.url, write_buffer_size=1 << 18, write_timeout=LONG) as nc,
        nc.jetstream().publisher(window_bytes=3 * LARGE + 1000) as publisher,
    ):
        publisher.publish(f"{stream.name}.a", b"0").result(LONG)
        proxy.rewrite(frame_filter(lambda frame, to: b'"seq"' not in frame))
        proxy.deaf("client")
        full = threading.Event()

        def fill() -> None:
            while not full.is_set():
                nc.publish("nobody.listens", bytes(LARGE))

        filler = Thread(fill)
        filler.wait_until_blocked()
        writers = [
            Thread(publisher.publish, f"{stream.name}.a", bytes(LARGE))
            for _ in range(8)
        ]
        for writer in writers:
            writer.wait_until_blocked()
        full.set()
        proxy.hear("client")
        filler.result()
        wait_for(lambda: stream.info().state.messages >= 4)
        for writer in writers:
            writer.wait_until_blocked()
        assert publisher.pending == 3
        with pytest.raises(errors.PublisherError):
            publisher.close(0)
        for writer in writers:
            writer.error()


def test_large_messages_get_their_turn_among_small_ones(
    stream: jsync.Stream, proxy: FaultProxy
) -> None:
    proxy.delay(0.01)
    done = threading.Event()
    with (
        jsync.connect(proxy.url) as nc,
        nc.jetstream().publisher(window_bytes=LARGE // 2, stall_timeout=LONG) as ahead,
    ):

        def publish() -> None:
            while not done.is_set():
                ahead.publish(f"{stream.name}.a", bytes(1000))

        writers = [Thread(publish) for _ in range(4)]
        wait_for(lambda: ahead.published > 1000)
        large = Thread(ahead.publish, f"{stream.name}.a", bytes(LARGE))
        try:
            assert large.result().result(LONG).seq > 0
        finally:
            done.set()
            for writer in writers:
                writer.result()


def test_a_signal_ends_a_publisher_waiting_for_bytes(
    stream: jsync.Stream, proxy: FaultProxy
) -> None:
    with (
        jsync.connect(proxy.url) as nc,
        nc.jetstream().publisher(window_bytes=1) as one,
    ):
        one.publish(f"{stream.name}.a", b"0").result(LONG)
        proxy.deaf("server")
        one.publish(f"{stream.name}.a", b"1")
        main = threading.get_ident()
        timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            one.publish(f"{stream.name}.a", b"2")
        timer.join()
        proxy.hear("server")
        one.flush(LONG)
        assert one.publish(f"{stream.name}.a", b"2").result(LONG).seq == 3


def test_a_publisher_waiting_for_bytes_continues_after_reconnecting(
    stream: jsync.Stream, proxy: FaultProxy
) -> None:
    with (
        jsync.connect(proxy.url, reconnect_wait=0.02, max_reconnects=-1) as nc,
        nc.jetstream().publisher(window_bytes=1, resend=True) as publisher,
    ):
        proxy.rewrite(frame_filter(lambda frame, to: b'"seq"' not in frame))
        first = publisher.publish(f"{stream.name}.a", b"1", msg_id="1")
        waiting = Thread(
            lambda: publisher.publish(f"{stream.name}.a", b"2", msg_id="2")
        )
        waiting.wait_until_blocked()
        wait_for(lambda: stream.info().state.messages == 1)
        proxy.rewrite(None)
        proxy.cut()
        assert waiting.result().result(SOON).seq == 2
        assert first.result(SOON).duplicate
