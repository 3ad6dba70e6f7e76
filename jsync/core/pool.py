"""The pool of servers, and how long to wait between attempts.

Pure: the connection brings the clock and the dice. Where a rule says "as nats.go",
a cluster sees this client and a Go one walk its servers alike.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ..checks import seconds
from ..errors import AuthenticationError, ConfigError
from .servers import Server, parse_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolServer:
    """A server that a connection may reconnect to. `reconnect_to_server` chooses one."""

    url: str
    """The URL, without user, password, token and query."""
    attempts: int
    """The number of failed attempts since the last connection to the server."""
    discovered: bool
    """Whether the cluster announced the server. Otherwise you gave it."""
    error: Exception | None
    """The last failure: of an attempt, or of the connection. None if there was none."""


ServerChoice: TypeAlias = PoolServer | tuple[PoolServer, float] | None
"""A server of the pool, alone or with the seconds to wait, or None for the usual one."""


# AuthenticationErrors of an overloaded server, not of wrong credentials.
_TRANSIENT = ("Authentication Timeout", "Failed Account Registration")


class Dice(Protocol):
    """What is asked of `random.Random`."""

    def random(self) -> float: ...
    def shuffle(self, x: list[Any], /) -> None: ...


@dataclass(slots=True)
class _Entry:
    server: Server
    attempts: int = 0
    error: Exception | None = None
    refusal: str | None = None
    """The last words of the server about our credentials."""


class Pause(NamedTuple):
    """A wait that is due before the next attempt."""

    number: int
    """1 for the first since the connection was lost or begun."""
    brief: bool
    """Only jitter: the one server there is was lost a moment ago."""


class ServerPool:
    """The servers in the order of trying, and what became of each. One thread at a time.

    The front is the next candidate, or the one connected to. A server that fails or is
    lost goes to the back, and leaves the pool after `max_reconnects` failures (-1: never)
    or when it refuses the same credentials twice with the same words. Leaving is for
    good, unless a later INFO announces the server again.

    `randomize` shuffles all the servers given, the first one too, as nats.go does for
    the URLs of `Connect`.
    """

    def __init__(
        self,
        servers: Iterable[Server],
        *,
        randomize: bool,
        max_reconnects: int,
        ignore_discovered: bool,
        dice: Dice,
        ignore_auth_error_abort: bool = False,
    ) -> None:
        self._entries = [_Entry(server) for server in servers]
        self._out: list[_Entry] = []
        self._refused: dict[Server, AuthenticationError] = {}
        self._given = {entry.server: entry.server for entry in self._entries}
        self._seen = set(self._given)
        self._current: Server | None = None
        self._randomize = randomize
        self._max_reconnects = max_reconnects
        self._ignore_discovered = ignore_discovered
        self._ignore_refusals = ignore_auth_error_abort
        self._dice = dice
        self._left = len(self._entries)  # servers to try before the next pause
        self._pauses = 0
        self._brief = False
        if randomize:
            dice.shuffle(self._entries)

    @property
    def servers(self) -> list[Server]:
        """Those still in the pool, the next candidate first."""
        return [entry.server for entry in self._entries.copy()]

    @property
    def current(self) -> Server | None:
        """The server connected to."""
        return self._current

    @property
    def pause(self) -> Pause | None:
        """The wait due before the server at the front is tried; None: try it at once.

        As nats.go: one wait a round, after every other server has had its turn. The one
        difference: nats.go waits in full before it first returns to a single server.
        """
        return Pause(self._pauses + 1, self._brief) if self._left <= 0 else None

    @property
    def refused(self) -> dict[str, AuthenticationError]:
        """Servers that are out because they refused the credentials twice, by URL.

        nats.go closes the connection at the first of them.
        """
        return {server.url: error for server, error in self._refused.items()}

    def errors(self) -> dict[str, Exception]:
        """The last failure of each server by URL, of those out of the pool too."""
        entries = [*self._out, *self._entries]
        return {e.server.url: e.error for e in entries if e.error is not None}

    def select(self) -> Server | None:
        """The next candidate, the same one until it is reported on; None when all are out."""
        return self._entries[0].server if self._entries else None

    def candidates(self) -> list[PoolServer]:
        """Those in the pool as the user sees them, in the order of trying (ADR-40)."""
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
        """Put the server that the user chose to the front; the seconds to wait, if given.

        Raises `ConfigError`, and changes nothing, for anything but a `ServerChoice` among
        `candidates`, which are those of now.
        """
        pause: float | None = None
        if isinstance(choice, tuple) and len(choice) == 2:
            choice, wait = choice
            pause = seconds(wait, "the seconds of reconnect_to_server")
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

    def connected(self, server: Server) -> None:
        """The handshake with `server` is done: its failures are forgiven."""
        self._current = server
        for entry in self._entries:
            if entry.server == server:
                entry.attempts, entry.error, entry.refusal = 0, None, None

    def failed(self, server: Server, error: Exception) -> None:
        """An attempt at `server` came to nothing."""
        self._take_turn()
        self._current = None
        self._retire(server, error, attempts=1)

    def _take_turn(self) -> None:
        """Count a server as tried: when all have been, a pause is due."""
        if self._left > 0:
            self._left -= 1
        else:
            self._pauses += 1
            self._left = len(self._entries) - 1
        self._brief = False

    def lost(self, error: Exception | None = None, *, again: bool = False) -> None:
        """The connection to the current server broke; a reconnect begins.

        `again`: soon after the last loss. The round goes on, as if an attempt had failed.
        """
        if self._current is None:
            return
        server, self._current = self._current, None
        if again:
            self._take_turn()
        else:
            others = sum(entry.server != server for entry in self._entries)
            self._left, self._pauses = others, 0
            self._brief = self._left == 0
        self._retire(server, error, attempts=0)

    def _retire(self, server: Server, error: Exception | None, attempts: int) -> None:
        entry = next((e for e in self._entries if e.server == server), None)
        if entry is None:
            return
        self._entries.remove(entry)
        entry.attempts += attempts
        entry.error = error or entry.error
        self._note_refusal(entry, error)
        exhausted = 0 <= self._max_reconnects <= entry.attempts
        out = exhausted or server in self._refused
        (self._out if out else self._entries).append(entry)

    def _note_refusal(self, entry: _Entry, error: Exception | None) -> None:
        # An AuthenticationError with a cause is from this process: an unreadable creds
        # file, or a callable that raised. The next attempt may succeed. Other failures
        # in between do not count.
        if not isinstance(error, AuthenticationError) or error.__cause__ is not None:
            return
        if self._ignore_refusals or str(error) in _TRANSIENT:
            return
        if entry.refusal == str(error):
            self._refused[entry.server] = error
        entry.refusal = str(error)

    def replace(self, servers: Iterable[Server]) -> None:
        """Take these servers in place of all others, and try each at once.

        The connection stays. Its server is the front if it is one of them, and otherwise
        out once it is lost.
        """
        self._entries = [_Entry(server) for server in servers]
        if self._randomize:
            self._dice.shuffle(self._entries)
        self._entries.sort(key=lambda entry: entry.server != self._current)
        self._given = {entry.server: entry.server for entry in self._entries}
        self._seen = set(self._given)
        self._out, self._refused = [], {}
        self._left, self._pauses, self._brief = len(self._entries), 0, False

    def discover(
        self, urls: Sequence[str], source: Server | None = None
    ) -> list[Server]:
        """Merge the `connect_urls` of an INFO; return the servers never seen before.

        Discovered servers that are announced no longer are dropped, yours and the current
        one stay, and an empty list changes nothing (as nats.go). New ones take scheme,
        path and userinfo from `source`, by default the current server, and a bare IP
        address is verified against the name of `source`.
        """
        source = source or self._current or self.select()
        if not urls or self._ignore_discovered or source is None:
            return []
        if any(given.websocket != source.websocket for given in self._given):
            return []  # you have set servers of the other kind, and not left this one yet
        announced = _parse_announced(urls, source)
        self._entries = [
            e
            for e in self._entries
            if not e.server.discovered or e.server in (*announced, source)
        ]
        present = set(self.servers)
        added = [self._given.get(s, s) for s in announced if s not in present]
        self._out = [e for e in self._out if e.server not in added]
        self._entries += [_Entry(server) for server in added]
        for server in added:
            self._refused.pop(server, None)
        self._left = min(self._left + len(added), len(self._entries))
        new = [server for server in added if server not in self._seen]
        self._seen.update(new)
        if new and self._randomize:
            rest = self._entries[1:]
            self._dice.shuffle(rest)
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


def _parse_announced(urls: Iterable[str], source: Server) -> list[Server]:
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
    """How long a `Pause` is, in seconds."""

    dice: Dice = field(repr=False)
    reconnect_wait: float = 2.0
    reconnect_jitter: float = 0.1
    reconnect_jitter_tls: float = 1.0
    reconnect_delay: Callable[[int], float] | None = None
    """Your own rule, given `Pause.number`. It is user code: it may raise, or take long."""

    def delay(self, pause: Pause | None, *, tls: bool) -> float:
        """Seconds to wait for `pause`; what `reconnect_delay` raises goes through."""
        if pause is None:
            return 0.0
        if self.reconnect_delay is None:
            return self.default_delay(pause, tls=tls)
        seconds = float(self.reconnect_delay(pause.number))
        if not math.isfinite(seconds):
            return self.default_delay(pause, tls=tls)
        return max(0.0, seconds)

    def default_delay(self, pause: Pause, *, tls: bool) -> float:
        """The same without `reconnect_delay`, for when that has failed."""
        jitter = self.reconnect_jitter_tls if tls else self.reconnect_jitter
        return self.dice.random() * jitter + (0 if pause.brief else self.reconnect_wait)
