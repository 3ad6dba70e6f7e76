"""Tests of writing the batches of a streaming query, and of repeated batches."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from jsync.spark.sink.batch_fence import commit
from jsync.spark.sink.bucket import open_bucket
from jsync.spark.sink.report import BatchReport, TaskReport

from ..support.servers import wait_for
from .sink_support import run, stored, with_columns
from .support import fill, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    import jsync
    from jsync.server import LocalServer

    from .support import Reading


def lines(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the numbers in files, one file per batch."""
    reader = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", "1")
    return reader.json(str(folder))


def add_file(folder: Path, name: str, numbers: range) -> None:
    folder.mkdir(exist_ok=True)
    text = "\n".join(json.dumps({"id": number}) for number in numbers)
    path = folder / f"{name}.json"
    path.write_text(text)
    # Spark reads files in the order of their times.
    os.utime(path, (1_700_000_000 + numbers.start,) * 2)


def values(stream: jsync.Stream) -> list[int]:
    return sorted(int(data) for (data,) in stored(stream, "data"))


def committed(js: jsync.JetStream, stream: jsync.Stream, query: str) -> Any:
    message = js.stream("KV_jsync_spark").get_message(
        last_by_subject=f"$KV.jsync_spark.query.{query}.committed"
    )
    return json.loads(message.data)


ONCE = {"delivery": "exactly-once"}


@pytest.mark.sparks
@pytest.mark.parametrize("options", [{}, ONCE], ids=["at least once", "exactly once"])
def test_batches_are_stored_and_the_next_run_continues(
    spark: SparkSession,
    server: LocalServer,
    stream: jsync.Stream,
    tmp_path: Path,
    options: dict[str, str],
) -> None:
    stream.update(allow_batched=True)
    given = {"stream": stream.name, **options}
    add_file(tmp_path / "in", "0", range(1000))
    add_file(tmp_path / "in", "1", range(1000, 1500))
    frame = with_columns(lines(spark, tmp_path / "in"), stream.name)
    if not options:
        frame = frame.drop("msg_id")
    run(frame, server, tmp_path / "checkpoint", **given)
    assert values(stream) == list(range(1500))
    add_file(tmp_path / "in", "2", range(1500, 1600))
    run(frame, server, tmp_path / "checkpoint", **given)
    assert values(stream) == list(range(1600))


def test_a_stored_batch_is_never_sent_again(
    spark: SparkSession,
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
) -> None:
    given = {"stream": stream.name, **ONCE}
    add_file(tmp_path / "in", "0", range(1000))
    add_file(tmp_path / "in", "1", range(1000, 1200))
    frame = with_columns(lines(spark, tmp_path / "in"), stream.name)
    checkpoint = tmp_path / "checkpoint"
    query = run(frame, server, checkpoint, **given)
    entry = committed(js, stream, str(query.id))
    assert entry["batch"] == 1
    assert entry["report"]["confirmed"] == 200
    assert entry["report"]["last_sequence"] == 1200
    # As if Spark had ended between the commit of the sink and its own. The stream forgets all ids.
    for folder in ("commits",):
        (checkpoint / folder / "1").unlink()
        (checkpoint / folder / ".1.crc").unlink()
    stream.purge()
    run(frame, server, checkpoint, **given)
    assert values(stream) == []
    # An old checkpoint is another case: the rows that it has not seen would be lost.
    for folder in ("commits", "offsets", "sources/0"):
        (checkpoint / folder / "1").unlink()
        (checkpoint / folder / ".1.crc").unlink()
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink()
    with pytest.raises(StreamingQueryException, match="this is an old checkpoint"):
        run(frame, server, checkpoint, **given)
    assert values(stream) == []


@pytest.mark.parametrize("remembered", [True, False])
def test_a_deleted_checkpoint_doubles_only_forgotten_rows(
    spark: SparkSession,
    server: LocalServer,
    reading: Reading,
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
    remembered: bool,
) -> None:
    """The query begins anew, at the beginning of its source and with a new id."""
    name, count = f"{stream.name}-OUT", 50
    sink = js.create_stream(
        name=name,
        subjects=[f"{name}.>"],
        storage="memory",
        duplicate_window=3600.0 if remembered else 4.0,
    )
    fill(js, stream, *numbers(count))
    frame = reading.stream(stream, startingOffsets="earliest").select(
        F.concat(F.lit("n"), "sequence").alias("msg_id"), "data"
    )
    given = {"stream": name, "subject": f"{name}.x", **ONCE}
    run(frame, server, tmp_path / "checkpoint", **given)
    assert values(sink) == list(range(1, count + 1))
    shutil.rmtree(tmp_path / "checkpoint")
    if not remembered:

        def publish_last() -> bool:
            return js.publish(f"{name}.last", b"0", msg_id="last").duplicate

        assert not publish_last()
        wait_for(lambda: not publish_last(), 60)  # and so are all ids before it
    run(frame, server, tmp_path / "checkpoint", **given)
    rows = [number for number in values(sink) if number]
    assert rows == sorted([*range(1, count + 1)] * (1 if remembered else 2))
    sink.delete()


def test_a_new_query_on_a_used_stream_warns(
    js: jsync.JetStream,
    stream: jsync.Stream,
    unique: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    open_bucket(js, unique)
    report = BatchReport.of([TaskReport(rows=1, confirmed=1)])

    def note(query: str, batch: int, name: str = stream.name) -> list[str]:
        caplog.clear()
        commit(lambda: js, unique, query, batch, report, fenced=name, last=False)
        return [record.getMessage() for record in caplog.records]

    assert note("query.a", 0) == []
    assert note("query.a", 1) == []
    assert note("job.a", 0) == []
    (line,) = note("query.b", 0)
    assert f"query.b is new, and query.a has written into stream {stream.name}" in line
    assert note("query.b", 1) == []
    assert note("query.c", 0, f"KV_{unique}") == []
    js.delete_stream(f"KV_{unique}")


def test_a_mode_that_purges_every_batch_is_refused(
    spark: SparkSession, server: LocalServer, stream: jsync.Stream, tmp_path: Path
) -> None:
    add_file(tmp_path / "in", "0", range(10))
    counted = (
        lines(spark, tmp_path / "in")
        .groupBy((F.col("id") % 2).alias("odd"))
        .count()
        .select(F.to_json(F.struct("*")).alias("data"))
    )
    subject = f"{stream.name}.counts"
    with pytest.raises(StreamingQueryException, match="would purge the stream"):
        run(
            counted,
            server,
            tmp_path / "complete",
            mode="complete",
            subject=subject,
            stream=stream.name,
        )
    assert stored(stream, "data") == []
