"""A DataFrame into a stream, beside jsync's own fast ingest: `python -m benchmarks.spark_sink`.

Both write the same million rows of 128 bytes into streams in memory, in turns, in one run;
Spark with two tasks, started and warm. The rows are cached before, so that what is
measured is the way from Spark's columns into the stream.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import jsync
from jsync.server import LocalServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

SIZE = 128
ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    spark = session()
    data = "a" * SIZE
    frame = spark.range(0, given.rows, 1, 2).selectExpr(
        f"'{data}' data", "concat('n', id) msg_id"
    )
    frame.cache().count()
    table = pa.table({"data": [data.encode()] * given.rows})
    with LocalServer() as server:
        ways: dict[str, Callable[[str], object]] = {
            "jsync, fast ingest of columns": lambda name: ingest(server, name, table),
            "Spark, publisher=ingest": lambda name: write(
                frame.drop("msg_id"), server, name, publisher="ingest"
            ),
            "Spark, publisher=async": lambda name: write(
                frame.drop("msg_id"), server, name, publisher="async"
            ),
            "Spark, exactly-once": lambda name: write(
                frame, server, name, delivery="exactly-once"
            ),
        }
        write(frame.limit(1000).drop("msg_id"), server, make(server, "WARM"))
        rates: dict[str, list[float]] = {title: [] for title in ways}
        for turn in range(given.rounds):
            for at, (title, way) in enumerate(ways.items()):
                name = make(server, f"S{turn}_{at}")
                begun = time.perf_counter()
                way(name)
                rates[title].append(given.rows / (time.perf_counter() - begun))
                check(server, name, given.rows)
    first = statistics.median(next(iter(rates.values())))
    for title, found in rates.items():
        rate = statistics.median(found)
        print(f"{title:32} {rate / 1000:6.0f} thousand rows/s  {rate / first:.2f}")
    spark.stop()


def session() -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    if "JAVA_HOME" not in os.environ:
        found = subprocess.check_output([str(ROOT / "scripts/need-java")])
        os.environ["JAVA_HOME"] = found.decode().strip()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def make(server: LocalServer, name: str) -> str:
    with jsync.connect(server.url) as nc:
        nc.jetstream().create_stream(
            name=name, subjects=[f"{name}.>"], storage="memory", allow_batched=True
        )
    return name


def check(server: LocalServer, name: str, rows: int) -> None:
    with jsync.connect(server.url) as nc:
        stream = nc.jetstream().stream(name)
        assert stream.cached_info.state.messages == rows
        stream.delete()


def ingest(server: LocalServer, name: str, table: pa.Table) -> None:
    with jsync.connect(server.url) as nc, nc.jetstream().fast_ingest() as into:
        into.publish_arrow(table, subject=f"{name}.x", data="data")


def write(frame: DataFrame, server: LocalServer, name: str, **options: str) -> None:
    writer = frame.write.format("jetstream").option("nats.servers", server.url)
    given = {"stream": name, "subject": f"{name}.x", **options}
    writer.options(**given).mode("append").save()


if __name__ == "__main__":
    main()
