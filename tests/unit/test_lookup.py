"""Tests of matching subjects with the patterns of streams."""

from __future__ import annotations

import pytest

from jsync.jetstream.atomic.lookup import covers


@pytest.mark.parametrize(
    ("pattern", "subject", "covered"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", "a.b", False),
        ("a.b", "a", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.>", "a.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("a.*.>", "a.b", False),
        ("a.*.>", "a.b.c", True),
    ],
)
def test_a_pattern_covers_subjects_by_the_rules_of_nats(
    pattern: str, subject: str, covered: bool
) -> None:
    assert covers(pattern, subject) is covered
