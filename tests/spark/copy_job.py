"""A query that copies a stream into another one, each row exactly once, to be killed.

It runs in another process: `python copy_job.py URL SOURCE SINK CHECKPOINT ROWS`. It ends when all
available messages are copied, in batches of `ROWS` rows.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession, functions as F  # noqa: N812


def main(url: str, source: str, sink: str, checkpoint: str, rows: str) -> None:
    spark = (
        SparkSession.builder.master(os.environ["JSYNC_MASTER"])
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.sql.warehouse.dir", str(Path(checkpoint) / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    read = (
        spark.readStream.format("jetstream")
        .option("nats.servers", url)
        .option("stream", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows)
        .load()
    )
    # After a shuffle the rows come in any order, and in other partitions.
    mixed = read.repartition(3, F.col("sequence") % 17).select(
        F.lit(f"{sink}.copy").alias("subject"),
        "data",
        F.col("data").cast("string").alias("msg_id"),
    )
    query = (
        mixed.writeStream.format("jetstream")
        .option("nats.servers", url)
        .option("stream", sink)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
