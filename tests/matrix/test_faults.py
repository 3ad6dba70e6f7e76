"""Tests with killed servers of each line, and with a cut connection from a leaf to its hub."""

from __future__ import annotations

import logging

import pytest

from jsync import errors
from jsync.server import LocalServer

from ..support.campaign import seeded
from ..support.connection_faults import Events, connect
from ..support.proxy import FaultProxy
from ..support.servers import free_port, wait_for
from ..support.stream_verifier import Published, Received, read_back
from ..support.threads import Thread
from .leaf import answers, hub_of, leaf_of
from .lines import LINES, binary_of

pytestmark = [pytest.mark.server, pytest.mark.fault]

logger = logging.getLogger("jsync.tests.matrix")

LONG = 120.0
KILLS = 3
CUTS = 4


@pytest.mark.parametrize("line", LINES)
def test_a_killed_server_neither_loses_nor_doubles_anything(
    line: str, unique: str
) -> None:
    received, events = Received(), Events()
    with (
        LocalServer(binary=binary_of(line)) as server,
        connect(server.url, events) as nc,
    ):
        js = nc.jetstream()
        stream = js.create_stream(name=unique, subjects=[unique])
        consumer = stream.create_consumer(
            durable_name="worker", ack_wait=2, max_ack_pending=2000
        )
        published = Published(js.publisher(resend=True, ack_timeout=LONG), unique)
        thread = Thread(published.run)
        with consumer.consume(received, max_messages=500) as consuming:
            for number in range(1, KILLS + 1):
                before, seen = published.done, len(received.times)
                wait_for(
                    lambda least=before + 2000, some=seen: (  # type: ignore[misc]
                        published.done > least and len(received.times) > some
                    ),
                    LONG,
                )
                server.kill()
                events.wait("disconnect", number)
                server.start()
                events.wait("reconnect", number, LONG)
            published.stopped.set()
            thread._future.result(LONG)
            received.check(consumer)
            assert not consuming.closed
        assert not published.check(read_back(server.url, unique))
        logger.info("nats-server %s, kills: %d", nc.server_info.version, KILLS)


@pytest.mark.parametrize("resend", [True, False])
def test_a_cut_leaf_neither_loses_nor_doubles_anything(
    unique: str, resend: bool
) -> None:
    port, rng = free_port(), seeded(resend)
    received = Received()
    with (
        hub_of("2.15", f"127.0.0.1:{port}", advertise=False) as hub,
        FaultProxy("127.0.0.1", port) as proxy,
        leaf_of("2.15", f"127.0.0.1:{proxy.port}") as leaf,
        connect(leaf.url, Events()) as nc,
    ):
        js = nc.jetstream(domain="hub", timeout=2)
        wait_for(lambda: answers(js))
        js.create_stream(name=unique, subjects=[unique])
        consumer = js.create_consumer(
            unique, durable_name="worker", ack_wait=2, max_ack_pending=2000
        )
        # The cut connection is not that of the client, so messages are lost without an error.
        publisher = js.publisher(
            window=500, resend=resend, ack_timeout=LONG if resend else 2.0
        )
        published = Published(publisher, unique)
        thread = Thread(published.run)
        with consumer.consume(
            received, max_messages=500, expires=2, idle_heartbeat=0.5
        ) as consuming:
            for _ in range(CUTS):
                before, seen = published.done, len(received.times)
                wait_for(
                    lambda least=before + 1000, some=seen: (  # type: ignore[misc]
                        published.done > least and len(received.times) > some
                    ),
                    LONG,
                )
                links, side = proxy.connections, rng.choice(("client", "server"))
                proxy.cut_after(int(10 ** rng.uniform(1, 5)), side)  # type: ignore[arg-type]
                wait_for(lambda made=links: proxy.connections > made, LONG)  # type: ignore[misc]
            published.stopped.set()
            thread._future.result(LONG)
            received.check(consumer)
            assert not consuming.closed
        failures = published.check(read_back(hub.url, unique))
        if resend:
            assert not failures
        assert set(failures) <= {errors.TimeoutError, errors.NoStreamResponseError}
