"""Tests of a slow connection that breaks: no message is lost or duplicated, and none hangs."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import jsync
from jsync import errors

from ...support.campaign import seeded
from ...support.connection_faults import Events, connect
from ...support.servers import wait_for
from ...support.stream_verifier import Ledger, Published, Received, read_back
from ...support.threads import Thread
from ..jetstream.ingest.test_faults import check, pour
from ..jetstream.ingest.test_ingest import numbers
from ..jetstream.pulls.support import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ...support.proxy import FaultProxy

pytestmark = [pytest.mark.server, pytest.mark.fault]

logger = logging.getLogger("jsync.tests.wan")

PATIENCE = 120.0
CUTS = 3


@pytest.fixture(params=[0.05, 0.2], ids=["50 ms", "200 ms"])
def line(
    request: pytest.FixtureRequest, proxy: FaultProxy
) -> tuple[FaultProxy, Events]:
    """A proxy that delays both directions, and the events of its connections."""
    proxy.delay(request.param)
    return proxy, Events()


@pytest.fixture
def js(
    line: tuple[FaultProxy, Events],
) -> Iterator[jsync.JetStream]:
    """A context on that connection."""
    proxy, events = line
    with connect(proxy.url, events, connect_timeout=10) as nc:
        yield nc.jetstream(timeout=10)


@pytest.fixture
def stream(nc: jsync.Connection, unique: str) -> Iterator[jsync.Stream]:
    """A stream on a connection without faults."""
    stream = nc.jetstream().create_stream(
        name=unique, subjects=[f"{unique}.>"], allow_atomic=True, allow_batched=True
    )
    yield stream
    stream.delete()


def cut(
    line: tuple[FaultProxy, Events],
    has_ended: Callable[[], bool] = lambda: False,
    count: int = CUTS,
) -> None:
    """Cut the connection at any byte, again after each reconnect."""
    proxy, events = line
    rng = seeded(count)
    for number in range(1, count + 1):
        side = rng.choice(("client", "server"))
        size = int(10 ** rng.uniform(1, 5))
        proxy.cut_after(size, side)  # type: ignore[arg-type]
        wait_for(
            lambda number=number: (  # type: ignore[misc]
                events.names.count("reconnect") >= number or has_ended()
            ),
            PATIENCE,
        )
    logger.info("cuts: %d", events.names.count("reconnect"))


@pytest.mark.parametrize("resend", [True, False])
def test_a_distant_publisher_learns_each_outcome(
    server: LocalServer,
    line: tuple[FaultProxy, Events],
    js: jsync.JetStream,
    stream: jsync.Stream,
    resend: bool,
) -> None:
    publisher = js.publisher(window=500, resend=resend, ack_timeout=PATIENCE)
    published = Published(publisher, f"{stream.name}.a")
    thread = Thread(published.run)
    cut(line)
    published.stopped.set()
    thread._future.result(PATIENCE)
    failures = published.check(read_back(server.url, stream.name))
    assert set(failures) <= (set() if resend else {errors.ConnectionLostError})
    assert failures.total() < len(published.futures)


def test_a_distant_fast_ingest_stores_all_reported_messages(
    server: LocalServer,
    line: tuple[FaultProxy, Events],
    js: jsync.JetStream,
    stream: jsync.Stream,
) -> None:
    payloads = numbers(15_000)
    ingest = js.fast_ingest(outstanding=3, ack_timeout=PATIENCE)
    thread = Thread(pour, ingest, f"{stream.name}.a", payloads, 300)
    cut(line, lambda: thread.ended)
    thread._future.result(PATIENCE)
    found = read_back(server.url, stream.name)
    logger.info("added %d, stored %d", ingest.added, len(found))
    check(ingest, found, payloads)


@pytest.mark.parametrize("options", [{}, {"ack_first": True}], ids=["rows", "batch"])
def test_distant_atomic_batches_are_whole_or_absent(
    line: tuple[FaultProxy, Events],
    js: jsync.JetStream,
    stream: jsync.Stream,
    options: dict[str, bool],
) -> None:
    ledger = Ledger(f"{stream.name}.a")

    def publish() -> None:
        while len(ledger) < 5 or not done:
            ledger.publish(js, 20, PATIENCE, **options)

    done: list[bool] = []
    thread = Thread(publish)
    cut(line, lambda: thread.ended)
    done.append(True)
    thread._future.result(PATIENCE)
    logger.info("batches: %s", dict(ledger.verdicts))
    assert ledger.verdicts["stored"] > 0
    ledger.check(stream)


@pytest.mark.parametrize("way", ["consume", "messages", "fetch"])
def test_each_message_reaches_a_consumer_far_away(
    nc: jsync.Connection,
    line: tuple[FaultProxy, Events],
    js: jsync.JetStream,
    stream: jsync.Stream,
    way: str,
) -> None:
    count = 4000
    fill(nc, stream, count)
    near = stream.create_consumer(durable_name="far", ack_wait=3, max_ack_pending=2000)
    far = js.stream(stream.name).consumer("far")
    received, stopped = Received(), threading.Event()

    def is_over() -> bool:
        return len(received.times) == count

    def fetch() -> None:
        while not stopped.is_set():
            # A fetch lasts for one connection. The next fetch gets the remaining messages.
            with contextlib.suppress(errors.ConnectionError):
                with far.fetch(500, timeout=2) as batch:
                    for msg in batch:
                        received(msg)

    def iterate() -> None:
        with far.messages(max_messages=500) as messages:
            while not stopped.is_set():
                with contextlib.suppress(errors.TimeoutError):
                    received(messages.next(1))

    if way == "consume":
        with far.consume(received, max_messages=500) as consuming:
            cut(line, is_over)
            received.check(near)
            assert not consuming.closed
    else:
        thread = Thread(fetch if way == "fetch" else iterate)
        try:
            cut(line, lambda: is_over() or thread.ended)
            received.check(near)  # a lost ack causes a redelivery
        finally:
            stopped.set()
        thread._future.result(PATIENCE)
    assert set(received.times) == set(range(1, count + 1))


@pytest.mark.parametrize("way", ["messages", "read_arrow"])
def test_an_ordered_read_far_away_is_exact(
    nc: jsync.Connection,
    line: tuple[FaultProxy, Events],
    js: jsync.JetStream,
    stream: jsync.Stream,
    way: str,
) -> None:
    count = 3000
    fill(nc, stream, count)
    rows = js.stream(stream.name).read_arrow(columns=["sequence"], max_bytes=1 << 18)

    def iterate() -> list[int]:
        messages = js.ordered_consumer(stream.name).messages(stop_after=count)
        return [msg.metadata.stream_sequence for msg in messages]

    def arrow() -> list[int]:
        sequences: list[int] = pa.table(rows)["sequence"].to_pylist()
        return sequences

    thread = Thread(iterate if way == "messages" else arrow)
    cut(line, lambda: thread.ended)
    assert thread._future.result(PATIENCE) == list(range(1, count + 1))
