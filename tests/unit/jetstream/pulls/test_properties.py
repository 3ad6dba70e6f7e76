"""Tests of properties that hold for any actions of the server and the reader.

Texts in quotes are from ADR-37, revision 2.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jsync.jetstream.pulls.engine import (
    LARGE_BATCH,
    PullEngine,
)

from .support import asked, engine

limits_by_messages = st.builds(
    lambda limit, part, stop: {
        "max_messages": limit,
        "threshold_messages": None if part is None else round(limit * part),
        "stop_after": stop,
    },
    st.integers(1, 30),
    st.none() | st.floats(0, 1),
    st.none() | st.integers(1, 80),
)


limits_by_bytes = st.builds(
    lambda limit, part, stop: {
        "max_bytes": limit,
        "threshold_bytes": None if part is None else round(limit * part),
        "stop_after": stop,
    },
    st.integers(100, 2000),
    st.none() | st.floats(0, 1),
    st.none() | st.integers(1, 80),
)


class Exact(RuleBasedStateMachine):
    """An engine with a server that fills pulls in order, and reports the undelivered counts."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: PullEngine = engine()
        self.pulls: list[list[int]] = []  # the messages and bytes left of each
        self.buffer: list[int] = []
        self.delivered = 0
        self.started = False

    @property
    def by_bytes(self) -> bool:
        return self.engine.limits.max_bytes > 0

    @property
    def buffered(self) -> tuple[int, int]:
        return len(self.buffer), sum(self.buffer)

    @property
    def stop_after(self) -> int:
        return self.engine.limits.stop_after or 1 << 62

    @precondition(lambda self: not self.started)
    @rule(options=st.one_of(limits_by_messages, limits_by_bytes))
    def start(self, options: dict[str, int | None]) -> None:
        self.engine = engine(**options)
        self.started = True
        self.ask()

    @precondition(lambda self: self.started)
    @rule()
    def ask(self) -> None:
        request = self.engine.next_request(*self.buffered)
        if request is not None:
            assert 1 <= request.batch <= self.engine.limits.max_messages
            assert (request.max_bytes > 0) == self.by_bytes
            assert request.max_bytes <= self.engine.limits.max_bytes
            self.pulls.append([request.batch, request.max_bytes])

    @precondition(lambda self: self.pulls)
    @rule(size=st.integers(1, 99))
    def deliver(self, size: int) -> None:
        pull = self.pulls[0]
        if self.by_bytes and size > pull[1]:
            self.end_first(409, "Message Size Exceeds MaxBytes")
            return
        pull[0] -= 1
        pull[1] -= size if self.by_bytes else 0
        self.buffer.append(size)
        self.delivered += 1
        if self.by_bytes and pull[1] == 0:
            self.pulls.pop(0)  # without a status, see consumer.go, nextWaiting
        elif pull[0] == 0:
            if self.by_bytes:
                self.end_first(409, "Batch Completed")
            else:
                self.pulls.pop(0)

    @precondition(lambda self: self.pulls)
    @rule()
    def expire(self) -> None:
        self.end_first(408, "Request Timeout")

    def end_first(self, status: int, text: str) -> None:
        messages, size = self.pulls.pop(0)
        self.engine.on_status(
            status, text, left=(messages, size), buffered=self.buffered
        )
        self.ask()

    @precondition(lambda self: self.buffer)
    @rule(count=st.integers(1, 40))
    def take(self, count: int) -> None:
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        self.engine.on_delivered(len(taken), sum(taken))
        self.ask()

    @precondition(lambda self: self.started)
    @rule()
    def lose_the_connection(self) -> None:
        self.pulls.clear()
        self.engine.reset(*self.buffered)
        self.ask()

    @precondition(lambda self: self.started)
    @rule()
    def change_the_leader(self) -> None:
        self.pulls.clear()
        self.engine.on_status(
            409, "Leadership Change", left=None, buffered=self.buffered
        )
        self.ask()

    @invariant()
    def pending_is_what_is_open_and_what_is_buffered(self) -> None:
        count, size = self.buffered
        count += sum(pull[0] for pull in self.pulls)
        size += sum(pull[1] for pull in self.pulls)
        if self.by_bytes:
            assert self.engine.pending_bytes == size
        else:
            assert self.engine.pending_messages == count

    @invariant()
    def never_more_than_the_limits(self) -> None:
        limits = self.engine.limits
        assert 0 <= self.engine.pending_messages <= limits.max_messages
        assert 0 <= self.engine.pending_bytes <= limits.max_bytes
        open_messages = sum(pull[0] for pull in self.pulls)
        assert self.delivered + open_messages <= self.stop_after

    @invariant()
    def it_always_makes_progress(self) -> None:
        if self.started and not self.buffer and self.delivered < self.stop_after:
            # This holds after a rejection, too, whose pause ends in `ask`.
            assert self.pulls or copy.deepcopy(self.engine).next_request() is not None


Exact.TestCase.settings = settings(stateful_step_count=40)


TestTheAccountsAreExact = Exact.TestCase


statuses = st.tuples(
    st.sampled_from([100, 400, 404, 408, 409, 412, 423, 499, 503]),
    st.sampled_from(
        [
            *("", "Batch Completed", "Message Size Exceeds MaxBytes"),
            *("Leadership Change", "Server Shutdown", "Exceeded MaxWaiting", "?"),
        ]
    ),
    st.none() | st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)),
)


@given(
    options=st.one_of(limits_by_messages, limits_by_bytes),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("taken"), st.integers(0, 100), st.integers(0, 10_000)),
            st.tuples(st.just("reset"), st.integers(0, 100), st.integers(0, 10_000)),
            st.tuples(st.just("status"), statuses),
            st.tuples(st.just("ask")),
        ),
        max_size=60,
    ),
)
def test_counts_stay_within_bounds_for_any_statuses(
    options: dict[str, int | None], steps: list[tuple[Any, ...]]
) -> None:
    options = options | {"stop_after": None}
    pull = engine(**options)
    limits = pull.limits
    for name, *arguments in steps:
        match name:
            case "taken":
                pull.on_delivered(*arguments)
            case "reset":
                pull.reset(*arguments)
            case "status":
                status, text, left = arguments[0]
                pull.on_status(status, text, left=left, buffered=(0, 0))
            case "ask":
                before = pull.pending_messages
                request = pull.next_request()
                if request is not None:
                    assert 1 <= request.batch <= limits.max_messages
                    if not limits.max_bytes:
                        assert pull.pending_messages == before + request.batch
                    assert pull.pending_messages <= limits.max_messages
                    assert pull.pending_bytes <= limits.max_bytes
        assert pull.pending_messages >= 0
        assert pull.pending_bytes >= 0
        assert min(pull.credit()) >= 1
    # When all messages are read and no pull is open, the engine always pulls.
    pull.reset(0, 0)
    assert asked(pull).batch >= 1


@given(
    threshold=st.none() | st.integers(0, 1000),
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=30),
    reads_at_once=st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_by_bytes_every_fitting_message_arrives_without_spinning(
    threshold: int | None, sizes: list[int], reads_at_once: list[bool]
) -> None:
    # A server goes through its open pulls in order, as in nextWaiting. It ends a pull that is too
    # small for the message, and tries the next one.
    pull = engine(max_bytes=1000, threshold_bytes=threshold)
    pulls: list[int] = []
    buffer: list[int] = []

    def ask() -> int:
        request = pull.next_request(len(buffer), sum(buffer))
        if request is not None:
            pulls.append(request.max_bytes)
        return request is not None

    def read() -> None:
        pull.on_delivered(1, buffer.pop(0))
        ask()

    ask()
    for size, reads in zip(sizes, reads_at_once, strict=False):
        asked_for_this = 0
        while True:
            if not pulls:
                assert buffer, "nothing is open, nothing buffered, nobody asks"
                read()
                asked_for_this = 0
                continue
            if size <= pulls[0]:
                pulls[0] -= size
                buffer.append(size)
                if not pulls[0]:
                    pulls.pop(0)
                break
            left = pulls.pop(0)
            reaction = pull.on_status(
                409,
                "Message Size Exceeds MaxBytes",
                left=(LARGE_BATCH, left),
                buffered=(len(buffer), sum(buffer)),
            )
            assert reaction.report is None
            asked_for_this += ask()
            assert asked_for_this < 5, "it spins"
        if reads:
            while buffer:
                read()


def test_by_bytes_stop_after_includes_open_pulls() -> None:
    pull = engine(max_bytes=1000, stop_after=12)
    first = asked(pull)
    pull.on_delivered(6, 600)
    second = pull.next_request()
    may_come = (first.batch - 6) + (second.batch if second else 0)
    assert 6 + may_come <= 12
