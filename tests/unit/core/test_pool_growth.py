"""Tests of the decisions about the threads of a callback pool."""

from __future__ import annotations

from jsync.core.pool_growth import (
    GROW_SECONDS,
    LATE_SECONDS,
    REPORT_SECONDS,
    Look,
    PoolGrowth,
)


def test_the_first_message_starts_a_thread_immediately() -> None:
    growth = PoolGrowth(2)
    assert growth.look(100.0, 1, 100.0, 0) == Look(starts=1, again=GROW_SECONDS)
    assert growth.threads == {1}
    assert repr(growth) == "<PoolGrowth 1 of 2>"


def test_a_pool_without_waiting_messages_rests() -> None:
    growth = PoolGrowth(2)
    assert growth.look(100.0, 0, 0.0, 0) == Look()
    assert not growth.threads


def test_a_pool_without_progress_grows_soon() -> None:
    growth = PoolGrowth(2)
    growth.look(100.0, 2, 100.0, 0)
    growth.look(100.0, 1, 100.0, 1)
    look = growth.look(100.0 + GROW_SECONDS, 1, 100.0, 1)
    assert look == Look(starts=2, again=GROW_SECONDS)
    assert growth.threads == {1, 2}


def test_a_pool_with_progress_grows_late() -> None:
    growth = PoolGrowth(2)
    growth.look(100.0, 9, 100.0, 0)
    soon = growth.look(100.0 + GROW_SECONDS, 8, 100.0, 1)
    assert soon == Look(again=GROW_SECONDS)
    late = growth.look(100.0 + LATE_SECONDS, 7, 100.0, 2)
    assert late == Look(starts=2, again=GROW_SECONDS)


def test_a_full_pool_reports_each_shortage_once() -> None:
    growth = PoolGrowth(1)
    growth.look(100.0, 1, 100.0, 0)
    growth.look(100.0, 0, 0.0, 1)
    assert growth.look(100.25, 1, 100.0, 1) == Look(again=REPORT_SECONDS - 0.25)
    again = Look(again=REPORT_SECONDS)
    assert growth.look(101.0, 1, 100.0, 1) == Look(reports=True, again=REPORT_SECONDS)
    assert growth.look(102.0, 3, 100.0, 1) == again
    assert growth.look(103.0, 0, 0.0, 4) == Look()
    assert growth.look(105.0, 1, 104.0, 4) == Look(reports=True, again=REPORT_SECONDS)
    assert growth.threads == {1}


def test_a_thread_that_left_is_replaced() -> None:
    growth = PoolGrowth(1)
    growth.look(100.0, 1, 100.0, 0)
    growth.threads.discard(1)
    assert growth.look(100.0, 1, 100.0, 1).starts == 2


def test_a_hurried_pool_grows_immediately_until_full() -> None:
    growth = PoolGrowth(2)
    growth.hurries = True
    assert growth.look(100.0, 5, 100.0, 0).starts == 1
    assert growth.look(100.0, 4, 100.0, 1).starts == 2
    assert growth.look(100.0, 3, 100.0, 2).starts is None
