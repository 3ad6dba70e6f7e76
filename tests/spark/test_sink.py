"""Writing a DataFrame into a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    import jsync
    from jsync.server import LocalServer


def write(
    frame: DataFrame, server: LocalServer, mode: str = "append", **options: Any
) -> None:
    writer = frame.write.format("jetstream").option("nats.servers", server.url)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.mode(mode).save()


def stored(stream: jsync.Stream, *columns: str) -> list[tuple[Any, ...]]:
    table = pa.table(stream.read_arrow(columns=columns))
    return [tuple(row[name] for name in columns) for row in table.to_pylist()]


def numbers(spark: SparkSession, stream: jsync.Stream, count: int) -> DataFrame:
    """Rows with subject, data and msg_id, in two partitions."""
    return spark.range(0, count, 1, 2).select(
        F.concat(F.lit(f"{stream.name}."), (F.col("id") % 3).cast("string")).alias(
            "subject"
        ),
        F.col("id").cast("string").alias("data"),
        F.concat(F.lit("n"), F.col("id")).alias("msg_id"),
    )


@pytest.mark.parametrize("publisher", ["ingest", "async"])
def test_rows_are_messages(
    spark: SparkSession, server: LocalServer, stream: jsync.Stream, publisher: str
) -> None:
    stream.update(allow_batched=True)
    frame = numbers(spark, stream, 25_000).drop("msg_id")
    write(frame, server, stream=stream.name, publisher=publisher)
    found = stored(stream, "subject", "data")
    assert sorted(found, key=lambda row: int(row[1])) == [
        (f"{stream.name}.{n % 3}", b"%d" % n) for n in range(25_000)
    ]


def test_a_job_that_runs_again_doubles_nothing(
    spark: SparkSession, server: LocalServer, stream: jsync.Stream
) -> None:
    frame = numbers(spark, stream, 3000)
    options = {"stream": stream.name, "delivery": "exactly-once"}
    write(frame, server, **options)
    write(frame, server, **options, jobId="again")
    write(frame, server, **options, jobId="again")
    assert len(stored(stream, "data")) == 3000
