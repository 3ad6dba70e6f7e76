"""JetStream in PySpark 4: the data source `jetstream`, a monitor, and pipelines.

    spark.read.format("jetstream").option("stream", "ORDERS").load()
    spark.readStream.format("jetstream").option("stream", "ORDERS").load()
    frame.write.format("jetstream").option("subject", "orders.new").mode("append").save()

A read has the columns stream, subject, sequence, timestamp (microseconds), headers (with
includeHeaders=true), and data. A schema of the user's reads fewer columns, and without
data the server sends no payloads. The names of its options are not case-sensitive:

    stream, or streams               one stream, or several separated by commas
    streamPattern                    all streams whose names match, listed in each batch
    subjects                         only these subjects, wildcards allowed
    lastPerSubject                   true: only the last message of each subject, in a batch
    bucket                           a key-value bucket, with the columns key, value,
                                     revision, timestamp and operation
    keys                             only these keys, wildcards allowed
    history                          true: all kept revisions of the bucket, in a batch
    objectStore                      an object store, with the columns path,
                                     modificationTime, length, content and digest, in a batch
    pathGlobFilter, maxObjectBytes   only these objects, and the limit of their size
    startingOffsets                  earliest, latest, a sequence, or JSON by stream
    startingTimestamp                a time, or JSON by stream
    endingOffsets, endingTimestamp   the exclusive end of a batch
    maxOffsetsPerTrigger, maxBytesPerTrigger   limits of a micro-batch
    minOffsetsPerTrigger, maxTriggerDelay   a smaller micro-batch waits for so long
    minPartitions, maxPartitions     the partitions of a batch
    minRecordsPerPartition, maxRecordsPerPartition
    failOnDataLoss                   true: unread messages that were removed are an error
    pauseFile                        a query begins no new batch while this file exists
    includeHeaders                   false
    readMode                         consumer or direct, by default chosen for each stream
    nats.*                           the connection, and the places of the secrets

The map, lowest first:

    options         names and parsing of the options
    errors          the meaning of an error of Spark, in one line (pure)
    retry           retries while a server does not answer
    connection      one connection per process, from the `nats.*` options
    buckets         the messages of a key-value bucket
    bucket_limit    the limit of a bucket where the account requires one
    server_columns  the columns that a server gives to each message (pure)
    column_types    the types of all columns in Spark (pure)
    schema          the columns of the source
    columns         record batches for Spark
    fingerprint     detection of streams that were restored from older data
    offsets         the position of a query in its streams
    source_options  the options of a read (pure)
    object_options  the options of a read of an object store
    pushdown        the ranges and subjects to which filters narrow a batch (pure)
    range_progress  the progress in a range, and its missing messages
    stream_state    the state of streams, as their leaders report it
    range_reader    a range of a stream, on an executor
    parallel        parallel requests, and streams that are opened early
    source          batches
    micro_batch     streaming reads in micro-batches
    tables          batches of the last message of each subject or key
    objects         batches of the objects of an object store
    sink            writing
    data_source     the entry point that Spark calls
    monitoring      the lag of queries, for logs, Prometheus and a bucket
    pipeline        TOML files that define reads, transformations and writes
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .data_source import JetStreamDataSource as JetStreamDataSource
    from .monitoring.metrics import (
        QueryMetrics as QueryMetrics,
        StreamMetrics as StreamMetrics,
    )
    from .monitoring.monitor import Monitor as Monitor, monitor as monitor
    from .monitoring.status_server import serve_statuses as serve_statuses
    from .monitoring.status_store import query_statuses as query_statuses

_HOMES = {
    "JetStreamDataSource": "data_source",
    "Monitor": "monitoring.monitor",
    "QueryMetrics": "monitoring.metrics",
    "StreamMetrics": "monitoring.metrics",
    "monitor": "monitoring.monitor",
    "query_statuses": "monitoring.status_store",
    "serve_statuses": "monitoring.status_server",
}

__all__ = [
    "JetStreamDataSource",
    "Monitor",
    "QueryMetrics",
    "StreamMetrics",
    "monitor",
    "register",
    "query_statuses",
    "serve_statuses",
]


def register(spark: SparkSession) -> None:
    """Register `format("jetstream")` in this session.

    If jsync is installed for the driver's Python, Spark finds the format without this. A
    session that knows the format already is not changed.
    """
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    from .data_source import JetStreamDataSource  # noqa: PLC0415

    try:
        spark.dataSource.register(JetStreamDataSource)
    except AnalysisException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


if not TYPE_CHECKING:  # a type checker reads the imports above

    def __getattr__(name: str) -> object:
        # Import PySpark only on use: a pipeline's file is checked without it.
        if home := _HOMES.get(name):
            return getattr(import_module(f".{home}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
