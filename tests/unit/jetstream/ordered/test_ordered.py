"""Tests of the cursor of an ordered consumer: its next consumers, and the end of a read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from jsync import errors
from jsync._fast import SequenceChecker
from jsync.jetstream.ordered.engine import (
    LAG_SECONDS,
    MAX_BACKOFF,
    MAX_STALE_REPLIES,
    RESET_ATTEMPTS,
    SINGLE_REPLIES,
    TRANSITIONS,
    Cursor,
    NextAction,
    ReadState,
    is_permanent,
    ordered_config,
)
from jsync.jetstream.stream_end.engine import PendingMessages, StreamEnd
from jsync.models import (
    ConsumerInfo,
    ConsumerLimits,
    SequenceInfo,
    StreamConfig,
    StreamInfo,
    StreamState,
)

from ...fast.test_order import Consumer

if TYPE_CHECKING:
    from jsync.models import ConsumerConfig

BORN = datetime(2026, 1, 1, tzinfo=UTC)


def config(**options: Any) -> ConsumerConfig:
    return ordered_config(options)


def cursor(**options: Any) -> Cursor:
    attempts = options.pop("max_reset_attempts", RESET_ATTEMPTS)
    return Cursor(config(**options), "c", max_reset_attempts=attempts)


def made(stream_seq: int, consumer_seq: int = 0, pending: int = 9) -> ConsumerInfo:
    delivered = SequenceInfo(consumer_seq=consumer_seq, stream_seq=stream_seq)
    return ConsumerInfo(name="c_1", delivered=delivered, num_pending=pending)


def stream(last_seq: int, created: datetime = BORN) -> StreamInfo:
    state = StreamState(last_seq=last_seq)
    return StreamInfo(config=StreamConfig(name="S"), state=state, created=created)


def end(last_seq: int, created: datetime = BORN) -> StreamEnd:
    """Return what a leader says of a stream that ends there."""
    return StreamEnd(last_seq, 1, 0.0, stream(last_seq, created))


# Configurations


def test_the_consumer_has_no_acks_and_no_replicas() -> None:
    first = cursor(filter_subjects="a.*", inactive_threshold=7.0).next_config()
    assert first.ack_policy == "none"
    assert first.max_deliver == 1
    assert first.mem_storage is True
    assert first.num_replicas == 1
    assert first.inactive_threshold == 7.0
    assert first.filter_subjects == ["a.*"]
    assert first.durable_name is None


def test_unused_consumers_stay_30_seconds_within_stream_limits() -> None:
    place = cursor()
    assert place.inactive_threshold == 30
    for limit, seconds in ((None, 30), (60.0, 30), (5.0, 5)):
        info = stream(0)
        info = msgspec.structs.replace(
            info,
            config=info.config.replace(
                consumer_limits=ConsumerLimits(inactive_threshold=limit)
            ),
        )
        place.check_stream(info)
        assert place.inactive_threshold == seconds
    assert cursor(inactive_threshold=7.0).inactive_threshold == 7


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({}, None),
        ({"opt_start_seq": 3}, "by_start_sequence"),
        ({"opt_start_time": BORN}, "by_start_time"),
        ({"deliver_policy": "new"}, "new"),
    ],
)
def test_each_start_has_its_deliver_policy(
    options: dict[str, Any], policy: str | None
) -> None:
    assert config(**options).deliver_policy == policy


@pytest.mark.parametrize(
    "options",
    [
        {"deliver_policy": "by_start_sequence"},
        {"deliver_policy": "by_start_time"},
        {"deliver_policy": "new", "opt_start_seq": 3},
        {"opt_start_seq": 3, "opt_start_time": BORN},
        {"deliver_policy": "last", "opt_start_time": BORN},
        {"opt_start_seq": 0},
        {"deliver_policy": "newest"},
        {"filter_subjects": "a b"},
        {"filter_subjects": ["a", "a..b"]},
        {"filter_subjects": 0},
        {"inactive_threshold": "5"},
        {"inactive_threshold": 0},
        {"inactive_threshold": -1},
    ],
)
def test_invalid_options_of_an_ordered_consumer_are_rejected(
    options: dict[str, Any],
) -> None:
    with pytest.raises(errors.ConfigError):
        config(**options)


@pytest.mark.parametrize("attempts", [0, -1, 1.5, "3", True])
def test_attempts_are_counted_from_one(attempts: Any) -> None:
    with pytest.raises(errors.ConfigError, match="max_reset_attempts"):
        cursor(max_reset_attempts=attempts)


def test_last_messages_are_of_all_subjects_by_default() -> None:
    assert config(deliver_policy="last_per_subject").filter_subjects == [">"]


# The next consumer


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"deliver_policy": "new"},
        {"deliver_policy": "last"},
        {"opt_start_seq": 8},
        {"opt_start_time": BORN},
    ],
)
def test_the_second_consumer_starts_at_a_sequence(
    options: dict[str, Any],
) -> None:
    """Using the policy again would lead elsewhere, and would lose messages published since."""
    place = cursor(**options)
    first = place.next_config()
    assert first.deliver_policy == config(**options).deliver_policy
    place.on_created(made(stream_seq=7))
    second = place.next_config()
    assert second.deliver_policy == "by_start_sequence"
    assert second.opt_start_seq == 8
    assert second.opt_start_time is None
    assert second.name != first.name


def test_the_next_consumer_continues_after_the_last_message() -> None:
    place = cursor()
    place.next_config()
    place.on_created(made(0))
    assert place.advance(12, 5)
    assert not place.advance(12, 5)
    assert place.next_config().opt_start_seq == 13
    place.on_created(made(12))
    assert place.position == 12
    assert place.consumer_sequence == 0


def test_undelivered_messages_are_read_again() -> None:
    place = cursor()
    place.next_config()
    place.on_created(made(0))
    place.advance(12, 12)
    place.rewind(9)
    assert place.name is None
    assert place.next_config().opt_start_seq == 10


def test_within_the_snapshot_last_messages_are_requested_again() -> None:
    place = cursor(deliver_policy="last_per_subject")
    place.check_end(end(20))
    assert place.next_config().deliver_policy == "last_per_subject"
    place.on_created(made(3))
    assert place.last() is None, "the first one leaves nothing out"
    place.advance(10, 4)
    assert place.next_config().deliver_policy == "last_per_subject"
    place.on_created(made(4))
    assert (place.position, place.last()) == (10, 20)
    assert place.on_stopped("last", place.last()) is NextAction.NEXT
    follower = place.next_config()
    assert (follower.deliver_policy, follower.opt_start_seq) == (
        "by_start_sequence",
        21,
    )
    place.on_created(made(20))
    assert place.last() is None


def test_after_the_snapshot_reading_continues_by_sequence() -> None:
    place = cursor(deliver_policy="last_per_subject")
    place.check_end(end(20))
    place.next_config()
    place.on_created(made(3))
    place.advance(20, 7)
    assert place.next_config().opt_start_seq == 21


# The end


def test_the_end_is_where_the_stream_ended() -> None:
    place = cursor()
    place.next_config()
    place.on_created(made(0))
    place.until = 10
    assert place.last() == 10
    place.advance(7, 7)
    assert place.on_stopped("gap", 10) is NextAction.RESET
    assert place.position == 7
    assert place.on_stopped("last", 10) is NextAction.END
    assert (place.position, place.at_end) == (10, True)


def test_the_snapshot_is_not_the_end() -> None:
    place = cursor(deliver_policy="last_per_subject")
    place.check_end(end(20))
    place.next_config()
    place.on_created(made(3))
    place.until = 30
    place.next_config()
    place.on_created(made(3))
    assert place.last() == 20
    assert place.on_stopped("last", 20) is NextAction.NEXT
    place.next_config()
    place.on_created(made(20))
    assert place.last() == 30


@pytest.mark.parametrize(
    ("sent", "at", "pending", "step"),
    [
        (5, 7, 3, NextAction.WAIT),
        (
            5,
            7,
            0,
            NextAction.QUERY_LEADER,
        ),  # deleted or expired, or the server is behind
        (5, 10, 3, NextAction.END),  # the next message is after the end
        (5, 11, 3, NextAction.END),
        (6, 8, 0, NextAction.WAIT),  # on its way
        (4, 6, 0, NextAction.WAIT),  # the reply is older than the last message
    ],
)
def test_silence_makes_the_reader_ask_for_the_end(
    sent: int, at: int, pending: int, step: NextAction
) -> None:
    place = cursor()
    place.next_config()
    place.on_created(made(0))
    place.until = 10
    assert place.on_info(made(at, sent, pending), 5, now=0.0, lost_after=1.0) is step


def reading_to(until: int) -> Cursor:
    place = cursor()
    place.check_stream(stream(until))
    place.next_config()
    place.on_created(made(0))
    place.until = until
    return place


def test_a_leader_with_nothing_left_ends_the_read() -> None:
    place = reading_to(10)
    assert place.on_pending(PendingMessages(end(12), None), 7, 0.0) is NextAction.END


def test_a_server_lagging_behind_its_leader_is_left() -> None:
    place = reading_to(10)
    for now, at, step in (
        (100.0, 5, NextAction.WAIT),
        (100.1 + LAG_SECONDS, 6, NextAction.WAIT),
        (100.2 + LAG_SECONDS, 6, NextAction.WAIT),
        (100.1 + 2 * LAG_SECONDS, 6, NextAction.RESET),
    ):
        assert place.on_pending(PendingMessages(end(12), 8), at, now) is step
    place.next_config()
    place.on_created(made(6))
    assert place.on_pending(PendingMessages(end(12), 8), 6, 200.0) is NextAction.WAIT


def test_a_leader_without_the_end_is_believed_eventually() -> None:
    place = reading_to(10)
    for _ in range(MAX_STALE_REPLIES):
        assert (
            place.on_pending(PendingMessages(end(8), None), 8, 0.0) is NextAction.WAIT
        )
    assert place.on_pending(PendingMessages(end(8), None), 8, 0.0) is NextAction.END


def test_the_rest_of_recreated_streams_is_an_error() -> None:
    place = reading_to(10)
    with pytest.raises(errors.StreamNotFoundError, match="another"):
        place.on_pending(
            PendingMessages(end(20, BORN + timedelta(seconds=1)), None), 7, 0.0
        )


def test_a_read_without_progress_gives_up() -> None:
    place = cursor(max_reset_attempts=3)
    place.until = 10
    for _ in range(3):
        place.reset(progress=False, lived=60.0)
    with pytest.raises(errors.OrderedConsumerResetError, match="brought nothing"):
        place.reset(progress=False, lived=60.0)


def test_single_replies_are_an_error_naming_the_remedy() -> None:
    place = cursor()
    for _ in range(5):
        place.on_silence(1, 1)
        place.on_silence(1, 0)
        place.on_silence(2, 3)
    for _ in range(SINGLE_REPLIES - 1):
        place.on_silence(2, 2)
    with pytest.raises(errors.OrderedConsumerResetError, match="response_type: stream"):
        place.on_silence(1, 1)


def test_a_message_missing_too_long_counts_as_lost() -> None:
    place = cursor()
    place.next_config()
    place.on_created(made(0))
    place.until = 10
    for now, sent, come, step in (
        (100.0, 6, 5, NextAction.WAIT),
        (105.0, 7, 6, NextAction.WAIT),
        (109.9, 7, 6, NextAction.WAIT),
        (110.0, 7, 6, NextAction.RESET),
    ):
        info = made(3 + sent, sent, 0)
        assert place.on_info(info, come, now, lost_after=5.0) is step


def within_snapshot() -> Cursor:
    place = cursor(deliver_policy="last_per_subject")
    place.check_end(end(20))
    place.next_config()
    place.on_created(made(0))
    return place


def test_a_consumer_that_withholds_last_messages_is_replaced() -> None:
    place = within_snapshot()
    for now, sent, step in (
        (100.0, 6, NextAction.WAIT),
        (100.9, 6, NextAction.WAIT),
        (101.5, 7, NextAction.WAIT),
        (102.4, 7, NextAction.WAIT),
        (102.5, 7, NextAction.RESET),
    ):
        info = made(3 + sent, sent, 5)
        assert place.on_info(info, sent, now, 5.0, stream_sequence=10) is step


def test_a_consumer_awaiting_its_reader_is_not_stuck() -> None:
    place = within_snapshot()
    for now, waits, step in (
        (100.0, True, NextAction.WAIT),
        (101.0, False, NextAction.WAIT),
        (102.0, True, NextAction.WAIT),
        (103.0, True, NextAction.RESET),
    ):
        info = made(10, 7, 5)
        assert place.on_info(info, 7, now, 5.0, waits=waits) is step


def test_without_last_messages_every_later_message_is_read() -> None:
    place = within_snapshot()
    place.advance(10, 7)
    assert place.may_stall(10)
    assert (
        place.on_info(made(20, 7, 0), 7, 1.0, 5.0, stream_sequence=10)
        is NextAction.NEXT
    )
    assert not place.may_stall(10)
    config = place.next_config()
    assert (config.deliver_policy, config.opt_start_seq) == ("by_start_sequence", 11)


def test_a_consumer_past_last_messages_is_never_stuck() -> None:
    place = within_snapshot()
    assert not place.may_stall(20)
    for now in (100.0, 200.0):
        info = made(20, 7, 5)
        assert place.on_info(info, 7, now, 5.0, stream_sequence=20) is NextAction.WAIT


# Troubles


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (errors.StreamNotFoundError("gone", code=404, err_code=10059), True),
        (errors.InvalidRequestError("bad", code=400, err_code=10003), True),
        (errors.MaximumConsumersError("many", code=400, err_code=10026), False),
        (errors.JetStreamNotEnabledError("off", code=503, err_code=10076), False),
        (errors.APIError("no quorum", code=503, err_code=10008), False),
        (errors.TimeoutError("late"), False),
        (errors.ConnectionClosedError("closed"), True),
        (errors.ConnectionLostError("lost"), False),
        (errors.PermissionsError("no"), True),
    ],
)
def test_only_permanent_errors_end_the_attempts(error: Exception, final: bool) -> None:
    assert is_permanent(error) is final
    place = cursor()
    if final:
        with pytest.raises(type(error)):
            place.on_request_failed(error)
    else:
        assert place.on_request_failed(error) > 0


def test_attempts_pause_ever_longer_and_finally_end() -> None:
    place = cursor(max_reset_attempts=9)
    late = errors.TimeoutError("late")
    pauses = [place.on_request_failed(late) for _ in range(8)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 0.25
    assert pauses[-1] == MAX_BACKOFF
    with pytest.raises(errors.OrderedConsumerResetError) as caught:
        place.on_request_failed(late)
    assert caught.value.__cause__ is late


def test_a_success_resets_the_count_of_attempts() -> None:
    place = cursor(max_reset_attempts=3)
    for _ in range(10):
        place.on_request_failed(errors.TimeoutError("late"))
        place.on_request_failed(errors.TimeoutError("late"))
        place.next_config()
        place.on_created(made(0))


def test_without_a_limit_it_never_gives_up() -> None:
    place = cursor(max_reset_attempts=None)
    for _ in range(1000):
        assert place.on_request_failed(errors.TimeoutError("late")) <= MAX_BACKOFF


def test_a_consumer_that_vanishes_is_recreated_after_pausing() -> None:
    place = cursor()
    assert place.reset(progress=False, lived=0.1) == 0
    pauses = [place.reset(progress=False, lived=0.1) for _ in range(10)]
    assert pauses == sorted(pauses)
    assert pauses[0] > 0
    assert pauses[-1] == MAX_BACKOFF
    assert place.reset(progress=True, lived=0.1) == 0
    place.reset(progress=False, lived=0.1)
    assert place.reset(progress=False, lived=60.0) == 0


def test_a_recreated_stream_is_not_continued() -> None:
    place = cursor()
    place.check_stream(stream(10))
    place.check_stream(stream(20))
    with pytest.raises(errors.StreamNotFoundError, match="another"):
        place.check_stream(stream(20, BORN + timedelta(seconds=1)))


def test_a_stream_without_its_end_is_believed_eventually() -> None:
    """A new leader may not have read its own log yet."""
    place = cursor()
    place.check_end(end(0))
    place.next_config()
    place.on_created(made(0))
    place.advance(20, 20)
    for last in (12, 14, 15):
        with pytest.raises(errors.OrderedConsumerResetError) as caught:
            place.check_end(end(last))
        assert not is_permanent(caught.value)
    assert MAX_STALE_REPLIES == 3
    place.check_end(end(16))
    assert place.next_config().opt_start_seq == 13, "what has been stored since"


def test_a_future_start_is_no_lost_end() -> None:
    place = cursor(opt_start_seq=50)
    place.check_end(end(3))
    place.next_config()
    place.on_created(made(49))
    place.check_end(end(3))
    assert place.next_config().opt_start_seq == 50


# All parts together


class Stream:
    """A stream of messages on a few subjects, and consumers as a server makes them."""

    def __init__(self) -> None:
        self.stored: dict[int, str] = {}
        self.last = 0
        self.rest: list[int] = []
        self.resume = 0
        self.count = 0

    def publish(self, subject: str) -> None:
        self.last += 1
        self.stored[self.last] = subject

    def create(self, config: ConsumerConfig) -> ConsumerInfo:
        self.resume, self.count = self.last, 0
        match config.deliver_policy:
            case "new":
                self.rest = []
            case "last":
                self.rest = [self.last] if self.last in self.stored else []
            case "last_per_subject":
                lasts = {subject: seq for seq, subject in sorted(self.stored.items())}
                self.rest = sorted(lasts.values())
            case "by_start_sequence":
                assert config.opt_start_seq is not None
                self.rest = [
                    n for n in sorted(self.stored) if n >= config.opt_start_seq
                ]
            case _:
                self.rest = sorted(self.stored)
        first = self.rest[0] - 1 if self.rest else self.last
        if config.deliver_policy == "by_start_sequence":
            first = max(first, (config.opt_start_seq or 1) - 1)
        return made(first, 0, self.pending)

    @property
    def left(self) -> list[int]:
        later = [n for n in sorted(self.stored) if n > self.resume]
        return [n for n in self.rest if n in self.stored] + later

    @property
    def pending(self) -> int:
        return len(self.left)

    def rest_behind(self, after: int, until: int | None) -> bool:
        return any(after < n <= (until or self.last) for n in self.stored)

    def send(self) -> tuple[int, int, int] | None:
        """Return the next message: its consumer and stream sequences, and the pending count."""
        if not self.left:
            return None
        sequence = self.left[0]
        self.rest = [n for n in self.rest if n > sequence]
        self.resume = max(self.resume, sequence)
        self.count += 1
        return self.count, sequence, self.pending


def read(
    stored: Stream, place: Cursor, actions: list[tuple[str, int]], to_end: bool
) -> list[int]:
    """Take messages while `actions` happen, and after them until no message is left."""
    taken: list[int] = []
    if to_end:
        place.until = stored.last
    info = stored.create(place.next_config())
    place.on_created(info)
    todo = [*actions, ("take", 10_000)]
    while todo:
        last = place.last()
        order = SequenceChecker(place.position, last=last, to_end=to_end)
        consumer = Consumer(order)
        again = False
        if to_end and (place.at_end or not stored.pending):
            return taken
        while todo and not again:
            action, count = todo.pop(0)
            if action == "publish":
                stored.publish("abc"[count % 3])
            elif action == "delete" and stored.stored:
                victim = sorted(stored.stored)[count % len(stored.stored)]
                del stored.stored[victim]
            elif action == "drop":
                stored.send()
            elif action == "reset":
                again = True
            elif action == "take":
                while count and order.stopped is None:
                    message = stored.send()
                    if message is None:
                        break
                    consumer.bring(*message)
                    count -= 1
                rest = stored.rest_behind(order.stream_sequence, last)
                if order.take_ran_dry() and not rest:
                    return taken + consumer.taken
            if order.stopped is not None:
                place.advance(order.stream_sequence, order.consumer_sequence)
                taken += consumer.taken
                if place.on_stopped(order.stopped, last) is NextAction.END:
                    return taken
                todo = todo or [("take", 10_000)]
                again = True
            elif not todo and stored.count > order.consumer_sequence:
                todo, again = [("take", 10_000)], True  # the last message was lost
        place.advance(order.stream_sequence, order.consumer_sequence)
        taken += consumer.taken
        if again:
            place.on_created(stored.create(place.next_config()))
    return taken


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "take", "drop", "reset", "delete"]),
        st.integers(0, 9),
    ),
    max_size=40,
)


@given(
    before=st.lists(st.sampled_from("abc"), max_size=15),
    actions=ACTIONS,
    policy=st.sampled_from([None, "new", "last"]),
    to_end=st.booleans(),
)
def test_every_remaining_message_is_read_once_in_order(
    before: list[str],
    actions: list[tuple[str, int]],
    policy: str | None,
    to_end: bool,
) -> None:
    stored = Stream()
    for subject in before:
        stored.publish(subject)
    first = {None: 1, "new": len(before) + 1, "last": max(1, len(before))}[policy]
    last = len(before) if to_end else 10_000
    place = cursor(deliver_policy=policy)
    place.check_end(end(stored.last))
    taken = read(stored, place, actions, to_end)
    assert taken == sorted(set(taken))
    assert set(taken) >= {n for n in stored.stored if first <= n <= last}
    assert all(first <= n <= last for n in taken)


@given(before=st.lists(st.sampled_from("abc"), max_size=15), actions=ACTIONS)
def test_last_messages_and_all_following_ones_are_read(
    before: list[str], actions: list[tuple[str, int]]
) -> None:
    actions = [action for action in actions if action[0] != "delete"]
    stored = Stream()
    for subject in before:
        stored.publish(subject)
    place = cursor(deliver_policy="last_per_subject")
    place.check_end(end(stored.last))
    taken = read(stored, place, actions, to_end=False)
    assert taken == sorted(set(taken))
    snapshot = len(before)
    assert [n for n in taken if n > snapshot] == list(
        range(snapshot + 1, stored.last + 1)
    )
    lasts = {subject: seq for seq, subject in enumerate(before, 1)}
    assert {n for n in taken if n <= snapshot} <= set(lasts.values())
    for subject, sequence in lasts.items():
        followed = any(
            stored.stored[n] == subject for n in range(snapshot + 1, stored.last + 1)
        )
        assert sequence in taken or followed


# The state of a read


def test_no_read_continues_after_its_end() -> None:
    assert set(TRANSITIONS) == set(ReadState)
    assert TRANSITIONS[ReadState.ENDING] == {ReadState.ENDED}
    assert not TRANSITIONS[ReadState.ENDED]
    for state in set(ReadState) - {ReadState.ENDING, ReadState.ENDED}:
        assert {ReadState.ENDING, ReadState.ENDED} <= TRANSITIONS[state]


def test_a_read_not_yet_begun_creates_no_consumer() -> None:
    assert ReadState.BETWEEN not in TRANSITIONS[ReadState.NEW]
