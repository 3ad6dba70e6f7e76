"""Shared parts of the tests of the sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from .support import ended

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    import jsync
    from jsync.server import LocalServer


LONG = 900
"""The seconds in which a query must end, even on a slow machine."""


def write(
    frame: DataFrame, server: LocalServer, mode: str = "append", **options: Any
) -> None:
    """Write a batch, and wait for its end."""
    writer = frame.write.format("jetstream").option("nats.servers", server.url)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.mode(mode).save()


def run(
    frame: DataFrame,
    server: LocalServer,
    checkpoint: object,
    mode: str = "append",
    **options: Any,
) -> StreamingQuery:
    """Run a query until all available data is written."""
    writer = frame.writeStream.format("jetstream").option("nats.servers", server.url)
    for name, value in {"checkpointLocation": str(checkpoint), **options}.items():
        writer = writer.option(name, value)
    return ended(writer.outputMode(mode).trigger(availableNow=True), LONG)


def stored(stream: jsync.Stream, *columns: str) -> list[tuple[Any, ...]]:
    table = pa.table(stream.read_arrow(columns=columns))
    return [tuple(row[name] for name in columns) for row in table.to_pylist()]


def numbers(spark: SparkSession, stream: jsync.Stream, count: int) -> DataFrame:
    """Return rows with subject, data and msg_id, in two partitions."""
    return with_columns(spark.range(0, count, 1, 2), stream.name)


def with_columns(frame: DataFrame, first: str) -> DataFrame:
    number = F.col("id")
    return frame.select(
        F.concat(F.lit(f"{first}."), (number % 3).cast("string")).alias("subject"),
        number.cast("string").alias("data"),
        F.concat(F.lit("n"), number).alias("msg_id"),
    )
