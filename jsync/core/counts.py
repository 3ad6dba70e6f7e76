"""Numbers of messages and bytes that the user gives."""

from __future__ import annotations

from ..checks import count


def check_count(name: str, value: object, least: int) -> None:
    """Raise `ConfigError` for what is no integer from `least` on."""
    count(value, name, least)
