"""Ctrl-C and SIGTERM: the first ends the pipeline in order, the next immediately."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


class StopRequest:
    """The requested end of a pipeline: none, in order, or immediate."""

    def __init__(self) -> None:
        self.requests = 0
        self.signal: signal.Signals | None = None
        """The first signal that came."""

    def __repr__(self) -> str:
        if self.signal is None:
            return "<StopRequest, not requested>"
        return f"<StopRequest {self.signal.name}, requested {self.requests} times>"

    def is_requested(self) -> bool:
        """Return whether an end was requested."""
        return self.requests > 0

    @property
    def exit_code(self) -> int:
        """The exit code, as in shells: 130 for Ctrl-C, 143 for SIGTERM."""
        return 0 if self.signal is None else 128 + self.signal

    def request(self, number: int, _frame: FrameType | None = None) -> None:
        self.requests += 1
        if self.signal is None:
            self.signal = signal.Signals(number)


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Handle SIGINT and SIGTERM during the block, instead of Python and Spark.

    Only the main thread can set handlers. On other threads, the handlers do not change.
    """
    stop = StopRequest()
    before: dict[signal.Signals, Callable[..., object] | int | None] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, stop.request)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
