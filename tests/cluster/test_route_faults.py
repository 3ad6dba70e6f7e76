"""Tests of routes between servers that are cut, throttled and half open, while leaders change."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from jsync import errors

from ..support.campaign import seeded
from ..support.connection_faults import Events, connect
from ..support.routed_cluster import RoutedCluster
from ..support.servers import wait_for
from ..support.stream_verifier import PATIENCE, Published, Received, read_back
from ..support.threads import Thread
from .test_publisher_failover import answered

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsync

    from ..support.proxy import FaultProxy, Side

pytestmark = [pytest.mark.cluster, pytest.mark.fault]

logger = logging.getLogger("jsync.tests.routes")

RATE = 200_000
"""The number of bytes per second that a throttled route carries."""


@pytest.fixture
def routed() -> Iterator[RoutedCluster]:
    with RoutedCluster() as cluster:
        yield cluster


def throttle(data: bytes, to: Side) -> bytes:
    time.sleep(len(data) / RATE)
    return data


@contextlib.contextmanager
def harmed(proxies: list[FaultProxy], harm: str) -> Iterator[None]:
    """Cut or throttle routes, or let them carry bytes in one direction only."""
    with ExitStack() as repairs:
        for proxy in proxies:
            if harm == "cut":
                proxy.refuse()
                proxy.cut()
                repairs.callback(proxy.accept)
            elif harm == "throttle":
                proxy.rewrite(throttle)
                repairs.callback(proxy.rewrite, None)
            else:
                proxy.deaf("client")
                repairs.callback(proxy.hear, "client")
        yield


@pytest.mark.parametrize(
    "harm",
    [pytest.param("cut", marks=pytest.mark.unsteady), "throttle", "half open"],
)
def test_routes_that_break_lose_and_double_nothing(
    routed: RoutedCluster, unique: str, harm: str
) -> None:
    rng = seeded(harm)
    received = Received()
    with connect(routed.urls, Events()) as nc:
        js = nc.jetstream(timeout=5)
        stream = answered(
            lambda: js.create_stream(
                name=unique,
                subjects=[unique],
                num_replicas=3,
                duplicate_window=2 * PATIENCE,
            )
        )
        consumer: jsync.Consumer = answered(
            lambda: js.create_consumer(
                unique, durable_name="worker", ack_wait=5, max_ack_pending=2000
            )
        )
        publisher = js.publisher(window=500, resend=True, ack_timeout=PATIENCE)
        published = Published(publisher, unique)
        thread = Thread(published.run)
        changes = 0
        assert all(
            routed.carries(*pair) for pair in itertools.combinations(range(3), 2)
        )
        with consumer.consume(received, max_messages=500) as consuming:
            for one, other in itertools.combinations(range(3), 2):
                with harmed(routed.route(one, other), harm):
                    time.sleep(rng.uniform(0.3, 1))
                    with contextlib.suppress(errors.Error):
                        js._api.request(f"STREAM.LEADER.STEPDOWN.{unique}", timeout=1)
                        changes += 1
                    time.sleep(rng.uniform(0.3, 1))
                before = published.done
                wait_for(
                    lambda least=before: published.done > least + 1000,  # type: ignore[misc]
                    PATIENCE,
                )
            published.stopped.set()
            thread._future.result(PATIENCE)
            routed.wait_until_ready()
            received.check(consumer, published.highest)
            assert not consuming.closed
        logger.info("%s: %d changes of leader", harm, changes)
        leader = routed.stream_leader(unique)
        found = read_back(leader.url, unique)
        assert not published.check(found)
        assert len(received.times) >= len(found)
        assert stream.name == unique
