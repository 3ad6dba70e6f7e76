"""Tests of eight threads that share one connection, plain or over TLS.

The connection is lost and closed while the threads work. Each thread does other work, for
JSYNC_SHARED_SECONDS. The tests are the same with and without the
GIL: run them for a long time on a free-threaded interpreter.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ...support.proxy import FaultProxy
from ...support.servers import wait_for
from ...support.threads import LONG, SOON, Thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync.server import LocalServer

pytestmark = pytest.mark.server

SECONDS = float(os.environ.get("JSYNC_SHARED_SECONDS", "0.7"))

# The errors of calls that were interrupted by a loss of the connection.
LOST = (
    errors.ConnectionLostError,
    errors.NoRespondersError,
    errors.ReconnectBufferFullError,
    errors.TimeoutError,
)


class Shared:
    """The connection, the stream, and the records of the threads."""

    def __init__(self, nc: jsync.Connection, unique: str, losses: bool) -> None:
        self.nc = nc
        self.js = nc.jetstream(timeout=LONG)
        self.unique = unique
        self.losses = losses
        self.over = threading.Event()
        self.stream = self.js.create_stream(
            name=unique, subjects=[f"{unique}.stored.*"], storage="memory"
        )
        self.published: dict[int, int] = {}
        self.stored = 0

    def interrupted(self) -> contextlib.AbstractContextManager[None]:
        """Accept an error only if the connection was lost."""
        return (
            contextlib.suppress(*LOST) if self.losses else contextlib.nullcontext(None)
        )

    def publish(self, publisher: jsync.Publisher, number: int) -> None:
        """Publish 0, 1, 2, ... until the time is over, and wait for every ack."""
        subject, i = f"{self.unique}.stored.{number}", 0
        futures = []
        while not self.over.is_set():
            futures.append(
                publisher.publish(subject, b"%d" % i, msg_id=f"{number}-{i}")
            )
            i += 1
        self.published[number] = i
        for future in futures:
            future.result(LONG)

    def ask(self, number: int) -> None:
        i = 0
        while not self.over.is_set():
            question = b"%d %d" % (number, i)
            with self.interrupted():
                reply = self.nc.request(f"{self.unique}.echo", question, timeout=SOON)
                assert reply.data == question
            i += 1

    def speak(self, number: int) -> None:
        """Publish to a subscription of this thread, which it opens and closes repeatedly."""
        subject, first = f"{self.unique}.core.{number}", 0
        while not self.over.is_set():
            with self.nc.subscribe(subject) as sub, self.interrupted():
                last = first - 1
                for i in range(first, first + 20):
                    self.nc.publish(subject, b"%d" % i)
                self.nc.flush(timeout=SOON)
                while last < first + 19:
                    got = int(sub.next(timeout=0.2 if self.losses else SOON).data)
                    # an earlier message that was buffered while disconnected
                    if self.losses and got < first:
                        continue
                    assert got == last + 1 or (self.losses and got > last)
                    last = got
            first += 20

    def fetch(self, consumer: jsync.Consumer, seen: dict[int, int]) -> None:
        while not self.over.is_set():
            with self.interrupted():
                for msg in consumer.fetch(50, timeout=0.5):
                    self.note(seen, msg)

    def note(self, seen: dict[int, int], msg: jsync.JetStreamMsg) -> None:
        """Count a message. Without losses each message comes once, and its ack has an effect."""
        sequence = msg.metadata.stream_sequence
        seen[sequence] += 1
        msg.ack()

    def keep(self, bucket: jsync.KeyValue) -> None:
        """Put and get one key. A read returns the last value."""
        i = 0
        while not self.over.is_set():
            with self.interrupted():
                bucket.put("key", b"%d" % i)
                entry = bucket.get("key")
                assert int(entry.value) == i
            i += 1


def is_acked(consumer: jsync.Consumer) -> bool:
    return consumer.info().num_ack_pending == 0


def run(shared: Shared, proxy: FaultProxy | None) -> None:
    """Run the eight threads until the time is over, then check their records."""
    nc, js, stream, unique = shared.nc, shared.js, shared.stream, shared.unique
    nc.subscribe(f"{unique}.echo", callback=lambda msg: msg.respond(msg.data))
    bucket = js.create_key_value(bucket=unique, storage="memory")
    fetching, consumer = (
        stream.create_consumer(
            durable_name=f"{unique}-{name}", ack_wait=2 if proxy else 60
        )
        for name in ("fetch", "consume")
    )
    fetched: dict[int, int] = defaultdict(int)
    consumed: dict[int, int] = defaultdict(int)
    read: dict[int, list[int]] = defaultdict(list)

    def log(msg: jsync.JetStreamMsg) -> None:
        read[int(msg.subject.rpartition(".")[2])].append(int(msg.data))

    consuming = consumer.consume(lambda msg: shared.note(consumed, msg))
    reading = stream.ordered_consumer().consume(log)
    with js.publisher(resend=True) as publisher:
        jobs: list[Callable[[], None]] = [
            lambda: shared.publish(publisher, 0),
            lambda: shared.publish(publisher, 1),
            lambda: shared.ask(0),
            lambda: shared.ask(1),
            lambda: shared.speak(0),
            lambda: shared.speak(1),
            lambda: shared.fetch(fetching, fetched),
            lambda: shared.keep(bucket),
        ]
        threads = [Thread(job) for job in jobs]
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if proxy is not None:
                proxy.cut()
            time.sleep(0.2)
        shared.over.set()
        for thread in threads:
            thread.result()
    wait_for(lambda: nc.is_connected, timeout=LONG)
    total = sum(shared.published.values())
    assert stream.info().state.messages == total
    wait_for(lambda: sum(map(len, read.copy().values())) == total, timeout=LONG)
    for number, count in shared.published.items():
        assert read[number] == list(range(count))
    while len(fetched) < total:  # its thread ended before it had fetched all messages
        for msg in fetching.fetch(200, timeout=1):
            shared.note(fetched, msg)
    wait_for(lambda: len(consumed) == total, timeout=LONG)
    # a loss of the connection loses acks, so messages are delivered again
    if proxy is None:
        assert set(fetched.values()) == set(consumed.values()) == {1}
        for one in (fetching, consumer):
            wait_for(partial(is_acked, one), timeout=LONG)
    consuming.drain()
    reading.stop()


@pytest.fixture(params=["nats", "tls"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def options(scheme: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    if scheme == "nats":
        return {}
    return {"tls_ca": request.getfixturevalue("certificates").ca.cert}


@pytest.fixture
def shared_server(scheme: str, request: pytest.FixtureRequest) -> LocalServer:
    name = "server" if scheme == "nats" else "tls_server"
    server: LocalServer = request.getfixturevalue(name)
    return server


def test_each_thread_gets_its_own_messages_once(
    shared_server: LocalServer, options: dict[str, Any], unique: str
) -> None:
    with jsync.connect(shared_server.url, **options) as nc:
        run(Shared(nc, unique, losses=False), None)


def test_cuts_neither_lose_nor_reorder_messages(
    shared_server: LocalServer, scheme: str, options: dict[str, Any], unique: str
) -> None:
    options |= {
        "reconnect_wait": 0.02,
        "reconnect_jitter_tls": 0.02,
        "max_reconnects": -1,
    }
    over = None if scheme == "nats" else scheme  # None: as all tests of this run
    with (
        FaultProxy("127.0.0.1", shared_server.port, scheme=over) as proxy,
        jsync.connect(proxy.url, **options) as frail,
    ):
        run(Shared(frail, unique, losses=True), proxy)


def forever(call: Callable[[], object]) -> None:
    while True:
        call()


def come_and_go(nc: jsync.Connection, subject: str) -> None:
    nc.subscribe(subject).unsubscribe()


def has_begun(nc: jsync.Connection) -> bool:
    return nc.stats().in_messages > 50


def test_a_close_ends_the_calls_of_all_threads(
    shared_server: LocalServer, options: dict[str, Any], unique: str
) -> None:
    end = time.monotonic() + SECONDS
    ended = (errors.ConnectionClosedError, errors.SubscriptionClosedError)
    while time.monotonic() < end:
        nc = jsync.connect(shared_server.url, **options)
        nc.subscribe(
            unique, callback=lambda msg: msg.respond(b"") if msg.reply else None
        )
        sub = nc.subscribe(unique)

        calls: list[Callable[[], object]] = [
            partial(nc.publish, unique, b"x"),
            partial(nc.request, unique, b"y", timeout=SOON),
            partial(nc.request, unique, b"z", timeout=SOON),
            partial(sub.next, timeout=SOON),
            partial(nc.flush, timeout=SOON),
            partial(come_and_go, nc, unique),
            partial(nc.rtt, timeout=SOON),
        ]
        threads = [Thread(forever, call) for call in calls]
        wait_for(partial(has_begun, nc), timeout=LONG)
        nc.close()
        for thread in threads:
            assert isinstance(thread.error(), ended)
