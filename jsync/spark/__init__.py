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
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .data_source import JetStreamDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JetStreamDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Have this session know `format("jetstream")`.

    Where jsync is installed for the driver's Python, Spark finds it without.
    """
    spark.dataSource.register(JetStreamDataSource)
