"""Numbers of messages and bytes that the user gives."""

from __future__ import annotations

from typing import Final

from ..errors import ConfigError

MOST: Final = 1 << 53
"""More than any machine holds, and far from where the extension's integers end."""


def check_count(name: str, value: object, least: int) -> None:
    """Raise `ConfigError` for what is no int from `least` on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} has to be an int from {least} on, not {value!r}")
    if value >= MOST:
        raise ConfigError(f"{name} has to be below {MOST}")
