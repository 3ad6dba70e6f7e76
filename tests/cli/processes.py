"""Run the command as a separate process that tests feed, interrupt and kill."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from jsync.server import LocalServer

LONG = 180.0


class Process:
    """A process `python -m jsync ...` for a server. It is killed if it still runs at the end."""

    def __init__(self, server: LocalServer, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jsync", "--server", server.url, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # leaves the bytes that `line` has not read to `finish`
        )
        self._watchdog = threading.Timer(LONG, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watchdog.cancel()
        self._watchdog.join()
        self.kill()
        self._process.communicate()

    def feed(self, data: bytes) -> None:
        """Write to its input, and keep the input open."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def line(self) -> str:
        """Return the next line of its output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode()

    @property
    def unread(self) -> int:
        """The number of bytes of its output in the pipe. A pipe of Linux holds 65,536."""
        assert self._process.stdout is not None
        found = fcntl.ioctl(self._process.stdout, termios.FIONREAD, bytes(4))
        return int.from_bytes(found, sys.byteorder)

    def await_words(self, words: str) -> str:
        """Read its standard error up to a line with these words, and return that line."""
        assert self._process.stderr is not None
        lines: list[bytes] = []
        while words.encode() not in (line := self._process.stderr.readline()):
            assert line, f"it has ended, and said {lines}"
            lines.append(line)
        return line.decode()

    @property
    def pid(self) -> int:
        return self._process.pid

    def leave(self) -> None:
        """Stop reading its output."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> None:
        """Kill the process (SIGKILL), and wait until it has ended."""
        self._process.kill()
        self._process.wait()

    def interrupt(self) -> None:
        """Send Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def interrupt_beside(self) -> None:
        """Send Ctrl-C to a thread that is not the main one. On Linux."""
        threads = [int(one.name) for one in Path(f"/proc/{self.pid}/task").iterdir()]
        os.kill(max(threads), signal.SIGINT)

    def wait(self) -> int:
        """Wait for its end without reading its output, and return the exit code."""
        return self._process.wait(LONG)

    def finish_raw(self) -> bytes:
        """Wait for its end, check that it succeeded, and return its output as bytes."""
        output, errors = self._process.communicate(timeout=LONG)
        assert (self._process.returncode, errors) == (0, b"")
        return output

    def finish(self) -> tuple[int, str, str]:
        """Wait for its end, and return the exit code, the output and the errors."""
        output, errors = self._process.communicate(timeout=LONG)
        return self._process.returncode, output.decode(), errors.decode()
