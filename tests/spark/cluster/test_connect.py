"""Tests of Spark Connect, where the driver is a server and the user has a thin client."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ..connect_server import connect_server

if TYPE_CHECKING:
    from pathlib import Path

    import jsync
    from jsync.server import LocalServer

pytestmark = pytest.mark.fault

CLIENT = """
import sys
from pyspark.sql import SparkSession, functions as F
from jsync.spark import register

server, source, target, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.driver.memory", "1g")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
register(spark)
options = {"nats.servers": server, "stream": source}
read = spark.read.format("jetstream").options(**options).load()
print("read", read.count(), read.agg(F.max("sequence")).first()[0])

options = {"nats.servers": server, "stream": target, "subject": target + ".batch"}
rows = read.select("data")
rows.write.format("jetstream").options(**options).mode("append").save()

streamed = (
    spark.readStream.format("jetstream")
    .options(**{"nats.servers": server, "stream": source, "startingOffsets": "earliest"})
    .load()
    .select("data")
)
query = (
    streamed.writeStream.format("jetstream")
    .options(**{**options, "subject": target + ".stream"})
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
assert query.awaitTermination(120)
spark.stop()
"""


def test_the_basic_ways_work_through_spark_connect(
    environment: dict[str, str],
    server: LocalServer,
    js: jsync.JetStream,
    unique: str,
    tmp_path: Path,
) -> None:
    source = js.create_stream(name=f"{unique}S", subjects=[f"{unique}S.>"])
    target = js.create_stream(name=f"{unique}T", subjects=[f"{unique}T.>"])
    with js.publisher() as publisher:
        publisher.publish_many(f"{source.name}.n", [b"%d" % n for n in range(1000)])
    with connect_server(tmp_path, environment) as environment:
        done = subprocess.run(
            [
                *(sys.executable, "-W", "ignore", "-c", CLIENT),
                *(server.url, source.name, target.name, str(tmp_path / "checkpoint")),
            ],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "read 1000 1000" in done.stdout
    table = pa.table(target.read_arrow(columns=["subject", "data"]))
    for way in ("batch", "stream"):
        found = [
            int(row["data"])
            for row in table.to_pylist()
            if row["subject"] == f"{target.name}.{way}"
        ]
        assert sorted(found) == list(range(1000))
