"""Tests of the decisions about the threads of a callback pool."""

from __future__ import annotations

from jsync.core.pool_growth import (
    GROW_SECONDS,
    LATE_SECONDS,
    REPORT_SECONDS,
    GrowthDecision,
    PoolGrowth,
)


def test_the_first_message_starts_a_thread_immediately() -> None:
    growth = PoolGrowth(2)
    assert growth.decide(100.0, 1, 100.0, 0) == GrowthDecision(
        starts=1, again=GROW_SECONDS
    )
    assert growth.threads == {1}
    assert repr(growth) == "<PoolGrowth 1 of 2>"


def test_a_pool_without_waiting_messages_rests() -> None:
    growth = PoolGrowth(2)
    assert growth.decide(100.0, 0, 0.0, 0) == GrowthDecision()
    assert not growth.threads


def test_a_pool_without_progress_grows_soon() -> None:
    growth = PoolGrowth(2)
    growth.decide(100.0, 2, 100.0, 0)
    growth.started(1)
    growth.decide(100.0, 1, 100.0, 1)
    decide = growth.decide(100.0 + GROW_SECONDS, 1, 100.0, 1)
    assert decide == GrowthDecision(starts=2, again=GROW_SECONDS)
    assert growth.threads == {1, 2}


def test_a_thread_that_begins_late_is_awaited() -> None:
    growth = PoolGrowth(9)
    growth.decide(100.0, 1, 100.0, 0)
    waits = GrowthDecision(again=GROW_SECONDS)
    assert growth.decide(100.5, 1, 100.0, 0) == waits
    growth.started(1)
    assert growth.decide(100.6, 1, 100.0, 0).starts == 2
    assert growth.decide(100.7, 1, 100.0, 0) == waits
    growth.ended(2)
    assert growth.decide(100.8, 1, 100.0, 0).starts == 3


def test_a_pool_with_progress_grows_late() -> None:
    growth = PoolGrowth(2)
    growth.decide(100.0, 9, 100.0, 0)
    growth.started(1)
    soon = growth.decide(100.0 + GROW_SECONDS, 8, 100.0, 1)
    assert soon == GrowthDecision(again=GROW_SECONDS)
    late = growth.decide(100.0 + LATE_SECONDS, 7, 100.0, 2)
    assert late == GrowthDecision(starts=2, again=GROW_SECONDS)


def test_a_full_pool_reports_each_shortage_once() -> None:
    growth = PoolGrowth(1)
    growth.decide(100.0, 1, 100.0, 0)
    growth.decide(100.0, 0, 0.0, 1)
    assert growth.decide(100.25, 1, 100.0, 1) == GrowthDecision(
        again=REPORT_SECONDS - 0.25
    )
    again = GrowthDecision(again=REPORT_SECONDS)
    assert growth.decide(101.0, 1, 100.0, 1) == GrowthDecision(
        reports=True, again=REPORT_SECONDS
    )
    assert growth.decide(102.0, 3, 100.0, 1) == again
    assert growth.decide(103.0, 0, 0.0, 4) == GrowthDecision()
    assert growth.decide(105.0, 1, 104.0, 4) == GrowthDecision(
        reports=True, again=REPORT_SECONDS
    )
    assert growth.threads == {1}


def test_a_thread_that_left_is_replaced() -> None:
    growth = PoolGrowth(1)
    growth.decide(100.0, 1, 100.0, 0)
    growth.ended(1)
    assert growth.decide(100.0, 1, 100.0, 1).starts == 2


def test_a_hurried_pool_grows_immediately_until_full() -> None:
    growth = PoolGrowth(2)
    growth.hurries = True
    assert growth.decide(100.0, 5, 100.0, 0).starts == 1
    assert growth.decide(100.0, 4, 100.0, 1).starts == 2
    assert growth.decide(100.0, 3, 100.0, 2).starts is None
