"""One connection in each process, for all connections and channels of kombu."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import jsync

from .bindings import Bindings
from .queues import Queues
from .transient import TransientQueues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .options import Options, Place


class Settings(NamedTuple):
    """What tells one shared connection from another."""

    place: Place
    options: Options
    more: Mapping[str, Any]
    """Options of `jsync.connect` that the URL and kombu's own options ask for."""


class Shared:
    """A connection, and what this process knows of the broker behind it."""

    def __init__(self, settings: Settings) -> None:
        place, options, more = settings
        self.settings = settings
        self.users = 0
        self.nc = jsync.connect(
            list(place.servers),
            **{"name": f"kombu-{os.getpid()}", **more, **options.connect},
        )
        try:
            js = self.nc.jetstream(**{"timeout": options.timeout, **options.jetstream})
        except BaseException:
            self.nc.close()
            raise
        self.js = js
        self.queues = Queues(js, place.name, options)
        self.bindings = Bindings(js, place.name, options)
        self.transient = TransientQueues(self.nc, place.name)

    def close(self) -> None:
        """Send what is buffered, acks for instance, and close."""
        self.bindings.close()
        self.transient.close()
        self.nc.close()


_lock = threading.Lock()
_open: list[Shared] = []


def _forget() -> None:
    """In a forked child: the connections are the parent's."""
    global _lock, _open
    _lock, _open = threading.Lock(), []


os.register_at_fork(after_in_child=_forget)


def acquire(settings: Settings) -> Shared:
    """Get the connection of this process for these settings. The first call connects."""
    with _lock:
        for shared in _open:
            if shared.settings == settings and not shared.nc.is_closed:
                shared.users += 1
                return shared
        shared = Shared(settings)
        shared.users = 1
        _open.append(shared)
        return shared


def release(shared: Shared) -> None:
    """Give it back. The last user closes the connection."""
    with _lock:
        if shared not in _open:
            return  # this is a forked child
        shared.users -= 1
        if shared.users:
            return
        _open.remove(shared)
    shared.close()
