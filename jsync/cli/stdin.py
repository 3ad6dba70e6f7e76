"""The standard input, which Ctrl-C can end at any moment."""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LOOK_SECONDS = 0.1
"""The longest time until a signal is seen."""
_BUFFER = 1 << 16


class _Input(io.RawIOBase):
    """Waits in slices.

    A signal does not end a `read` of the system that begins just after it, nor one of the main
    thread if another thread takes the signal. Ctrl-C would then wait for the next input.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def readinto(self, buffer: Buffer, /) -> int:
        while not select.select([self._fd], (), (), _LOOK_SECONDS)[0]:
            pass
        return os.readv(self._fd, [buffer])


def standard_input() -> BinaryIO:
    """Return the standard input as bytes. Call it once: it reads ahead."""
    stream = sys.stdin.buffer
    if sys.platform == "win32":  # it cannot select a pipe
        return stream
    try:
        fd = stream.fileno()
    except io.UnsupportedOperation:
        return stream
    return cast("BinaryIO", io.BufferedReader(_Input(fd), _BUFFER))
