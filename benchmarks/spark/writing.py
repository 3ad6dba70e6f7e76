"""Write a DataFrame into a stream, and compare with fast ingest of the same rows by jsync."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .place import SIZE, interleaved

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from .place import Place

ROUNDS = 3
LONGER = 3
_numbers = itertools.count()


def measure(place: Place, count: int) -> None:
    """Measure `count` rows, which Spark caches in memory before, and a longer write.

    The cost of starting a job is a smaller share of the longer one.
    """
    rows = place.spark.range(0, count, 1, 2).selectExpr(
        f"'{'a' * SIZE}' data", "concat('n', id) msg_id"
    )
    rows.cache().count()
    ids = [f"n{number}" for number in range(count)]
    table = pa.table({"data": [b"a" * SIZE] * count, "msg_id": ids})
    plain = rows.drop("msg_id")
    more = LONGER * count
    many = place.spark.range(0, more, 1, 2).selectExpr(f"'{'a' * SIZE}' data").cache()
    many.count()
    many_table = pa.concat_tables([table] * LONGER)

    def into(job: Callable[[str], object], count: int = count) -> Callable[[], None]:
        return filling(place, count, job)

    def own_with_ids(name: str) -> None:
        with place.nc.jetstream().fast_ingest() as publisher:
            publisher.publish_arrow(
                table, subject=f"{name}.a", data="data", msg_id="msg_id"
            )

    jobs = {
        "jsync's fast ingest": into(lambda name: ingest(place, table, name)),
        "jsync's, with ids": into(own_with_ids),
        "spark": into(lambda name: write(place, plain, name)),
        "spark, async": into(lambda name: write(place, plain, name, publisher="async")),
        "spark, exactly-once": into(
            lambda name: write(place, rows, name, delivery="exactly-once")
        ),
    }
    longer_jobs = {
        "jsync's fast ingest": into(lambda name: ingest(place, many_table, name), more),
        "spark": into(lambda name: write(place, many, name), more),
    }
    for job in jobs.values():
        job()  # warm up
    taken = interleaved(ROUNDS, jobs)
    rates = {name: count / one.seconds for name, one in taken.items()}
    for name, one in taken.items():
        place.report(f"write, {name}", one.rate(count))
    longer = interleaved(ROUNDS, longer_jobs)
    for name, one in longer.items():
        place.report(f"write {more:,}, {name}", one.rate(more))
    for name, bar in (("spark", 0.9), ("spark, exactly-once", 0.65)):
        ratio = rates[name] / rates["jsync's fast ingest"]
        what = f"{name} / jsync's fast ingest"
        place.report(what, f"{ratio:.2f}", f">= {bar}", ratio >= bar)
    ratio = longer["jsync's fast ingest"].seconds / longer["spark"].seconds
    what = f"the same with {more:,}, without ids"
    place.report(what, f"{ratio:.2f}", ">= 0.9", ratio >= 0.9)
    # This ratio is the cost of message ids for the server, with any publisher.
    ratio = rates["jsync's, with ids"] / rates["jsync's fast ingest"]
    place.report("fast ingest with ids / without", f"{ratio:.2f}")
    rows.unpersist()
    many.unpersist()


def filling(
    place: Place, count: int, job: Callable[[str], object]
) -> Callable[[], None]:
    """Run a job with a new stream, which the job fills with `count` messages."""

    def run() -> None:
        js = place.nc.jetstream()
        name = f"WRITE{next(_numbers)}"
        subjects = [f"{name}.>"]
        stream = js.create_stream(name=name, subjects=subjects, allow_batched=True)
        job(name)
        assert stream.info().state.messages == count
        stream.delete()

    return run


def ingest(place: Place, table: pa.Table, name: str) -> None:
    """Write the payloads of a table with jsync itself."""
    with place.nc.jetstream().fast_ingest() as publisher:
        plain = table.select(["data"])
        publisher.publish_arrow(plain, subject=f"{name}.a", data="data")


def write(place: Place, frame: DataFrame, name: str, **options: Any) -> None:
    given = {
        "nats.servers": place.server.url,
        "stream": name,
        "subject": f"{name}.a",
        **options,
    }
    frame.write.format("jetstream").options(**given).mode("append").save()
