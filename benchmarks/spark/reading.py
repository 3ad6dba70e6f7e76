"""Read into the sink of Spark that discards rows, and compare with jsync on the same stream."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

from .place import SIZE, interleaved, timed, workers_peak
from .plain import PlainDataSource
from .small import small_streams

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    import jsync

    from .place import Place

ROUNDS = 5
MICRO_BATCHES = 20


def columns(stream: jsync.Stream) -> None:
    """Read columns with jsync itself, in one thread."""
    last = stream.cached_info.state.last_seq
    assert sum(len(batch) for batch in stream.read_arrow()) >= last


def consume(stream: jsync.Stream, count: int) -> None:
    """Read objects with jsync itself, in one thread."""
    reader = stream.create_consumer(ack_policy="none", mem_storage=True)
    with reader.messages(max_messages=5000, stop_after=count) as messages:
        assert sum(1 for _ in messages) == count


def frame(place: Place, stream: jsync.Stream, **options: object) -> DataFrame:
    return (
        place.spark.read.format("jetstream")
        .option("nats.servers", place.server.url)
        .option("stream", stream.name)
        .options(**{name: str(value) for name, value in options.items()})
        .load()
    )


def drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def own_rows(place: Place, count: int) -> DataFrame:
    """Return the same columns made by Spark itself: the upper limit for any source."""
    return place.spark.range(0, count, 1, 1).selectExpr(
        "'READ' stream",
        "'READ.a' subject",
        "id sequence",
        "timestamp_micros(id) timestamp",
        f"cast('{'a' * SIZE}' as binary) data",
    )


def measure(place: Place, count: int, more: int) -> None:
    """Measure with `count` messages, then with `more`."""
    stream = place.filled("READ", count)
    stream.info()
    place.spark.dataSource.register(PlainDataSource)
    plain = (
        place.spark.read.format("plain")
        .option("servers", place.server.url)
        .option("stream", stream.name)
        .option("count", str(count // 10))
        .load()
    )
    jobs: dict[str, Callable[[], object]] = {
        "columns": lambda: columns(stream),
        "consume": lambda: consume(stream, count),
        "spark": lambda: drop(frame(place, stream)),
        "spark in 2": lambda: drop(frame(place, stream, minPartitions=2)),
        "plain": lambda: drop(plain),
        "Spark's own rows": lambda: drop(own_rows(place, count)),
    }
    for job in jobs.values():
        job()  # warm up
    taken = interleaved(ROUNDS, jobs)
    counts = dict.fromkeys(jobs, count) | {"plain": count // 10}
    rates = {name: counts[name] / one.seconds for name, one in taken.items()}
    for name, one in taken.items():
        place.report(f"read, {name}", one.rate(counts[name]))
    for own in ("columns", "consume"):
        ratio = rates["spark"] / rates[own]
        bar = {"columns": 0.9, "consume": 0.8}[own]
        place.report(
            f"Spark / jsync's {own}", f"{ratio:.2f}", f">= {bar}", ratio >= bar
        )
    ratio = rates["spark"] / rates["plain"]
    place.report("Spark / rows by nats-py", f"{ratio:.1f}", ">= 8", ratio >= 8)
    ratio = rates["spark"] / rates["Spark's own rows"]
    place.report("Spark / Spark's own rows, the ceiling", f"{ratio:.2f}")
    memory = workers_peak()
    micro_batches(place, stream)
    small_streams(place)
    if more > count:
        growth(place, taken["spark"].seconds, count, more, memory)


def growth(place: Place, seconds: float, count: int, more: int, memory: int) -> None:
    """Measure the rate and the memory with more messages to read."""
    stream = place.filled("LARGE", more)
    longer = median(timed(lambda: drop(frame(place, stream))) for _ in range(3))
    rate, marginal = count / seconds, (more - count) / (longer - seconds)
    place.report(
        f"marginal rate from {count:,} to {more:,}",
        f"{marginal / 1000:,.0f} thousand/s, {marginal / rate:.2f} of the rate of the first",
        ">= 0.9",
        marginal >= 0.9 * rate,
    )
    peak = workers_peak()
    place.report(
        f"a worker's memory after {count:,} and {more:,}",
        f"{memory >> 20} and {peak >> 20} MiB",
        "flat",
        peak < memory * 1.2,
    )


def micro_batches(place: Place, stream: jsync.Stream) -> None:
    """Measure the time from a published message to the end of its batch, warmed up."""
    js = place.nc.jetstream()
    query = (
        place.spark.readStream.format("jetstream")
        .option("nats.servers", place.server.url)
        .option("stream", stream.name)
        .load()
        .writeStream.format("noop")
        .start()
    )
    taken = []
    try:
        for _ in range(MICRO_BATCHES):
            while "Waiting for data" not in query.status["message"]:
                time.sleep(0.01)
            before = batches_of(query)
            js.publish(f"{stream.name}.a", b"one")
            while batches_of(query) == before:
                time.sleep(0.01)
            progress: Any = query.lastProgress
            taken.append(progress["durationMs"]["triggerExecution"] / 1000)
    finally:
        query.stop()
    warm = median(taken[len(taken) // 2 :])
    place.report(
        "a micro-batch of one message", f"{warm:.2f} s", "<= 0.4 s", warm <= 0.4
    )


def batches_of(query: Any) -> int:
    """Return the number of batches that had a row."""
    return sum(1 for progress in query.recentProgress if progress["numInputRows"])
