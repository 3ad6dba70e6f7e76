"""The features that Windows lacks, by name: the only reasons to skip a test there.

The module also defines names for features that Windows has under other names.
"""

from __future__ import annotations

import ctypes
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


WINDOWS = sys.platform == "win32"


def _lacks(what: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(WINDOWS, reason=f"Windows has no {what}")


needs_fork = _lacks("fork")
needs_signals = _lacks("signals to other processes")
needs_unix_sockets = _lacks("unix sockets in Python")
needs_shell = _lacks("shell of POSIX")


def sleep_with_the_gil(milliseconds: int) -> Callable[[], object]:
    """Return a call that sleeps in C and lets no other thread run Python in the meantime."""
    if WINDOWS:
        return partial(ctypes.PyDLL("kernel32").Sleep, milliseconds)
    return partial(ctypes.PyDLL(None).usleep, milliseconds * 1000)
