"""Three servers behind proxies and a resolver, and the threads that work with them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import jsync
from jsync import errors
from jsync.server import LocalServer

from ...support.connection_faults import Events, connect
from ...support.connections import refusing_url
from ...support.proxy import FaultProxy
from ...support.servers import Cluster, wait_for
from ...support.threads import LONG, Thread
from .model import Model

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from ...support.campaign import Campaign

SMALL = 64 * 1024
"""The `max_payload` of one of the servers."""
OPTIONS: dict[str, Any] = {
    "connect_timeout": 1.0,
    "ping_interval": 0.5,
    "write_timeout": 2.0,
    "ignore_discovered_servers": True,
}
NO_FAMILY = 99
"""A family of addresses that the kernel does not know."""


class Resolver:
    """Stands in for `socket.getaddrinfo`. Some of its names do not resolve for a while.

    Of the addresses of a name one has a family without sockets, one has no listener, and
    the last one is a proxy's.
    """

    def __init__(self) -> None:
        self._real = socket.getaddrinfo
        self._ports: dict[str, int] = {}
        self._closed = urlsplit(refusing_url()).port
        self._released = threading.Event()
        self._hanging = ""
        self._slow = False

    def name(self, host: str, port: int) -> str:
        """Give a name to a port of this machine, and return the URL."""
        self._ports[host] = port
        return f"nats://{host}"

    def hang(self, url: str) -> None:
        """Answer no question about this name until `release`."""
        self._released.clear()
        self._hanging = urlsplit(url).netloc

    def slow_down(self) -> None:
        """Answer later than an attempt to connect ends, until `release`."""
        self._released.clear()
        self._slow = True

    def release(self) -> None:
        self._hanging = ""
        self._slow = False
        self._released.set()

    def __call__(self, host: str, *args: Any, **options: Any) -> Any:
        port = self._ports.get(host)
        if port is None:
            return self._real(host, *args, **options)
        if host == self._hanging:
            self._released.wait(LONG)
        elif self._slow:
            self._released.wait(1.5 * OPTIONS["connect_timeout"])
        kind = socket.SOCK_STREAM
        return [
            (NO_FAMILY, kind, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, kind, 6, "", ("127.0.0.1", self._closed)),
            (socket.AF_INET, kind, 6, "", ("127.0.0.1", port)),
        ]


class SmallCluster(Cluster):
    """A cluster whose last server takes smaller messages than the others."""

    def __init__(self) -> None:
        super().__init__()
        self.servers[-1] = LocalServer(
            config=f"max_payload: {SMALL}", args=self.servers[-1]._args
        )


class World:
    """The clients of one campaign and their servers, of which the last takes small messages."""

    def __init__(
        self, cluster: Cluster, resolver: Resolver, campaign: Campaign
    ) -> None:
        self.cluster = cluster
        self.resolver = resolver
        self.campaign = campaign
        self.model = Model()
        self.over = threading.Event()
        self.proxies, self.urls = self.fronted("node")
        self._hosts = [f"{url}:4222" for url in self.urls]
        self._threads: list[tuple[str, Thread[None]]] = []
        self._connections: list[jsync.Connection] = []
        self._lock = threading.Lock()

    def fronted(self, name: str) -> tuple[list[FaultProxy], list[str]]:
        """Return new proxies in front of the servers, and their URLs."""
        ports = [server.port for server in self.cluster.servers]
        proxies = [FaultProxy("127.0.0.1", port, scheme="nats") for port in ports]
        urls = [
            self.resolver.name(f"{name}-{number}.test", proxy.port)
            for number, proxy in enumerate(proxies)
        ]
        return proxies, urls

    def prepare(self) -> None:
        with connect(self.cluster.urls, Events()) as nc:
            nc.jetstream(timeout=10).create_stream(
                name="S",
                subjects=["s.>"],
                num_replicas=3,
                duplicate_window=600,
                allow_atomic=True,
                allow_direct=True,
            )

    def connect(
        self, urls: list[str] | None = None, events: Events | None = None, **more: Any
    ) -> jsync.Connection:
        """Connect, however long that takes, and note the connection for `end`."""
        urls, events = urls or self.urls, events or Events()
        until = time.monotonic() + LONG
        while True:
            with contextlib.suppress(errors.ConnectionError):
                nc = self.model.call(
                    "connect", 1, lambda: connect(urls, events, **{**OPTIONS, **more})
                )
                break
            if self.over.wait(0.05):
                raise EndedError
            if time.monotonic() > until:
                raise TimeoutError(f"no connection to {urls}")
        with self._lock:
            self._connections.append(nc)
        return nc

    def connections(self) -> list[jsync.Connection]:
        """Return the connections through the proxies of all that are not closed."""
        with self._lock:
            found = list(self._connections)
        return [nc for nc in found if not nc.is_closed and nc.servers[0] in self._hosts]

    def start(
        self, name: str, work: Callable[[World, str, random.Random], None]
    ) -> None:
        rng = self.campaign.random(name)
        self._threads.append((name, Thread(self._run, name, work, rng)))

    def _run(
        self,
        name: str,
        work: Callable[[World, str, random.Random], None],
        rng: random.Random,
    ) -> None:
        try:
            work(self, name, rng)
        except EndedError:
            pass
        except BaseException as error:
            self.model.wrong(f"{name} ended: {error!r}")
            raise

    def repair(self) -> None:
        """End all that was done to servers, proxies and names."""
        self.resolver.release()
        for server in self.cluster.servers:
            if server.is_running:
                server.resume()
            else:
                server.start()
        for proxy in self.proxies:
            proxy.accept()
            proxy.hear()
            for side in ("client", "server"):
                proxy.cut_after(1 << 60, side)  # in place of an earlier one

    def end(self) -> None:
        """End the threads, then close what is still connected. Nothing is left of either."""
        self.over.set()
        for name, thread in self._threads:
            try:
                error = thread._future.exception(LONG)
            except TimeoutError:
                self.model.wrong(f"{name} does not end: {self.model.hanging()}")
            else:
                if error is not None:
                    raise error
        for nc in self._connections:
            nc.close()
        names = tuple(f"{nc._session.name}-" for nc in self._connections)

        def left() -> list[str]:
            threads = [thread.name for thread in threading.enumerate()]
            return [name for name in threads if name.startswith((*names, "jsync-re"))]

        try:
            wait_for(lambda: not left(), LONG)
        except TimeoutError:
            self.model.wrong(f"threads are left: {left()}")

    def is_on(self, nc: jsync.Connection, url: str) -> bool:
        """Whether a connection is to one of the servers behind this URL."""
        return nc.connected_url == f"{url}:4222"


class EndedError(Exception):
    """The campaign is over."""
