"""Typed events of a connection, and the iterator that returns them."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

import msgspec

from .. import errors
from .._fast import HandoffQueue
from ..errors import ConnectionClosedError
from ..validation import MAX_SECONDS, check_seconds, format_seconds
from .resources import CloseOnExit
from .sync import ForkSafeRLock

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ..validation import Seconds

MAX_EVENTS = 10_000
"""The most events that are buffered for a slow reader."""


class ConnectionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a connection. `Connection.events` gives them.

    Example:
        ```python
        with nc.events() as events:
            nc.force_reconnect()
            print(events.next())
        ```
    """


class Connected(ConnectionEvent, frozen=True, kw_only=True):
    """The first connection is made. You see it with `retry_on_failed_connect`.

    Example:
        ```python
        def report(event: jsync.ConnectionEvent) -> None:
            if isinstance(event, jsync.Connected):
                print("connected to", event.url)
        ```
    """

    url: str
    """The server, without secrets."""


class Disconnected(ConnectionEvent, frozen=True, kw_only=True):
    """The connection is lost. jsync reconnects.

    Example:
        ```python
        with nc.events() as events:
            nc.force_reconnect()
            if isinstance(event := events.next(), jsync.Disconnected):
                print("lost:", event)
        ```
    """

    error: Exception
    """The cause."""


class Reconnected(ConnectionEvent, frozen=True, kw_only=True):
    """The connection is made again, and your subscriptions are restored.

    Example:
        ```python
        with nc.events() as events:
            nc.force_reconnect()
            while not isinstance(events.next(), jsync.Reconnected):
                pass
        ```
    """

    url: str
    """The server, without secrets."""


class LameDuck(ConnectionEvent, frozen=True, kw_only=True):
    """The server will shut down. jsync moves to another server if it knows one.

    Example:
        ```python
        def report(event: jsync.ConnectionEvent) -> None:
            if isinstance(event, jsync.LameDuck):
                print("the server is about to stop")
        ```
    """

    url: str
    """The server, without secrets."""


class ServersDiscovered(ConnectionEvent, frozen=True, kw_only=True):
    """The cluster announced servers that the connection had not known.

    Example:
        ```python
        def report(event: jsync.ConnectionEvent) -> None:
            if isinstance(event, jsync.ServersDiscovered):
                print("servers of the cluster:", event)
        ```
    """

    servers: list[str]
    """Their URLs, without secrets."""


class BackgroundError(ConnectionEvent, frozen=True, kw_only=True):
    """An error that no call could raise. `on_error` gets the same.

    Example:
        ```python
        def report(event: jsync.ConnectionEvent) -> None:
            if isinstance(event, jsync.BackgroundError):
                print("in the background:", event.error)
        ```
    """

    error: Exception
    """A `SlowConsumerError`, an error of the server, or an exception of a callback."""


class Closed(ConnectionEvent, frozen=True, kw_only=True):
    """The connection is closed. No event follows.

    Example:
        ```python
        def report(event: jsync.ConnectionEvent) -> None:
            if isinstance(event, jsync.Closed):
                print("the connection is closed")
        ```
    """

    error: Exception | None
    """The cause. None if you closed it."""


class EventsDropped(ConnectionEvent, frozen=True, kw_only=True):
    """You read too slowly, and jsync dropped events here.

    Example:
        ```python
        def report(event: jsync.ConnectionEvent) -> None:
            if isinstance(event, jsync.EventsDropped):
                print(event.count, "events were dropped")
        ```
    """

    count: int
    """The number of dropped events."""


class ConnectionEvents(CloseOnExit):
    """The events of a connection, in their order. `Connection.events` returns it.

    Iterate over it, or call `next`. Iterating blocks until the next event and ends after
    `Closed`. At most 10,000 events wait for you. `EventsDropped` counts the
    events that were dropped after that.

    Example:
        ```python
        with nc.events() as events:
            nc.force_reconnect()
            event = events.next(timeout=5)
            print(type(event).__name__)
        ```
    """

    def __init__(self, owner: object, check_process: Callable[[], object]) -> None:
        self._owner: object | None = owner  # keeps the open connection alive
        self._check_process = check_process
        self._queue: HandoffQueue[ConnectionEvent | None] = HandoffQueue()
        # Re-entrant: a finaliser may interrupt `_put` and report an error.
        self._lock = ForkSafeRLock()
        self._dropped = 0
        self._ended = False

    def _put(self, event: ConnectionEvent) -> None:
        """Add an event, from any thread. Never blocks."""
        if self._ended:
            return
        last = isinstance(event, Closed)
        with self._lock:
            if not last and len(self._queue) >= MAX_EVENTS:
                self._dropped += 1
                return
            if self._dropped:
                self._queue.put(EventsDropped(count=self._dropped))
                self._dropped = 0
            self._queue.put(event)

    def next(self, timeout: Seconds | None = None) -> ConnectionEvent:
        """Block until the next event.

        Args:
            timeout: Seconds to wait. Default: no limit.

        Returns:
            The event.

        Raises:
            TimeoutError: Nothing happened in time.
            ConnectionClosedError: `Closed` was the last event, or you called `close`.
        """
        wait = MAX_SECONDS
        if timeout is not None:
            wait = min(max(0.0, check_seconds(timeout, "timeout")), wait)
        self._check_process()
        if self._ended:
            raise ConnectionClosedError("no event follows: the connection is closed")
        try:
            event = self._queue.get(wait)
        except queue.Empty:
            raise errors.TimeoutError(
                f"no event within {format_seconds(wait)}"
            ) from None
        if event is None:
            self._ended = True
            self._queue.put(None)  # wakes another waiting thread
            raise ConnectionClosedError("the events are closed")
        if isinstance(event, Closed):
            self._end()
        return event

    def close(self) -> None:
        """End the iteration, also of a thread that waits. You may call it twice."""
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._owner = None
        self._queue.put(None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConnectionEvent:
        try:
            return self.next()
        except ConnectionClosedError:
            raise StopIteration from None

    def __repr__(self) -> str:
        state = "ended" if self._ended else f"{len(self._queue)} waiting"
        return f"<ConnectionEvents {state}>"
