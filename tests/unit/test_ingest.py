"""The state of a fast ingest, without a server: sentence by sentence, and against a model."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from jsync import PubAck, errors
from jsync.jetstream.ingest import (
    LEGAL,
    MOST_REPEATS,
    Answer,
    IngestEngine,
    Kind,
    Lost,
    Operation,
    State,
    read_answer,
)

START, APPEND, COMMIT, END, PING = Operation


def error_of(err_code: int, code: int = 400) -> dict[str, Any]:
    return {"code": code, "err_code": err_code, "description": f"error {err_code}"}


def answer(
    sequence: int, operation: Operation, body: dict[str, Any] | None = None
) -> Answer:
    """What the server says on the reply subject of a message; None: nobody is there."""
    subject = f"_INBOX.id.500.fail.{sequence}.{operation.value}.$FI"
    if body is None:
        return read_answer(subject, 503, b"")
    return read_answer(subject, None, json.dumps(body).encode())


def flow(seq: int, msgs: int = 10) -> dict[str, Any]:
    return {"type": "ack", "seq": seq, "msgs": msgs}


def gap(last_seq: int, seq: int) -> dict[str, Any]:
    return {"type": "gap", "last_seq": last_seq, "seq": seq}


def refusal(seq: int, err_code: int = 10071) -> dict[str, Any]:
    return {"type": "err", "seq": seq, "error": error_of(err_code)}


def final(count: int, seq: int = 0) -> dict[str, Any]:
    return {"stream": "S", "seq": seq or count, "batch": "id", "count": count}


def refused(err_code: int, code: int = 400) -> dict[str, Any]:
    return {"error": error_of(err_code, code), "stream": "S", "seq": 0}


def opened(gaps: Any = "fail", sent: int = 1, received: int = 0) -> IngestEngine:
    """A batch that the server has answered."""
    engine = IngestEngine(gaps)
    engine.wrote(1)
    engine.take(answer(1, START, flow(0)))
    engine.wrote(sent)
    if received:
        engine.take(answer(received, APPEND, flow(received)))
    return engine


def now(engine: IngestEngine) -> State:
    """Its state, which mypy does not take for the one of the last assertion."""
    return engine.state


# Answers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "fields"),
    [
        ('{"type":"ack","seq":20,"msgs":10}', Kind.FLOW, {"seq": 20, "msgs": 10}),
        ('{"type":"gap","last_seq":3,"seq":5}', Kind.GAP, {"last_seq": 3, "seq": 5}),
        ('{"stream":"S","seq":9,"batch":"x","count":7}', Kind.ENDED, {}),
        ('{"stream":"S","seq":0,"batch":"x","count":0}', Kind.ENDED, {}),
        ('{"stream":"S", "seq":1}', Kind.STORED, {}),
        ('{"stream":"S","domain":"hub","seq":1}', Kind.STORED, {}),
    ],
)
def test_an_answer_is_told_by_its_type_and_its_batch(
    body: str, kind: Kind, fields: dict[str, int]
) -> None:
    found = read_answer("_INBOX.id.10.ok.4.1.$FI", None, body.encode())
    assert (found.kind, found.sequence, found.operation) == (kind, 4, APPEND)
    for name, value in fields.items():
        assert getattr(found, name) == value


def test_the_final_answer_is_a_pub_ack() -> None:
    body = (
        b'{"stream":"S","domain":"hub","seq":9,"batch":"x","count":7,"duplicate":true}'
    )
    found = read_answer("_INBOX.id.10.ok.7.2.$FI", None, body)
    assert found.operation is COMMIT
    assert found.ack == PubAck(
        stream="S", seq=9, batch="x", count=7, domain="hub", duplicate=True
    )


@pytest.mark.parametrize(
    ("err_code", "kind"),
    [
        (10205, errors.BatchPublishDisabledError),
        (10206, errors.BatchPublishInvalidPatternError),
        (10207, errors.BatchPublishInvalidBatchIDError),
        (10208, errors.BatchPublishUnknownBatchIDError),
        (10211, errors.BatchPublishTooManyInflightError),
        (10185, errors.RequiredAPILevelError),
        (10071, errors.WrongLastSequenceError),
        (10054, errors.MessageTooLargeError),
        (99999, errors.APIError),
    ],
)
def test_errors_are_typed_whatever_shape_they_come_in(
    err_code: int, kind: type[errors.APIError]
) -> None:
    plain = answer(3, APPEND, refused(err_code))
    typed = answer(3, APPEND, refusal(3, err_code))
    assert (plain.kind, plain.sequence) == (Kind.REFUSED, 3)
    assert (typed.kind, typed.seq) == (Kind.FAILED, 3)
    for found in (plain, typed):
        assert type(found.error) is kind
        assert found.error.err_code == err_code


def test_a_status_is_nobody_unless_it_has_a_body() -> None:
    subject = "_INBOX.id.10.ok.4.1.$FI"
    assert read_answer(subject, 503, b"").kind is Kind.NOBODY
    body = json.dumps(refused(10167, 429)).encode()
    found = read_answer(subject, 429, body)
    assert found.kind is Kind.REFUSED
    assert found.error is not None
    assert found.error.err_code == 10167


@pytest.mark.parametrize("prefix", ["p", "_INBOX", "a.b.c.d.e.f.g.h.i.j.k"])
def test_the_reply_subject_is_read_from_its_end(prefix: str) -> None:
    found = read_answer(f"{prefix}.id.10.ok.12.3.$FI", 503, b"")
    assert (found.sequence, found.operation) == (12, END)


@pytest.mark.parametrize("subject", ["", "a.b", "a.id.10.ok.x.1.$FI", "a.1.9.$FI"])
def test_a_subject_of_another_form_is_refused(subject: str) -> None:
    with pytest.raises(errors.JetStreamError):
        read_answer(subject, None, b"{}")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"type":"new"}', b'{"seq":"1"}', b"\xff"]
)
def test_a_body_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(errors.JetStreamError):
        read_answer("_INBOX.id.10.ok.4.1.$FI", None, body)


# The window -------------------------------------------------------------------------------


def test_nothing_but_the_start_is_sent_before_the_first_answer() -> None:
    engine = IngestEngine()
    assert (engine.state, engine.limit) == (State.IDLE, 1)
    engine.wrote(1)
    assert (engine.state, engine.limit) == (State.STARTING, 1)
    engine.take(answer(1, START, flow(0, 500)))
    assert (engine.state, engine.limit) == (State.OPEN, 1000)


@pytest.mark.parametrize("outstanding", [1, 2, 3, 8, 32])
def test_so_many_acks_may_be_outstanding(outstanding: int) -> None:
    engine = IngestEngine(outstanding=outstanding)
    engine.wrote(1)
    engine.take(answer(1, START, flow(0, 500)))
    assert engine.limit == 500 * outstanding
    engine.wrote(500)
    engine.take(answer(500, APPEND, flow(500, 500)))
    assert engine.limit == 500 + 500 * outstanding


def test_the_server_sets_the_pace_up_and_down() -> None:
    engine = opened(sent=2)
    for seq, msgs in ((0, 1), (1, 2), (3, 4), (7, 8), (15, 4), (19, 2)):
        engine.wrote(max(seq, 2))
        engine.take(answer(seq, APPEND, flow(seq, msgs)))
        assert engine.limit == seq + 2 * msgs


def test_an_ack_stands_for_all_before_it() -> None:
    engine = opened(sent=40)
    engine.take(answer(40, APPEND, flow(40)))
    assert (engine.received, engine.acked, engine.limit) == (40, 40, 60)


def test_an_ack_that_comes_late_takes_nothing_back() -> None:
    engine = opened(sent=40, received=30)
    engine.take(answer(40, PING, flow(20, 1)))
    assert (engine.received, engine.limit) == (30, 50)


def test_an_ack_of_a_new_leader_need_not_fall_on_the_beat() -> None:
    engine = opened(sent=40, received=30)
    engine.take(answer(37, APPEND, flow(37)))
    assert (engine.received, engine.limit) == (37, 57)


def test_no_more_is_acknowledged_than_was_sent() -> None:
    engine = opened(sent=5)
    engine.take(answer(5, APPEND, flow(50)))
    assert engine.received == 5


# gaps="fail" ------------------------------------------------------------------------------


def test_fail_stops_at_a_gap_and_goes_on_behind_what_is_stored() -> None:
    engine = opened(sent=9)
    engine.take(answer(5, APPEND, gap(3, 5)))
    assert now(engine) is State.BREAKING
    assert engine.limit == engine.sent
    engine.take(answer(5, APPEND, final(2)))
    for late in (6, 7, 8):
        engine.take(answer(late, APPEND, refused(10208)))
    assert (engine.state, engine.acked) == (State.BROKEN, 2)
    engine.restarts(reconnected=False)
    assert (engine.state, engine.base, engine.sent) == (State.IDLE, 2, 0)
    engine.wrote(1)
    engine.take(answer(1, START, flow(0)))
    engine.wrote(7)
    engine.ends(7)
    engine.take(answer(8, END, final(7, seq=9)))
    assert now(engine) is State.ENDED
    assert engine.pub_ack == PubAck(stream="S", seq=9, batch="id", count=9)


def test_a_final_answer_with_less_than_was_sent_is_no_success() -> None:
    engine = opened(sent=9)
    engine.ends(9)
    engine.take(answer(10, END, final(8)))
    assert now(engine) is State.BROKEN


def test_fail_ends_with_the_message_that_is_refused() -> None:
    engine = opened(sent=30, received=20)
    engine.take(answer(25, APPEND, refusal(25)))
    assert now(engine) is State.BREAKING
    engine.take(answer(25, APPEND, final(24)))
    assert now(engine) is State.FAILED
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert isinstance(error.__cause__, errors.WrongLastSequenceError)
    assert (error.acked, error.unconfirmed) == (24, None)
    assert [lost[:2] for lost in error.lost] == [(25, 25), (26, 30)]
    assert error.lost[0][2] is error.__cause__


def test_a_refusal_without_a_type_is_of_the_message_that_it_answers() -> None:
    engine = opened(sent=30)
    engine.take(answer(25, APPEND, refused(10054)))
    assert now(engine) is State.BREAKING
    engine.take(answer(30, PING, gap(25, 31)))
    engine.take(answer(30, PING, final(24)))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert [lost[:2] for lost in error.lost] == [(25, 25), (26, 30)]


@pytest.mark.parametrize("err_code", [10205, 10206, 10207, 10211, 10185, 10071])
def test_what_the_only_message_is_refused_for_is_raised_itself(err_code: int) -> None:
    engine = IngestEngine()
    engine.wrote(1)
    if err_code == 10071:
        engine.take(answer(1, START, flow(0)))
    engine.take(answer(1, START, refused(err_code)))
    assert now(engine) is State.FAILED
    error = engine.error()
    assert isinstance(error, errors.APIError)
    assert error.err_code == err_code
    assert not engine.known_to_server


def test_a_first_message_that_is_refused_late_has_lost_those_behind_it() -> None:
    engine = opened(sent=3)
    engine.take(answer(1, START, refused(10071)))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert (error.acked, error.unconfirmed) == (0, None)


@pytest.mark.parametrize("err_code", [10205, 10206, 10185])
@pytest.mark.parametrize("gaps", ["fail", "ok"])
def test_some_errors_end_the_batch_in_the_middle(err_code: int, gaps: str) -> None:
    engine = opened(gaps, sent=30, received=20)
    engine.take(answer(25, APPEND, refused(err_code)))
    assert now(engine) is State.FAILED
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert (error.acked, error.unconfirmed) == (20, (21, 30))


# gaps="ok" --------------------------------------------------------------------------------


def test_ok_goes_on_over_a_gap() -> None:
    engine = opened("ok", sent=9)
    engine.take(answer(5, APPEND, gap(3, 5)))
    assert now(engine) is State.OPEN
    assert engine.lost == engine.news == [Lost(3, 4, None)]
    engine.ends(9)
    engine.take(answer(10, END, gap(9, 10)))
    engine.take(answer(10, END, final(9)))
    assert now(engine) is State.ENDED
    assert (engine.lost, engine.lost_count) == ([Lost(3, 4, None), Lost(9, 9, None)], 3)


def test_ok_goes_on_over_a_message_that_is_refused() -> None:
    engine = opened("ok", sent=9)
    engine.take(answer(4, APPEND, refusal(4)))
    engine.take(answer(5, APPEND, refused(10070)))
    assert now(engine) is State.OPEN
    assert [lost[:2] for lost in engine.lost] == [(4, 4), (5, 5)]


def test_a_loss_that_is_told_twice_counts_once() -> None:
    engine = opened("ok", sent=30)
    for sequence in (7, 8, 12):
        engine.take(answer(sequence, APPEND, None))
    engine.take(answer(20, APPEND, gap(5, 20)))
    engine.take(answer(20, APPEND, gap(5, 20)))
    assert engine.lost_count == 15
    covered = [n for one in engine.lost for n in range(one.first, one.last + 1)]
    assert covered == list(range(5, 20))


def test_a_sequence_that_goes_backwards_ends_the_batch_in_both_modes() -> None:
    engine = opened("ok", sent=9)
    engine.take(answer(2, APPEND, gap(4, 2)))
    assert not engine.lost
    engine.take(answer(2, APPEND, final(9)))
    assert now(engine) is State.BROKEN


def test_ok_goes_on_where_a_server_has_forgotten_the_batch() -> None:
    engine = opened("ok", sent=30, received=20)
    engine.take(answer(30, PING, refused(10208)))
    assert now(engine) is State.BROKEN
    assert [lost[:2] for lost in engine.lost] == [(21, 30)]
    engine.restarts(reconnected=True)
    assert engine.base == 30


# The server is not there, or has forgotten -------------------------------------------------


def test_an_old_server_stores_the_first_message_and_is_known_by_that() -> None:
    engine = IngestEngine()
    engine.wrote(1)
    engine.take(answer(1, START, {"stream": "S", "seq": 17}))
    error = engine.error()
    assert isinstance(error, errors.IngestUnsupportedError)
    assert error.stored == PubAck(stream="S", seq=17)
    assert not engine.known_to_server


@pytest.mark.parametrize("gaps", ["fail", "ok"])
def test_a_start_that_finds_nobody_is_sent_again_twice(gaps: Any) -> None:
    engine = IngestEngine(gaps)
    for _ in range(MOST_REPEATS + 1):
        assert now(engine) is State.IDLE
        engine.wrote(1)
        engine.take(answer(1, START, None))
        assert now(engine) is State.BROKEN
        engine.restarts(reconnected=False)
    assert now(engine) is State.FAILED
    assert isinstance(engine.error(), errors.NoStreamResponseError)


def test_a_reconnect_and_progress_let_it_be_tried_anew() -> None:
    engine = IngestEngine()
    for turn in range(20):
        engine.wrote(1)
        engine.take(answer(1, START, flow(0)))
        engine.take(answer(1, PING, gap(1, 2)))
        engine.take(answer(1, PING, final(turn % 2)))
        assert now(engine) is State.BROKEN
        engine.restarts(reconnected=turn % 2 == 0)
    assert now(engine) is State.IDLE


def test_while_nobody_leads_pings_alone_are_sent() -> None:
    engine = opened(sent=30, received=20)
    engine.take(answer(25, APPEND, None))
    assert now(engine) is State.BLOCKED
    assert engine.limit == engine.sent
    engine.take(answer(30, PING, None))
    assert now(engine) is State.BLOCKED
    engine.take(answer(30, PING, gap(25, 31)))
    engine.take(answer(30, PING, final(24)))
    assert (engine.state, engine.acked) == (State.BROKEN, 24)


def test_an_end_that_found_nobody_is_sent_again() -> None:
    engine = opened(sent=30, received=20)
    engine.ends(30)
    engine.take(answer(31, END, None))
    assert now(engine) is State.BLOCKED
    engine.take(answer(30, PING, flow(20)))
    assert now(engine) is State.OPEN


def test_a_ping_that_finds_the_batch_alive_shows_that_its_end_has_not_come() -> None:
    engine = opened(sent=30, received=20)
    engine.ends(30)
    engine.take(answer(30, APPEND, flow(30)))
    assert now(engine) is State.ENDING
    engine.take(answer(30, PING, flow(30)))
    assert now(engine) is State.OPEN
    engine.ends(30)
    engine.take(answer(31, END, final(30)))
    assert now(engine) is State.ENDED
    engine.take(answer(31, END, refused(10208)))  # to the second end
    assert now(engine) is State.ENDED


def test_a_batch_that_is_unknown_leaves_its_tail_in_doubt() -> None:
    engine = opened(sent=30, received=20)
    engine.take(answer(26, APPEND, refused(10208)))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert isinstance(error.__cause__, errors.BatchPublishUnknownBatchIDError)
    assert (error.acked, error.unconfirmed, error.lost) == (20, (21, 30), ())


def test_with_message_ids_the_tail_is_sent_again_whatever_is_stored() -> None:
    engine = opened(sent=30, received=20)
    engine.take(answer(26, APPEND, refused(10208)), repeatable=True)
    assert (engine.state, engine.acked) == (State.BROKEN, 20)
    engine.restarts(reconnected=True)
    engine.wrote(1)
    engine.take(answer(1, START, refused(10205)))
    error = engine.error()
    assert isinstance(error, errors.IngestError)
    assert error.unconfirmed == (21, 30)  # the batch before may have stored them


def test_unknown_behind_a_gap_is_noise_unless_a_ping_is_answered_so() -> None:
    engine = opened(sent=30, received=20)
    engine.take(answer(25, APPEND, gap(24, 25)))
    engine.take(answer(26, APPEND, refused(10208)))
    assert now(engine) is State.BREAKING
    engine.take(answer(30, PING, refused(10208)))
    assert now(engine) is State.FAILED
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
def test_an_early_end_says_what_is_not_known(
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


def test_no_state_is_left_without_a_way_to_its_end() -> None:
    assert set(LEGAL) == set(State)
    for state, after in LEGAL.items():
        assert state not in after
        assert (State.FAILED in after) == (state not in (State.ENDED, State.FAILED))


def test_a_gap_that_nobody_has_heard_of_is_a_loss_in_doubt() -> None:
    engine = opened("ok", sent=30, received=20)
    engine.disconnected(30)
    engine.take(answer(30, PING, flow(20)))  # what the stream missed, it would say here
    engine.disconnected(30)
    assert not engine.lost
    engine.disconnected(30)
    engine.take(answer(30, PING, flow(30)))
    assert [lost[:2] for lost in engine.lost] == [(21, 30)]
    assert isinstance(engine.lost[0].error, errors.ConnectionLostError)


def test_late_words_about_a_batch_that_is_over_change_nothing() -> None:
    for state in (State.IDLE, State.BROKEN, State.ENDED, State.FAILED):
        engine = opened(sent=3)
        engine.state = state
        before = repr(vars(engine))
        for body in (flow(3), gap(1, 2), refusal(2), final(1), refused(10205), None):
            engine.take(answer(3, APPEND, body))
        assert repr(vars(engine)) == before


# Against a model of the server --------------------------------------------------------------


class Model:
    """A stream and its batches, as the tables of measurements have them."""

    def __init__(self, refuse: frozenset[int], *, ids: bool) -> None:
        self.ids = ids  # all messages have one, and a second copy is dropped
        self.stored: list[int] = []
        self.batches: dict[int, list[int]] = {}  # id: [received, flow, last flow point]
        self.leader = True
        self.refuse = refuse

    def take(
        self,
        batch: int,
        gaps: str,
        flow_size: int,
        sequence: int,
        op: Operation,
        n: int,
    ) -> list[tuple[int, Operation, dict[str, Any] | None]]:
        """The answers to one message, which carries the number `n`."""

        def say(*bodies: dict[str, Any] | None) -> list[Any]:
            return [(sequence, op, body) for body in bodies]

        if not self.leader:
            return say(None)
        if op is START:
            self.batches[batch] = [0, min(flow_size, 500), 0]
        if batch not in self.batches:
            return say(refused(10208))
        state = self.batches[batch]
        bodies: list[dict[str, Any] | None] = []
        if op is START:
            bodies.append(flow(0, state[1]))
        came = sequence + 1 if op is PING else sequence
        if came > state[0] + 1:
            bodies.append(gap(state[0] + 1, came))
            if gaps == "fail":
                bodies.append(final(state[0]))
                del self.batches[batch]
                return say(*bodies)
            state[0] = came - 1
        if op is PING:
            if state[0] >= state[2] + state[1]:
                state[2] = state[0]
            return say(*bodies, flow(state[2], state[1]))
        if op is END:
            del self.batches[batch]
            return say(*bodies, final(state[0]))
        state[0] = sequence
        if n in self.refuse:
            if gaps == "fail":
                del self.batches[batch]
                if sequence == 1:
                    return say(*bodies, refused(10071))
                return say(*bodies, refusal(sequence), final(sequence - 1))
            bodies.append(refusal(sequence))
        elif not (self.ids and n in self.stored):
            self.stored.append(n)
        if sequence >= state[2] + state[1]:
            state[2] = sequence
            bodies.append(flow(sequence, state[1]))
        return say(*bodies)


class Client:
    """The rules of `FastIngest` in a few lines: no thread, and the clock is the test's."""

    def __init__(self, gaps: Any, flow_size: int, count: int, model: Model) -> None:
        self.engine = IngestEngine(gaps, flow_size)
        self.model = model
        self.todo: deque[int] = deque(range(count))
        self.sent: list[int] = []
        self.batch = 0
        self.there: deque[tuple[Any, ...]] = deque()
        self.back: deque[tuple[int, int, Operation, dict[str, Any] | None]] = deque()
        self.reconnected = False
        self.missed = False
        """Whether a refusal was lost on its way; nobody repeats those."""

    def write(self, op: Operation, sequence: int, n: int = -1) -> None:
        self.there.append(
            (self.batch, self.engine.gaps, self.engine.flow, sequence, op, n)
        )

    def turn(self) -> None:
        """Send what may be sent."""
        engine = self.engine
        if engine.state is State.BROKEN:
            for n in reversed(self.sent[engine.received :]):
                self.todo.appendleft(n)
            self.sent.clear()
            self.batch += 1
            engine.restarts(reconnected=self.reconnected)
            self.reconnected = False
        if engine.state not in (State.IDLE, State.OPEN):
            return
        if self.todo and len(self.sent) < engine.limit:
            n = self.todo.popleft()
            self.sent.append(n)
            self.write(APPEND if len(self.sent) > 1 else START, len(self.sent), n)
            engine.wrote(len(self.sent))
        elif not self.todo and engine.state is State.OPEN:
            self.write(END, len(self.sent) + 1)
            engine.ends(len(self.sent))
        elif not self.todo and engine.state is State.IDLE:
            engine.ended_empty()

    def ping(self) -> None:
        if self.engine.state not in (State.IDLE, State.BROKEN):
            self.write(PING, len(self.sent))

    def serve(self, *, drop: bool = False) -> None:
        if self.there:
            batch, *message = self.there.popleft()
            if not drop:
                for said in self.model.take(batch, *message):
                    self.back.append((batch, *said))

    def hear(self, *, drop: bool = False) -> None:
        if self.back:
            batch, sequence, op, body = self.back.popleft()
            self.missed |= drop and "error" in (body or {})
            if not drop and batch == self.batch:
                self.engine.take(answer(sequence, op, body), repeatable=self.model.ids)

    def cut(self, keep: int) -> None:
        """Lose the connection: the server has read so much of what is under way."""
        for _ in range(min(keep, len(self.there))):
            self.serve()
        self.there.clear()
        self.engine.disconnected(len(self.sent))
        while self.back:
            self.hear(drop=True)
        self.reconnected = True
        self.ping()


STEPS = st.sampled_from(
    ["turn"] * 8
    + ["serve"] * 8
    + ["hear"] * 5
    + ["lose an ack", "ping", "cut", "cut late", "no leader", "leader", "restart"]
)


def numbers_of(lost: list[Lost]) -> set[int]:
    return {n - 1 for one in lost for n in range(one.first, one.last + 1)}


def unknown(lost: Lost) -> bool:
    """Whether it may be stored all the same."""
    return isinstance(
        lost.error, errors.BatchPublishUnknownBatchIDError | errors.ConnectionLostError
    )


@settings(max_examples=400, deadline=None)
@given(
    gaps=st.sampled_from(["fail", "ok"]),
    flow_size=st.integers(1, 7),
    count=st.integers(0, 40),
    refuse=st.frozensets(st.integers(0, 60), max_size=2),
    ids=st.booleans(),
    steps=st.lists(STEPS, max_size=250),
)
def test_whatever_happens_what_is_told_is_so(
    gaps: str,
    flow_size: int,
    count: int,
    refuse: frozenset[int],
    ids: bool,
    steps: list[str],
) -> None:
    model = Model(refuse, ids=ids)
    client = Client(gaps, flow_size, count, model)
    engine = client.engine
    over = (State.ENDED, State.FAILED)

    def check() -> None:
        if gaps == "fail":
            assert model.stored == list(range(len(model.stored)))
            assert engine.acked <= len(model.stored)
            assert not engine.lost
        else:
            assert model.stored == sorted(set(model.stored))
            lost = numbers_of(engine.lost)
            told = set(range(engine.acked)) - lost
            assert told - (refuse if client.missed else set()) <= set(model.stored)
            surely = [one for one in engine.lost if not unknown(one)]
            assert not numbers_of(surely) & set(model.stored)
        assert engine.lost_count == sum(one[1] - one[0] + 1 for one in engine.lost)

    for step in steps:
        if engine.state in over:
            break
        match step:
            case "turn":
                client.turn()
            case "serve":
                client.serve()
            case "hear":
                client.hear()
            case "lose an ack":
                client.hear(drop=True)
            case "ping":
                client.ping()
            case "cut":
                client.cut(0)
            case "cut late":
                client.cut(3)
            case "no leader" | "leader":
                model.leader = step == "leader"
            case "restart":
                model.batches.clear()
                client.cut(0)
        check()
    # And then all is well again, which always comes to an end.
    model.leader = True
    for _ in range(20 * count + 200):
        if engine.state in over:
            break
        client.ping()
        for _ in range(3):
            client.turn()
        while client.there or client.back:
            client.serve()
            client.hear()
        check()
    assert engine.state in over
    if engine.state is State.ENDED:
        assert engine.acked == count
        assert engine.pub_ack is not None
        assert engine.pub_ack.count == count
        if gaps == "fail":
            assert model.stored == list(range(count))
        return
    assert gaps == "fail", "with ok it goes on"
    error = engine.error()
    if not isinstance(error, errors.IngestError):
        assert not model.stored
    elif error.unconfirmed is None:
        assert error.acked == len(model.stored)
    else:
        assert error.acked <= len(model.stored) <= error.unconfirmed[1]
