"""JetStream in PySpark 4: `spark.read.format("jetstream")`, and what belongs to it.

    spark.read.format("jetstream").option("stream", "ORDERS").load()
    spark.readStream.format("jetstream").option("stream", "ORDERS").load()
    frame.write.format("jetstream").option("subject", "orders.new").mode("append").save()

A read has the columns stream, subject, sequence, timestamp (microseconds), headers (with
includeHeaders=true), and data; a schema of the user's reads fewer, and without data no
payloads are sent. Its options, whose names are of any case:

    stream, or streams               one, or several separated by commas
    streamPattern                    all whose name matches, looked for in each batch
    subjects                         only these, wildcards allowed
    startingOffsets, startingTimestamp   earliest, latest, a sequence, JSON; a moment
    endingOffsets, endingTimestamp   of a batch; exclusive
    maxOffsetsPerTrigger, maxBytesPerTrigger   of a micro-batch
    minOffsetsPerTrigger, maxTriggerDelay   a micro-batch waits for more, for so long
    minPartitions, maxPartitions, maxRecordsPerPartition
    failOnDataLoss                   true; what went before being read is an error
    pauseFile                        of a stream; no new batch begins while it is there
    includeHeaders                   false
    readMode                         consumer, or direct; by default as the stream wants it
    nats.*                           how to connect, and where the secrets are

The map, lowest first:

    options       what the options are called, and how they are read
    connecting    one connection a process, from the `nats.*` options
    schema        the columns of the source
    columns       record batches for Spark
    patience      how long a server that is away is waited for
    marks         whether a stream still is what it was
    offsets       where a query is in its streams
    coverage      what has come of a range, and what may be missing
    streams       what the leaders of streams say
    reading       a range of a stream, on an executor
    source        batches, and `source_stream` micro-batches
    sink          writing
    data_source   what Spark calls
    monitoring    the lag of queries, for logs, Prometheus and a bucket
    pipeline      files in TOML that say what is read, done and written
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .data_source import JetStreamDataSource as JetStreamDataSource
    from .monitoring.board import statuses as statuses
    from .monitoring.figures import (
        QueryFigures as QueryFigures,
        StreamFigures as StreamFigures,
    )
    from .monitoring.monitor import Monitor as Monitor, monitor as monitor

_HOMES = {
    "JetStreamDataSource": "data_source",
    "Monitor": "monitoring.monitor",
    "QueryFigures": "monitoring.figures",
    "StreamFigures": "monitoring.figures",
    "monitor": "monitoring.monitor",
    "statuses": "monitoring.board",
}

__all__ = [
    "JetStreamDataSource",
    "Monitor",
    "QueryFigures",
    "StreamFigures",
    "monitor",
    "register",
    "statuses",
]


def register(spark: SparkSession) -> None:
    """Have this session know `format("jetstream")`.

    Where jsync is installed for the driver's Python, Spark finds it without. A session that
    knows it already stays as it is.
    """
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    try:
        spark.dataSource.register(__getattr__("JetStreamDataSource"))
    except AnalysisException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def __getattr__(name: str) -> Any:
    # Import PySpark only on use: a pipeline's file is checked without it.
    if home := _HOMES.get(name):
        return getattr(import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
