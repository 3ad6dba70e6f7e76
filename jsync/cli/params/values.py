"""Durations, sizes and times as people write them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
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
    """Read `1h30m`, `500ms`, `2d`, or a plain number of seconds.

    Raises `ValueError` for anything else.
    """
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if not 0 <= number < float("inf"):
            raise ValueError(f"not a duration: {text!r}")
        return number
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text or not parts:
        raise ValueError(f"not a duration: {text!r}; write 500ms, 30s, 1h30m or 7d")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def size(text: str) -> int:
    """Read `512`, `64k`, `1.5MB` or `2GiB`, in units of 1024, or -1 for no limit.

    Raises `ValueError` for anything else.
    """
    if text == "-1":
        return -1
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size: {text!r}; write 1024, 64KB or 1GiB")
    number, power, _ = match.groups()
    try:
        return int(float(number) * 1024 ** _POWERS[power.lower()])
    except OverflowError:
        raise ValueError(f"not a size, too large: {text!r:.40}") from None


def time(text: str, now: datetime, direction: int = 1) -> datetime:
    """Read RFC 3339, `2026-11-21 12:00` in local time, or a duration from `now`.

    A duration is added to `now`, or subtracted if `direction` is -1. Raises
    `ValueError` for anything else.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now + direction * timedelta(seconds=seconds(text))
        except (ValueError, OverflowError):
            raise ValueError(
                f"not a time: {text!r}; write 2026-11-21T12:00:00Z or 1h30m"
            ) from None
    if text.isdigit():
        raise ValueError(
            f"a date or a number of seconds: {text!r}; write {when:%Y-%m-%d} or {text}s"
        )
    return when.astimezone(UTC)


class _ParsedParam(click.ParamType, ABC):  # type: ignore[type-arg]  # generic in new ones
    """A type of parameters.

    `read` converts the text, or raises `ValueError`.
    """

    @abstractmethod
    def read(self, text: str) -> Any: ...

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _DurationParam(_ParsedParam):
    name = "duration"

    def read(self, text: str) -> float:
        return seconds(text)


class _SizeParam(_ParsedParam):
    name = "size"

    def read(self, text: str) -> int:
        return size(text)


class _FutureTime(_ParsedParam):
    name = "time"

    def read(self, text: str) -> datetime:
        return time(text, datetime.now(UTC))


class _Pair(_ParsedParam):
    """A name and a value, with `mark` between them."""

    def __init__(self, name: str, mark: str) -> None:
        self.name = name
        self._mark = mark

    def read(self, text: str) -> tuple[str, str]:
        name, mark, value = text.partition(self._mark)
        if not mark or not name.strip():
            raise ValueError(
                f"not a name and a value: {text!r}; write NAME{self._mark}VALUE"
            )
        return name.strip(), value.strip()


class _Durations(_ParsedParam):
    name = "durations"

    def read(self, text: str) -> list[float]:
        return [seconds(part) for part in text.split(",")]


class _PastTime(_ParsedParam):
    name = "time"

    def read(self, text: str) -> datetime:
        return time(text, datetime.now(UTC), -1)


class Number(click.IntRange):
    """An option that is a whole number within bounds."""

    name = "number"


DURATION: Final = _DurationParam()
"""An option that is a duration: a float of seconds."""
SIZE: Final = _SizeParam()
"""An option that is a size: an int of bytes."""
FUTURE_TIME: Final = _FutureTime()
"""An option that is a time, or a duration from now: an aware datetime."""
PAST_TIME: Final = _PastTime()
"""An option that is a time, or a duration before now: an aware datetime."""
HEADER: Final = _Pair("name:value", ":")
"""An option that is a header: its name and its value."""
KEY_VALUE: Final = _Pair("name=value", "=")
"""An option that is an entry of metadata: its name and its value."""
DURATIONS: Final = _Durations()
"""An option that is durations with commas between: a list of seconds."""
