"""A cluster of nats-servers whose routes can be cut, throttled and delayed."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

from jsync.server import LocalServer

from .proxy import FaultProxy
from .servers import Cluster, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .proxy import Side


class RoutedCluster(Cluster):
    """Three servers that reach each other through one proxy for each direction."""

    def __init__(self) -> None:
        ports = [free_port() for _ in range(3)]
        self.proxies = {
            (here, there): FaultProxy("127.0.0.1", ports[there])
            for here, there in itertools.permutations(range(3), 2)
        }
        self.servers = []
        for here, port in enumerate(ports):
            routes = [
                f"nats://127.0.0.1:{proxy.port}"
                for (source, _), proxy in self.proxies.items()
                if source == here
            ]
            # Gossip would lead the servers past the proxies, so they advertise a closed port.
            args = [
                *("-n", f"node-{here + 1}", "-m", "-1", "--cluster_name", "jsync"),
                *("--cluster", f"nats://127.0.0.1:{port}"),
                *("--cluster_advertise", "127.0.0.1:1"),
                *("--routes", ",".join(routes)),
            ]
            # One connection for all accounts, so that a hook can follow its frames.
            config = "cluster { pool_size: -1 }"
            self.servers.append(LocalServer(config=config, args=args))

    def stop(self) -> None:
        super().stop()
        for proxy in self.proxies.values():
            proxy.close()

    def route(self, one: int, other: int) -> list[FaultProxy]:
        """Return the proxies of the route between two servers. Either server may have opened it."""
        return [self.proxies[one, other], self.proxies[other, one]]

    def carries(self, one: int, other: int) -> bool:
        """Return whether two servers are connected through the proxies."""
        return any(proxy.connected for proxy in self.route(one, other))

    @contextlib.contextmanager
    def cut_off(self, server: LocalServer) -> Iterator[None]:
        """Cut a server off from the others. Its clients stay connected."""
        here = self.servers.index(server)
        proxies = [
            proxy
            for there in range(len(self.servers))
            if there != here
            for proxy in self.route(here, there)
        ]
        for proxy in proxies:
            proxy.refuse()
            proxy.cut()
        try:
            yield
        finally:
            for proxy in proxies:
                proxy.accept()

    @contextlib.contextmanager
    def behind(self, server: LocalServer, *raft_groups: str) -> Iterator[None]:
        """Keep what leaders of streams replicate from one server, for less than 4 seconds.

        Everything else reaches that server. After 4 seconds it would stand for election.
        """
        here = self.servers.index(server)
        subjects = {f"$NRG.AE.{group}".encode() for group in raft_groups}
        hooked: list[tuple[FaultProxy, Side]] = []
        for there in range(len(self.servers)):
            if there != here:
                # A proxy knows the servers as the client, which has dialed, and the server.
                hooked += [(self.proxies[there, here], "server")]
                hooked += [(self.proxies[here, there], "client")]
        for proxy, to in hooked:
            proxy.rewrite(Withheld(subjects, to))
        try:
            yield
        finally:
            for proxy, _ in hooked:
                proxy.rewrite(None)


class Withheld:
    """A hook for `FaultProxy.rewrite` that drops messages of some subjects on a route."""

    def __init__(self, subjects: set[bytes], to: Side) -> None:
        self._subjects = subjects
        self._to = to
        self._rest = 0  # bytes of the present frame that are still to come
        self._drops = False
        self._line = b""
        self.dropped = 0

    def __call__(self, chunk: bytes, to: Side) -> bytes:
        if to != self._to:
            return chunk
        passed = bytearray()
        while chunk:
            if self._rest:
                part, chunk = chunk[: self._rest], chunk[self._rest :]
                self._rest -= len(part)
                if not self._drops:
                    passed += part
                continue
            line, newline, chunk = chunk.partition(b"\n")
            self._line += line + newline
            if not newline:
                break
            words = self._line.split()
            is_message = words[:1] in ([b"RMSG"], [b"HMSG"], [b"LMSG"])
            self._rest = int(words[-1]) + 2 if is_message else 0
            self._drops = is_message and words[2] in self._subjects
            self.dropped += self._drops
            if not self._drops:
                passed += self._line
            self._line = b""
        return bytes(passed)
