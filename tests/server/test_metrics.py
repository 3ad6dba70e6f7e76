"""Tests of the counters of a connection, and of their format for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import jsync
from jsync import errors, metrics

from ..support.servers import wait_for

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ..support.proxy import FaultProxy

pytestmark = pytest.mark.server


def scraped(*connections: jsync.Connection) -> dict[tuple[str, str], float]:
    """Parse the text with the parser of Prometheus. Maps `(name, connection)` to the value."""
    return {
        (sample.name, sample.labels["connection"]): sample.value
        for family in text_string_to_metric_families(
            metrics.prometheus_text(*connections)
        )
        for sample in family.samples
    }


def test_message_counts_include_headers_and_payload_both_ways(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique)
    before = nc.stats()
    nc.publish(unique, b"12345", headers={"A": "b"})
    nc.publish(unique, b"")
    nc.flush()
    after = nc.stats()
    size = len(b"NATS/1.0\r\nA: b\r\n\r\n") + 5
    assert after.out_messages - before.out_messages == 2
    assert after.in_messages - before.in_messages == 2
    assert after.out_bytes - before.out_bytes == size
    assert after.in_bytes - before.in_bytes == size
    assert after.pending_messages == 2
    assert after.pending_bytes == 2 * len(unique) + size
    sub.next()
    assert nc.stats().pending_messages == 1
    assert nc.stats().unsent_bytes == 0


def test_subscriptions_are_counted_while_they_last(
    nc: jsync.Connection, unique: str
) -> None:
    assert nc.stats().subscriptions == 0
    with nc.subscribe(unique), nc.subscribe(unique):
        assert nc.stats().subscriptions == 2
    assert nc.stats().subscriptions == 0


def test_a_lagging_reader_is_counted_once_an_episode(
    nc: jsync.Connection, unique: str
) -> None:
    nc.subscribe(unique, max_pending_messages=1)
    for _ in range(5):
        nc.publish(unique)
    nc.flush()
    assert nc.stats().slow_consumers == 1


def test_bytes_kept_for_a_reconnect_count_as_unsent(
    proxy: FaultProxy, unique: str
) -> None:
    with jsync.connect(proxy.url, reconnect_wait=0.01) as nc:
        proxy.refuse()
        proxy.cut()
        wait_for(lambda: not nc.is_connected)
        nc.publish(unique, b"x" * 1000)
        assert nc.stats().unsent_bytes > 1000
        assert scraped(nc)["jsync_connected", nc.name] == 0
        proxy.accept()
        wait_for(lambda: nc.is_connected)
        nc.flush()
        # The server may send a PING at any time.
        wait_for(lambda: nc.stats().unsent_bytes == 0)
        assert nc.stats().reconnects == 1


def test_prometheus_reads_every_number_of_every_connection(
    server: LocalServer, unique: str
) -> None:
    with (
        jsync.connect(server.url, name='a "quoted"\\one\n') as first,
        jsync.connect(server.url) as second,
    ):
        first.publish(unique, b"x" * 10)
        found = scraped(first, second)
        for nc in (first, second):
            counts = msgspec.structs.asdict(nc.stats())
            assert found.pop(("jsync_connected", nc.name)) == 1
            for name, value in counts.items():
                total = f"jsync_{name}_total"
                key = total if (total, nc.name) in found else f"jsync_{name}"
                assert found.pop((key, nc.name)) == value
        assert not found


def test_two_connections_of_one_name_are_refused(server: LocalServer) -> None:
    with (
        jsync.connect(server.url, name="same") as first,
        jsync.connect(server.url, name="same") as second,
    ):
        with pytest.raises(errors.ConfigError, match="'same'"):
            metrics.prometheus_text(first, second)


def test_a_closed_connection_keeps_its_numbers(
    server: LocalServer, unique: str
) -> None:
    with jsync.connect(server.url) as nc:
        nc.publish(unique)
    assert nc.stats().out_messages == 1
    assert nc.stats().subscriptions == 0
    assert scraped(nc)["jsync_connected", nc.name] == 0
