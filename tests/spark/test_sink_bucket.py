"""Tests of writes into key-value buckets."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

from jsync import errors
from jsync.spark.options import Options
from jsync.spark.sink.entries import WRITE, EntryPlan
from jsync.spark.sink.options import SinkSettings
from jsync.spark.sink.publishers import TaskPublisher
from jsync.spark.sink.target import target_of

from .sink_support import run, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    import jsync
    from jsync.server import LocalServer

KINDS = {"key": "string", "value": "string", "operation": "string"}
EXPECTING = {"key": "string", "value": "string", "expected_revision": "bigint"}
Row = tuple[Any, ...]


@pytest.fixture
def bucket(js: jsync.JetStream, unique: str) -> Iterator[jsync.KeyValue]:
    yield js.create_key_value(bucket=unique, history=5, storage="memory")
    with contextlib.suppress(errors.BucketNotFoundError):
        js.delete_key_value(unique)


@pytest.fixture
def dead(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    stream = js.create_stream(name=f"{unique}D", subjects=[f"dead.{unique}"])
    yield stream
    stream.delete()


class Task:
    """One attempt of a task that writes into a bucket."""

    def __init__(
        self, js: jsync.JetStream, kv: jsync.KeyValue, kinds: dict[str, str], dead: str
    ) -> None:
        given = {"bucket": kv.bucket}
        if dead:
            given["deadLetterSubject"] = dead
        settings = SinkSettings.of(Options(given, "write"))
        self._plan = EntryPlan(list(kinds.items()))
        self._kinds = kinds
        config = js.stream(f"KV_{kv.bucket}").config
        plan = self._plan.messages
        target = target_of(settings, plan, config)
        self._prefix = target.prefix
        self._sending = TaskPublisher(
            js, settings, plan, target, timeout=5.0, max_payload=1 << 20
        )

    def send(self, rows: list[Row], name: str = "query.a/0") -> int:
        """Return the confirmed rows."""
        types = {"bigint": pa.int64(), "string": pa.string()}
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([row[at] for row in rows], types[kind])
                for at, kind in enumerate(self._kinds.values())
            ],
            names=list(self._kinds),
        )
        try:
            self._sending.publish(self._plan.batch_of(batch, self._prefix, name))
            return self._sending.close().rows
        except BaseException:
            self._sending.give_up()
            raise


def entries(kv: jsync.KeyValue) -> dict[str, bytes]:
    found = kv.get_many(list(kv.keys()))
    return {key: entry.value for key, entry in found.items()}


def subject_of(dead: jsync.Stream) -> str:
    return f"dead.{dead.name.removesuffix('D')}"


def test_upserts_and_deletes_change_a_bucket(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    rows: list[Row] = [
        ("a", "1", None),
        ("b", "2", "put"),
        ("c.d", "3", "PUT"),
        ("a", None, None),
        ("b", "kept out", "Purge"),
        ("e", "5", None),
    ]
    for _ in range(2):  # a task that is repeated
        assert Task(js, bucket, KINDS, "").send(rows) == 6
    assert entries(bucket) == {"c.d": b"3", "e": b"5"}
    assert [entry.operation for entry in bucket.history("b")] == ["PURGE"]
    assert [entry.operation for entry in bucket.history("a")][-1] == "DEL"


@pytest.mark.parametrize("key", ["a.*", ">", "a b", "a\n", "a..b", "", ".a", "é", None])
def test_an_invalid_key_changes_nothing(
    js: jsync.JetStream, bucket: jsync.KeyValue, dead: jsync.Stream, key: str | None
) -> None:
    bucket.put("a.b", b"stays")
    with pytest.raises(errors.Error):
        Task(js, bucket, KINDS, "").send([(key, None, "PURGE")])
    subject = subject_of(dead)
    assert Task(js, bucket, KINDS, subject).send([(key, None, "PURGE")]) == 0
    assert dead.leader_info().state.messages == 1
    assert entries(bucket) == {"a.b": b"stays"}
    assert bucket.status().values == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", "1", "MERGE"), "has 'MERGE': it has to be PUT, DEL, PURGE or null"),
        (("a", None, "PUT"), "a row has the operation PUT, and its value is null"),
    ],
)
def test_a_row_without_meaning_is_refused(
    js: jsync.JetStream, bucket: jsync.KeyValue, row: Row, message: str
) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        Task(js, bucket, KINDS, "").send([row])


def test_a_write_expects_revisions(js: jsync.JetStream, bucket: jsync.KeyValue) -> None:
    first, gone = bucket.put("a", b"1"), bucket.put("b", b"1")
    bucket.delete("b")
    bucket.put("free", b"1")
    rows: list[Row] = [
        ("a", "2", first),
        ("b", "2", 0),  # it was deleted
        ("new", "2", 0),
        ("free", "2", None),
    ]
    assert Task(js, bucket, EXPECTING, "").send(rows) == 4
    assert set(entries(bucket).values()) == {b"2"}
    with pytest.raises(
        errors.WrongLastSequenceError,
        match=f"key 'b' is not at expected_revision {gone}, because another writer",
    ):
        Task(js, bucket, EXPECTING, "").send([("b", "3", gone)])
    assert entries(bucket)["b"] == b"2"


def test_a_deleted_key_conflicts_with_its_revision(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    revision = bucket.put("a", b"1")
    bucket.delete("a")
    with pytest.raises(errors.WrongLastSequenceError):
        Task(js, bucket, EXPECTING, "").send([("a", "2", revision)])
    assert entries(bucket) == {}


def test_a_repeated_write_recognises_its_own_rows(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    """Another writer has changed one of the keys since."""
    bucket.put("gone", b"1")
    bucket.delete("gone")
    revision = bucket.put("a", b"1")
    rows: list[Row] = [("a", "2", revision), ("new", "2", 0), ("gone", "2", 0)]
    assert Task(js, bucket, EXPECTING, "").send(rows) == 3
    bucket.put("a", b"theirs")
    before = bucket.status().values
    assert Task(js, bucket, EXPECTING, "").send(rows) == 3
    assert bucket.status().values == before
    assert entries(bucket)["a"] == b"theirs"
    with pytest.raises(errors.WrongLastSequenceError):  # another query, same value
        Task(js, bucket, EXPECTING, "").send(rows[1:], "query.b/0")
    with pytest.raises(errors.WrongLastSequenceError):  # another row of the write
        Task(js, bucket, EXPECTING, "").send([("new", "3", 0)])


def test_a_conflict_becomes_a_dead_letter(
    js: jsync.JetStream, bucket: jsync.KeyValue, dead: jsync.Stream
) -> None:
    revision = bucket.put("a", b"1")
    bucket.put("a", b"theirs")
    subject = subject_of(dead)
    rows: list[Row] = [("a", "mine", revision), ("b", "2", 0)]
    for _ in range(2):
        assert Task(js, bucket, EXPECTING, subject).send(rows) == 1
    letter = dead.get_message(sequence=dead.leader_info().state.last_seq)
    assert dead.leader_info().state.messages == 1, "a repeated one is the same"
    assert letter.data == b"mine"
    assert letter.headers is not None
    assert "key 'a' is not at expected" in letter.headers["Dead-Letter-Reason"]
    assert entries(bucket) == {"a": b"theirs", "b": b"2"}
    assert WRITE in letter.headers


def test_two_writers_of_a_key_have_one_winner(
    js: jsync.JetStream, bucket: jsync.KeyValue, dead: jsync.Stream
) -> None:
    keys = [f"k{number}" for number in range(2000)]
    subject = subject_of(dead)
    begin = threading.Barrier(2)

    def write_all(name: str) -> int:
        task = Task(js, bucket, EXPECTING, subject)
        begin.wait(60)
        return task.send([(key, name, 0) for key in keys], name)

    with ThreadPoolExecutor(2) as pool:
        won = dict(zip("ab", pool.map(write_all, "ab"), strict=True))
    found = entries(bucket)
    assert won == {each: list(found.values()).count(each.encode()) for each in "ab"}
    assert sum(won.values()) == len(found) == len(keys)
    assert dead.leader_info().state.messages == len(keys)


@pytest.mark.sparks
def test_spark_writes_changes_into_a_bucket(
    spark: SparkSession,
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    bucket: jsync.KeyValue,
    tmp_path: Path,
) -> None:
    """A batch, and a stream that deletes some keys of it."""
    rows = spark.range(100).select(
        F.concat(F.lit("k."), F.col("id")).alias("key"),
        F.col("id").cast("string").alias("value"),
    )
    write(rows, server, bucket=bucket.bucket)
    assert len(entries(bucket)) == 100
    for number in range(0, 100, 2):
        js.publish(f"{stream.name}.{number}", b"gone")
    reader = spark.readStream.format("jetstream").option("nats.servers", server.url)
    changes = reader.options(stream=stream.name, startingOffsets="earliest").load()
    last = F.split("subject", "[.]")[1]
    deletes = changes.select(
        F.concat(F.lit("k."), last).alias("key"), F.lit("DEL").alias("operation")
    )
    run(deletes, server, tmp_path / "checkpoint", bucket=bucket.bucket)
    assert entries(bucket) == {f"k.{n}": b"%d" % n for n in range(1, 100, 2)}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("'a' as subject, '1' as data", "takes no column subject: .* Is it key"),
        ("'a' as key, 1 as value", "value is int, and has to be binary or string"),
        ("'1' as value", "there is no column key"),
        ("'a' as key", "there is no column value"),
        ("'a' as key, '1' as value, 1 as revision", "Is it expected_revision"),
    ],
)
def test_wrong_columns_of_a_bucket_are_refused(columns: str, message: str) -> None:
    fields = []
    for part in columns.split(", "):
        value, name = part.split(" as ")
        fields.append((name, "string" if "'" in value else "int"))
    with pytest.raises(errors.ConfigError, match=message):
        EntryPlan(fields)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stream": "A"}, "options stream and bucket exclude each other"),
        ({"subject": "a"}, "option subject is for streams, not for a bucket"),
        ({"delivery": "exactly-once"}, "expected_revision"),
        ({"publisher": "ingest"}, "publisher=ingest is for streams"),
        ({"bucket": "a.b"}, "has to be the name of one bucket"),
    ],
)
def test_options_of_a_stream_fit_no_bucket(given: dict[str, str], message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        SinkSettings.of(Options({"bucket": "B", **given}, "write"))
