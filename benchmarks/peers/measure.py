"""Clocks, memory and the protocol with the runner, for peers in Python (the twin of `bench.h`)."""

from __future__ import annotations

import ctypes
import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Result = dict[str, float]
now = time.monotonic_ns


def cpu_seconds() -> float:
    """Return the CPU time of all threads, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def context_switches() -> int:
    """Return how often the system has taken a thread of this process off its core."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw + usage.ru_nivcsw


def peak_mib() -> float:
    """Return the peak memory of this process in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, ru_maxrss starts at the value of the parent process
        most = status.read_text().partition("VmHWM:")[2].split(maxsplit=1)[0]
        return int(most) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


def resident() -> int:
    """Return the resident memory of this process in bytes, or 0 if the system does not report it."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return 0
    return int(pages.read_text().split()[1]) * resource.getpagesize()


def await_go() -> None:
    """Tell the runner that this peer is ready, and wait for its "go"."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if not sys.stdin.readline():
        raise SystemExit(0)


def report(result: Result) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def rate(count: int, begin: int, cpu: float) -> Result:
    return {
        "count": count,
        "seconds": (now() - begin) / 1e9,
        "cpu": cpu_seconds() - cpu,
        "peak_mib": peak_mib(),
    }


def percentiles(name: str, nanoseconds: list[int]) -> Result:
    """Return the p50 and p99 of durations, in microseconds."""
    ordered = sorted(nanoseconds)
    last = len(ordered) - 1
    return {
        f"{name}_p50": ordered[int(0.5 * last + 0.5)] / 1e3,
        f"{name}_p99": ordered[int(0.99 * last + 0.5)] / 1e3,
    }


def sleep_until(moment: int) -> None:
    left = moment - now()
    if left > 0:
        time.sleep(left / 1e9)


class Busy:
    """Threads that hold the GIL as long as they can, to disturb a benchmark.

    Args:
        threads: The number of threads that compute in Python.
        hold: If given, one more thread holds the GIL in C, for `hold` milliseconds at a time.
    """

    def __init__(self, threads: int, hold: int = 0) -> None:
        self._running = True
        for _ in range(threads):
            threading.Thread(target=self._spin, daemon=True).start()
        if hold:
            threading.Thread(target=self._hold, args=(hold,), daemon=True).start()

    def _spin(self) -> None:
        turns = 0
        while self._running:
            turns += 1

    def _hold(self, milliseconds: int) -> None:
        # functions called through PyDLL keep the GIL
        usleep = ctypes.PyDLL(None).usleep
        while self._running:
            usleep(milliseconds * 1000)

    def stop(self) -> None:
        self._running = False


def in_threads(count: int, work: Callable[[], None]) -> None:
    """Run `work` in `count` threads at once. With one, run it in this thread."""
    if count == 1:
        work()
        return
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
