"""Read a stream of flights into bronze, silver and gold tables, and write two other streams.

FLIGHTS -> bronze -> silver -> days      a table in Parquet
                  |         -> DELAYS    a stream, exactly once
                  -> DEAD                a stream, exactly once
"""

from __future__ import annotations

import os
from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions as fn

spark = SparkSession.active()
SERVERS = os.environ["NATS_URL"]
SCHEMA = """
time_hour timestamp, carrier string, flight int, origin string, dest string,
dep_delay int, arr_delay int
"""


def to_stream(name: str, **options: Any) -> None:
    given = {"stream": name, "delivery": "exactly-once", **options}
    dp.create_sink(name.lower(), "jetstream", {"nats.servers": SERVERS, **given})


@dp.table
def bronze() -> DataFrame:
    """Return the raw messages. No other table reads the stream."""
    return (
        spark.readStream.format("jetstream")
        .option("nats.servers", SERVERS)
        .options(stream="FLIGHTS", startingOffsets="earliest")
        .load()
    )


def parsed() -> DataFrame:
    # `select` waits for bronze. In Spark 4.3.0 `withColumn` reads it too early.
    return spark.readStream.table("bronze").select(
        "subject",
        "sequence",
        "data",
        fn.from_json(fn.col("data").cast("string"), SCHEMA).alias("flight"),
    )


@dp.table
def silver() -> DataFrame:
    """Return one row for each message that is a flight."""
    flights = parsed().where("flight.carrier is not null")
    return flights.select(
        "sequence", "flight.*", fn.to_date("flight.time_hour").alias("date")
    )


to_stream("DEAD", subject="dead.flights")


@dp.append_flow(target="dead")
def malformed() -> DataFrame:
    """Return the messages that are not flights. `jsync dead` lists them."""
    return (
        parsed()
        .where("flight.carrier is null")
        .selectExpr(
            "data",
            "concat('FLIGHTS/', sequence) as msg_id",
            "map('Dead-Letter-Reason', 'not a flight', 'Dead-Letter-Subject', subject,"
            " 'Dead-Letter-Sequence', cast(sequence as string)) as headers",
        )
    )


@dp.materialized_view
def days() -> DataFrame:
    """Return the figures of each day, computed again from all flights in each run."""
    flights = spark.read.table("silver")
    return flights.groupBy("date").agg(
        fn.count("*").alias("flights"),
        fn.count_if(fn.col("dep_delay").isNull()).alias("cancelled"),
        fn.round(fn.avg("dep_delay"), 1).alias("mean_delay"),
    )


to_stream("DELAYS")


@dp.append_flow(target="delays")
def hours() -> DataFrame:
    """Return the delays of each carrier and hour, once its last flights are in."""
    # This is SQL because `withWatermark` needs an existing table, and `silver` does not exist
    # yet.
    return spark.sql(
        """
        with hours as (
          select carrier, window.start as hour, count(*) as flights,
            round(avg(dep_delay), 1) as mean, max(dep_delay) as worst
          from stream(silver) watermark time_hour delay of interval 1 day
          group by carrier, window(time_hour, '1 hour')
        )
        select
          concat('delays.', carrier) as subject,
          concat_ws('/', carrier, hour) as msg_id,
          to_json(struct(*)) as data
        from hours
        """
    )
