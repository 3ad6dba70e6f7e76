"""One process of a worker: its signals, and its reports to the supervisor."""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import queue
import signal
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, overload

import msgspec

from .. import errors
from ..errors import (
    AuthenticationError,
    DrainTimeoutError,
    NoServersError,
    ProtocolError,
    TLSError,
)
from ..health import REPORT_SECONDS
from .metrics import WorkerReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..connection import Connection

logger = logging.getLogger("jsync.worker")

REPORT_VARIABLE: Final = "JSYNC_WORKER_REPORTS"
"""The environment variable with the file descriptor for the reports of a process.

On Windows it is a handle. The supervisor sets it.
"""
LAG_SECONDS: Final = 5.0
"""Seconds between two measurements of the lag, which take one request for each consumer."""

STOP_SIGNALS: Final = [signal.SIGTERM, signal.SIGINT]
"""The signals that end a process. On Windows, only Ctrl-C and Ctrl-Break come."""
if sys.platform == "win32":
    STOP_SIGNALS.append(signal.SIGBREAK)
_MAX_WAIT: Final = 0.1 if sys.platform == "win32" else 1.0
"""The longest wait of the main thread in seconds, since Python may call our signal handler
only after the wait. On Windows no signal ends a wait. On other systems, it is not ended by
a signal that came just before, or by Ctrl-C if a library such as polars has replaced the
handler."""

_INITIAL_BACKOFF: Final = 1.0
_MAX_BACKOFF: Final = 10.0
"""Seconds between attempts to start without a server: the first time, and at most."""
_PERMANENT_ERRORS: Final = (AuthenticationError, TLSError, ProtocolError)
"""The failures to connect that no other attempt can fix."""


class RunnableWorker(Protocol):
    """A worker that has been started."""

    def wait(self) -> bool:
        """Block until the worker ends, and raise the error that ended it."""

    def stop(self, grace: float) -> None:
        """Drain, and end within `grace` seconds."""

    def report(self, *, lag: bool = False) -> WorkerReport:
        """Return the counts so far."""


class ProcessEvent(enum.Enum):
    """An event of a process."""

    STARTED = enum.auto()
    """The attempt to start is over. If it failed, the event has its error."""
    SIGNAL = enum.auto()
    ALONE = enum.auto()
    """The supervisor is gone."""
    ENDED = enum.auto()
    """The worker ended with an error."""
    DRAINED = enum.auto()


Event = tuple[ProcessEvent, BaseException | None]
Events = queue.SimpleQueue[Event]


def run(
    connect: Callable[[], Connection],
    start: Callable[[Connection], RunnableWorker],
    grace: float,
) -> None:
    """Run a worker on the main thread until a signal, or until its supervisor is gone."""
    events: Events = queue.SimpleQueue()
    place = os.environ.pop(REPORT_VARIABLE, None)
    reports = None if place is None else ReportWriter(_descriptor(int(place)))
    with _signals(lambda: events.put((ProcessEvent.SIGNAL, None))):
        if reports is not None:
            lifeline = _own_input()
            _daemon("lifeline", lambda: _await_end_of_input(lifeline, events))
            reports.start()
        started = _start_until_stopped(connect, start, events, reports, grace)
        if started is None:
            return
        nc, running = started
        try:
            _watch(running, events)
            if reports is not None:
                reports.started(running)
            try:
                _, error = _next(events)
            finally:
                # Ctrl-C reaches us from the terminal and from the supervisor, which
                # also kills.
                _drain(running, events, grace, immediate=reports is None)
                if reports is not None:
                    reports.end()
            if error is not None:
                raise error
        finally:
            nc.close()


class _Start:
    """An attempt to connect and start, on a thread, because `on_start` may take long."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        start: Callable[[Connection], RunnableWorker],
        events: Events,
    ) -> None:
        self._connect, self._start, self._events = connect, start, events
        self.nc: Connection | None = None
        self.running: RunnableWorker | None = None
        self._is_over = False
        _daemon("start", self._run)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self.nc = nc = self._connect()
            try:
                if not self._is_over:
                    self.running = self._start(nc)
            finally:
                if self.running is None:
                    nc.close()
        except BaseException as failure:  # noqa: BLE001 (the main thread raises it)
            error = failure
        self._events.put((ProcessEvent.STARTED, error))

    def end(self, grace: float) -> None:
        """Wait until the attempt ends.

        After a short wait, this closes the connection, so that calls of jsync raise.
        """
        event = _next(self._events, _INITIAL_BACKOFF)
        if event is None:
            self._close()
            event = _next(self._events, grace)
        if event is None or event[0] is not ProcessEvent.STARTED:
            self._close()
            logger.warning("the start of the worker does not end; it is abandoned")

    def _close(self) -> None:
        self._is_over = True
        if self.nc is not None:
            self.nc.close()


def _start_until_stopped(
    connect: Callable[[], Connection],
    start: Callable[[Connection], RunnableWorker],
    events: Events,
    reports: ReportWriter | None,
    grace: float,
) -> tuple[Connection, RunnableWorker] | None:
    """Connect and start, and retry while no server answers. None if a signal came first."""
    pause = _INITIAL_BACKOFF
    while True:
        attempt = _Start(connect, start, events)
        word, error = event = _next(events)
        if word is not ProcessEvent.STARTED:
            attempt.end(grace)
            events.put(event)
        if attempt.nc is not None and attempt.running is not None:
            return attempt.nc, attempt.running
        if error is None:
            return None
        if not isinstance(
            error, errors.ConnectionError | errors.TimeoutError
        ) or _is_permanent(error):
            raise error
        if reports is not None:
            reports.attempts += 1
        logger.warning("cannot start: %s; retrying in %g s", error, pause)
        if _next(events, pause) is not None:
            return None
        pause = min(2 * pause, _MAX_BACKOFF)


def _is_permanent(error: Exception) -> bool:
    """Return whether another attempt would fail at every server of the list."""
    if isinstance(error, NoServersError) and error.errors:
        return all(map(_is_permanent, error.errors.values()))
    return isinstance(error, _PERMANENT_ERRORS)


@overload
def _next(events: Events) -> Event: ...
@overload
def _next(events: Events, seconds: float) -> Event | None: ...
def _next(events: Events, seconds: float | None = None) -> Event | None:
    """Wait for the next event. None: no event came in time."""
    deadline = None if seconds is None else monotonic() + seconds
    while True:
        left = None if deadline is None else max(0.0, deadline - monotonic())
        left = _MAX_WAIT if left is None else min(left, _MAX_WAIT)
        with contextlib.suppress(queue.Empty):
            return events.get(timeout=left)
        if deadline is not None and monotonic() >= deadline:
            return None


def _descriptor(place: int) -> int:
    """Return the file descriptor for the reports, which child programs do not inherit."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 (of Windows)

        os.set_handle_inheritable(place, False)
        return msvcrt.open_osfhandle(place, os.O_WRONLY)
    # Otherwise a program that a handler starts could keep the pipe open for longer than
    # this process.
    os.set_inheritable(place, False)
    return place


def _own_input() -> int:
    """Move the standard input to another descriptor, and return the descriptor.

    Programs that handlers start would inherit the standard input, and could wait for its
    end, which comes only with the end of the supervisor.
    """
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return lifeline


def _watch(running: RunnableWorker, events: Events) -> None:
    def wait() -> None:
        try:
            running.wait()
        except Exception as error:  # noqa: BLE001 (the main thread raises it)
            events.put((ProcessEvent.ENDED, error))

    _daemon("end", wait)


def _drain(
    running: RunnableWorker, events: Events, grace: float, *, immediate: bool
) -> None:
    """Stop the worker. If `immediate`, another signal ends the wait."""

    def drain() -> None:
        error = None
        try:
            running.stop(grace)
        except DrainTimeoutError as late:
            error = late
        events.put((ProcessEvent.DRAINED, error))

    _daemon("stop", drain)
    while True:
        word, error = _next(events)
        if word is ProcessEvent.SIGNAL and immediate:
            error = DrainTimeoutError("a second signal came before the handlers ended")
        elif word is not ProcessEvent.DRAINED:
            continue
        if error is not None:
            raise error
        return


@contextlib.contextmanager
def _signals(stop: Callable[[], object]) -> Iterator[None]:
    # A signal handler may interrupt any code, so it only puts into a queue.
    before = [signal.signal(number, lambda *_: stop()) for number in STOP_SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(STOP_SIGNALS, before, strict=True):
            signal.signal(number, handler)


def _daemon(name: str, run: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=run, name=f"jsync-worker-{name}", daemon=True)
    thread.start()
    return thread


def _await_end_of_input(lifeline: int, events: Events) -> None:
    """Stop when the supervisor is gone. Even after SIGKILL, the kernel closes its pipes."""
    while os.read(lifeline, 4096):
        pass
    events.put((ProcessEvent.ALONE, None))


class ReportWriter:
    """Reports to the supervisor: one each second, and the last one at the end.

    Reports are signs of life, so this never waits for a server. Another thread measures the
    lag.
    """

    def __init__(self, descriptor: int) -> None:
        self.attempts = 0
        """The attempts to start that failed because no server answered."""
        self._running: RunnableWorker | None = None
        """The worker, once it has started."""
        self._descriptor = descriptor
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to report."""
        self._thread = _daemon("reports", self._run)

    def started(self, running: RunnableWorker) -> None:
        """Report immediately that the worker is ready, and its counts from now on."""
        self._running = running
        self._wake.set()
        _daemon("lag", lambda: self._measure(running))

    def end(self) -> None:
        """Write the last report."""
        self._over.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(REPORT_SECONDS)

    def _measure(self, running: RunnableWorker) -> None:
        while True:
            running.report(lag=True)
            if self._over.wait(LAG_SECONDS):
                return

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while not self._over.is_set():
                self._write()
                if self._wake.wait(REPORT_SECONDS):
                    self._wake.clear()
            self._write()

    def _write(self) -> None:
        running = self._running
        report = WorkerReport() if running is None else running.report()
        report.attempts = self.attempts
        os.write(self._descriptor, msgspec.json.encode(report) + b"\n")
