"""Tests of the statuses of push consumers, and of the replies to flow control (ADR-15)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jsync import errors
from jsync.headers import Headers
from jsync.jetstream.ordered.engine import Cursor, ordered_push_config
from jsync.jetstream.pulls.engine import HeartbeatMonitor
from jsync.jetstream.push.engine import (
    HEARTBEATS_MISSED,
    OWNERSHIP_TRANSITIONS,
    FlowControl,
    Heartbeat,
    Ownership,
    gap_error,
    status_error,
)
from jsync.jetstream.stream_end.engine import StreamEnd
from jsync.models import (
    ConsumerConfig,
    ConsumerInfo,
    SequenceInfo,
    StreamInfo,
    StreamState,
)

# Statuses -----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [100, 404, 408])
def test_pull_mode_statuses_and_heartbeats_are_silent(status: int) -> None:
    assert status_error(status, "Some Words") is None


@pytest.mark.parametrize("text", ["Consumer Deleted", "Consumer is push based"])
def test_error_statuses_a_missing_consumer_is_the_end(text: str) -> None:
    assert isinstance(status_error(409, text), errors.ConsumerDeletedError)


@pytest.mark.parametrize(
    ("status", "text"),
    [(409, "Exceeded MaxAckPending"), (409, ""), (400, "Bad Request"), (999, "?")],
)
def test_error_statuses_conflicts_and_unknown_ones_are_errors(
    status: int, text: str
) -> None:
    error = status_error(status, text)
    assert isinstance(error, errors.PushError)
    assert error.status == status
    assert str(status) in str(error)
    assert text in str(error)


def test_error_statuses_no_responders() -> None:
    assert isinstance(status_error(503, ""), errors.NoRespondersError)


# Heartbeats ---------------------------------------------------------------------------


def test_heartbeats_give_the_last_and_the_stalled_message() -> None:
    headers = Headers(
        {
            "Nats-Last-Consumer": "7",
            "Nats-Last-Stream": "12",
            "Nats-Consumer-Stalled": "$JS.FC.S.C.x",
        }
    )
    assert Heartbeat.of(headers) == Heartbeat(7, 12, "$JS.FC.S.C.x")


@pytest.mark.parametrize("text", ["", "x", "-1", "1.0", "٣", "9" * 25])
def test_heartbeats_with_odd_headers_say_nothing(text: str) -> None:
    headers = {"Nats-Last-Consumer": text, "Nats-Last-Stream": text}
    assert Heartbeat.of(headers) == Heartbeat(None, None, None)
    assert Heartbeat.of(None) == Heartbeat(None, None, None)


def test_heartbeats_the_alarm_comes_after_three_intervals() -> None:
    watch = HeartbeatMonitor(2.0, 100.0, HEARTBEATS_MISSED * 2.0)
    assert not watch.is_late(100.0, 105.9)
    assert watch.is_late(100.0, 106.0)


def test_heartbeats_the_alarm_can_be_set_otherwise() -> None:
    watch = HeartbeatMonitor(2.0, 100.0, 9.0)
    assert not watch.is_late(100.0, 108.9)
    assert watch.is_late(100.0, 109.0)


def test_heartbeats_every_message_puts_the_alarm_off() -> None:
    watch = HeartbeatMonitor(2.0, 100.0, 6.0)
    assert not watch.is_late(104.0, 109.9)
    assert watch.is_late(104.0, 110.0)


def test_heartbeats_the_alarm_repeats_every_three_intervals() -> None:
    watch = HeartbeatMonitor(2.0, 100.0, 6.0)
    alarms = [now for now in range(101, 119) if watch.is_late(100.0, now)]
    assert alarms == [106, 112, 118]


def test_heartbeats_none_are_missed_while_disconnected() -> None:
    watch = HeartbeatMonitor(2.0, 100.0, 6.0)
    watch.pause()
    assert not watch.is_late(100.0, 200.0)
    watch.resume(200.0)
    assert not watch.is_late(100.0, 205.0)
    assert watch.is_late(100.0, 206.0)


# Gaps ---------------------------------------------------------------------------------


def test_gaps_an_error_names_the_missing_messages() -> None:
    error = gap_error("S.C", (5, 7, 40, 44))
    assert (error.first, error.last) == (5, 7)
    assert (error.after_stream_sequence, error.before_stream_sequence) == (40, 44)
    assert "consumer sequences 5 to 7" in str(error)
    assert "between stream sequences 40 and 44" in str(error)
    assert "consumer sequence 5 did" in str(gap_error("S.C", (5, 5, 40, 42)))


# Flow control -------------------------------------------------------------------------


def test_flow_control_is_answered_in_its_turn() -> None:
    assert FlowControl().reached("a")


def test_flow_control_is_answered_once() -> None:
    flow = FlowControl()
    assert flow.reached("a")
    assert not flow.reached("a")
    assert flow.reached("b")


def test_flow_control_a_heartbeat_repeats_a_lost_request() -> None:
    flow = FlowControl()
    assert flow.stalled("a", waits=False)
    assert not flow.reached("a")


def test_flow_control_a_heartbeat_waits_for_the_backlog() -> None:
    flow = FlowControl()
    assert not flow.stalled("a", waits=True)
    assert flow.reached("a")


def test_flow_control_ignores_heartbeats_that_crossed_the_answer() -> None:
    flow = FlowControl()
    assert flow.reached("a")
    assert not flow.stalled("a", waits=False)


def test_flow_control_a_lost_answer_is_given_again() -> None:
    flow = FlowControl()
    assert flow.reached("a")
    asked = [flow.stalled("a", waits=False) for _ in range(6)]
    assert asked == [False, True, False, True, False, True]


def test_flow_control_answers_may_vanish_with_the_connection() -> None:
    flow = FlowControl()
    assert flow.reached("a")
    flow.lost()
    assert flow.stalled("a", waits=False)


# Ordered ------------------------------------------------------------------------------


def test_ordered_consumers_are_set_up_as_such() -> None:
    config = ordered_push_config(
        ConsumerConfig(
            durable_name="D",
            deliver_subject="elsewhere",
            ack_policy="explicit",
            ack_wait=5.0,
            max_ack_pending=7,
            filter_subject="a.>",
            deliver_policy="new",
        )
    )
    assert config == ConsumerConfig(
        ack_policy="none",
        max_deliver=1,
        max_ack_pending=-1,
        mem_storage=True,
        num_replicas=1,
        flow_control=True,
        idle_heartbeat=5.0,
        filter_subject="a.>",
        deliver_policy="new",
    )
    assert ordered_push_config(ConsumerConfig(idle_heartbeat=1)).idle_heartbeat == 1


def test_ordered_consumers_the_next_is_known_before_creation() -> None:
    cursor = Cursor(ConsumerConfig(deliver_policy="last_per_subject"), "p")
    stream = StreamInfo(state=StreamState(last_seq=10), created=datetime.now(UTC))
    cursor.check_end(StreamEnd(10, 1, 0.0, stream))
    assert (cursor.position, cursor.last_of_next()) == (0, None)
    cursor.on_created(ConsumerInfo(name="p_1", delivered=SequenceInfo(stream_seq=2)))
    cursor.advance(4, 1)
    # By then, another message may be the last of its subject.
    assert (cursor.position, cursor.last_of_next()) == (4, 10)
    cursor.advance(10, 3)
    assert cursor.last_of_next() is None


# The consumer of a subscription


def test_a_consumer_that_already_existed_is_never_deleted() -> None:
    assert set(OWNERSHIP_TRANSITIONS) == set(Ownership)
    assert not OWNERSHIP_TRANSITIONS[Ownership.THEIRS]
    assert {
        ownership
        for ownership in Ownership
        if Ownership.DELETING in OWNERSHIP_TRANSITIONS[ownership]
    } == {Ownership.OURS}
