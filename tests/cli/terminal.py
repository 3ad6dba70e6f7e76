"""A terminal that tests type into and read: tmux."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

LONG = 120.0


class Terminal:
    """A bash in which `jsync` is the installed command, with 100 columns by default."""

    def __init__(self, columns: int = 100, rows: int = 30, **variables: str) -> None:
        if shutil.which("tmux") is None:
            raise RuntimeError("there is no tmux: scripts/need-tmux installs it")
        # Do not use the directory of a test, because its name can be too long for a socket.
        self._size = ("-x", str(columns), "-y", str(rows))
        self._directory = tempfile.TemporaryDirectory(prefix="jsync-tmux-")
        scripts = Path(sys.executable).parent
        self._environ = {
            **os.environ,
            **variables,
            "TMUX_TMPDIR": self._directory.name,
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "TERM": "screen-256color",
            "LC_ALL": "C.UTF-8",
            "HISTFILE": "",
        }
        self._environ.pop("TMUX", None)

    def __enter__(self) -> Self:
        profile = Path(self._directory.name, "profile")
        profile.write_text("PS1='$ '\n")
        bash = shlex.join(["exec", "bash", "--noprofile", "--rcfile", str(profile)])
        try:
            self._tmux("-f", "/dev/null", "new-session", "-d", *self._size, bash)
            self.await_screen("$")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        with self._directory, suppress(subprocess.CalledProcessError):
            self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        ended = subprocess.run(
            ["tmux", *arguments],
            env=self._environ,
            capture_output=True,
            text=True,
            check=True,
            timeout=LONG,
        )
        return ended.stdout

    @property
    def screen(self) -> str:
        """Return the screen without the blanks at line ends."""
        lines = self._tmux("capture-pane", "-p").splitlines()
        return "\n".join(line.rstrip() for line in lines).rstrip()

    def type(self, text: str) -> None:
        """Type a text literally."""
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys by their names: Enter, Tab, C-c."""
        self._tmux("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the terminal."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def clear(self) -> None:
        """Clear the screen, except for the prompt."""
        self.press("C-l")
        self._await(lambda screen: screen == "$", "the prompt alone")

    def run(self, *words: str) -> None:
        """Type a command on a clear screen and press Enter. Its exit code is printed after it."""
        self.clear()
        self.type(f"{shlex.join(words)}; echo exit $?")
        self.press("Enter")

    def await_screen(self, words: str) -> str:
        """Wait until the words are on the screen, and return the whole screen."""
        return self._await(lambda screen: words in screen, repr(words))

    def await_match(self, pattern: str) -> str:
        """Wait until a pattern matches within a line, and return the whole screen."""
        found = re.compile(pattern, re.MULTILINE)
        return self._await(
            lambda screen: found.search(screen) is not None, repr(pattern)
        )

    def _await(self, is_wanted: Callable[[str], bool], what: str) -> str:
        deadline = time.monotonic() + LONG
        while not is_wanted(shown := self.screen):
            assert time.monotonic() < deadline, f"not {what} on the screen:\n{shown}"
            time.sleep(0.1)
        return shown
