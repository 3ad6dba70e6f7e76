"""Tests of the state of a fast ingest, sentence by sentence, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from jsync import PubAck, errors
from jsync.errors import LostRange, UnconfirmedRange
from jsync.jetstream.ingest import missing_messages as ingest_missing
from jsync.jetstream.ingest.engine import (
    MAX_RESTARTS,
    MAX_UNANSWERED_PINGS,
    TRANSITIONS,
    IngestEngine,
    IngestState,
    RecoveryPoint,
)

from ....support.ingest_answers import (
    APPEND,
    END,
    PING,
    START,
    answer,
    final,
    flow,
    gap,
    refused,
    rejection,
)


def wrote(engine: IngestEngine, count: int) -> None:
    """Tell the engine that the batch has `count` messages."""
    engine.sent = count
    engine.record_sent()


def opened(gaps: Any = "fail", sent: int = 1, received: int = 0) -> IngestEngine:
    """Return an engine whose batch the server has accepted, on a stream without replicas."""
    engine = IngestEngine(gaps)
    engine.replicated = False
    wrote(engine, 1)
    engine.handle(answer(1, START, flow(0)))
    wrote(engine, sent)
    if received:
        engine.handle(answer(received, APPEND, flow(received)))
    return engine


def now(engine: IngestEngine) -> IngestState:
    """Return the state. mypy would narrow the type by the last assertion."""
    return engine.state


# The window -------------------------------------------------------------------------------


def test_only_the_start_is_sent_before_an_answer() -> None:
    engine = IngestEngine()
    assert (engine.state, engine.limit) == (IngestState.IDLE, 1)
    wrote(engine, 1)
    assert (engine.state, engine.limit) == (IngestState.STARTING, 1)
    engine.handle(answer(1, START, flow(0, 500)))
    assert (engine.state, engine.limit) == (IngestState.OPEN, 1000)


@pytest.mark.parametrize("outstanding", [1, 2, 3, 8, 32])
def test_so_many_acks_may_be_outstanding(outstanding: int) -> None:
    engine = IngestEngine(outstanding=outstanding)
    wrote(engine, 1)
    engine.handle(answer(1, START, flow(0, 500)))
    assert engine.limit == 500 * outstanding
    wrote(engine, 500)
    engine.handle(answer(500, APPEND, flow(500, 500)))
    assert engine.limit == 500 + 500 * outstanding


def test_the_server_sets_the_pace_up_and_down() -> None:
    engine = opened(sent=2)
    for seq, msgs in ((0, 1), (1, 2), (3, 4), (7, 8), (15, 4), (19, 2)):
        wrote(engine, max(seq, 2))
        engine.handle(answer(seq, APPEND, flow(seq, msgs)))
        assert engine.limit == seq + 2 * msgs


def test_an_ack_stands_for_all_before_it() -> None:
    engine = opened(sent=40)
    engine.handle(answer(40, APPEND, flow(40)))
    assert (engine.received, engine.acked, engine.limit) == (40, 40, 60)


def test_an_ack_that_comes_late_takes_nothing_back() -> None:
    engine = opened(sent=40, received=30)
    engine.handle(answer(40, PING, flow(20, 1)))
    assert (engine.received, engine.limit) == (30, 50)


def test_a_new_leader_may_ack_off_the_beat() -> None:
    engine = opened(sent=40, received=30)
    engine.handle(answer(37, APPEND, flow(37)))
    assert (engine.received, engine.limit) == (37, 57)


def test_an_ack_of_unsent_messages_is_rejected() -> None:
    engine = opened(sent=5)
    engine.handle(answer(5, APPEND, flow(50)))
    assert engine.received == 5


# gaps="fail" ------------------------------------------------------------------------------


def test_gaps_fail_stops_at_gaps_and_then_continues() -> None:
    engine = opened(sent=9)
    engine.handle(answer(5, APPEND, gap(3, 5)))
    assert now(engine) is IngestState.FAILING
    assert engine.limit == engine.sent
    engine.handle(answer(5, APPEND, final(2)))
    for late in (6, 7, 8):
        engine.handle(answer(late, APPEND, refused(10208)))
    assert (now(engine), engine.acked) == (IngestState.CONFIRMING_END, 2)
    assert engine.limit == engine.sent
    engine.handle(answer(9, PING, refused(10208)))
    assert (now(engine), engine.acked) == (IngestState.BROKEN, 2)
    assert engine.recovery_point(duplicates=True) == RecoveryPoint(
        "S", 2, 0, final=True
    )
    engine.confirm_tail()
    engine.restart(reconnected=False)
    assert (engine.state, engine.base, engine.sent) == (IngestState.IDLE, 2, 0)
    wrote(engine, 1)
    engine.handle(answer(1, START, flow(0)))
    wrote(engine, 7)
    engine.end()
    engine.handle(answer(8, END, final(7, seq=9)))
    assert now(engine) is IngestState.ENDED
    assert engine.pub_ack == PubAck(stream="S", seq=9, batch="id", count=9)


def test_a_final_answer_below_the_sent_count_fails() -> None:
    engine = opened(sent=9)
    engine.end()
    engine.handle(answer(10, END, final(8)))
    assert now(engine) is IngestState.CONFIRMING_END


def test_a_deposed_leader_never_has_the_last_word() -> None:
    # Observed replies of nats-server 2.14 and 2.15: for the old leader the message after the
    # change is a gap, and the new leader has all forwarded messages.
    engine = opened(sent=9)
    engine.handle(answer(9, APPEND, gap(4, 9)))
    engine.handle(answer(9, APPEND, final(3)))
    engine.handle(answer(9, PING, None))
    assert now(engine) is IngestState.CONFIRMING_END
    engine.handle(answer(8, APPEND, flow(8)))  # the first reply of the new leader
    assert (now(engine), engine.acked) == (IngestState.CONFIRMING_END, 8)
    engine.handle(answer(9, PING, gap(9, 10)))
    engine.handle(answer(9, PING, final(8, seq=18)))
    assert now(engine) is IngestState.CONFIRMING_END
    engine.handle(answer(9, PING, refused(10208)))
    assert (now(engine), engine.acked) == (IngestState.BROKEN, 8)
    assert engine.recovery_point(duplicates=False) == RecoveryPoint(
        "S", 18, 0, final=True
    )


@pytest.mark.parametrize("early", [True, False])
def test_a_leader_with_the_whole_batch_continues_it(early: bool) -> None:
    engine = opened(sent=9)
    engine.handle(answer(9, APPEND, gap(4, 9)))
    if early:
        engine.handle(answer(9, APPEND, final(3)))
        assert now(engine) is IngestState.CONFIRMING_END
    engine.handle(answer(8, PING, flow(8)))
    assert (
        now(engine) is not IngestState.OPEN
    )  # this reply came before the last message
    engine.handle(answer(9, PING, flow(8)))
    assert now(engine) is IngestState.OPEN
    assert engine.known_to_server
    engine.end()
    engine.handle(answer(10, END, final(9)))
    assert now(engine) is IngestState.ENDED


def test_unacknowledged_messages_may_be_stored_until_the_end() -> None:
    engine = opened(sent=9)
    engine.handle(answer(9, PING, gap(4, 10)))
    engine.handle(answer(9, PING, final(3)))
    engine.handle(answer(9, PING, refused(10208)))
    engine.fail(errors.JetStreamError("ambiguous"))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert (error.acked, error.unconfirmed) == (3, (4, 9))


def test_a_settled_ingest_has_nothing_unconfirmed() -> None:
    engine = opened(sent=9)
    engine.handle(answer(9, PING, gap(4, 10)))
    engine.handle(answer(9, PING, final(3)))
    engine.handle(answer(9, PING, refused(10208)))
    engine.confirm_tail()
    assert engine.recovery_point(duplicates=False) is None
    engine.fail(errors.JetStreamError("too large to be sent again"))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert (error.acked, error.unconfirmed) == (3, None)


def again(engine: IngestEngine, stored: int, sequence: int) -> None:
    """Break the batch after `stored` messages, and start another one."""
    engine.handle(answer(engine.sent, PING, gap(stored + 1, engine.sent + 1)))
    engine.handle(answer(engine.sent, PING, final(stored, sequence)))
    engine.handle(answer(engine.sent, PING, refused(10208)))
    engine.confirm_tail()
    engine.restart(reconnected=False)


def test_an_unknown_batch_is_measured_from_its_predecessor() -> None:
    engine = opened(sent=9)
    again(engine, 5, 105)
    wrote(engine, 1)
    engine.handle(answer(1, START, flow(0)))
    wrote(engine, 4)
    engine.handle(answer(2, APPEND, flow(2)))
    engine.handle(answer(3, APPEND, refused(10208)))
    assert now(engine) is IngestState.CONFIRMING_END  # the fourth attempt is on its way
    engine.handle(answer(4, PING, refused(10208)))
    assert now(engine) is IngestState.BROKEN
    assert engine.recovery_point(duplicates=False) == RecoveryPoint(
        "S", 105, 2, final=False
    )
    assert engine.recovery_point(duplicates=True) == RecoveryPoint(
        "S", 105, None, final=False
    )


def test_an_unknown_start_is_measured_from_its_predecessor() -> None:
    engine = opened(sent=9)
    again(engine, 5, 105)
    wrote(engine, 1)
    engine.handle(answer(1, START, flow(0)))
    engine.handle(answer(1, PING, gap(1, 2)))
    engine.handle(answer(1, PING, final(0)))
    assert now(engine) is IngestState.BROKEN
    assert engine.recovery_point(duplicates=True) == RecoveryPoint(
        "S", 105, 0, final=True
    )


def test_an_unknown_first_start_is_in_doubt() -> None:
    engine = opened(sent=1)
    engine.handle(answer(1, PING, gap(1, 2)))
    engine.handle(answer(1, PING, final(0)))
    assert now(engine) is IngestState.FAILED
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert error.unconfirmed == (1, 1)


def test_with_message_ids_no_leader_is_asked() -> None:
    engine = opened(sent=9)
    engine.handle(answer(9, APPEND, gap(4, 9)))
    engine.handle(answer(9, APPEND, final(3)), repeatable=True)
    assert now(engine) is IngestState.BROKEN
    assert engine.recovery_point(duplicates=True) is None
    engine.restart(reconnected=False)
    engine.fail(errors.JetStreamError("other"))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert error.unconfirmed == (4, 9)


def test_a_rejection_after_short_counts_leaves_a_doubt() -> None:
    engine = opened(sent=30)
    engine.handle(answer(25, APPEND, refused(10054)))
    engine.handle(answer(30, PING, gap(20, 31)))
    engine.handle(answer(30, PING, final(19)))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert (error.acked, error.unconfirmed, error.lost) == (19, (20, 30), ())


def test_fail_ends_with_the_message_that_is_refused() -> None:
    engine = opened(sent=30, received=20)
    engine.handle(answer(25, APPEND, rejection(25)))
    assert now(engine) is IngestState.FAILING
    engine.handle(answer(25, APPEND, final(24)))
    assert now(engine) is IngestState.FAILED
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert isinstance(error.__cause__, errors.WrongLastSequenceError)
    assert (error.acked, error.unconfirmed) == (24, None)
    assert [lost[:2] for lost in error.lost] == [(25, 25), (26, 30)]
    assert error.lost[0][2] is error.__cause__


def test_an_untyped_rejection_concerns_the_message_it_answers() -> None:
    engine = opened(sent=30)
    engine.handle(answer(25, APPEND, refused(10054)))
    assert now(engine) is IngestState.FAILING
    engine.handle(answer(30, PING, gap(25, 31)))
    engine.handle(answer(30, PING, final(24)))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert [lost[:2] for lost in error.lost] == [(25, 25), (26, 30)]


@pytest.mark.parametrize("err_code", [10205, 10206, 10207, 10211, 10185, 10071])
def test_refusing_the_only_message_raises_that_rejection(err_code: int) -> None:
    engine = IngestEngine()
    wrote(engine, 1)
    if err_code == 10071:
        engine.handle(answer(1, START, flow(0)))
    engine.handle(answer(1, START, refused(err_code)))
    assert now(engine) is IngestState.FAILED
    error = engine.error()
    assert isinstance(error, errors.APIError)
    assert error.err_code == err_code
    assert not engine.known_to_server


def test_refusing_the_first_message_late_loses_the_rest() -> None:
    engine = opened(sent=3)
    engine.handle(answer(1, START, refused(10071)))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert (error.acked, error.unconfirmed) == (0, None)


@pytest.mark.parametrize("err_code", [10205, 10206, 10185])
@pytest.mark.parametrize("gaps", ["fail", "ok"])
def test_some_errors_end_the_batch_in_the_middle(err_code: int, gaps: str) -> None:
    engine = opened(gaps, sent=30, received=20)
    engine.handle(answer(25, APPEND, refused(err_code)))
    assert now(engine) is IngestState.FAILED
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert (error.acked, error.unconfirmed) == (20, (21, 30))


# gaps="ok" --------------------------------------------------------------------------------


def test_gaps_ok_continues_over_a_gap() -> None:
    engine = opened("ok", sent=9)
    engine.handle(answer(5, APPEND, gap(3, 5)))
    assert now(engine) is IngestState.OPEN
    assert engine.missing.lost == engine.missing.take_new() == [LostRange(3, 4, None)]
    engine.end()
    engine.handle(answer(10, END, gap(9, 10)))
    engine.handle(answer(10, END, final(9)))
    assert now(engine) is IngestState.ENDED
    assert (engine.missing.lost, engine.missing.lost_count) == (
        [LostRange(3, 4, None), LostRange(9, 9, None)],
        3,
    )


def test_gaps_ok_continues_over_a_refused_message() -> None:
    engine = opened("ok", sent=9)
    engine.handle(answer(4, APPEND, rejection(4)))
    engine.handle(answer(5, APPEND, refused(10070)))
    assert now(engine) is IngestState.OPEN
    assert [lost[:2] for lost in engine.missing.lost] == [(4, 4), (5, 5)]


def test_a_gap_with_replicas_leaves_a_doubt() -> None:
    engine = opened("ok", sent=9)
    engine.replicated = True
    engine.handle(answer(5, APPEND, gap(3, 5)))
    assert not engine.missing.lost
    assert engine.missing.unconfirmed == [UnconfirmedRange(3, 4, None)]


def test_a_refused_message_is_not_pending() -> None:
    engine = opened("ok", sent=20)
    assert engine.limit == 20
    for sequence in range(5, 15):
        engine.handle(answer(sequence, APPEND, rejection(sequence, 10077)))
    assert engine.limit == 30
    wrote(engine, 30)
    engine.handle(
        answer(20, APPEND, flow(10))
    )  # six of the ten before it were rejected
    assert engine.limit == 10 + 20 + 4


def test_each_message_is_reported_once() -> None:
    engine = opened("ok", sent=30, received=10)
    for sequence in (12, 13, 20):
        engine.handle(answer(sequence, APPEND, rejection(sequence)))
    engine.handle(answer(26, APPEND, gap(25, 26)))
    engine.fail(errors.ConnectionLostError("gone"))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert [one[:2] for one in error.lost] == [(12, 13), (20, 20), (25, 25)]
    assert [one[:2] for one in error.unconfirmed_ranges] == [
        (11, 11),
        (14, 19),
        (21, 24),
        (26, 30),
    ]
    assert (error.acked, error.unconfirmed) == (10, (11, 30))


def test_lost_rejections_do_not_stall_the_ingest() -> None:
    engine = opened("ok", sent=30, received=10)
    assert engine.limit == 30
    engine.disconnected(30)  # the rejections of all twenty are lost
    for _ in range(MAX_UNANSWERED_PINGS):
        assert not engine.should_roll_over(1000, full=False)
        engine.handle(answer(30, PING, flow(10)))
    assert engine.should_roll_over(1000, full=False)
    engine.end(more=True)
    engine.handle(answer(31, END, final(30)))
    assert now(engine) is IngestState.BROKEN
    assert [one[:2] for one in engine.missing.unconfirmed] == [(11, 30)]
    engine.restart(reconnected=True)
    assert (now(engine), engine.base) == (IngestState.IDLE, 30)


# The stream has too much to store -----------------------------------------------------------


def test_a_message_without_room_moves_to_another_batch() -> None:
    engine = opened(sent=9)
    engine.handle(answer(4, APPEND, refused(10167, 429)))
    assert now(engine) is IngestState.FAILING
    engine.handle(answer(5, APPEND, gap(4, 5)))
    engine.handle(answer(5, APPEND, final(3)))
    engine.handle(answer(9, PING, refused(10208)))
    assert (now(engine), engine.acked) == (IngestState.BROKEN, 3)
    assert isinstance(engine.busy, errors.TooManyRequestsError)
    engine.confirm_tail()
    engine.restart(reconnected=False)
    assert now(engine) is IngestState.IDLE
    assert vars(engine)["busy"] is None


@pytest.mark.parametrize("gaps", ["fail", "ok"])
def test_a_start_without_room_is_retried_many_times(
    gaps: Any,
) -> None:
    engine = IngestEngine(gaps)
    for _ in range(10 * MAX_RESTARTS):
        wrote(engine, 1)
        engine.handle(answer(1, START, refused(10167, 429)))
        assert now(engine) is IngestState.BROKEN
        engine.restart(reconnected=False)
        assert now(engine) is IngestState.IDLE


def test_ok_loses_messages_without_room_and_pauses() -> None:
    engine = opened("ok", sent=9)
    engine.handle(answer(4, APPEND, refused(10167, 429)))
    assert [one[:2] for one in engine.missing.lost] == [(4, 4)]
    assert now(engine) is IngestState.BLOCKED
    engine.handle(answer(9, PING, flow(0)))
    assert now(engine) is IngestState.OPEN


def test_an_end_without_room_is_sent_again() -> None:
    engine = opened(sent=9)
    engine.end()
    engine.handle(answer(10, END, refused(10167, 429)))
    assert now(engine) is IngestState.BLOCKED
    engine.handle(answer(9, PING, flow(0)))
    assert now(engine) is IngestState.OPEN


# Bytes under way ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "asked"),
    [(0, 1000), (100, 1000), (1 << 20, 4), (4 << 20, 1), (1 << 30, 1)],
)
def test_acks_are_requested_often_enough_for_the_bytes(size: int, asked: int) -> None:
    engine = IngestEngine(window_bytes=8 << 20)
    engine.begin(size)
    assert engine.requested_flow == asked


def test_too_rare_acks_end_the_batch_for_another() -> None:
    engine = opened(sent=9)
    assert engine.should_roll_over(1 << 23, full=True)
    wrote(engine, 10)
    assert not engine.should_roll_over(1 << 23, full=True)  # an ack is due


def test_too_frequent_acks_end_the_batch_for_another() -> None:
    engine = opened(sent=20)
    assert not engine.should_roll_over(1000, full=False)  # the server asks for these
    engine.requested_flow = 10
    assert engine.should_roll_over(1000, full=False)
    assert not engine.should_roll_over(1 << 22, full=False)


def test_ending_a_batch_for_another_is_not_final() -> None:
    engine = opened(sent=9)
    engine.end(more=True)
    assert now(engine) is IngestState.ROLLING_OVER
    engine.handle(answer(10, END, final(9)))
    assert (now(engine), engine.acked) == (IngestState.BROKEN, 9)
    assert engine.recovery_point(duplicates=False) is None
    engine.restart(reconnected=False)
    assert (now(engine), engine.base) == (IngestState.IDLE, 9)


def test_a_loss_reported_twice_counts_once() -> None:
    engine = opened("ok", sent=30)
    for sequence in (7, 8, 12):
        engine.handle(answer(sequence, APPEND, None))
    engine.handle(answer(20, APPEND, gap(5, 20)))
    engine.handle(answer(20, APPEND, gap(5, 20)))
    assert engine.missing.lost_count == 15
    covered = [n for one in engine.missing.lost for n in range(one.first, one.last + 1)]
    assert covered == list(range(5, 20))


def test_a_sequence_going_backwards_always_ends_the_batch() -> None:
    engine = opened("ok", sent=9)
    engine.handle(answer(2, APPEND, gap(4, 2)))
    assert not engine.missing.lost
    engine.handle(answer(2, APPEND, final(9)))
    assert now(engine) is IngestState.BROKEN


def test_gaps_ok_continues_after_a_forgotten_batch() -> None:
    engine = opened("ok", sent=30, received=20)
    engine.handle(answer(30, PING, refused(10208)))
    assert now(engine) is IngestState.BROKEN
    assert [one[:2] for one in engine.missing.unconfirmed] == [(21, 30)]
    assert not engine.missing.lost
    engine.restart(reconnected=True)
    assert engine.base == 30


# The server is not there, or has forgotten -------------------------------------------------


def test_storing_the_first_message_reveals_an_old_server() -> None:
    engine = IngestEngine()
    wrote(engine, 1)
    engine.handle(answer(1, START, {"stream": "S", "seq": 17}))
    error = engine.error()
    assert isinstance(error, errors.IngestUnsupportedError)
    assert error.stored == PubAck(stream="S", seq=17)
    assert not engine.known_to_server


@pytest.mark.parametrize("gaps", ["fail", "ok"])
def test_a_start_without_responders_is_retried_twice(gaps: Any) -> None:
    engine = IngestEngine(gaps)
    for _ in range(MAX_RESTARTS + 1):
        assert now(engine) is IngestState.IDLE
        wrote(engine, 1)
        engine.handle(answer(1, START, None))
        assert now(engine) is IngestState.BROKEN
        engine.restart(reconnected=False)
    assert now(engine) is IngestState.FAILED
    assert isinstance(engine.error(), errors.NoStreamResponseError)


def test_a_reconnect_and_progress_allow_new_attempts() -> None:
    engine = opened(sent=2)
    again(engine, 1, 1)
    for turn in range(20):
        wrote(engine, 1)
        engine.handle(answer(1, START, flow(0)))
        engine.handle(answer(1, PING, gap(1, 2)))
        engine.handle(answer(1, PING, final(turn % 2)))
        assert now(engine) is IngestState.BROKEN
        engine.restart(reconnected=turn % 2 == 0)
    assert now(engine) is IngestState.IDLE


def test_without_a_leader_only_pings_are_sent() -> None:
    engine = opened(sent=30, received=20)
    engine.handle(answer(25, APPEND, None))
    assert now(engine) is IngestState.BLOCKED
    assert engine.limit == engine.sent
    engine.handle(answer(30, PING, None))
    assert now(engine) is IngestState.BLOCKED
    engine.handle(answer(30, PING, gap(25, 31)))
    engine.handle(answer(30, PING, final(24)))
    engine.handle(answer(30, PING, refused(10208)))
    assert (now(engine), engine.acked) == (IngestState.BROKEN, 24)


def test_an_end_without_responders_is_retried() -> None:
    engine = opened(sent=30, received=20)
    engine.end()
    engine.handle(answer(31, END, None))
    assert now(engine) is IngestState.BLOCKED
    engine.handle(answer(30, PING, flow(20)))
    assert now(engine) is IngestState.OPEN


def test_a_ping_that_finds_the_batch_reopens_it() -> None:
    engine = opened(sent=30, received=20)
    engine.end()
    engine.handle(answer(30, APPEND, flow(30)))
    assert now(engine) is IngestState.ENDING
    engine.handle(answer(30, PING, flow(30)))
    assert now(engine) is IngestState.OPEN
    engine.end()
    engine.handle(answer(31, END, final(30)))
    assert now(engine) is IngestState.ENDED
    engine.handle(answer(31, END, refused(10208)))  # the reply to the second end
    assert now(engine) is IngestState.ENDED


def test_an_unknown_batch_leaves_its_tail_in_doubt() -> None:
    engine = opened(sent=30, received=20)
    engine.handle(answer(26, APPEND, refused(10208)))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert isinstance(error.__cause__, errors.BatchPublishUnknownBatchIDError)
    assert (error.acked, error.unconfirmed, error.lost) == (20, (21, 30), ())


def test_with_message_ids_the_tail_is_always_retried() -> None:
    engine = opened(sent=30, received=20)
    engine.handle(answer(26, APPEND, refused(10208)), repeatable=True)
    assert (engine.state, engine.acked) == (IngestState.BROKEN, 20)
    engine.restart(reconnected=True)
    wrote(engine, 1)
    engine.handle(answer(1, START, refused(10205)))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert error.unconfirmed == (21, 30)  # the previous batch may have stored them


def test_after_a_gap_only_pings_report_unknown_batches() -> None:
    engine = opened(sent=30, received=20)
    engine.handle(answer(25, APPEND, gap(24, 25)))
    engine.handle(answer(26, APPEND, refused(10208)))
    assert now(engine) is IngestState.FAILING
    engine.handle(answer(30, PING, refused(10208)))
    assert now(engine) is IngestState.FAILED
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert error.unconfirmed == (21, 30)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (errors.TimeoutError("late"), errors.IngestTimeoutError),
        (errors.ConnectionLostError("lost"), errors.IngestConnectionError),
        (errors.ConnectionClosedError("closed"), errors.IngestConnectionError),
        (errors.JetStreamError("other"), errors.IngestError),
    ],
)
def test_an_early_end_names_the_messages_in_doubt(
    cause: Exception, kind: type[errors.IngestError]
) -> None:
    engine = opened(sent=30, received=20)
    engine.fail(cause)
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert type(error) is kind
    assert error.__cause__ is cause
    assert (error.acked, error.unconfirmed) == (20, (21, 30))
    assert "21 to 30 may be stored or not" in str(error)


def test_every_state_has_a_way_to_an_end() -> None:
    assert set(TRANSITIONS) == set(IngestState)
    for state, after in TRANSITIONS.items():
        assert state not in after
        assert (IngestState.FAILED in after) == (
            state not in (IngestState.ENDED, IngestState.FAILED)
        )


def test_acks_across_a_lost_connection_leave_a_doubt() -> None:
    engine = opened("ok", sent=30, received=10)
    engine.disconnected(25)
    assert not engine.missing.unconfirmed  # a gap may be reported first
    engine.handle(answer(26, APPEND, gap(16, 26)))
    engine.handle(answer(20, APPEND, flow(20)))
    engine.handle(answer(30, APPEND, flow(30)))
    assert [one[:2] for one in engine.missing.lost] == [(16, 25)]
    (unconfirmed,) = engine.missing.unconfirmed
    assert unconfirmed[:2] == (11, 15)
    assert isinstance(unconfirmed.error, errors.ConnectionLostError)
    assert engine.acked == 30


def test_a_lost_connection_leaves_one_range_in_doubt() -> None:
    engine = opened("ok", sent=30, received=10)
    engine.disconnected(30)
    for received in (15, 20, 25, 30):
        engine.handle(answer(received, APPEND, flow(received)))
    assert [one[:2] for one in engine.missing.unconfirmed] == [(11, 30)]
    assert [one[:2] for one in engine.missing.take_new()] == [
        *((11, 15), (16, 20), (21, 25), (26, 30))
    ]


def test_an_ack_of_the_next_leader_leaves_doubt() -> None:
    engine = opened("ok", sent=30, received=10)
    engine.handle(answer(30, PING, None))
    assert now(engine) is IngestState.BLOCKED
    engine.handle(answer(25, APPEND, flow(25)))
    assert now(engine) is IngestState.OPEN
    (unconfirmed,) = engine.missing.unconfirmed
    assert unconfirmed[:2] == (11, 25)
    assert isinstance(unconfirmed.error, errors.NoStreamResponseError)


def test_an_old_ping_proves_no_report_of_gaps() -> None:
    engine = opened("ok", sent=30, received=10)
    engine.disconnected(30)
    engine.handle(answer(20, PING, flow(10)))  # sent on the lost connection
    engine.disconnected(30)  # the report of a gap is lost as well
    engine.handle(answer(30, PING, flow(30)))
    assert [one[:2] for one in engine.missing.unconfirmed] == [(11, 30)]


def test_late_answers_about_an_ended_batch_change_nothing() -> None:
    for state in (
        IngestState.IDLE,
        IngestState.BROKEN,
        IngestState.ENDED,
        IngestState.FAILED,
    ):
        engine = opened(sent=3)
        engine._state.current = state
        before = repr(vars(engine))
        for body in (flow(3), gap(1, 2), rejection(2), final(1), refused(10205), None):
            engine.handle(answer(3, APPEND, body))
        assert repr(vars(engine)) == before


def test_of_two_rejections_the_first_one_ends_it() -> None:
    engine = opened(sent=30)
    engine.handle(answer(25, APPEND, rejection(25)))
    engine.handle(answer(27, APPEND, rejection(27, 10054)))
    engine.handle(answer(25, APPEND, final(24)))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert isinstance(error.__cause__, errors.WrongLastSequenceError)
    assert [lost[:2] for lost in error.lost] == [(25, 25), (26, 30)]


def test_ok_loses_messages_but_not_pings_without_responders() -> None:
    engine = opened("ok", sent=9)
    engine.handle(answer(9, PING, None))
    assert not engine.missing.lost
    engine.handle(answer(4, APPEND, None))
    assert (engine.missing.lost, engine.state) == (
        [LostRange(4, 4, None)],
        IngestState.BLOCKED,
    )


def test_a_ping_without_responders_settles_no_start() -> None:
    engine = IngestEngine()
    wrote(engine, 1)
    engine.handle(answer(1, PING, None))
    assert now(engine) is IngestState.STARTING
    engine.handle(answer(1, START, None))
    assert now(engine) is IngestState.BROKEN


def test_ok_fails_when_start_and_ping_are_refused() -> None:
    engine = IngestEngine("ok")
    wrote(engine, 1)
    engine.handle(answer(1, START, refused(10023)))
    assert now(engine) is IngestState.STARTING
    engine.handle(answer(1, PING, refused(10023)))
    assert now(engine) is IngestState.FAILED


def test_lost_ranges_are_limited_but_all_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ingest_missing, "MAX_RANGES", 3)
    engine = opened("ok", sent=30)
    for sequence in range(2, 12, 2):
        engine.handle(answer(sequence, APPEND, rejection(sequence)))
    assert [lost.first for lost in engine.missing.lost] == [2, 4, 6]
    assert engine.missing.lost_count == 5
