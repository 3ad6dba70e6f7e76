"""Calls on other threads, and callbacks that record their calls."""

from __future__ import annotations

import contextlib
import gc
import queue
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jsync.core.monkey import is_patched

if TYPE_CHECKING:
    from collections.abc import Callable


Result = TypeVar("Result")

LONG = 90.0
"""A timeout that no healthy test waits for."""
SOON = 20.0
"""The time limit for calls with the timeout `LONG`: generous, but well below it."""


class Thread(Generic[Result]):
    """A call on another thread."""

    def __init__(self, function: Callable[..., Result], *args: object) -> None:
        self._future: Future[Result] = Future()

        def run() -> None:
            try:
                self._future.set_result(function(*args))
            except BaseException as error:  # noqa: BLE001 - it belongs to who asks
                self._future.set_exception(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return self._future.done()

    def result(self) -> Result:
        """Wait for the end of the call. Return its result, or raise its error."""
        result = self._future.result(SOON)
        self._thread.join(SOON)
        return result

    def error(self) -> BaseException | None:
        """Wait for the end of the call, and return its error."""
        error = self._future.exception(SOON)
        self._thread.join(SOON)
        return error

    def wait_until_blocked(self) -> None:
        """Block until the call waits for something."""
        wait_until_blocked(self._thread, lambda: self.ended)


def wait_until_blocked(
    thread: threading.Thread,
    ended: Callable[[], bool] = lambda: False,
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Block until a thread has stood still for 50 ms, or has ended.

    `progress` returns a value that changes when the thread gets on. The thread is looked at
    before and after the 50 ms: on a busy machine the sleep can last longer, while the thread
    runs.
    """
    seen: object = None
    since = time.monotonic()
    deadline = since + SOON
    while not ended():
        where = whereabouts(thread)
        now = where and (where, progress())
        if now is None or now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() >= since + 0.05:
            return
        if time.monotonic() > deadline:
            raise TimeoutError("the thread does not block")
        time.sleep(0.005)


def whereabouts(thread: threading.Thread) -> object:
    """Return a value that changes when a thread runs, or None if the thread is running or ready."""
    if is_patched():
        return whereabouts_of_greenlet(thread)
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return None
    # On a busy machine a thread can stand still without a processor. The counts of the kernel
    # tell. A thread that waits for the GIL wakes up every few milliseconds.
    switches = ""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
        if "\nState:\tR" in status:
            return None
        switches = status[status.index("\nvoluntary_ctxt_switches") :]
    return frame.f_code, frame.f_lasti, switches


def whereabouts_of_greenlet(thread: threading.Thread) -> object:
    from greenlet import greenlet  # noqa: PLC0415 (only where gevent is installed)

    # The number of a thread is the address of its greenlet.
    for found in gc.get_objects():
        if id(found) == thread.ident and isinstance(found, greenlet):
            frame = found.gr_frame  # None if it runs or has ended
            return frame and (frame.f_code, frame.f_lasti)
    return None


class Recorder:
    """A callback that records its arguments and the thread that called it."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[tuple[tuple[Any, ...], threading.Thread]] = (
            queue.SimpleQueue()
        )

    def __call__(self, *args: Any) -> None:
        self.calls.put((args, threading.current_thread()))

    def get(self) -> Any:
        """Wait for the next call, and return its argument, or None if it has none."""
        args, _ = self.calls.get(timeout=SOON)
        return args[0] if args else None

    def thread(self) -> threading.Thread:
        """Wait for the next call, and return its thread."""
        return self.calls.get(timeout=SOON)[1]

    @property
    def waiting(self) -> int:
        """The number of calls that `get` has not returned yet."""
        return self.calls.qsize()


class Interrupting(dict[Any, Any]):
    """A table of legal moves that lets another thread run between the check and the move."""

    def __init__(self, table: dict[Any, Any], state: object) -> None:
        super().__init__(table)
        self.state = state
        self.call: Callable[[], object] | None = None
        self.thread: Thread[object] | None = None

    def __getitem__(self, state: object) -> Any:
        found = super().__getitem__(state)
        if state is self.state and self.call is not None:
            call, self.call = self.call, None
            self.thread = Thread(call)
            self.thread._thread.join(0.3)  # the thread ends now, or waits for its turn
        return found
