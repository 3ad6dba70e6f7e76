"""The output of a pipeline, with escape characters made harmless, and the progress line.

The progress line is on standard error. A terminal shows it in one place, and a log gets a
new line every 10 seconds at most.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jsync.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECOND = 1.0
_EVERY = 10.0
"""Seconds between two lines of a log."""


def write(text: str, *, err: bool = False) -> None:
    """Write a line on the standard output, or on the standard error."""
    print(printable(text), file=sys.stderr if err else sys.stdout)


class Report:
    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._shown = ""
        self._at = float("-inf")
        self._lock = threading.Lock()

    def progress(self, line: str) -> None:
        """Show the progress. A line that has not changed is not repeated."""
        with self._lock:
            self._progress(line)

    def _progress(self, line: str) -> None:
        if self._quiet or line == self._shown:
            return
        if self._terminal:
            self._write(f"\r\033[K{printable(line)}")
        elif time.monotonic() - self._at >= _EVERY:
            self._write(f"{printable(line)}\n")
        else:
            return
        self._shown = line
        self._at = time.monotonic()

    @contextmanager
    def during(self, line: str) -> Iterator[None]:
        """Show a line and its seconds as the progress, for as long as the block runs."""
        if self._quiet:
            yield
            return
        over = threading.Event()
        begin = time.monotonic()

        def tick() -> None:
            while not over.wait(_SECOND):
                self.progress(f"{line}, {time.monotonic() - begin:.0f} s")

        self.progress(line)
        ticking = threading.Thread(target=tick, name="progress of jsync", daemon=True)
        ticking.start()
        try:
            yield
        finally:
            over.set()
            ticking.join()

    def say(self, line: str) -> None:
        """Write a message below the progress line."""
        with self._lock:
            if not self._quiet:
                self._end()
                self._write(f"{printable(line)}\n")

    def end(self) -> None:
        """Keep the progress line on the terminal, and continue below it."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._terminal and self._shown:
            self._write("\n")
        self._shown = ""

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
