"""Tests of messages that are published while the connection is lost."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ...support.connection_faults import (  # noqa: F401 (a fixture of every test here)
    Events,
    FakeServer,
    Peer,
    _no_crash,
    connect,
    is_empty,
    is_stuck,
    payloads,
    unsent,
    waiting,
)
from ...support.proxy import FaultProxy
from ...support.servers import wait_for
from ...support.threads import Thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync.connection import Connection

    from ...conftest import StartServer

pytestmark = pytest.mark.server


def choke(connection: Connection, publish: Callable[[int], None]) -> int:
    """Publish until the connection accepts no more, and return the number of messages."""
    count = 0
    while True:
        while unsent(connection) < 300_000:
            publish(count)
            count += 1
        if is_stuck(connection):  # the flusher may still be sending
            return count


def test_publishes_while_disconnected_arrive_in_order_and_once(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    events = Events()
    with connect(server.url, events) as nc:
        subscription = nc.subscribe("data")
        nc.flush()
        server.kill()
        events.wait("disconnect")
        for number in range(3000):
            headers = {"Number": str(number)} if number % 2 else None
            nc.publish("data", b"%d" % number * (number % 50), headers=headers)
        assert not nc.is_connected
        server.start()
        nc.flush()
        messages = [subscription.next(10) for _ in range(3000)]
        assert [m.data for m in messages] == [b"%d" % n * (n % 50) for n in range(3000)]
        assert messages[2999].headers is not None
        assert messages[2999].headers["Number"] == "2999"
        assert is_empty(subscription)
        assert nc.stats().out_messages == 3000


@pytest.mark.tcp_only(reason="the server logs a reset as an error")
def test_cutting_the_line_anywhere_tears_no_frame(
    own_server: StartServer, unique: str
) -> None:
    server = own_server(jetstream=False)
    burst: list[tuple[bytes, dict[str, Any]]] = [
        (b"", {}),
        (b"one", {}),
        (b"two\r\nPUB x 1\r\n", {"reply": "answers"}),
        (b"3" * 20, {"headers": {"A": "b", "C": "d"}}),
        (b"", {"headers": {"E": "f"}, "reply": "answers"}),
    ]
    events = Events()
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        jsync.connect(server.url) as watcher,
        connect(proxy.url, events, reconnect_wait=0.0) as nc,
    ):
        received = watcher.subscribe(f"{unique}.>")
        watcher.flush()
        before = proxy.bytes_to["server"]
        for data, options in burst:
            nc.publish(f"{unique}.0000", data, **options)
        nc.flush()
        size = proxy.bytes_to["server"] - before - len(b"PING\r\n")
        assert payloads(received, len(burst)) == [data for data, _ in burst]

        counts = set()
        for offset in range(1, size + 1):
            proxy.cut_after(offset, "server")
            if offset % 2:
                # The connection sends all of this burst before the cut. Otherwise it sends some
                # of it before, and the rest on the next connection.
                proxy.deaf("client")
            for data, options in burst:
                nc.publish(f"{unique}.{offset:04}", data, **options)
            if offset % 2:
                wait_for(lambda: unsent(nc) == 0)
                proxy.hear("client")
            events.wait("reconnect", offset)
            nc.publish(f"{unique}.{offset:04}", b"end")
            expected = [
                (data, options.get("reply"), options.get("headers", {}))
                for data, options in [*burst, (b"end", {})]
            ]
            count = 0
            for msg in iter(functools.partial(received.next, 10), None):
                if msg.subject != f"{unique}.{offset:04}":
                    continue  # the server read these last from the previous connection
                # Each comes once at most. A busy server may read the bytes of the old
                # connection behind those of the new one, so any order is right.
                whole = (msg.data, msg.reply, dict(msg.headers or {}))
                assert whole in expected
                expected.remove(whole)
                if msg.data == b"end":
                    break
                count += 1
            counts.add(count)
        assert {0, len(burst)} <= counts, "the cuts fell everywhere"
        assert is_empty(received)
        assert proxy.connections == size + 1
    assert "arser" not in server.log
    assert "[ERR]" not in server.log


@pytest.mark.parametrize("size", [0, 1, 1000, 65_537, 700_000])
def test_half_sent_but_no_whole_frames_are_resent(size: int) -> None:
    frames: list[bytes] = []

    def resumed(peer: Peer) -> None:
        peer.handshake()
        while (frame := peer.frame()) != b"PUB end 0\r\n\r\n":
            frames.append(frame)
        peer.serve()

    def choked(peer: Peer) -> None:
        peer.handshake()
        may_reset.wait(60)
        peer.reset()

    may_reset = threading.Event()
    events = Events()
    with FakeServer(choked, resumed, receive_buffer=4096) as fake:
        # All frames have the same size, and differ in their subjects.
        frame = len(b"PUB data.0000000 %d\r\n" % size) + size + 2
        with connect(fake.url, events, write_buffer_size=32 << 20) as nc:
            count = choke(nc, lambda n: nc.publish(f"data.{n:07}", bytes(size)))
            taken = count * frame - unsent(nc)
            may_reset.set()
            events.wait("reconnect")
            nc.publish("end")
            nc.flush()
    assert 0 < taken < count * frame
    assert frames == [
        b"PUB data.%07d %d\r\n%s\r\n" % (number, size, bytes(size))
        for number in range(taken // frame, count)
    ]


def test_only_publishes_wait_for_the_reconnect() -> None:
    """Requests, pings and subscriptions on a blocked connection are not sent later."""
    frames: list[bytes] = []

    def choked(peer: Peer) -> None:
        peer.handshake()
        may_reset.wait(60)
        peer.reset()

    def resumed(peer: Peer) -> None:
        peer.handshake()
        while (frame := peer.frame()) != b"PUB end 0\r\n\r\n":
            frames.append(frame)
        peer.serve()

    may_reset = threading.Event()
    events = Events()
    with (
        FakeServer(choked, resumed, receive_buffer=4096) as fake,
        connect(fake.url, events, write_buffer_size=32 << 20) as nc,
    ):
        kept = choke(nc, lambda n: nc.publish("data", bytes(1000)))
        nc.publish("mark", b"1")
        request = Thread(functools.partial(nc.request, "service", b"?", timeout=20))
        wait_for(lambda: waiting(nc) == 1)
        flush = Thread(functools.partial(nc.flush, 20))
        flush.wait_until_blocked()
        gone, stays = nc.subscribe("gone"), nc.subscribe("stays", queue="q")
        nc.subscribe("some").unsubscribe(after=7)
        gone.unsubscribe()
        nc.publish("mark", b"2")
        may_reset.set()
        events.wait("disconnect")
        assert isinstance(request.error(), errors.ConnectionLostError)
        assert isinstance(flush.error(), errors.ConnectionLostError)
        nc.publish("mark", b"3")
        events.wait("reconnect")
        nc.publish("end")
        nc.flush()
        assert stays.is_active

    others = [f for f in frames if not f.startswith(b"PUB data ")]
    inbox, *rest = others
    assert inbox.startswith(b"SUB _INBOX.")
    assert rest[:3] == [b"SUB stays q 3\r\n", b"SUB some 4\r\n", b"UNSUB 4 7\r\n"]
    assert rest[3:] == [b"PUB mark 1\r\n%d\r\n" % number for number in (1, 2, 3)]
    assert frames.index(b"UNSUB 4 7\r\n") == 3, "subscriptions come before all else"
    assert 0 < len(frames) - len(others) < kept


def test_a_message_beyond_the_reconnect_buffer_is_rejected(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    events = Events()
    with connect(server.url, events, reconnect_buffer_size=10_000) as nc:
        subscription = nc.subscribe("data")
        nc.flush()
        server.kill()
        events.wait("disconnect")
        accepted = 10_000 // (len("PUB data 100\r\n") + 102)
        for number in range(accepted):
            nc.publish("data", b"%100d" % number)
        with pytest.raises(errors.ReconnectBufferFullError):
            nc.publish("data", bytes(100))
        nc.publish("data", b"")  # smaller, so there is room for it
        server.start()
        events.wait("reconnect")
        nc.publish("data", b"live")
        expected = [b"%100d" % number for number in range(accepted)]
        assert payloads(subscription, accepted + 2) == [*expected, b"", b"live"]


def test_without_reconnect_buffer_a_publish_fails_while_disconnected(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    events = Events()
    with connect(server.url, events, reconnect_buffer_size=0) as nc:
        server.kill()
        events.wait("disconnect")
        with pytest.raises(errors.ReconnectBufferFullError):
            nc.publish("data", b"1")
        server.start()
        events.wait("reconnect")
        nc.publish("data", b"2")
        nc.flush()


def test_an_oversized_kept_message_costs_no_other(
    own_server: StartServer, unique: str
) -> None:
    large = own_server(jetstream=False)
    events = Events()
    with connect(large.url, events) as nc:
        received = nc.subscribe(f"{unique}.*")
        nc.flush()
        large.kill()
        events.wait("disconnect")
        for number in range(6):
            size = 10_000 if number % 3 == 2 else 10
            headers = {"A": "b"} if number > 2 else None
            nc.publish(f"{unique}.{number}", bytes(size), headers=headers)
        small = own_server(jetstream=False, config="max_payload: 4KB", port=large.port)
        events.wait("reconnect")
        nc.publish(f"{unique}.end", b"end")
        subjects = [received.next(10).subject for _ in range(5)]
        assert subjects == [f"{unique}.{each}" for each in (0, 1, 3, 4, "end")]
        for number, size in ((2, 10_000), (5, 10_018)):
            error = events.wait("error", 1 + number // 3)
            assert isinstance(error, errors.MaxPayloadError)
            assert error.subject == f"{unique}.{number}"
            assert f"{size} bytes" in str(error)
            assert f"max_payload of {small.url} is 4096" in str(error)
        assert nc.stats().out_messages == 5
        assert events.names.count("disconnect") == 1


def test_a_close_reports_the_messages_that_it_loses(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    events = Events()
    with connect(server.url, events) as nc:
        server.kill()
        events.wait("disconnect")
        nc.publish("data", bytes(1000))
        nc.close()
        events.wait("closed")
    (error,) = events.of("error")
    assert isinstance(error, errors.ConnectionClosedError)
    assert "1017 bytes unsent" in str(error)
