"""Connection callbacks, on one thread for each connection, started when needed."""

from __future__ import annotations

import logging
import queue
import signal
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING, TypeVar, cast

from .. import errors
from .._fast import HandoffQueue, forks
from ..errors import CallbackError
from .events import BackgroundError
from .monkey import NativeThread, is_patched, main_hub, start_greenlet
from .sync import ForkSafeRLock, WeakCollection

if TYPE_CHECKING:
    from collections.abc import Callable

    from .events import ConnectionEvent, ConnectionEvents

Result = TypeVar("Result")
Returned = TypeVar("Returned")

logger = logging.getLogger("jsync.connection")

MAX_WAITING = 10_000
CHECK_SECONDS = 0.25
"""The interval at which a wait for user code checks whether it is still needed."""


class ThreadFactory:
    """Starts threads with the signal mask of the thread that made the factory.

    The I/O thread blocks all signals. Without this, a thread that it starts would block
    them too, and so would every process that user code starts on that thread.

    If gevent has patched the process, user code runs in greenlets of its main thread.
    """

    def __init__(self) -> None:
        self._hub = main_hub()
        if sys.platform != "win32":  # on Windows, threads have no mask
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def start(self, name: str, run: Callable[[], object]) -> threading.Thread:
        """Start a daemon thread, for code of the user."""
        if self._hub is not None:
            return start_greenlet(self._hub, name, run)
        return self.start_native(name, run)

    def start_native(self, name: str, run: Callable[[], object]) -> threading.Thread:
        """Start a daemon thread that is no greenlet, for code that blocks or computes."""

        def unmask_and_run() -> None:
            if sys.platform != "win32":
                signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            run()

        thread = threading.Thread(target=unmask_and_run, name=name, daemon=True)
        if is_patched():
            NativeThread(thread.run, name).start()
        else:
            thread.start()
        return thread


class CallbackExecutor:
    """Calls the user's callbacks one after the other, on a separate thread.

    An exception of a callback goes to `on_error`. It is logged if there is no `on_error`,
    or if `on_error` raised it. It never reaches the connection.
    """

    def __init__(
        self,
        name: str,
        thread_factory: ThreadFactory,
        on_error: Callable[[Exception], object] | None,
        later: Callable[[Callable[[], object]], object] = lambda call: None,
    ) -> None:
        """If the thread cannot be started, `later` gets a call that retries the start."""
        self._name = name
        self._later = later
        self._thread_factory = thread_factory
        self._on_error = on_error
        self._queue: HandoffQueue[Callable[[], object] | None] = HandoffQueue()
        # Re-entrant: a signal handler may interrupt `submit_unbounded` and submit as well.
        self._lock = ForkSafeRLock()
        self._started = False
        """True if a thread runs, or is being started."""
        self._running = False
        """True once a thread makes calls. It stays the only one until the end."""
        self._closed = False
        self._forks = forks()
        self._watchers: WeakCollection[ConnectionEvents] = WeakCollection()

    def watch(self, events: ConnectionEvents) -> None:
        """Pass each later event to `events`, while that exists."""
        self._watchers.add(events)

    def dispatch(
        self,
        event: ConnectionEvent,
        callback: Callable[..., object] | None,
        *args: object,
    ) -> bool:
        """Pass `event` to all watchers, and `submit` its callback."""
        for watcher in self._watchers.all():
            watcher._put(event)
        return self.submit(callback, *args)

    def submit(self, callback: Callable[..., object] | None, *args: object) -> bool:
        """Schedule `callback(*args)`. Return False if it is not called. Never blocks."""
        if callback is None:
            return False
        if len(self._queue) >= MAX_WAITING:
            logger.error(
                "%s: dropped a call of %r: too many callbacks wait for one that has not "
                "returned",
                *(self._name, callback),
            )
            return False
        return self.submit_unbounded(lambda: callback(*args))

    def submit_unbounded(self, call: Callable[[], object]) -> bool:
        """Schedule `call` regardless of the number of waiting calls.

        Return False if closed, and in a forked child, which a new thread would keep alive.
        """
        with self._lock:
            if self._closed or forks() != self._forks:
                return False
            self._queue.put(call)
            started, self._started = self._started, True
        if not started:
            self._start()
        return True

    def _retry_start(self) -> None:
        with self._lock:
            starts = not self._closed and not self._started and len(self._queue) > 0
            self._started = self._started or starts
        if starts:
            self._start()

    def _start(self) -> None:
        """Start the thread. If that fails, the next call starts one, or `later` does."""
        try:
            self._thread_factory.start(f"{self._name}-callbacks", self._run)
        except RuntimeError:
            # The system has no more threads, or the interpreter is exiting, when none can
            # be started since Python 3.12: see `run_pending_at_exit`.
            self._started = False
            self._later(self._retry_start)
        except BaseException:  # Ctrl-C, after which the thread may still run
            self._started = False
            raise

    def report_exception(self, what: str, error: BaseException) -> None:
        """Report an exception of user code, on the callback thread."""
        if self._on_error is None:
            logger.error("%s: %s raised", self._name, what, exc_info=error)
            return
        try:
            self._on_error(as_callback_error(what, error))
        except BaseException:
            logger.exception("%s: on_error raised", self._name)

    def run_pending_at_exit(self) -> None:
        """Make the waiting calls at interpreter exit, if no thread could be started."""
        if self._closed and not self._started:
            self._run()

    def report(self, error: Exception) -> None:
        """Pass `error` to `on_error`, or log it if `on_error` is not called.

        It is not called if the user gave none, and after the connection is closed: a
        finaliser may report then, where user code could block.
        """
        if not self.dispatch(BackgroundError(error=error), self._on_error, error):
            logger.warning("%s: %s: %s", self._name, type(error).__name__, error)

    def report_to(
        self, on_error: Callable[[Exception], object] | None, error: Exception
    ) -> None:
        """Pass `error` to the `on_error` of a call, or `report` it if there is none."""
        if on_error is None:
            self.report(error)
        else:
            self.submit(on_error, error)

    def close(self) -> None:
        """Accept no more calls. Submitted ones are still made. Does not wait."""
        with self._lock:
            self._closed = True
            starts = not self._started and len(self._queue) > 0
            self._started = self._started or starts
            self._queue.put(None)
        if starts:
            self._start()

    def _run(self) -> None:
        with self._lock:
            if self._running:
                return
            self._running = True
        while (call := self._queue.get()) is not None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 (SystemExit would end the thread)
                self.report_exception("a connection callback", error)


def as_callback_error(what: str, error: BaseException) -> CallbackError:
    """Return a `CallbackError` that names the callable, with `error` as its cause."""
    try:
        text = str(error)
    except BaseException as second:  # noqa: BLE001 (user code, in `__str__`)
        text = f"(its text raised {type(second).__name__})"
    wrapped = CallbackError(f"{what} raised {type(error).__name__}: {text}")
    wrapped.__cause__ = error
    return wrapped


def call_with_timeout(
    seconds: float,
    thread_factory: ThreadFactory,
    what: str,
    function: Callable[[], Result],
    check: Callable[[], object] = lambda: None,
) -> Result:
    """Call user code on a new thread, and wait at most `seconds` for it.

    `check` is called a few times a second meanwhile, and may raise to end the wait. An
    exception of the user code is raised here. SystemExit and other exceptions that would end
    the thread of the caller are wrapped in a `CallbackError`.
    """
    done: HandoffQueue[tuple[Result, None] | tuple[None, Exception]] = HandoffQueue()

    def run() -> None:
        try:
            done.put((function(), None))
        except Exception as error:  # noqa: BLE001 (user code)
            done.put((None, error))
        except BaseException as error:  # noqa: BLE001 (user code, SystemExit for one)
            done.put((None, as_callback_error(what, error)))

    thread_factory.start(f"jsync-{what}", run)
    result, raised = _get(done, what, seconds, check)
    if raised is not None:
        raise raised
    return cast("Result", result)


def _get(
    done: HandoffQueue[Returned], what: str, seconds: float, check: Callable[[], object]
) -> Returned:
    deadline = monotonic() + seconds
    while True:
        left = deadline - monotonic()
        try:
            return done.get(max(0.0, min(left, CHECK_SECONDS)))
        except queue.Empty:
            check()
            if left <= 0:
                raise errors.TimeoutError(
                    f"{what} took longer than the {seconds:.1f} s that were left"
                ) from None
