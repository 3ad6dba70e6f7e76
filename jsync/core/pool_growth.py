"""When a callback pool starts another thread, and when it reports that it has too few. Pure."""

from __future__ import annotations

from dataclasses import dataclass

GROW_SECONDS = 0.001
"""Seconds without any progress after which another thread is started."""
LATE_SECONDS = 0.01
"""Seconds that a mailbox may wait, despite progress, until another thread is started."""
REPORT_SECONDS = 1.0
"""Seconds that a mailbox may wait for a full pool until that is reported."""


@dataclass(frozen=True, slots=True)
class GrowthDecision:
    """The decision for now, and the seconds until the next one. None: once one waits again."""

    starts: int | None = None
    """The number of the thread to start, which is counted already."""
    reports: bool = False
    again: float | None = None


class PoolGrowth:
    """Counts the threads of a pool, and decides about more. Its owner has a lock.

    `max_threads` is the bound. The caller passes in the time.
    """

    def __init__(self, max_threads: int) -> None:
        self.max_threads = max_threads
        self.threads: set[int] = set()
        """The numbers of running threads, and of those that are being started."""
        self.hurries = False
        """True if each waiting mailbox gets a thread immediately, below the bound."""
        self._last = 0
        self._starting: int | None = None
        """The thread that was started last, until it runs."""
        self._taken = -1
        self._reported = False

    def decide(
        self, now: float, waiting: int, since: float, taken: int
    ) -> GrowthDecision:
        """Decide, while `waiting` mailboxes wait, the first of them `since` then.

        `taken` counts the mailboxes that threads have taken so far.
        """
        moves, self._taken = taken != self._taken, taken
        if not waiting:
            self._reported = False
            return GrowthDecision()
        waited = now - since
        if len(self.threads) >= self.max_threads:
            if waited < REPORT_SECONDS:
                return GrowthDecision(again=REPORT_SECONDS - waited)
            reports, self._reported = not self._reported, True
            return GrowthDecision(reports=reports, again=REPORT_SECONDS)
        enough = LATE_SECONDS if moves else GROW_SECONDS
        # On a busy machine or hub, a new thread may run much later than it was started.
        grows = self._starting is None and waited >= enough
        starts = not self.threads or self.hurries or grows
        return GrowthDecision(
            starts=self._add() if starts else None, again=GROW_SECONDS
        )

    def _add(self) -> int:
        self._last += 1
        self.threads.add(self._last)
        self._starting = self._last
        return self._last

    def started(self, number: int) -> None:
        """Note that a thread runs."""
        self.threads.add(number)
        if self._starting == number:
            self._starting = None

    def ended(self, number: int) -> None:
        """Note that a thread ends, or that it could not be started."""
        self.threads.discard(number)
        if self._starting == number:
            self._starting = None

    def __repr__(self) -> str:
        return f"<PoolGrowth {len(self.threads)} of {self.max_threads}>"
