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


class Line:
    """A connection to the servers of a place."""

    def __init__(self, settings: Settings) -> None:
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

    def serves(self, settings: Settings) -> bool:
        """Whether it is what such settings would connect."""
        mine = self.settings
        return (
            not self.nc.is_closed
            and mine.place.servers == settings.place.servers
            and mine.more == settings.more
            and mine.options.connect == settings.options.connect
        )


class Shared:
    """What this process knows of a broker, and the connection to it."""

    def __init__(self, settings: Settings, line: Line) -> None:
        place, options, _ = settings
        self.settings = settings
        self.line = line
        self.users = 0
        self.nc = line.nc
        self.js = self.nc.jetstream(**{"timeout": options.timeout, **options.jetstream})
        self.queues = Queues(self.js, place.name, options)
        self.bindings = Bindings(self.js, place.name, options)
        self.transient = TransientQueues(self.nc, place.name)
        self.exchanges: dict[str, str] = {}
        """The types of the exchanges that this process has declared."""
        line.users += 1

    def close(self) -> None:
        """Forget the broker."""
        self.bindings.close()
        self.transient.close()


_lock = threading.Lock()
_open: list[Shared] = []


def _forget() -> None:
    """In a forked child: the connections are the parent's."""
    global _lock, _open
    _lock, _open = threading.Lock(), []


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget)


def acquire(settings: Settings) -> Shared:
    """Get what this process has for these settings. The first call connects."""
    with _lock:
        for shared in _open:
            if shared.settings == settings and not shared.nc.is_closed:
                shared.users += 1
                return shared
        lines = [shared.line for shared in _open if shared.line.serves(settings)]
        line = lines[0] if lines else Line(settings)
        try:
            shared = Shared(settings, line)
        except BaseException:
            if not line.users:
                line.nc.close()
            raise
        shared.users = 1
        _open.append(shared)
        return shared


def release(shared: Shared) -> None:
    """Give it back. The last user of a connection closes it, with its acks sent."""
    with _lock:
        if shared not in _open:
            return  # this is a forked child
        shared.users -= 1
        if shared.users:
            return
        _open.remove(shared)
        shared.line.users -= 1
        last = not shared.line.users
    shared.close()
    if last:
        shared.nc.close()
