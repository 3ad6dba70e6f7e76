"""Numbers and callbacks that the user gives, checked in one way before anything is sent."""

from __future__ import annotations

import inspect
from datetime import timedelta
from math import inf, isnan
from numbers import Integral, Real
from typing import Final, TypeAlias

from .errors import ConfigError

Seconds: TypeAlias = float | timedelta
"""A duration: a number of seconds, or a `timedelta`."""

MOST_COUNT: Final = (1 << 53) - 1
"""More messages and bytes than any machine holds, and far from where C integers end."""

MOST_SECONDS: Final = 1e9
"""Thirty years, which as nanoseconds fit into 64 bits."""

MOST_SEQUENCE: Final = (1 << 64) - 1
"""Servers count in 64 bits."""


def seconds(value: object, name: str) -> float:
    """Return a duration in seconds.

    Args:
        value: A number, numpy's included, or a `timedelta`. Infinity is a number.
        name: The name of the argument, for the error.

    Raises:
        ConfigError: The value is not a number of seconds, for example a bool, a string or
            NaN.
    """
    if type(value) is float and value == value:  # the usual case, kept fast
        return value
    if type(value) is not int:  # isinstance of an abstract class takes a microsecond
        if isinstance(value, timedelta):
            return value.total_seconds()
        if not isinstance(value, Real) or _means_none(value):
            raise ConfigError(
                f"{name} has to be a number of seconds, not {value!r}; pass a timedelta "
                "or seconds"
            )
    try:
        number = float(value)
    except OverflowError:
        raise ConfigError(f"{name} is too large for a number of seconds") from None
    if isnan(number):
        raise ConfigError(f"{name} cannot be NaN: it has to be a number of seconds")
    return number


def count(value: object, name: str, least: int, most: int = MOST_COUNT) -> int:
    """Return a whole number from `least` to `most`.

    Args:
        value: An integer, numpy's and an `IntEnum` included.
        name: The name of the argument, for the error.
        least: The smallest number allowed.
        most: The largest number allowed.

    Raises:
        ConfigError: The value is no integer (a bool, a float, a string), or out of range.
    """
    if type(value) is not int and (
        not isinstance(value, Integral) or _means_none(value)
    ):
        raise ConfigError(f"{name} has to be a whole number, not {value!r}")
    number = int(value)
    if number < least:
        raise ConfigError(f"{name} has to be at least {least}, not {number}")
    if number > most:
        raise ConfigError(f"{name} has to be at most {most}, not {number}")
    return number


def _means_none(value: object) -> bool:
    """Whether it only passes for a number: a bool, or numpy's `timedelta64`."""
    # numpy registers timedelta64 as an integer, but its value is a count in its own
    # unit.
    return isinstance(value, bool) or (
        getattr(getattr(value, "dtype", None), "kind", None) == "m"
    )


def whole(value: object, name: str, least: int) -> int:
    """Return a whole number that servers can keep, from `least` on."""
    return count(value, name, least, MOST_SEQUENCE)


def word(value: object, name: str) -> str:
    """Return a string that is not empty.

    Raises:
        ConfigError: The value is not a string, or it is empty.
    """
    if isinstance(value, str) and value:
        return value
    raise ConfigError(f"{name} has to be a name, not {value!r}")


def span(value: object, name: str) -> float:
    """Return a duration above 0 seconds, at most 1e9: thirty years.

    Raises:
        ConfigError: The value is no such number of seconds.
    """
    number = value if type(value) is float else seconds(value, name)
    if not 0 < number <= MOST_SECONDS:
        raise ConfigError(
            f"{name} has to be above 0 and at most {MOST_SECONDS:g} seconds, not {value!r}"
        )
    return number


def patience(value: object, name: str) -> float | None:
    """Return how long to wait for a sign of life: above 0 seconds, and finite, or None.

    Raises:
        ConfigError: The value is no such number of seconds.
    """
    if value is None:
        return None
    number = seconds(value, name)
    if not 0 < number < inf:
        raise ConfigError(f"{name} has to be above 0 seconds, not {value!r}")
    return number


def flag(value: object, name: str) -> bool:
    """Return a bool.

    Raises:
        ConfigError: The value is no bool: "no" would count as true.
    """
    if isinstance(value, bool):
        return value
    raise ConfigError(f"{name} has to be True or False, not {value!r}")


def call(value: object, name: str) -> None:
    """Raise `ConfigError` unless `value` can be called, and does its work then.

    A coroutine function only returns a coroutine. Its body would never run.
    """
    if not callable(value):
        raise ConfigError(f"{name} has to be callable, not {value!r}")
    # `partial` and bound methods are looked through. An object may have `async __call__`.
    functions = (value, getattr(value, "__call__", None))  # noqa: B004 (not a test for it)
    if any(map(inspect.iscoroutinefunction, functions)):
        raise ConfigError(
            f"{name} is a coroutine function, which nobody would await here: jsync calls "
            "it on a thread of its own, so write def without async"
        )
    if any(map(inspect.isgeneratorfunction, functions)) or any(
        map(inspect.isasyncgenfunction, functions)
    ):
        raise ConfigError(
            f"{name} is a generator function: a call would run nothing of it, so write it "
            "without yield"
        )


def callback(value: object, name: str) -> None:
    """Raise `ConfigError` unless `value` is None or fit for `call`."""
    if value is not None:
        call(value, name)
