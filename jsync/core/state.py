"""State machines: one state of an enum, which changes only by a table. Pure."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

StateT = TypeVar("StateT")


class StateMachine(Generic[StateT]):
    """The current state of an object, and the changes that are allowed.

    `transitions` has the next states of each state. With a `lock`, any thread may change the
    state. Without one, a single thread changes it, or the lock of its owner guards it.
    """

    def __init__(
        self,
        start: StateT,
        transitions: Mapping[StateT, Collection[StateT]],
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self.current = start
        self._transitions = transitions
        self._lock = nullcontext() if lock is None else lock

    def try_to(self, state: StateT) -> bool:
        """Change to `state` if the table allows it. Returns whether it does."""
        with self._lock:
            if state in self._transitions[self.current]:
                self.current = state
                return True
            return False

    def to(self, state: StateT) -> None:
        """Change to `state`. Raises `RuntimeError` if the table does not allow it."""
        with self._lock:
            if state not in self._transitions[self.current]:
                raise RuntimeError(f"no transition from {self.current} to {state}")
            self.current = state

    def __repr__(self) -> str:
        return f"<StateMachine: {self.current}>"
