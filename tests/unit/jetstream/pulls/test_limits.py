"""Tests of the defaults and the constraints of a continuous pull.

Texts in quotes are from ADR-37, revision 2.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from jsync.errors import (
    ConfigError,
)
from jsync.jetstream.pulls.engine import (
    LARGE_BATCH,
    PullEngine,
    consume_limits,
    encode_request,
)

from .support import SECOND, asked, engine


def test_messages_but_not_bytes_are_counted_by_default() -> None:
    # "If no option is provided, the default value for max_messages should be used, and
    # max_bytes should not be set."
    limits = consume_limits()
    assert (
        100 <= limits.max_messages <= 1000
    )  # "probably between 100 and 1000 messages"
    assert limits.max_bytes == 0
    assert "max_bytes" not in json.loads(encode_request(asked(PullEngine(limits))))


def test_with_max_messages_bytes_are_not_set() -> None:
    # "If max_messages is set by the user, the value should be set for max_messages and
    # max_bytes should not be set."
    limits = consume_limits(max_messages=7)
    assert (limits.max_messages, limits.max_bytes) == (7, 0)
    assert json.loads(encode_request(asked(PullEngine(limits))))["batch"] == 7


def test_max_bytes_makes_the_batch_a_large_number() -> None:
    # "If max_bytes is set by the user, ... max_messages should be set to a large value internally
    # (e.g. 1 000 000)". An empty batch would mean a single message.
    limits = consume_limits(max_bytes=4096)
    assert (limits.max_messages, limits.max_bytes) == (LARGE_BATCH, 4096)
    request = json.loads(encode_request(asked(PullEngine(limits))))
    assert (request["batch"], request["max_bytes"]) == (1_000_000, 4096)


def test_expiry_is_thirty_seconds_by_default() -> None:
    assert consume_limits().expires == 30.0  # "expires - default 30s"


@pytest.mark.parametrize(
    ("expires", "heartbeat"),
    [(1.0, 0.5), (2.0, 1.0), (30.0, 15.0), (60.0, 30.0), (61.0, 30.0), (3600.0, 30.0)],
)
def test_heartbeats_are_half_the_expiry_or_thirty_seconds(
    expires: float, heartbeat: float
) -> None:
    # "idle_heartbeat - default 1/2 of expires capping at 30s"
    assert consume_limits(expires=expires).idle_heartbeat == heartbeat


@pytest.mark.parametrize(
    ("count", "threshold"), [(1, 0), (2, 1), (3, 1), (10, 5), (500, 250)]
)
def test_thresholds_are_half_by_default(count: int, threshold: int) -> None:
    # "threshold_messages - 50% of max_messages", "threshold_bytes - 50% of max_bytes"
    assert consume_limits(max_messages=count).threshold_messages == threshold
    assert consume_limits(max_bytes=count).threshold_bytes == threshold


@pytest.mark.parametrize(
    "options",
    [
        {"threshold_messages": 0},
        {"max_messages": 10, "threshold_messages": 10},
        {"max_bytes": 10, "threshold_bytes": 10},
        {"max_bytes": 10, "threshold_bytes": 0},
        {"expires": 1},
        {"expires": 1.0, "idle_heartbeat": 0.5},
        {"expires": 60.0, "idle_heartbeat": 30.0},
        {"stop_after": 1},
        {"max_messages": 1, "stop_after": 1000},
    ],
    ids=str,
)
def test_values_at_the_limits_are_accepted(options: dict[str, Any]) -> None:
    limits = consume_limits(**options)
    for name, value in options.items():
        assert getattr(limits, name) == value


@pytest.mark.parametrize(
    "options",
    [
        # "User cannot set both constraints for a single Consume() execution."
        {"max_messages": 1, "max_bytes": 1},
        {"max_messages": 0},
        {"max_messages": -1},
        {"max_bytes": 0},
        {"max_bytes": -5},
        # "The value of threshold cannot be higher than the corresponding constraint's"
        {"max_messages": 10, "threshold_messages": 11},
        {"threshold_messages": 501},
        {"max_bytes": 10, "threshold_bytes": 11},
        {"max_messages": 10, "threshold_bytes": 5},
        {"threshold_messages": -1},
        {"max_bytes": 10, "threshold_bytes": -1},
        # "expires - ... minimum 1s"
        {"expires": 0.999},
        {"expires": 0.0},
        {"expires": -1.0},
        {"expires": float("nan")},
        {"expires": float("inf")},
        # "idle_heartbeat - ... minimum 500ms, maximum 30s"
        {"idle_heartbeat": 0.499},
        {"idle_heartbeat": 0.0},
        {"idle_heartbeat": -1.0},
        {"expires": 100.0, "idle_heartbeat": 30.001},
        {"expires": 4.0, "idle_heartbeat": 2.001},  # the server replies with 400
        {"idle_heartbeat": float("nan")},
        {"stop_after": 0},
        {"stop_after": -1},
    ],
    ids=str,
)
def test_impossible_limits_are_rejected_before_anything_is_sent(
    options: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError):
        consume_limits(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"max_messages": 1.5},
        {"max_messages": "10"},
        {"max_bytes": 1.5},
        {"threshold_messages": 0.5},
        {"stop_after": 2.5},
        {"expires": "30"},
        {"idle_heartbeat": "1"},
        {"expires": 1e300},  # more nanoseconds than the int64 of the server holds
    ],
    ids=str,
)
def test_limits_other_than_numbers_or_seconds_are_rejected(
    options: dict[str, Any],
) -> None:
    with pytest.raises((ConfigError, TypeError)):
        consume_limits(**options)


def test_every_pull_has_its_expiry_and_heartbeats() -> None:
    # "Consume() should always utilize idle heartbeats."
    pull = engine(max_messages=10, expires=4.0)
    first = asked(pull)
    pull.on_delivered(5, 0)
    second = asked(pull)
    for request in (first, second):
        assert (request.expires, request.idle_heartbeat) == (4 * SECOND, 2 * SECOND)
        assert not request.no_wait
