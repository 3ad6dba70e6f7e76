"""Tests of publishing core messages."""

from __future__ import annotations

import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.accounts import Permissions, password_config
from ...support.connection_faults import Events, connect
from ...support.proxy import FaultProxy
from ...support.servers import RawClient, monitor, wait_for
from ...support.threads import LONG, SOON, Recorder, Thread
from ...support.windows import poll_with_the_gil

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ...conftest import StartServer

pytestmark = [pytest.mark.server, pytest.mark.quick]


@pytest.fixture
def reader(server: LocalServer) -> Iterator[jsync.Connection]:
    """Another connection, so that its messages have passed through the server."""
    with jsync.connect(server.url) as reader:
        yield reader


def subscribed(reader: jsync.Connection, subject: str) -> jsync.Subscription:
    sub = reader.subscribe(subject)
    reader.flush()
    return sub


def test_a_message_arrives_as_it_was_sent(
    nc: jsync.Connection, reader: jsync.Connection, unique: str
) -> None:
    sub = subscribed(reader, f"{unique}.>")
    nc.publish(f"{unique}.ä.b", b"\x00data\r\n", reply="answer.here")
    msg = sub.next()
    assert (msg.subject, msg.data, msg.reply) == (
        f"{unique}.ä.b",
        b"\x00data\r\n",
        "answer.here",
    )
    assert msg.headers is None
    assert msg.status is None


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_can_be_published(
    nc: jsync.Connection, reader: jsync.Connection, unique: str, kind: type
) -> None:
    sub = subscribed(reader, unique)
    nc.publish(unique, kind(b"content"))
    assert sub.next().data == b"content"


def test_a_bytearray_may_be_changed_after_the_call(
    nc: jsync.Connection, reader: jsync.Connection, unique: str
) -> None:
    sub = subscribed(reader, unique)
    data = bytearray(b"0" * 100)
    for i in range(1000):
        data[:] = b"%0100d" % i
        nc.publish(unique, data)
    data[:] = b"x" * 100
    assert [int(sub.next().data) for _ in range(1000)] == list(range(1000))


def test_an_empty_message_arrives(
    nc: jsync.Connection, reader: jsync.Connection, unique: str
) -> None:
    sub = subscribed(reader, unique)
    nc.publish(unique)
    assert sub.next().data == b""


def test_headers_with_several_values_and_utf_8_arrive(
    nc: jsync.Connection, reader: jsync.Connection, unique: str
) -> None:
    sub = subscribed(reader, unique)
    nc.publish(
        unique,
        b"data",
        headers={
            "One": "1",
            "Many": ["a", "b", "a"],
            "many": "other",
            "Name": "Žluťoučký 馬",
        },
    )
    headers = sub.next().headers
    assert headers is not None
    assert headers["One"] == "1"
    assert headers.get_all("Many") == ["a", "b", "a"]
    assert headers["many"] == "other"
    assert headers["Name"] == "Žluťoučký 馬"
    assert "ONE" not in headers


def test_headers_that_came_can_be_sent_on(
    nc: jsync.Connection, reader: jsync.Connection, unique: str
) -> None:
    sub = subscribed(reader, unique)
    raw = b"NATS/1.0\r\nBytes: \xff\xfe\r\nTwice: 1\r\nTwice: 2\r\n\r\n"
    with RawClient(reader.connected_url or "") as client:
        client.connect(headers=True)
        client.send(
            b"HPUB %s %d %d\r\n%s\r\n" % (unique.encode(), len(raw), len(raw), raw)
        )
        first = sub.next()
    nc.publish(unique, headers=first.headers)
    second = sub.next()
    assert first.headers is not None
    assert first.headers == second.headers
    assert first.headers.get_all("Twice") == ["1", "2"]


def test_a_status_with_a_payload_is_a_message(
    nc: jsync.Connection, reader: jsync.Connection, unique: str
) -> None:
    sub = subscribed(reader, unique)
    nc.publish(unique, b"NATS/1.0 503\r\n\r\n", headers={"Status": "503"})
    msg = sub.next()
    assert msg.status is None
    assert msg.headers == {"Status": "503"}


def test_a_message_of_max_payload_arrives(
    nc: jsync.Connection, reader: jsync.Connection, unique: str
) -> None:
    sub = subscribed(reader, unique)
    largest = bytes(range(256)) * (nc.max_payload // 256)
    nc.publish(unique, largest)
    assert sub.next().data == largest


def test_a_message_beyond_a_lowered_limit_is_reported(
    own_server: StartServer, events: Events
) -> None:
    server = own_server(jetstream=False)
    with connect(server.url, events) as nc:
        server.reload("max_payload: 4KB")
        wait_for(lambda: "Reloaded server configuration" in server.log)
        nc.publish("a", bytes(5000))
        with pytest.raises(errors.ConnectionLostError, match="was lowered"):
            nc.flush()
        error = events.wait("error")
        assert isinstance(error, errors.ServerLimitError)
        events.wait("reconnect")
        with pytest.raises(errors.MaxPayloadError, match="4096"):
            nc.publish("a", bytes(5000))


def test_a_burst_arrives_complete_and_in_order(
    nc: jsync.Connection, reader: jsync.Connection, unique: str
) -> None:
    sub = subscribed(reader, unique)
    for i in range(100_000):
        nc.publish(unique, b"%d" % i)
    assert [int(sub.next().data) for _ in range(100_000)] == list(range(100_000))


def test_one_threads_messages_keep_order_whatever_their_size(
    nc: jsync.Connection, reader: jsync.Connection, unique: str
) -> None:
    # Small messages wait in the buffer, and large ones must not overtake them.
    sub = subscribed(reader, unique)
    sizes = [10, 10, 200_000, 10, 70_000, 10, 10, 300_000, 10] * 20
    for i, size in enumerate(sizes):
        nc.publish(unique, b"%d " % i + b"x" * size)
    for i, size in enumerate(sizes):
        number, _, padding = sub.next().data.partition(b" ")
        assert (int(number), len(padding)) == (i, size)


def test_a_lone_message_is_sent_without_a_flush(
    nc: jsync.Connection, reader: jsync.Connection, unique: str
) -> None:
    sub = subscribed(reader, unique)
    nc.publish(unique, b"alone")
    assert sub.next(timeout=SOON).data == b"alone"


def test_a_bursts_last_message_is_sent_without_flush(
    nc: jsync.Connection, reader: jsync.Connection, unique: str
) -> None:
    sub = subscribed(reader, unique)
    for burst in range(50):
        for i in range(20):
            nc.publish(unique, b"%d" % i)
        for i in range(20):
            assert sub.next(timeout=SOON).data == b"%d" % i, burst


@pytest.mark.tcp_only(reason="its other client speaks plain NATS")
def test_a_lone_message_leaves_without_another_thread(
    nc: jsync.Connection, server: LocalServer, unique: str
) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.settimeout(SOON)
        sock.sendall(b"CONNECT {}\r\nSUB %s 1\r\nPING\r\n" % unique.encode())
        heard = b""
        while b"PONG\r\n" not in heard:
            heard += sock.recv(4096)
        before = sys.getswitchinterval()
        sys.setswitchinterval(LONG)
        try:
            nc.publish(unique, b"alone")
            assert poll_with_the_gil(sock, SOON)
        finally:
            sys.setswitchinterval(before)
        assert b"alone" in sock.recv(4096)


def test_flush_returns_when_the_server_has_all(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    for _ in range(5000):
        nc.publish(unique, b"counted")
    nc.flush()
    page = monitor(server, f"connz?cid={nc.client_id}")
    assert page["connections"][0]["in_msgs"] == 5000


def test_the_handshakes_pong_does_not_answer_a_flush(
    server: LocalServer, unique: str
) -> None:
    for _ in range(30):
        # Starting the callback thread delays the I/O thread until the PING has arrived.
        with jsync.connect(server.url, on_connect=lambda: None) as nc:
            sub = nc.subscribe(unique)
            nc.publish(unique)
            nc.flush()
            # The server has sent the message before the PONG.
            assert sub.delivered == 1


def test_rtt_is_the_time_of_a_ping(nc: jsync.Connection) -> None:
    assert 0 < nc.rtt() < SOON


def test_the_statistics_count_both_ways(nc: jsync.Connection, unique: str) -> None:
    sub = nc.subscribe(unique)
    for _ in range(10):
        nc.publish(unique, b"12345")
    for _ in range(10):
        sub.next()
    stats = nc.stats()
    assert (stats.out_messages, stats.out_bytes) == (10, 50)
    assert (stats.in_messages, stats.in_bytes) == (10, 50)
    nc.publish(unique, b"12345", headers={"A": "b"})
    sub.next()
    block = len(b"NATS/1.0\r\nA: b\r\n\r\n")
    assert nc.stats().out_bytes == nc.stats().in_bytes == 55 + block


def test_a_missing_permission_is_reported_without_a_disconnect(
    own_server: StartServer, unique: str
) -> None:
    permissions = Permissions(publish_deny=("secret.>",))
    server = own_server(config=password_config({"bob": "x"}, bob=permissions))
    told = Recorder()
    with jsync.connect(server.url, user="bob", password="x", on_error=told) as nc:
        nc.publish("secret.plan", b"denied")
        error = told.get()
        assert isinstance(error, errors.PermissionsError)
        assert (error.subject, error.operation) == ("secret.plan", "publish")
        assert nc.last_error is error
        sub = nc.subscribe(unique)
        nc.publish(unique, b"allowed")
        assert sub.next().data == b"allowed"
        assert nc.stats().reconnects == 0


def publish_large(nc: jsync.Connection, subject: str, count: int) -> None:
    for _ in range(count):
        nc.publish(subject, b"x" * 500_000)


def test_a_full_buffer_blocks_and_then_raises(
    own_server: StartServer, unique: str
) -> None:
    server = own_server()
    with jsync.connect(server.url, write_buffer_size=1 << 20, write_timeout=0.3) as nc:
        server.pause()
        begin = time.monotonic()
        with pytest.raises(errors.WriteTimeoutError):
            publish_large(nc, unique, 200)
        assert time.monotonic() - begin > 0.25
        server.resume()
        nc.flush()
        nc.publish(unique, b"goes on")
        nc.flush()
        assert nc.stats().reconnects == 0


def test_a_blocked_publish_continues_once_the_server_reads(
    server: LocalServer, reader: jsync.Connection, unique: str
) -> None:
    count, size = 100, 300_000
    sub = subscribed(reader, unique)
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        jsync.connect(proxy.url, write_buffer_size=1 << 20, write_timeout=LONG) as nc,
    ):
        proxy.deaf("client")

        def publish() -> None:
            for i in range(count):
                nc.publish(unique, b"%d " % i + b"x" * size)

        publisher = Thread(publish)
        publisher.wait_until_blocked()
        assert not publisher.ended
        proxy.hear("client")
        publisher.result()
        for i in range(count):
            number, _, padding = sub.next().data.partition(b" ")
            assert (int(number), len(padding)) == (i, size)


def test_several_blocked_publishers_all_continue(
    server: LocalServer, reader: jsync.Connection, unique: str
) -> None:
    sub = subscribed(reader, unique)
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        jsync.connect(proxy.url, write_buffer_size=1 << 18, write_timeout=LONG) as nc,
    ):
        proxy.deaf("client")

        def publish() -> None:
            for _ in range(20):
                nc.publish(unique, b"x" * 200_000)

        publishers = [Thread(publish) for _ in range(4)]
        for publisher in publishers:
            publisher.wait_until_blocked()
        proxy.hear("client")
        for publisher in publishers:
            publisher.result()
        for _ in range(80):
            assert len(sub.next().data) == 200_000


def test_pings_are_answered_while_the_buffer_is_full(
    own_server: StartServer, unique: str
) -> None:
    # jsync reserves room for PONG, because it must answer pings ahead of the backlog.
    server = own_server(config='ping_interval: "200ms"\nping_max: 2')
    with jsync.connect(server.url, write_buffer_size=1 << 18, write_timeout=LONG) as nc:
        stop = threading.Event()

        def publish() -> None:
            while not stop.is_set():
                nc.publish(unique, b"x" * 100_000)

        publishers = [Thread(publish) for _ in range(2)]
        deadline = time.monotonic() + 1.0
        wait_for(lambda: time.monotonic() > deadline)
        stop.set()
        for publisher in publishers:
            publisher.result()
        nc.flush()
        assert nc.stats().reconnects == 0


def test_reading_and_writing_past_the_buffers_cannot_deadlock(
    nc: jsync.Connection, unique: str
) -> None:
    # This connection reads its own messages, so both directions are full of large messages.
    count = 300
    sub = nc.subscribe(unique)

    def publish() -> None:
        for _ in range(count):
            nc.publish(unique, b"x" * 200_000)

    publisher = Thread(publish)
    for _ in range(count):
        assert len(sub.next(timeout=LONG).data) == 200_000
    publisher.result()


def test_publishing_on_a_closed_connection_raises(
    server: LocalServer, unique: str
) -> None:
    nc = jsync.connect(server.url)
    nc.close()
    for _ in range(2):
        with pytest.raises(errors.ConnectionClosedError):
            nc.publish(unique)
    with pytest.raises(errors.ConnectionClosedError):
        nc.flush()
