"""Tests of the fault proxy with plain sockets."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from ...support.proxy import FaultProxy, Frames, FrameTracker
from ...support.servers import threads_since, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...support.proxy import Ending, Side

FRAMES = (
    b'INFO {"a":1}\r\n',
    b"PING\r\n",
    b"MSG a.b 1 4\r\nPING\r\n",
    b"hmsg c 22 _INBOX.x 12 15\r\nNATS/1.0\r\n\r\nabc\r\n",
    b"MSG d 3 0\r\n\r\n",
    b"MSG e 3 8\r\nMSG f 1 \r\n",
    b"HPUB g 12 13\r\nNATS/1.0\r\n\r\n\n\r\n",
    b"pub h 2\r\n\r\n\r\n",
    b"-ERR 'Stale Connection'\r\n",
)
STREAM = b"".join(FRAMES)


class Line:
    """A client and a server of plain sockets, with a proxy between them."""

    def __init__(self, *, receive_buffer: int | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(5)
        port = self._listener.getsockname()[1]
        self.proxy = FaultProxy("127.0.0.1", port, receive_buffer=receive_buffer)
        self._sockets: list[socket.socket] = []
        self.client, self.server = self.connect()

    def connect(self) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(("127.0.0.1", self.proxy.port), timeout=5)
        server, _ = self._listener.accept()
        server.settimeout(5)
        self._sockets += client, server
        return client, server

    def stop_the_server(self) -> None:
        self._listener.close()

    def end(self, side: Side) -> socket.socket:
        return self.client if side == "client" else self.server

    def origin(self, to: Side) -> socket.socket:
        return self.server if to == "client" else self.client

    def close(self) -> None:
        self.proxy.close()
        self._listener.close()
        for sock in self._sockets:
            sock.close()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


def receive(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (more := sock.recv(min(size - len(data), 65536))):
        data += more
    return bytes(data)


def dial(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.recv(1)


def silent(sock: socket.socket, seconds: float = 0.1) -> bool:
    sock.settimeout(seconds)
    try:
        sock.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(5)
    return False


def ended_with(sock: socket.socket) -> Ending:
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        return "reset"
    return "fin"


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 11, len(STREAM)])
def test_frames_are_found_however_the_stream_is_cut(step: int) -> None:
    ends = {len(b"".join(FRAMES[:count])) for count in range(len(FRAMES) + 1)}
    tracker = FrameTracker()
    for start in range(0, len(STREAM), step):
        assert tracker.at_boundary == (start in ends)
        piece = STREAM[start : start + step]
        inside = [e for e in sorted(ends) if start < e <= start + len(piece)]
        assert tracker.feed(piece) == (inside[0] - start if inside else -1)
    assert tracker.at_boundary


def test_bytes_pass_both_ways_and_are_counted(line: Line) -> None:
    line.client.sendall(b"there")
    assert receive(line.server, 5) == b"there"
    line.server.sendall(b"and back")
    assert receive(line.client, 8) == b"and back"
    assert line.proxy.bytes_to == {"server": 5, "client": 8}
    assert line.proxy.url == f"nats://127.0.0.1:{line.proxy.port}"


def test_connections_are_counted(line: Line) -> None:
    line.connect()
    assert (line.proxy.connections, line.proxy.connected) == (2, 2)
    line.proxy.cut()
    assert (line.proxy.connections, line.proxy.connected) == (2, 0)


def test_the_proxy_forwards_ten_megabytes_unchanged(line: Line) -> None:
    data = bytes(range(256)) * 40_000
    sender = threading.Thread(target=line.client.sendall, args=(data,))
    sender.start()
    assert receive(line.server, len(data)) == data
    sender.join()


@pytest.mark.parametrize("ending", ["reset", "fin"])
def test_a_cut_ends_both_sides(line: Line, ending: Ending) -> None:
    line.proxy.cut(ending)
    assert ended_with(line.client) == ending
    assert ended_with(line.server) == ending


def test_a_fin_with_unread_bytes_stays_a_fin(line: Line) -> None:
    line.proxy.deaf()
    line.client.sendall(b"unread")
    line.proxy.cut("fin")
    assert ended_with(line.client) == "fin"


@pytest.mark.parametrize("to", ["client", "server"])
@pytest.mark.parametrize("size", [0, 1, 5, 6, 9])
def test_a_cut_can_wait_for_a_byte(line: Line, to: Side, size: int) -> None:
    line.origin(to).sendall(b"before")
    assert receive(line.end(to), 6) == b"before"
    line.proxy.cut_after(size, to, "fin")
    line.origin(to).sendall(b"012345")
    line.origin(to).sendall(b"6789")
    assert receive(line.end(to), 99) == b"0123456789"[:size]
    assert ended_with(line.origin(to)) in {"fin", "reset"}  # some bytes may be unread


def test_only_the_connection_with_that_byte_is_cut(line: Line) -> None:
    other_client, other_server = line.connect()
    line.proxy.cut_after(4, "server")
    other_client.sendall(b"01")
    assert receive(other_server, 2) == b"01"
    line.client.sendall(b"2345")
    assert ended_with(line.client) == "reset"
    other_client.sendall(b"still here")
    assert receive(other_server, 10) == b"still here"


def test_a_delay_is_added_and_keeps_the_order(line: Line) -> None:
    line.proxy.delay(0.1, "server")
    start = time.monotonic()
    for piece in (b"one ", b"two ", b"three"):
        line.client.sendall(piece)
    line.proxy.delay(0)
    line.client.sendall(b" four")
    assert receive(line.server, 18) == b"one two three four"
    assert time.monotonic() - start >= 0.1


def test_a_delay_is_one_way(line: Line) -> None:
    line.proxy.delay(3600, "server")
    line.server.sendall(b"quick")
    assert receive(line.client, 5) == b"quick"


def test_a_delay_does_not_limit_bytes_in_flight(line: Line) -> None:
    line.proxy.delay(0.2)
    start = time.monotonic()
    # with one read of the proxy every 0.2 seconds, this takes a minute
    data = b"x" * 20_000_000
    sender = threading.Thread(target=line.client.sendall, args=(data,))
    sender.start()
    assert receive(line.server, len(data)) == data
    sender.join()
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("to", ["client", "server"])
def test_a_deaf_proxy_reads_nothing_and_loses_nothing(line: Line, to: Side) -> None:
    origin: Side = "server" if to == "client" else "client"
    line.proxy.deaf(origin)
    line.end(origin).sendall(b"later")
    assert silent(line.end(to))
    line.end(to).sendall(b"the other way")
    assert receive(line.end(origin), 13) == b"the other way"
    line.proxy.hear()
    assert receive(line.end(to), 5) == b"later"


def test_buffers_fill_when_the_proxy_is_deaf() -> None:
    line = Line(receive_buffer=4096)
    line.proxy.deaf("client")
    line.client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    line.client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        line.client.sendall(bytes(1_000_000))
    assert line.proxy.connected == 1
    line.close()


def test_new_connections_can_be_refused(line: Line) -> None:
    line.proxy.refuse()
    line.proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        line.connect()
    line.client.sendall(b"open ones go on")
    assert receive(line.server, 15) == b"open ones go on"
    line.proxy.accept()
    line.proxy.accept()
    client, server = line.connect()
    client.sendall(b"again")
    assert receive(server, 5) == b"again"


def test_without_a_server_a_connection_is_reset(line: Line) -> None:
    line.stop_the_server()
    with pytest.raises(ConnectionResetError):
        dial(line.proxy.port)
    assert line.proxy.connections == 2


def test_bytes_are_injected_between_frames(line: Line) -> None:
    line.server.sendall(b"MSG a 1 4\r\nab")
    assert receive(line.client, 13) == b"MSG a 1 4\r\nab"
    line.proxy.inject(b"PING\r\n")
    line.proxy.inject(b"+OK\r\n")
    assert silent(line.client)
    line.server.sendall(b"cd\r\nMSG b 1 0\r\n\r\n")
    rest = b"cd\r\nPING\r\n+OK\r\nMSG b 1 0\r\n\r\n"
    assert receive(line.client, len(rest)) == rest
    line.proxy.inject(b"-ERR 'no'\r\n")
    assert receive(line.client, 11) == b"-ERR 'no'\r\n"


def test_bytes_can_be_injected_towards_the_server(line: Line) -> None:
    line.client.sendall(b"PUB a 4\r\nPI")
    assert receive(line.server, 11) == b"PUB a 4\r\nPI"
    line.proxy.inject(b"PONG\r\n", to="server")
    line.client.sendall(b"NG\r\n")
    assert receive(line.server, 10) == b"NG\r\nPONG\r\n"


def test_injecting_needs_a_connection(line: Line) -> None:
    line.proxy.cut()
    with pytest.raises(RuntimeError, match="no connection"):
        line.proxy.inject(b"PING\r\n")


def test_chunks_can_be_rewritten(line: Line) -> None:
    def shout(chunk: bytes, to: Side) -> bytes:
        return chunk.upper() if to == "server" else chunk

    line.proxy.rewrite(shout)
    line.client.sendall(b"psst")
    assert receive(line.server, 4) == b"PSST"
    line.server.sendall(b"what?")
    assert receive(line.client, 5) == b"what?"
    line.proxy.rewrite(lambda chunk, to: b"")
    line.client.sendall(b"swallowed")
    assert silent(line.server)
    line.proxy.rewrite(None)
    line.client.sendall(b"psst")
    assert receive(line.server, 4) == b"psst"


def test_a_rewrite_can_give_orders(line: Line) -> None:
    def cut_at_ack(chunk: bytes, to: Side) -> bytes:
        if b"+ACK" in chunk:
            line.proxy.cut()
        return chunk

    line.proxy.rewrite(cut_at_ack)
    line.client.sendall(b"+ACK")
    assert ended_with(line.client) == "reset"
    assert receive_or_reset(line.server) == b""


def receive_or_reset(sock: socket.socket) -> bytes:
    try:
        return sock.recv(99)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("side", ["client", "server"])
def test_an_end_follows_the_bytes_already_sent(line: Line, side: Side) -> None:
    other: Side = "server" if side == "client" else "client"
    line.proxy.delay(0.05)
    line.end(side).sendall(b"last words")
    line.end(side).shutdown(socket.SHUT_WR)
    assert receive(line.end(other), 99) == b"last words"
    line.end(other).sendall(b"half open")
    assert receive(line.end(side), 9) == b"half open"
    line.end(other).close()
    assert ended_with(line.end(side)) == "fin"
    wait_for(lambda: line.proxy.connected == 0)


def test_a_reset_is_passed_on(line: Line) -> None:
    line.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    line.server.close()
    assert ended_with(line.client) == "reset"
    wait_for(lambda: line.proxy.connected == 0)


def test_closing_resets_connections_and_ends_the_thread() -> None:
    before = set(threading.enumerate())
    line = Line()
    assert len(threads_since(before)) == 1
    line.proxy.close()
    line.proxy.close()
    assert not threads_since(before)
    assert ended_with(line.client) == "reset"
    line.close()


def test_an_idle_proxy_costs_nothing(line: Line) -> None:
    line.client.sendall(b"x")
    line.server.shutdown(socket.SHUT_WR)
    assert ended_with(line.client) == "fin"
    line.proxy.deaf()
    line.server.close()
    start = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - start < 0.1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40, len(STREAM)])
def test_a_frame_filter_passes_whole_frames_from_chunks(
    size: int,
) -> None:
    seen: list[bytes] = []

    def passes(frame: bytes) -> bool:
        seen.append(frame)
        return not frame.startswith(b"MSG")

    frames = Frames(passes)
    chunks = [STREAM[i : i + size] for i in range(0, len(STREAM), size)]
    passed = b"".join(frames(chunk, "client") for chunk in chunks)
    assert tuple(seen) == FRAMES
    assert passed == b"".join(f for f in FRAMES if not f.startswith(b"MSG"))
    assert frames(STREAM, "server") == STREAM
