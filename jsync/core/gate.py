"""Something that happens once and that any number of threads may wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._fast import Waiter
from .shared import RLock

if TYPE_CHECKING:
    from .._fast import Outbox


class Gate:
    """Closed until it is opened for good.

    In place of `threading.Event`, whose lock Ctrl-C can leave held, and whose wait does
    not see a signal that another thread got.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        # Re-entrant: a signal handler or a finaliser may open it in the middle.
        self._lock = RLock()
        self._open = False
        self._waiting: set[Waiter] = set()

    @property
    def is_open(self) -> bool:
        return self._open

    def open(self) -> None:
        """Let everybody through, now and later."""
        with self._lock:
            self._open = True
            waiting = list(self._waiting)
        for waiter in waiting:
            waiter.set(None)

    def wait(self, timeout: float | None) -> bool:
        """Block until it is open, at most `timeout` seconds; whether it is."""
        waiter = Waiter(self._outbox, local=True)
        try:
            # Whoever opens it sees the waiter, or has opened it before.
            with self._lock:
                if self._open:
                    return True
                self._waiting.add(waiter)
            return waiter.wait(timeout)
        finally:
            with self._lock:
                self._waiting.discard(waiter)

    def __repr__(self) -> str:
        return f"<Gate {'open' if self._open else 'closed'}>"
