"""Tests of the requests and the statuses of pulls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jsync.errors import (
    ConfigError,
    ConsumerDeletedError,
    NoRespondersError,
    PullError,
)
from jsync.jetstream.pulls.engine import (
    LARGE_BATCH,
    StatusKind,
    classify_status,
    encode_request,
    fetch_request,
)


@pytest.mark.parametrize(
    ("status", "text", "meaning", "error"),
    [
        (100, "Idle Heartbeat", StatusKind.ALIVE, None),
        (404, "No Messages", StatusKind.ENDED, None),
        (408, "Request Timeout", StatusKind.ENDED, None),
        (408, "Requests Pending", StatusKind.ENDED, None),
        (408, "Interest Expired", StatusKind.ENDED, None),
        (409, "Message Size Exceeds MaxBytes", StatusKind.ENDED, None),
        (409, "Batch Completed", StatusKind.ENDED, None),
        (409, "Leadership Change", StatusKind.INTERRUPTED, PullError),
        (409, "Server Shutdown", StatusKind.INTERRUPTED, PullError),
        (409, "Consumer Deleted", StatusKind.FAILED, ConsumerDeletedError),
        (409, "Consumer is push based", StatusKind.FAILED, ConsumerDeletedError),
        (409, "Exceeded MaxRequestBatch of 10", StatusKind.FAILED, PullError),
        (409, "Exceeded MaxRequestExpires of 1s", StatusKind.FAILED, PullError),
        (409, "Exceeded MaxRequestMaxBytes of 10", StatusKind.FAILED, PullError),
        (409, "Exceeded MaxWaiting", StatusKind.FAILED, PullError),
        (400, "Bad Request - Invalid Priority Group", StatusKind.FAILED, PullError),
        (412, "Required Api Level", StatusKind.FAILED, PullError),
        (423, "Nats-Wrong-Pin-Id", StatusKind.UNPINNED, PullError),
        (423, "Nats-Pin-Id mismatch", StatusKind.UNPINNED, PullError),
        (409, "Something New", StatusKind.FAILED, PullError),
        (503, "", StatusKind.FAILED, NoRespondersError),
        (499, "Something New", StatusKind.FAILED, PullError),
    ],
)
def test_a_status_has_the_meaning_of_the_adr(
    status: int, text: str, meaning: StatusKind, error: type[Exception] | None
) -> None:
    verdict = classify_status(status, text)
    assert verdict.kind is meaning
    assert type(verdict.error) is (error or type(None))


def test_a_pull_carries_nanoseconds_and_only_set_fields() -> None:
    request = fetch_request(10, None, 2.5, None)
    assert json.loads(encode_request(request)) == {
        "batch": 10,
        "expires": 2_500_000_000,
    }


def test_a_pull_by_bytes_has_a_large_batch() -> None:
    request = fetch_request(None, 4096, 1.0, None)
    assert json.loads(encode_request(request)) == {
        "batch": LARGE_BATCH,
        "max_bytes": 4096,
        "expires": 1_000_000_000,
    }


def test_a_pull_without_waiting_has_no_expiry() -> None:
    request = fetch_request(10, None, 5.0, 0.0, no_wait=True)
    assert json.loads(encode_request(request)) == {"batch": 10, "no_wait": True}


@pytest.mark.parametrize(
    ("timeout", "heartbeat"), [(9.9, 0.0), (10.0, 5.0), (60.0, 5.0)]
)
def test_long_waits_have_heartbeats_by_default(
    timeout: float, heartbeat: float
) -> None:
    request = fetch_request(10, None, timeout, None)
    assert request.idle_heartbeat == heartbeat * 1_000_000_000


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_messages": None},
        {"max_messages": 1, "max_bytes": 1},
        {"max_messages": 0},
        {"max_messages": -1},
        {"max_messages": None, "max_bytes": 0},
        {"timeout": 0.0},
        {"timeout": -1.0},
        {"timeout": float("nan")},
        {"timeout": 2.0, "idle_heartbeat": 1.5},
        {"idle_heartbeat": -1.0},
    ],
)
def test_invalid_fetch_arguments_are_rejected(arguments: dict[str, Any]) -> None:
    complete = {
        "max_messages": 1,
        "max_bytes": None,
        "timeout": 5.0,
        "idle_heartbeat": None,
    } | arguments
    with pytest.raises(ConfigError):
        fetch_request(**complete)


def test_a_count_too_large_for_json_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_messages has to be at most"):
        fetch_request(1 << 70, None, 5.0, None)
    with pytest.raises(ConfigError, match="max_bytes has to be at most"):
        fetch_request(None, 1 << 70, 5.0, None)
