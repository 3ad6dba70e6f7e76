"""What was acknowledged, and when: the judge of all that is read."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import jsync

SLACK = 0.05
"""Seconds of doubt about the time of an acknowledgement."""


class Model:
    """What writers know to be stored. Any thread may use it.

    Some keys always have a value, whatever its revision. Others come and go. A log has
    messages of which some are deleted.
    """

    def __init__(self, kept: Iterable[str]) -> None:
        self.kept = sorted(kept)
        self._lock = threading.Lock()
        self._revisions: dict[str, list[tuple[float, int]]] = {}
        self._logged: list[int] = []
        self._deleting: set[int] = set()
        self.faults: list[str] = []
        """What was wrong, in words."""
        self.counts: dict[str, int] = {}
        """How often each kind of read had an outcome."""

    def put(self, key: str, revision: int) -> None:
        """A change of a key that is kept was acknowledged."""
        with self._lock:
            changes = self._revisions.setdefault(key, [])
            changes.append((time.monotonic(), revision))

    def logged(self, sequence: int) -> None:
        """A message of the log was acknowledged."""
        with self._lock:
            self._logged.append(sequence)

    def deleting(self, share: float) -> int | None:
        """Return a message of the log that is about to be deleted."""
        with self._lock:
            if not self._logged:
                return None
            sequence = self._logged[int(share * len(self._logged))]
            self._deleting.add(sequence)
            return sequence

    def now(self) -> dict[str, int]:
        """Return the last acknowledged revision of each key that is kept."""
        with self._lock:
            return {
                key: max(revision for _, revision in changes[-9:])
                for key, changes in self._revisions.items()
            }

    def stored(self) -> set[int]:
        """Return the sequences of the log that are acknowledged now."""
        with self._lock:
            return set(self._logged)

    def count(self, name: str) -> None:
        with self._lock:
            self.counts[name] = self.counts.get(name, 0) + 1

    def wrong(self, what: str) -> None:
        with self._lock:
            self.faults.append(what)

    # The judgement --------------------------------------------------------------------

    def judge_log(self, name: str, before: set[int], read: Sequence[int]) -> None:
        """`read` has the sequences that came of a read which began after `before`."""
        if list(read) != sorted(set(read)):
            self.wrong(f"{name}: not in order, or twice: {list(read)[:20]}")
        with self._lock:
            missing = sorted(before - set(read) - self._deleting)
        if missing:
            self.wrong(
                f"{name}: {len(missing)} of {len(before)} missing: {missing[:10]}"
            )

    def judge_keys(self, name: str, read: Sequence[str]) -> None:
        missing = set(self.kept) - set(read)
        if missing:
            self.wrong(f"{name}: {sorted(missing)} missing of {len(read)}")
        if len(set(read)) < len(read):
            self.wrong(f"{name}: a key twice")

    def judge_entries(
        self, name: str, before: dict[str, int], read: Sequence[tuple[str, int]]
    ) -> None:
        """`read` has keys and revisions, of a read which began after `before`."""
        revisions = [revision for _, revision in read]
        if revisions != sorted(set(revisions)):
            self.wrong(f"{name}: not in order, or twice")
        self.judge_revisions(name, before, dict(read))

    def judge_revisions(
        self, name: str, before: dict[str, int], read: dict[str, int]
    ) -> None:
        for key, revision in before.items():
            if read.get(key, 0) < revision:
                self.wrong(f"{name}: {key} at {read.get(key)}, not {revision}")

    def judge_live(self, name: str, view: jsync.LiveView, max_age: float) -> None:
        """Nothing that was acknowledged before the age of the copy may be missing in it."""
        now = time.monotonic()
        since, current = now - view.age, view.is_current
        held = {key: entry.revision for key, entry in view.entries().items()}
        with self._lock:
            for key, changes in self._revisions.items():
                missing = list(
                    itertools.takewhile(
                        lambda change: change[1] > held.get(key, 0),  # noqa: B023
                        reversed(changes),
                    )
                )
                if not missing:
                    continue
                at, revision = missing[-1]
                words = f"{name}: {key} misses {revision}, {now - at:.2f} s old"
                if at < since - SLACK:
                    self.faults.append(f"{words}, at an age of {now - since:.2f}")
                if current and now - at > max_age + SLACK:
                    self.faults.append(f"{words}, and is current")
