"""The progress of reading a range of a stream, and its missing messages. Pure.

A range is read by sequence, and while messages come without a gap nothing can be missing. A
gap is no loss if its messages are of other subjects or were deleted. It is a loss if a limit
or a purge removed messages while the range was being read. The stream's first sequence
tells the two apart, because only messages before it may have been lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .offsets import StreamBounds


class RangeProgress:
    """The progress of reading a range."""

    def __init__(self, start: int, end: int) -> None:
        self._start = start
        self._rows = 0
        self.position = start - 1
        """The sequence up to which all messages are read or known to be missing."""
        self.end = end
        """The last sequence of the range."""

    def is_complete(self) -> bool:
        """Return whether the last message of the range has come."""
        return self.position >= self.end

    def has_gap(self, rows: int, last: int) -> bool:
        """Return whether sequences are missing in these `rows`, which end at `last`."""
        return last - self.position > rows

    def advance(self, rows: int, last: int) -> None:
        """Count `rows` that have come, up to the sequence `last`."""
        self._rows += rows
        self.position = last

    @property
    def missing(self) -> int:
        """The number of sequences of the whole range that have not come."""
        return self.end - self._start + 1 - self._rows

    def confirmed(
        self, before: StreamBounds, found: int | None, after: StreamBounds
    ) -> bool:
        """Return whether the stream's leader confirms that the range has no more messages.

        The caller has requested the stream's state, then the first message after the
        position, whose sequence is `found`, and then the state again. The answers count
        only if one leader gave all of them, and its log reaches the end of the range.
        """
        same = (before.created, before.leader) == (after.created, after.leader)
        if not same or before.next <= self.end:
            return False
        return found is None or found > self.end

    def __repr__(self) -> str:
        return f"<RangeProgress at {self.position} of {self.end}>"
