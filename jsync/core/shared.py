"""Shared by any threads: locks, unique numbers, and objects while they exist."""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from typing import Generic, TypeVar

Part = TypeVar("Part")

if sys.version_info[:2] == (3, 14):
    import _thread

    class RLock(_thread.RLock):  # type: ignore[misc]
        """A re-entrant lock that Ctrl-C in a `with` statement does not leave locked.

        Python 3.14 handles signals between the acquisition and the beginning of the block,
        where no `finally` covers. Other versions do not.
        """

        def __enter__(self) -> bool:  # type: ignore[override]
            held: int = self._recursion_count()  # type: ignore[attr-defined]
            try:
                return self.acquire()
            except BaseException:
                if self._recursion_count() > held:  # type: ignore[attr-defined]
                    self.release()
                raise

else:
    RLock = threading.RLock


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
