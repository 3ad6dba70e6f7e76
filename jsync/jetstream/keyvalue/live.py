"""A copy of a bucket that a watch keeps current: what `KeyValue.live` returns."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING

from ..._fast import Waiter
from ...checks import seconds
from ...core.closing import Stopping
from ...core.shared import RLock
from ...core.single import Single
from ...errors import (
    SubscriptionClosedError,
    TimeoutError as LateError,
)
from .codecs import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...checks import Seconds
    from ...errors import CodecError
    from ..watching.driver import Changes
    from .engine import Entry

TICK = 1.0
"""Seconds without a change until it is looked whether the copy is current."""
HEARD = 15.0
"""Seconds of silence after which the server may be gone: three heartbeats."""


class Live(Stopping, Single, Mapping[str, Value]):
    """A copy of keys and values in memory: reading never waits for the server.

    `KeyValue.live` returns it. Any thread may read it. Leaving the `with` block stops
    the watch behind it, and the copy keeps its values.
    """

    def __init__(
        self, changes: Changes[Entry[Value]], bucket: str, timeout: float
    ) -> None:
        self._changes = changes
        self._bucket = bucket
        self._entries: dict[str, Entry[Value]] = {}
        # Values beside the entries: with many keys, each object between a key and its
        # value costs a cache miss. Every value here always has an entry, too.
        self._values: dict[str, Value] = {}
        # Of the four below; re-entrant, since a signal handler may come in the middle.
        self._lock = RLock()
        self._waiting: dict[Waiter, int] = {}
        self._ended = False
        self._revision = 0
        self._known = changes.last_arrival
        try:
            changes.run(self._apply, bad=self._drop, tick=self._tick, every=TICK)
            changes.handed_over.wait(timeout)
        except BaseException:
            self.stop()
            raise
        if not changes.initial_done:
            self.stop()
            if changes.error is not None:
                raise changes.error
            raise LateError(
                f"no complete copy of bucket {bucket!r} within {timeout:.1f} s"
            )

    # Reading --------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys that it has at this moment."""
        return iter(self._values.copy())

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def entry(self, key: str) -> Entry[Value]:
        """Get the entry of a key, with its revision.

        Args:
            key: The key.

        Returns:
            The entry.

        Raises:
            KeyError: The key has no value.
        """
        return self._entries[key]

    def entries(self) -> dict[str, Entry[Value]]:
        """Get all entries by key, as of one moment."""
        return self._entries.copy()

    # How current it is ----------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The last revision that has been applied."""
        return self._revision

    @property
    def is_current(self) -> bool:
        """Whether the copy has every change, as far as the server has said.

        False while disconnected, and after that until the server says that nothing is
        missing.
        """
        heard = monotonic() - self._changes.last_arrival < HEARD
        return heard and self._changes.is_current

    @property
    def age(self) -> float:
        """Seconds since the copy was certainly current: no earlier change is missing.

        A server without news says so every 5 seconds.
        """
        self._note_current()
        return max(0.0, monotonic() - self._known)

    def _note_current(self) -> bool:
        changes = self._changes
        if not changes.is_current:
            return False
        with self._lock:
            self._known = max(self._known, changes.last_arrival)
        return True

    def wait_for(self, revision: int, timeout: Seconds = 5.0) -> None:
        """Block until the copy has a revision, of your own put for instance.

        Args:
            revision: The revision, of a key that is watched.
            timeout: Seconds to wait.

        Raises:
            TimeoutError: The revision did not arrive in time.
            SubscriptionClosedError: The watch was stopped.
            Error: The error that ended the watch.
        """
        timeout = seconds(timeout, "timeout")
        waiter = Waiter(self._changes.outbox, local=True)
        try:
            # Whoever applies it, or ends it, sees the waiter, or has done so before.
            with self._lock:
                waits = self._revision < revision and not self._ended
                if waits:
                    self._waiting[waiter] = revision
            if waits:
                waiter.wait(timeout)
        finally:
            with self._lock:
                self._waiting.pop(waiter, None)
        if self._revision >= revision:
            return
        if self._ended:
            if self._changes.error is not None:
                raise self._changes.error
            raise SubscriptionClosedError(f"{self!r} has been stopped")
        raise LateError(
            f"revision {revision} did not arrive within {timeout} s; {self!r} is at "
            f"{self._revision}"
        )

    # Its watch, on a thread of its own ------------------------------------------------

    def _apply(self, entry: Entry[Value]) -> None:
        key = entry.key
        if entry.operation == "PUT":
            self._entries[key] = entry
            self._values[key] = entry.value
        else:
            self._remove(key)
        self._reached(entry.revision)

    def _drop(self, error: CodecError) -> None:
        """The key has another value now, and nobody knows which."""
        self._remove(error.key)
        self._reached(error.revision)

    def _remove(self, key: str) -> None:
        self._values.pop(key, None)
        self._entries.pop(key, None)

    def _reached(self, revision: int) -> None:
        with self._lock:
            self._revision = revision
            reached = [w for w, wanted in self._waiting.items() if wanted <= revision]
        for waiter in reached:
            waiter.set(None)

    def _tick(self) -> None:
        changes = self._changes
        if not self._note_current() and not changes.closed:
            changes.confirm()
        if changes.finished.is_open:
            with self._lock:
                self._ended = True
                waiting = list(self._waiting)
            for waiter in waiting:
                waiter.set(None)

    # The end --------------------------------------------------------------------------

    def stop(self, timeout: Seconds = 30.0) -> None:
        """End the watch. The copy keeps its values, and a second call does nothing.

        Args:
            timeout: Seconds to wait.

        Raises:
            DrainTimeoutError: The watch has not ended in time.
        """
        self._changes.stop(seconds(timeout, "timeout"))

    def __repr__(self) -> str:
        state = "current" if self.is_current else "not current"
        return f"<Live {len(self)} keys of bucket {self._bucket!r}, {state}>"
