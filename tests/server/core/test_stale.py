"""Tests of connections that are dead without an error, and of closing at such times."""

from __future__ import annotations

import contextlib
import functools
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ...support.connection_faults import (  # noqa: F401 (a fixture of every test here)
    Events,
    FakeServer,
    Peer,
    _no_crash,
    answers,
    connect,
    is_empty,
    leave,
    reached,
)
from ...support.proxy import FaultProxy
from ...support.servers import wait_for
from ...support.threads import SOON, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.connection import Connection
    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.proxy import Side

pytestmark = pytest.mark.server

# Lines that are dead without saying so ------------------------------------------------


def test_a_frozen_server_is_left_for_another(own_server: StartServer) -> None:
    frozen, other = own_server(jetstream=False), own_server(jetstream=False)
    events = Events()
    with connect(
        [frozen.url, other.url],
        events,
        randomize=False,
        ping_interval=0.5,
        max_pings_out=2,
    ) as nc:
        subscription = nc.subscribe("data")
        nc.flush()
        assert nc.connected_url == frozen.url
        frozen.pause()
        loss = events.wait("disconnect")
        assert isinstance(loss.__cause__, errors.StaleConnectionError)
        events.wait("reconnect")
        assert nc.connected_url == other.url
        nc.publish("data", b"1")
        assert subscription.next(SOON).data == b"1"


def test_a_lone_frozen_server_is_waited_for(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    events = Events()
    with connect(server.url, events, ping_interval=0.5, connect_timeout=1.0) as nc:
        subscription = nc.subscribe("data")
        nc.flush()
        server.pause()
        events.wait("disconnect")
        nc.publish("data", b"held")
        # jsync tries the server, which does not answer.
        wait_for(lambda: isinstance(nc.last_error, errors.TimeoutError))
        assert not events.of("reconnect")
        server.resume()
        events.wait("reconnect")
        assert subscription.next(SOON).data == b"held"


@pytest.mark.parametrize("side", ["client", "server", "both"])
def test_a_deaf_line_is_made_again(proxy: FaultProxy, unique: str, side: Any) -> None:
    events = Events()
    with connect(proxy.url, events, ping_interval=0.5, connect_timeout=2.0) as nc:
        subscription = nc.subscribe(unique)
        nc.flush()
        # Without faults the server answers pings.
        assert not wait_in_vain(lambda: "disconnect" in events.names, 2.0)
        proxy.deaf(side)
        loss = events.wait("disconnect")
        assert isinstance(loss.__cause__, errors.StaleConnectionError)
        proxy.hear(side)
        events.wait("reconnect")
        nc.publish(unique, b"1")
        assert subscription.next(SOON).data == b"1"


def wait_in_vain(condition: Any, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        wait_for(condition, seconds)
        return True
    return False


# Handshakes ---------------------------------------------------------------------------


def test_a_handshake_cut_at_any_byte_is_retried(
    server: LocalServer, unique: str
) -> None:
    events = Events()
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        connect(proxy.url, events, reconnect_wait=0.0) as nc,
    ):
        subscription = nc.subscribe(unique)
        nc.flush()
        whole: dict[Side, int] = dict(proxy.bytes_to)
        cuts = [(to, size) for to in whole for size in range(1, whole[to], 7)]
        for to, size in cuts:
            number = len(events.of("disconnect")) + 1
            proxy.refuse()
            proxy.cut()
            events.wait("disconnect", number)
            proxy.cut_after(size, to)
            proxy.accept()
            wait_for(functools.partial(answers, nc))
            nc.publish(unique, b"%d" % number)
            assert subscription.next(SOON).data == b"%d" % number
        assert is_empty(subscription)


def test_a_ping_with_the_handshake_is_answered() -> None:
    frames: list[bytes] = []

    def script(peer: Peer) -> None:
        peer.greet()
        peer.frame()
        peer.frame()
        peer.send(b"PONG\r\nPING\r\n")
        frames.append(peer.frame())
        peer.send(b"PING\r\n")
        frames.append(peer.frame())
        peer.serve()

    with FakeServer(script) as fake, connect(fake.url, Events()):
        wait_for(lambda: len(frames) == 2)
    assert frames == [b"PONG\r\n", b"PONG\r\n"]


# Closing in the middle ----------------------------------------------------------------


@contextlib.contextmanager
def full_backlog() -> Iterator[int]:
    """A port on which a connect neither succeeds nor fails."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        while True:
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
            poll = select.poll()
            poll.register(sock, select.POLLOUT)
            if not poll.poll(200):
                break
        yield listener.getsockname()[1]


def leave_for(port: int) -> FakeServer:
    """A server that announces another one, and leaves when the client sends something."""

    def script(peer: Peer) -> None:
        if peer.number:
            peer.reset()
            return
        peer.handshake(connect_urls=[f"127.0.0.1:{port}"])
        peer.frame()
        peer.reset()

    return FakeServer(script)


def closes_promptly(nc: Connection) -> bool:
    """Check that `close` returns in time, wakes every thread, and ends the I/O thread."""
    subscription = nc.subscribe("data")
    reader = Thread(functools.partial(subscription.next, None))
    request = Thread(functools.partial(nc.request, "service", timeout=60))
    for call in (reader, request):
        call.wait_until_blocked()
    begin = time.monotonic()
    nc.close()
    assert time.monotonic() - begin < SOON
    for call in (reader, request):
        assert isinstance(call.error(), errors.ConnectionClosedError)
    assert nc.is_closed
    # `close` waits at most a second for a thread whose wait cannot be interrupted.
    assert not vars(nc._session.io)["_thread"].is_alive()
    return True


def test_close_tells_that_messages_may_be_lost(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    events = Events()
    nc = connect(server.url, events)
    server.pause()
    nc.publish("data", b"in the buffer of the kernel")
    nc.close()
    server.kill()
    events.wait("closed")
    (error,) = events.of("error")
    assert isinstance(error, errors.ConnectionClosedError)
    assert "may be lost" in str(error)
    assert isinstance(error.__cause__, errors.TimeoutError)


def test_close_without_a_message_tells_nothing(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    events = Events()
    nc = connect(server.url, events)
    nc.subscribe("data")
    nc.flush()
    server.pause()
    nc.close()
    server.kill()
    events.wait("closed")
    assert events.of("error") == []


def test_close_during_the_backoff_is_prompt(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    events = Events()
    nc = connect(server.url, events, reconnect_wait=60.0)
    server.kill()
    loss = events.wait("disconnect")
    # This is the first attempt, which is made at once.
    wait_for(lambda: nc.last_error not in {None, loss.__cause__})
    assert closes_promptly(nc)


def test_close_during_a_dial_into_nowhere_is_prompt() -> None:
    events = Events()
    with full_backlog() as port, leave_for(port) as fake:
        nc = connect(fake.url, events, connect_timeout=60.0, randomize=False)
        nc.publish("leave")
        events.wait("disconnect")
        assert closes_promptly(nc)
        assert len(fake.peers) == 1


def test_close_during_a_handshake_that_hangs_is_prompt() -> None:
    def script(peer: Peer) -> None:
        if peer.number == 0:
            leave(peer)
        elif peer.number == 1:
            peer.greet()
        peer.hang()

    events = Events()
    for hanging in (1, 2):
        with FakeServer(script) as fake:
            timeout = 60.0 if hanging == 1 else 0.3
            nc = connect(fake.url, events, connect_timeout=timeout)
            nc.publish("leave")
            wait_for(functools.partial(reached, fake, hanging))
            assert closes_promptly(nc)


def test_close_during_a_hanging_tls_handshake_is_prompt() -> None:
    def script(peer: Peer) -> None:
        if peer.number == 0:
            leave(peer)
            return
        peer.greet(tls_required=True)
        peer.sock.recv(1)
        begun.set()
        peer.hang()

    begun = threading.Event()
    events = Events()
    with FakeServer(script) as fake:
        nc = connect(fake.url, events, connect_timeout=60.0)
        nc.publish("leave")
        assert begun.wait(60)
        assert closes_promptly(nc)


def test_close_takes_one_second_while_reconnect_delay_hangs() -> None:
    released = threading.Event()

    def delay(number: int) -> float:
        assert released.wait(60)
        return 0.0

    events = Events()
    with FakeServer(leave) as fake:
        nc = connect(fake.url, events, reconnect_delay=delay, connect_timeout=60.0)
        nc.publish("leave")
        events.wait("disconnect")
        subscription = nc.subscribe("data")
        reader = Thread(functools.partial(subscription.next, None))
        reader.wait_until_blocked()
        begin = time.monotonic()
        nc.close()
        assert time.monotonic() - begin < SOON
        assert isinstance(reader.error(), errors.ConnectionClosedError)
        assert events.wait("closed") is None
        released.set()
        assert len(fake.peers) == 1


def test_an_attempt_succeeding_during_close_leaves_no_socket(
    server: LocalServer, unique: str
) -> None:
    """Close at any moment of a reconnect."""
    for delay in range(40):
        with FaultProxy("127.0.0.1", server.port) as proxy:
            events = Events()
            nc = connect(proxy.url, events, reconnect_wait=0.0)
            nc.subscribe(unique)
            proxy.cut()
            events.wait("disconnect")
            deadline = time.monotonic() + delay * 1e-4
            while time.monotonic() < deadline:
                pass
            nc.close()
            assert nc.is_closed
            assert events.wait("closed") is None
            wait_for(lambda proxy=proxy: proxy.connected == 0)  # type: ignore[misc]
