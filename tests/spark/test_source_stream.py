"""Tests of reading a growing stream in micro-batches that can be repeated."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.sql import functions as F  # noqa: N812

import jsync
from jsync.server import LocalServer

from ..support.servers import wait_for
from .support import LONG, Batches, Reading, fill, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RUNS = 2 if pyspark.__version__.startswith(("4.0.", "4.1.")) else 1
"""Before Spark 4.2 a query ends after the batch that it repeats, and the next run continues."""


def offsets(batches: Batches) -> list[dict[str, Any]]:
    """Return the offsets of each batch in the checkpoint."""
    files = sorted(
        (
            path
            for path in (batches.checkpoint / "offsets").iterdir()
            if path.name.isdigit()
        ),
        key=lambda path: int(path.name),
    )
    return [json.loads(path.read_text().splitlines()[-1]) for path in files]


def is_idle(query: StreamingQuery) -> bool:
    """Return whether the query has looked for data and found none."""
    return bool(query.status["message"] == "Waiting for data to arrive")


def wait_until_read(query: StreamingQuery, batches: Batches, count: int) -> None:
    """Wait until the query has so many messages, and has committed the last batch."""

    def is_read() -> bool:
        if failure := query.exception():
            raise failure
        return len(batches.sequences) >= count and is_idle(query)

    wait_for(is_read, LONG)


def test_available_messages_arrive_in_batches_within_the_limit(
    reading: Reading, batches: Batches, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(12))
    frame = reading.stream(stream, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    query = batches.available(frame)
    assert batches.given == [(0, [1, 2, 3, 4, 5]), (1, [6, 7, 8, 9, 10]), (2, [11, 12])]
    assert [bytes(row.data) for row in batches.rows] == numbers(12)
    progress: Any = query.lastProgress
    source = progress["sources"][0]
    latest = json.loads(source["latestOffset"])["streams"][stream.name]
    assert latest["next"] == 13
    # Run the same query again, first without and then with new messages.
    batches.available(frame)
    assert len(batches.given) == 3
    fill(js, stream, *numbers(2, start=13))
    batches.available(frame)
    assert batches.given[3:] == [(3, [13, 14])]


def test_each_offset_describes_its_batch_by_itself(
    reading: Reading, batches: Batches, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(10))
    frame = reading.stream(
        stream, startingOffsets=3, maxOffsetsPerTrigger=4, maxRecordsPerPartition=3
    )
    batches.available(frame)
    spans = [offset["streams"][stream.name] for offset in offsets(batches)]
    created = stream.info().created
    assert created is not None
    assert {span.pop("created") for span in spans} == {created.isoformat()}
    last = stream.get_message(10, direct=False).timestamp.isoformat()
    for span in spans:
        assert span.pop("mark") == {"sequence": 10, "time": last}
    assert spans == [
        {"from": 3, "next": 7, "parts": 2},
        {"from": 7, "next": 11, "parts": 2},
    ]


@pytest.mark.sparks
def test_a_failed_first_batch_repeats_from_its_start(
    reading: Reading, batches: Batches, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """Spark asks for the initial offset again, and `latest` has changed by then."""
    fill(js, stream, *numbers(5))
    batches.fail_at = 0
    with pytest.raises(Exception, match="the sink fails"):
        batches.available(reading.stream(stream, startingOffsets=3))
    fill(js, stream, *numbers(2, start=6))
    for _ in range(RUNS):
        batches.available(reading.stream(stream, startingOffsets="latest"))
    assert batches.given == [(0, [3, 4, 5]), (0, [3, 4, 5]), (1, [6, 7])]


def test_changed_options_do_not_change_a_repeated_batch(
    reading: Reading, batches: Batches, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(12))
    batches.fail_at = 1
    frame = reading.stream(stream, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    with pytest.raises(Exception, match="the sink fails"):
        batches.available(frame)
    frame = reading.stream(stream, startingOffsets="latest", minPartitions=7)
    batches.available(frame)
    assert batches.given[2:] == [(1, [6, 7, 8, 9, 10]), (2, [11, 12])]
    spans = [offset["streams"][stream.name] for offset in offsets(batches)]
    assert [span["parts"] for span in spans] == [1, 1, 2]


@pytest.mark.sparks
def test_a_query_continues_the_checkpoint_of_older_sparks(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The last micro-batch was not committed, and is repeated as it was.

    `scripts/test-sparks` hands the checkpoint on from version to version.
    """
    place = Path(os.environ.get("JSYNC_SPARKS_PLACE", tmp_path))
    batches, report = Batches(place), place / "read.json"
    batches.checkpoint = place / "checkpoint"
    for _ in range(2):
        with LocalServer(store_dir=place / "server") as server:
            with jsync.connect(server.url) as nc:
                js = nc.jetstream()
                stream = js.create_stream(name="A", subjects=["A.>"])
                known = stream.info().state.last_seq
                fill(js, stream, *numbers(5))
            frame = Reading(spark, server).stream("A", startingOffsets="earliest")
            for _ in range(RUNS):
                batches.available(frame)
            pending = json.loads(report.read_text()) if report.exists() else []
            assert batches.sequences == [*pending, *range(known + 1, known + 6)]
            with jsync.connect(server.url) as nc:
                fill(nc.jetstream(), stream, *numbers(3))
            batches.fail_at = batches.given[-1][0] + 1
            with pytest.raises(Exception, match="the sink fails"):
                batches.available(frame)
            report.write_text(json.dumps(batches.given[-1][1]))
            assert batches.given[-1][1] == [*range(known + 6, known + 9)]
            batches.given.clear()


@pytest.mark.sparks
def test_a_running_query_reads_each_message_once(
    reading: Reading, batches: Batches, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """Also over restarts, with a limit, and after the stream has dropped what was read."""
    frame = reading.stream(stream, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    fill(js, stream, *numbers(10))
    with batches.running(frame) as query:
        wait_until_read(query, batches, 10)
    fill(js, stream, *numbers(5))
    stream.purge(sequence=11)
    with batches.running(frame) as query:
        wait_until_read(query, batches, 15)
        fill(js, stream, *numbers(1))
        wait_until_read(query, batches, 16)
    assert batches.sequences == list(range(1, 17))
    assert max(len(found) for _, found in batches.given) <= 4


@pytest.mark.sparks
def test_a_stream_that_is_quiet_makes_no_batches(
    reading: Reading, batches: Batches, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(3))
    frame = reading.stream(stream, startingOffsets="earliest")
    with batches.running(frame) as query:
        wait_for(lambda: batches.sequences == [1, 2, 3], LONG)
        # Idle triggers follow. If the offset changed each time, they would be batches.
        wait_for(lambda: is_idle(query), LONG)
        fill(js, stream, b"more")
        wait_for(lambda: batches.sequences == [1, 2, 3, 4], LONG)
    assert batches.given == [(0, [1, 2, 3]), (1, [4])]


@pytest.mark.sparks
def test_a_running_query_finds_new_streams_that_match(
    reading: Reading, batches: Batches, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(2))
    pattern = f"{stream.name}.*"
    frame = reading.stream("", streamPattern=pattern, startingOffsets="earliest")
    with batches.running(frame):
        wait_for(lambda: batches.sequences == [1, 2], LONG)
        other = js.create_stream(name=f"{stream.name}B", subjects=[f"{stream.name}B.>"])
        fill(js, other, *numbers(3))
        wait_for(lambda: len(batches.sequences) == 5, LONG)
    assert [row.sequence for row in batches.rows if row.stream == other.name] == [
        1,
        2,
        3,
    ]
    other.delete()


@pytest.mark.sparks
def test_large_messages_are_read_by_several_tasks(
    reading: Reading, batches: Batches, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """In a batch, and in micro-batches with a limit of bytes."""
    fill(js, stream, *[bytes(100_000)] * 12)
    frame = reading.batch(stream, maxPartitionBytes=450_000)
    tasks = frame.groupBy(F.spark_partition_id()).count().collect()
    assert [row["count"] for row in tasks] == [4, 4, 4]
    frame = reading.stream(
        stream,
        startingOffsets="earliest",
        maxPartitionBytes=250_000,
        maxBytesPerTrigger=650_000,
    )
    with batches.running(frame) as query:
        wait_until_read(query, batches, 12)
    spans = [offset["streams"][stream.name] for offset in offsets(batches)]
    assert [(span["next"], span["parts"]) for span in spans] == [(7, 3), (13, 3)]
    assert batches.sequences == list(range(1, 13))
