"""Tests of pipelines that read a key-value bucket: its live table, and its changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jsync
from jsync.errors import PipelineError
from jsync.spark import pipeline

from .support import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from jsync.server import LocalServer

TABLE = """
[sources.airports]
format = "jetstream"
options = { bucket = "${BUCKET}", "nats.servers" = "${SERVER}" }
json = "name string, runways int"
"""
STREAMING = """
[streaming]
checkpoint = "${OUT}/checkpoint"
trigger = "available-now"
"""
CHANGES = TABLE.replace('" }', '", startingOffsets = "earliest" }')
FILES = """
[sinks.files]
format = "parquet"
from = "airports"
path = "${OUT}/files"
"""


@pytest.fixture
def bucket(
    js: jsync.JetStream,
    unique: str,
    server: LocalServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[jsync.KeyValue[bytes]]:
    name = f"{unique}B"
    for variable, value in (
        *(("BUCKET", name), ("SERVER", server.url)),
        *(("OUT", str(tmp_path)), ("STREAM", unique)),
    ):
        monkeypatch.setenv(variable, value)
    yield js.create_key_value(bucket=name, storage="memory", history=5)
    js.delete_key_value(name)


@pytest.fixture
def run(tmp_path: Path, spark: SparkSession) -> Callable[[str], pipeline.Result]:
    def run(text: str) -> pipeline.Result:
        file = tmp_path / "pipeline.toml"
        file.write_text(text)
        return pipeline.run(file, spark=spark, quiet=True)

    return run


def airport(name: str, runways: int) -> bytes:
    return json.dumps({"name": name, "runways": runways}).encode()


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return sorted(found, key=lambda row: row["revision"])


def test_a_batch_reads_the_live_table(
    run: Callable[[str], pipeline.Result],
    bucket: jsync.KeyValue[bytes],
    tmp_path: Path,
) -> None:
    bucket.put("jfk", airport("Idlewild", 4))
    bucket.put("txl", airport("Tegel", 2))
    bucket.delete("txl")
    revision = bucket.put("jfk", airport("Kennedy", 4))
    assert run(TABLE + FILES).exit_code == 0
    (found,) = rows(tmp_path / "files")
    assert found.pop("timestamp") is not None
    assert found == {
        "key": "jfk",
        "revision": revision,
        "operation": "PUT",
        "name": "Kennedy",
        "runways": 4,
    }


@pytest.mark.sparks
def test_a_stream_reads_changes_with_operations(
    run: Callable[[str], pipeline.Result],
    bucket: jsync.KeyValue[bytes],
    tmp_path: Path,
) -> None:
    """A delete and a purge have no payload, and are not malformed."""
    bucket.put("jfk", airport("Idlewild", 4))
    bucket.delete("jfk")
    assert run(STREAMING + CHANGES + FILES).exit_code == 0
    bucket.put("txl", airport("Tegel", 2))
    bucket.purge("txl")
    assert run(STREAMING + CHANGES + FILES).exit_code == 0
    found = [
        (row["key"], row["operation"], row["name"]) for row in rows(tmp_path / "files")
    ]
    assert found[:2] == [("jfk", "PUT", "Idlewild"), ("jfk", "DEL", None)]
    # A purge removes the earlier revisions of its key.
    assert found[2:] == [("txl", "PURGE", None)]


@pytest.mark.sparks
def test_a_stream_is_joined_with_a_bucket(
    run: Callable[[str], pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    bucket: jsync.KeyValue[bytes],
) -> None:
    """The bucket is read once, as a table, and the messages are a stream."""
    bucket.put("jfk", airport("Kennedy", 4))
    fill(js, stream, b'{"to": "jfk"}', b'{"to": "nowhere"}')
    text = """
[sources.flights]
format = "jetstream"
columns = ["sequence"]
json = "to string"
[sources.flights.options]
stream = "${STREAM}"
subjects = "${STREAM}.0, ${STREAM}.1"
"nats.servers" = "${SERVER}"
startingOffsets = "earliest"
[steps]
named = '''
select concat(sequence, ' ', coalesce(name, '?')) as data
from flights left join airports on key = to
'''
[sinks.named]
format = "jetstream"
from = "named"
options = { stream = "${STREAM}", subject = "${STREAM}.named", "nats.servers" = "${SERVER}" }
"""
    table = f"{TABLE}static = true\n"
    assert run(STREAMING + table + text).exit_code == 0
    written = pa.table(stream.read_arrow(3, columns=["data"]))["data"].to_pylist()
    assert sorted(written) == [b"1 Kennedy", b"2 ?"]


def test_malformed_values_become_dead_letters(
    run: Callable[[str], pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    bucket: jsync.KeyValue[bytes],
    tmp_path: Path,
) -> None:
    bucket.put("good", airport("Kennedy", 4))
    revision = bucket.put("bad", b"Kennedy")
    bucket.delete("gone")
    dead = """
malformed = "drop"
[sinks.dead]
format = "jetstream"
from = "airports_malformed"
options = { stream = "${STREAM}", subject = "${STREAM}.dead", "nats.servers" = "${SERVER}" }
"""
    assert run(STREAMING + CHANGES + dead + FILES).exit_code == 0
    found = [(row["key"], row["operation"]) for row in rows(tmp_path / "files")]
    assert found == [("good", "PUT"), ("gone", "DEL")]
    (letter,) = stream.get_messages(">")
    assert letter.data == b"Kennedy"
    assert letter.headers is not None
    headers = {
        name.removeprefix("Dead-Letter-"): value
        for name, value in letter.headers.items()
        if name.startswith("Dead-Letter-")
    }
    assert headers.pop("Time").startswith("20")
    assert headers == {
        "Bucket": bucket.bucket,
        "Key": "bad",
        "Revision": f"{revision}",
        "Reason": "the payload is not JSON of the declared schema",
    }
    assert letter.headers["Nats-Msg-Id"] == f"dead KV_{bucket.bucket} {revision}"


def test_a_malformed_value_fails_with_its_key(
    run: Callable[[str], pipeline.Result], bucket: jsync.KeyValue[bytes]
) -> None:
    bucket.put("bad", b"secret")
    with pytest.raises(PipelineError) as failed:
        run(TABLE + FILES)
    assert f"revision 1 of key bad of bucket {bucket.bucket} is not JSON" in str(
        failed.value
    )
    assert "secret" not in str(failed.value)


def test_a_missing_bucket_is_found_before_spark(
    run: Callable[[str], pipeline.Result], bucket: jsync.KeyValue[bytes]
) -> None:
    with pytest.raises(jsync.errors.PipelineFileError) as refused:
        run(TABLE.replace("${BUCKET}", "nothing") + FILES)
    assert "nothing" in str(refused.value)


def test_changes_of_a_bucket_are_replayed(
    js: jsync.JetStream,
    stream: jsync.Stream,
    bucket: jsync.KeyValue[bytes],
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    """A replay has the kept revisions of its range, with deletes, and not the live table."""
    for name in ("Idlewild", "Kennedy"):
        bucket.put("jfk", airport(name, 4))
    bucket.delete("jfk")
    bucket.put("txl", airport("Tegel", 2))
    file = tmp_path / "pipeline.toml"
    file.write_text(
        STREAMING
        + CHANGES
        + """
[steps]
out = '''
select concat_ws(' ', key, operation, name) as data, cast(revision as string) as msg_id
from airports
'''
[sinks.out]
format = "jetstream"
from = "out"
options = { stream = "${STREAM}", subject = "${STREAM}.out", delivery = "exactly-once", \
"nats.servers" = "${SERVER}" }
"""
    )
    result = pipeline.replay(
        file, sink="out", start="2", end="4", spark=spark, quiet=True
    )
    assert result.exit_code == 0
    found = [message.data for message in stream.get_messages(">")]
    assert sorted(found) == [b"jfk DEL", b"jfk PUT Kennedy"]
    with pytest.raises(jsync.errors.ConfigError, match="has no subjects"):
        pipeline.replay(file, sink="out", subjects=["a"], spark=spark, quiet=True)
