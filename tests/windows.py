"""What Windows lacks, by name: the only reasons for a test to be skipped there."""

from __future__ import annotations

import sys

import pytest


def _lacks(what: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(sys.platform == "win32", reason=f"Windows has no {what}")


WINDOWS = sys.platform == "win32"
needs_fork = _lacks("fork")
needs_signals = _lacks("signals to other processes")
needs_unix_sockets = _lacks("unix sockets in Python")
needs_shell = _lacks("shell of POSIX")
only_windows = pytest.mark.skipif(not WINDOWS, reason="it is about Windows")
