"""Tests that filters narrow a read, and never exclude a message that they let through."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jsync.spark.pushdown import CLOCK_SLACK, PushedFilters

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def narrowed(*filters: tuple[str, str, Any], subjects: Any = None) -> PushedFilters:
    found = PushedFilters(subjects=subjects)
    for kind, column, value in filters:
        found = found.with_filter(kind, column, value)
    return found


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("EqualTo", "stream", "A")], {"streams": frozenset("A")}),
        (
            [("In", "stream", ["A", "B"]), ("EqualTo", "stream", "B")],
            {"streams": frozenset("B")},
        ),
        ([("EqualTo", "subject", "a.b")], {"subjects": ("a.b",)}),
        ([("In", "subject", ["a.b", "a.c"])], {"subjects": ("a.b", "a.c")}),
        ([("StringStartsWith", "subject", "a.b.")], {"subjects": ("a.b.>",)}),
        ([("StringStartsWith", "subject", "a.b")], {}),
        ([("EqualTo", "subject", "a.*")], {}),
        ([("EqualTo", "subject", "")], {}),
        ([("StringStartsWith", "subject", "*.")], {}),
        (
            [("StringStartsWith", "subject", "a."), ("In", "subject", ["a.x", "b.x"])],
            {"subjects": ("a.x",)},
        ),
        ([("In", "subject", [f"a.{n}" for n in range(101)])], {}),
        ([("EqualTo", "sequence", 5)], {"first": 5, "last": 5}),
        (
            [("GreaterThan", "sequence", 5), ("LessThan", "sequence", 9)],
            {"first": 6, "last": 8},
        ),
        (
            [("GreaterThanOrEqual", "sequence", 5), ("LessThanOrEqual", "sequence", 9)],
            {"first": 5, "last": 9},
        ),
        ([("In", "sequence", [9, 5])], {"first": 5, "last": 9}),
        ([("GreaterThan", "timestamp", NOON)], {"since": NOON - CLOCK_SLACK}),
        ([("LessThanOrEqual", "timestamp", NOON)], {"until": NOON + CLOCK_SLACK}),
        (
            [("EqualTo", "timestamp", NOON)],
            {"since": NOON - CLOCK_SLACK, "until": NOON + CLOCK_SLACK},
        ),
        ([("IsNotNull", "subject", None), ("StringContains", "subject", "x")], {}),
        ([("Not", "sequence", 5), ("EqualTo", "data", b"x")], {}),
        ([("EqualTo", "sequence", None), ("EqualTo", "subject", None)], {}),
    ],
)
def test_filters_say_where_to_look(
    filters: list[tuple[str, str, Any]], expected: dict[str, Any]
) -> None:
    assert narrowed(*filters) == PushedFilters(**expected)


def test_filters_look_within_the_subjects_of_the_options() -> None:
    within = ("orders.*.new", "trips.>")
    wanted = ("StringStartsWith", "subject", "orders.eu.")
    assert narrowed(wanted, subjects=within).subjects == ("orders.eu.new",)
    elsewhere = ("EqualTo", "subject", "stock.new")
    assert narrowed(elsewhere, subjects=within).subjects == ()


def test_several_times_are_the_narrowest() -> None:
    later = NOON + timedelta(hours=1)
    found = narrowed(
        ("GreaterThan", "timestamp", NOON),
        ("GreaterThan", "timestamp", later),
        ("LessThan", "timestamp", later),
    )
    assert found.since == later - CLOCK_SLACK
    assert found.until == later + CLOCK_SLACK
