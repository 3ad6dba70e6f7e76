"""Shared parts of the fault tests: a record of callbacks, and a server that follows a script."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import subprocess
import threading
import time
from pathlib import Path
from selectors import EVENT_WRITE, DefaultSelector
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from .proxy import LINGER_NOT, SCHEME, payload_size
from .servers import wait_for
from .websocket_framing import Framing, acceptance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from jsync.connection import Connection

CALLBACKS = (
    *("connect", "disconnect", "reconnect", "closed"),
    *("error", "lame_duck", "discovered"),
)


@pytest.fixture(autouse=True)
def _no_crash(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that no thread of jsync crashes: errors must become events of the connection."""
    yield
    crashes = [r.getMessage() for r in caplog.records if "thread failed" in r.message]
    assert not crashes


class Events:
    """The callbacks of a connection so far, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    @property
    def callbacks(self) -> dict[str, Any]:
        """Return the keywords for `jsync.connect`."""
        return {f"on_{name}": functools.partial(self.note, name) for name in CALLBACKS}

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.seen]

    def note(self, name: str, value: object = None) -> None:
        self.seen.append((name, value))

    def of(self, name: str) -> list[Any]:
        """Return the arguments of that callback, one for each call."""
        return [value for seen, value in list(self.seen) if seen == name]

    def wait(self, name: str, count: int = 1, timeout: float = 60) -> Any:
        """Block until that callback was called `count` times, and return the argument of that
        call.
        """
        try:
            wait_for(lambda: len(self.of(name)) >= count, timeout)
        except TimeoutError:
            raise TimeoutError(f"no {name} number {count}: {self.seen}") from None
        return self.of(name)[count - 1]


def connect(url: str | list[str], events: Events, **options: Any) -> Connection:
    """Connect with `events` as callbacks and without delay between reconnects."""
    fast = {"reconnect_wait": 0.02, "reconnect_jitter": 0.0}
    return jsync.connect(url, **{**fast, **events.callbacks, **options})


def waiting(connection: Connection) -> int:
    """Return the number of requests that wait for a reply on `connection`."""
    return len(connection._session.reply_mux)


def subscribed(connection: Connection) -> int:
    """Return the number of subscriptions of `connection`, without those kept for later pulls."""
    session = connection._session
    return len(session.interests) - len(session.idle_inboxes)


def unsent(connection: Connection) -> int:
    """Return the number of bytes that are written and that the socket has not accepted."""
    return connection._write_buffer.pending


def is_stuck(connection: Connection) -> bool:
    """Return whether bytes wait for the socket and none of them is being sent."""
    seen = unsent(connection)
    time.sleep(0.05)
    stream = vars(connection._session.io)["_stream"]
    if stream is None:
        return False
    with DefaultSelector() as selector:
        selector.register(stream.fd, EVENT_WRITE)
        return 0 < seen == unsent(connection) and not selector.select(0)


def payloads(subscription: jsync.Subscription, count: int) -> list[bytes]:
    return [subscription.next(10).data for _ in range(count)]


def is_empty(subscription: jsync.Subscription) -> bool:
    """Return whether no message is left, once everything that the server sent has arrived."""
    with pytest.raises(errors.TimeoutError):
        subscription.next(0.05)
    return True


def answers(nc: Connection) -> bool:
    """Return whether the server answers. Retries, because injected bytes can swallow replies."""
    with contextlib.suppress(errors.TimeoutError, errors.ConnectionError):
        for _ in range(3):
            nc.rtt(2)
        return True
    return False


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    shown = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(os.getpid())],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(shown.stdout) * 1024


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


class Peer:
    """A connection that a `FakeServer` has accepted. Every wait ends after a minute."""

    def __init__(
        self, sock: socket.socket, number: int, closing: threading.Event
    ) -> None:
        sock.settimeout(60)
        self.number = number
        """0 for the first connection that the server has accepted."""
        self.sock = sock
        self._closing = closing
        self._unread = b""
        self._framing: Framing | None = None

    def upgrade(self) -> None:
        """Make the connection a WebSocket, which the client has asked for."""
        taking = Framing(masked=False)
        request = b""
        while not request:
            request, self._unread = taking.take(self._received())
        self.send(acceptance(request))
        self._framing = taking

    def greet(self, **info: object) -> None:
        fields = {"server_id": "fake", "version": "2.10.0", "proto": 1} | {
            "headers": True,
            "max_payload": 1 << 20,
            **info,
        }
        self.send(b"INFO %s\r\n" % json.dumps(fields).encode())

    def handshake(self, **info: object) -> None:
        """Send INFO, take CONNECT and PING, and send PONG."""
        self.greet(**info)
        assert self.frame().startswith(b"CONNECT ")
        assert self.frame() == b"PING\r\n"
        self.send(b"PONG\r\n")

    def serve(self) -> None:
        """Answer PINGs until the client leaves."""
        with contextlib.suppress(OSError):
            while True:
                if self.frame() == b"PING\r\n":
                    self.send(b"PONG\r\n")

    def hang(self) -> None:
        """Send and read nothing until the server is closed."""
        assert self._closing.wait(180)

    def send(self, data: bytes) -> None:
        self.sock.sendall(self._framing.put(data) if self._framing else data)

    def frame(self) -> bytes:
        """Return the next frame of the client.

        Raises `ConnectionError` when the client has left.
        """
        while b"\n" not in self._unread:
            self._read()
        line = self._unread.partition(b"\n")[0]
        size = len(line) + 1 + payload_size(line)
        while len(self._unread) < size:
            self._read()
        frame, self._unread = self._unread[:size], self._unread[size:]
        return frame

    def reset(self) -> None:
        """Close the connection with a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self.sock.close()

    def _read(self) -> None:
        data = self._received()
        if self._framing:
            _, data = self._framing.take(data)
        self._unread += data

    def _received(self) -> bytes:
        data = self.sock.recv(1 << 18)
        if not data:
            raise ConnectionError("the client has left")
        return data


class FakeServer:
    """A NATS server that runs its nth script for the nth connection.

    Further connections run the last script. With `make websocket` each is a WebSocket. A
    connection ends with its script. The end of the `with` block raises the errors of
    scripts, except those of a client that has left.
    """

    def __init__(
        self,
        *scripts: Callable[[Peer], object],
        port: int = 0,
        receive_buffer: int | None = None,
    ) -> None:
        self._scripts = scripts
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()
        self.peers: list[Peer] = []
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        if receive_buffer is not None:
            option = (socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            self._listener.setsockopt(*option)
        self._start(self._accept)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @functools.cached_property
    def url(self) -> str:
        return f"{SCHEME}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        if value is None and self._failures:
            raise self._failures[0]

    def close(self) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):  # ends the accept
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads[:1]:
            thread.join(10)
        for peer in self.peers:
            with contextlib.suppress(OSError):  # ends its reads
                peer.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        for peer in self.peers:
            peer.sock.close()

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name="fake-server", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer = Peer(sock, len(self.peers), self._closing)
                self.peers.append(peer)
                self._start(functools.partial(self._run, peer))

    def _run(self, peer: Peer) -> None:
        script = self._scripts[min(peer.number, len(self._scripts) - 1)]
        try:
            if SCHEME == "ws":
                peer.upgrade()
            script(peer)
        except ConnectionError:
            pass
        except BaseException as failure:  # noqa: BLE001 (raised by __exit__)
            self._failures.append(failure)
        finally:
            peer.sock.close()


def leave(peer: Peer) -> None:
    """A script that waits for the first bytes of the client and then closes the connection."""
    peer.handshake()
    peer.frame()
    peer.reset()


def reached(fake: FakeServer, number: int) -> bool:
    return len(fake.peers) > number
