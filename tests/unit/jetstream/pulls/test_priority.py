"""Tests of the priority fields of a pull request (ADR-42)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jsync.errors import ConfigError
from jsync.jetstream.pulls.engine import encode_request, fetch_request
from jsync.jetstream.pulls.priority import PriorityOptions, check_priority_options
from jsync.models import ConsumerConfig

OVERFLOW = ConsumerConfig(priority_groups=["A"], priority_policy="overflow")
PINNED = ConsumerConfig(priority_groups=["A"], priority_policy="pinned_client")
RANKED = ConsumerConfig(priority_groups=["A"], priority_policy="prioritized")


def check(config: ConsumerConfig | None, **options: Any) -> PriorityOptions:
    complete: dict[str, Any] = dict.fromkeys(
        ("group", "min_pending", "min_ack_pending", "priority")
    )
    return check_priority_options(**complete | options, config=config)


@pytest.mark.parametrize("config", [None, ConsumerConfig()])
def test_without_a_group_a_pull_is_as_ever(config: ConsumerConfig | None) -> None:
    request = fetch_request(1, None, 5.0, None)
    assert check(config).apply(request, "") is request


def test_the_pull_holds_exactly_the_claimed_options() -> None:
    request = fetch_request(1, None, 1.0, None)
    plain = json.loads(encode_request(request))
    made = check(OVERFLOW, group="A", min_pending=5, min_ack_pending=7).apply(
        request, ""
    )
    assert json.loads(encode_request(made)) == plain | {
        "group": "A",
        "min_pending": 5,
        "min_ack_pending": 7,
    }
    made = check(RANKED, group="A", priority=3).apply(request, "")
    assert json.loads(encode_request(made)) == plain | {"group": "A", "priority": 3}
    made = check(PINNED, group="A").apply(request, "some id")
    assert json.loads(encode_request(made)) == plain | {"group": "A", "id": "some id"}


@pytest.mark.parametrize("config", [None, RANKED])
@pytest.mark.parametrize("priority", range(10))
def test_priorities_are_from_zero_to_nine(
    config: ConsumerConfig | None, priority: int
) -> None:
    assert check(config, group="A", priority=priority).priority == priority
    with pytest.raises(ConfigError, match="priority has to be at most 9"):
        check(config, group="A", priority=priority + 10)


@pytest.mark.parametrize(
    ("config", "options", "words"),
    [
        (OVERFLOW, {}, "one of 'A', not None"),
        (PINNED, {"group": "B"}, "one of 'A', not 'B'"),
        (PINNED, {"group": "A", "min_pending": 1}, "'overflow', not for 'pinned"),
        (RANKED, {"group": "A", "min_ack_pending": 1}, "'overflow', not for 'prio"),
        (OVERFLOW, {"group": "A", "priority": 0}, "'prioritized', not for 'over"),
        (ConsumerConfig(), {"group": "A"}, "no priority groups"),
        (None, {"min_pending": 1}, "give a group"),
        (None, {"group": "A", "min_pending": 0}, "min_pending has to be at least 1"),
        (None, {"group": "A", "min_ack_pending": True}, "a whole number, not True"),
        (None, {"group": "a b"}, "'a b'"),
    ],
)
def test_options_that_the_consumer_excludes_raise(
    config: ConsumerConfig | None, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        check(config, **options)


@pytest.mark.parametrize(
    ("left", "expires", "heartbeat"),
    [(20.0, 20.0, 5.0), (10.0, 10.0, 5.0), (9.9, 9.9, 0.0), (60.0, 30.0, 5.0)],
)
def test_a_repeated_pull_has_the_remaining_time(
    left: float, expires: float, heartbeat: float
) -> None:
    # The server would reject heartbeats longer than half of it.
    again = fetch_request(1, None, 30.0, None).with_expiry(left)
    assert again.expires == expires * 1e9
    assert again.idle_heartbeat == heartbeat * 1e9


def test_a_pull_without_waiting_is_repeated_unchanged() -> None:
    request = fetch_request(1, None, 5.0, 0.0, no_wait=True)
    assert request.with_expiry(1.0) is request
