"""Something that happens once and that any number of threads may wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._fast import Waiter

if TYPE_CHECKING:
    from .._fast import Outbox


class Gate:
    """Closed until it is opened for good.

    In place of `threading.Event`, whose lock Ctrl-C can leave held, and whose wait does
    not see a signal that another thread got.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._open = False
        self._waiting: set[Waiter] = set()

    @property
    def is_open(self) -> bool:
        return self._open

    def open(self) -> None:
        """Let everybody through, now and later."""
        self._open = True
        for waiter in list(self._waiting):
            waiter.set(None)

    def wait(self, timeout: float | None) -> bool:
        """Block until it is open, at most `timeout` seconds; whether it is."""
        waiter = Waiter(self._outbox, local=True)
        self._waiting.add(waiter)
        try:
            # The gate may have opened before the waiter was registered.
            return self._open or waiter.wait(timeout)
        finally:
            self._waiting.discard(waiter)

    def __repr__(self) -> str:
        return f"<Gate {'open' if self._open else 'closed'}>"
