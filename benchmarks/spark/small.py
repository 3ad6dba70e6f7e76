"""Measure a micro-batch of many small streams:

`python -m benchmarks.spark.small`, one minute.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from .place import Place, cpu_seconds

SMALL_STREAMS = 200
SMALL_ROWS = 10


def small_streams(place: Place) -> None:
    """Measure a micro-batch of many streams with few messages each, warmed up."""
    js = place.nc.jetstream()
    names = [f"SMALL{number}" for number in range(SMALL_STREAMS)]
    for name in names:
        js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    query = (
        place.spark.readStream.format("jetstream")
        .option("nats.servers", place.server.url)
        .option("stream", ",".join(names))
        .load()
        .writeStream.format("noop")
        .trigger(processingTime="1 second")
        .start()
    )
    cpu: list[float] = []
    try:
        while "Waiting" not in query.status["message"]:
            time.sleep(0.1)
        for _ in range(6):
            used = cpu_seconds()
            with js.publisher() as publisher:
                for name in names:
                    publisher.publish_many(f"{name}.a", [b"one"] * SMALL_ROWS)
            # Asking for the progress in between would use much of a core.
            query.processAllAvailable()
            cpu.append(cpu_seconds() - used)
        progress: list[Any] = list(query.recentProgress)
    finally:
        query.stop()
    taken = [
        one["durationMs"]["triggerExecution"] / 1000
        for one in progress
        if one["numInputRows"] == SMALL_STREAMS * SMALL_ROWS
    ]
    warm, warm_cpu = median(taken[1:] or taken), median(cpu[1:])
    what = f"a micro-batch of {SMALL_STREAMS} streams with {SMALL_ROWS} messages each"
    figure = f"{warm:.2f} s, {warm_cpu:.2f} s of CPU in all processes"
    place.report(what, figure, "<= 2 s", warm <= 2)


if __name__ == "__main__":
    with Place() as place:
        small_streams(place)
