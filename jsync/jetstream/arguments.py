"""What callers give, checked and as the wire has it, before anything is sent."""

from __future__ import annotations

from datetime import datetime

from ..checks import MOST_SEQUENCE, count
from ..errors import ConfigError
from ..models.codec import Time

_TIME = Time(datetime)


def at_least(least: int, value: int, what: str) -> int:
    """A whole number, `least` or more, that servers can count; raises `ConfigError`."""
    return count(value, what, least, MOST_SEQUENCE)


def wire_time(value: datetime, what: str) -> str:
    """An aware datetime as RFC 3339; raises `ConfigError`."""
    try:
        return str(_TIME.write(value))
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{what}: {error}") from error


def a_name(value: object, what: str) -> str:
    """A string that is not empty; raises `ConfigError`."""
    if isinstance(value, str) and value:
        return value
    raise ConfigError(f"{what} has to be a name, not {value!r}")
