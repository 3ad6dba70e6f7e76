"""The judge of buckets: what the changes of a key, and reads of them, may have been.

A change of a key is checked by its revision, so that the changes that took effect are one chain.
Every writer notes each call, and this module compares the calls with what the bucket then holds.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Outcome(Enum):
    DONE = "the call returned a revision"
    REFUSED = "the call raised that the key is at another revision"
    UNCLEAR = "the call raised an error that leaves open what was stored"


@dataclass(frozen=True)
class Call:
    """One checked change of a key."""

    key: str
    operation: str
    """`PUT`, `DEL` or `PURGE`."""
    expected: int
    """The revision that the key has to be at. 0 with `PUT`: it has no value."""
    value: bytes
    """No two calls have the same. Empty for markers."""
    client: str
    begun: float
    ended: float
    outcome: Outcome
    revision: int = 0
    """The revision of the change, or with `REFUSED` the one that the key is at. 0: untold."""

    @property
    def creates(self) -> bool:
        return self.operation == "PUT" and not self.expected


class Stored(NamedTuple):
    """A revision of a key in the bucket."""

    revision: int
    operation: str
    value: bytes = b""


def judge_key(calls: Iterable[Call], stored: list[Stored], *, whole: bool) -> None:
    """Assert that the calls on one key, and what the bucket holds, are one history.

    `whole` says that the bucket has kept every revision of the key.
    """
    calls = list(calls)
    done = {c.revision: c for c in calls if c.outcome is Outcome.DONE}
    assert len(done) == sum(c.outcome is Outcome.DONE for c in calls), "two got one"
    unclear = [c for c in calls if c.outcome is Outcome.UNCLEAR]
    _judge_order(calls)
    _judge_successors(done)
    values = [each.value for each in stored if each.operation == "PUT"]
    assert len(set(values)) == len(values), "a value is stored twice"
    before: Stored | None = None
    for each in stored:
        call = done.get(each.revision)
        if call is None:
            # Stored, though nobody was told so.
            call = next((c for c in unclear if _may_be(c, each, before, whole)), None)
            assert call is not None, (
                f"{each} was stored by no call that may have; before it {before}"
            )
            unclear.remove(call)
        assert (call.operation, call.value) == (each.operation, each.value), (
            call,
            each,
        )
        if before is not None or whole:
            assert _follows(call, before), (call, each, before)
        before = each
    if whole:
        there = {each.revision for each in stored}
        assert done.keys() <= there, f"lost: {[done[r] for r in done.keys() - there]}"
    elif done:
        assert stored, "all revisions are gone"
        assert max(done) <= stored[-1].revision, f"lost: {done[max(done)]}"


def _may_be(call: Call, each: Stored, before: Stored | None, whole: bool) -> bool:
    same = (call.operation, call.value) == (each.operation, each.value)
    return same and (_follows(call, before) or (before is None and not whole))


def _follows(call: Call, before: Stored | None) -> bool:
    """Whether the change was allowed behind that revision."""
    if call.creates:
        return before is None or before.operation != "PUT"
    return before is not None and before.revision == call.expected


def _judge_order(calls: list[Call]) -> None:
    """Assert the order of time: what had ended comes before what began later."""
    newest = 0
    ends = sorted((c.ended, c.revision) for c in calls if c.outcome is Outcome.DONE)
    for call in sorted(calls, key=lambda c: c.begun):
        while ends and ends[0][0] <= call.begun:
            newest = max(newest, ends.pop(0)[1])
        if call.outcome is Outcome.DONE:
            assert call.revision > newest, f"{call} is older than {newest}"
        elif call.outcome is Outcome.REFUSED and call.revision:
            assert call.revision >= newest, f"{call} was told less than {newest}"


def _judge_successors(done: dict[int, Call]) -> None:
    """Assert that no two changes followed one revision: the history has no fork."""
    followed: dict[int, Call] = {}
    for call in done.values():
        if call.expected:
            other = followed.setdefault(call.expected, call)
            assert other is call, f"a fork: {other} and {call}"
            assert call.revision > call.expected


def judge_seen(seen: list[Stored], stored: list[Stored], *, whole: bool) -> None:
    """Assert that a watch gave the changes of a key in order, and the last one."""
    revisions = [each.revision for each in seen]
    assert revisions == sorted(set(revisions)), f"out of order: {revisions}"
    assert seen[-1:] == stored[-1:], (seen[-1:], stored[-1:])
    if whole:
        assert seen == stored, (set(stored) - set(seen), set(seen) - set(stored))


class Term(NamedTuple):
    """The time in which a holder believed that it had the lock, by a clock that all share."""

    token: int
    first: float
    last: float


def judge_terms(terms: Iterable[Term]) -> None:
    """Assert that holders followed each other in the order of their tokens."""
    terms = sorted(terms)
    assert len({term.token for term in terms}) == len(terms), "two have one token"
    for before, after in itertools.pairwise(terms):
        assert before.last <= after.first, (before, after)
