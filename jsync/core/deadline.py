"""Timeouts of the user become deadlines of the monotonic clock, once, at the call."""

from __future__ import annotations

from time import monotonic

from ..errors import ConfigError


def deadline_after(timeout: float, name: str = "timeout") -> float:
    """When `timeout` seconds from now is; `ConfigError` for what is no number of seconds."""
    if type(timeout) is float and timeout == timeout:
        return monotonic() + timeout
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise ConfigError(f"{name} has to be a number of seconds, not {timeout!r}")
    if timeout != timeout:
        raise ConfigError(f"{name} cannot be NaN")
    try:
        return monotonic() + timeout
    except OverflowError:
        raise ConfigError(f"{name} is too large for a number of seconds") from None
