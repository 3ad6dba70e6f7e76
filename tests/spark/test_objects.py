"""Tests of object stores as batch tables, with the columns of Spark's `binaryFile`."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import jsync
from jsync import errors
from jsync.spark import pipeline
from jsync.spark.connection import close_connections
from jsync.spark.objects import ListedObject, ObjectStoreReader, StoredInfo
from jsync.spark.options import Options
from jsync.spark.schema import object_schema

from .support import LONG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from jsync.server import LocalServer

    from ..conftest import StartServer

BIG = bytes(range(256)) * 4096
"""A MiB, in several chunks."""


@pytest.fixture
def store(js: jsync.JetStream, unique: str) -> Iterator[jsync.ObjectStore]:
    yield js.create_object_store(bucket=unique, storage="memory")
    js.delete_object_store(unique)
    close_connections()


def reader(
    server: LocalServer, store: jsync.ObjectStore, **more: object
) -> ObjectStoreReader:
    given = {"nats.servers": server.url, "objectStore": store.bucket, **more}
    chosen = Options({name: str(value) for name, value in given.items()}, "read")
    return ObjectStoreReader(chosen, object_schema())


def rows(
    reader: ObjectStoreReader, partitions: Iterable[InputPartition]
) -> dict[str, dict[str, Any]]:
    """Return the rows that the executors read. Each gets a pickled reader and partition."""
    found = [
        row
        for part in partitions
        for batch in pickle.loads(pickle.dumps(reader)).read(
            pickle.loads(pickle.dumps(part))
        )
        for row in batch.to_pylist()
    ]
    assert len({row["path"] for row in found}) == len(found)
    return {row["path"]: row for row in found}


@pytest.mark.sparks
def test_an_object_store_is_a_table(
    spark: SparkSession, server: LocalServer, store: jsync.ObjectStore
) -> None:
    store.put("old", b"x")
    store.put("images/a.png", BIG)
    store.put("images/empty.png", b"")
    store.delete("old")
    frame = (
        spark.read.format("jetstream")
        .option("nats.servers", server.url)
        .options(objectStore=store.bucket)
        .load()
    )
    assert frame.dtypes == [
        *(("path", "string"), ("modificationTime", "timestamp"), ("length", "bigint")),
        *(("content", "binary"), ("digest", "string")),
    ]
    big, empty = sorted(frame.collect())
    assert (big.path, bytes(big.content), big.length) == ("images/a.png", BIG, len(BIG))
    assert big.digest == store.info("images/a.png").digest
    assert (empty.path, bytes(empty.content), empty.length) == (
        "images/empty.png",
        b"",
        0,
    )
    modified = store.info("images/empty.png").modified.timestamp()
    assert empty.modificationTime.timestamp() == pytest.approx(modified, abs=1e-6)
    some = frame.filter("path like '%empty%'").select("length", "path").collect()
    assert [tuple(row) for row in some] == [(0, "images/empty.png")]


def test_a_link_has_the_content_of_its_target(
    server: LocalServer, js: jsync.JetStream, store: jsync.ObjectStore, unique: str
) -> None:
    other = js.create_object_store(bucket=f"{unique}2", storage="memory")
    try:
        info = store.put("a", b"content")
        store.add_link("near", info)
        store.add_link("far", other.put("b", b"other"))
        store.add_bucket_link("whole", other.bucket)
        reading = reader(server, store)
        found = rows(reading, reading.partitions())
        contents = {path: row["content"] for path, row in found.items()}
        assert contents == {"a": b"content", "near": b"content", "far": b"other"}
        assert found["near"]["digest"] == info.digest
        other.delete("b")
        with pytest.raises(errors.DataLossError, match="the link 'far'"):
            reading.partitions()
    finally:
        js.delete_object_store(other.bucket)


def test_links_are_followed_after_an_outage(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server()
    with jsync.connect(server.url) as nc:
        store = nc.jetstream().create_object_store(bucket="files")
        store.add_link("link", store.put("a", b"content"))
    opening, opened = jsync.ObjectStore.open, list[str]()

    def away(self: jsync.ObjectStore, name: str) -> jsync.ObjectReader:
        opened.append(name)
        if len(opened) > 1:
            return opening(self, name)
        server.kill()
        try:
            return opening(self, name, timeout=0.5)
        finally:
            server.start()

    monkeypatch.setattr(jsync.ObjectStore, "open", away)
    reading = reader(server, store)
    try:
        found = rows(reading, reading.partitions())
    finally:
        close_connections()
    assert {path: row["content"] for path, row in found.items()} == {
        "a": b"content",
        "link": b"content",
    }


def test_a_link_into_a_deleted_store_is_lost(
    server: LocalServer, js: jsync.JetStream, store: jsync.ObjectStore, unique: str
) -> None:
    other = js.create_object_store(bucket=f"{unique}2", storage="memory")
    lenient = reader(server, store, failOnDataLoss=False)
    try:
        store.put("a", b"content")
        store.add_link("far", other.put("b", b"other"))
        planned = lenient.partitions()
    finally:
        js.delete_object_store(other.bucket)
    assert list(rows(lenient, planned)) == ["a"]
    with pytest.raises(errors.DataLossError, match="the link 'far'"):
        reader(server, store).partitions()
    assert list(rows(lenient, lenient.partitions())) == ["a"]


def test_partitions_have_about_equal_numbers_of_bytes(
    server: LocalServer, store: jsync.ObjectStore
) -> None:
    for number in range(8):
        store.put(f"{number}", BIG)
    reading = reader(server, store, minPartitions=4)
    partitions = reading.partitions()
    assert [len(part.value) for part in partitions] == [2, 2, 2, 2]
    assert {row["content"] for row in rows(reading, partitions).values()} == {BIG}
    by_bytes = reader(server, store, maxPartitionBytes=2 * len(BIG)).partitions()
    assert [len(part.value) for part in by_bytes] == [1] * 8
    limited = {"maxPartitionBytes": 2 * len(BIG), "maxPartitions": 2}
    assert len(reader(server, store, **limited).partitions()) == 2


def test_without_content_bytes_make_no_partitions(
    server: LocalServer, store: jsync.ObjectStore
) -> None:
    for number in range(8):
        store.put(f"{number}", BIG)
    options = {"nats.servers": server.url, "objectStore": store.bucket}
    options |= {"maxPartitionBytes": f"{len(BIG)}"}
    schema = StructType([object_schema()["path"], object_schema()["length"]])
    (part,) = ObjectStoreReader(Options(options, "read"), schema).partitions()
    assert len(part.value) == 8
    more = Options({**options, "minPartitions": "4"}, "read")
    parts = ObjectStoreReader(more, schema).partitions()
    assert [len(part.value) for part in parts] == [2, 2, 2, 2]


def test_an_empty_store_has_no_rows(
    server: LocalServer, store: jsync.ObjectStore
) -> None:
    assert reader(server, store, minPartitions=4).partitions() == []


def test_an_object_above_the_limit_is_refused(
    server: LocalServer, store: jsync.ObjectStore
) -> None:
    store.put("big.iso", BIG)
    store.put("small.txt", b"x")
    wanted = "object 'big.iso' .* has 1048576 bytes, and maxObjectBytes is 1000: set"
    with pytest.raises(errors.ConfigError, match=wanted):
        reader(server, store, maxObjectBytes=1000).partitions()
    some = reader(server, store, maxObjectBytes=1000, pathGlobFilter="*.txt")
    assert list(rows(some, some.partitions())) == ["small.txt"]


def test_without_content_no_object_is_read(
    spark: SparkSession, server: LocalServer, store: jsync.ObjectStore
) -> None:
    """An object above the limit, and one that is deleted meanwhile, have their rows."""
    store.put("big.iso", BIG)
    frame = (
        spark.read.format("jetstream")
        .option("nats.servers", server.url)
        .options(objectStore=store.bucket, maxObjectBytes=1)
        .schema("length bigint, path string")
        .load()
    )
    assert [tuple(row) for row in frame.collect()] == [(len(BIG), "big.iso")]


def test_an_object_deleted_after_planning_is_an_error(
    server: LocalServer, store: jsync.ObjectStore
) -> None:
    store.put("a", b"first")
    store.put("b", BIG)
    reading = reader(server, store, maxPartitions=1)
    partitions = reading.partitions()
    store.delete("b")
    with pytest.raises(
        errors.DataLossError, match=r"object 'b' .* read the store again"
    ):
        rows(reading, partitions)
    lenient = reader(server, store, failOnDataLoss=False)
    found = rows(lenient, partitions)
    assert {path: row["content"] for path, row in found.items()} == {"a": b"first"}


def test_an_object_replaced_after_planning_is_new(
    server: LocalServer, store: jsync.ObjectStore
) -> None:
    store.put("a", b"first")
    store.put("b", BIG)
    reading = reader(server, store)
    partitions = reading.partitions()
    store.put("b", b"second")
    info = store.info("b")
    row = rows(reading, partitions)["b"]
    assert (row["content"], row["length"]) == (b"second", len(b"second"))
    assert (row["digest"], row["modificationTime"]) == (info.digest, info.modified)


def test_a_larger_new_version_is_refused(
    server: LocalServer, store: jsync.ObjectStore
) -> None:
    store.put("a", b"first")
    reading = reader(server, store, maxObjectBytes=10)
    partitions = reading.partitions()
    store.put("a", b"more than ten bytes")
    with pytest.raises(errors.ConfigError, match=r"'a' .* maxObjectBytes is 10"):
        rows(reading, partitions)


def test_an_object_replaced_while_listing_comes_once(
    server: LocalServer, store: jsync.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing is longer than what the server sends ahead, so the watch has both infos."""
    for number in range(2000):
        store.put(f"{number}", b"first")
    listing, replaced = jsync.ObjectStore.list, list[jsync.ObjectInfo]()

    def replacing(self: jsync.ObjectStore) -> Iterator[jsync.ObjectInfo]:
        for info in listing(self):
            if not replaced:
                replaced.append(self.put(info.name, b"second"))
            yield info

    monkeypatch.setattr(jsync.ObjectStore, "list", replacing)
    reading = reader(server, store, pathGlobFilter="0")
    (row,) = rows(reading, reading.partitions()).values()
    assert (row["content"], row["digest"]) == (b"second", replaced[0].digest)


def test_an_object_replaced_during_reads_is_read(
    server: LocalServer, store: jsync.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of five reads finds the chunks of its info gone."""
    store.put("a", BIG)
    reading = reader(server, store)
    partitions = reading.partitions()
    opening, opened = jsync.ObjectStore.open, list[str]()

    def replacing(self: jsync.ObjectStore, name: str) -> jsync.ObjectReader:
        file = opening(self, name)
        opened.append(name)
        if len(opened) <= 5:
            store.put(name, BIG + bytes([len(opened)]))
        return file

    monkeypatch.setattr(jsync.ObjectStore, "open", replacing)
    assert rows(reading, partitions)["a"]["content"] == BIG + b"\5"
    assert len(opened) == 6


@pytest.mark.parametrize("there", [False, True])
def test_an_object_not_there_yet_is_awaited(
    server: LocalServer,
    store: jsync.ObjectStore,
    there: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The executor's server has an older info than was listed, or none."""
    if there:
        store.put("a", b"first")
    waits = list[float]()

    def catch_up(seconds: float) -> None:
        waits.append(seconds)
        store.put("a", b"second")

    monkeypatch.setattr("jsync.spark.objects.sleep", catch_up)
    row = {"path": "a", "length": 6}
    listed = ListedObject(StoredInfo(store.bucket, "a", 3 if there else 1), None, row)
    reading = reader(server, store)
    found = rows(reading, [InputPartition([listed])])
    assert found["a"]["content"] == b"second"
    assert len(waits) == 1


@pytest.mark.parametrize("change", ["delete", "rename", "purge", "delete target"])
def test_an_object_that_is_gone_is_not_awaited(
    server: LocalServer,
    js: jsync.JetStream,
    store: jsync.ObjectStore,
    change: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader has all that was listed, so no server is behind."""
    waits = list[float]()
    monkeypatch.setattr("jsync.spark.objects.sleep", waits.append)
    monkeypatch.setattr("jsync.spark.objects.CATCH_UP_SECONDS", 0.2)
    info = store.put("a", b"first")
    store.put("b", b"second")
    if change == "delete target":
        store.add_link("link", info)
    reading = reader(server, store, failOnDataLoss=False)
    partitions = reading.partitions()
    if change == "rename":
        store.update_meta("a", new_name="c")
    elif change == "purge":
        js.stream(f"OBJ_{store.bucket}").purge(subject=f"$O.{store.bucket}.M.YQ==")
    else:
        store.delete("a")
    assert list(rows(reading, partitions)) == ["b"]
    assert waits == []


def test_bytes_under_a_new_info_are_read(
    server: LocalServer, store: jsync.ObjectStore
) -> None:
    store.put("a", BIG)
    reading = reader(server, store)
    partitions = reading.partitions()
    store.update_meta("a", description="new")
    assert rows(reading, partitions)["a"]["content"] == BIG


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "a"}, "option stream is not for an object store"),
        ({"subjects": "a"}, "option subjects is not for an object store"),
        ({"startingOffsets": "1"}, "option startingOffsets is not for an object store"),
        ({"maxObjectBytes": "2000000001"}, "option maxObjectBytes has to be at most"),
        ({"minPartitions": "3", "maxPartitions": "2"}, "is above maxPartitions"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    spark: SparkSession, server: LocalServer, options: dict[str, str], message: str
) -> None:
    read = spark.read.format("jetstream").option("nats.servers", server.url)
    with pytest.raises(Exception, match=message):
        read.options(objectStore="files", **options).load().collect()


def test_a_stream_of_an_object_store_is_refused(
    spark: SparkSession, server: LocalServer, tmp_path: Path
) -> None:
    read = spark.readStream.format("jetstream").option("nats.servers", server.url)
    frame = read.option("objectStore", "files").load()
    writer = frame.writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="option objectStore is for a batch"):
        writer.start().awaitTermination(LONG)


def test_a_missing_object_store_is_named(server: LocalServer) -> None:
    given = {"nats.servers": server.url, "objectStore": "nothing"}
    reading = ObjectStoreReader(Options(given, "read"), object_schema())
    with pytest.raises(errors.BucketNotFoundError, match="nothing"):
        reading.partitions()
    close_connections()


def test_a_pipeline_reads_an_object_store(
    spark: SparkSession, server: LocalServer, store: jsync.ObjectStore, tmp_path: Path
) -> None:
    store.put("a.txt", b"first")
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f"""
[sources.files]
format = "jetstream"
options = {{ objectStore = "{store.bucket}", "nats.servers" = "{server.url}" }}
columns = ["path", "content"]
[sinks.files]
format = "parquet"
from = "files"
path = "{tmp_path}/files"
"""
    )
    assert pipeline.run(file, spark=spark, quiet=True).exit_code == 0
    found = pq.read_table(tmp_path / "files").to_pylist()
    assert found == [{"path": "a.txt", "content": b"first"}]
    file.write_text(file.read_text().replace(store.bucket, "nothing"))
    with pytest.raises(errors.PipelineFileError, match="no object store 'nothing'"):
        pipeline.run(file, spark=spark, quiet=True)
