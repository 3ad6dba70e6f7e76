"""Tests of watching a connection by events, moving it, and giving it other servers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors
from jsync.core import events as connection_events
from jsync.core.io_thread import IOThread

from ...support.connection_faults import Events, FakeServer, Peer, connect
from ...support.connections import refusing_url
from ...support.processes import run_child
from ...support.proxy import FaultProxy
from ...support.servers import wait_for
from ...support.threads import LONG, SOON, Thread
from ...support.windows import needs_signals

if TYPE_CHECKING:
    from jsync.core.session import Session
    from jsync.server import LocalServer

    from ...conftest import StartServer

pytestmark = pytest.mark.server


@pytest.fixture
def pair(own_server: StartServer) -> tuple[LocalServer, LocalServer]:
    """Two servers that do not know each other."""
    return own_server(jetstream=False), own_server(jetstream=False)


def test_events_tell_loss_cause_return_and_end(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    with connect(server.url, Events()) as nc, nc.events() as events:
        server.restart()
        lost, back = events.next(LONG), events.next(LONG)
        assert isinstance(lost, jsync.Disconnected)
        assert isinstance(lost.error, errors.ConnectionLostError)
        assert back == jsync.Reconnected(url=server.url)
        nc.close()
        assert list(events) == [jsync.Closed(error=None)]
        with pytest.raises(errors.ConnectionClosedError):
            events.next()
        with pytest.raises(errors.ConnectionClosedError):
            nc.events()


def test_events_tell_the_first_connection_that_came_late(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    server.stop()
    with (
        connect(server.url, Events(), retry_on_failed_connect=True) as nc,
        nc.events() as events,
    ):
        server.start()
        assert events.next(LONG) == jsync.Connected(url=server.url)


@needs_signals
def test_events_tell_background_errors_and_lame_ducks(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    with (
        connect(server.url, Events(), max_pending_messages=1) as nc,
        nc.events() as events,
    ):
        nc.subscribe("slow")
        for _ in range(3):
            nc.publish("slow")
        error = events.next(LONG)
        assert isinstance(error, jsync.BackgroundError)
        assert isinstance(error.error, errors.SlowConsumerError)
        server.lame_duck()
        assert events.next(LONG) == jsync.LameDuck(url=server.url)


@pytest.mark.tcp_only(reason="the URL is nats://")
def test_events_tell_servers_that_the_cluster_announces() -> None:
    watched = threading.Event()

    def announce(peer: Peer) -> None:
        peer.handshake()
        assert watched.wait(SOON)
        peer.greet(connect_urls=["127.0.0.1:9"])
        peer.serve()

    with (
        FakeServer(announce) as server,
        connect(server.url, Events()) as nc,
        nc.events() as events,
    ):
        watched.set()
        expected = jsync.ServersDiscovered(servers=["nats://127.0.0.1:9"])
        assert events.next(LONG) == expected


def test_each_open_watcher_gets_each_event(
    server: LocalServer,
) -> None:
    with jsync.connect(server.url) as nc:
        first, second, left = nc.events(), nc.events(), nc.events()
        waiting = Thread(left.next)
        waiting.wait_until_blocked()
        left.close()
        assert isinstance(waiting.error(), errors.ConnectionClosedError)
        assert not list(left)
    assert list(first) == list(second) == [jsync.Closed(error=None)]


def test_a_slow_watcher_learns_the_missed_event_count(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_events, "MAX_EVENTS", 2)
    with jsync.connect(server.url, on_error=lambda _: None) as nc:
        events = nc.events()
        for number in range(5):
            nc._session.callbacks.report(ValueError(number))
    kinds = [type(event) for event in events]
    assert kinds[:2] == [jsync.BackgroundError] * 2
    assert kinds[2:] == [jsync.EventsDropped, jsync.Closed]


def test_waiting_for_an_event_ends_at_its_timeout(server: LocalServer) -> None:
    with jsync.connect(server.url) as nc, nc.events() as events:
        for timeout in (0, -1, 0.01):
            with pytest.raises(errors.TimeoutError):
                events.next(timeout)
        with pytest.raises(errors.ConfigError):
            events.next("soon")  # type: ignore[arg-type]


def test_a_forgotten_watcher_keeps_no_connection(server: LocalServer) -> None:
    def forget() -> Session:
        nc = jsync.connect(server.url)
        nc.events()
        return nc._session

    with pytest.warns(ResourceWarning):
        session = forget()
    wait_for(lambda: session.state is jsync.ConnectionState.CLOSED)


@needs_signals
def test_ctrl_c_ends_the_wait_for_an_event(server: LocalServer) -> None:
    script = """
        import os, signal, sys, threading, time, jsync
        nc = jsync.connect(sys.argv[1])
        events = nc.events()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            next(events)
        except KeyboardInterrupt:
            print("interrupted")
        nc.close()
        print(list(events))
    """
    assert run_child(script, server.url).split("\n")[:2] == [
        "interrupted",
        "[Closed(error=None)]",
    ]


def test_force_reconnect_changes_the_server_and_loses_nothing(
    pair: tuple[LocalServer, LocalServer],
) -> None:
    urls = [server.url for server in pair]
    # If the client waited for `reconnect_wait`, the test would take an hour.
    with (
        connect(urls, Events(), randomize=False, reconnect_wait=3600) as nc,
        jsync.connect(urls[0]) as reader,
        nc.events() as events,
    ):
        subscription = reader.subscribe("data")
        reader.flush()
        for number in range(1000):
            nc.publish("data", str(number).encode())
        nc.force_reconnect()
        lost, back = events.next(LONG), events.next(LONG)
        assert isinstance(lost, jsync.Disconnected)
        assert "you asked to reconnect" in str(lost.error)
        assert back == jsync.Reconnected(url=urls[1])
        numbers = [int(subscription.next(LONG).data) for _ in range(1000)]
        assert numbers == list(range(1000))


def test_a_server_being_left_reads_everything_published(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    asked, published, left, done = (threading.Event() for _ in range(4))
    read: list[bytes] = []

    def sends_much(peer: Peer) -> None:
        peer.handshake()
        assert peer.frame() == b"PING\r\n"
        asked.set()
        assert published.wait(LONG)
        peer.send(b"PONG\r\n")
        assert left.wait(LONG)
        try:
            # If the client has closed its socket, the reply is a reset.
            for _ in range(10):
                peer.send(b"+OK\r\n" * 1000)
            while True:
                read.append(peer.frame())
        finally:
            done.set()

    # The messages exceed the socket buffers of the server, so the client's socket holds some.
    with FakeServer(sends_much, receive_buffer=8192) as fake:
        urls = [fake.url, server.url]
        with (
            jsync.connect(server.url) as reader,
            reader.subscribe("data") as rest,
            connect(urls, Events(), randomize=False) as nc,
            nc.events() as events,
        ):
            reader.flush(LONG)
            nc.force_reconnect()
            assert asked.wait(LONG)
            for _ in range(100):
                nc.publish("data", bytes(10_000))
            published.set()
            assert isinstance(events.next(LONG), jsync.Disconnected)
            left.set()
            assert events.next(LONG) == jsync.Reconnected(url=server.url)
            assert done.wait(LONG)
            for _ in range(100 - len(read)):  # published once the sockets were full
                assert len(rest.next(LONG).data) == 10_000
            nc.flush(LONG)
            assert rest.pending == 0
    assert read


def test_flush_after_force_reconnect_awaits_the_new_connection(
    pair: tuple[LocalServer, LocalServer],
) -> None:
    urls = [server.url for server in pair]
    with connect(urls, Events(), randomize=False) as nc:
        for count in range(1, 51):
            nc.force_reconnect()
            nc.flush(LONG)
            assert nc.stats().reconnects == count


def test_a_reconnect_that_just_begins_is_under_way() -> None:
    class Beginning:
        """An I/O thread that begins when another thread looks at its move."""

        _reconnect_requested = True

        @property
        def _move(self) -> None:
            self._reconnect_requested = False

    assert vars(IOThread)["is_leaving"].fget(Beginning())


def test_force_reconnect_lets_a_request_end_first(
    pair: tuple[LocalServer, LocalServer],
) -> None:
    urls = [server.url for server in pair]
    asked = threading.Event()
    with connect(urls, Events(), randomize=False) as nc, jsync.connect(urls[0]) as peer:

        def answer(msg: jsync.Msg) -> None:
            asked.set()
            nc.force_reconnect()
            time.sleep(0.2)
            peer.publish(msg.reply or "", b"done")

        peer.subscribe("ask", callback=answer)
        peer.flush()
        assert nc.request("ask", timeout=LONG).data == b"done"
        wait_for(lambda: nc.connected_url == urls[1])


def test_force_reconnect_returns_to_a_single_server(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    with connect(server.url, Events(), reconnect_wait=3600) as nc:
        for count in range(1, 4):
            nc.force_reconnect()
            wait_for(lambda count=count: nc.stats().reconnects == count)  # type: ignore[misc]
        nc.flush(LONG)


def test_force_reconnect_leaves_a_silent_server(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)

    def hang(peer: Peer) -> None:
        peer.handshake()
        peer.hang()

    with FakeServer(hang) as silent:
        urls = [silent.url, server.url]
        with connect(urls, Events(), randomize=False) as nc:
            assert nc.connected_url == silent.url
            nc.force_reconnect()
            wait_for(lambda: nc.connected_url == server.url)


def test_force_reconnect_ends_waiting_for_the_next_attempt(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    with (
        connect(server.url, Events(), reconnect_wait=3600) as nc,
        nc.events() as events,
    ):
        server.stop()
        assert isinstance(events.next(LONG), jsync.Disconnected)
        wait_for(lambda: nc._session.io.pool.retry_delay is not None)
        server.start()
        while not nc.is_connected:  # an attempt may come before the server is back
            nc.force_reconnect()
            time.sleep(0.05)


def test_a_connection_that_cannot_reconnect_raises(server: LocalServer) -> None:
    with jsync.connect(server.url, allow_reconnect=False) as nc:
        with pytest.raises(errors.ConfigError, match="allow_reconnect=True"):
            nc.force_reconnect()
        assert nc.is_connected


def test_a_closed_connection_cannot_be_steered(server: LocalServer) -> None:
    with jsync.connect(server.url) as nc:
        pass
    with pytest.raises(errors.ConnectionClosedError):
        nc.force_reconnect()
    with pytest.raises(errors.ConnectionClosedError):
        nc.set_servers(server.url)


def test_new_servers_take_the_place_of_the_old(
    pair: tuple[LocalServer, LocalServer],
) -> None:
    first, second = pair
    with connect(first.url, Events()) as nc:
        nc.set_servers([second.url])
        wait_for(lambda: nc.servers == [second.url])
        assert nc.connected_url == first.url
        nc.force_reconnect()
        wait_for(lambda: nc.connected_url == second.url)
        assert nc.servers == [second.url]


def test_a_handshake_does_not_forget_a_wanted_move(
    pair: tuple[LocalServer, LocalServer],
) -> None:
    old, new = pair
    with (
        FaultProxy("127.0.0.1", old.port) as proxy,
        connect(proxy.url, Events(), connect_timeout=LONG) as nc,
    ):
        before = proxy.connections
        proxy.deaf("server")
        proxy.cut()
        wait_for(lambda: proxy.connections > before)
        nc.set_servers(new.url)
        nc.force_reconnect()
        proxy.hear("server")
        wait_for(lambda: nc.connected_url == new.url)


def test_new_servers_end_the_wait_for_the_old(own_server: StartServer) -> None:
    server, other = own_server(jetstream=False), own_server(jetstream=False)
    with connect(server.url, Events(), reconnect_wait=3600) as nc:
        server.stop()
        wait_for(lambda: nc.state is jsync.ConnectionState.RECONNECTING)
        nc.set_servers([refusing_url(), other.url])
        wait_for(lambda: nc.connected_url == other.url)


def test_wrong_servers_change_nothing(server: LocalServer) -> None:
    with jsync.connect(server.url) as nc:
        for wrong in ([], "", "http://host", ["nats://a b"]):
            with pytest.raises(errors.ConfigError):
                nc.set_servers(wrong)
        assert nc.servers == [server.url]


def test_a_new_inbox_is_unique(server: LocalServer) -> None:
    with jsync.connect(server.url, inbox_prefix="_MINE.a") as nc:
        inboxes = {nc.new_inbox() for _ in range(1000)}
        assert len(inboxes) == 1000
        inbox = inboxes.pop()
        assert inbox.startswith("_MINE.a.")
        replies = nc.subscribe(inbox)
        nc.publish(inbox, b"reply")
        assert replies.next(SOON).data == b"reply"


def test_many_threads_steer_at_once(pair: tuple[LocalServer, LocalServer]) -> None:
    urls = [server.url for server in pair]
    with connect(urls, Events(), reconnect_wait=0.01) as nc, nc.events() as events:

        def steer(number: int) -> None:
            for turn in range(20):
                if (number + turn) % 2:
                    nc.force_reconnect()
                else:
                    nc.set_servers(urls[:: 1 if turn % 4 else -1])
                time.sleep(0.001 * number)

        for thread in [Thread(steer, number) for number in range(4)]:
            thread.result()
        nc.set_servers(urls[1])
        wait_for(lambda: nc.servers == [urls[1]])
        nc.force_reconnect()
        wait_for(lambda: nc.connected_url == urls[1])
        nc.flush(LONG)
        nc.close()
        assert isinstance(list(events)[-1], jsync.Closed)
