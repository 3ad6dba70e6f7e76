"""Objects to share between threads: locks, latches, counters, and weak collections."""

from __future__ import annotations

import _thread
import itertools
import os
import sys
import weakref
from typing import TYPE_CHECKING, Generic, TypeVar

from .._fast import Waiter

if TYPE_CHECKING:
    from .._fast import WriteBuffer

Part = TypeVar("Part")


class WeakCollection(Generic[Part]):
    """A set of weakly referenced objects.

    It replaces `weakref.WeakSet`, which may raise before Python 3.14 if an object is
    collected on another thread during an iteration.
    """

    def __init__(self) -> None:
        self._refs: set[weakref.ref[Part]] = set()

    def add(self, part: Part) -> None:
        """Add an object, until it is collected."""
        # `set.discard` is atomic, so any thread may collect the object.
        self._refs.add(weakref.ref(part, self._refs.discard))

    def all(self) -> list[Part]:
        """Return the objects that exist now."""
        parts = [ref() for ref in self._refs.copy()]
        return [part for part in parts if part is not None]

    def __repr__(self) -> str:
        return f"<WeakCollection, {len(self._refs)} objects>"


class ForkSafeRLock(_thread.RLock):  # type: ignore[misc]
    """A re-entrant lock that a fork frees in the child if another thread held it.

    Ctrl-C in a `with` statement does not leave it locked.
    """

    def __init__(self) -> None:
        _locks.add(weakref.ref(self, _locks.discard))

    if sys.version_info[:2] == (3, 14):
        # Only Python 3.14 handles signals between the acquisition and the start of the
        # block, where no `finally` helps.
        def __enter__(self) -> bool:  # type: ignore[override]
            held: int = self._recursion_count()  # type: ignore[attr-defined]
            try:
                return self.acquire()
            except BaseException:
                if self._recursion_count() > held:  # type: ignore[attr-defined]
                    self.release()
                raise


_locks: set[weakref.ref[ForkSafeRLock]] = set()


def _free_locks() -> None:
    """Free the locks of other threads, none of which exists in a forked child."""
    for ref in _locks.copy():
        lock = ref()
        if lock is not None and not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_free_locks)


class AtomicCounter:
    """Unique numbers, from 1 on."""

    def __init__(self) -> None:
        # Re-entrant: a signal handler may call `next` at any time.
        self._lock = ForkSafeRLock()
        self._count = itertools.count(1)

    def next(self) -> int:
        """Return a number that no other call gets."""
        # Before 3.14, two threads without a GIL may get the same number of a count. A
        # signal handler cannot interrupt the `next` of the count.
        with self._lock:
            return next(self._count)

    def __repr__(self) -> str:
        return f"<AtomicCounter, next {self._count!r}>"


class Latch:
    """A one-shot event, which any number of threads may wait for.

    It replaces `threading.Event`, because Ctrl-C can leave the lock of an `Event` held, and
    its wait does not see a signal that another thread got.
    """

    def __init__(self, write_buffer: WriteBuffer) -> None:
        self._write_buffer = write_buffer
        # Re-entrant: a signal handler or a finaliser may set the latch at any time.
        self._lock = ForkSafeRLock()
        self._is_set = False
        self._waiting: set[Waiter] = set()

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Wake all waiting threads, and let later waits return immediately."""
        with self._lock:
            self._is_set = True
            waiting = list(self._waiting)
        for waiter in waiting:
            waiter.set(None)

    def wait(self, timeout: float | None, waiter: Waiter | None = None) -> bool:
        """Block until the latch is set, at most `timeout` seconds.

        Return whether it is set, or the `waiter` was set by its owner.
        """
        if waiter is None:
            waiter = Waiter(self._write_buffer, local=True)
        try:
            # With the lock, `set` either sees the waiter or has set the latch before.
            with self._lock:
                if self._is_set:
                    return True
                self._waiting.add(waiter)
            return waiter.wait(timeout)
        finally:
            with self._lock:
                self._waiting.discard(waiter)

    def __repr__(self) -> str:
        return f"<Latch {'set' if self._is_set else 'not set'}>"
