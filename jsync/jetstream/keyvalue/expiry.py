"""The expiry of entries, by the `ttl` of the bucket or of the entry (ADR-43, ADR-48). Pure.

All times are of the clock of the server, which also sets the timestamps, in microseconds.
"""

from __future__ import annotations

import re
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .codecs import Value
    from .engine import Entry

NEVER: Final = -1
_UNITS: Final = {
    "ns": 1e-9,
    **dict.fromkeys(("us", "\u00b5s", "\u03bcs"), 1e-6),
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART: Final = re.compile(r"([0-9]*\.?[0-9]+|[0-9]+\.)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")


def ttl_seconds(text: str) -> int | None:
    """Read a `Nats-TTL` as the server does: whole seconds, or `NEVER`. None for no TTL."""
    if text.lower() == "never":
        return NEVER
    if text.isascii() and text.isdigit():
        return min(int(text), 1 << 40) or None
    seconds, end = 0.0, 0
    for part in _PART.finditer(text.removeprefix("+")):
        if part.start() != end:
            return None
        seconds += float(part[1]) * _UNITS[part[2]]
        end = part.end()
    whole = end == len(text.removeprefix("+"))
    return int(min(seconds, 1 << 40)) or None if whole else None


class Expiry:
    """The entries that will expire, in the order of that time."""

    def __init__(self, max_age: float | None) -> None:
        self._max_age = max_age or 0.0
        # By key: the revision and the TTL of entries that have a TTL besides the bucket's.
        self._ttls: dict[str, tuple[int, int]] = {}
        self._due: list[tuple[int, int, str]] = []

    def add(self, entry: Entry[Value], ttl: str) -> None:
        """Add an entry that has come with this `Nats-TTL`, empty if it has none."""
        own = ttl_seconds(ttl) if ttl else None
        if own is not None:
            self._ttls[entry.key] = entry.revision, own
        elif self._ttls:
            self._ttls.pop(entry.key, None)
        if own is not None or self._max_age:
            self._push(entry)

    def _push(self, entry: Entry[Value]) -> None:
        revision, own = self._ttls.get(entry.key, (0, 0))
        ages = [self._max_age] if self._max_age else []
        if revision == entry.revision:
            if own == NEVER:
                return
            ages.append(own)
        if ages:
            due = entry.timestamp_us + int(min(ages) * 1e6)
            heappush(self._due, (due, entry.revision, entry.key))

    def follow(self, max_age: float | None, entries: Iterable[Entry[Value]]) -> None:
        """Set the present `ttl` of the bucket. If it has changed, add all entries again."""
        if (max_age or 0.0) == self._max_age:
            return
        self._max_age = max_age or 0.0
        self._due.clear()
        for entry in entries:
            self._push(entry)

    def expired(self, now_us: int) -> Iterator[tuple[str, int]]:
        """Take the keys and revisions that have expired by now, replaced ones too."""
        while self._due and self._due[0][0] <= now_us:
            _, revision, key = heappop(self._due)
            if self._ttls.get(key, (0, 0))[0] == revision:
                del self._ttls[key]
            yield key, revision

    def shrink(self, entries: dict[str, Entry[Value]]) -> None:
        """Forget replaced entries, once they are more than half of all."""
        if len(self._due) > 2 * len(entries) + 1000:
            self._due = [
                due
                for due in self._due
                if (entry := entries.get(due[2])) is not None
                and entry.revision == due[1]
            ]
            heapify(self._due)

    @property
    def next_us(self) -> int | None:
        """The time when the next entry expires. None: none does."""
        return self._due[0][0] if self._due else None

    def __repr__(self) -> str:
        return f"<Expiry of {len(self._due)} entries>"
