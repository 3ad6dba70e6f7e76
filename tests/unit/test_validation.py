"""Tests of the checks of numbers, durations and callbacks, the same for all arguments."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from functools import partial
from math import inf, nan
from typing import TYPE_CHECKING, Any

import numpy
import pytest

from jsync.errors import ConfigError
from jsync.jetstream.pulls.engine import consume_limits, fetch_request, idle_seconds
from jsync.validation import (
    MAX_COUNT,
    MAX_SEQUENCE,
    check_bool,
    check_callable,
    check_count,
    check_heartbeat_timeout,
    check_optional_callable,
    check_seconds,
    format_seconds,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


class Level(IntEnum):
    HIGH = 3


THREE: list[Any] = [3, Level.HIGH, numpy.int64(3), numpy.uint8(3)]
NO_COUNT: list[Any] = [
    *(True, False, 3.0, "3", b"3", None, nan, timedelta(3), [3]),
    numpy.timedelta64(3, "s"),
]
DURATIONS: list[Any] = [
    *(THREE),
    *(3.0, numpy.float64(3), numpy.float32(3), Fraction(3), timedelta(seconds=3)),
]
NO_DURATION: list[Any] = [
    *(True, "3", b"3", nan, numpy.float64(nan), Decimal(3), [3]),
    *(
        numpy.timedelta64(3, "ms"),
        numpy.timedelta64(3, "s"),
        numpy.timedelta64("NaT", "s"),
    ),
]


@pytest.mark.parametrize("value", THREE, ids=repr)
def test_a_count_is_any_integer(value: Any) -> None:
    number = check_count(value, "window", 1)
    assert number == 3
    assert type(number) is int


@pytest.mark.parametrize("value", NO_COUNT, ids=repr)
def test_a_count_is_nothing_else(value: Any) -> None:
    with pytest.raises(ConfigError, match="window has to be a whole number, not "):
        check_count(value, "window", 1)


def test_a_count_is_within_its_bounds() -> None:
    assert check_count(0, "window", 0) == 0
    assert check_count(MAX_COUNT, "window", 1) == MAX_COUNT
    assert check_count(MAX_SEQUENCE, "seq", 1, MAX_SEQUENCE) == MAX_SEQUENCE
    with pytest.raises(ConfigError, match="window has to be at least 1, not 0"):
        check_count(0, "window", 1)
    with pytest.raises(ConfigError, match="window has to be at most"):
        check_count(MAX_COUNT + 1, "window", 1)
    with pytest.raises(ConfigError, match="seq has to be at most"):
        check_count(MAX_SEQUENCE + 1, "seq", 1, MAX_SEQUENCE)


@pytest.mark.parametrize("value", DURATIONS, ids=repr)
def test_a_duration_is_any_real_number_or_timedelta(value: Any) -> None:
    number = check_seconds(value, "timeout")
    assert number == 3.0
    assert type(number) is float


@pytest.mark.parametrize("value", NO_DURATION, ids=repr)
def test_a_duration_is_nothing_else(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"timeout .* a number of seconds"):
        check_seconds(value, "timeout")


def test_a_duration_of_numpy_is_rejected() -> None:
    with pytest.raises(ConfigError, match="; pass a timedelta or seconds"):
        check_seconds(numpy.timedelta64(1_000_000_000, "ns"), "timeout")


def test_a_duration_may_be_endless_or_past() -> None:
    assert check_seconds(inf, "timeout") == inf
    assert check_seconds(-1, "timeout") == -1.0
    with pytest.raises(ConfigError, match="timeout is too large"):
        check_seconds(10**400, "timeout")


@pytest.mark.parametrize("value", [0, -1.0, inf, *NO_DURATION, timedelta(0)], ids=repr)
def test_patience_is_above_zero_and_ends(value: Any) -> None:
    with pytest.raises(ConfigError, match="heartbeat_timeout"):
        check_heartbeat_timeout(value, "heartbeat_timeout")


def test_patience_may_be_left_to_its_default() -> None:
    assert check_heartbeat_timeout(None, "heartbeat_timeout") is None
    assert check_heartbeat_timeout(timedelta(seconds=0.5), "heartbeat_timeout") == 0.5


@pytest.mark.parametrize("value", ["no", "", 1, 0, None], ids=repr)
def test_a_flag_is_a_bool_and_nothing_else(value: Any) -> None:
    assert check_bool(True, "resend") is True
    assert check_bool(False, "resend") is False
    with pytest.raises(ConfigError, match="resend has to be True or False, not "):
        check_bool(value, "resend")


def test_a_callback_can_be_called_or_is_none() -> None:
    check_optional_callable(None, "on_error")
    check_optional_callable(print, "on_error")
    with pytest.raises(ConfigError, match="on_error has to be callable, not 3"):
        check_optional_callable(3, "on_error")


class Handling:
    """An object that can be called, and methods that can be called."""

    def __call__(self, msg: object) -> None: ...

    async def wait(self, msg: object) -> None: ...


class Waiting:
    async def __call__(self, msg: object) -> None: ...


async def handle_later(msg: object) -> None: ...


def handle_in_parts(msg: object) -> Iterator[None]:
    yield


async def handle_in_parts_later(msg: object) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    "value", [handle_later, partial(handle_later), Handling().wait, Waiting()]
)
def test_a_call_that_nobody_would_await_is_rejected(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"handler is a coroutine .* without async"):
        check_callable(value, "handler")


@pytest.mark.parametrize("value", [handle_in_parts, handle_in_parts_later])
def test_a_call_that_would_run_nothing_is_rejected(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"handler is a generator .* without yield"):
        check_callable(value, "handler")


@pytest.mark.parametrize(
    "value",
    [Handling(), Handling, [].append, partial(print), contextmanager(handle_in_parts)],
)
def test_whatever_runs_when_it_is_called_is_taken(value: Any) -> None:
    check_callable(value, "handler")


# Arguments of pulls -----------------------------------------------------------------

PULLS: list[tuple[str, Callable[[Any], object]]] = [
    ("timeout", lambda value: fetch_request(1, None, value, None)),
    ("idle_heartbeat", lambda value: fetch_request(1, None, 60, value)),
    ("expires", lambda value: consume_limits(expires=value)),
    ("idle_heartbeat", lambda value: consume_limits(idle_heartbeat=value)),
    ("idle_timeout", idle_seconds),
]
COUNTS: list[tuple[str, Callable[[Any], object]]] = [
    ("max_messages", lambda value: fetch_request(value, None, 5, None)),
    ("max_bytes", lambda value: fetch_request(None, value, 5, None)),
    ("max_messages", lambda value: consume_limits(max_messages=value)),
    ("max_bytes", lambda value: consume_limits(max_bytes=value)),
    ("stop_after", lambda value: consume_limits(stop_after=value)),
    ("threshold_messages", lambda value: consume_limits(threshold_messages=value)),
]


@pytest.mark.parametrize("value", DURATIONS, ids=repr)
@pytest.mark.parametrize(("name", "call"), PULLS, ids=range(len(PULLS)))
def test_a_pull_takes_every_duration(
    name: str, call: Callable[[Any], object], value: Any
) -> None:
    assert call(value) == call(3.0), name


@pytest.mark.parametrize("value", [*NO_DURATION, inf, -1, 1e300], ids=repr)
@pytest.mark.parametrize(("name", "call"), PULLS, ids=range(len(PULLS)))
def test_a_pull_refuses_every_wrong_duration(
    name: str, call: Callable[[Any], object], value: Any
) -> None:
    with pytest.raises(ConfigError, match=name):
        call(value)


@pytest.mark.parametrize("value", THREE, ids=repr)
@pytest.mark.parametrize(("name", "call"), COUNTS, ids=range(len(COUNTS)))
def test_a_pull_takes_every_integer(
    name: str, call: Callable[[Any], object], value: Any
) -> None:
    assert call(value) == call(3), name


@pytest.mark.parametrize(
    "value", [v for v in NO_COUNT if v is not None] + [-1, 1 << 60], ids=repr
)
@pytest.mark.parametrize(("name", "call"), COUNTS, ids=range(len(COUNTS)))
def test_a_pull_refuses_every_wrong_count(
    name: str, call: Callable[[Any], object], value: Any
) -> None:
    with pytest.raises(ConfigError, match=name):
        call(value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.30000000000000004, "0.3 s"),
        (1.9999879529955357, "2 s"),
        (0.001, "0.001 s"),
        (0, "0 s"),
        (1234.567, "1234.57 s"),
        (timedelta(seconds=2), "2 s"),
        (inf, "inf s"),
        (None, "inf s"),
    ],
)
def test_durations_in_errors_have_few_digits(seconds: Any, text: str) -> None:
    assert format_seconds(seconds) == text
