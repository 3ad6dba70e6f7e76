"""Tests of leaving a server in lame duck mode."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ...support.connection_faults import Events, FakeServer, Peer, connect
from ...support.servers import wait_for
from ...support.threads import Thread

if TYPE_CHECKING:
    import jsync
    from jsync.connection import Connection
    from jsync.server import LocalServer

    from ...conftest import StartServer

pytestmark = pytest.mark.server

# The server takes its time, so it is the client that leaves.
SLOW = 'lame_duck_grace_period: "60s"\nlame_duck_duration: "90s"\n'


@pytest.fixture
def pair(own_server: StartServer) -> tuple[LocalServer, LocalServer]:
    """Two servers that do not know each other."""
    return own_server(jetstream=False, config=SLOW), own_server(jetstream=False)


def connect_to(pair: tuple[LocalServer, LocalServer], events: Events) -> Connection:
    return connect([server.url for server in pair], events, randomize=False)


def test_a_lame_duck_is_left_for_another_server(
    pair: tuple[LocalServer, LocalServer],
) -> None:
    events = Events()
    with connect_to(pair, events) as nc:
        subscription = nc.subscribe("data")
        nc.publish("data", b"1")
        nc.flush()
        pair[0].lame_duck()
        events.wait("reconnect")
        assert nc.connected_url == pair[1].url
        assert events.names == ["connect", "lame_duck", "disconnect", "reconnect"]
        loss = events.of("disconnect")[0]
        assert isinstance(loss, errors.ConnectionLostError)
        assert "lame duck" in str(loss)
        assert pair[0].is_running
        nc.publish("data", b"2")
        assert [subscription.next(10).data for _ in range(2)] == [b"1", b"2"]


def note(numbers: list[int], msg: jsync.Msg) -> None:
    numbers.append(int(msg.data))


def test_publishes_during_a_move_arrive_in_order_once(
    pair: tuple[LocalServer, LocalServer],
) -> None:
    events = Events()
    arrived: list[list[int]] = [[], []]
    readers = [connect(server.url, Events()) for server in pair]
    stop = threading.Event()
    try:
        for reader, numbers in zip(readers, arrived, strict=True):
            reader.subscribe("data", callback=functools.partial(note, numbers))
            reader.flush()
        with connect_to(pair, events) as nc:

            def publish() -> int:
                number = 0
                while not stop.is_set():
                    nc.publish("data", b"%d" % number)
                    number += 1
                    if number % 100 == 0:
                        stop.wait(0.001)
                return number

            writer = Thread(publish)
            wait_for(lambda: len(arrived[0]) > 1000)
            pair[0].lame_duck()
            events.wait("reconnect")
            wait_for(lambda: len(arrived[1]) > 1000)
            stop.set()
            count = writer.result()
            nc.flush()
            wait_for(lambda: arrived[1][-1] == count - 1)
        numbers = arrived[0] + arrived[1]
        assert numbers == sorted(set(numbers))
        # Messages in flight when the client left are lost. The move itself waits for the others.
        assert count - len(numbers) < 200
    finally:
        stop.set()
        for reader in readers:
            reader.close()


def test_the_move_waits_for_requests_in_flight(
    pair: tuple[LocalServer, LocalServer],
) -> None:
    events = Events()
    answer = threading.Event()

    def serve(msg: Any) -> None:
        assert answer.wait(60)
        msg.respond(b"late")

    with connect(pair[0].url, Events()) as service, connect_to(pair, events) as nc:
        service.subscribe("service", callback=serve)
        service.flush()
        request = Thread(functools.partial(nc.request, "service", timeout=20))
        request.wait_until_blocked()
        pair[0].lame_duck()
        events.wait("lame_duck")
        with pytest.raises(TimeoutError):
            wait_for(lambda: "disconnect" in events.names, 0.5)
        assert nc.connected_url == pair[0].url
        answer.set()
        assert request.result().data == b"late"
        events.wait("reconnect")
        assert nc.connected_url == pair[1].url


def test_messages_sent_before_the_move_are_read(
    pair: tuple[LocalServer, LocalServer],
) -> None:
    events = Events()
    with connect(pair[0].url, Events()) as other, connect_to(pair, events) as nc:
        subscription = nc.subscribe("data")
        nc.flush()
        for number in range(20_000):
            other.publish("data", b"%d" % number)
        other.flush()
        pair[0].lame_duck()
        events.wait("reconnect")
        numbers = [int(subscription.next(10).data) for _ in range(20_000)]
        assert numbers == [*range(20_000)]


def test_a_lone_lame_duck_is_kept_until_shutdown(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False, config=SLOW)
    events = Events()
    with connect(server.url, events) as nc:
        subscription = nc.subscribe("data")
        nc.flush()
        server.lame_duck()
        events.wait("lame_duck")
        nc.publish("data", b"1")
        assert subscription.next(10).data == b"1"
        nc.flush()
        assert events.names == ["connect", "lame_duck"]
        server.kill()
        events.wait("disconnect")
        server.start()
        events.wait("reconnect")
        nc.publish("data", b"2")
        assert subscription.next(10).data == b"2"


def test_without_reconnect_a_lame_duck_is_only_reported(
    pair: tuple[LocalServer, LocalServer],
) -> None:
    events = Events()
    urls = [server.url for server in pair]
    with connect(urls, events, randomize=False, allow_reconnect=False) as nc:
        pair[0].lame_duck()
        events.wait("lame_duck")
        nc.flush()
        nc.flush()
        assert nc.connected_url == pair[0].url


def test_a_silent_lame_duck_is_left_too(
    own_server: StartServer,
) -> None:
    other = own_server(jetstream=False)
    events = Events()

    def script(peer: Peer) -> None:
        peer.handshake()
        told.wait(60)
        peer.greet(ldm=True)
        peer.hang()

    told = threading.Event()
    with FakeServer(script) as fake:
        with connect([fake.url, other.url], events, randomize=False) as nc:
            told.set()
            events.wait("lame_duck")
            events.wait("reconnect")
            assert nc.connected_url == other.url


def test_the_move_reads_messages_until_the_last_pong(
    own_server: StartServer,
) -> None:
    other = own_server(jetstream=False)

    def script(peer: Peer) -> None:
        peer.handshake()
        assert peer.frame() == b"SUB data 1\r\n"
        peer.greet(ldm=True)
        assert peer.frame() == b"PING\r\n"
        peer.send(b"MSG data 1 4\r\nlast\r\nPONG\r\n")
        peer.serve()

    events = Events()
    with FakeServer(script) as fake:
        with connect([fake.url, other.url], events, randomize=False) as nc:
            subscription = nc.subscribe("data")
            assert subscription.next(10).data == b"last"
            events.wait("reconnect")


def test_a_second_lame_duck_notice_moves_nothing(own_server: StartServer) -> None:
    other = own_server(jetstream=False)
    events = Events()

    def script(peer: Peer) -> None:
        peer.handshake()
        told.wait(60)
        peer.greet(ldm=True)
        peer.greet(ldm=True)
        peer.serve()

    told = threading.Event()
    with FakeServer(script) as fake:
        with connect([fake.url, other.url], events, randomize=False) as nc:
            told.set()
            events.wait("reconnect")
            nc.flush()
            assert events.names == ["connect", "lame_duck", "disconnect", "reconnect"]
