"""Tests of a server that disconnects whoever is slower than its messages arrive."""

from __future__ import annotations

from itertools import pairwise
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from jsync.jetstream.pulls.congestion import MAX_WINDOW

from ....support.connection_faults import Events, connect
from ....support.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsync

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy
    from .support import Pulls

pytestmark = pytest.mark.server

MESSAGES = 100
SIZE = 60_000


@pytest.fixture
def impatient(own_server: StartServer, events: Events) -> Iterator[jsync.Connection]:
    """A connection to a server that keeps at most four messages for a client."""
    server = own_server(config="max_payload: 65536\nmax_pending: 262144")
    with connect(server.url, events) as connection:
        js = connection.jetstream()
        js.create_stream(name="LARGE", subjects=["large"])
        for number in range(MESSAGES):
            js.publish("large", number.to_bytes(2, "big") + bytes(SIZE))
        yield connection
        connection.close()


def number_of(msg: jsync.JetStreamMsg) -> int:
    return int.from_bytes(msg.data[:2], "big")


def test_each_loss_halves_the_next_pull(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    pulls: Pulls,
    events: Events,
) -> None:
    with far_worker.messages() as messages:
        for round_ in range(1, 4):
            nc.jetstream().publish(f"{stream.name}.a", bytes(10_000))
            messages.next(timeout=60)
            proxy.cut()
            events.wait("reconnect", round_)
        wait_for(lambda: pulls.count == 4)
        first, *later = pulls.batches
    assert first == 500
    for before, after in pairwise(later):
        assert 0.4 * before < after < 0.6 * before


def test_the_first_pull_of_a_watch_is_limited(
    nc: jsync.Connection, far: jsync.Connection, pulls: Pulls
) -> None:
    nc.jetstream().create_key_value(bucket="LARGE").put("a", b"1")
    with far.jetstream().key_value("LARGE").watch() as watch:
        assert next(watch).value == b"1"
        request = pulls.requests[0]
    assert request["max_bytes"] == MAX_WINDOW


def test_a_read_ends_where_the_server_disconnects(
    impatient: jsync.Connection, events: Events
) -> None:
    stream = impatient.jetstream().stream("LARGE")
    consumer = stream.create_consumer(durable_name="worker", ack_wait=1)
    seen: set[int] = set()
    until = monotonic() + 60
    with consumer.messages() as messages:
        while len(seen) < MESSAGES and monotonic() < until:
            msg = messages.next(timeout=60)
            seen.add(number_of(msg))
            msg.ack()
    assert seen == set(range(MESSAGES))
    # Without a window there were 58 and 96 losses, and then 10 to 13.
    assert 0 < len(events.of("disconnect")) <= 40
