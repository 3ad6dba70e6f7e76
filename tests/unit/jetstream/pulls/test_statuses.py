"""Tests of the effect of each status on a continuous pull.

Texts in quotes are from ADR-37, revision 2.
"""

from __future__ import annotations

import pytest

from jsync.errors import (
    ConsumerDeletedError,
    NoRespondersError,
    PullError,
)
from jsync.jetstream.pulls.engine import (
    INITIAL_BACKOFF,
    LARGE_BATCH,
    MAX_BACKOFF,
    PROBE,
    encode_request,
    has_more_pending,
)

from .support import NO_LEFT, asked, engine, pending

ENDS = [
    (408, "Request Timeout"),
    (409, "Message Size Exceeds MaxBytes"),
    (409, "Batch Completed"),
    (408, "Interest Expired"),
    (409, "Server Shutdown"),
    (423, "Nats-Wrong-Pin-Id"),
    (499, "Something New"),  # "Clients could just check all statuses for the headers"
]


@pytest.mark.parametrize(("status", "text"), ENDS)
def test_undelivered_messages_of_a_pull_are_not_pending(status: int, text: str) -> None:
    # "subtract the value of Nats-Pending-Messages header from pending messages count and
    # subtract the value of Nats-Pending-Bytes from pending bytes count"
    pull = engine(max_bytes=1000)
    asked(pull)
    pull.on_status(status, text, left=(LARGE_BATCH - 3, 400), buffered=(3, 600))
    assert pull.pending_bytes == 600
    by_messages = engine(max_messages=10)
    asked(by_messages)
    by_messages.on_status(status, text, left=(7, 0), buffered=(3, 600))
    assert by_messages.pending_messages == 3


def test_an_ended_pull_releases_only_its_own_rest() -> None:
    # "There is no need to track specific pull request's status - as long as the
    # aggregate message and byte count is maintained"
    pull = engine(max_messages=10)
    asked(pull)
    pull.on_delivered(5, 0)
    asked(pull)
    pull.on_status(408, "Request Timeout", left=(4, 0), buffered=(1, 0))
    assert pull.pending_messages == 6
    assert pull.next_request() is None
    pull.on_status(408, "Request Timeout", left=(5, 0), buffered=(1, 0))
    assert asked(pull).batch == 9


@pytest.mark.parametrize(
    ("status", "text"),
    [(408, "Request Timeout"), (404, "No Messages"), (409, "Batch Completed")],
)
def test_an_expected_end_is_silent_and_pulled_again(status: int, text: str) -> None:
    # "Not Telegraphed: 404 No Messages, 408 Request Timeout, 409 Message Size Exceeds
    # MaxBytes"; "consume() should recover ... by issuing a new pull request"
    pull = engine(max_messages=10)
    asked(pull)
    reaction = pull.on_status(status, text, left=(10, 0), buffered=(0, 0))
    assert (reaction.report, reaction.end, reaction.retry_in) == (None, None, 0.0)
    assert asked(pull).batch == 10


def test_a_message_exceeding_the_rest_is_not_reported() -> None:
    pull = engine(max_bytes=1000)
    asked(pull)
    reaction = pull.on_status(
        409,
        "Message Size Exceeds MaxBytes",
        left=(LARGE_BATCH - 2, 300),
        buffered=(2, 700),
    )
    assert (reaction.report, reaction.end) == (None, None)


def test_a_message_above_max_bytes_is_pulled_alone() -> None:
    # No message is buffered or delivered, so an equal pull would end in the same way at once.
    pull = engine(max_bytes=1000)
    asked(pull)
    text = "Message Size Exceeds MaxBytes"
    reaction = pull.on_status(409, text, left=(LARGE_BATCH, 1000), buffered=(0, 0))
    assert (reaction.report, reaction.end) == (None, None)
    request = asked(pull)
    assert (request.batch, request.max_bytes) == (1, 0)
    assert pull.next_request() is None  # until it comes
    assert pull.next_request(1, 5000) is None  # until the reader has taken it
    pull.on_delivered(1, 5000)
    request = asked(pull)
    assert (request.batch, request.max_bytes) == (LARGE_BATCH, 1000)


def test_a_pull_without_max_bytes_ignores_sizes() -> None:
    # A server has no reason for this status. The pull would count more than it requests.
    pull = engine(max_messages=2)
    text = "Message Size Exceeds MaxBytes"
    pull.on_status(409, text, left=(0, 0), buffered=(0, 0))
    assert asked(pull).batch == pull.pending_messages == 2


def test_after_a_lone_pull_ends_bytes_count_again() -> None:
    pull = engine(max_bytes=1000)
    asked(pull)
    text = "Message Size Exceeds MaxBytes"
    pull.on_status(409, text, left=(LARGE_BATCH, 1000), buffered=(0, 0))
    asked(pull)
    pull.on_status(408, "Request Timeout", left=(1, 0), buffered=(0, 0))
    request = asked(pull)
    assert (request.batch, request.max_bytes) == (LARGE_BATCH, 1000)


def test_a_message_too_large_beside_the_buffer_waits() -> None:
    # The buffer holds 600 bytes and the next message has 600. If jsync pulled before the reader
    # has taken a message, the server would reject each pull at once.
    pull = engine(max_bytes=1000, threshold_bytes=600)
    asked(pull)
    text = "Message Size Exceeds MaxBytes"
    pulls = 0
    for _ in range(10):
        reaction = pull.on_status(
            409,
            text,
            left=(pull.pending_messages - 1, pull.pending_bytes - 600),
            buffered=(1, 600),
        )
        if reaction.retry_in or pull.next_request() is None:
            break
        pulls += 1
    assert pulls <= 1
    pull.on_delivered(1, 600)
    assert pull.next_request() is not None


@pytest.mark.parametrize("left", [None, (10, 0)])
def test_a_heartbeat_changes_nothing(left: tuple[int, int] | None) -> None:
    # "if message is a heartbeat message, go to #1"
    pull = engine(max_messages=10)
    asked(pull)
    reaction = pull.on_status(100, "Idle Heartbeat", left=left, buffered=(0, 0))
    assert (reaction.report, reaction.end, reaction.retry_in) == (None, None, 0.0)
    assert pull.pending_messages == 10
    assert pull.next_request() is None


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        # Errors that do not end it
        (400, "Bad Request - heartbeat value too large", PullError),
        (503, "", NoRespondersError),
        # Warnings
        (409, "Exceeded MaxRequestBatch", PullError),
        (409, "Exceeded MaxRequestBatch of many", PullError),
        (409, "Exceeded MaxRequestExpires of 1h1h", PullError),
        (409, "Exceeded MaxRequestExpires of 1.1.1s", PullError),
        (409, "Exceeded MaxRequestMaxBytes of 100", PullError),
        (409, "Exceeded MaxWaiting", PullError),
        # Newer than ADR-37
        (409, "Leadership Change", PullError),
        (409, "Server Shutdown", PullError),
        (409, "Something New", PullError),
        (412, "Required Api Level", PullError),
        (499, "Something New", PullError),
    ],
)
def test_a_rejection_is_reported_and_retried_after_pausing(
    status: int, text: str, kind: type[Exception]
) -> None:
    # "consume() should recover while maintaing its state ... unless the status is 409
    # Consumer Deleted or 409 Consumer is push based"
    pull = engine(max_messages=10)
    asked(pull)
    reaction = pull.on_status(status, text, left=NO_LEFT, buffered=(0, 0))
    assert type(reaction.report) is kind
    assert reaction.end is None
    assert reaction.retry_in >= INITIAL_BACKOFF
    assert asked(pull).batch == 10
    if isinstance(reaction.report, PullError):
        assert text in str(reaction.report)


@pytest.mark.parametrize("batch", [1, 3, 9])
def test_small_pulls_fill_the_buffer_after_a_rejection(batch: int) -> None:
    pull = engine(max_messages=10)
    asked(pull)
    text = f"Exceeded MaxRequestBatch of {batch}"
    reaction = pull.on_status(409, text, left=None, buffered=(0, 0))
    assert (reaction.adapted, reaction.retry_in) == (True, 0)
    total = 0
    while (request := pull.next_request()) is not None:
        assert request.batch <= batch
        total += request.batch
    assert pull.limits.threshold_messages < total <= 10
    assert pull.on_status(409, text, left=None, buffered=(0, 0)).retry_in > 0


def test_pulls_for_bytes_count_messages_after_a_rejection() -> None:
    pull = engine(max_bytes=1000)
    asked(pull)
    text = "Exceeded MaxRequestBatch of 5"
    assert pull.on_status(409, text, left=None, buffered=(2, 60)).adapted
    request = asked(pull)
    assert (request.batch, request.max_bytes) == (5, 0)
    assert pull.pending_messages == 7
    pull.on_delivered(7, 200)
    assert pending(pull)[0] == 0


def test_fewer_bytes_are_requested_after_a_rejection() -> None:
    pull = engine(max_bytes=1000)
    asked(pull)
    text = "Exceeded MaxRequestMaxBytes of 100"
    assert pull.on_status(409, text, left=None, buffered=(0, 0)).adapted
    assert asked(pull).max_bytes == 100
    assert pull.limits.threshold_bytes == 50


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("1m0s", 60), ("1.5s", 1.5), ("2m1.25s", 121.25), ("250ms", 0.25)],
)
def test_pulls_expire_earlier_after_a_rejection(text: str, seconds: float) -> None:
    pull = engine(max_messages=10, expires=200)
    asked(pull)
    status = f"Exceeded MaxRequestExpires of {text}"
    assert pull.on_status(409, status, left=None, buffered=(0, 0)).adapted
    request = asked(pull)
    assert request.expires == seconds * 1e9
    assert request.idle_heartbeat <= request.expires / 2


@pytest.mark.parametrize(
    ("text", "left"), [("Nats-Wrong-Pin-Id", (10, 0)), ("Nats-Pin-Id mismatch", None)]
)
def test_a_refused_pin_is_retried_immediately_only_once(
    text: str, left: tuple[int, int] | None
) -> None:
    # A 423 clears the pin, and the engine pulls again.
    pull = engine(max_messages=10)
    pauses = []
    for _ in range(3):
        asked(pull)
        reaction = pull.on_status(423, text, left=left, buffered=(0, 0))
        assert type(reaction.report) is PullError
        assert reaction.end is None
        pauses.append(reaction.retry_in)
    assert pauses == [0.0, INITIAL_BACKOFF, 2 * INITIAL_BACKOFF]
    asked(pull)
    pull.on_delivered(1, 10)
    assert pull.on_status(423, text, left=left, buffered=(0, 0)).retry_in == 0.0


@pytest.mark.parametrize("text", ["Consumer Deleted", "Consumer is push based"])
@pytest.mark.parametrize("left", [None, (10, 0)])
def test_a_deleted_or_push_consumer_is_the_end(
    text: str, left: tuple[int, int] | None
) -> None:
    # "in which case consume() call should conclude"
    pull = engine(max_messages=10)
    asked(pull)
    reaction = pull.on_status(409, text, left=left, buffered=(0, 0))
    assert isinstance(reaction.end, ConsumerDeletedError)
    assert text in str(reaction.end)
    assert reaction.report is None


@pytest.mark.parametrize(
    "text", ["CONSUMER DELETED", "consumer deleted", "Consumer Deleted."]
)
def test_capitals_do_not_matter(text: str) -> None:
    assert engine().on_status(409, text, left=None, buffered=(0, 0)).end is not None


def test_pauses_grow_to_a_bound_until_messages_come() -> None:
    pull = engine(max_messages=10)
    pauses = []
    for _ in range(12):
        asked(pull)
        pauses.append(pull.on_status(503, "", left=None, buffered=(0, 0)).retry_in)
    assert pauses == sorted(pauses)
    assert pauses[:3] == [INITIAL_BACKOFF, 2 * INITIAL_BACKOFF, 4 * INITIAL_BACKOFF]
    assert pauses[-1] == MAX_BACKOFF
    pull.on_delivered(1, 10)
    assert (
        pull.on_status(503, "", left=None, buffered=(0, 0)).retry_in == INITIAL_BACKOFF
    )


@pytest.mark.parametrize("buffered", [0, 3, 10])
@pytest.mark.parametrize(
    "status", [(409, "Leadership Change"), (503, ""), (400, "Bad")]
)
def test_an_end_without_counts_keeps_the_buffer_pending(
    buffered: int, status: tuple[int, str]
) -> None:
    # After a terminating status without pending headers, the pending count equals the number of
    # buffered messages.
    pull = engine(max_messages=10)
    asked(pull)
    pull.on_status(*status, left=None, buffered=(buffered, buffered * 10))
    assert pull.pending_messages == buffered
    by_bytes = engine(max_bytes=1000)
    asked(by_bytes)
    by_bytes.on_status(*status, left=None, buffered=(buffered, buffered * 10))
    assert by_bytes.pending_bytes == buffered * 10


def test_exaggerated_headers_never_make_a_count_negative() -> None:
    pull = engine(max_bytes=1000)
    asked(pull)
    pull.on_status(
        408, "Request Timeout", left=(LARGE_BATCH * 2, 1 << 40), buffered=(0, 0)
    )
    assert pending(pull) == (0, 0)
    assert asked(pull).max_bytes == 1000


@pytest.mark.parametrize(
    ("status", "text", "more"),
    [
        (408, "Requests Pending", True),
        (409, "Message Size Exceeds MaxBytes", True),
        (404, "No Messages", False),
        (408, "Request Timeout", False),
        (409, "Exceeded MaxWaiting", False),
        (409, "Consumer Deleted", False),
        (503, "", False),
    ],
)
def test_a_status_tells_whether_more_answers_follow(
    status: int, text: str, more: bool
) -> None:
    assert has_more_pending(status, text) is more


def test_a_probe_waits_for_nothing_and_fits_nothing() -> None:
    assert encode_request(PROBE) == b'{"batch":1,"max_bytes":1,"no_wait":true}'
