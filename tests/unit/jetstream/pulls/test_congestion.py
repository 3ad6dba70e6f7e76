"""Tests of the bytes that a continuous pull has on their way."""

from __future__ import annotations

from hypothesis import given, strategies as st

from jsync.jetstream.pulls.congestion import MAX_WINDOW, MIN_WINDOW, CongestionWindow
from jsync.jetstream.pulls.engine import PullEngine, consume_limits

from .support import asked, engine

MEGABYTE = 1_000_000


def test_small_messages_are_not_limited() -> None:
    window = CongestionWindow()
    assert window.limit(500) == 500
    window.on_delivered(250, 250 * 1000)
    assert window.limit(500) == 500


def test_large_messages_are_limited_to_the_window() -> None:
    pull = engine()
    assert asked(pull).batch == 500
    pull.on_delivered(1, MEGABYTE)
    assert pull.next_request() is None
    assert pull.credit()[0] == 499 - 33 // 2
    pull.on_delivered(499, 499 * MEGABYTE)
    assert asked(pull).batch == MAX_WINDOW // MEGABYTE == 33


def test_a_loss_halves_what_is_requested() -> None:
    pull = engine()
    asked(pull)
    pull.on_delivered(10, 10 * MEGABYTE)
    for batch in (16, 8, 4, 2, 1, 1):
        pull.on_lost(0, 0)
        pull.reset(0, 0)
        assert asked(pull).batch == batch


def test_after_a_loss_arrivals_open_the_window() -> None:
    window = CongestionWindow()
    window.on_delivered(1, MEGABYTE)
    window.on_lost(32)
    lowest = window.size
    window.on_delivered(lowest // MEGABYTE + 1, lowest + MEGABYTE)
    assert window.size == lowest + MIN_WINDOW
    for _ in range(300):
        window.on_delivered(33, MAX_WINDOW)
    assert window.size == MAX_WINDOW


def test_one_message_tells_the_size_after_a_loss() -> None:
    pull = engine()
    asked(pull)
    for _ in range(3):
        pull.on_lost(0, 0)
        pull.reset(0, 0)
        assert asked(pull).batch == 1
    pull.on_delivered(1, 100)
    assert asked(pull).batch == 500


def test_a_loss_without_a_pull_changes_nothing() -> None:
    pull = engine(max_messages=2)
    asked(pull)
    pull.on_delivered(1, MEGABYTE)
    pull.on_lost(1, MEGABYTE)  # the other one is buffered
    pull.on_delivered(1, MEGABYTE)
    pull.reset(0, 0)
    assert asked(pull).batch == 2


def test_the_size_follows_the_latest_messages() -> None:
    window = CongestionWindow()
    for _ in range(100):
        window.on_delivered(250, 250 * 100)
    for _ in range(20):
        window.on_delivered(250, 250 * MEGABYTE)
    assert window.limit(500) < 40


def test_only_an_unlimited_first_pull_is_limited() -> None:
    limited = PullEngine(consume_limits(), limits_first_pull=True)
    assert asked(limited).max_bytes == MAX_WINDOW
    limited.on_delivered(500, 500 * 100)
    assert asked(limited).max_bytes == 0
    by_bytes = PullEngine(consume_limits(max_bytes=1000), limits_first_pull=True)
    assert asked(by_bytes).max_bytes == 1000


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(1, 1000), st.integers(1, 64 << 20)),
        max_size=50,
    )
)
def test_at_least_one_message_may_always_come(
    steps: list[tuple[bool, int, int]],
) -> None:
    window = CongestionWindow()
    for lost, messages, size in steps:
        if lost:
            window.on_lost(messages)
        else:
            window.on_delivered(messages, size)
        assert MIN_WINDOW <= window.size <= MAX_WINDOW
        assert 1 <= window.limit(500) <= 500
