"""Calls that the I/O thread makes when they are due."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .sync import ForkSafeRLock

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_CALLS_PER_READ = 64
"""The most calls of `call_soon` that the I/O thread makes before it reads again.

Without a GIL, other threads can add calls faster than the I/O thread makes them.
"""


@dataclass(order=True, slots=True)
class Timer:
    """A scheduled call. Any thread may `cancel` it."""

    when: float
    number: int
    call: Callable[[], object] | None = field(compare=False)

    def cancel(self) -> None:
        self.call = None


class Timers:
    """The scheduled calls, the next one first. The caller passes in the time."""

    def __init__(self) -> None:
        self._lock = ForkSafeRLock()
        self._heap: list[Timer] = []
        self._calls_soon: deque[Callable[[], object]] = deque()
        self._numbers = itertools.count()

    def add(self, when: float, call: Callable[[], object]) -> Timer:
        """Schedule `call` for `when`. It must neither block nor raise."""
        with self._lock:
            timer = Timer(when, next(self._numbers), call)
            heapq.heappush(self._heap, timer)
        return timer

    def call_soon(self, call: Callable[[], object]) -> None:
        """Schedule `call` as soon as possible. Takes no lock, so finalisers may use it."""
        self._calls_soon.append(call)

    @property
    def next(self) -> float:
        """The time at which the next call is due, infinity if there is none."""
        if self._calls_soon:
            return 0.0
        with self._lock:
            while self._heap and self._heap[0].call is None:
                heapq.heappop(self._heap)
            return self._heap[0].when if self._heap else float("inf")

    def due(self, now: float) -> list[Callable[[], object]]:
        """Remove and return the due calls, at most `MAX_CALLS_PER_READ` of `call_soon`."""
        calls: list[Callable[[], object]] = []
        while self._calls_soon and len(calls) < MAX_CALLS_PER_READ:
            calls.append(self._calls_soon.popleft())
        with self._lock:
            while self._heap and self._heap[0].when <= now:
                call = heapq.heappop(self._heap).call
                if call is not None:
                    calls.append(call)
        return calls

    def __repr__(self) -> str:
        return f"<Timers {len(self._heap)}>"
