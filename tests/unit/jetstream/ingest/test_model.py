"""Tests of a fast ingest against a model of the server, with random faults on both sides."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from hypothesis import example, given, strategies as st

from jsync import errors
from jsync.jetstream.ingest.engine import IngestEngine, IngestState

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

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jsync.errors import LostRange, UnconfirmedRange
    from jsync.jetstream.ingest.flow_messages import Operation


class Model:
    """A stream and its batches, according to measurements of the server."""

    def __init__(self, refuse: frozenset[int], *, ids: bool) -> None:
        self.ids = ids  # all messages have one, and a duplicate is dropped
        self.stored: list[int] = []
        self.batches: dict[int, list[int]] = {}  # id: [received, flow, last flow point]
        self.leader = True
        self.refuse = refuse
        self.early = 0
        """The number of last messages that a leader which is being deposed does not know."""
        self.forgetful = False
        """Whether the next leader knows the batches."""
        # id: the place of each message in the stream
        self.lines: dict[int, list[int]] = {}

    def handle(
        self,
        batch: int,
        gaps: str,
        flow_size: int,
        sequence: int,
        op: Operation,
        n: int,
    ) -> list[tuple[int, Operation, dict[str, Any] | None]]:
        """Return the replies to one message, which carries the number `n`."""

        def say(*bodies: dict[str, Any] | None) -> list[Any]:
            return [(sequence, op, body) for body in bodies]

        if not self.leader:
            return say(None)
        if op is START:
            self.batches[batch] = [0, min(flow_size, 500), 0]
            self.lines[batch] = [len(self.stored)]
        if batch not in self.batches:
            return say(refused(10208))
        state = self.batches[batch]
        places = self.lines[batch]
        if self.early and op is APPEND and gaps == "fail" and state[0]:
            count = max(state[0] - self.early, 0)
            self.early = 0
            if self.forgetful:
                del self.batches[batch]
            return say(gap(count + 1, sequence), final(count, places[count]))
        bodies: list[dict[str, Any] | None] = []
        if op is START:
            bodies.append(flow(0, state[1]))
        came = sequence + 1 if op is PING else sequence
        if came > state[0] + 1:
            bodies.append(gap(state[0] + 1, came))
            if gaps == "fail":
                bodies.append(final(state[0], places[-1]))
                del self.batches[batch]
                return say(*bodies)
            state[0] = came - 1
        if op is PING:
            if state[0] >= state[2] + state[1]:
                state[2] = state[0]
            return say(*bodies, flow(state[2], state[1]))
        if op is END:
            del self.batches[batch]
            return say(*bodies, final(state[0], places[-1]))
        state[0] = sequence
        if n in self.refuse:
            if gaps == "fail":
                del self.batches[batch]
                if sequence == 1:
                    return say(*bodies, refused(10071))
                return say(
                    *bodies, rejection(sequence), final(sequence - 1, places[-1])
                )
            bodies.append(rejection(sequence))
        elif not (self.ids and n in self.stored):
            self.stored.append(n)
        places.append(len(self.stored))
        if sequence >= state[2] + state[1]:
            state[2] = sequence
            bodies.append(flow(sequence, state[1]))
        return say(*bodies)


class Client:
    """The rules of `FastIngest` in a few lines, without threads and with a simulated clock."""

    def __init__(self, gaps: Any, flow_size: int, count: int, model: Model) -> None:
        self.engine = IngestEngine(gaps, flow_size)
        self.engine.replicated = False
        self.model = model
        self.todo: deque[int] = deque(range(count))
        self.sent: list[int] = []
        self.batch = 0
        self.there: deque[tuple[Any, ...]] = deque()
        self.back: deque[tuple[int, int, Operation, dict[str, Any] | None]] = deque()
        self.reconnected = False
        self.unheard: set[int] = set()
        """Messages whose gap or rejection was lost, although the connection was not."""

    def write(self, op: Operation, sequence: int, n: int = -1) -> None:
        self.there.append(
            (self.batch, self.engine.gaps, self.engine.flow, sequence, op, n)
        )

    def turn(self) -> None:
        """Send the messages that fit into the window."""
        engine = self.engine
        tail = engine.recovery_point(duplicates=self.model.ids)
        if tail is not None:
            # `find_ambiguity`, for a stream without other publishers.
            if tail.following is None or tail.sequence + tail.following != len(
                self.model.stored
            ):
                engine.fail(errors.JetStreamError("it cannot be known"))
                return
            engine.confirm_tail()
        if engine.state is IngestState.BROKEN:
            for n in reversed(self.sent[engine.received :]):
                self.todo.appendleft(n)
            self.sent.clear()
            self.batch += 1
            engine.restart(reconnected=self.reconnected)
            self.reconnected = False
        if engine.state not in (IngestState.IDLE, IngestState.OPEN):
            return
        if self.todo and len(self.sent) < engine.limit:
            n = self.todo.popleft()
            self.sent.append(n)
            self.write(APPEND if len(self.sent) > 1 else START, len(self.sent), n)
            engine.sent = len(self.sent)
            engine.record_sent()
        elif not self.todo and engine.state is IngestState.OPEN:
            self.write(END, len(self.sent) + 1)
            engine.end()
        elif not self.todo and engine.state is IngestState.IDLE:
            engine.ended_empty()

    def ping(self) -> None:
        if self.engine.state not in (IngestState.IDLE, IngestState.BROKEN):
            self.write(PING, len(self.sent))

    def serve(self, *, drop: bool = False) -> None:
        if self.there:
            batch, *message = self.there.popleft()
            if not drop:
                for said in self.model.handle(batch, *message):
                    self.back.append((batch, *said))

    def hear(self, *, drop: bool = False) -> None:
        if self.back:
            batch, sequence, op, body = self.back.popleft()
            if batch != self.batch:
                return
            if not drop:
                self.engine.handle(
                    answer(sequence, op, body), repeatable=self.model.ids
                )
            elif body is not None and body.get("type") == "gap":
                self.unheard.update(self.sent[body["last_seq"] - 1 : body["seq"] - 1])
            elif body is not None and "error" in body and sequence:
                self.unheard.update(self.sent[sequence - 1 : sequence])

    def cut(self, keep: int, *, late: bool = False) -> None:
        """Lose the connection after the server has read the first `keep` messages in flight.

        With `late`, it reads the others before it reads from the next connection.
        """
        for _ in range(min(keep, len(self.there))):
            self.serve()
        if not late:
            self.there.clear()
        self.engine.disconnected(len(self.sent))
        self.back.clear()
        self.reconnected = True
        self.ping()


STEPS = st.sampled_from(
    ["turn"] * 8
    + ["serve"] * 8
    + ["hear"] * 5
    + ["lose an ack", "ping", "cut", "cut late", "cut but read", "no leader", "leader"]
    + ["restart", "depose", "depose and forget"]
)


def numbers_of(ranges: Iterable[LostRange | UnconfirmedRange]) -> set[int]:
    return {n - 1 for one in ranges for n in range(one.first, one.last + 1)}


@given(
    gaps=st.sampled_from(["fail", "ok"]),
    flow_size=st.integers(1, 7),
    count=st.integers(0, 40),
    refuse=st.frozensets(st.integers(0, 60), max_size=2),
    ids=st.booleans(),
    steps=st.lists(STEPS, max_size=250),
)
@example(
    gaps="ok",
    flow_size=1,
    count=2,
    refuse=frozenset(),
    ids=False,
    steps=["turn", "serve", "hear", "turn", "cut", "serve", "lose an ack"],
)
@example(
    gaps="ok",
    flow_size=2,
    count=8,
    refuse=frozenset({2}),
    ids=False,
    steps=["turn", "serve", "hear", "turn", "turn", "turn", "cut late"],
)
def test_every_ingest_report_is_true_in_any_order(
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
    over = (IngestState.ENDED, IngestState.FAILED)

    def check() -> None:
        if gaps == "fail":
            assert model.stored == list(range(len(model.stored)))
            assert engine.acked <= len(model.stored)
            assert not engine.missing.lost
        else:
            assert model.stored == sorted(set(model.stored))
            lost = numbers_of(engine.missing.lost)
            unconfirmed = numbers_of(engine.missing.unconfirmed)
            assert not lost & unconfirmed
            told = set(range(engine.acked)) - lost - unconfirmed
            assert told - client.unheard <= set(model.stored)
            assert not lost & set(model.stored)
            assert engine.missing.lost_count == len(lost)
            assert engine.missing.unconfirmed_count == len(unconfirmed)

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
            case "cut but read":
                client.cut(1, late=True)
            case "no leader" | "leader":
                model.leader = step == "leader"
            case "depose" | "depose and forget":
                model.early = 3
                model.forgetful = step != "depose"
            case "restart":
                model.batches.clear()
                client.cut(0)
        check()
    # From now on there are no faults, and the ingest must come to its end.
    model.leader = True
    model.early = 0
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
    if engine.state is IngestState.ENDED:
        assert engine.acked == count
        assert engine.pub_ack is not None
        assert engine.pub_ack.count == count
        if gaps == "fail":
            assert model.stored == list(range(count))
        return
    if gaps == "ok":
        # The ingest survives everything except a start that never finds a stream.
        assert isinstance(engine.cause, errors.NoStreamResponseError)
        return
    error = engine.error()
    if not isinstance(error, errors.IngestError):
        assert not model.stored
    elif error.unconfirmed is None:
        assert error.acked == len(model.stored)
    else:
        assert error.acked <= len(model.stored) <= error.unconfirmed[1]
