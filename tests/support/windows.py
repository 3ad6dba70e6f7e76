"""The features that Windows lacks, by name: the only reasons to skip a test there.

The module also defines names for features that Windows has under other names.
"""

from __future__ import annotations

import ctypes
import select
import struct
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


WINDOWS = sys.platform == "win32"


def _lacks(what: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(WINDOWS, reason=f"Windows has no {what}")


needs_fork = _lacks("fork")
needs_signals = _lacks("signals to other processes")
needs_timers = _lacks("timers that send signals")
needs_shell = _lacks("shell of POSIX")


def sleep_with_the_gil(milliseconds: int) -> Callable[[], object]:
    """Return a call that sleeps in C and lets no other thread run Python in the meantime."""
    if WINDOWS:
        return partial(ctypes.PyDLL("kernel32").Sleep, milliseconds)
    return partial(ctypes.PyDLL(None).usleep, milliseconds * 1000)


def poll_with_the_gil(sock: socket.socket, seconds: float) -> bool:
    """Wait for something to read, and let no other thread of Python run meanwhile."""
    milliseconds = int(seconds * 1000)
    if WINDOWS:
        readable = 0x0300  # POLLIN, which `select` of Windows does not have
        entry = struct.pack("Qhhi", sock.fileno(), readable, 0, 0)
        poll = ctypes.PyDLL("ws2_32").WSAPoll
    else:
        entry = struct.pack("ihh", sock.fileno(), select.POLLIN, 0)
        poll = ctypes.PyDLL(None).poll
    return bool(poll(ctypes.create_string_buffer(entry), 1, milliseconds))
