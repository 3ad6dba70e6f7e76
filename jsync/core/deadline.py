"""Timeouts of the user become deadlines of the monotonic clock, once, at the call."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from ..checks import seconds

if TYPE_CHECKING:
    from ..checks import Seconds


def deadline_after(timeout: Seconds, name: str = "timeout") -> float:
    """When `timeout` seconds from now is; `ConfigError` for what is no number of seconds."""
    return monotonic() + seconds(timeout, name)
