"""What the sink is given, and what it reports; without a session."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from jsync.spark.sink.columns import ColumnPlan
from jsync.spark.sink.fence import Digest
from jsync.spark.sink.report import BatchReport, TaskReport
from jsync.spark.sink.rows import as_batches, digest

SCHEMA = StructType(
    [
        StructField("data", BinaryType()),
        StructField("headers", MapType(StringType(), ArrayType(StringType()))),
        StructField("expected_last_sequence", LongType()),
    ]
)


def test_record_batches_are_handed_on_as_they_are() -> None:
    batches = [pa.record_batch({"data": [b"x"]}), pa.record_batch({"data": [b"y"]})]
    found = list(as_batches(batches, SCHEMA))
    assert all(one is other for one, other in zip(found, batches, strict=True))


def test_rows_which_spark_4_0_gives_become_record_batches() -> None:
    rows = [
        Row(data=bytearray(b"x"), headers={"A": ["1", "2"]}, expected_last_sequence=5),
        Row(data=None, headers=None, expected_last_sequence=None),
    ] * 7500
    found = list(as_batches(iter(rows), SCHEMA))
    assert [batch.num_rows for batch in found] == [10_000, 5000]
    table = pa.Table.from_batches(found)
    assert table.schema.names == SCHEMA.names
    assert table.to_pylist()[-2:] == [
        {"data": b"x", "headers": [("A", ["1", "2"])], "expected_last_sequence": 5},
        {"data": None, "headers": None, "expected_last_sequence": None},
    ]


def test_a_digest_is_taken_of_whole_columns() -> None:
    plan = ColumnPlan(("data", "msg_id"), "x")
    batch = pa.record_batch({"data": [b"abc", b""], "msg_id": ["b", "aé"]})
    assert digest(batch, plan) == Digest(2, 3, 4, "aé", "b")


def task(**fields: Any) -> TaskReport:
    return TaskReport(**{"rows": 5, "confirmed": 5, "key": "job.x", **fields})


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([], "0 rows, 0 confirmed"),
        (
            [
                task(first_sequence=7, last_sequence=11),
                task(duplicates=2, first_sequence=3, last_sequence=6),
                TaskReport(),
            ],
            "10 rows, 10 confirmed, 2 of them duplicates, sequences 3 to 11",
        ),
        (
            [task(duplicates=None, last_sequence=9)],
            "5 rows, 5 confirmed (duplicates are not told), sequences 9",
        ),
        (
            [task(confirmed=3, dead_letters=2, first_sequence=1, last_sequence=3)],
            "5 rows, 3 confirmed, sequences 1 to 3, 2 dead letters",
        ),
        (
            [task(confirmed=0, skipped=True)],
            "5 rows, 0 confirmed, 5 stored by an earlier run",
        ),
    ],
)
def test_a_commit_reports_what_the_stream_has_confirmed(
    tasks: list[TaskReport], said: str
) -> None:
    tasks = [pickle.loads(pickle.dumps(task)) for task in tasks]
    assert str(BatchReport.of(tasks)) == said
