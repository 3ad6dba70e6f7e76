"""A TCP proxy that misbehaves on command."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Literal, TypeAlias

from .websocket_framing import Framing

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

Side: TypeAlias = Literal["client", "server"]
Sides: TypeAlias = Literal["client", "server", "both"]
Ending: TypeAlias = Literal["reset", "fin"]

# `make websocket` runs the tests of other files over WebSocket.
SCHEME = "ws" if os.environ.get("JSYNC_TESTS_OVER") == "websocket" else "nats"

CHUNK = 1 << 16

SELECTOR = getattr(selectors, "PollSelector", selectors.SelectSelector)
"""This selector opens no file, so tests can count the open files of a client."""
LINGER_NOT = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
"""The SO_LINGER option of a socket whose close sends a reset."""
BUFFER = 1 << 18
"""The number of bytes that one direction buffers before the proxy stops reading."""
DELAYED_BUFFER = 1 << 26
"""The same with a delay: bytes in flight on a long line cause no back-pressure."""


class FrameTracker:
    """Finds the ends of frames in a NATS stream of either direction."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._payload = 0

    @property
    def at_boundary(self) -> bool:
        return not self._line and not self._payload

    def feed(self, data: bytes) -> int:
        """Take the next bytes, and return the position where the first frame in them ends, or -1."""
        first = -1
        position = 0
        while position < len(data):
            if self._payload:
                step = min(self._payload, len(data) - position)
                self._payload -= step
                position += step
            else:
                newline = data.find(b"\n", position)
                if newline < 0:
                    self._line += data[position:]
                    break
                self._line += data[position:newline]
                self._payload = payload_size(bytes(self._line))
                self._line.clear()
                position = newline + 1
            if first < 0 and not self._payload:
                first = position
        return first


def payload_size(line: bytes) -> int:
    """Return the number of bytes of a frame after its first line."""
    words = line.split()
    carries = words and words[0].upper() in {b"MSG", b"HMSG", b"PUB", b"HPUB"}
    if carries and words[-1].isdigit():
        return int(words[-1]) + len(b"\r\n")
    return 0


def frame_filter(
    keeps: Callable[[bytes, Side], bool],
) -> Callable[[bytes, Side], bytes]:
    """Return a hook for `rewrite` that forwards the frames for which `keeps(frame, to)` is true."""
    return frame_changer(lambda frame, to: frame if keeps(frame, to) else b"")


def frame_changer(
    change: Callable[[bytes, Side], bytes],
) -> Callable[[bytes, Side], bytes]:
    """Return a hook for `rewrite` that forwards `change(frame, to)` for each frame.

    Use a hook for one connection. It would prepend an incomplete frame to the next connection.
    """
    unread: dict[Side, bytes] = {"client": b"", "server": b""}

    def hook(data: bytes, to: Side) -> bytes:
        data = unread[to] + data
        passed = []
        begin = 0
        while (newline := data.find(b"\n", begin)) >= 0:
            end = newline + 1 + payload_size(data[begin:newline])
            if end > len(data):
                break
            passed.append(change(data[begin:end], to))
            begin = end
        unread[to] = data[begin:]
        return b"".join(passed)

    return hook


class Flow:
    """One direction of one connection: bytes read from `source` and not yet sent to `target`."""

    def __init__(
        self, to: Side, source: socket.socket, target: socket.socket, *, framed: bool
    ) -> None:
        self.framing = Framing(masked=to == "server") if framed else None
        self.to: Side = to
        self.origin: Side = "client" if to == "server" else "server"
        self.source = source
        self.target = target
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.frames = FrameTracker()
        self.injected = b""
        self.ending: Ending | None = None
        self.passed_on = False

    def put(self, data: bytes, due: float) -> None:
        self.waiting.append((due, data))
        self.size += len(data)

    def due(self) -> float | None:
        """Return the time on the monotonic clock when the next bytes may leave."""
        if self.waiting:
            return self.waiting[0][0]
        return 0.0 if self.ending and not self.passed_on else None


@dataclass
class Cuts:
    """Connections that are to be cut, each after so many bytes."""

    size: int
    ending: Ending
    times: int
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.size

    def passed(self, size: int) -> bool:
        """Count bytes that have been sent, and return whether the connection ends there."""
        self.left -= size
        if self.left:
            return False
        self.left = self.size
        self.times -= 1
        return True


class Link:
    """A connection of a client and the proxy's connection to the server for it."""

    def __init__(
        self, client: socket.socket, server: socket.socket, *, framed: bool = False
    ) -> None:
        self.sockets = (client, server)
        self.flows = (
            Flow("server", client, server, framed=framed),
            Flow("client", server, client, framed=framed),
        )
        self.open = True

    def close(self, ending: Ending) -> None:
        self.open = False
        for sock in self.sockets:
            if ending == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            else:
                # With unread bytes, close() would send a reset.
                with contextlib.suppress(OSError):
                    while sock.recv(CHUNK):
                        pass
            sock.close()


class FaultProxy:
    """A proxy on 127.0.0.1 in front of a NATS server, with its own thread.

    Every method takes effect before it returns. You may call the methods from any thread, and in
    the `rewrite` hook. `to="client"` means bytes from the server to the client. Methods that
    insert bytes between frames need an unencrypted stream.

    Without a `scheme` the proxy uses `SCHEME`. Over WebSocket, methods and hooks then see the
    frames of NATS, and the proxy passes each chunk on in a WebSocket frame of its own. With a
    `scheme` the proxy does not look into the frames of a WebSocket.
    """

    def __init__(
        self,
        target_host: str,
        target_port: int,
        *,
        scheme: str | None = None,
        receive_buffer: int | None = None,
    ) -> None:
        """Start to listen.

        A small `receive_buffer`, in bytes, fills early when the proxy is deaf.
        """
        self._bytes_to: dict[Side, int] = {"client": 0, "server": 0}
        self._connections = 0
        self._target = (target_host, target_port)
        self._scheme = scheme or SCHEME
        self._framed = scheme is None and SCHEME == "ws"
        self._receive_buffer = receive_buffer
        self._links: list[Link] = []
        self._deaf: set[Side] = set()
        self._delay: dict[Side, float] = {"client": 0.0, "server": 0.0}
        self._cuts: dict[Side, Cuts] = {}
        self._rewrite: Callable[[bytes, Side], bytes] | None = None
        self._orders: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._closing = False
        self._listener: socket.socket | None = None
        self._placeholder: socket.socket | None = None
        self._port = 0
        self._listen()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(
            target=self._run, name=f"fault-proxy-{self._port}", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._port}"

    @property
    def bytes_to(self) -> dict[Side, int]:
        """Return the number of bytes forwarded so far in each direction, including injected ones."""
        self._settle()
        return dict(self._bytes_to)

    @property
    def connections(self) -> int:
        """Return the number of connections so far, including those that the server rejected."""
        self._settle()
        return self._connections

    @property
    def connected(self) -> int:
        """Return the number of open connections."""
        self._settle()
        return len(self._links)

    def close(self) -> None:
        """Reset every connection and end the thread. Blocks until the thread has ended."""
        if self._closing:
            return
        self._closing = True
        self._wake.send(b"!")
        self._thread.join()
        self._wake.close()
        self._woken.close()

    def cut(self, ending: Ending = "reset") -> None:
        """End every connection now, with a reset or with an orderly FIN to both sides."""

        def act() -> None:
            for link in list(self._links):
                self._end(link, ending)

        self._order(act)

    def cut_after(
        self, size: int, to: Side, ending: Ending = "reset", *, times: int = 1
    ) -> None:
        """Forward `size` more bytes in one direction, then end that connection.

        The count includes all connections. The method cuts only the connection of the last byte.
        With `times` the next connections are cut after as many bytes, without a gap between.
        """
        self._order(lambda: self._cuts.update({to: Cuts(size, ending, times)}))

    def delay(self, seconds: float, to: Sides = "both") -> None:
        """Delay the bytes that are read from now on. Order and throughput stay the same."""
        self._order(lambda: self._delay.update(dict.fromkeys(sides(to), seconds)))

    def deaf(self, origin: Sides = "both") -> None:
        """Stop reading from that side. Connections stay open and socket buffers fill."""
        self._order(lambda: self._deaf.update(sides(origin)))

    def hear(self, origin: Sides = "both") -> None:
        """Read again from a side that `deaf` has stopped."""
        self._order(lambda: self._deaf.difference_update(sides(origin)))

    def refuse(self) -> None:
        """Stop listening: new connections fail, existing ones continue."""
        self._order(self._refuse)

    def accept(self) -> None:
        """Listen again, on the same port."""
        self._order(self._listen)

    def inject(self, data: bytes, to: Side = "client") -> None:
        """Insert bytes into every open connection, at the next end of a frame."""

        def act() -> None:
            flows = [f for link in self._links for f in link.flows if f.to == to]
            if not flows:
                raise RuntimeError("no connection to inject into")
            for flow in flows:
                if flow.frames.at_boundary:
                    self._put(flow, data)
                else:
                    flow.injected += data

        self._order(act)

    def rewrite(self, hook: Callable[[bytes, Side], bytes] | None) -> None:
        """Forward `hook(chunk, to)` instead of each chunk that is read. None removes the hook.

        The hook runs on the thread of the proxy. A chunk can end in the middle of a frame.
        """

        def act() -> None:
            self._rewrite = hook

        self._order(act)

    def _settle(self) -> None:
        # A test that has seen a byte arrive must also find it in the counts.
        if not self._closing:
            self._order(lambda: None)

    def _order(self, act: Callable[[], None]) -> None:
        if threading.current_thread() is self._thread:
            act()
            return
        done: Future[None] = Future()
        self._orders.append((act, done))
        self._wake.send(b"!")
        done.result(10)

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
        finally:
            self._stop_listening()
            self._release_port()
            for link in self._links:
                link.close("reset")
            self._links.clear()

    def _turn(self) -> None:
        wanted = {self._woken.fileno(): EVENT_READ}
        if self._listener is not None:
            wanted[self._listener.fileno()] = EVENT_READ
        now = time.monotonic()
        later = []
        for link in self._links:
            events = {sock.fileno(): 0 for sock in link.sockets}
            for flow in link.flows:
                if self._wants_more(flow):
                    events[flow.source.fileno()] |= EVENT_READ
                due = flow.due()
                if due is not None and due <= now:
                    events[flow.target.fileno()] |= EVENT_WRITE
                elif due is not None:
                    later.append(due - now)
            wanted.update((number, mask) for number, mask in events.items() if mask)
        with SELECTOR() as selector:
            for number, mask in wanted.items():
                selector.register(number, mask)
            happened = {
                key.fd: mask for key, mask in selector.select(min(later, default=None))
            }
        for link in list(self._links):
            for flow in link.flows:
                if link.open and happened.get(flow.target.fileno(), 0) & EVENT_WRITE:
                    self._write(link, flow)
                if link.open and happened.get(flow.source.fileno(), 0) & EVENT_READ:
                    self._read(link, flow)
        if self._listener is not None and self._listener.fileno() in happened:
            self._connect(self._listener)
        if self._woken.fileno() in happened:
            self._woken.recv(CHUNK)
            self._obey()

    def _obey(self) -> None:
        while self._orders:
            act, done = self._orders.popleft()
            try:
                act()
            except Exception as error:  # noqa: BLE001 - it belongs to who gave the order
                done.set_exception(error)
            else:
                done.set_result(None)

    def _listen(self) -> None:
        if self._listener is None:
            listener = socket.create_server(("127.0.0.1", self._port), backlog=128)
            self._tune(listener)
            listener.setblocking(False)
            self._port = listener.getsockname()[1]
            self._listener = listener
            self._release_port()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _keep_port(self) -> None:
        """Reserve the port while the proxy does not listen, so that no other program gets it."""
        if sys.platform == "linux" and self._placeholder is None:
            self._placeholder = socket.socket()
            self._placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._placeholder.bind(("127.0.0.1", self._port))

    def _release_port(self) -> None:
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None

    def _refuse(self) -> None:
        self._stop_listening()
        self._keep_port()

    def _tune(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)

    def _connect(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:  # the client has left already
            return
        self._connections += 1
        self._tune(client)
        server = socket.socket()
        link = Link(client, server, framed=self._framed)
        try:
            self._tune(server)
            server.settimeout(5)
            server.connect(self._target)
        except OSError:
            link.close("reset")
            return
        client.setblocking(False)
        server.setblocking(False)
        self._links.append(link)

    def _end(self, link: Link, ending: Ending) -> None:
        link.close(ending)
        self._links.remove(link)

    def _wants_more(self, flow: Flow) -> bool:
        limit = DELAYED_BUFFER if self._delay[flow.to] else BUFFER
        return not (flow.ending or flow.origin in self._deaf or flow.size >= limit)

    def _read(self, link: Link, flow: Flow) -> None:
        if not self._wants_more(flow):
            return
        try:
            data = flow.source.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            flow.ending = "reset"
        else:
            if not data:
                flow.ending = "fin"
            else:
                if flow.framing is not None:
                    other, data = flow.framing.take(data)
                    self._put_as_it_is(flow, other)
                self._take(flow, data)
                if flow.framing is not None and flow.framing.closing:
                    self._put_as_it_is(flow, flow.framing.closing)
                    flow.framing.closing = b""
        if link.open:
            self._write(link, flow)

    def _take(self, flow: Flow, data: bytes) -> None:
        if self._rewrite is not None and data:
            data = self._rewrite(data, flow.to)
        end = flow.frames.feed(data)
        if flow.injected and end >= 0:
            data = data[:end] + flow.injected + data[end:]
            flow.injected = b""
        self._put(flow, data)

    def _put(self, flow: Flow, data: bytes) -> None:
        if data and flow.framing is not None:
            data = flow.framing.put(data)
        self._put_as_it_is(flow, data)

    def _put_as_it_is(self, flow: Flow, data: bytes) -> None:
        if data:
            flow.put(data, time.monotonic() + self._delay[flow.to])

    def _write(self, link: Link, flow: Flow) -> None:
        while flow.waiting and flow.waiting[0][0] <= time.monotonic():
            due, data = flow.waiting[0]
            cuts = self._cuts.get(flow.to)
            try:
                sent = flow.target.send(data if cuts is None else data[: cuts.left])
            except BlockingIOError:
                return
            except OSError:
                self._end(link, "reset")
                return
            self._bytes_to[flow.to] += sent
            flow.size -= sent
            if sent == len(data):
                flow.waiting.popleft()
            else:
                flow.waiting[0] = (due, data[sent:])
            if cuts is not None and cuts.passed(sent):
                if not cuts.times:
                    del self._cuts[flow.to]
                self._end(link, cuts.ending)
                return
        if flow.ending and not flow.passed_on and not flow.waiting:
            self._pass_on_the_end(link, flow)

    def _pass_on_the_end(self, link: Link, flow: Flow) -> None:
        if flow.ending == "reset":
            self._end(link, "reset")
            return
        flow.passed_on = True
        if all(flow.passed_on for flow in link.flows):
            self._end(link, "fin")
            return
        with contextlib.suppress(OSError):  # already closed
            flow.target.shutdown(socket.SHUT_WR)


def sides(chosen: Sides) -> tuple[Side, ...]:
    return ("client", "server") if chosen == "both" else (chosen,)


class Frames:
    """A `rewrite` hook that forwards whole frames, and to the client only some of them.

    Use the hook for a single connection with an unencrypted stream.
    """

    def __init__(self, passes: Callable[[bytes], bool]) -> None:
        """Make a hook. `passes(frame)` selects the frames, on the thread of the proxy."""
        self.passes = passes
        self._unread = b""

    def __call__(self, chunk: bytes, to: Side) -> bytes:
        if to == "server":
            return chunk
        data = self._unread + chunk
        passed, position = [], 0
        while (newline := data.find(b"\n", position)) >= 0:
            end = newline + 1 + payload_size(data[position:newline])
            if end > len(data):
                break
            frame = data[position:end]
            if self.passes(frame):
                passed.append(frame)
            position = end
        self._unread = data[position:]
        return b"".join(passed)
