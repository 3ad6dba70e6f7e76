"""Python processes that tests start, and end."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

from .threads import LONG

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Child:
    """A Python process that runs `script`. It is killed if it still runs at the end.

    The script imports the same jsync as this process. `args` are its `sys.argv[1:]`.
    """

    # Python warns of each fork beside other threads. Some scripts test exactly that.
    STRICT = ("-W", "error", "-W", "ignore:This process:DeprecationWarning")

    def __init__(
        self,
        script: str,
        *args: object,
        options: tuple[str, ...] = STRICT,
        patience: float = LONG,
    ) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, *options, "-c", textwrap.dedent(script)),
                *(str(arg) for arg in args),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._watchdog = threading.Timer(patience, self.process.kill)
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
        self.process.kill()
        self.process.communicate()
        self._watchdog.join()

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """Return the next line of its output, or an empty one at the end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send_line(self) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self) -> tuple[int, str, str]:
        """Wait for its end. Return the exit code, and the remaining output and errors."""
        output, errors = self.process.communicate(timeout=LONG)
        return self.process.returncode, output, errors


def run_child(script: str, *args: object) -> str:
    """Run `script` in another process, check that it succeeds, and return its output."""
    with Child(script, *args) as child:
        code, output, errors = child.finish()
    assert (code, errors) == (0, ""), f"exit code {code}\n{output}\n{errors}"
    return output
