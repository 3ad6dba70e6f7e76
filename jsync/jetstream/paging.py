"""Offsets for the pages of a list that changes while it is read. Pure.

Servers sort a list by name and cut it by offset. An entry that is deleted moves all entries
behind it forward, so the next offset would pass some of them over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Pages:
    """Chooses the offset of each page, so that no entry is left out.

    Each page begins with the last entry of the page before. If it begins with another entry
    instead, entries have moved, and an earlier page is read again.
    """

    def __init__(self) -> None:
        self.offset = 0
        """The offset of the page to request next."""
        self.is_done = False
        self._seen: set[str] = set()
        self._size = 0
        self._back = 0
        self._stale = 0

    def take(self, names: Sequence[str], total: int) -> bool:
        """Take the names of the requested page, in the order of the server.

        Args:
            names: All names of the page, including entries that did not reply.
            total: The number of entries of the whole list.

        Returns:
            Whether the page counts. If it does not, an earlier page comes next.
        """
        if self.offset and (not names or names[0] not in self._seen):
            self._back = 2 * self._back or self._size
            self.offset = max(0, self.offset - self._back)
            return False
        self._back, self._size = 0, len(names)
        known = len(self._seen)
        self._seen.update(names)
        self._stale = 0 if len(self._seen) > known else self._stale + 1
        end = self.offset + len(names)
        # An empty page also ends the list, since it has no total. So do more known pages than
        # a step back can repeat, or the list of a broken server would never end.
        self.is_done = (
            not names or end >= total or self._stale * len(names) > 2 * known + 2
        )
        # A page of one entry cannot overlap with the next one.
        self.offset = end - 1 if len(names) > 1 else end
        return True
