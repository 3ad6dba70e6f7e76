"""Tests of servers that send anything, or nothing more, at any moment of the handshake.

On a first connect, `connect` raises one typed error or returns a connection that works. An
existing connection reconnects. The errors never close it, and nothing hangs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
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
    leave,
)
from ...support.servers import wait_for
from ...support.threads import LONG, SOON, Thread

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.server

INFO = (
    b"INFO %s\r\n"
    % json.dumps(
        {"server_id": "fake", "version": "2.15.1", "proto": 1, "headers": True}
    ).encode()
)
PONG = b"PONG\r\n"
HANDSHAKE = INFO + PONG

# Error texts of nats-server, from its source. After the first ones it closes the connection.
FATAL_WORDS = [
    "Authorization Violation",
    "Authentication Timeout",
    "User Authentication Expired",
    "User Authentication Revoked",
    "Account Authentication Expired",
    "Failed Account Registration",
    "Stale Connection",
    "Slow Consumer",
    "maximum connections exceeded",
    "maximum account active connections exceeded",
    "Maximum Payload Violation",
    "maximum control line exceeded",
    "Connection throttling is active. Please try again later.",
    "Secure Connection - TLS Required",
    "Unknown Protocol Operation",
    "Parser Error",
    "invalid client protocol",
    "no responders requires headers support",
    "attempted to connect to route port",
    "attempted to connect to gateway port",
    "attempted to connect to leaf node port",
]
OTHER_WORDS = [
    "maximum subscriptions exceeded",
    "Invalid Subject",
    "Invalid Publish Subject",
    'Permissions Violation for Publish to "a"',
    'Permissions Violation for Publish with Reply of "a"',
    'Permissions Violation for Subscription to "a"',
    'Permissions Violation for Subscription to "a" using queue "b"',
    'Permissions Violation for Subscription to "a", too many tokens',
    "Something that no server says yet",
]
FATAL = [
    *(b"-ERR '%s'\r\n" % words.encode() for words in FATAL_WORDS),
    *(b"INFO nonsense\r\n", b"INFO [7]\r\n", b"INFO \r\n", b"INFO\r\n"),
    *(b"NONSENSE\r\n", b"PONG\n", b"MSG a 1 -1\r\n", b"MSG a 1 2\r\nabXY"),
    *(b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\x00\xff\r\n"),
    *(b"-ERR 'half a li", b"M", b""),
]
REFUSING = [b"-ERR '%s'\r\n" % words.encode() for words in OTHER_WORDS]
HARMLESS = [
    INFO,
    INFO.replace(b"}", b', "ldm": true}'),
    INFO.replace(b"}", b', "connect_urls": ["127.0.0.1:1"]}'),
    INFO.replace(b"}", b', "go": 7, "cluster": null}'),
    INFO + b"PING\r\n+OK\r\n",
]


def hang_up(peer: Peer) -> None:
    """End the output, and wait until the client has left, because a reset would overtake it."""
    with contextlib.suppress(OSError):  # the client has left by now
        peer.sock.shutdown(socket.SHUT_WR)
    peer.serve()


def in_place_of_info(peer: Peer, words: bytes) -> None:
    peer.send(words)


def with_info(peer: Peer, words: bytes) -> None:
    peer.send(INFO + words)


def after_connect(peer: Peer, words: bytes) -> None:
    peer.send(INFO)
    assert peer.frame().startswith(b"CONNECT ")
    peer.send(words)


def before_pong(peer: Peer, words: bytes) -> None:
    peer.send(INFO)
    peer.frame()
    assert peer.frame() == b"PING\r\n"
    peer.send(words + PONG)


def with_pong(peer: Peer, words: bytes) -> None:
    peer.send(INFO)
    peer.frame()
    peer.frame()
    peer.send(PONG + words)


def after_pong(peer: Peer, words: bytes) -> None:
    with_pong(peer, b"")
    peer.send(words)


def good(peer: Peer) -> None:
    peer.handshake()
    peer.serve()


def bad(peer: Peer, moment: Callable[[Peer, bytes], None], words: bytes) -> None:
    moment(peer, words)
    if words in FATAL or (words in REFUSING and moment in BEFORE):
        hang_up(peer)
    else:
        peer.serve()


BEFORE = (in_place_of_info, with_info, after_connect, before_pong)
AFTER = (with_pong, after_pong)
KINDS = [f"-ERR '{words}'\r\n".encode() for words in FATAL_WORDS[3:]]
"""More texts of errors. Unit tests read each, and here each comes at one moment, or by `bulk`."""
CASES = [
    pytest.param(
        moment,
        words,
        id=f"{moment.__name__} {words!r}",
        marks=[pytest.mark.bulk] * (words in KINDS and moment is not with_info),
    )
    for moment in (*BEFORE, *AFTER)
    for words in (*FATAL, *REFUSING, *HARMLESS)
    if (moment is not in_place_of_info or words not in HARMLESS)
    and (moment is not before_pong or words)
]


def is_refused(moment: Callable[[Peer, bytes], None], words: bytes) -> bool:
    """Return whether no handshake with these words succeeds."""
    return moment in BEFORE and words not in HARMLESS


@pytest.mark.parametrize(("moment", "words"), CASES)
def test_connect_raises_a_typed_error_or_works(
    moment: Callable[[Peer, bytes], None], words: bytes
) -> None:
    events = Events()
    script = functools.partial(bad, moment=moment, words=words)
    with FakeServer(script, good) as fake:
        if is_refused(moment, words):
            with pytest.raises(errors.ConnectionError):
                connect(fake.url, events, connect_timeout=LONG)
            assert isinstance(events.wait("closed"), errors.ConnectionError)
            assert events.names == ["closed"]
            return
        nc = connect(fake.url, events, connect_timeout=LONG)
        try:
            expect_life(events, nc, lost=words in FATAL)
        finally:
            nc.close()


@pytest.mark.parametrize(("moment", "words"), CASES)
def test_a_connection_is_made_again(
    moment: Callable[[Peer, bytes], None], words: bytes
) -> None:
    events = Events()
    script = functools.partial(bad, moment=moment, words=words)
    with FakeServer(leave, script, good) as fake:
        nc = connect(fake.url, events, connect_timeout=LONG)
        try:
            nc.publish("leave")
            events.wait("reconnect")
            refused = is_refused(moment, words)
            expect_life(events, nc, lost=words in FATAL and not refused, before=1)
            if refused:
                assert isinstance(nc.last_error, errors.ConnectionError)
        finally:
            nc.close()


def expect_life(events: Events, nc: Any, *, lost: bool, before: int = 0) -> None:
    """Check the events of a working connection, with `before` earlier losses."""
    losses = before + lost
    events.wait("connect")
    if losses:
        events.wait("reconnect", losses)
    wait_for(functools.partial(answers, nc), SOON)
    life = [n for n in events.names if n.endswith("connect")]
    assert life == ["connect", *["disconnect", "reconnect"] * losses]
    assert nc.stats().reconnects == losses
    for error in events.of("disconnect"):
        assert isinstance(error, errors.ConnectionLostError)
        assert error.__cause__ is not None
    if lost:
        assert events.of("disconnect")[-1].__cause__ is nc.last_error


def cut_short(peer: Peer, size: int, words: bytes) -> None:
    """Send `size` bytes of the handshake, then `words`, and close the connection."""
    peer.send(INFO[:size] if size < len(INFO) else INFO)
    if size >= len(INFO):
        peer.frame()
        peer.frame()
        peer.send(PONG[: size - len(INFO)])
    peer.send(words)
    hang_up(peer)


INTRUSIONS = [
    b"",
    b"\x00",
    b"\r\n\r\n",
    b"-ERR 'Stale Connection'\r\n",
    b"PING\r\n",
    INFO,
]


@pytest.mark.parametrize("words", INTRUSIONS, ids=repr)
def test_a_handshake_cut_at_any_byte_is_repeated(words: bytes) -> None:
    sizes = range(len(HANDSHAKE) + 1)
    events = Events()

    def script(peer: Peer) -> None:
        number, bad = divmod(peer.number, 2)
        if number == len(sizes):
            good(peer)
        elif bad:
            cut_short(peer, sizes[number], words)
        else:
            peer.handshake()
            hang_up(peer)

    with FakeServer(script) as fake:
        nc = connect(fake.url, events, connect_timeout=LONG, reconnect_wait=0.0)
        try:
            wait_for(lambda: len(fake.peers) > 2 * len(sizes), LONG)
            wait_for(functools.partial(answers, nc), SOON)
            assert "closed" not in events.names
        finally:
            nc.close()


@pytest.mark.parametrize("words", INTRUSIONS, ids=repr)
def test_first_handshakes_cut_anywhere_raise_one_typed_error(words: bytes) -> None:
    sizes = [
        size
        for size in range(len(HANDSHAKE))
        if not (HANDSHAKE[:size] + words).startswith(HANDSHAKE)
    ]

    def script(peer: Peer) -> None:
        cut_short(peer, sizes[peer.number], words)

    with FakeServer(script) as fake:
        for _ in sizes:
            with pytest.raises(errors.ConnectionError):
                connect(fake.url, Events(), connect_timeout=LONG)


FLOODS = {"+OK": b"+OK\r\n", "PING": b"PING\r\n", "INFO": INFO}


def flood(peer: Peer, frame: bytes) -> None:
    """Send frames in place of PONG, without a pause and without an end."""
    after_connect(peer, b"")
    with contextlib.suppress(ConnectionError):
        while True:
            peer.send(frame * 1000)


@pytest.mark.parametrize("frame", FLOODS.values(), ids=FLOODS)
def test_an_endless_handshake_ends_at_connect_timeout(frame: bytes) -> None:
    with FakeServer(functools.partial(flood, frame=frame)) as fake:
        with pytest.raises(errors.ConnectionError):
            connect(fake.url, Events(), connect_timeout=0.5)


@pytest.mark.parametrize("frame", FLOODS.values(), ids=FLOODS)
def test_an_endless_handshake_delays_a_reconnect_only(frame: bytes) -> None:
    events = Events()
    script = functools.partial(flood, frame=frame)
    with FakeServer(leave, script, good) as fake:
        nc = connect(fake.url, events, connect_timeout=1)
        try:
            nc.publish("leave")
            events.wait("reconnect")
            assert answers(nc)
        finally:
            nc.close()


# Closing during the handshake ---------------------------------------------------------


def stop_at(peer: Peer, moment: Callable[[Peer, bytes], None], words: bytes) -> None:
    """Send nothing more from that moment on."""
    moment(peer, words)
    peer.hang()


@pytest.mark.parametrize("moment", BEFORE[:3], ids=lambda moment: moment.__name__)
@pytest.mark.parametrize("words", [b"", b"-E", b"INFO {"], ids=repr)
@pytest.mark.parametrize("thread", ["this", "another", "callbacks"])
def test_a_close_at_any_moment_ends_a_reconnect(
    moment: Callable[[Peer, bytes], None], words: bytes, thread: str
) -> None:
    events = Events()
    script = functools.partial(stop_at, moment=moment, words=words)
    with FakeServer(leave, script) as fake:
        nc = connect(fake.url, events, connect_timeout=LONG)
        if thread == "callbacks":
            nc._session.callbacks.submit(wait_for, lambda: len(fake.peers) > 1)
            nc._session.callbacks.submit(nc.close)
        nc.publish("leave")
        wait_for(lambda: len(fake.peers) > 1)
        if thread == "this":
            nc.close()
        elif thread == "another":
            Thread(nc.close).result()
        assert events.wait("closed") is None
        assert nc.is_closed
        assert events.names.count("disconnect") == 1
