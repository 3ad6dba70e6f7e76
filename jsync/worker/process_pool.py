"""Decides which processes run, when they restart, and what a crash loop is. Pure."""

from __future__ import annotations

import enum
from typing import Final

from ..core.state import StateMachine

INITIAL_BACKOFF: Final = 0.1
MAX_BACKOFF: Final = 10.0
"""Seconds before a process restarts: the first time, and at most."""
HEALTHY_SECONDS: Final = 10.0
"""After this time as ready, earlier failures of a process no longer count."""
MAX_FAILED_STARTS: Final = 5
"""Processes in a row that ended before they were ready: a crash loop."""
START_SECONDS: Final = 300.0
"""Seconds after which a process that is still starting is replaced. Attempts that fail
because no server answers begin this time again."""
HEARTBEAT_SECONDS: Final = 60.0
"""Seconds without a sign of life after which a process that was ready is replaced."""
USAGE: Final = 2
"""The exit code of a process that cannot be started. A restart would not help."""


class ProcessState(enum.Enum):
    """The state of a process."""

    STARTING = enum.auto()
    READY = enum.auto()
    STOPPING = enum.auto()
    """The process was told to end."""
    ENDED = enum.auto()


TRANSITIONS: Final = {
    ProcessState.STARTING: {
        ProcessState.READY,
        ProcessState.STOPPING,
        ProcessState.ENDED,
    },
    ProcessState.READY: {ProcessState.STOPPING, ProcessState.ENDED},
    ProcessState.STOPPING: {ProcessState.ENDED},
    ProcessState.ENDED: set[ProcessState](),
}


class ProcessPool:
    """The processes: `slots` places with one process each, or two during a replacement.

    The supervisor reports events, and carries out the answers. Processes are numbers.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.states: dict[int, StateMachine[ProcessState]] = {}
        """The processes that are not gone."""
        self.restarts = 0
        self.leaving = False
        """True while all processes end."""
        self.fatal: str | None = None
        """The reason to end, if it is an error."""
        self._place: dict[int, int] = {}
        self._ready_since: dict[int, float] = {}
        self._deaths = [0] * slots
        self._due: dict[int, float] = dict.fromkeys(range(slots), 0.0)
        self._failed_starts = 0
        self._rolling: list[int] = []
        self._is_superseded = False
        """True if processes that are still starting may have read old code."""
        self._successor: int | None = None
        self._predecessor: int | None = None

    @property
    def ready(self) -> int:
        """The number of processes that handle messages."""
        return len(self._in(ProcessState.READY))

    @property
    def is_over(self) -> bool:
        """True once the last process has ended after `shut_down`."""
        return self.leaving and not self.states

    def due(self, now: float) -> list[int]:
        """Return the places that need a process now."""
        if self.leaving:
            return []
        return [place for place, at in self._due.items() if at <= now]

    def next_due(self) -> float | None:
        """Return the time at which the next process has to begin, or None."""
        return None if self.leaving else min(self._due.values(), default=None)

    def started(self, process: int, place: int) -> None:
        """Record that a process has begun."""
        self.states[process] = StateMachine(ProcessState.STARTING, TRANSITIONS)
        self._place[process] = place
        if self._due.pop(place, None) is None:
            self._successor = process  # replaces a process that is still running
        elif self._deaths[place]:
            self.restarts += 1

    def not_started(self, place: int, now: float) -> None:
        """Record that the system could not start a process, for example without memory.

        The other processes continue, and another attempt follows. Without other processes,
        the attempt counts for a crash loop.
        """
        if place in self._due:
            self._due[place] = now + self._backoff(place)
        else:  # it was to replace a process, which stays
            self._predecessor = None
            self._rolling.clear()
        if not self.states:
            self._failed_start(1)

    def _backoff(self, place: int) -> float:
        """Count a failure of a place, and return the seconds until its next process."""
        deaths = self._deaths[place]
        self._deaths[place] += 1
        return min(MAX_BACKOFF, INITIAL_BACKOFF * 2.0 ** min(deaths, 20))

    def is_ready(self, process: int, now: float) -> int | None:
        """Record that a process is ready. Return the process that it replaces, if any."""
        if self.states[process].current is not ProcessState.STARTING:
            return None
        self.states[process].to(ProcessState.READY)
        self._ready_since[process] = now
        self._failed_starts = 0
        if process != self._successor:
            return None
        self._successor = None
        self.restarts += 1
        old = self._predecessor
        return old if old is not None and self.may_end(old) else None

    def may_end(self, process: int) -> bool:
        """Mark a process as leaving, and return False if it was leaving before."""
        return self.states[process].try_to(ProcessState.STOPPING)

    def ended(self, process: int, code: int, now: float) -> None:
        """Record that a process is gone."""
        machine, since = self.states.pop(process), self._ready_since.pop(process, now)
        was = machine.current
        machine.to(ProcessState.ENDED)
        place = self._place.pop(process)
        if process == self._predecessor:
            self._predecessor = None
        if process == self._successor:
            self._successor = self._predecessor = None
            if was is not ProcessState.STOPPING:
                # The old process stays, and so do those after it.
                self._rolling.clear()
        elif was is ProcessState.STARTING:
            self._failed_start(code)
        if self.leaving:
            return
        pause = 0.0
        if was is not ProcessState.STOPPING:
            if now - since >= HEALTHY_SECONDS:
                self._deaths[place] = 0
            pause = self._backoff(place)
        at_work = (ProcessState.STARTING, ProcessState.READY)
        if not any(
            self._place[other] == place and machine.current in at_work
            for other, machine in self.states.items()
        ):
            self._due[place] = now + pause

    def _failed_start(self, code: int) -> None:
        self._failed_starts += 1
        if code == USAGE:
            self.fatal = "a process rejected its configuration; its message is above"
        elif self._failed_starts >= MAX_FAILED_STARTS:
            self.fatal = (
                f"a crash loop: {self._failed_starts} processes in a row ended before they "
                "were ready"
            )

    def shut_down(self) -> list[int]:
        """End all processes, and return those that have to be told."""
        self.leaving = True
        self._rolling.clear()
        return [process for process in self.states if self.may_end(process)]

    def rolling_restart(self) -> None:
        """Replace each process by a new one, one after the other."""
        if not self.leaving:
            self._rolling = [*range(self.slots)]
            self._is_superseded = True

    def starting(self) -> list[int]:
        """Return the processes that are not ready yet, and have not been told to end."""
        return self._in(ProcessState.STARTING)

    def serving(self) -> list[int]:
        """Return the processes that are ready, and have not been told to end."""
        return self._in(ProcessState.READY)

    def _in(self, state: ProcessState) -> list[int]:
        return [
            process
            for process, machine in self.states.items()
            if machine.current is state
        ]

    def superseded(self) -> list[int]:
        """Mark the processes that started before the last `rolling_restart` as stopping. Return them.

        They may have read the old code, and may hang in their start.
        """
        if not self._is_superseded:
            return []
        self._is_superseded = False
        found = self.starting()
        for process in found:
            self.states[process].to(ProcessState.STOPPING)
            if process != self._successor:
                self._rolling.remove(self._place[process])  # it restarts with new code
        return found

    def to_replace(self) -> int | None:
        """Return the place where a new process has to replace the old one now, or None."""
        if self._successor is not None or self._predecessor is not None:
            return None
        while self._rolling:
            place = self._rolling[0]
            here = {
                machine.current: process
                for process, machine in self.states.items()
                if self._place[process] == place
            }
            if ProcessState.STARTING in here:
                return (
                    None  # it may have read the old code, so it is replaced once ready
                )
            self._rolling.pop(0)
            if ProcessState.READY in here:
                self._predecessor = here[ProcessState.READY]
                return place
        return None  # a process that is not running restarts anyway
