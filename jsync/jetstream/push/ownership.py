"""The consumer that a subscription may have been given: whose it is, and its deletion."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ...errors import ConsumerNotFoundError, StreamNotFoundError
from .engine import OWNERSHIP_MOVES, Ownership

if TYPE_CHECKING:
    from collections.abc import Callable


class OwnConsumer:
    """What a subscription has to do with its consumer; turned under its `lock`."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self._lock = lock or threading.RLock()
        self.ownership = Ownership.NONE

    def turn(self, ownership: Ownership) -> bool:
        """Go on to `ownership`, if that is a legal move now; whether it was."""
        with self._lock:
            if ownership not in OWNERSHIP_MOVES[self.ownership]:
                return False
            self.ownership = ownership
            return True

    def delete(self, delete: Callable[[], object]) -> None:
        """Delete it if it goes with its subscription: once, whoever else asks for it.

        One that is gone already is no error.
        """
        if not self.turn(Ownership.DELETING):
            return
        try:
            delete()
        except (ConsumerNotFoundError, StreamNotFoundError):
            self.turn(Ownership.NONE)
        except BaseException:
            self.turn(Ownership.OURS)  # deleting may be tried again
            raise
        else:
            self.turn(Ownership.NONE)

    def __repr__(self) -> str:
        return f"<OwnConsumer: {self.ownership.value}>"
