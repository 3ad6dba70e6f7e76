"""What every peer in Python needs: the twin of `bench.h`."""

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
    """Processor time of all threads, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_mib() -> float:
    """The most memory that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux, whose ru_maxrss begins with that of the parent
        most = status.read_text().partition("VmHWM:")[2].split(maxsplit=1)[0]
        return int(most) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


def resident() -> int:
    """Bytes of memory that this process has now; 0 where that cannot be told."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return 0
    return int(pages.read_text().split()[1]) * resource.getpagesize()


def await_go() -> None:
    """Tell the runner that everything is set up, and wait until it says go."""
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
    """Their p50 and p99 in microseconds."""
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
    """So many threads that do nothing but hold the GIL as long as they may.

    With `hold`, one more that stays in C with the GIL held, `hold` milliseconds at a time.
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
        usleep = ctypes.PyDLL(None).usleep  # what a PyDLL calls keeps the GIL
        while self._running:
            usleep(milliseconds * 1000)

    def stop(self) -> None:
        self._running = False


def in_threads(count: int, work: Callable[[], None]) -> None:
    """Do `work` in `count` threads at once; in this one when it is the only one."""
    if count == 1:
        work()
        return
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
