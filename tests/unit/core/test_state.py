"""Tests of the state machine that objects with states share."""

from __future__ import annotations

import enum
import threading

import pytest

from jsync.core.state import StateMachine
from jsync.core.sync import ForkSafeRLock


class Door(enum.Enum):
    OPEN = "open"
    SHUT = "shut"
    GONE = "gone"


TRANSITIONS = {
    Door.OPEN: {Door.SHUT, Door.GONE},
    Door.SHUT: {Door.OPEN},
    Door.GONE: set[Door](),
}


def test_a_state_changes_by_the_table_alone() -> None:
    machine = StateMachine(Door.OPEN, TRANSITIONS)
    assert machine.try_to(Door.SHUT)
    assert machine.current is Door.SHUT
    assert not machine.try_to(Door.GONE)
    assert machine.current is Door.SHUT
    machine.to(Door.OPEN)
    with pytest.raises(RuntimeError, match=r"from Door\.OPEN to Door\.OPEN"):
        machine.to(Door.OPEN)
    assert repr(machine) == "<StateMachine: Door.OPEN>"


def test_the_lock_guards_a_change() -> None:
    lock = ForkSafeRLock()
    machine = StateMachine(Door.OPEN, TRANSITIONS, lock)
    changing = threading.Thread(target=machine.try_to, args=(Door.SHUT,))
    with lock:
        changing.start()
        changing.join(0.1)
        assert repr(machine) == "<StateMachine: Door.OPEN>"
    changing.join()
    assert machine.current is Door.SHUT
