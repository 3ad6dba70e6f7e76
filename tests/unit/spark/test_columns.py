"""Tests of record batches in the form that Spark needs."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow
import pytest

from jsync import Headers, StoredMessage
from jsync.spark.columns import (
    conform,
    entries,
    first_missing,
    message_columns,
    stored_batch,
    without_header,
)

HEADERS = pyarrow.map_(pyarrow.string(), pyarrow.list_(pyarrow.string()))


@pytest.mark.parametrize(
    ("position", "sequences", "missing"),
    [(0, [2, 3], 1), (1, [2, 3, 5], 4), (4, [5, 8, 12], 6), (1, [9], 2)],
)
def test_the_first_gap_is_found(
    position: int, sequences: list[int], missing: int
) -> None:
    assert (
        first_missing(position, pyarrow.array(sequences, pyarrow.uint64())) == missing
    )


def test_a_header_is_taken_out_of_each_row() -> None:
    rows = [
        [("Nats-Msg-Size", ["3"])],
        [("A", ["1", "2"]), ("Nats-Msg-Size", ["0"]), ("B", ["3"])],
        None,
        [("A", ["4"])],
    ]
    batch = pyarrow.RecordBatch.from_pydict(
        {"sequence": [1, 2, 3, 4], "headers": pyarrow.array(rows, HEADERS)}
    )
    left = without_header(batch, "Nats-Msg-Size")
    assert left.column_names == ["sequence", "headers"]
    assert left["headers"].type == HEADERS
    assert left["headers"].to_pylist() == [
        None,
        [("A", ["1", "2"]), ("B", ["3"])],
        None,
        [("A", ["4"])],
    ]


def test_columns_follow_the_order_of_the_schema() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
    message = StoredMessage(
        subject="a\udcff",
        sequence=7,
        data=b"\xff",
        headers=Headers({"A": ["1", "2"]}),
        timestamp=moment,
        stream="S",
    )
    batch = stored_batch(
        [message], ["subject", "data", "sequence", "timestamp", "headers"]
    )
    schema = pyarrow.schema(
        [
            ("headers", HEADERS),
            ("sequence", pyarrow.int64()),
            ("stream", pyarrow.string()),
            ("timestamp", pyarrow.timestamp("us", "UTC")),
            ("subject", pyarrow.string()),
        ]
    )
    found = conform(batch, "S", schema)
    assert found.schema == schema
    assert found.to_pylist() == [
        {
            "headers": [("A", ["1", "2"])],
            "sequence": 7,
            "stream": "S",
            "timestamp": moment,
            "subject": "a�",
        }
    ]


def test_messages_of_a_bucket_become_entries() -> None:
    headers = [
        None,
        [("KV-Operation", ["DEL"])],
        [("KV-Operation", ["PURGE"]), ("Nats-Rollup", ["sub"])],
        [("Nats-Marker-Reason", ["MaxAge"])],
        [("KV-Operation", ["unknown"])],
        [("Other", ["x"])],
    ]
    names = ["operation", "key", "revision"]
    assert message_columns(names) == ["headers", "subject", "sequence"]
    keys = ["a", "user.\u00e9", "c", "d.*", "e", ""]
    batch = pyarrow.RecordBatch.from_pydict(
        {
            "subject": [f"$KV.b.{key}" for key in keys],
            "sequence": pyarrow.array(range(6), pyarrow.uint64()),
            "headers": pyarrow.array(headers, HEADERS),
        }
    )
    found = entries(batch, "$KV.b.", names)
    assert found.column_names == names
    operations = ["PUT", "DEL", "PURGE", "PURGE", "PUT", "PUT"]
    assert found["operation"].to_pylist() == operations
    assert found["key"].to_pylist() == keys
    puts = entries(batch.slice(0, 1), "$KV.b.", names)
    assert puts["operation"].to_pylist() == ["PUT"]
    assert puts.schema == found.schema
