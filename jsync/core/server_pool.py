"""The pool of servers, and the pauses between attempts to connect.

Pure: the connection passes in the clock and the random generator. "As nats.go" marks the
rules by which this client and a Go client walk the servers of a cluster alike.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ..errors import AuthenticationError, ConfigError
from ..validation import check_seconds
from .server_address import ServerAddress, parse_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolServer:
    """A server that a connection may reconnect to. `reconnect_to_server` chooses one.

    Example:
        ```python
        def choose(pool, current):
            return min(pool, key=lambda server: server.attempts), 1.0

        nc = jsync.connect("nats://127.0.0.1:4222", reconnect_to_server=choose)
        ```
    """

    url: str
    """The URL, without user, password, token and query."""
    attempts: int
    """The number of failed attempts since the last connection to the server."""
    discovered: bool
    """True if the cluster announced the server. Otherwise you gave it."""
    error: Exception | None
    """The last failure: of an attempt, or of the connection. None if there was none."""


ServerChoice: TypeAlias = PoolServer | tuple[PoolServer, float] | None
"""A server of the pool, alone or with the seconds to wait, or None for the usual one."""


# AuthenticationErrors of an overloaded server, not of wrong credentials.
_TRANSIENT = ("Authentication Timeout", "Failed Account Registration")


class Random(Protocol):
    """The methods of `random.Random` that the pool uses."""

    def random(self) -> float: ...
    def shuffle(self, x: list[Any], /) -> None: ...


@dataclass(slots=True)
class _ServerState:
    server: ServerAddress
    attempts: int = 0
    error: Exception | None = None
    auth_failure: tuple[str, object] | None = None
    """The last text with which the server refused our credentials, and these."""


class RetryDelay(NamedTuple):
    """A wait that is due before the next attempt."""

    number: int
    """1 for the first pause since the start or the last loss of the connection."""
    brief: bool
    """True for a pause of jitter only, after the loss of the only server, unless it has
    refused the credentials."""


class ServerPool:
    """The servers in the order of attempts, with their failures. Not thread-safe.

    The front is the next candidate, or the connected server. A server that fails or is
    lost goes to the back. It leaves the pool after `max_reconnects` failures (-1: never),
    or when it refuses the same credentials twice with the same text, and returns only if
    a later INFO announces it again.

    `randomize` shuffles all the given servers, including the first, as nats.go does for
    the URLs of `Connect`.
    """

    def __init__(
        self,
        servers: Iterable[ServerAddress],
        *,
        randomize: bool,
        max_reconnects: int,
        ignore_discovered: bool,
        rng: Random,
        ignore_auth_error_abort: bool = False,
    ) -> None:
        self._entries = [_ServerState(server) for server in servers]
        self._out: list[_ServerState] = []
        self._auth_failures: dict[ServerAddress, AuthenticationError] = {}
        self._given = {entry.server: entry.server for entry in self._entries}
        self._seen = set(self._given)
        self._current: ServerAddress | None = None
        self._randomize = randomize
        self._max_reconnects = max_reconnects
        self._ignore_discovered = ignore_discovered
        self._ignore_auth_errors = ignore_auth_error_abort
        self._rng = rng
        self._left = len(self._entries)  # servers to try before the next pause
        self._pauses = 0
        self._brief = False
        if randomize:
            rng.shuffle(self._entries)

    @property
    def servers(self) -> list[ServerAddress]:
        """The servers in the pool, the next candidate first."""
        return [entry.server for entry in self._entries.copy()]

    @property
    def current(self) -> ServerAddress | None:
        """The server connected to."""
        return self._current

    @property
    def retry_delay(self) -> RetryDelay | None:
        """The wait that is due before the server at the front is tried, or None.

        As nats.go, wait once a round, after every other server has had its turn. The only
        difference is that nats.go waits in full before it first returns to a single server.
        """
        return RetryDelay(self._pauses + 1, self._brief) if self._left <= 0 else None

    @property
    def auth_failures(self) -> dict[str, AuthenticationError]:
        """The servers that left the pool for refusing the credentials twice, by URL.

        nats.go closes the connection at the first such server.
        """
        return {server.url: error for server, error in self._auth_failures.items()}

    def errors(self) -> dict[str, Exception]:
        """Return the last failure of each server by URL, also of those out of the pool."""
        entries = [*self._out, *self._entries]
        return {e.server.url: e.error for e in entries if e.error is not None}

    def select(self) -> ServerAddress | None:
        """Return the next candidate, or None if the pool is empty.

        It stays the same until `connected`, `failed` or `lost` reports on it.
        """
        return self._entries[0].server if self._entries else None

    def candidates(self) -> list[PoolServer]:
        """Return the servers as the user sees them, in the order of attempts (ADR-40)."""
        return [
            PoolServer(
                url=entry.server.url,
                attempts=entry.attempts,
                discovered=entry.server.discovered,
                error=entry.error,
            )
            for entry in self._entries
        ]

    def choose(self, candidates: list[PoolServer], choice: object) -> float | None:
        """Move the user's choice to the front. Return the seconds to wait, if given.

        Raises `ConfigError`, and changes nothing, unless the choice is a `ServerChoice`
        among `candidates`, the current ones.
        """
        pause: float | None = None
        if isinstance(choice, tuple) and len(choice) == 2:
            choice, wait = choice
            pause = check_seconds(wait, "the seconds of reconnect_to_server")
            if not 0 <= pause < math.inf:
                raise ConfigError(f"reconnect_to_server returned {wait!r} seconds")
        if choice is None:
            return pause
        if not isinstance(choice, PoolServer):
            raise ConfigError(
                "reconnect_to_server has to return one of its servers, a tuple of a server "
                f"and seconds, or None, not {choice!r}"
            )
        for entry, candidate in zip(self._entries, candidates, strict=True):
            if candidate is choice or candidate.url == choice.url:
                self._entries.remove(entry)
                self._entries.insert(0, entry)
                return pause
        raise ConfigError(f"reconnect_to_server: {choice.url} is not in the pool")

    def connected(self, server: ServerAddress) -> None:
        """Record that the handshake with `server` is done, and forget its failures."""
        self._current = server
        for entry in self._entries:
            if entry.server == server:
                entry.attempts, entry.error, entry.auth_failure = 0, None, None

    def failed(
        self, server: ServerAddress, error: Exception, credentials: object = None
    ) -> None:
        """Record that an attempt to connect to `server` failed.

        `credentials` stands for those that were sent, and is compared with the last ones.
        """
        self._count_attempt()
        self._current = None
        self._retire(server, error, credentials, attempts=1)

    def _count_attempt(self) -> None:
        """Count a server as tried. After all were tried, a pause is due."""
        if self._left > 0:
            self._left -= 1
        else:
            self._pauses += 1
            self._left = len(self._entries) - 1
        self._brief = False

    def lost(
        self,
        error: Exception | None = None,
        credentials: object = None,
        *,
        again: bool = False,
    ) -> None:
        """Record that the connection to the current server broke, and begin a reconnect.

        With `again`, soon after the last loss, the round continues as if an attempt had
        failed. `credentials` stands for those of the connection.
        """
        if self._current is None:
            return
        server, self._current = self._current, None
        if again:
            self._count_attempt()
        else:
            others = sum(entry.server != server for entry in self._entries)
            self._left, self._pauses = others, 0
            # New credentials may take their time, so a rejection gets the whole pause.
            is_auth_failure = isinstance(error, AuthenticationError)
            self._brief = self._left == 0 and not is_auth_failure
        self._retire(server, error, credentials, attempts=0)

    def _retire(
        self,
        server: ServerAddress,
        error: Exception | None,
        credentials: object,
        attempts: int,
    ) -> None:
        entry = next((e for e in self._entries if e.server == server), None)
        if entry is None:
            return
        self._entries.remove(entry)
        entry.attempts += attempts
        entry.error = error or entry.error
        self._record_auth_failure(entry, error, credentials)
        exhausted = 0 <= self._max_reconnects <= entry.attempts
        out = exhausted or server in self._auth_failures
        (self._out if out else self._entries).append(entry)

    def _record_auth_failure(
        self, entry: _ServerState, error: Exception | None, credentials: object
    ) -> None:
        # An AuthenticationError with a cause comes from this process: an unreadable creds
        # file, or a callable that raised. The next attempt may succeed. Other failures
        # between two rejections do not count.
        if not isinstance(error, AuthenticationError) or error.__cause__ is not None:
            return
        if self._ignore_auth_errors or str(error) in _TRANSIENT:
            return
        failure = str(error), credentials
        if entry.auth_failure == failure:
            self._auth_failures[entry.server] = error
        entry.auth_failure = failure

    def replace(self, servers: Iterable[ServerAddress]) -> None:
        """Replace all servers by these, and try each of them without a pause.

        The connection stays. If its server is one of these, it is the front. Otherwise it
        is out of the pool when the connection is lost.
        """
        self._entries = [_ServerState(server) for server in servers]
        if self._randomize:
            self._rng.shuffle(self._entries)
        self._entries.sort(key=lambda entry: entry.server != self._current)
        self._given = {entry.server: entry.server for entry in self._entries}
        self._seen = set(self._given)
        self._out, self._auth_failures = [], {}
        self._left, self._pauses, self._brief = len(self._entries), 0, False

    def discover(self, urls: Sequence[str]) -> list[ServerAddress]:
        """Merge the `connect_urls` of an INFO. Return the servers never seen before.

        Discovered servers that are no longer announced are dropped, but the user's servers
        and the current one stay. An empty list changes nothing (as nats.go). New servers
        take scheme, path and userinfo from the current server, and the certificate of a
        bare IP address is verified against its name.
        """
        source = self._current or self.select()
        if not urls or self._ignore_discovered or source is None:
            return []
        if any(given.websocket != source.websocket for given in self._given):
            return []  # the user set servers of the other kind, and has not left this one
        announced = _parse_announced(urls, source)
        self._entries = [
            e
            for e in self._entries
            if not e.server.discovered or e.server in (*announced, source)
        ]
        present = set(self.servers)
        added = [self._given.get(s, s) for s in announced if s not in present]
        self._out = [e for e in self._out if e.server not in added]
        self._entries += [_ServerState(server) for server in added]
        for server in added:
            self._auth_failures.pop(server, None)
        self._left = min(self._left + len(added), len(self._entries))
        new = [server for server in added if server not in self._seen]
        self._seen.update(new)
        if new and self._randomize:
            rest = self._entries[1:]
            self._rng.shuffle(rest)
            self._entries[1:] = rest
        return new

    def __repr__(self) -> str:
        notes = []
        for entry in self._entries:
            note = entry.server.url
            if entry.server == self._current:
                note += " current"
            if entry.attempts:
                note += f" {entry.attempts} failed"
            notes.append(note)
        return f"<ServerPool [{', '.join(notes)}] {len(self._out)} out>"


def _parse_announced(urls: Iterable[str], source: ServerAddress) -> list[ServerAddress]:
    servers = {}
    for url in urls:
        try:
            server = parse_server(url)
        except ConfigError:
            continue  # an invalid URL must not hide the others
        if server.websocket and not source.websocket:
            continue
        if not server.has_userinfo:
            server = replace(
                server, user=source.user, password=source.password, token=source.token
            )
        name = source.certificate_name
        inherits = _is_address(server.host) and not _is_address(name)
        server = replace(
            server,
            tls=server.tls or source.tls,
            discovered=True,
            tls_name=name if inherits else None,
            websocket=source.websocket,
            target=source.target,
        )
        servers[server] = server
    return list(servers.values())


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Backoff:
    """The rule for the length of a `RetryDelay`, in seconds."""

    rng: Random = field(repr=False)
    reconnect_wait: float = 2.0
    reconnect_jitter: float = 0.1
    reconnect_jitter_tls: float = 1.0
    reconnect_delay: Callable[[int], float] | None = None
    """The user's rule, called with `RetryDelay.number`. It may raise, or take long."""

    def delay(self, pause: RetryDelay | None, *, tls: bool) -> float:
        """Return the seconds of `pause`. Raises any exception of `reconnect_delay`."""
        if pause is None:
            return 0.0
        if self.reconnect_delay is None:
            return self.default_delay(pause, tls=tls)
        seconds = float(self.reconnect_delay(pause.number))
        if not math.isfinite(seconds):
            return self.default_delay(pause, tls=tls)
        return max(0.0, seconds)

    def default_delay(self, pause: RetryDelay, *, tls: bool) -> float:
        """Return the seconds of `pause` by the default rule, without `reconnect_delay`."""
        jitter = self.reconnect_jitter_tls if tls else self.reconnect_jitter
        return self.rng.random() * jitter + (0 if pause.brief else self.reconnect_wait)
