"""Tests of the message processing algorithm, sentence by sentence, without a server.

Texts in quotes are from ADR-37, revision 2.
"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from .support import asked, engine, pending


def test_the_first_pull_fills_the_buffer() -> None:
    # "batch or max_bytes value should be calculated so that the pull request will fill
    # the buffer", and "add a value of request.batch_size to the pending messages count"
    pull = engine(max_messages=10)
    assert asked(pull).batch == 10
    assert pending(pull) == (10, 0)
    by_bytes = engine(max_bytes=1000)
    assert asked(by_bytes).max_bytes == 1000
    assert by_bytes.pending_bytes == 1000


def test_nothing_more_is_asked_while_enough_is_pending() -> None:
    pull = engine(max_messages=10)
    asked(pull)
    assert pull.next_request() is None
    pull.on_delivered(4, 400)  # "subtract 1 from pending messages count", four times
    assert pending(pull) == (6, 0)
    assert pull.next_request() is None


def test_at_the_threshold_the_difference_is_asked_for() -> None:
    # "pending messages count reaches threshold"
    pull = engine(max_messages=10)
    asked(pull)
    pull.on_delivered(5, 0)
    assert asked(pull).batch == 5
    assert pending(pull) == (10, 0)


def test_at_the_bytes_threshold_the_difference_is_requested() -> None:
    # "pending byte count reaches threshold", "subtract message size from pending byte
    # count"
    pull = engine(max_bytes=1000)
    asked(pull)
    pull.on_delivered(4, 499)
    assert pull.next_request() is None
    pull.on_delivered(1, 1)
    request = asked(pull)
    assert request.max_bytes == 500
    assert request.batch >= 1
    assert pull.pending_bytes == 1000


@pytest.mark.parametrize(
    ("threshold", "taken_before_it_asks"), [(0, 10), (1, 9), (5, 5), (9, 1), (10, 1)]
)
def test_a_threshold_of_ones_own_decides_when(
    threshold: int, taken_before_it_asks: int
) -> None:
    # "a custom threshold can be set, containing the number of messages/bytes that should
    # be processed to trigger the next pull request"
    pull = engine(max_messages=10, threshold_messages=threshold)
    asked(pull)
    for _ in range(taken_before_it_asks - 1):
        pull.on_delivered(1, 0)
        assert pull.next_request() is None
    pull.on_delivered(1, 0)
    assert asked(pull).batch == taken_before_it_asks


@pytest.mark.parametrize("threshold", [None, 0, 1])
def test_max_messages_of_one_pulls_after_each_message(
    threshold: int | None,
) -> None:
    # "works properly when max_messages is set to 1 (it's not getting stuck when using
    # default threshold_messages)"
    pull = engine(max_messages=1, threshold_messages=threshold)
    for _ in range(5):
        assert asked(pull).batch == 1
        assert pull.next_request() is None
        assert pull.credit()[0] == 1
        pull.on_delivered(1, 10)


def test_credit_counts_messages_before_the_next_pull() -> None:
    pull = engine(max_messages=10)
    asked(pull)
    assert pull.credit()[0] == 5
    by_bytes = engine(max_bytes=1000, threshold_bytes=200)
    asked(by_bytes)
    assert by_bytes.credit()[1] == 800


@given(
    options=st.one_of(
        st.builds(
            lambda limit, part: {
                "max_messages": limit,
                "threshold_messages": round(limit * part),
            },
            st.integers(1, 1000),
            st.floats(0, 1),
        ),
        st.builds(
            lambda limit, part: {
                "max_bytes": limit,
                "threshold_bytes": round(limit * part),
            },
            st.integers(1, 100_000),
            st.floats(0, 1),
        ),
    )
)
def test_a_reader_without_credit_gets_a_pull(options: dict[str, int]) -> None:
    pull = engine(**options)
    asked(pull)
    messages, size = pull.credit()
    if "max_bytes" in options:
        pull.on_delivered(1, size)
    else:
        pull.on_delivered(messages, 0)
    assert pull.next_request() is not None


@pytest.mark.parametrize(
    ("stop_after", "batches"),
    [(1, [1]), (5, [5]), (10, [10]), (13, [10, 3]), (20, [10, 5, 5]), (12, [10, 2])],
)
def test_pulls_request_no_more_than_stop_after(
    stop_after: int, batches: list[int]
) -> None:
    pull = engine(max_messages=10, stop_after=stop_after)
    seen = []
    for _ in range(stop_after):
        if (request := pull.next_request()) is not None:
            seen.append(request.batch)
        pull.on_delivered(1, 0)
    assert seen == batches
    assert pull.next_request() is None


def test_stop_after_holds_by_bytes_too() -> None:
    pull = engine(max_bytes=1000, stop_after=3)
    assert asked(pull).batch == 3
    pull.on_delivered(2, 800)  # the third message, of 100 bytes, is in the buffer
    assert pull.next_request(1, 100) is None
    pull.on_delivered(1, 100)
    assert pull.next_request() is None


def test_a_reconnect_requests_the_missing_messages_again() -> None:
    # "When a reconnect event is received, client should: ... Publish a new pull request."
    pull = engine(max_messages=10)
    asked(pull)
    pull.reset(2, 200)
    assert asked(pull).batch == 8


def test_a_full_buffer_after_reconnect_delays_the_pull() -> None:
    pull = engine(max_messages=10)
    asked(pull)
    pull.reset(10, 1000)
    assert pull.next_request() is None
    pull.on_delivered(pull.credit()[0], 0)
    assert asked(pull).batch == 5


def test_a_reset_counts_undelivered_stop_after_messages_again() -> None:
    pull = engine(max_messages=10, stop_after=12)
    asked(pull)
    pull.on_delivered(3, 0)
    pull.reset(2, 0)  # five messages came and three were read; seven are still to come
    assert asked(pull).batch == 7
    pull.on_delivered(9, 0)
    assert pull.next_request() is None


def test_an_engine_by_messages_never_counts_bytes() -> None:
    pull = engine(max_messages=10)
    asked(pull)
    pull.on_delivered(1, 1000)
    pull.reset(1, 1000)
    assert pull.pending_bytes == 0


def test_byte_filled_pulls_do_not_cripple_the_next() -> None:
    # If a message takes the last byte of a pull, the server ends the pull without a status
    # (consumer.go, nextWaiting: "set batch to 1 to deliver this one but stop after"). No status
    # therefore reports the undelivered messages of its batch.
    pull = engine(max_bytes=1000)
    asked(pull)
    pull.on_delivered(1, 1000)
    request = asked(pull)
    assert request.max_bytes == 1000
    assert request.batch > 1000
