"""An event that happens once, and that any number of threads may wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._fast import Waiter
from .shared import RLock

if TYPE_CHECKING:
    from .._fast import Outbox


class Gate:
    """A gate that is closed at first, and stays open once it is opened.

    It replaces `threading.Event`, because Ctrl-C can leave the lock of an `Event` held, and
    its wait does not see a signal that another thread got.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        # Re-entrant: a signal handler or a finaliser may open the gate at any time.
        self._lock = RLock()
        self._open = False
        self._waiting: set[Waiter] = set()

    @property
    def is_open(self) -> bool:
        return self._open

    def open(self) -> None:
        """Wake all waiting threads, and let later waits return immediately."""
        with self._lock:
            self._open = True
            waiting = list(self._waiting)
        for waiter in waiting:
            waiter.set(None)

    def wait(self, timeout: float | None) -> bool:
        """Block until the gate is open, at most `timeout` seconds.

        Return whether it is open.
        """
        waiter = Waiter(self._outbox, local=True)
        try:
            # With the lock, `open` either sees the waiter or has opened the gate before.
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
