"""Starts, watches, replaces and ends several processes of a worker."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..errors import WorkerError
from ..health import ALIVE_SECONDS, FRESH_SECONDS, REPORT_SECONDS
from .metrics import HandlerMetrics, WorkerReport, prometheus_text
from .process import REPORT_VARIABLE, STOP_SIGNALS
from .process_pool import HEARTBEAT_SECONDS, START_SECONDS, ProcessPool, ProcessState
from .sources import SLOT_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

logger = logging.getLogger("jsync.worker")

_STOP_MARGIN: Final = 5.0
"""Seconds beyond the grace until a process is killed."""
_NO_MORE_REPORTS: Final = b"\n\n"
"""Written after the last report. The first line break ends a report that was cut off."""


class Process:
    """A running process, and its last report."""

    def __init__(self, command: Sequence[str], place: int) -> None:
        reading, writing = os.pipe()
        try:
            reports, passed = _inherited(writing)
            self._popen = subprocess.Popen(  # noqa: S603 (our own command line)
                command,
                # The end of this pipe tells the process that the supervisor is gone.
                stdin=subprocess.PIPE,
                env={
                    **os.environ,
                    REPORT_VARIABLE: str(reports),
                    SLOT_VARIABLE: str(place),
                },
                **passed,
            )
        except BaseException:
            os.close(reading)
            os.close(writing)
            raise
        self.pid = self._popen.pid
        self.report = WorkerReport()
        self.reported_at = self.progressed = monotonic()
        """The times of the last sign of life, and of the last progress of the start."""
        self.kill_at: float | None = None
        self._reading, self._writing = reading, writing
        self._reader: threading.Thread | None = None

    def read_reports(self, on_report: Callable[[WorkerReport], object]) -> None:
        """Read the reports on a thread. Raises `RuntimeError` if there are no more threads."""
        reader = threading.Thread(
            target=self._read, args=(on_report,), name="jsync-worker-read", daemon=True
        )
        reader.start()
        self._reader = reader

    def wait(self) -> int:
        """Wait until the process has ended, and return the exit code.

        Children of the process may live longer and keep the pipe of the reports open, so
        this waits for the end of the process, and not of the pipe.
        """
        code = self._popen.wait()
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        with contextlib.suppress(OSError):
            os.write(self._writing, _NO_MORE_REPORTS)
        os.close(self._writing)
        if self._reader is None:
            os.close(self._reading)
        else:
            self._reader.join()
        return code

    def _read(self, on_report: Callable[[WorkerReport], object]) -> None:
        decode = msgspec.json.Decoder(WorkerReport).decode
        with open(self._reading, "rb") as lines:
            for line in lines:
                if line == b"\n":
                    return
                with contextlib.suppress(msgspec.DecodeError):  # SIGKILL cut the line
                    report, before = decode(line), self.report
                    self.reported_at = monotonic()
                    if report.attempts != before.attempts:
                        self.progressed = self.reported_at
                    self.report = report
                    on_report(report)

    def is_ready(self, now: float) -> bool:
        """Return whether a recent report says that the process is ready."""
        return self.report.ready and now - self.reported_at < FRESH_SECONDS

    def end(self, deadline: float) -> None:
        """Make the process drain. It is killed if it runs after `deadline`."""
        self.kill_at = deadline
        if sys.platform == "win32":  # `terminate` would kill it there
            assert self._popen.stdin is not None
            self._popen.stdin.close()
        else:
            self._popen.terminate()

    def kill(self) -> None:
        """Kill the process immediately."""
        self.kill_at = None
        self._popen.kill()


def _inherited(descriptor: int) -> tuple[int, dict[str, Any]]:
    """Make a descriptor inheritable.

    Returns its number in the new process, and keyword arguments for `Popen`.
    """
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 (of Windows)

        handle = msvcrt.get_osfhandle(descriptor)
        os.set_handle_inheritable(handle, True)
        attributes = {"handle_list": [handle]}
        return handle, {
            "startupinfo": subprocess.STARTUPINFO(lpAttributeList=attributes)
        }
    return descriptor, {"pass_fds": [descriptor]}


class Supervisor:
    """Keeps processes of a worker running, on the main thread."""

    def __init__(
        self,
        command: Sequence[str],
        processes: int = 1,
        grace: float = 30.0,
        start_timeout: float = START_SECONDS,
        heartbeat_timeout: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._command = command
        self._grace = grace
        self._start_timeout = start_timeout
        self._heartbeat_timeout = heartbeat_timeout
        self._pool = ProcessPool(processes)
        self._processes: dict[int, Process] = {}
        self._next = 0
        self._past: dict[str, HandlerMetrics] = {}
        self._lock = threading.Lock()
        self._looped_at = self._listens_since = monotonic()
        # A signal handler may interrupt any code, so it only puts into a queue.
        self._events: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    # Requests over HTTP, on other threads ---------------------------------------------

    def is_alive(self) -> bool:
        """Return whether the supervisor and all processes gave recent signs of life."""
        now = monotonic()
        with self._lock:
            reported = [process.reported_at for process in self._processes.values()]
        return all(now - at < ALIVE_SECONDS for at in [self._looped_at, *reported])

    def is_ready(self) -> bool:
        """Return whether enough processes have recently reported that they are ready."""
        return self._ready_count() >= self._pool.slots and not self._pool.leaving

    def _ready_count(self) -> int:
        now = monotonic()
        with self._lock:
            return sum(process.is_ready(now) for process in self._processes.values())

    def metrics(self) -> str:
        """Return the counts of all processes, including those that have ended."""
        with self._lock:
            total = {name: msgspec.structs.replace(f) for name, f in self._past.items()}
            reports = [process.report for process in self._processes.values()]
            for report in reports:
                for name, metrics in report.consumers.items():
                    total.setdefault(name, HandlerMetrics()).add(metrics)
        return prometheus_text(
            total, self._pool.slots, self._ready_count(), self._pool.restarts
        )

    # The loop -------------------------------------------------------------------------

    def run(self) -> None:
        """Keep the processes running until SIGTERM or SIGINT. Blocks.

        SIGHUP replaces each process by a new one. Windows has Ctrl-C and Ctrl-Break alone.

        Raises:
            WorkerError: The processes are in a crash loop, or cannot be started.
        """
        with self._signals():
            try:
                while not self._pool.is_over:
                    self._run_once()
            finally:
                for process in list(self._processes.values()):
                    process.kill()
        if self._pool.fatal is not None:
            raise WorkerError(self._pool.fatal)

    def replace(self) -> None:
        """Replace each process by a new one, as SIGHUP does. For any thread."""
        self._events.put(self._pool.rolling_restart)

    def _run_once(self) -> None:
        pool, now = self._pool, monotonic()
        if now - self._looped_at >= FRESH_SECONDS:
            # The supervisor itself was suspended, and has read no reports during that time.
            self._listens_since = now
        self._looped_at = now
        for place in pool.due(now):
            self._start(place)
        for number in pool.superseded():
            self._end(number)
        replaced = pool.to_replace()
        if replaced is not None:
            self._start(replaced)
        for number in pool.starting():
            process = self._processes[number]
            if process.kill_at is None and (
                now - process.progressed >= self._start_timeout
            ):
                logger.error(
                    "process %d has not started within %g s",
                    *(process.pid, self._start_timeout),
                )
                process.end(now + self._grace + _STOP_MARGIN)
        for number in pool.serving():
            process = self._processes[number]
            silent = now - max(process.reported_at, self._listens_since)
            if process.kill_at is None and silent >= self._heartbeat_timeout:
                logger.error(
                    "process %d has given no sign of life for %g s",
                    *(process.pid, silent),
                )
                process.end(now + self._grace + _STOP_MARGIN)
        waits = [REPORT_SECONDS]
        due = pool.next_due()
        if due is not None:
            waits.append(due - now)
        for process in list(self._processes.values()):
            if process.kill_at is not None:
                if process.kill_at <= now:
                    logger.error(
                        "killing process %d: it did not end in time", process.pid
                    )
                    process.kill()
                else:
                    waits.append(process.kill_at - now)
        with contextlib.suppress(queue.Empty):
            self._events.get(timeout=max(0.0, min(waits)))()

    def _start(self, place: int) -> None:
        number, self._next = self._next, self._next + 1
        try:
            process = Process(self._command, place)
        except OSError as error:  # for example, no descriptors or no memory
            self._not_started(place, error)
            return

        def on_report(report: WorkerReport) -> None:
            if report.ready:
                self._events.put(lambda: self._ready(number))

        def follow() -> None:
            code = process.wait()
            self._events.put(lambda: self._ended(number, code))

        follower = threading.Thread(
            target=follow, name="jsync-worker-follow", daemon=True
        )
        try:
            process.read_reports(on_report)
            follower.start()
        except RuntimeError as error:  # no more threads
            process.kill()
            process.wait()
            self._not_started(place, error)
            return
        with self._lock:
            self._processes[number] = process
        self._pool.started(number, place)
        logger.info("process %d has started", process.pid)

    def _not_started(self, place: int, error: Exception) -> None:
        logger.warning("a process cannot be started: %s", error)
        self._pool.not_started(place, monotonic())
        if self._pool.fatal is not None:
            self._leave()

    def _ready(self, number: int) -> None:
        if number not in self._processes:
            return
        replaced = self._pool.is_ready(number, monotonic())
        if replaced is not None:
            self._end(replaced)

    def _end(self, number: int) -> None:
        self._processes[number].end(self._deadline())

    def _ended(self, number: int, code: int) -> None:
        with self._lock:
            process = self._processes.pop(number)
            for name, metrics in process.report.consumers.items():
                past = self._past.setdefault(name, HandlerMetrics())
                past.add(metrics.without_gauges())
        # A terminal or systemd may also send a signal, after the process has drained.
        description = (
            self._pool.states[number].current is ProcessState.STOPPING
            and -code in STOP_SIGNALS
        )
        level = logging.INFO if description or code == 0 else logging.ERROR
        logger.log(level, "process %d has ended: %s", process.pid, _format_exit(code))
        self._pool.ended(number, code, monotonic())
        if self._pool.fatal is not None:
            self._leave()

    def _leave(self) -> None:
        if not self._pool.leaving:
            logger.info("ending: handlers have %g s to return", self._grace)
        for number in self._pool.shut_down():
            self._end(number)

    def _deadline(self) -> float:
        return monotonic() + self._grace + _STOP_MARGIN

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        handlers = dict.fromkeys(STOP_SIGNALS, self._leave)
        if sys.platform != "win32":
            handlers[signal.SIGHUP] = self._pool.rolling_restart
        before = {
            number: signal.signal(number, lambda *_, act=act: self._events.put(act))
            for number, act in handlers.items()
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _format_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
