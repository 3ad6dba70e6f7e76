"""Write messages of a megabyte with eight tasks at once.

It runs in another process, because it needs another Spark master: `python large_job.py URL ROWS
STREAM=DELIVERY ...`, one write after the other.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession, functions as F  # noqa: N812

TASKS = 8
DATA_BYTES = 1_000_000


def main(url: str, rows: str, *writes: str) -> None:
    spark = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "8")
        .getOrCreate()
    )
    number = F.col("id").cast("string")
    for write in writes:
        stream, _, delivery = write.partition("=")
        frame = spark.range(0, int(rows), 1, TASKS).select(
            F.lit(f"{stream}.large").alias("subject"),
            F.rpad(F.concat(number, F.lit(" ")), DATA_BYTES, "x").alias("data"),
            number.alias("msg_id"),
        )
        if delivery == "at-least-once":
            frame = frame.drop("msg_id")
        writer = frame.write.format("jetstream").option("nats.servers", url)
        writer.options(stream=stream, delivery=delivery).mode("append").save()


if __name__ == "__main__":
    main(*sys.argv[1:])
