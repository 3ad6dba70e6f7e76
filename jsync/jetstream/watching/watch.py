"""The common base of watches: the changes of a bucket or a store, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from ... import errors
from ..._fast import EntryIterator, safe_finalizer
from ...core.clock import deadline_after
from ...core.resources import NotCopyable, StopOnExit
from ...errors import SubscriptionClosedError
from ...validation import check_seconds, format_seconds
from .callback import WatchCallback
from .source import Item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...validation import Seconds
    from .driver import WatchReader


class BaseWatch(StopOnExit, NotCopyable, Generic[Item]):
    """The base of all watches. Its `WatchReader` does the reading."""

    def __init__(
        self,
        changes: WatchReader[Item],
        callback: Callable[[Item], object] | None = None,
    ) -> None:
        # A separate object, because the connection refers to it and must not keep the
        # watch itself alive.
        self._changes = changes
        if callback is not None:
            reading = WatchCallback(changes, callback)
            reading.start(changes.callback_pool, drains=True)

    @property
    def revision(self) -> int:
        """The revision of the last entry. Before the first one: that before its start."""
        return self._changes.revision

    # The initial entries --------------------------------------------------------------

    @property
    def initial_done(self) -> bool:
        """True once all initial entries were handed over, also if there are none.

        With a callback: once it has returned from the last one.
        """
        changes = self._changes
        return changes.initial_done and changes.handed_over.is_set

    def wait_initial(self, timeout: Seconds | None = 5.0) -> bool:
        """Block until all initial entries were handed over.

        Another thread has to read the watch: one of yours, or that of the callback.
        On the thread that iterates, use `initial` instead.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            True if all were handed over. False after `timeout`, or if the watch was
            stopped before.

        Raises:
            Error: The error that ended the watch before.
        """
        if timeout is not None:
            timeout = check_seconds(timeout, "timeout")
        changes = self._changes
        changes.handed_over.wait(timeout)
        if changes.error is not None and not changes.initial_done:
            raise changes.error
        return self.initial_done

    def initial(self) -> Iterator[Item]:
        """Iterate over the initial entries, and end after the last one.

        Then iterate over the watch itself to get the changes that follow. If another
        client replaces an entry twice during the iteration, its last version may come among these.

        Raises:
            BucketNotFoundError: The bucket was deleted.
            ConnectionClosedError: The connection was closed.
            TimeoutError: The servers were silent for a minute. You may call it again.

        Example:
            ```python
            kv.put("db.host", b"10.0.0.1")
            with kv.watch() as changes:
                print([entry.key for entry in changes.initial()])
            ```
        """
        return EntryIterator(self._changes.entries, self._next_initial, initial=True)

    def _next_initial(self) -> Item:
        return self._changes.take_next(initial=True)

    # The changes ----------------------------------------------------------------------

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the entries, until the watch is stopped.

        Raises:
            BucketNotFoundError: The bucket was deleted.
            ConnectionClosedError: The connection was closed.
        """
        # The iterator keeps this object alive by its bound `__next__`.
        return EntryIterator(self._changes.entries, self.__next__)

    def __next__(self) -> Item:
        return self._changes.take_next()

    def next(self, timeout: Seconds | None = 5.0) -> Item:
        """Block until the next entry has come.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            The entry.

        Raises:
            TimeoutError: No entry came in time.
            SubscriptionClosedError: The watch was stopped.
            BucketNotFoundError: The bucket was deleted.
            ConnectionClosedError: The connection was closed.

        Example:
            ```python
            with kv.watch(updates_only=True) as changes:
                kv.put("db.host", b"10.0.0.1")
                print(changes.next(timeout=5).value)
            ```
        """
        deadline = None
        if timeout is not None:
            timeout = check_seconds(timeout, "timeout")
            deadline = deadline_after(timeout)
        changes = self._changes
        entry = changes.take(deadline)
        changes.mark_delivered()
        if entry is not None:
            return entry
        if changes.closed:
            raise SubscriptionClosedError("the watch has been stopped")
        raise errors.TimeoutError(f"no change within {format_seconds(timeout)}")

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Block until a watch with a callback has ended.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            True if the watch has ended, False after `timeout`.

        Raises:
            Error: The error that ended the watch. `stop` is no error.
        """
        if timeout is not None:
            timeout = check_seconds(timeout, "timeout")
        done = self._changes.finished.wait(timeout)
        if done and self._changes.error is not None:
            raise self._changes.error
        return done

    # The end --------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True if no more entries will come."""
        return self._changes.closed

    def stop(self, timeout: Seconds = 30.0) -> None:
        """End the watch. A second call does nothing.

        You may call `stop` from any thread. It deletes the consumer on the server without
        waiting for the answer. With a callback, `stop` blocks until the callback has
        returned. The callback itself may call `stop`, which then does not wait for it.

        Args:
            timeout: Seconds to wait for the callback.

        Raises:
            DrainTimeoutError: The callback has not returned in time.
        """
        self._changes.stop(check_seconds(timeout, "timeout"))

    def _end_nowait(self) -> None:
        self._changes.abandon()

    @safe_finalizer
    def __del__(self) -> None:
        if hasattr(self, "_changes"):  # not if Ctrl-C interrupted __init__
            self._changes.abandon()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self._changes!r}>"
