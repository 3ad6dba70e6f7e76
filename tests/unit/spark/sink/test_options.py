"""Tests of the options of a write, and of whether a stream supports it."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from jsync import StreamConfig
from jsync.errors import ConfigError
from jsync.spark.options import Options
from jsync.spark.sink.columns import ColumnPlan
from jsync.spark.sink.options import FENCE_BUCKET, SinkSettings
from jsync.spark.sink.target import SinkTarget, subjects_pattern, target_of

PLAIN = ColumnPlan(("subject", "data"))
WITH_ID = ColumnPlan(("subject", "data", "msg_id"))
ONCE = {"delivery": "exactly-once", "stream": "ORDERS"}


def settings(**given: str) -> SinkSettings:
    return SinkSettings.of(Options(given))


def config(**fields: Any) -> StreamConfig:
    given = {"name": "ORDERS", "subjects": ["orders.>"], "duplicate_window": 120.0}
    return StreamConfig(**{**given, **fields})


def test_the_default_delivers_at_least_once_without_fence() -> None:
    found = settings()
    assert not found.exactly_once
    assert found.publisher == "auto"
    assert found.fence_bucket is None
    assert not found.allow_purge
    assert pickle.loads(pickle.dumps(found)) == found


def test_exactly_once_has_a_fence() -> None:
    assert settings(**ONCE).fence_bucket == FENCE_BUCKET
    assert settings(**ONCE, fenceBucket="mine").fence_bucket == "mine"


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"delivery": "at-most-once"}, "delivery has to be at-least-once or exactly"),
        ({"publisher": "sync"}, "publisher has to be auto or ingest or async"),
        ({"fenceBucket": "a.b"}, "fenceBucket: not the name of a bucket: 'a.b'"),
        ({"jobId": "a b"}, "jobId: cannot be part of a key: 'a b'"),
        ({"jobId": "a..b"}, "jobId"),
        ({"jobId": "a", "jobBatch": "-1"}, "jobBatch has to be a whole number from 0"),
        ({"jobId": "*"}, "jobId"),
        ({"maxRestartTime": "soon"}, "maxRestartTime has to be a number of seconds"),
        (
            {"publisher": "ingest", "deadLetterSubject": "dead"},
            "deadLetterSubject needs publisher=async",
        ),
        ({"subject": "orders.*"}, "option subject has to be a subject without wild"),
        ({"subject": "orders. new"}, "option subject has to be a subject without wild"),
        ({"deadLetterSubject": "dead.>"}, "option deadLetterSubject has to be a subj"),
    ],
)
def test_an_invalid_option_is_rejected(given: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        settings(**given)


@pytest.mark.parametrize(
    ("given", "plan", "what"),
    [
        (ONCE, PLAIN, "needs a column msg_id.*Row numbers do not.*Nor do hashes"),
        ({"delivery": "exactly-once"}, WITH_ID, "needs the option stream"),
        (
            ONCE,
            ColumnPlan(("subject", "data", "msg_id", "expected_last_sequence")),
            "cannot have the column expected_last_sequence",
        ),
        ({"maxRestartTime": "60"}, PLAIN, "is for delivery=exactly-once"),
        ({"jobId": "x"}, PLAIN, "jobId needs delivery=exactly-once"),
        ({"jobBatch": "0"}, PLAIN, "give its jobId"),
        (
            {"publisher": "ingest"},
            ColumnPlan(("subject", "data", "expected_last_msg_id")),
            "needs publisher=async",
        ),
    ],
)
def test_conflicting_options_are_rejected(
    given: dict[str, str], plan: ColumnPlan, what: str
) -> None:
    with pytest.raises(ConfigError, match=re.compile(what, re.DOTALL)):
        settings(**given).check(plan, overwrite=False, streaming=False)


@pytest.mark.parametrize(
    ("given", "plan", "streaming", "what"),
    [
        ({"stream": "ORDERS"}, PLAIN, False, "allowPurge=true"),
        ({"allowPurge": "true"}, PLAIN, False, "needs the option stream"),
        (
            {"stream": "ORDERS", "allowPurge": "true"},
            WITH_ID,
            False,
            "still knows the ids",
        ),
        ({"stream": "ORDERS", "allowPurge": "true"}, PLAIN, True, "with each batch"),
    ],
)
def test_overwrite_is_refused_unless_asked_to_purge(
    given: dict[str, str], plan: ColumnPlan, streaming: bool, what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        settings(**given).check(plan, overwrite=True, streaming=streaming)


def test_overwrite_may_purge_when_asked_to() -> None:
    asked = settings(stream="ORDERS", allowPurge="true")
    asked.check(PLAIN, overwrite=True, streaming=False)


def test_a_streaming_query_has_no_job() -> None:
    with pytest.raises(ConfigError, match="jobId is for batch writes"):
        settings(jobId="x").check(PLAIN, overwrite=False, streaming=True)


@pytest.mark.parametrize(
    ("given", "plan", "fields", "ingest"),
    [
        ({}, PLAIN, {}, False),
        ({}, PLAIN, {"allow_batched": True}, True),
        ({"publisher": "async"}, PLAIN, {"allow_batched": True}, False),
        ({"deadLetterSubject": "d"}, PLAIN, {"allow_batched": True}, False),
        ({}, WITH_ID, {"allow_batched": True}, False),
        ({"publisher": "ingest"}, WITH_ID, {"allow_batched": True}, True),
        (ONCE, WITH_ID, {"allow_batched": True}, False),
    ],
)
def test_fast_ingest_is_chosen_without_demands_on_acks(
    given: dict[str, str], plan: ColumnPlan, fields: dict[str, Any], ingest: bool
) -> None:
    assert target_of(settings(**given), plan, config(**fields)).ingest is ingest


@pytest.mark.parametrize(
    ("given", "plan", "fields", "what"),
    [
        ({}, PLAIN, {"mirror": {"name": "A"}, "subjects": None}, "is a mirror"),
        ({}, PLAIN, {"sealed": True}, "is sealed"),
        ({}, ColumnPlan(("data", "ttl")), {}, "allow_msg_ttl"),
        ({"publisher": "ingest"}, PLAIN, {}, "needs allow_batched"),
        ({"subject": "other.x"}, PLAIN, {}, "does not take 'other.x', but orders.>"),
        (ONCE, WITH_ID, {"duplicate_window": 1.0}, "remembers ids for 1 s only"),
        (
            {**ONCE, "maxRestartTime": "3600"},
            WITH_ID,
            {},
            "120 s, less than maxRestartTime=3600",
        ),
    ],
)
def test_a_stream_unfit_for_the_write_is_refused(
    given: dict[str, str], plan: ColumnPlan, fields: dict[str, Any], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        target_of(settings(**given), plan, config(**fields))


@pytest.mark.parametrize("window", [4.0, 60.0, 120.0, 3600.0])
def test_a_replay_ends_before_ids_can_be_forgotten(window: float) -> None:
    target = SinkTarget("ORDERS", window, False, None)
    assert target.replay_seconds + 2 * target.ack_timeout <= window
    assert target.replay_seconds >= window / 2
    assert target.ack_timeout < window


@pytest.mark.parametrize(
    ("subjects", "taken", "others"),
    [
        (["orders.>"], ["orders.a", "orders.a.b"], ["orders", "order.a", "orders."]),
        (["a.*.c", "x"], ["a.b.c", "x"], ["a.c", "a.b.b.c", "xx", "a.b.c.d"]),
        (["a$.b+c"], ["a$.b+c"], ["a$.bc", "a$xb+c"]),
        ([">"], ["a", "a.b"], ["", "a b", ".a", "a."]),
        ([], [], ["a", "x.y"]),
    ],
)
def test_the_subjects_of_a_stream_are_a_pattern(
    subjects: list[str], taken: list[str], others: list[str]
) -> None:
    pattern = subjects_pattern(subjects)
    assert [re.fullmatch(pattern, one) is not None for one in taken] == [True] * len(
        taken
    )
    assert not any(re.fullmatch(pattern, one) for one in others)
