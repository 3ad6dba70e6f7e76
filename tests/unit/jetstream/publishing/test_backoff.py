"""Tests of the pause before a retry of a rejected publish."""

from __future__ import annotations

import pytest

from jsync.jetstream.publishing.backoff import (
    INITIAL_BACKOFF,
    MAX_BACKOFF,
    backoff_delay,
)


@pytest.mark.parametrize(
    ("rejections", "longest"),
    [
        (0, INITIAL_BACKOFF),
        (1, 2 * INITIAL_BACKOFF),
        (5, MAX_BACKOFF),
        (100_000, MAX_BACKOFF),
    ],
)
def test_the_pause_doubles_up_to_its_maximum(rejections: int, longest: float) -> None:
    pauses = [backoff_delay(rejections) for _ in range(100)]
    assert longest / 2 <= min(pauses)
    assert max(pauses) <= longest
