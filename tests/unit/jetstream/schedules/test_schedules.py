"""Tests of reading the schedule that a stored message holds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jsync import Headers
from jsync.jetstream.schedules.engine import read_schedule
from jsync.models import StoredMessage


def stored(**headers: str) -> StoredMessage:
    return StoredMessage(
        subject="jobs.a",
        sequence=7,
        headers=Headers({f"Nats-{name}": value for name, value in headers.items()}),
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        stream="JOBS",
    )


@pytest.mark.parametrize("missing", ["Schedule", "Schedule-Target"])
def test_a_schedule_has_a_pattern_and_a_target(missing: str) -> None:
    headers = {"Schedule": "@every 1h", "Schedule-Target": "jobs.b"}
    schedule = read_schedule(stored(**headers))
    assert schedule is not None
    assert (schedule.pattern, schedule.target) == ("@every 1h", "jobs.b")
    assert read_schedule(stored(**{**headers, missing: ""})) is None
    del headers[missing]
    assert read_schedule(stored(**headers)) is None
