"""The missing messages of a fast ingest with `gaps="ok"`, as ranges.

Pure. The messages are numbered through the whole ingest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final, TypeVar

from ...errors import APIError, LostRange, UnconfirmedRange

MAX_RANGES: Final = 10_000
"""The most ranges that are kept of lost messages, and also of unconfirmed ones."""


class MissingMessages:
    """Messages that are certainly not stored (lost), or may be stored (unconfirmed)."""

    def __init__(self) -> None:
        self.lost: list[LostRange] = []
        self.lost_count = 0
        self.unconfirmed: list[UnconfirmedRange] = []
        self.unconfirmed_count = 0
        self.in_flight = 0
        """The number of missing messages after the last acknowledged one."""
        # The missing ranges, in order.
        self._ranges: list[tuple[int, int]] = []
        self._new: list[LostRange | UnconfirmedRange] = []

    def add(
        self, first: int, last: int, error: Exception | None, *, ambiguous: bool
    ) -> None:
        """Add messages, except those that were added before.

        The server may report messages one by one, and then once more as a gap. With
        `ambiguous`, the messages may be stored.
        """
        for begin, end in self.uncovered(first, last):
            insort(self._ranges, (begin, end))
            count = end - begin + 1
            self.in_flight += count
            if ambiguous:
                self.unconfirmed_count += count
                _insert(self.unconfirmed, UnconfirmedRange(begin, end, error))
                self._new.append(UnconfirmedRange(begin, end, error))
            else:
                self.lost_count += count
                _insert(self.lost, LostRange(begin, end, error))
                self._new.append(LostRange(begin, end, error))

    def acknowledge(self, acked: int) -> None:
        """Record that all messages up to `acked` are acknowledged, or missing."""
        if self._ranges:
            self._ranges = [
                (max(first, acked + 1), last)
                for first, last in self._ranges
                if last > acked
            ]
            self.in_flight = sum(last - first + 1 for first, last in self._ranges)

    def uncovered(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the parts of an unacknowledged range that are not missing."""
        pieces = []
        for begin, end in self._ranges:
            if begin > last:
                break
            if first < begin:
                pieces.append((first, begin - 1))
            first = max(first, end + 1)
        if first <= last:
            pieces.append((first, last))
        return pieces

    def take_new(self) -> list[LostRange | UnconfirmedRange]:
        """Take the ranges that were added since the last call."""
        news, self._new = self._new, []
        return news

    def __repr__(self) -> str:
        return f"<MissingMessages {self.lost_count} lost, {self.unconfirmed_count} unconfirmed>"


_Range = TypeVar("_Range", LostRange, UnconfirmedRange)


def _insert(ranges: list[_Range], one: _Range) -> None:
    """Insert a range in order, or extend the range before it if they are adjacent."""
    at = bisect_left(ranges, one.first, key=_first)
    before = ranges[at - 1] if at else None
    if before and before.last == one.first - 1 and _same(before.error, one.error):
        ranges[at - 1] = before._replace(last=one.last)
    elif len(ranges) < MAX_RANGES:
        ranges.insert(at, one)


def _first(missing: LostRange | UnconfirmedRange) -> int:
    return missing.first


def _same(one: Exception | None, other: Exception | None) -> bool:
    if isinstance(one, APIError) and isinstance(other, APIError):
        return one.err_code == other.err_code
    return one is other
