"""Tests of a connection to a cluster whose servers die, stop and return."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ..support.connection_faults import Events, connect
from ..support.servers import RawClient, wait_for
from ..support.threads import Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.connection import Connection
    from jsync.server import LocalServer

    from ..support.servers import Cluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def lent(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster. JetStream is ready again at the end."""
    yield cluster
    cluster.start()


@pytest.fixture
def whole(lent: Cluster) -> Iterator[Cluster]:
    """The cluster, with all its servers. JetStream may not be ready, because that takes long."""
    for server in lent.servers:
        server.start()
    for server in lent.servers:
        wait_for(functools.partial(announces, server, 3))
    yield lent
    for server in lent.servers:
        if server.is_running:
            server.resume()


def announces(server: LocalServer, count: int) -> bool:
    """Return whether the server announces this number of servers, including itself."""
    with RawClient(server.url) as client:
        return len(client.info.get("connect_urls", ())) == count


@pytest.fixture
def watcher(whole: Cluster) -> Iterator[Connection]:
    with connect(whole.urls, Events()) as watcher:
        yield watcher


def server_of(cluster: Cluster, nc: Connection) -> LocalServer:
    return next(s for s in cluster.servers if s.url == nc.connected_url)


def others(cluster: Cluster, nc: Connection) -> list[LocalServer]:
    return [s for s in cluster.servers if s.url != nc.connected_url]


def test_one_url_is_enough_to_learn_the_others(whole: Cluster) -> None:
    events = Events()
    with connect(whole.urls[0], events) as nc:
        wait_for(lambda: set(nc.servers) == set(whole.urls))
        assert sorted(events.wait("discovered")) == sorted(whole.urls[1:])
        assert events.names.count("discovered") == 1
        assert nc.connected_url == whole.urls[0]


def test_announced_servers_can_be_ignored(whole: Cluster) -> None:
    events = Events()
    with connect(whole.urls[0], events, ignore_discovered_servers=True) as nc:
        nc.flush()
        assert nc.servers == whole.urls[:1]
        whole.servers[0].kill()
        events.wait("disconnect")
        wait_for(lambda: "efused" in str(nc.last_error))
        whole.servers[0].start()
        events.wait("reconnect")
        assert nc.connected_url == whole.urls[0]
        assert "discovered" not in events.names


def test_a_server_that_joins_later_is_announced(whole: Cluster) -> None:
    late = whole.servers[2]
    late.kill()
    wait_for(functools.partial(announces, whole.servers[0], 2))
    events = Events()
    with connect(whole.urls[0], events) as nc:
        assert late.url not in nc.servers
        late.start()
        wait_for(lambda: late.url in nc.servers)
        wait_for(lambda: [late.url] in events.of("discovered"))


def test_connections_are_spread_over_the_servers(whole: Cluster) -> None:
    with connect(whole.urls, Events(), randomize=False) as nc:
        assert nc.connected_url == whole.urls[0]
    seen = set()
    for _ in range(60):
        with connect(whole.urls, Events()) as nc:
            seen.add(nc.connected_url)
        if len(seen) == 3:
            break
    assert seen == set(whole.urls)


def test_clients_of_a_killed_server_spread_over_others(
    whole: Cluster,
) -> None:
    events = [Events() for _ in range(16)]
    made = [connect(whole.urls[0], each) for each in events]
    try:
        for nc in made:
            wait_for(lambda nc=nc: len(nc.servers) == 3)  # type: ignore[misc]
        whole.servers[0].kill()
        for each in events:
            each.wait("reconnect")
        where = [nc.connected_url for nc in made]
        assert set(where) == set(whole.urls[1:])
    finally:
        for nc in made:
            nc.close()


def until_heard(nc: Connection, subject: str, received: jsync.Subscription) -> None:
    """Publish until a message arrives: the server has then heard of the far subscription."""

    def heard() -> bool:
        nc.publish(subject)
        return received.delivered > 0

    wait_for(heard)


def is_of_two_connections(numbers: list[int]) -> bool:
    """Return whether the numbers of each connection are in order.

    Messages sent just before a connection was lost can arrive after those sent next.
    """
    ends = [-1, -1]
    for number in numbers:
        ends.sort()
        if number <= ends[0]:
            return False
        ends[1 if number > ends[1] else 0] = number
    return True


def test_a_kill_under_load_neither_doubles_nor_reorders(
    whole: Cluster, watcher: Connection
) -> None:
    events, writers = Events(), 3
    received = watcher.subscribe("load.*", max_pending_bytes=1 << 30)
    watcher.flush()
    with connect(others(whole, watcher)[0].url, events) as nc:
        wait_for(lambda: len(nc.servers) == 3)
        victim = server_of(whole, nc)
        until_heard(nc, "load.probe", received)
        stop = threading.Event()
        nc.subscribe("service", callback=lambda msg: msg.respond(msg.data))

        def publish(writer: int) -> int:
            number = 0
            while not stop.wait(0.0002):
                nc.publish(f"load.{writer}", b"%d" % number)
                number += 1
            return number

        def ask() -> tuple[int, int]:
            answered = lost = 0
            while not stop.is_set():
                data = b"%d" % (answered + lost)
                try:
                    assert nc.request("service", data, timeout=20).data == data
                    answered += 1
                except errors.ConnectionLostError:
                    lost += 1
            return answered, lost

        threads = [Thread(publish, writer) for writer in range(writers)]
        asker = Thread(ask)
        wait_for(lambda: received.delivered > 500)
        victim.kill()
        events.wait("reconnect")
        assert nc.connected_url != victim.url
        before = received.delivered
        wait_for(lambda: received.delivered > before + 500)
        stop.set()
        counts = [thread.result() for thread in threads]
        answered, lost = asker.result()
        assert answered > 10
        assert lost <= 1
        for writer in range(writers):
            nc.publish(f"load.{writer}", b"end")
        seen: list[list[int]] = [[] for _ in range(writers)]
        ended = 0
        while ended < writers:
            msg = received.next(10)
            if msg.subject == "load.probe":
                continue
            if msg.data == b"end":
                ended += 1
            else:
                seen[int(msg.subject[5:])].append(int(msg.data))
    for numbers, count in zip(seen, counts, strict=True):
        assert len(numbers) == len(set(numbers))
        assert is_of_two_connections(numbers)
        assert numbers[0] == 0
        assert numbers[-1] == count - 1
        # The killed server had not read, or not forwarded, the missing messages.
        assert len(numbers) > count / 2


def test_a_lame_duck_is_left_and_not_offered(
    whole: Cluster,
) -> None:
    events = Events()
    with connect(whole.urls[0], events) as nc:
        subscription = nc.subscribe("data")
        wait_for(lambda: len(nc.servers) == 3)
        whole.servers[0].lame_duck()
        events.wait("lame_duck")
        events.wait("reconnect")
        assert nc.connected_url in whole.urls[1:]
        nc.publish("data", b"1")
        assert subscription.next(10).data == b"1"
    whole.servers[0].kill()


def test_two_of_three_may_die(whole: Cluster) -> None:
    events = Events()
    with connect(whole.urls[0], events) as nc:
        subscription = nc.subscribe("data")
        wait_for(lambda: len(nc.servers) == 3)
        for number in (1, 2):
            server_of(whole, nc).kill()
            events.wait("reconnect", number)
            nc.publish("data", b"%d" % number)
            assert subscription.next(10).data == b"%d" % number
        assert server_of(whole, nc).is_running
        assert [s.is_running for s in whole.servers].count(True) == 1


def test_all_may_die_and_come_back(whole: Cluster) -> None:
    events = Events()
    with connect(whole.urls, events) as nc:
        subscription = nc.subscribe("data")
        nc.flush()
        victims = [*others(whole, nc), server_of(whole, nc)]
        for victim in victims:
            victim.kill()
        events.wait("disconnect")
        request = Thread(functools.partial(nc.request, "service", timeout=60))
        for number in range(100):
            nc.publish("data", b"%d" % number)
        assert not nc.is_connected
        nc.subscribe("service", callback=lambda msg: msg.respond(b"yes"))
        for server in whole.servers:
            server.start()
        events.wait("reconnect")
        assert [int(subscription.next(20).data) for _ in range(100)] == [*range(100)]
        assert request.result().data == b"yes"


def test_losing_all_servers_closes_with_an_error_each(
    whole: Cluster,
) -> None:
    events = Events()
    nc = connect(whole.urls, events, max_reconnects=2)
    subscription = nc.subscribe("data")
    reader = Thread(functools.partial(subscription.next, None))
    for server in whole.servers:
        server.kill()
    reason = events.wait("closed")
    assert isinstance(reason, errors.NoServersError)
    assert set(reason.errors) == set(whole.urls)
    assert all(isinstance(e, errors.Error) for e in reason.errors.values())
    error = reader.error()
    assert isinstance(error, errors.ConnectionClosedError)
    assert error.__cause__ is reason
    nc.close()


def test_a_frozen_server_of_the_cluster_is_left(whole: Cluster) -> None:
    events = Events()
    options: dict[str, Any] = {"ping_interval": 0.1}
    with connect(whole.urls[0], events, **options) as nc:
        subscription = nc.subscribe("data")
        wait_for(lambda: len(nc.servers) == 3)
        whole.servers[0].pause()
        loss = events.wait("disconnect")
        assert isinstance(loss.__cause__, errors.StaleConnectionError)
        events.wait("reconnect")
        assert nc.connected_url != whole.urls[0]
        nc.publish("data", b"1")
        assert subscription.next(10).data == b"1"
        whole.servers[0].resume()


def test_the_first_connect_skips_servers_that_are_down(whole: Cluster) -> None:
    for server in whole.servers[:2]:
        server.kill()
    with jsync.connect(whole.urls, randomize=False) as nc:
        assert nc.connected_url == whole.urls[2]
