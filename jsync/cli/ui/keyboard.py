"""Single keys from the keyboard of a terminal, without an echo. Needs POSIX."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

_NAMES: Final = {
    b"\t": "tab",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\x08": "backspace",
    b"\x1b": "escape",
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\x1b[Z": "backtab",
    b"\x1b[5~": "page_up",
    b"\x1b[6~": "page_down",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1bOH": "home",
    b"\x1bOF": "end",
    b"\x1b[1~": "home",
    b"\x1b[4~": "end",
}
_FINAL: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz~")
_ESCAPE: Final = 0x1B


def keys_of(data: bytes) -> Iterator[str]:
    """Yield the keys in bytes from a terminal: characters, and names of other keys."""
    while data:
        length = _length(data)
        part, data = data[:length], data[length:]
        name = _NAMES.get(part)
        if name is not None:
            yield name
        elif part[0] != _ESCAPE:
            text = part.decode(errors="ignore")
            if text.isprintable():
                yield text


def _length(data: bytes) -> int:
    """Return the number of bytes of the first key."""
    if data[0] == _ESCAPE:
        if data[1:2] not in (b"[", b"O"):
            return 1
        for at in range(2, len(data)):
            if data[at] in _FINAL:
                return at + 1
        return len(data)
    lead = data[0]
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


class Keyboard:
    """The standard input as keys, in a `with` statement that restores the terminal.

    `wake` may be called on any thread and in a signal handler.
    """

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._before: list[Any] | None = None
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)

    def __enter__(self) -> Self:
        try:
            self.enter_cbreak_mode()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.restore()
        finally:
            self._close()

    def _close(self) -> None:
        os.close(self._woken)
        os.close(self._waker)

    def enter_cbreak_mode(self) -> None:
        """Let the terminal send each key immediately. Ctrl-C and Ctrl-Z are signals."""
        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd, termios.TCSADRAIN)

    def restore(self) -> None:
        """Restore the settings of the terminal."""
        before, self._before = self._before, None
        if before is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    def wake(self) -> None:
        """End the present wait for a key, or the next one."""
        with suppress(BlockingIOError):  # the pipe is full of earlier calls
            os.write(self._waker, b"x")

    def keys(self) -> Iterator[str]:
        """Yield the keys in their order. Blocks for the next one.

        Raises `EOFError` once the terminal is gone.
        """
        while True:
            yield from self.wait(None)

    def wait(self, timeout: float | None) -> Iterable[str]:
        """Wait for keys, `wake` or the timeout, in seconds, and return the keys.

        Raises `EOFError` once the terminal is gone.
        """
        ready, _, _ = select.select([self._fd, self._woken], [], [], timeout)
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._fd not in ready:
            return []
        try:
            data = os.read(self._fd, 4096)
        except OSError:
            data = b""
        if not data:
            raise EOFError
        return keys_of(data)
