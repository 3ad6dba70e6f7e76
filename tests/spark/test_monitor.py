"""Tests of the lag and the counts of real queries: the monitor, its HTTP server and bucket."""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

import jsync as library
from jsync import errors
from jsync.spark import QueryMetrics, StreamMetrics, monitor, query_statuses
from jsync.spark.monitoring.lag import measure_lag

from ..cli.support import Jsync
from ..support.servers import wait_for
from .sink_support import run
from .support import LONG, Batches, Reading, begun, ended, fill, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from jsync.server import LocalServer
    from jsync.spark import Monitor


@pytest.fixture
def place(server: LocalServer) -> dict[str, str]:
    return {"nats.servers": server.url}


def the(watching: Monitor, name: str) -> QueryMetrics:
    """Return the figures of a query, or empty ones before the first measurement."""
    found = (each for each in watching.queries() if each.name == name)
    return next(found, QueryMetrics(id="none"))


def named(frame: DataFrame, name: str, batches: Batches) -> Any:
    writer = frame.writeStream.queryName(name).foreachBatch(batches.take)
    return writer.option("checkpointLocation", str(batches.checkpoint))


def get(port: int | None, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as response:
        text: bytes = response.read()
    return text.decode()


def test_query_lag_is_reported_in_messages_and_seconds(
    spark: SparkSession,
    server: LocalServer,
    reading: Reading,
    batches: Batches,
    js: library.JetStream,
    stream: library.Stream,
    unique: str,
    place: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "jsync.spark.monitor")
    fill(js, stream, *numbers(12))
    frame = reading.stream(stream, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    told: list[QueryMetrics] = []
    bucket = f"{unique}progress"
    with monitor(
        spark,
        place,
        bucket=bucket,
        http="127.0.0.1:0",
        interval=0.2,
        on_progress=told.append,
    ) as watching:
        # Run one micro-batch, and no second one for a long time.
        trigger = named(frame, unique, batches).trigger(processingTime="1 hour")
        query = begun(trigger)
        try:
            wait_for(lambda: the(watching, unique).rows == 5, LONG)
            fill(js, stream, *numbers(3, start=13))
            # Spark does nothing now, so the monitor must look at the stream by itself.
            wait_for(lambda: the(watching, unique).lag == 10, LONG)
            found = the(watching, unique)
            age = found.lag_seconds
            assert age is not None
            assert age > 0
            assert found.streams[stream.name].next == 6
            wait_for(lambda: (the(watching, unique).lag_seconds or 0) > age, LONG)
            text = get(watching.port, "/metrics")
            labels = f'query="{unique}",stream="{stream.name}"'
            assert f"jsync_spark_lag_messages{{{labels}}} 10\n" in text
            assert f'jsync_spark_rows_total{{query="{unique}"}} 5\n' in text
            assert f'jsync_spark_query_running{{query="{unique}"}} 1\n' in text
            assert get(watching.port, "/readyz") == "ok\n"
            (kept,) = query_statuses(js, bucket)
            assert (kept.id, kept.state, kept.lag) == (str(query.id), "running", 10)
        finally:
            query.stop()
    assert [each.lag for each in told if each.lag] != []
    # The driver has ended, and other tools see the lag grow.
    fill(js, stream, *numbers(5, start=16))
    jsync = Jsync(server)
    (document,) = jsync("pipeline", "status", "--bucket", bucket, "--json").json
    assert (document["query"], document["state"]) == (unique, "ended")
    assert (document["lag"], document["rows"]) == (15, 5)
    ended = jsync("pipeline", "status", "--bucket", bucket)
    assert ended.rows[0][:5] == [unique, "ended", "0", "5", "15"]
    (line,) = jsync("pipeline", "status", "--bucket", bucket, "--streams").rows
    assert line[:4] == [unique, stream.name, "6", "15"]
    lines = [record for record in caplog.records if record.name == logger_name()]
    assert any(f"{stream.name} 10 behind" in each.getMessage() for each in lines)
    assert lines[-1].progress["streams"][stream.name]["next"] == 6  # type: ignore[attr-defined]


def test_lag_counts_no_messages_that_are_gone(
    js: library.JetStream, stream: library.Stream
) -> None:
    stream.update(max_msgs_per_subject=1)
    for number in range(60):
        js.publish(f"{stream.name}.{min(number, 10)}", b"")
    created = stream.info().created
    assert created is not None
    at_next = {}
    for sequence in (1, 6, 30, 61):
        position = StreamMetrics(created=created.isoformat(), next=sequence)
        query = QueryMetrics(id="q", streams={stream.name: position})
        assert measure_lag(js, query) is None
        at_next[sequence] = position.lag
    assert at_next == {1: 11, 6: 11, 30: 1, 61: 0}
    stream.delete_message(60)
    position = StreamMetrics(created=created.isoformat(), next=30)
    assert (
        measure_lag(js, QueryMetrics(id="q", streams={stream.name: position})) is None
    )
    assert (position.lag, position.lag_seconds) == (0, 0.0)


def logger_name() -> str:
    return "jsync.spark.monitor"


def test_duplicates_and_dead_letters_count_over_all_runs(
    spark: SparkSession,
    server: LocalServer,
    reading: Reading,
    js: library.JetStream,
    stream: library.Stream,
    unique: str,
    tmp_path: Path,
    place: dict[str, str],
) -> None:
    out = js.create_stream(name=f"{unique}OUT", subjects=[f"{unique}-out.>"])
    dead = js.create_stream(name=f"{unique}DEAD", subjects=[f"{unique}-dead"])
    value = F.col("data").cast("string").try_cast("int")
    rows = (
        reading.stream(stream, startingOffsets="earliest")
        .withColumn("value", value)
        .observe(
            f"counts {unique}", F.count_if(F.col("value").isNull()).alias("malformed")
        )
        .select(
            F.when(F.col("value") == 3, "a b")
            .otherwise(F.lit(f"{unique}-out.a"))
            .alias("subject"),
            "data",
            # In the second run, two rows have the id of a row that the first has stored.
            F.when(F.col("sequence") > 5, F.col("sequence") - 4)
            .otherwise(F.col("sequence"))
            .cast("string")
            .alias("msg_id"),
        )
    )
    chosen = {
        "stream": out.name,
        "delivery": "exactly-once",
        "deadLetterSubject": f"{unique}-dead",
        "queryName": unique,
    }
    bucket = f"{unique}progress"
    found = QueryMetrics(id="none")
    try:
        for start, malformed, totals in ((1, 1, (1, 0)), (5, 2, (1, 2))):
            fill(js, stream, *numbers(3, start), b"no number")
            with monitor(spark, place, bucket=bucket) as watching:
                run(rows, server, tmp_path / "checkpoint", **chosen)
            (found,) = watching.queries()
            assert (found.malformed, found.state) == (malformed, "ended")
            assert (found.dead_letters, found.duplicates) == totals
            assert (found.lag, found.lag_seconds) == (0, 0.0)
        assert dead.info().state.messages == 1
        assert found.rows == 8, "the bucket remembers the first run"
    finally:
        out.delete()
        dead.delete()


@pytest.mark.sparks
def test_messages_gone_before_they_are_read_count(
    spark: SparkSession,
    server: LocalServer,
    reading: Reading,
    batches: Batches,
    js: library.JetStream,
    stream: library.Stream,
    unique: str,
    place: dict[str, str],
) -> None:
    """Deletes and, with `failOnDataLoss=false`, purges. The count survives a restart."""
    bucket, frame = (
        f"{unique}progress",
        reading.stream(stream, startingOffsets="earliest", failOnDataLoss=False),
    )

    def run() -> QueryMetrics:
        with monitor(spark, place, bucket=bucket) as watching:
            ended(named(frame, unique, batches).trigger(availableNow=True), LONG)
        (found,) = watching.queries()
        return found

    fill(js, stream, *numbers(10))
    for sequence in (3, 4, 10):
        stream.delete_message(sequence)
    found = run()
    assert (found.missing, found.rows) == (3, 7)
    fill(js, stream, *numbers(10, start=11))
    stream.purge(sequence=15)
    found = run()
    assert (found.missing, found.rows) == (3 + 4, 7 + 6)
    jsync = Jsync(server)
    (document,) = jsync("pipeline", "status", "--bucket", bucket, "--json").json
    assert document["missing"] == document["streams"][stream.name]["missing"] == 7
    status = jsync("pipeline", "status", "--bucket", bucket)
    assert status.rows[0][7] == "7"
    (line,) = jsync("pipeline", "status", "--bucket", bucket, "--streams").rows
    assert line[-1] == "7"


def test_a_failed_query_is_unready_and_shows_why(
    spark: SparkSession,
    reading: Reading,
    batches: Batches,
    js: library.JetStream,
    stream: library.Stream,
    unique: str,
    place: dict[str, str],
) -> None:
    fill(js, stream, b"1")
    frame = reading.stream(stream, startingOffsets="earliest")
    batches.fail_at = 0
    with monitor(spark, place, bucket=None, http="127.0.0.1:0") as watching:
        query = named(frame, unique, batches).start()
        with pytest.raises(Exception, match="the sink fails"):
            query.awaitTermination(LONG)
        wait_for(lambda: not watching.is_ready(), LONG)
        found = the(watching, unique)
        assert found.state == "failed"
        assert found.error == "RuntimeError: the sink fails"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get(watching.port, "/readyz")


def test_a_monitor_rejects_unsupported_options_at_once(spark: SparkSession) -> None:
    with pytest.raises(errors.ConfigError, match="interval"):
        monitor(spark, interval=0)
    with pytest.raises(errors.ConfigError, match="HOST:PORT"):
        monitor(spark, http="8080")
    with pytest.raises(errors.ConfigError, match="there is no option"):
        monitor(spark, {"nats.server": "x"})
