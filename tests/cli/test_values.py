"""Tests of durations, sizes and times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jsync.cli.params.values import seconds, size, time
from jsync.cli.ui.formatting import format_duration, format_size

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("2.5", 2.5),
        ("500ms", 0.5),
        ("250us", 0.00025),
        ("30s", 30),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("7d", 604800),
        ("1w2d", 777600),
        ("1y", 31536000),
    ],
)
def test_durations_are_read_in_nats_and_everyday_notation(
    text: str, expected: float
) -> None:
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["", "soon", "-1s", "-1", "1x", "1h 30m", "nan", "inf"]
)
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        seconds(text)


@pytest.mark.parametrize(
    "duration", [0, 0.25, 1, 59.5, 60, 5400, 86400, 100.25, 172801]
)
def test_a_duration_that_is_spelled_reads_as_itself(duration: float) -> None:
    assert seconds(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1024", 1024),
        ("64k", 65536),
        ("1.5MB", 1572864),
        ("2GiB", 2 << 30),
        ("1TB", 1 << 40),
        ("-1", -1),
    ],
)
def test_a_size_counts_by_1024(text: str, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (50_000, "48.8 KiB"),
        (200_000, "195 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (5 << 40, "5.0 TiB"),
    ],
)
def test_a_size_is_written_in_its_unit(count: int, expected: str) -> None:
    assert format_size(count) == expected


@pytest.mark.parametrize("text", ["", "-2", "1x", "much", "1 000", "9" * 400])
def test_an_invalid_size_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        size(text)


def test_a_time_may_be_a_duration_from_now() -> None:
    assert time("2026-11-21T13:00:00Z", NOON).isoformat() == "2026-11-21T13:00:00+00:00"
    assert time("2026-11-21T13:00:00+01:00", NOON) == NOON
    assert time("1h", NOON).hour == 13
    assert time("90m", NOON, -1).isoformat() == "2026-11-21T10:30:00+00:00"
    with pytest.raises(ValueError, match="not a time"):
        time("tomorrow", NOON)


def test_a_number_that_may_be_dates_is_refused() -> None:
    with pytest.raises(ValueError, match="write 2026-11-21 or 20261121s"):
        time("20261121", NOON)
    assert time("10000000", NOON) == NOON + timedelta(seconds=10_000_000)
