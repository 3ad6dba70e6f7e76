"""Durations, sizes and times as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from typing import Any

_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 7 * 86400.0,
    "M": 30 * 86400.0,
    "y": 365 * 86400.0,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|[smhdwMy])")
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)\s*([kmgt]?)(i?b?)", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def seconds(text: str) -> float:
    """`1h30m`, `500ms`, `2d`, or a plain number of seconds; raises `ValueError`."""
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if not 0 <= number < float("inf"):
            raise ValueError(f"{text!r} is no duration")
        return number
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text or not parts:
        raise ValueError(f"{text!r} is no duration: 500ms, 30s, 1h30m and 7d are")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def size(text: str) -> int:
    """`512`, `64k`, `1.5MB`, `2GiB`, each by 1024; -1 for no limit; raises `ValueError`."""
    if text == "-1":
        return -1
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size: 1024, 64KB and 1GiB are")
    number, power, _ = match.groups()
    return int(float(number) * 1024 ** _POWERS[power.lower()])


def time(text: str, now: datetime) -> datetime:
    """RFC 3339, `2026-11-21 12:00` in local time, or a duration from `now`."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now + timedelta(seconds=seconds(text.removeprefix("+")))
        except (ValueError, OverflowError):
            raise ValueError(
                f"{text!r} is no time: 2026-11-21T12:00:00Z and 1h30m are"
            ) from None
    return when.astimezone(UTC)


class _Value(click.ParamType):  # type: ignore[type-arg]  # generic in new ones
    """A parameter whose text `read` turns into a value, or refuses with `ValueError`."""

    def read(self, text: str) -> Any:
        raise NotImplementedError

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Duration(_Value):
    name = "duration"

    def read(self, text: str) -> float:
        return seconds(text)


class _Size(_Value):
    name = "size"

    def read(self, text: str) -> int:
        return size(text)


class _Until(_Value):
    name = "time"

    def read(self, text: str) -> datetime:
        return time(text, datetime.now(UTC))


DURATION: Final = _Duration()
"""An option that is a duration: a float of seconds."""
SIZE: Final = _Size()
"""An option that is a size: an int of bytes."""
UNTIL: Final = _Until()
"""An option that is a time, or a duration from now: an aware datetime."""
