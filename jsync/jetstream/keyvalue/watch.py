"""The changes of keys, one by one: what `KeyValue.watch` returns (ADR-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from ...core.deadline import deadline_after
from ...core.single import Single
from ...errors import (
    SubscriptionClosedError,
    TimeoutError as LateError,
)
from .codecs import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from .driver import Changes
    from .engine import Entry


class Watch(Single, Generic[Value]):
    """The changes of keys, each once and in order, whatever happens to the server.

    Iterate over it, from one thread, or give `KeyValue.watch` a `callback`. First come the
    initial entries, which are in the bucket already. Then each change comes as it happens.
    Leaving the `with` block stops the watch. So does dropping a watch without a callback.
    """

    def __init__(
        self,
        changes: Changes[Value],
        callback: Callable[[Entry[Value]], object] | None = None,
    ) -> None:
        # Apart, so that what the connection knows of it does not keep this alive.
        self._changes = changes
        if callback is not None:
            changes.run(callback)

    @property
    def revision(self) -> int:
        """The revision of the last entry. Before the first one: that before its start."""
        return self._changes.revision

    # The initial entries --------------------------------------------------------------

    @property
    def initial_done(self) -> bool:
        """Whether all initial entries were handed over, also when there are none.

        With a callback: whether it has returned from the last one.
        """
        changes = self._changes
        return changes.initial_done and changes.handed_over.is_open

    def wait_initial(self, timeout: float | None = 5.0) -> bool:
        """Block until all initial entries were handed over.

        A thread has to read the watch meanwhile: that of its callback, or one of yours. On
        the thread that iterates use `initial` instead.

        Args:
            timeout: Seconds to wait at most; None waits for ever.

        Returns:
            Whether they were. False after `timeout`, or if the watch was stopped before.

        Raises:
            Error: What ended the watch before.
        """
        if timeout is not None:
            deadline_after(timeout)
        changes = self._changes
        changes.handed_over.wait(timeout)
        if changes.error is not None and not changes.initial_done:
            raise changes.error
        return self.initial_done

    def initial(self) -> Iterator[Entry[Value]]:
        """Iterate over the initial entries, and end after the last one.

        Then iterate over the watch itself to get the changes that follow.

        Raises:
            BucketNotFoundError: The bucket was deleted.
            ConnectionClosedError: The connection was closed.
        """
        changes = self._changes
        while not changes.initial_done:
            entry = changes.take(None, initial=True)
            changes.given()
            if entry is not None:
                yield entry
            elif changes.closed:
                return

    # The changes ----------------------------------------------------------------------

    def __iter__(self) -> Iterator[Entry[Value]]:
        """Iterate over the entries, until the watch is stopped.

        Raises:
            BucketNotFoundError: The bucket was deleted.
            ConnectionClosedError: The connection was closed.
        """
        return self

    def __next__(self) -> Entry[Value]:
        return self._changes.take_next()

    def next(self, timeout: float | None = 5.0) -> Entry[Value]:
        """Block until the next entry has come.

        Args:
            timeout: Seconds to wait at most; None waits for ever.

        Raises:
            TimeoutError: Nothing came in time.
            SubscriptionClosedError: The watch was stopped.
            BucketNotFoundError: The bucket was deleted.
            ConnectionClosedError: The connection was closed.
        """
        changes = self._changes
        entry = changes.take(None if timeout is None else deadline_after(timeout))
        changes.given()
        if entry is not None:
            return entry
        if changes.closed:
            raise SubscriptionClosedError("the watch has been stopped")
        raise LateError(f"no change within {timeout} s")

    def wait(self, timeout: float | None = None) -> bool:
        """Block until a watch with a callback has ended.

        Args:
            timeout: Seconds to wait at most; None waits for ever.

        Returns:
            Whether it has ended.

        Raises:
            Error: What ended it, if `stop` did not.
        """
        if timeout is not None:
            deadline_after(timeout)
        done = self._changes.finished.wait(timeout)
        if done and self._changes.error is not None:
            raise self._changes.error
        return done

    # The end --------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether no more entries will come."""
        return self._changes.closed

    def stop(self, timeout: float = 30.0) -> None:
        """End the watch, from any thread; a second call does nothing.

        The consumer on the server is deleted without waiting for the answer. With a
        callback `stop` blocks until the callback has returned, unless the callback calls.

        Args:
            timeout: Seconds to wait for the callback at most.

        Raises:
            DrainTimeoutError: The callback has not returned in time.
        """
        self._changes.stop(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except LateError as late:
            if error is None:
                raise
            error.add_note(str(late))

    def __del__(self) -> None:
        changes = getattr(self, "_changes", None)
        if changes is not None:  # else Ctrl-C came as it was made
            changes.abandon()

    def __repr__(self) -> str:
        return f"<Watch, {self._changes!r}>"
