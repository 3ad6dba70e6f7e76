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


class Phase(enum.Enum):
    """The phase of a process."""

    STARTING = enum.auto()
    READY = enum.auto()
    LEAVING = enum.auto()
    """The process was told to end."""
    GONE = enum.auto()


TRANSITIONS: Final = {
    Phase.STARTING: {Phase.READY, Phase.LEAVING, Phase.GONE},
    Phase.READY: {Phase.LEAVING, Phase.GONE},
    Phase.LEAVING: {Phase.GONE},
    Phase.GONE: set[Phase](),
}


class Crew:
    """The processes: `slots` places with one process each, or two during a replacement.

    The supervisor reports events, and carries out the answers. Processes are numbers.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.phases: dict[int, StateMachine[Phase]] = {}
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
        return len(self._in(Phase.READY))

    @property
    def is_over(self) -> bool:
        """True once the last process has ended after `leave`."""
        return self.leaving and not self.phases

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
        self.phases[process] = StateMachine(Phase.STARTING, TRANSITIONS)
        self._place[process] = place
        if self._due.pop(place, None) is None:
            self._successor = process  # replaces a process that is still running
        elif self._deaths[place]:
            self.restarts += 1

    def is_ready(self, process: int, now: float) -> int | None:
        """Record that a process is ready. Return the process that it replaces, if any."""
        if self.phases[process].current is not Phase.STARTING:
            return None
        self.phases[process].to(Phase.READY)
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
        return self.phases[process].try_to(Phase.LEAVING)

    def ended(self, process: int, code: int, now: float) -> None:
        """Record that a process is gone."""
        phase, since = self.phases.pop(process), self._ready_since.pop(process, now)
        was = phase.current
        phase.to(Phase.GONE)
        place = self._place.pop(process)
        if process == self._predecessor:
            self._predecessor = None
        if process == self._successor:
            self._successor = self._predecessor = None
            if was is not Phase.LEAVING:
                # The old process stays, and so do those after it.
                self._rolling.clear()
        elif was is Phase.STARTING:
            self._failed_start(code)
        if self.leaving:
            return
        pause = 0.0
        if was is not Phase.LEAVING:
            if now - since >= HEALTHY_SECONDS:
                self._deaths[place] = 0
            pause = min(
                MAX_BACKOFF, INITIAL_BACKOFF * 2.0 ** min(self._deaths[place], 20)
            )
            self._deaths[place] += 1
        at_work = (Phase.STARTING, Phase.READY)
        if not any(
            self._place[other] == place and phase.current in at_work
            for other, phase in self.phases.items()
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

    def leave(self) -> list[int]:
        """End all processes, and return those that have to be told."""
        self.leaving = True
        self._rolling.clear()
        return [process for process in self.phases if self.may_end(process)]

    def roll(self) -> None:
        """Replace each process by a new one, one after the other."""
        if not self.leaving:
            self._rolling = [*range(self.slots)]
            self._is_superseded = True

    def starting(self) -> list[int]:
        """Return the processes that are not ready yet, and have not been told to end."""
        return self._in(Phase.STARTING)

    def serving(self) -> list[int]:
        """Return the processes that are ready, and have not been told to end."""
        return self._in(Phase.READY)

    def _in(self, phase: Phase) -> list[int]:
        return [
            process
            for process, machine in self.phases.items()
            if machine.current is phase
        ]

    def superseded(self) -> list[int]:
        """Mark the processes that started before the last `roll` as leaving. Return them.

        They may have read the old code, and may hang in their start.
        """
        if not self._is_superseded:
            return []
        self._is_superseded = False
        found = self.starting()
        for process in found:
            self.phases[process].to(Phase.LEAVING)
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
                phase.current: process
                for process, phase in self.phases.items()
                if self._place[process] == place
            }
            if Phase.STARTING in here:
                return (
                    None  # it may have read the old code, so it is replaced once ready
                )
            self._rolling.pop(0)
            if Phase.READY in here:
                self._predecessor = here[Phase.READY]
                return place
        return None  # a process that is not running restarts anyway
