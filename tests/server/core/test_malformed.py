"""Tests of malformed and random bytes from a server."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.campaign import seeded
from ...support.connection_faults import (  # noqa: F401 (a fixture of every test here)
    Events,
    FakeServer,
    Peer,
    _no_crash,
    answers,
    connect,
    leave,
    reached,
)
from ...support.servers import wait_for
from ...support.threads import LONG

if TYPE_CHECKING:
    import random

    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.proxy import FaultProxy

pytestmark = pytest.mark.server

MALFORMED = [
    b"NONSENSE\r\n",
    b"\x00\x01\x02\r\n",
    b"MSG\r\n",
    b"MSG a b c d e f g h\r\n",
    b"MSG a x 1\r\nx\r\n",
    b"MSG a 1 -1\r\n",
    b"MSG a 1 99999999999999999999999\r\n",
    b"MSG a 1 2000000000\r\n",
    b"MSG a 1 2\r\nabXY",
    b"HMSG a 1 5 4\r\n",
    b"HMSG a 1 x 4\r\n",
    b"PING\n",
    b"MSG " + b"a" * 100_000 + b" 1 0\r\n\r\n",
    b"x" * 3_000_000,
    b"INFO\r\n",
    b"INFO nonsense\r\n",
    b"INFO []\r\n",
    b'INFO {"client_id": 1e400}\r\n',
    b"INFO " + b'{"a":' * 100_000 + b"\r\n",
    b'INFO {"version": "\xff"}\r\n',
    b"-ERR 'Parser Error'\r\n",
    b"-ERR 'Unknown Protocol Operation'\r\n",
]


@pytest.mark.parametrize("data", MALFORMED, ids=[repr(d[:40])[2:-1] for d in MALFORMED])
def test_malformed_bytes_cause_a_reconnect(
    proxy: FaultProxy, unique: str, data: bytes
) -> None:
    events = Events()
    with connect(proxy.url, events) as nc:
        subscription = nc.subscribe(unique)
        nc.flush()
        proxy.inject(data)
        loss = events.wait("disconnect")
        assert isinstance(loss.__cause__, errors.ProtocolError)
        assert len(str(loss)) < 1000
        events.wait("reconnect")
        nc.publish(unique, b"1")
        assert subscription.next(LONG).data == b"1"


HARMLESS = [
    b'INFO {"headers": true, "max_payload": null, "port": 4222.5}\r\n',
    b'INFO {"max_payload": "big"}\r\n',
    b'INFO {"connect_urls": [1]}\r\n',
    b'INFO {"headers": true, "max_payload": 36893488147419103232}\r\n',
    b"+OK\r\n",
    b"PONG\r\n" * 3,
    b"PING\r\n" * 1000,
    b"MSG gone 4242 5\r\nabcde\r\n",
    b"HMSG gone 4242 12 14\r\nNATS/1.0\r\n\r\nab\r\n",
    b"-ERR 'Something New'\r\n",
    b"-ERR '\xff\xfe'\r\n",
    b"-ERR ''\r\n",
    b'INFO {"headers": true, "max_payload": -1, "unknown": {"a": [1]}}\r\n',
    b'INFO {"headers": true, "connect_urls": ["", ":", "[::1", "%ff@x:1", "\xc3\xa9:1"]}\r\n',
    b"INFO {}\r\n",
]


@pytest.mark.parametrize("data", HARMLESS, ids=[repr(d[:40])[2:-1] for d in HARMLESS])
def test_the_unexpected_that_is_no_error_is_survived(
    proxy: FaultProxy, unique: str, data: bytes
) -> None:
    events = Events()
    with connect(proxy.url, events) as nc:
        subscription = nc.subscribe(unique)
        nc.flush()
        proxy.inject(data)
        nc.flush()
        nc.publish(unique, b"1")
        assert subscription.next(LONG).data == b"1"
        assert "disconnect" not in events.names


def garbage(rng: random.Random) -> bytes:
    """Return bytes that resemble the beginning of a frame more or less."""
    words = [
        *(b"MSG ", b"HMSG ", b"INFO {", b"-ERR '", b"PING", b"PONG", b"+OK", b"msg "),
        *(b"\r\n", b"\r\n", b"\n", b"\r", b" ", b"\t", b"\x00", b"'", b'"', b"}", b"-"),
        *(b"1", b"2 ", b"12", b"99999999999999999999", b"a.b", b">", b"NATS/1.0\r\n"),
        *(b'"max_payload":', b'"connect_urls":["', b'"]', b"true", b"\xff\xfe"),
    ]
    picked = [
        rng.choice(words) if rng.random() < 0.8 else rng.randbytes(rng.randrange(9))
        for _ in range(rng.randrange(1, 30))
    ]
    return b"".join(picked)


def test_a_campaign_of_garbage_is_survived(
    server: LocalServer, proxy: FaultProxy, unique: str
) -> None:
    rng = seeded()
    events = Events()
    rounds = 0
    with (
        jsync.connect(server.url) as direct,
        connect(
            proxy.url,
            events,
            reconnect_wait=0.0,
            connect_timeout=1.0,
            ping_interval=0.2,
            ignore_discovered_servers=True,
            ignore_auth_error_abort=True,
        ) as nc,
    ):
        subscription = nc.subscribe(unique)
        begin = time.monotonic()
        while (elapsed := time.monotonic() - begin) < 4 or (
            elapsed < LONG and (rounds <= 20 or len(events.of("reconnect")) <= 5)
        ):
            rounds += 1
            with contextlib.suppress(RuntimeError):  # between two connections
                proxy.inject(garbage(rng))
            direct.publish(unique, b"among it")
            with contextlib.suppress(errors.TimeoutError, errors.ConnectionError):
                nc.flush(0.01)
        wait_for(functools.partial(answers, nc))
        assert not nc.is_closed
        nc.publish(unique, b"end")
        while (data := subscription.next(LONG).data) != b"end":
            assert data == b"among it" or len(data) < 100
        assert rounds > 20
        assert len(events.of("reconnect")) > 5


def test_garbage_instead_of_a_handshake_is_survived(unique: str) -> None:
    rng = seeded()

    def script(peer: Peer) -> None:
        if peer.number == 0:
            leave(peer)
            return
        if peer.number > 150:
            peer.handshake()
            peer.serve()
            return
        with contextlib.suppress(OSError):
            if rng.random() < 0.5:
                peer.greet()
            peer.send(garbage(rng))

    events = Events()
    with FakeServer(script) as fake:
        with connect(
            fake.url,
            events,
            reconnect_wait=0.0,
            connect_timeout=1.0,
            ignore_discovered_servers=True,
            ignore_auth_error_abort=True,
        ) as nc:
            nc.publish("leave")
            wait_for(lambda: reached(fake, 151) and nc.is_connected)
            nc.flush()
        assert not any(isinstance(e, OverflowError) for e in events.of("closed"))


@pytest.mark.parametrize(
    "greeting",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"INFO {}\r\n",
        b"INFO {\r\n",
        b'INFO {"headers": true, "max_payload": 36893488147419103232}\r\n',
        b"INFO " + b"x" * (2 << 20),
        b"PING\r\n",
        b"\x00" * 100,
        b"",
    ],
)
def test_another_program_on_the_port_is_left_alone(
    own_server: StartServer, greeting: bytes
) -> None:
    server = own_server(jetstream=False)
    events = Events()

    def say(peer: Peer) -> None:
        peer.send(greeting)

    with connect(server.url, events, connect_timeout=2.0) as nc:
        subscription = nc.subscribe("data")
        nc.flush()
        server.kill()
        events.wait("disconnect")
        nc.publish("data", b"held")
        with FakeServer(say, port=server.port) as other:
            wait_for(lambda: len(other.peers) >= 2)
        assert not nc.is_closed
        server.start()
        events.wait("reconnect")
        assert subscription.next(LONG).data == b"held"
