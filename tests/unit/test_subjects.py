"""Tests of the subjects that a pattern matches."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from jsync.subjects import any_covers, covers, has_wildcard, intersection, intersections

TOKEN = st.sampled_from(["a", "b", "c", "*"])
PATTERN = st.builds(
    lambda tokens, tail: ".".join([*tokens, *tail]),
    st.lists(TOKEN, min_size=1, max_size=4),
    st.sampled_from([[], [">"]]),
)
SUBJECT = st.lists(st.sampled_from("abc"), min_size=1, max_size=6).map(".".join)


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
        ("a.>", "a.*.*", True),
        ("a.*.*", "a.*.*", True),
        ("a.b.*", "a.*.*", False),
        ("a.*", "a.>", False),
    ],
)
def test_a_pattern_covers_by_the_rules_of_nats(
    pattern: str, subject: str, covered: bool
) -> None:
    assert covers(pattern, subject) is covered
    assert any_covers(["other", pattern], subject) is covered


@given(PATTERN, PATTERN, SUBJECT)
def test_an_intersection_matches_what_both_match(
    one: str, other: str, subject: str
) -> None:
    both = intersection(one, other)
    found = both is not None and _matches(both, subject)
    assert found == (_matches(one, subject) and _matches(other, subject))
    assert covers(one, subject) is _matches(one, subject)


def test_intersections_name_each_pattern_once() -> None:
    assert intersections(["a.*", "b"], ["a.x", "*.x", "c"]) == ("a.x",)


def test_a_token_is_a_wildcard_as_a_whole() -> None:
    assert has_wildcard("a.*.b")
    assert has_wildcard("a.>")
    assert not has_wildcard("a*.b>")


def _matches(pattern: str, subject: str) -> bool:
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        if len(tokens) < len(wanted):
            return False
        wanted, tokens = wanted[:-1], tokens[: len(wanted) - 1]
    return len(wanted) == len(tokens) and all(
        a in ("*", b) for a, b in zip(wanted, tokens, strict=True)
    )
