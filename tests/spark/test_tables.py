"""Tests of tables: the values of a bucket, its changes, and the last message of each subject."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

import nats
import pytest

from jsync import errors
from jsync.spark.connection import close_connections
from jsync.spark.micro_batch import JetStreamStreamReader
from jsync.spark.options import Options
from jsync.spark.schema import bucket_schema, source_schema
from jsync.spark.source import JetStreamReader
from jsync.spark.tables import TableReader

from ..support.servers import wait_for
from .engine import latest
from .support import LONG, Batches, Reading, fill, numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition

    import jsync
    from jsync.server import LocalServer

COLUMNS = [
    ("key", "string"),
    ("value", "binary"),
    ("revision", "bigint"),
    ("timestamp", "timestamp"),
    ("operation", "string"),
]


@pytest.fixture
def bucket(js: jsync.JetStream, unique: str) -> Iterator[jsync.KeyValue]:
    yield js.create_key_value(bucket=unique, storage="memory")
    js.delete_key_value(unique)
    close_connections()


@pytest.fixture
def kept(js: jsync.JetStream, unique: str) -> Iterator[jsync.KeyValue]:
    """A bucket that keeps several revisions of a key."""
    name = f"{unique}H"
    yield js.create_key_value(bucket=name, storage="memory", history=5)
    js.delete_key_value(name)
    close_connections()


def values(server: LocalServer, bucket: jsync.KeyValue, **more: object) -> TableReader:
    given = {"nats.servers": server.url, "bucket": bucket.bucket, **more}
    chosen = Options({name: str(value) for name, value in given.items()}, "read")
    return TableReader(chosen, bucket_schema())


def last(options: dict[str, str], **more: object) -> TableReader:
    given = {"nats.servers": options["nats.servers"], "stream": options["stream"]}
    more = {"lastPerSubject": "true", **more}
    chosen = {**given, **{name: str(value) for name, value in more.items()}}
    return TableReader(Options(chosen, "read"), source_schema(include_headers=False))


def rows(
    reader: TableReader | JetStreamReader | JetStreamStreamReader,
    partitions: Iterable[InputPartition] | None = None,
) -> list[dict[str, Any]]:
    """Return the rows that the executors read. Each gets a pickled reader and partition."""
    if partitions is None:
        assert not isinstance(reader, JetStreamStreamReader)
        partitions = reader.partitions()
    return [
        row
        for part in partitions
        for found in pickle.loads(pickle.dumps(reader)).read(
            pickle.loads(pickle.dumps(part))
        )
        for row in found.to_pylist()
    ]


def keys_and_values(found: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    assert len({row["key"] for row in found}) == len(found)
    return {row["key"]: row["value"] for row in found}


def frame_of(spark: SparkSession, server: LocalServer, **options: object) -> DataFrame:
    reader = spark.read.format("jetstream").option("nats.servers", server.url)
    return reader.options(**{k: str(v) for k, v in options.items()}).load()


# A bucket as a table ------------------------------------------------------------------


@pytest.mark.sparks
def test_a_bucket_is_a_table(
    spark: SparkSession, server: LocalServer, bucket: jsync.KeyValue
) -> None:
    bucket.put("user.ann", b"old")
    revision = bucket.put("user.ann", b"new")
    bucket.put("user.bob", b"")
    for key, remove in (("gone", bucket.delete), ("purged", bucket.purge)):
        bucket.put(key, b"x")
        remove(key)
    frame = frame_of(spark, server, bucket=bucket.bucket)
    assert frame.dtypes == COLUMNS
    ann, bob = sorted(frame.collect())
    assert (ann.key, bytes(ann.value), ann.revision) == ("user.ann", b"new", revision)
    assert (bob.key, bytes(bob.value), bob.operation) == ("user.bob", b"", "PUT")
    stored = bucket.get("user.ann").created
    assert ann.timestamp.timestamp() == pytest.approx(stored.timestamp(), abs=1e-6)
    some = frame_of(spark, server, bucket=bucket.bucket, keys="user.bob, nothing.>")
    assert [row.key for row in some.select("key", "revision").collect()] == ["user.bob"]
    spark.sql(
        f"create table table_of_{bucket.bucket} using jetstream options "
        f"(bucket '{bucket.bucket}', 'nats.servers' '{server.url}')"
    )
    counted = spark.sql(f"select count(*) as n from table_of_{bucket.bucket}")
    assert counted.collect()[0].n == 2
    spark.sql(f"drop table table_of_{bucket.bucket}")


def test_keys_rewritten_during_a_read_have_rows(
    server: LocalServer, bucket: jsync.KeyValue
) -> None:
    for number in range(10):
        bucket.put(f"key.{number}", b"old")
    reader = values(server, bucket, minPartitions=3)
    partitions = reader.partitions()
    for number in range(9):
        bucket.put(f"key.{number}", b"new")
    bucket.delete("key.0")
    bucket.put("later", b"x")
    found = keys_and_values(rows(reader, partitions))
    expected = {f"key.{number}": b"new" for number in range(1, 9)}
    assert found == {**expected, "key.9": b"old"}


def test_partitions_have_equal_numbers_of_keys(
    server: LocalServer, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    """All but the first live message are behind many sequences that are gone."""
    with js.publisher() as publisher:
        publisher.publish(f"$KV.{bucket.bucket}.first", b"1")
        for number in range(20_000):
            publisher.publish(f"$KV.{bucket.bucket}.hot", b"%d" % number)
        for number in range(999):
            publisher.publish(f"$KV.{bucket.bucket}.key.{number}", b"1")
    reader = values(server, bucket, minPartitions=4)
    partitions = reader.partitions()
    sizes = [len(rows(reader, [part])) for part in partitions]
    assert sizes == [250, 250, 250, 251]
    limited = values(server, bucket, maxRecordsPerPartition=100)
    assert len(limited.partitions()) == 11


def test_large_values_make_more_partitions(
    server: LocalServer, bucket: jsync.KeyValue
) -> None:
    for number in range(20):
        bucket.put(f"key.{number}", b"x" * 1000)
    reader = values(server, bucket, maxPartitionBytes=5500)
    sizes = [len(rows(reader, [part])) for part in reader.partitions()]
    assert sizes == [5, 5, 5, 5]


def test_records_of_nats_py_are_read(
    server: LocalServer, js: jsync.JetStream, unique: str
) -> None:
    """nats-py creates buckets without direct gets, and its markers differ from those of jsync."""

    async def write() -> None:
        connection = await nats.connect(server.url)
        js = connection.jetstream()
        bucket = await js.create_key_value(bucket=unique, history=3)
        for key in ("a", "b", "c"):
            await bucket.put(key, key.encode())
        await bucket.delete("b")
        await bucket.purge("c")
        # Neither a key of jsync nor a subject that a request may name.
        await js.publish(f"$KV.{unique}.a.*", b"star")
        await js.publish(f"$KV.{unique}.a.b", b"matches")
        await connection.close()

    asyncio.run(write())
    bucket = js.key_value(unique)
    found = rows(values(server, bucket, minPartitions=4))
    expected = {"a": b"a", "a.*": b"star", "a.b": b"matches"}
    assert keys_and_values(found) == expected
    history = rows(changes(server, bucket))
    assert [(row["key"], row["operation"]) for row in history] == [
        *(("a", "PUT"), ("b", "PUT"), ("b", "DEL"), ("c", "PURGE")),
        *(("a.*", "PUT"), ("a.b", "PUT")),
    ]
    js.delete_key_value(unique)
    close_connections()


def test_an_empty_bucket_is_an_empty_table(
    server: LocalServer, bucket: jsync.KeyValue
) -> None:
    reader = values(server, bucket)
    assert reader.partitions() == []


def test_the_schema_chooses_columns_of_a_bucket(
    server: LocalServer, bucket: jsync.KeyValue
) -> None:
    from pyspark.sql.types import StructType  # noqa: PLC0415

    bucket.put("a", b"1")
    chosen = Options({"nats.servers": server.url, "bucket": bucket.bucket})
    columns = bucket_schema()
    schema = StructType([columns["revision"], columns["key"]])
    assert rows(TableReader(chosen, schema)) == [{"revision": 1, "key": "a"}]
    with pytest.raises(errors.ConfigError, match="no column stream"):
        TableReader(chosen, source_schema(include_headers=False))


def test_a_recreated_bucket_is_data_loss(
    server: LocalServer, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    bucket.put("a", b"1")
    reader = values(server, bucket)
    partitions = reader.partitions()
    js.delete_key_value(bucket.bucket)
    with pytest.raises(errors.DataLossError, match="deleted while it was read"):
        rows(reader, partitions)
    js.create_key_value(bucket=bucket.bucket, storage="memory").put("a", b"2")
    with pytest.raises(errors.DataLossError, match="recreated"):
        rows(reader, partitions)


# The changes of a bucket --------------------------------------------------------------


def changes(server: LocalServer, bucket: jsync.KeyValue, **more: object) -> Any:
    given = {"nats.servers": server.url, "bucket": bucket.bucket, "history": "true"}
    chosen = {**given, **{name: str(value) for name, value in more.items()}}
    return JetStreamReader(Options(chosen, "read"), bucket_schema())


def test_the_history_has_operations(server: LocalServer, kept: jsync.KeyValue) -> None:
    kept.put("a", b"1")
    kept.put("a", b"2")
    kept.delete("a")
    kept.put("b", b"3")
    kept.purge("b")
    found = rows(changes(server, kept))
    assert [tuple(row.values())[:3] for row in found] == [
        *(("a", b"1", 1), ("a", b"2", 2), ("a", b"", 3), ("b", b"", 5))
    ]
    assert [row["operation"] for row in found] == ["PUT", "PUT", "DEL", "PURGE"]
    some = rows(changes(server, kept, keys="a", startingOffsets=2))
    assert [row["revision"] for row in some] == [2, 3]


@pytest.mark.sparks
def test_a_stream_of_a_bucket_has_its_changes(
    spark: SparkSession,
    server: LocalServer,
    bucket: jsync.KeyValue,
    batches: Batches,
) -> None:
    bucket.put("a", b"1")
    bucket.put("b", b"1")
    frame = (
        spark.readStream.format("jetstream")
        .options(**{"nats.servers": server.url, "bucket": bucket.bucket})
        .option("startingOffsets", "earliest")
        .load()
        .withColumnRenamed("revision", "sequence")
    )
    with batches.running(frame):
        wait_for(lambda: len(batches.rows) == 2, LONG)
        bucket.delete("a")
        bucket.put("b", b"2")
        wait_for(lambda: len(batches.rows) == 4, LONG)
    assert [(row.key, bytes(row.value), row.operation) for row in batches.rows] == [
        *(("a", b"1", "PUT"), ("b", b"1", "PUT")),
        *(("a", b"", "DEL"), ("b", b"2", "PUT")),
    ]


def test_a_replaced_revision_is_no_data_loss(
    server: LocalServer, bucket: jsync.KeyValue
) -> None:
    """A bucket keeps one revision of a key, so the query finds only the last one."""
    bucket.put("a", b"0")
    given = {"nats.servers": server.url, "bucket": bucket.bucket}
    options = Options({**given, "startingOffsets": "earliest"}, "read")
    reader = JetStreamStreamReader(options, bucket_schema())
    start = reader.initialOffset()
    for number in range(1, 4):
        bucket.put("a", b"%d" % number)
    end = latest(reader, start)
    bucket.put("b", b"x")
    found = rows(reader, reader.partitions(start, end))
    assert [(row["key"], row["value"], row["revision"]) for row in found] == [
        ("a", b"3", 4)
    ]
    bucket.put("a", b"4")
    assert rows(reader, reader.partitions(start, end)) == []
    after = latest(reader, end)
    found = rows(reader, reader.partitions(end, after))
    assert [(row["key"], row["revision"]) for row in found] == [("b", 5), ("a", 6)]


# The last message of each subject -----------------------------------------------------


@pytest.mark.sparks
def test_a_batch_has_each_last_message(
    reading: Reading, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(20))
    frame = reading.batch(stream, lastPerSubject=True, includeHeaders=True)
    found = sorted((row.subject, row.sequence, row.headers) for row in frame.collect())
    assert found == [
        *(
            (f"{stream.name}.{n}", sequence, None)
            for n, sequence in enumerate([19, 20, 18])
        )
    ]
    some = reading.batch(stream, lastPerSubject=True, subjects=f"{stream.name}.1")
    assert [bytes(row.data) for row in some.collect()] == [b"20"]


@pytest.mark.parametrize("direct", [True, False])
def test_last_messages_need_no_direct_gets(
    options: dict[str, str], stream: jsync.Stream, direct: bool
) -> None:
    stream.update(allow_direct=direct)

    async def publish() -> None:  # jsync publishes to no pattern
        connection = await nats.connect(options["nats.servers"])
        for subject in ("a.*", "a.b", "a.>", "b", "a.*", "b"):
            await connection.jetstream().publish(f"{stream.name}.{subject}")
        await connection.close()

    asyncio.run(publish())
    found = rows(last(options, minPartitions=3))
    prefix = len(stream.name) + 1
    assert sorted((row["subject"][prefix:], row["sequence"]) for row in found) == [
        *(("a.*", 5), ("a.>", 3), ("a.b", 2), ("b", 6))
    ]


def test_last_messages_of_several_streams_share_a_partition(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    other = js.create_stream(name=f"{stream.name}B", subjects=[f"{stream.name}B.>"])
    fill(js, stream, *numbers(5))
    fill(js, other, *numbers(7))
    reader = last(options, stream=f"{stream.name},{other.name}")
    partitions = reader.partitions()
    assert len(partitions) == 1
    found = sorted((row["stream"], row["sequence"]) for row in rows(reader, partitions))
    assert found == [
        *((stream.name, n) for n in (3, 4, 5)),
        *((other.name, n) for n in (5, 6, 7)),
    ]
    other.delete()


# Errors -------------------------------------------------------------------------------


def test_a_missing_bucket_has_a_hint(
    server: LocalServer, bucket: jsync.KeyValue, js: jsync.JetStream
) -> None:
    chosen = {"nats.servers": server.url, "bucket": f"KV_{bucket.bucket}"}
    with pytest.raises(errors.BucketNotFoundError, match=f"mean {bucket.bucket!r}"):
        TableReader(Options(chosen), bucket_schema()).partitions()
    chosen = {"nats.servers": server.url, "stream": bucket.bucket}
    columns = source_schema(include_headers=False)
    with pytest.raises(errors.StreamNotFoundError, match="give option bucket"):
        JetStreamReader(Options(chosen), columns).partitions()
    js.create_stream(name=f"KV_{bucket.bucket}S", subjects=[bucket.bucket])
    chosen = {"nats.servers": server.url, "bucket": f"{bucket.bucket}S"}
    with pytest.raises(errors.InvalidBucketError, match="is no bucket"):
        TableReader(Options(chosen), bucket_schema()).partitions()
    js.delete_stream(f"KV_{bucket.bucket}S")


def test_a_pattern_that_matches_nothing_raises(
    server: LocalServer, bucket: jsync.KeyValue
) -> None:
    columns = source_schema(include_headers=False)
    for pattern, remedy in (
        (f"{bucket.bucket}NONE.*", "correct the pattern"),
        (f"KV_{bucket.bucket}.*", f"leaves out KV_{bucket.bucket}, .* option bucket"),
    ):
        given = {"nats.servers": server.url, "streamPattern": pattern}
        with pytest.raises(errors.StreamNotFoundError, match=remedy):
            JetStreamReader(Options(given), columns).partitions()
        with pytest.raises(errors.StreamNotFoundError, match=remedy):
            JetStreamStreamReader(Options(given), columns).initialOffset()
