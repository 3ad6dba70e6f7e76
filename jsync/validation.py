"""The checks of numbers and callbacks that the user gives, before anything is sent.

Also the text of a duration, for errors.
"""

from __future__ import annotations

import inspect
from datetime import timedelta
from math import inf, isnan
from numbers import Integral, Real
from typing import Final, TypeAlias

from .errors import ConfigError

Seconds: TypeAlias = float | timedelta
"""A duration: a number of seconds, or a `timedelta`."""

MAX_COUNT: Final = (1 << 53) - 1
"""The largest count: more messages and bytes than any machine holds, yet far below the
limit of C integers."""

MAX_SECONDS: Final = 1e9
"""The longest duration, 30 years, which fits into 64 bits as nanoseconds."""

MAX_SEQUENCE: Final = (1 << 64) - 1
"""The largest sequence of a server, which counts in 64 bits."""


def check_seconds(value: object, name: str) -> float:
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


def format_seconds(duration: Seconds | None) -> str:
    """Return a duration for the text of an error, for example `0.3 s`. None is no limit.

    Timeouts are often what is left until a deadline. Their last digits would say nothing.
    """
    seconds = inf if duration is None else check_seconds(duration, "duration")
    return f"{round(seconds, 2) or seconds:g} s"


def check_count(
    value: object, name: str, minimum: int, maximum: int = MAX_COUNT
) -> int:
    """Return a whole number from `minimum` to `maximum`.

    Args:
        value: An integer, numpy's and an `IntEnum` included.
        name: The name of the argument, for the error.
        minimum: The smallest number allowed.
        maximum: The largest number allowed.

    Raises:
        ConfigError: The value is not an integer, but for example a bool, a float or a
            string. Or it is out of range.
    """
    if type(value) is not int and (
        not isinstance(value, Integral) or _means_none(value)
    ):
        raise ConfigError(f"{name} has to be a whole number, not {value!r}")
    number = int(value)
    if number < minimum:
        raise ConfigError(f"{name} has to be at least {minimum}, not {number}")
    if number > maximum:
        raise ConfigError(f"{name} has to be at most {maximum}, not {number}")
    return number


def check_workers(value: object, callback: object) -> None:
    """Check the optional `workers` of a subscription, which need a callback.

    Raises:
        ConfigError: The value is not a number of threads, or there is no callback.
    """
    if value is None:
        return
    check_count(value, "workers", 1)
    if callback is None:
        raise ConfigError("workers are threads for a callback: pass callback as well")


def _means_none(value: object) -> bool:
    """Return whether a value only seems a number: a bool, or numpy's `timedelta64`."""
    # numpy registers timedelta64 as an integer, but its value is a count in its own
    # unit.
    return isinstance(value, bool) or (
        getattr(getattr(value, "dtype", None), "kind", None) == "m"
    )


def check_int(value: object, name: str, minimum: int) -> int:
    """Return a whole number from `minimum` to the largest that servers can store."""
    return check_count(value, name, minimum, MAX_SEQUENCE)


def check_str(value: object, name: str) -> str:
    """Return a string that is not empty.

    Raises:
        ConfigError: The value is not a string, or it is empty.
    """
    if isinstance(value, str) and value:
        return value
    raise ConfigError(f"{name} has to be a name, not {value!r}")


def check_positive_seconds(value: object, name: str) -> float:
    """Return a duration above 0 seconds, at most 1e9, which are thirty years.

    Raises:
        ConfigError: The value is not a number of seconds, or out of range.
    """
    number = value if type(value) is float else check_seconds(value, name)
    if not 0 < number <= MAX_SECONDS:
        raise ConfigError(
            f"{name} has to be above 0 and at most {MAX_SECONDS:g} seconds, not {value!r}"
        )
    return number


def check_heartbeat_timeout(value: object, name: str) -> float | None:
    """Return how long to wait for a sign of life: above 0 seconds, and finite, or None.

    Raises:
        ConfigError: The value is not a number of seconds, or out of range.
    """
    if value is None:
        return None
    number = check_seconds(value, name)
    if not 0 < number < inf:
        raise ConfigError(f"{name} has to be above 0 seconds, not {value!r}")
    return number


def check_bool(value: object, name: str) -> bool:
    """Return a bool.

    Raises:
        ConfigError: The value is not a bool. A string such as "no" would count as true.
    """
    if isinstance(value, bool):
        return value
    raise ConfigError(f"{name} has to be True or False, not {value!r}")


def check_callable(value: object, name: str) -> None:
    """Raise `ConfigError` unless `value` is callable and a call runs its body.

    A coroutine function only returns a coroutine, whose body would never run.
    """
    if not callable(value):
        raise ConfigError(f"{name} has to be callable, not {value!r}")
    # `inspect` unwraps `partial` and bound methods, but not an `async __call__`.
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


def check_optional_callable(value: object, name: str) -> None:
    """Raise `ConfigError` unless `value` is None or passes `check_callable`."""
    if value is not None:
        check_callable(value, name)
