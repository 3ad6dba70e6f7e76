"""Shared by any threads: locks, unique numbers, and objects while they exist."""

from __future__ import annotations

import _thread
import itertools
import os
import sys
import weakref
from typing import Generic, TypeVar

Part = TypeVar("Part")


class Living(Generic[Part]):
    """Objects that are referred to weakly: those that exist.

    In place of `weakref.WeakSet`, which before 3.14 may raise when an object is collected
    on another thread during an iteration.
    """

    def __init__(self) -> None:
        self._refs: set[weakref.ref[Part]] = set()

    def add(self, part: Part) -> None:
        """Note an object, until it is collected."""
        # The method of the set is one step, on whatever thread the object is collected.
        self._refs.add(weakref.ref(part, self._refs.discard))

    def all(self) -> list[Part]:
        """The objects that exist now."""
        parts = [ref() for ref in self._refs.copy()]
        return [part for part in parts if part is not None]

    def __repr__(self) -> str:
        return f"<Living, {len(self._refs)} objects>"


class RLock(_thread.RLock):  # type: ignore[misc]
    """A re-entrant lock that a forked child finds free, whoever held it at the fork.

    Ctrl-C in a `with` statement does not leave it locked.
    """

    def __init__(self) -> None:
        _locks.add(self)

    if sys.version_info[:2] == (3, 14):
        # This version handles signals between the acquisition and the beginning of the
        # block, where no `finally` covers. Other versions do not.
        def __enter__(self) -> bool:  # type: ignore[override]
            held: int = self._recursion_count()  # type: ignore[attr-defined]
            try:
                return self.acquire()
            except BaseException:
                if self._recursion_count() > held:  # type: ignore[attr-defined]
                    self.release()
                raise


_locks: Living[RLock] = Living()


def _free_locks() -> None:
    """In a forked child, which has no other thread of its parent."""
    for lock in _locks.all():
        if not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_free_locks)


class Numbers:
    """Unique numbers, from 1 on."""

    def __init__(self) -> None:
        # Re-entrant: a signal handler may ask in the middle.
        self._lock = RLock()
        self._count = itertools.count(1)

    def next(self) -> int:
        """A number that no other call gets."""
        # Before 3.14 two threads without a GIL may get the same number of a count. A signal
        # handler has no place within its `next`.
        with self._lock:
            return next(self._count)

    def __repr__(self) -> str:
        return f"<Numbers, next {self._count!r}>"
