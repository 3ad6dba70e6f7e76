"""The standard input, with reads that Ctrl-C can interrupt at any moment."""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CHECK_SECONDS = 0.1
"""The longest delay until a signal is noticed, in seconds."""
_BUFFER = 1 << 16


class _Input(io.RawIOBase):
    """An input that waits in slices.

    A signal does not interrupt a system call `read` that begins just after it. It does
    not interrupt a `read` of the main thread either if another thread receives the
    signal. Without slices, Ctrl-C would take effect only at the next input.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def readinto(self, buffer: Buffer, /) -> int:
        while not select.select([self._fd], (), (), _CHECK_SECONDS)[0]:
            pass
        return os.readv(self._fd, [buffer])


def standard_input() -> BinaryIO:
    """Return the standard input as bytes. Call it once, because it reads ahead."""
    stream = sys.stdin.buffer
    if sys.platform == "win32":  # Windows cannot select a pipe
        return stream
    try:
        fd = stream.fileno()
    except io.UnsupportedOperation:
        return stream
    return cast("BinaryIO", io.BufferedReader(_Input(fd), _BUFFER))
