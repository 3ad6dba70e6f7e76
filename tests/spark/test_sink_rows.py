"""Tests of the rows that the sink gets, and of its reports, without a session."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

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

import jsync
from jsync import errors
from jsync.spark import connection
from jsync.spark.connection import ConnectionOptions
from jsync.spark.options import Options
from jsync.spark.sink.columns import ColumnPlan
from jsync.spark.sink.fence_state import Digest
from jsync.spark.sink.report import BatchReport, TaskReport
from jsync.spark.sink.rows import as_batches, digest
from jsync.spark.sink.writer import JetStreamWriter

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ..conftest import StartServer

SCHEMA = StructType(
    [
        StructField("data", BinaryType()),
        StructField("headers", MapType(StringType(), ArrayType(StringType()))),
        StructField("expected_last_sequence", LongType()),
    ]
)


def test_record_batches_are_handed_on_as_they_are() -> None:
    batches = [
        pa.RecordBatch.from_pydict({"data": [b"x"]}),
        pa.RecordBatch.from_pydict({"data": [b"y"]}),
    ]
    found = list(as_batches(batches, SCHEMA))
    assert all(one is other for one, other in zip(found, batches, strict=True))


def test_rows_from_spark_4_0_become_record_batches() -> None:
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
    batch = pa.RecordBatch.from_pydict({"data": [b"abc", b""], "msg_id": ["b", "aé"]})
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
def test_a_commit_reports_the_confirmed_rows(
    tasks: list[TaskReport], said: str
) -> None:
    tasks = [pickle.loads(pickle.dumps(task)) for task in tasks]
    assert str(BatchReport.of(tasks)) == said


PERMISSIONS = """
authorization {
  users = [
    {user: all, password: p}
    {user: some, password: p, permissions: {publish: {deny: "$JS.API.STREAM.INFO.>"}}}
  ]
}
"""


def test_the_driver_reports_a_missing_permission_without_secrets(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server(config=PERMISSIONS)
    with jsync.connect(server.url, user="all", password="p") as nc:
        nc.jetstream().create_stream(name="ORDERS", subjects=["orders.>"])
    monkeypatch.setenv("HUSH", "p")
    given = {
        "nats.servers": server.url,
        "nats.user": "some",
        "nats.passwordEnv": "HUSH",
        "stream": "ORDERS",
        "subject": "orders.new",
    }
    data = StructType([StructField("data", BinaryType())])
    with pytest.raises(errors.PermissionsError, match=r"STREAM\.INFO\.ORDERS"):
        JetStreamWriter(Options(given), data, overwrite=False)
    allowed = JetStreamWriter(Options({**given, "nats.user": "all"}), data, False)
    # the path of the secret, not the secret itself
    assert b"HUSH" in pickle.dumps(allowed)
    for user in ("all", "some"):
        options = ConnectionOptions.of(Options({**given, "nats.user": user}))
        connection.get_connection(options).close()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"straem": "x"}, "there is no option straem: is it stream"),
        ({"stream": "NONE"}, "there is no stream 'NONE'"),
        ({"subject": "nobody.takes.it"}, "nobody.takes.it"),
        ({"delivery": "exactly-once"}, "needs a column msg_id"),
    ],
)
def test_the_writer_rejects_bad_options_when_created(
    options: dict[str, str], server: LocalServer, stream: jsync.Stream, what: str
) -> None:
    given = {"nats.servers": server.url, "subject": f"{stream.name}.x"}
    given |= {"stream": stream.name, **options}
    data = StructType([StructField("data", BinaryType())])
    with pytest.raises(errors.Error, match=what):
        JetStreamWriter(Options(given), data, overwrite=False)
    connection.close_connections()
