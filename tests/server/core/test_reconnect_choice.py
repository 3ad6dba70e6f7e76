"""Tests of the user's choice of the server to reconnect to (ADR-40)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.connection_faults import Events, FakeServer, Peer, connect
from ...support.connections import refusing_url, works
from ...support.servers import wait_for
from ...support.threads import LONG, SOON

if TYPE_CHECKING:
    from jsync import PoolServer, ServerInfo

    from ...conftest import StartServer

pytestmark = pytest.mark.server


def test_each_reconnect_goes_to_the_chosen_server(own_server: StartServer) -> None:
    urls = [own_server(jetstream=False).url for _ in range(3)]
    given: list[tuple[list[str], str]] = []

    def choose(servers: list[PoolServer], info: ServerInfo) -> PoolServer:
        given.append(([server.url for server in servers], info.server_id))
        return next(server for server in servers if server.url == urls[2])

    events = Events()
    with connect(urls, events, randomize=False, reconnect_to_server=choose) as nc:
        assert nc.connected_url == urls[0]  # the first connection is not chosen
        before = nc.server_info.server_id
        for count in (1, 2, 3):
            nc.force_reconnect()
            events.wait("reconnect", count)
            assert nc.connected_url == urls[2]
        assert works(nc)
    # The server that was left is the last one.
    assert given[0] == ([urls[1], urls[2], urls[0]], before)
    assert len(given) == 3
    assert not events.of("error")


def test_the_chosen_seconds_are_waited_and_no_others(own_server: StartServer) -> None:
    urls = [own_server(jetstream=False).url for _ in range(2)]
    pauses: list[float] = [0.3, 0.0]

    def choose(servers: list[PoolServer], _: ServerInfo) -> tuple[PoolServer, float]:
        return servers[-1], pauses.pop(0)

    events = Events()
    with connect(urls, events, reconnect_wait=LONG, reconnect_to_server=choose) as nc:
        first = nc.connected_url
        nc.force_reconnect()
        events.wait("disconnect")
        assert not events.of("reconnect")
        events.wait("reconnect")
        # The same server once more, which the connection has just left.
        assert nc.connected_url == first
        nc.force_reconnect()
        events.wait("reconnect", 2)


def test_a_choice_sees_the_attempts_and_errors(own_server: StartServer) -> None:
    gone, server = refusing_url(), own_server(jetstream=False)
    seen: list[tuple[int, object]] = []

    def choose(servers: list[PoolServer], _: ServerInfo) -> tuple[PoolServer, float]:
        by_url = {each.url: each for each in servers}
        seen.append((by_url[gone].attempts, by_url[gone].error))
        chosen = gone if by_url[gone].attempts < 3 else server.url
        return by_url[chosen], 0.01

    events = Events()
    with connect(
        [server.url, gone], events, randomize=False, reconnect_to_server=choose
    ) as nc:
        nc.force_reconnect()
        events.wait("reconnect")
    assert [attempts for attempts, _ in seen] == [0, 1, 2, 3]
    assert seen[0][1] is None
    assert all(isinstance(error, errors.ConnectionError) for _, error in seen[1:])


BAD = {
    "raises": lambda servers, _: 1 // 0,
    "no server": lambda servers, _: "nats://127.0.0.1:4222",
    "an unknown server": lambda servers, _: jsync.PoolServer(
        url="nats://unknown:4222", attempts=0, discovered=False, error=None
    ),
    "nan": lambda servers, _: (servers[0], float("nan")),
    "negative": lambda servers, _: (servers[0], -1),
    "three": lambda servers, _: (servers[0], 1, 2),
    "text": lambda servers, _: (servers[0], "1"),
    "exits": lambda servers, _: exit(3),
}


@pytest.mark.parametrize("bad", BAD)
def test_the_usual_server_is_tried_after_bad_choices(
    own_server: StartServer, bad: str
) -> None:
    urls = [own_server(jetstream=False).url for _ in range(2)]
    events = Events()
    with connect(urls, events, randomize=False, reconnect_to_server=BAD[bad]) as nc:
        nc.force_reconnect()
        events.wait("reconnect")
        assert nc.connected_url == urls[1]
        error = events.wait("error")
        assert isinstance(error, errors.CallbackError)
        assert "reconnect_to_server" in str(error)


def test_no_choice_leaves_the_usual_order(own_server: StartServer) -> None:
    urls = [own_server(jetstream=False).url for _ in range(2)]
    events = Events()
    with connect(
        urls, events, randomize=False, reconnect_to_server=lambda servers, _: None
    ) as nc:
        nc.force_reconnect()
        events.wait("reconnect")
        assert nc.connected_url == urls[1]
        assert not events.of("error")


def test_servers_set_during_a_choice_are_chosen_from(own_server: StartServer) -> None:
    old, new = own_server(jetstream=False), own_server(jetstream=False)
    choosing, release = threading.Event(), threading.Event()
    given: list[list[str]] = []

    def choose(servers: list[PoolServer], _: ServerInfo) -> PoolServer:
        given.append([server.url for server in servers])
        if len(given) == 1:
            choosing.set()
            release.wait(SOON)
        return servers[0]

    events = Events()
    with connect(old.url, events, reconnect_to_server=choose) as nc:
        nc.force_reconnect()
        assert choosing.wait(SOON)
        nc.set_servers([new.url])
        assert nc.servers == [new.url]
        release.set()
        events.wait("reconnect")
        assert nc.connected_url == new.url
    assert given == [[old.url], [new.url]]


def test_close_does_not_wait_for_a_choice() -> None:
    def drop(peer: Peer) -> None:
        peer.handshake()
        peer.reset()

    choosing, release = threading.Event(), threading.Event()

    def choose(servers: list[PoolServer], _: ServerInfo) -> PoolServer:
        choosing.set()
        release.wait(LONG)
        return servers[0]

    events = Events()
    with FakeServer(drop) as fake:
        nc = connect(fake.url, events, connect_timeout=LONG, reconnect_to_server=choose)
        assert choosing.wait(SOON)
        nc.close()
        events.wait("closed")
        release.set()


def test_the_servers_are_those_that_were_set_last(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    with jsync.connect(server.url) as nc:
        for number in range(200):
            url = f"nats://127.0.0.1:{10_000 + number}"
            nc.set_servers(url)
            assert nc.servers == [url]
        wait_for(lambda: nc.servers == [url])
