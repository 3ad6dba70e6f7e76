"""One connection in each process, for all connections and channels of kombu."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

import jsync
from jsync import errors

from .acks import AckExtender, DeliveryTracker
from .bindings import Bindings
from .queues import Queues
from .transient import TransientQueues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .options import BrokerAddress, Options


log = logging.getLogger("jsync.kombu")

UNAVAILABLE = (
    errors.NoStreamResponseError,
    errors.NoRespondersError,
    errors.JetStreamUnavailableError,
    errors.JetStreamNotEnabledError,
    errors.AccountResourcesExceededError,
    errors.InsufficientResourcesError,
    errors.TooManyRequestsError,
    errors.OperationFailedError,
)
"""Temporary errors of servers: an election, a full disk, a server that is starting."""

TRANSIENT = (
    errors.ConnectionError,
    errors.TimeoutError,
    errors.BucketNotFoundError,
    *UNAVAILABLE,
)
"""Errors after which another attempt may succeed."""


class BrokerSettings(NamedTuple):
    """The settings that identify a shared broker and its connection."""

    place: BrokerAddress
    options: Options
    more: Mapping[str, Any]
    """Options of `jsync.connect`, from the URL and from the options of kombu itself."""


class PooledConnection:
    """A connection to the servers of a `BrokerAddress`."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.users = 0
        self.nc = jsync.connect(
            list(settings.place.servers),
            **{
                "name": f"kombu-{os.getpid()}",
                **settings.more,
                **settings.options.connect,
            },
        )

    def serves(self, settings: BrokerSettings) -> bool:
        """Return whether the connection is open and fits these settings."""
        return not self.nc.is_closed and _same_connection(self.settings, settings)


def _same_connection(one: BrokerSettings, other: BrokerSettings) -> bool:
    return (
        one.place.servers == other.place.servers
        and one.more == other.more
        and one.options.connect == other.options.connect
    )


class Broker:
    """The state of a broker that all of this process shares, with its connection."""

    def __init__(self, settings: BrokerSettings, line: PooledConnection) -> None:
        place, options, _ = settings
        self.settings = settings
        self.line = line
        self.users = 0
        self.nc = line.nc
        self.js = self.nc.jetstream(**{"timeout": options.timeout, **options.jetstream})
        self.bindings = Bindings(self.nc, self.js, place.name, options)
        self.queues = Queues(self.js, place.name, options, self.bindings)
        self.transient = TransientQueues(self.nc, place.name)
        self.tracker = DeliveryTracker(self.nc)
        self.extender = AckExtender(self.nc, self.tracker, options.timeout)
        line.users += 1

    def close(self) -> None:
        """Close once the acks have arrived, or after `timeout` seconds."""
        self.extender.stop()
        try:
            self.tracker.confirm(self.settings.options.timeout)
        except errors.Error as error:
            log.warning("acks may be lost, and their tasks run again: %s", error)
        self.bindings.close()
        self.transient.close()


_lock = threading.Lock()
_open: list[Broker] = []
_connecting: list[tuple[BrokerSettings, Future[None]]] = []
"""Attempts to connect. Threads that want the same connection share one attempt."""


def _forget() -> None:
    """Forget the connections in a forked child, since they belong to the parent."""
    global _lock, _open, _connecting
    _lock, _open, _connecting = threading.Lock(), [], []


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget)


def acquire(settings: BrokerSettings) -> Broker:
    """Get the shared state for these settings. The first call connects."""
    while True:
        with _lock:
            for shared in _open:
                if shared.settings == settings and not shared.nc.is_closed:
                    shared.users += 1
                    return shared
            lines = [shared.line for shared in _open if shared.line.serves(settings)]
            if lines:
                return _add(settings, lines[0])
            other = next(
                (
                    a
                    for pending, a in _connecting
                    if _same_connection(pending, settings)
                ),
                None,
            )
            mine: Future[None] = Future()
            if other is None:
                _connecting.append((settings, mine))
        if other is None:
            return _connect(settings, mine)
        other.result()  # raises as it does in the thread that connects


def _connect(settings: BrokerSettings, attempt: Future[None]) -> Broker:
    try:
        line = PooledConnection(settings)
        with _lock:
            shared = _add(settings, line)
    except BaseException as error:
        _end(attempt)
        if isinstance(error, Exception):
            attempt.set_exception(error)
        else:  # Ctrl-C on this thread: another thread connects instead
            attempt.set_result(None)
        raise
    _end(attempt)
    attempt.set_result(None)
    return shared


def _end(attempt: Future[None]) -> None:
    with _lock:
        _connecting[:] = [entry for entry in _connecting if entry[1] is not attempt]


def _add(settings: BrokerSettings, line: PooledConnection) -> Broker:
    try:
        shared = Broker(settings, line)
    except BaseException:
        if not line.users:
            line.nc.close()
        raise
    shared.users = 1
    _open.append(shared)
    return shared


def release(shared: Broker) -> None:
    """Release the shared state. The last user of a connection closes it, after the acks."""
    with _lock:
        if shared not in _open:
            return  # this is a forked child
        shared.users -= 1
        if shared.users:
            return
        _open.remove(shared)
        shared.line.users -= 1
        last = not shared.line.users
    try:
        shared.close()
    finally:
        if last:
            shared.nc.close()
