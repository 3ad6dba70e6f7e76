"""The callback of a watch, which the threads of a pool call."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Generic

from ...core.callbacks import as_callback_error
from ...errors import CodecError, Error
from .source import Item

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.callback_pool import CallbackPool
    from ...core.timers import Timer
    from .driver import WatchReader

MAX_SINGLE_ENTRIES = 64
"""Entries that are taken one by one until the turn ends."""


class WatchCallback(Generic[Item]):
    """Calls a callback with each entry of a watch, as a task of a callback pool.

    Exceptions of the callback are reported. An entry that cannot be decoded is reported,
    too, and `bad` is called with the error. Any other exception ends the watch, and is
    reported. `tick` is called on the pool too, first immediately, then after the seconds
    that it returns, and at the end.

    A turn without an entry comes when a timer is due: for `tick`, or because the leader has
    to confirm after a silence that all initial entries have come.
    """

    def __init__(
        self,
        reader: WatchReader[Item],
        callback: Callable[[Item], object],
        *,
        bad: Callable[[CodecError], object] | None = None,
        tick: Callable[[], float] | None = None,
    ) -> None:
        self._reader = reader
        self._callback = callback
        self._bad = bad
        self._tick = tick
        self._tick_at = monotonic()
        self._confirm_at = self._tick_at + reader.poll_interval
        self._revision = reader.entries.revision
        self._timer: Timer | None = None

    def start(self, pool: CallbackPool, *, drains: bool = False) -> None:
        """Begin to read. If the watch `drains`, a drain of the connection waits for it."""
        self._reader.start(self, pool, drains=drains)

    @property
    def label(self) -> str:
        """The watch, for errors."""
        return self._reader.label

    def run(self) -> None:
        """Call the callback with entries that are here, then do what is due."""
        reader = self._reader
        if self._tick is not None and monotonic() >= self._tick_at:
            self._tick_at = monotonic() + self._tick()
        self._hand_over()
        if not reader.initial_done:
            self._confirm_if_silent()
        if not reader.closed:
            self._set_timer()

    def _hand_over(self) -> None:
        reader = self._reader
        for _ in range(MAX_SINGLE_ENTRIES):
            try:
                if not reader.entries.hand_over(self._callback, self._raised):
                    return
                if not reader.pending:
                    return
                entry = reader.take_ready()
            except CodecError as error:
                reader.report(error)
                if self._bad is not None:
                    self._bad(error)
                continue
            if entry is not None:
                try:
                    self._callback(entry)
                except BaseException as error:  # noqa: BLE001 - user code
                    self._raised(entry, error)
            reader.mark_delivered()

    def _raised(self, entry: Item, error: BaseException) -> None:
        what = f"the callback of {self._reader.name_of(entry)!r}"
        self._reader.report(as_callback_error(what, error))

    def _confirm_if_silent(self) -> None:
        """Confirm with the leader after a silence that all initial entries have come."""
        reader = self._reader
        revision, self._revision = self._revision, reader.entries.revision
        if revision == self._revision and not reader.pending:
            if monotonic() < self._confirm_at and not reader.leader_answered:
                return
            reader.confirm()
        self._confirm_at = monotonic() + reader.poll_interval

    def _set_timer(self) -> None:
        """Have the next turn come in time even if no entry comes."""
        due = float("inf") if self._tick is None else self._tick_at
        if not self._reader.initial_done:
            due = min(due, self._confirm_at)
        now, timer = monotonic(), self._timer
        if due == float("inf") or (timer is not None and now < timer.when <= due):
            return
        if timer is not None:
            timer.cancel()
        self._timer = self._reader.rouse_later(max(0.0, due - now))

    def end(self, error: BaseException | None) -> None:
        """End the watch, after its last entry or because `run` raised `error`."""
        if self._timer is not None:
            self._timer.cancel()
        if error is None or isinstance(error, Error):
            self._reader.finish(error)
        else:  # a codec of the user, for one
            self._reader.finish(as_callback_error(self.label, error))
        if self._tick is not None:
            self._tick()

    def __repr__(self) -> str:
        return f"<WatchCallback of {self.label}>"
