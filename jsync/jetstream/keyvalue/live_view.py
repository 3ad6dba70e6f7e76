"""A copy of a bucket that a watch keeps current. `KeyValue.live` returns it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from time import monotonic, time
from typing import TYPE_CHECKING

from ... import errors
from ..._fast import Waiter
from ...core.resources import NotCopyable, StopOnExit
from ...core.sync import ForkSafeRLock
from ...errors import Error, SubscriptionClosedError
from ...validation import check_seconds, format_seconds
from ..watching.callback import WatchCallback
from ..watching.driver import INFO_TIMEOUT
from ..watching.freshness import Applied
from .codecs import Value
from .expiry import Expiry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...errors import CodecError
    from ...validation import Seconds
    from ..stream_end.engine import StreamEnd
    from ..watching.driver import WatchReader
    from .engine import Entry

CHECK_INTERVAL = 1.0
"""The most seconds between two searches for keys that have gone without a message."""
LIST_AFTER = 5.0
"""The least seconds between two listings of the keys of the bucket."""
MAX_LIST_AFTER = 300.0
"""The most seconds between two listings, after several that have found nothing to drop."""


class LiveView(StopOnExit, NotCopyable, Mapping[str, Value]):
    """A copy of keys and values in memory: reading never waits for the server.

    `KeyValue.live` returns it. Any thread may read it. Leaving the `with` block stops
    the watch behind it, and the copy keeps its values.

    Example:
        ```python
        kv.put("limit", b"100")
        with kv.live() as settings:
            print(settings["limit"])  # without a request
        ```
    """

    def __init__(
        self,
        changes: WatchReader[Entry[Value]],
        bucket: str,
        stored: Callable[[str], str],
        timeout: float,
    ) -> None:
        self._changes = changes
        self._stored = stored
        self._bucket = bucket
        self._entries: dict[str, Entry[Value]] = {}
        # A second dict only for values, because with many keys each object between a key
        # and its value costs a cache miss. Each value here has an entry, too.
        self._values: dict[str, Value] = {}
        # Guards `_waiting`, `_ended`, `_revision` and `_unbroken`. Re-entrant, because a
        # signal handler may run while this thread holds it.
        self._lock = ForkSafeRLock()
        self._waiting: dict[Waiter, int] = {}
        self._ended = False
        self._revision = changes.revision
        # Keys that have a message in the bucket, but no value here: delete markers, and
        # values that cannot be decoded. Only the thread that has the watch uses these, as
        # all attributes below.
        self._markers: dict[str, int] = {}
        self._unbroken = self._revision  # see `Applied`
        self._freshness = changes.freshness(
            lambda: Applied(self._revision, self._unbroken)
        )
        self._expiry = Expiry(changes.max_age)
        self._first = 0  # the first sequence of the stream at the last look at entries
        self._next_check = (
            0.0  # no earlier look for entries that the stream has dropped
        )
        self._list_at, self._list_after = 0.0, LIST_AFTER
        # The first sequence and the counts of messages at the last comparison.
        self._removed: tuple[int, int, int] | None = None
        changes.entries.reads_ttl = True
        try:
            reading = WatchCallback(
                changes, self._apply, bad=self._drop, tick=self._check
            )
            reading.start(changes.internal_pool)
            changes.handed_over.wait(timeout)
        except BaseException:
            self._end_nowait()
            raise
        if not changes.initial_done:
            self.stop()
            if changes.error is not None:
                raise changes.error
            raise errors.TimeoutError(
                f"no complete copy of bucket {bucket!r} within {timeout:.1f} s"
            )

    # Reading --------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys that the copy has at this moment."""
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
        """True while the copy is connected and its `age` is at most 6 seconds.

        The `age` comes from the leader of the bucket. A copy that is cut off from the leader,
        or whose server lags, is not current. After a reconnect, the copy is current again as
        soon as the leader has confirmed it.
        """
        return self._changes.is_connected and self._freshness.is_confirmed

    @property
    def age(self) -> float:
        """Seconds since the copy was certainly current: no earlier change is missing.

        Every 2 seconds jsync queries the leader of the bucket. In a replicated bucket without
        changes the age goes up to about 4 seconds, since the leader hears from the other
        servers that seldom. It goes up too while the copy is slower than changes of one key,
        and in a copy of some keys while these change without a pause of milliseconds.
        Messages that an administrator removes from the stream count as changes only
        after some seconds.
        """
        return max(0.0, monotonic() - self._freshness.since)

    def wait_for(self, revision: int, timeout: Seconds = 5.0) -> None:
        """Block until the copy has a revision, for example that of your own put.

        Args:
            revision: The revision, of a key that is watched.
            timeout: Seconds to wait.

        Raises:
            TimeoutError: The revision did not arrive in time.
            SubscriptionClosedError: The watch was stopped.
            Error: The error that ended the watch.

        Example:
            ```python
            with kv.live() as view:
                view.wait_for(kv.put("db.host", b"10.0.0.1"), timeout=5)
                print(view["db.host"])
            ```
        """
        timeout = check_seconds(timeout, "timeout")
        waiter = Waiter(self._changes.write_buffer, local=True)
        try:
            # With the lock, either the revision is applied already, or the thread that
            # applies it or ends the watch finds this waiter.
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
        raise errors.TimeoutError(
            f"revision {revision} did not arrive within {format_seconds(timeout)}; {self!r} is at "
            f"{self._revision}"
        )

    # On a thread of the pool ----------------------------------------------------------

    def _apply(self, entry: Entry[Value]) -> None:
        key = entry.key
        if entry.operation == "PUT":
            self._entries[key] = entry
            self._values[key] = entry.value
            if self._markers:
                self._markers.pop(key, None)
            self._expiry.add(entry, self._changes.entries.ttl)
        else:
            self._remove(key)
            self._markers[key] = entry.revision
        self._on_revision(entry.revision)

    def _drop(self, error: CodecError) -> None:
        """Drop a key whose new value cannot be decoded."""
        self._remove(error.key)
        self._markers[error.key] = error.revision
        self._on_revision(error.revision)

    def _remove(self, key: str) -> None:
        self._values.pop(key, None)
        self._entries.pop(key, None)

    def _on_revision(self, revision: int) -> None:
        with self._lock:
            if revision != self._revision + 1:
                self._unbroken = revision - 1
            self._revision = revision
            reached = [w for w, target in self._waiting.items() if target <= revision]
        for waiter in reached:
            waiter.set(None)

    def _check(self) -> float:
        """Drop keys that have gone without a message. Return seconds until the next tick."""
        changes = self._changes
        if changes.finished.is_set:
            self._freshness.stop()
            with self._lock:
                self._ended = True
                waiting = list(self._waiting)
            for waiter in waiting:
                waiter.set(None)
            return CHECK_INTERVAL
        self._follow_stream()
        self._expire()
        next_us = self._expiry.next_us
        if next_us is None:
            return CHECK_INTERVAL
        return min(CHECK_INTERVAL, max(0.0, (next_us - self._server_us()) / 1e6))

    def _server_us(self) -> int:
        """Return the time of the server, in microseconds since 1970."""
        end, at = self._freshness.leader_end
        if end is None or end.info.ts is None:
            return int(time() * 1e6)
        return int(end.info.ts.timestamp() * 1e6 + (monotonic() - at) * 1e6)

    def _expire(self) -> None:
        for key, revision in self._expiry.expired(self._server_us()):
            entry = self._entries.get(key)
            if entry is not None and entry.revision == revision:
                self._remove(key)
        self._expiry.shrink(self._entries)

    def _follow_stream(self) -> None:
        """Drop keys whose messages were removed by a limit, by a purge, or one by one."""
        # Not by the leader's last answer: a message that is gone by then may have been
        # replaced by a change that has not come yet.
        end = self._freshness.reached
        if end is None:
            return
        self._expiry.follow(end.info.config.max_age, self._entries.values())
        now = monotonic()
        if end.first > self._first and now >= self._next_check:
            self._first = end.first
            self._drop_where(lambda revision: revision < end.first)
            # Spend at most a hundredth of the time on these requests.
            self._next_check = monotonic() + 100 * (monotonic() - now)
        if now >= self._list_at and self._may_have_lost(end):
            self._drop_unlisted()

    def _may_have_lost(self, end: StreamEnd) -> bool:
        """Return whether messages may have been removed one by one, or by their subject."""
        state = end.info.state
        if self._changes.is_of_all:
            return len(self._entries) + len(self._markers) > state.num_subjects
        removed = end.first, state.messages, state.num_deleted
        before, self._removed = self._removed, removed
        return before is not None and before != removed

    def _drop_unlisted(self) -> None:
        """Request the keys of the bucket, and drop those that have no message. Blocks."""
        before = len(self._entries)
        with contextlib.suppress(Error):
            # A slow server gets more time after each failure, in a tenth of the time.
            most = max(INFO_TIMEOUT, self._list_after / 10)
            keys, last = self._changes.listed(monotonic() + most)
            for held in (self._entries, self._markers):
                for key in [key for key in held if self._stored(key) not in keys]:
                    entry = self._entries.get(key)
                    if entry is not None and entry.revision <= last:
                        self._remove(key)
                    if self._markers.get(key, last + 1) <= last:
                        del self._markers[key]
        found = before > len(self._entries)
        self._list_after = (
            LIST_AFTER if found else min(2 * self._list_after, MAX_LIST_AFTER)
        )
        self._list_at = monotonic() + self._list_after

    def _drop_where(self, is_gone: Callable[[int], bool]) -> None:
        for key, entry in list(self._entries.items()):
            if is_gone(entry.revision):
                self._remove(key)
        for key, revision in list(self._markers.items()):
            if is_gone(revision):
                del self._markers[key]

    # The end --------------------------------------------------------------------------

    def stop(self, timeout: Seconds = 30.0) -> None:
        """End the watch. The copy keeps its values, and a second call does nothing.

        Args:
            timeout: Seconds to wait.

        Raises:
            DrainTimeoutError: The watch has not ended in time.
        """
        self._freshness.stop()
        self._changes.stop(check_seconds(timeout, "timeout"))

    def _end_nowait(self) -> None:
        self._freshness.stop()
        self._changes.abandon()

    def __repr__(self) -> str:
        state = "current" if self.is_current else "not current"
        return f"<LiveView {len(self)} keys of bucket {self._bucket!r}, {state}>"
