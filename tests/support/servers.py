"""A cluster of nats-servers, and questions of the tests to their monitoring pages."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import random
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jsync import errors
from jsync.server import LocalCluster, LocalServer

from .websocket_framing import Framing

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

# No system assigns these ports by itself, so none is taken between the check and its use.
ROUTE_PORTS = range(20_000, 30_000)


def free_port() -> int:
    """Return a free port on 127.0.0.1, for a server that cannot choose one by itself.

    Routes are such a case: each server of a JetStream cluster must know the ports of the others.
    """
    while True:
        port = random.choice(ROUTE_PORTS)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def monitor(server: LocalServer, page: str) -> dict[str, Any]:
    """Return a page of the server's monitoring, such as `jsz?streams=1`."""
    where = urlsplit(server.monitoring_url or "").netloc
    with contextlib.closing(
        http.client.HTTPConnection(where, timeout=15)
    ) as connection:
        connection.request("GET", f"/{page}")
        found: dict[str, Any] = json.load(connection.getresponse())
        return found


class WebSocketServer(LocalServer):
    """A server that returns the address of its WebSocket listener as its address."""

    def __init__(self, *, port: int | None = None, **options: Any) -> None:
        """A `port` is that of the listener."""
        super().__init__(**{"websocket": True, **options})
        if port is not None:
            self._websocket_port = port

    @property
    def url(self) -> str:
        return self.websocket_url

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0


class RawClient:
    """A small NATS client, to test these helpers without jsync.

    Every wait ends with `TimeoutError` after half a minute, or after the time of `settimeout`.
    `ConnectionError` means that the server has closed the connection.
    """

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext | None = None,
        *,
        handshake_first: bool = False,
    ) -> None:
        """Connect and read INFO, before the TLS handshake or after it."""
        where = urlsplit(url)
        address = (where.hostname, where.port)
        self._socket: socket.socket = socket.create_connection(address, timeout=30)
        self._unread = b""
        self._framing: Framing | None = None
        try:
            if where.scheme == "ws":
                self._upgrade()
            if tls is not None and handshake_first:
                self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
            self.info: dict[str, Any] = json.loads(self.read_line()[len("INFO ") :])
            if tls is not None and not handshake_first:
                self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def settimeout(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def connect(self, **options: object) -> str:
        """Send CONNECT and PING. Return PONG, or the error text of the server."""
        options = {"verbose": False, "lang": "raw", "protocol": 1, **options}
        self.send(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())
        while (line := self.read_line()).startswith("INFO "):
            pass
        return line

    def _upgrade(self) -> None:
        """Have the connection be a WebSocket from now on."""
        self._socket.sendall(
            b"GET / HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: %b\r\n\r\n" % base64.b64encode(bytes(16))
        )
        framing = Framing(masked=True)
        head = b""
        while not head:
            head, self._unread = framing.take(self._received())
        assert head.startswith(b"HTTP/1.1 101 "), head
        self._framing = framing

    def send(self, data: bytes) -> None:
        self._socket.sendall(self._framing.put(data) if self._framing else data)

    def _received(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the server has closed")
        return data

    def read_line(self) -> str:
        """Return the next line without its end. Answer PINGs of the server."""
        line = b"PING"
        while line == b"PING":
            while b"\r\n" not in self._unread:
                data = self._received()
                if self._framing:
                    _, data = self._framing.take(data)
                self._unread += data
            line, self._unread = self._unread.split(b"\r\n", 1)
            if line == b"PING":
                self.send(b"PONG\r\n")
        return line.decode()

    def request(self, subject: str, payload: object = None) -> dict[str, Any]:
        """Return the JSON reply to a JSON request, for example to the JetStream API."""
        data = b"" if payload is None else json.dumps(payload).encode()
        self.send(b"SUB _INBOX.raw 1\r\nUNSUB 1 1\r\n")
        self.send(
            b"PUB %s _INBOX.raw %d\r\n%s\r\n" % (subject.encode(), len(data), data)
        )
        while not self.read_line().startswith("MSG "):
            pass
        reply: dict[str, Any] = json.loads(self.read_line())
        return reply


class Cluster(LocalCluster):
    """A cluster that tells tests which of its servers are leaders."""

    def start(self, timeout: float = 120) -> None:
        """Start the servers, again if they elect no leader.

        This happens in about two of a hundred starts of a cluster with servers of 2.10.
        """
        try:
            super().start(40)
        except errors.TimeoutError:
            super().start(timeout)

    def meta_leader(self, timeout: float = 60) -> LocalServer:
        """Return the meta leader of JetStream. Blocks until there is one."""
        return self._leader(self._meta_leader_name, timeout)

    def stream_leader(self, stream: str, timeout: float = 60) -> LocalServer:
        """Return the server that leads a stream of the global account. Blocks until there is one.

        Raises:
            TimeoutError: There is no leader after `timeout` seconds.
        """

        def leader_name(server: LocalServer) -> str:
            jsz = monitor(server, "jsz?accounts=1&streams=1")
            for account in jsz.get("account_details", ()):
                for detail in account.get("stream_detail", ()):
                    if detail["name"] == stream:
                        return str(detail["cluster"].get("leader", ""))
            return ""

        return self._leader(leader_name, timeout)

    def _leader(
        self, leader_name: Callable[[LocalServer], str], timeout: float
    ) -> LocalServer:
        """Return the server that considers itself the leader, because others may be outdated."""
        found: list[LocalServer] = []

        def is_found() -> bool:
            for number, server in enumerate(self.servers, 1):
                if server.is_running and leader_name(server) == f"node-{number}":
                    found.append(server)
            return bool(found)

        wait_for(is_found, timeout)
        return found[0]

    def _meta_leader_name(self, server: LocalServer) -> str:
        name: str = monitor(server, "jsz").get("meta_cluster", {}).get("leader", "")
        return name


def wait_for(condition: Callable[[], bool], timeout: float = 60) -> None:
    """Block until `condition()` is true.

    Raises:
        TimeoutError: The condition is still false after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout} s")
        time.sleep(0.01)


def threads_since(before: set[threading.Thread]) -> set[threading.Thread]:
    """Return the threads that began after `before = set(threading.enumerate())` and still run."""
    return set(threading.enumerate()) - before


def publish_block(url: str, subject: str, block: bytes, data: bytes = b"") -> None:
    """Publish with any bytes as headers, as another client might, and wait for the server."""
    with RawClient(url) as client:
        client.connect(headers=True, no_responders=True)
        sizes = len(block), len(block) + len(data)
        client.send(b"HPUB %b %d %d\r\n" % (subject.encode(), *sizes))
        client.send(block + data + b"\r\nPING\r\n")
        while client.read_line() != "PONG":
            pass
