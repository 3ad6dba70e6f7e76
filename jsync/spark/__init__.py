"""JetStream in PySpark 4: `spark.read.format("jetstream")`, and what belongs to it.

    spark.read.format("jetstream").option("stream", "ORDERS").load()
    spark.readStream.format("jetstream").option("stream", "ORDERS").load()
    frame.write.format("jetstream").option("subject", "orders.new").mode("append").save()

The map, lowest first:

    options       what the options are called, and how they are read
    connecting    one connection a process, from the `nats.*` options
    schema        the columns of the source
    offsets       where a query is in its streams
    source        reading
    sink          writing
    data_source   what Spark calls
    pipeline      files in TOML that say what is read, done and written
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .data_source import JetStreamDataSource as JetStreamDataSource

__all__ = ["JetStreamDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Have this session know `format("jetstream")`.

    Where jsync is installed for the driver's Python, Spark finds it without.
    """
    spark.dataSource.register(__getattr__("JetStreamDataSource"))


def __getattr__(name: str) -> Any:
    # PySpark is loaded where it is used: a pipeline's file is checked without it.
    if name == "JetStreamDataSource":
        from .data_source import JetStreamDataSource  # noqa: PLC0415

        return JetStreamDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
