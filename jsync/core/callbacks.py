"""Where connection callbacks run: one thread for each connection, begun when needed."""

from __future__ import annotations

import logging
import queue
import signal
import sys
import threading
from typing import TYPE_CHECKING, TypeVar, cast

from ..errors import CallbackError, TimeoutError as LateError
from .events import BackgroundError
from .shared import Living, RLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from .events import ConnectionEvent, ConnectionEvents

Result = TypeVar("Result")

logger = logging.getLogger("jsync.connection")

MOST_WAITING = 10_000


class Spawner:
    """Starts threads with the signal mask of the thread that made this.

    The I/O thread blocks all signals, and a thread it starts would too, and so would
    every process that user code starts from there.
    """

    def __init__(self) -> None:
        if sys.platform != "win32":  # where threads have no mask
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def start(self, name: str, run: Callable[[], object]) -> threading.Thread:
        """Start a daemon thread."""

        def unmask_and_run() -> None:
            if sys.platform != "win32":
                signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            run()

        thread = threading.Thread(target=unmask_and_run, name=name, daemon=True)
        thread.start()
        return thread


class Callbacks:
    """Calls what the user gave, one after the other, on a thread of its own.

    An exception of a callback goes to `on_error`, and to the log when there is none or
    when it is `on_error` that raised: it never reaches the connection.
    """

    def __init__(
        self,
        name: str,
        spawner: Spawner,
        on_error: Callable[[Exception], object] | None,
        later: Callable[[Callable[[], object]], object] = lambda call: None,
    ) -> None:
        """If the thread cannot be started, `later` is asked to retry the start."""
        self._name = name
        self._later = later
        self._spawner = spawner
        self._on_error = on_error
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = (
            queue.SimpleQueue()
        )
        # Re-entrant: a signal handler may interrupt us and post as well.
        self._lock = RLock()
        self._begun = False
        """Whether a thread runs, or is being started."""
        self._running = False
        """Whether one has begun to call. It does so to the end, and no other one does."""
        self._closed = False
        self._watchers: Living[ConnectionEvents] = Living()

    def watch(self, events: ConnectionEvents) -> None:
        """Give `events` each event from now on, while it exists."""
        self._watchers.add(events)

    def announce(
        self,
        event: ConnectionEvent,
        callback: Callable[..., object] | None,
        *args: object,
    ) -> bool:
        """Give `event` to all who watch, and `post` its callback."""
        for watcher in self._watchers.all():
            watcher._put(event)
        return self.post(callback, *args)

    def post(self, callback: Callable[..., object] | None, *args: object) -> bool:
        """Have `callback(*args)` called soon; never blocks. False when it is not called."""
        if callback is None:
            return False
        if self._queue.qsize() >= MOST_WAITING:
            logger.error(
                "%s: dropped a call of %r: too many callbacks wait for one that has not "
                "returned",
                *(self._name, callback),
            )
            return False
        return self.put(lambda: callback(*args))

    def put(self, call: Callable[[], object]) -> bool:
        """`post` however many wait already; False when closed."""
        with self._lock:
            if self._closed:
                return False
            self._queue.put(call)
            begun, self._begun = self._begun, True
        if not begun:
            self._begin()
        return True

    def _begin_again(self) -> None:
        with self._lock:
            begins = not self._closed and not self._begun and self._queue.qsize() > 0
            self._begun = self._begun or begins
        if begins:
            self._begin()

    def _begin(self) -> None:
        """Start the thread. If that fails, the next call starts one, or `later` does."""
        try:
            self._spawner.start(f"{self._name}-callbacks", self._run)
        except RuntimeError:
            # The system has no more threads. Or the interpreter is exiting, where none can
            # be started from 3.12 on: see call_here.
            self._begun = False
            self._later(self._begin_again)
        except BaseException:  # Ctrl-C: it may have been started all the same
            self._begun = False
            raise

    def raised(self, what: str, error: BaseException) -> None:
        """Report what user code raised, on this object's thread."""
        if self._on_error is None:
            logger.error("%s: %s raised", self._name, what, exc_info=error)
            return
        try:
            self._on_error(wrap(what, error))
        except BaseException:
            logger.exception("%s: on_error raised", self._name)

    def call_here(self) -> None:
        """At interpreter exit: call what no thread could be begun for."""
        if self._closed and not self._begun:
            self._run()

    def report(self, error: Exception) -> None:
        """Give `error` to `on_error`, or to the log when that is not called.

        That is when there is none, and once the connection is closed: who tells then may be
        a finaliser, where user code could block.
        """
        if not self.announce(BackgroundError(error=error), self._on_error, error):
            logger.warning("%s: %s: %s", self._name, type(error).__name__, error)

    def close(self) -> None:
        """Take no more; what was posted is still called. Does not wait."""
        with self._lock:
            self._closed = True
            begins = not self._begun and self._queue.qsize() > 0
            self._begun = self._begun or begins
            self._queue.put(None)
        if begins:
            self._begin()

    def _run(self) -> None:
        with self._lock:
            if self._running:
                return
            self._running = True
        while (call := self._queue.get()) is not None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 (SystemExit would end the thread)
                self.raised("a connection callback", error)


def wrap(what: str, error: BaseException) -> CallbackError:
    """A `CallbackError` that says what raised, with `error` as its cause."""
    try:
        text = str(error)
    except BaseException as second:  # noqa: BLE001 (user code, in `__str__`)
        text = f"(its text raised {type(second).__name__})"
    wrapped = CallbackError(f"{what} raised {type(error).__name__}: {text}")
    wrapped.__cause__ = error
    return wrapped


def call_within(
    seconds: float, spawner: Spawner, what: str, function: Callable[[], Result]
) -> Result:
    """Call user code on a thread of its own and wait for it, but not for ever.

    What it raises is raised here. What would end the thread, as SystemExit does, comes as a
    `CallbackError`: it must not end the thread of the caller.
    """
    done: queue.SimpleQueue[tuple[Result, None] | tuple[None, Exception]] = (
        queue.SimpleQueue()
    )

    def run() -> None:
        try:
            done.put((function(), None))
        except Exception as error:  # noqa: BLE001 (user code)
            done.put((None, error))
        except BaseException as error:  # noqa: BLE001 (user code, SystemExit for one)
            done.put((None, wrap(what, error)))

    spawner.start(f"jsync-{what}", run)
    try:
        result, raised = done.get(timeout=max(0.0, seconds))
    except queue.Empty:
        raise LateError(
            f"{what} took longer than the {seconds:.1f} s that were left"
        ) from None
    if raised is not None:
        raise raised
    return cast("Result", result)
