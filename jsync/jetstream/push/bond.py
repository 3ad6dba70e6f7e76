"""The consumer that a subscription may have been given: whose it is, and its deletion."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ...errors import ConsumerNotFoundError, StreamNotFoundError
from .engine import BONDS, Bond

if TYPE_CHECKING:
    from collections.abc import Callable


class OwnConsumer:
    """What a subscription has to do with its consumer; turned under its `lock`."""

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self._lock = lock or threading.RLock()
        self.bond = Bond.NONE

    def turn(self, bond: Bond) -> bool:
        """Go on to `bond`, if that is a legal move now; whether it was."""
        with self._lock:
            if bond not in BONDS[self.bond]:
                return False
            self.bond = bond
            return True

    def delete(self, delete: Callable[[], object]) -> None:
        """Delete it if it goes with its subscription: once, whoever else asks for it.

        One that is gone already is no error.
        """
        if not self.turn(Bond.DELETING):
            return
        try:
            delete()
        except (ConsumerNotFoundError, StreamNotFoundError):
            self.turn(Bond.NONE)
        except BaseException:
            self.turn(Bond.OURS)  # it may be tried again
            raise
        else:
            self.turn(Bond.NONE)

    def __repr__(self) -> str:
        return f"<OwnConsumer: {self.bond.value}>"
