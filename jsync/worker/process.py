"""One process of a worker: its signals, and its reports to the supervisor."""

from __future__ import annotations

import contextlib
import enum
import os
import queue
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from ..errors import DrainTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..connection import Connection
    from .figures import Report

VARIABLE: Final = "JSYNC_WORKER_REPORTS"
"""In the environment of a process of a supervisor: where its reports go.

A file descriptor, or on Windows a handle.
"""
REPORT_SECONDS: Final = 1.0
LAG_REPORTS: Final = 5
"""Every fifth report has the lag, which takes one request for each consumer."""

STOPS: Final = [signal.SIGTERM, signal.SIGINT]
"""The signals that ask a process to end. Only Ctrl-C and Ctrl-Break come on Windows."""
if sys.platform == "win32":
    STOPS.append(signal.SIGBREAK)
_GLANCE: Final = 0.1
"""On Windows no signal ends the wait of the main thread, so it looks this often."""


class Running(Protocol):
    """A worker that has been started."""

    def wait(self) -> bool:
        """Block until the worker ends, and raise the error that ended it."""

    def stop(self, grace: float) -> None:
        """Drain, and end."""

    def report(self, *, lag: bool = False) -> Report:
        """The counts so far."""


class Word(enum.Enum):
    """An event of a process."""

    SIGNAL = enum.auto()
    ALONE = enum.auto()
    """The supervisor is gone."""
    ENDED = enum.auto()
    """The worker ended by itself."""
    DRAINED = enum.auto()


Events = queue.SimpleQueue[tuple[Word, Exception | None]]


def run(
    connect: Callable[[], Connection],
    start: Callable[[Connection], Running],
    grace: float,
) -> None:
    """Run a worker on the main thread until a signal, or until its supervisor is gone."""
    events: Events = queue.SimpleQueue()
    reports = os.environ.pop(VARIABLE, None)
    with _signals(lambda: events.put((Word.SIGNAL, None))):
        nc = connect()
        try:
            running = start(nc)
            _watch(running, events)
            over, teller = threading.Event(), None
            if reports is not None:
                _daemon("lifeline", lambda: _await_end_of_input(events))
                descriptor = _descriptor(int(reports))
                teller = _daemon("reports", lambda: _tell(running, descriptor, over))
            try:
                _, error = _next(events)
            finally:
                # Ctrl-C reaches us from the terminal and from the supervisor, which
                # also kills.
                _drain(running, events, grace, hasty=reports is None)
                over.set()
                if teller is not None:
                    teller.join(REPORT_SECONDS)
            if error is not None:
                raise error
        finally:
            nc.close()


def _next(events: Events) -> tuple[Word, Exception | None]:
    while sys.platform == "win32":
        with contextlib.suppress(queue.Empty):
            return events.get(timeout=_GLANCE)
    return events.get()


def _descriptor(place: int) -> int:
    """The file descriptor that the reports go to."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 (of Windows)

        return msvcrt.open_osfhandle(place, os.O_WRONLY)
    return place


def _watch(running: Running, events: Events) -> None:
    def wait() -> None:
        try:
            running.wait()
        except Exception as error:  # noqa: BLE001 (the main thread raises it)
            events.put((Word.ENDED, error))

    _daemon("end", wait)


def _drain(running: Running, events: Events, grace: float, *, hasty: bool) -> None:
    """Stop the worker. If `hasty`, another signal ends the wait."""

    def drain() -> None:
        error = None
        try:
            running.stop(grace)
        except DrainTimeoutError as late:
            error = late
        events.put((Word.DRAINED, error))

    _daemon("stop", drain)
    while True:
        word, error = _next(events)
        if word is Word.SIGNAL and hasty:
            error = DrainTimeoutError("a second signal came before the handlers ended")
        elif word is not Word.DRAINED:
            continue
        if error is not None:
            raise error
        return


@contextlib.contextmanager
def _signals(stop: Callable[[], object]) -> Iterator[None]:
    # A signal handler may interrupt any code, so it only puts into a queue.
    before = [signal.signal(number, lambda *_: stop()) for number in STOPS]
    try:
        yield
    finally:
        for number, handler in zip(STOPS, before, strict=True):
            signal.signal(number, handler)


def _daemon(name: str, run: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=run, name=f"jsync-worker-{name}", daemon=True)
    thread.start()
    return thread


def _await_end_of_input(events: Events) -> None:
    """Stop when the supervisor is gone, by SIGKILL as well: the kernel closes its pipes."""
    while os.read(0, 4096):
        pass
    events.put((Word.ALONE, None))


def _tell(running: Running, descriptor: int, over: threading.Event) -> None:
    """Write a report each second, and the last one at the end."""
    encode = msgspec.json.Encoder().encode
    number = 0
    with contextlib.suppress(OSError):
        while True:
            report = running.report(lag=number % LAG_REPORTS == 0)
            os.write(descriptor, encode(report) + b"\n")
            if over.wait(REPORT_SECONDS):
                break
            number += 1
        os.write(descriptor, encode(running.report()) + b"\n")
