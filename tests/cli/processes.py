"""The command as a process of its own, which is fed, interrupted and killed."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import termios
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from jsync.server import LocalServer

LONG = 180.0


class Process:
    """`python -m jsync ...` for a server; killed when it is still there at the end."""

    def __init__(self, server: LocalServer, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jsync", "--server", server.url, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # what `line` has not asked for is left to `finish`
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
        """Give it something to read, and keep its input open."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def line(self) -> str:
        """The next line of its output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode()

    @property
    def unread(self) -> int:
        """Bytes of its output that are in the pipe; the pipe of Linux holds 65,536."""
        assert self._process.stdout is not None
        found = fcntl.ioctl(self._process.stdout, termios.FIONREAD, bytes(4))
        return int.from_bytes(found, sys.byteorder)

    def await_words(self, words: str) -> None:
        """Read its standard error up to a line with these words."""
        assert self._process.stderr is not None
        lines: list[bytes] = []
        while words.encode() not in (line := self._process.stderr.readline()):
            assert line, f"it has ended, and said {lines}"
            lines.append(line)

    @property
    def pid(self) -> int:
        return self._process.pid

    def leave(self) -> None:
        """Read no more of its output."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> None:
        """End it at once (SIGKILL), and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Wait for its end, and read nothing; the exit code."""
        return self._process.wait(LONG)

    def finish_raw(self) -> bytes:
        """Wait for its end, which is a good one; what it wrote, as it stands."""
        output, errors = self._process.communicate(timeout=LONG)
        assert (self._process.returncode, errors) == (0, b"")
        return output

    def finish(self) -> tuple[int, str, str]:
        """Wait for its end; the exit code, and what it wrote."""
        output, errors = self._process.communicate(timeout=LONG)
        return self._process.returncode, output.decode(), errors.decode()
