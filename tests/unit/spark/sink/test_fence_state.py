"""Tests of the rules for repeating a batch."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from jsync.spark.fingerprint import StreamFingerprint
from jsync.spark.sink.fence_state import (
    REPLAY,
    TERMINAL,
    BatchStarted,
    BatchStatus,
    Committed,
    Digest,
    TaskAttempt,
    TaskStarted,
    batch_status,
    decode,
    encode,
    seconds_left,
    total,
)

if TYPE_CHECKING:
    from random import Random

HERE = TaskAttempt(batch=7, run="new")
NOTHING = Digest()


@pytest.mark.parametrize(
    ("committed", "begun", "task", "last", "where"),
    [
        (None, None, None, 0, BatchStatus.NEW),
        (Committed(6, NOTHING), BatchStarted(6, "old", 0), None, 50, BatchStatus.NEW),
        (None, BatchStarted(6, "new", 0), TaskStarted(6, "new"), 50, BatchStatus.NEW),
        (None, BatchStarted(7, "new", 50), None, 60, BatchStatus.IN_PROGRESS),
        (
            None,
            BatchStarted(7, "new", 50),
            TaskStarted(6, "new"),
            60,
            BatchStatus.IN_PROGRESS,
        ),
        (
            None,
            BatchStarted(7, "new", 50),
            TaskStarted(7, "old"),
            60,
            BatchStatus.IN_PROGRESS,
        ),
        (
            None,
            BatchStarted(7, "new", 50),
            TaskStarted(7, "new"),
            60,
            BatchStatus.RETRIED,
        ),
        # This holds even if nothing was stored since, because its messages may be on their way.
        (
            None,
            BatchStarted(7, "new", 50),
            TaskStarted(7, "new"),
            50,
            BatchStatus.RETRIED,
        ),
        (None, BatchStarted(7, "old", 50), None, 60, BatchStatus.REPLAYED),
        (
            None,
            BatchStarted(7, "old", 50),
            TaskStarted(7, "new"),
            60,
            BatchStatus.REPLAYED,
        ),
        (None, BatchStarted(7, "old", 50), None, 50, BatchStatus.NEW),
        (Committed(7, NOTHING), None, None, 60, BatchStatus.COMMITTED),
        (
            Committed(7, NOTHING),
            BatchStarted(7, "old", 50),
            None,
            50,
            BatchStatus.COMMITTED,
        ),
        (
            Committed(8, NOTHING),
            BatchStarted(8, "old", 50),
            None,
            50,
            BatchStatus.SUPERSEDED,
        ),
        (None, BatchStarted(8, "old", 50), None, 50, BatchStatus.SUPERSEDED),
        (
            Committed(6, NOTHING),
            BatchStarted(9, "new", 50),
            None,
            50,
            BatchStatus.SUPERSEDED,
        ),
    ],
)
def test_the_entries_say_where_a_batch_stands(
    committed: Committed | None,
    begun: BatchStarted | None,
    task: TaskStarted | None,
    last: int,
    where: BatchStatus,
) -> None:
    assert batch_status(HERE, committed, begun, task, last) is where


def test_every_standing_publishes_immediately_in_time_or_never() -> None:
    at_once = {BatchStatus.NEW, BatchStatus.IN_PROGRESS}
    assert at_once | REPLAY | TERMINAL == set(BatchStatus)
    assert len(at_once) + len(REPLAY) + len(TERMINAL) == len(BatchStatus)


@pytest.mark.parametrize(
    ("since", "now", "left"),
    [(100, 100, 80), (100, 150, 30), (100, 300, -120), (9, 8, 80)],
)
def test_time_runs_out_by_the_servers_clock(
    since: float, now: float, left: float
) -> None:
    assert seconds_left(since, now, 80) == left


IDS = st.text(max_size=4)
DIGESTS = st.lists(st.tuples(IDS, st.binary(max_size=9)), max_size=12)


def of(rows: list[tuple[str, bytes]]) -> Digest:
    ids = [name for name, _ in rows]
    return Digest(
        len(rows),
        sum(len(data) for _, data in rows),
        sum(len(name) for name in ids),
        min(ids, default=None),
        max(ids, default=None),
    )


@given(DIGESTS, st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_digest_ignores_how_rows_are_partitioned(
    rows: list[tuple[str, bytes]], rng: Random, parts: int
) -> None:
    whole = of(rows)
    rng.shuffle(rows)
    size = len(rows) // parts + 1
    assert total(of(rows[at : at + size]) for at in range(0, len(rows), size)) == whole


def test_other_rows_have_another_digest() -> None:
    digests = [
        of([]),
        of([("a", b"x")]),
        of([("b", b"x")]),
        of([("a", b"xx")]),
        of([("a", b"x"), ("a", b"")]),
    ]
    assert all(one != other for one, other in itertools.combinations(digests, 2))


def test_entries_are_json_that_comes_back() -> None:
    for entry in (
        Committed(3, Digest(1, 2, 3, "a", "é"), {"rows": 1}),
        BatchStarted(3, "run", 9),
        TaskStarted(3, "run"),
    ):
        assert decode(encode(entry)) == entry
    assert b'"type":"committed"' in encode(Committed(3, NOTHING))


def test_a_commit_keeps_the_keys_of_its_json() -> None:
    fingerprint = StreamFingerprint(7, "2026-01-31T12:00:00+00:00")
    entry = Committed(3, Digest(), stream="A", fingerprint=fingerprint)
    found = json.loads(encode(entry))
    assert found["type"] == "committed"
    assert found["mark"] == {"sequence": 7, "time": fingerprint.time}
