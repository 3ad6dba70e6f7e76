"""Tests of pipelines with formats that Spark knows by name."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from jsync.errors import PipelineFileError
from jsync.spark import pipeline

from .support import fill, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    import jsync
    from jsync.server import LocalServer

SOURCE = """
[sources.messages]
format = "jetstream"
options = {{ stream = "{stream}", "nats.servers" = "{url}", startingOffsets = "earliest" }}
columns = ["subject", "sequence"]
"""
DATABASE = """
[sinks.database]
format = "jdbc"
from = "messages"
options = {{ url = "{url}", dbtable = "messages" }}
"""
KAFKA = """
[sources.messages]
format = "kafka"
options = {{ "kafka.bootstrap.servers" = "{source}", subscribe = "topic" }}
[sinks.out]
format = "kafka"
from = "messages"
options = {{ "kafka.bootstrap.servers" = "{sink}", topic = "out" }}
"""
BUCKET = """
[steps]
entries = "select concat('k.', sequence) as key, subject as value from messages"
[sinks.bucket]
format = "jetstream"
from = "entries"
options = {{ bucket = "{bucket}", "nats.servers" = "{url}" }}
"""
STREAMING = """
[streaming]
checkpoint = "{checkpoint}"
trigger = "available-now"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.toml"


def test_a_pipeline_writes_files_rows_and_keys(
    file: Path,
    spark: SparkSession,
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
) -> None:
    """Spark has a driver of Derby."""
    url = f"jdbc:derby:{file.parent}/database;create=true"
    source = SOURCE.format(stream=stream.name, url=server.url)
    orc = f"""
[sinks.files]
format = "orc"
from = "messages"
path = "{file.parent}/files"
"""
    fill(js, stream, *numbers(10))
    entries = js.create_key_value(bucket=stream.name, storage="memory")
    bucket = BUCKET.format(bucket=entries.bucket, url=server.url)
    file.write_text(source + orc + DATABASE.format(url=url) + bucket)
    done = pipeline.run(file, spark=spark, quiet=True)
    assert [sink["rows"] for sink in done.sinks] == [10, 10, 10]
    assert set(entries.keys()) == {f"k.{number}" for number in range(1, 11)}
    js.delete_key_value(entries.bucket)
    assert spark.read.orc(f"{file.parent}/files").count() == 10
    fill(js, stream, *numbers(5))
    streaming = STREAMING.format(checkpoint=file.parent / "checkpoint")
    table = DATABASE.format(url=url).replace('messages" }', 'streamed" }')
    file.write_text(streaming + source + table + "foreach_batch = true\n")
    pipeline.run(file, spark=spark, quiet=True)
    reader = spark.read.format("jdbc").option("url", url)
    tables = [
        sorted(row.sequence for row in reader.option("dbtable", name).load().collect())
        for name in ("messages", "streamed")
    ]
    assert tables == [[*range(1, 11)], [*range(1, 16)]]


def test_missing_formats_and_drivers_are_one_error(
    file: Path, spark: SparkSession, server: LocalServer, stream: jsync.Stream
) -> None:
    sinks = f"""
[sinks.lake]
format = "delta"
from = "messages"
path = "{file.parent}/lake"
[sinks.other]
format = "com.example.Rows"
from = "messages"
"""
    source = SOURCE.format(stream=stream.name, url=server.url)
    file.write_text(source + sinks + DATABASE.format(url="jdbc:nowhere:a"))
    with pytest.raises(PipelineFileError) as refused:
        pipeline.run(file, spark=spark, quiet=True)
    delta, other, driver = (message for _, message in refused.value.problems)
    assert "sinks.lake.format: Spark has no format 'delta'" in delta
    assert "'io.delta:delta-spark_4." in delta
    assert "Spark has no format 'com.example.Rows': check the name" in other
    assert "sinks.database.options: there is no JDBC driver for this url" in driver


def test_missing_brokers_are_reported_before_starting(file: Path) -> None:
    """Spark would try for minutes, and then report the topic as missing."""
    with socket.create_server(("127.0.0.1", 0)) as broker:
        port = broker.getsockname()[1]
        present = f"127.0.0.1:{port}"
        file.write_text(KAFKA.format(source=present, sink=f"127.0.0.1:1, {present}"))
        pipeline.check(file)
    file.write_text(
        KAFKA.format(source=f"PLAINTEXT://localhost:{port}", sink="localhost")
    )
    pipeline.check(file, offline=True)
    with pytest.raises(PipelineFileError) as refused:
        pipeline.check(file)
    at_source, at_sink = refused.value.problems
    assert at_source[0] == 4
    assert (
        'sources.messages.options."kafka.bootstrap.servers": no broker' in at_source[1]
    )
    assert f"PLAINTEXT://localhost:{port} (Connection refused)" in at_source[1]
    assert at_sink[0] == 8
    assert "localhost (no port)" in at_sink[1]
