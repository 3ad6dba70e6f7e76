"""`jsync top`, in a process beside the demo."""

from __future__ import annotations

import subprocess
import sys
import threading
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


TIMEOUT = 30.0
"""The longest wait for a measurement, in seconds."""


class Consumer(msgspec.Struct):
    """A consumer in the output of `jsync top`."""

    stream: str
    name: str
    rate: float
    lag: int
    ack_pending: int


class Figures(msgspec.Struct):
    consumers: list[Consumer]


class Top:
    """Writes a line for each measurement, from before the block begins to after its end."""

    def __init__(self, server: str, write: Callable[[str], None]) -> None:
        self.lag: list[tuple[float, int]] = []
        """The lag at each measurement, with the seconds since the first."""
        command = "jsync top --consumers --json --interval 500ms --count 10000"
        write(f"$ {command}")
        self._write = write
        self._measured = threading.Event()
        self._first = 0.0
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command.split(), "--server", server],
            stdout=subprocess.PIPE,
        )
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        self._measured.wait(TIMEOUT)
        return self

    def __exit__(self, *raised: object) -> None:
        self._measured.clear()
        self._measured.wait(TIMEOUT)
        self._process.terminate()
        self._process.wait()
        self._thread.join()
        if len(self.lag) < 2:
            raise SystemExit("jsync top has not measured the consumer")

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._show(line)
                self._measured.set()
        self._measured.set()  # the process has ended

    def _show(self, line: bytes) -> None:
        (consumer,) = msgspec.json.decode(line, type=Figures).consumers
        now = perf_counter()
        self._first = self._first or now
        self.lag.append((now - self._first, consumer.lag))
        self._write(
            f"{consumer.stream} > {consumer.name}: {consumer.rate:,.0f} messages/s, "
            f"lag {consumer.lag:,}, {consumer.ack_pending:,} unacked"
        )
