"""What has come of a range of a stream, and what that leaves open; pure.

A range is read by sequence. Where messages come without a gap nothing can be missing. A gap
is what other subjects have, or what was deleted, which is no loss; or what a limit or a
purge took away while the range was being read, which is one. Which of them it was can be
told from the stream's first sequence: what is before that may have been lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .offsets import Holding


class Coverage:
    """Where the reading of a range is."""

    def __init__(self, start: int, end: int) -> None:
        self._start = start
        self._rows = 0
        self.position = start - 1
        """The sequence up to which all is read, or known not to be there."""
        self.end = end
        """The last sequence of the range."""

    def is_complete(self) -> bool:
        """Whether its last message has come."""
        return self.position >= self.end

    def has_gap(self, rows: int, last: int) -> bool:
        """Whether sequences are missing in these `rows`, which end at `last`."""
        return last - self.position > rows

    def took(self, rows: int, last: int) -> None:
        """So many rows have come, the last one with that sequence."""
        self._rows += rows
        self.position = last

    @property
    def missing(self) -> int:
        """How many sequences of the whole range have not come."""
        return self.end - self._start + 1 - self._rows

    def confirmed(self, before: Holding, found: int | None, after: Holding) -> bool:
        """Whether the stream's leader has said that nothing more is in the range.

        It was asked for the stream, then for the first message behind the position, whose
        sequence is `found`, and for the stream again. Only a leader that has all of the
        range, and is the leader all the while, can say so.
        """
        same = (before.created, before.leader) == (after.created, after.leader)
        if not same or before.next <= self.end:
            return False
        return found is None or found > self.end

    def __repr__(self) -> str:
        return f"<Coverage at {self.position} of {self.end}>"
