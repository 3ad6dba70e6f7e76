"""Read, group and write back rows at three sizes: `python -m benchmarks.spark.scale`.

The marginal rate is the rate of the rows that one size has more than the size before. The
benchmark also reports it per CPU second of Spark, its Python workers and the server, because
other programs on the machine affect CPU time less.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .place import Place, cpu_seconds, workers_peak

if TYPE_CHECKING:
    import jsync

MINUTES = 20
"""The maximum for the whole benchmark, in minutes."""
WITHIN = 0.1
"""The allowed difference between the marginal rates of the largest size and the one before."""
SIZES = (1_000_000, 3_000_000, 10_000_000)
KEYS_PER_ROW = 10
"""The number of rows in a group. One row per group is written back."""
CHUNK = 10_000


@dataclass
class Run:
    """The figures of one size."""

    rows: int
    seconds: float
    cpu: float
    worker_bytes: int


def numbered(place: Place, rows: int) -> jsync.Stream:
    """Return a stream of `rows` messages. The payload of each is the key of its group."""
    js = place.nc.jetstream()
    name = f"ROWS{rows}"
    stream = js.create_stream(name=name, subjects=[f"{name}.>"], allow_batched=True)
    keys = rows // KEYS_PER_ROW
    with js.fast_ingest() as ingest:
        for start in range(0, rows, CHUNK):
            stop = min(rows, start + CHUNK)
            ingest.add_many(
                f"{name}.a", [b"key %d" % (n % keys) for n in range(start, stop)]
            )
    return stream


def group(place: Place, source: jsync.Stream, target: jsync.Stream) -> None:
    """Count the rows of each key, and write the counts back exactly once."""
    options = {"nats.servers": place.server.url}
    read = place.spark.read.format("jetstream").options(**options, stream=source.name)
    counts = (
        read.load().selectExpr("cast(data as string) key").groupBy("key").count()
    ).selectExpr("key msg_id", "to_json(struct(key, count)) data")
    write = counts.write.format("jetstream").options(**options, stream=target.name)
    write = write.options(delivery="exactly-once", subject=f"{target.name}.a")
    write.mode("append").save()


def measured(place: Place, rows: int) -> Run:
    js = place.nc.jetstream()
    source = numbered(place, rows)
    target = js.create_stream(
        name=f"GROUPS{rows}", subjects=[f"GROUPS{rows}.>"], duplicate_window=3600
    )
    cpu, begun = cpu_seconds(), time.perf_counter()
    group(place, source, target)
    run = Run(rows, time.perf_counter() - begun, cpu_seconds() - cpu, workers_peak())
    written = target.info().state.messages
    assert written == rows // KEYS_PER_ROW, (written, rows)
    source.delete()
    target.delete()
    return run


def main(*sizes: int) -> None:
    begun = time.perf_counter()
    with Place() as place:
        measured(place, 100_000)  # warm up
        runs = [measured(place, rows) for rows in sorted(sizes or SIZES)]
    print("| rows | s | CPU s | marginal rows/s | marginal rows a CPU s | worker MiB |")
    print("|---|---|---|---|---|---|")
    before = Run(0, 0.0, 0.0, 0)
    by_cpu = []
    for run in runs:
        rows, seconds = run.rows - before.rows, run.seconds - before.seconds
        by_cpu.append(rows / max(run.cpu - before.cpu, 0.01))
        print(
            f"| {run.rows:,} | {run.seconds:.1f} | {run.cpu:.1f} | {rows / seconds:,.0f} "
            f"| {by_cpu[-1]:,.0f} | {run.worker_bytes >> 20} |"
        )
        before = run
    minutes = (time.perf_counter() - begun) / 60
    print("\n| | | bar | met |\n|---|---|---|---|")
    print(
        f"| all sizes | {minutes:.1f} min | <= {MINUTES} min | {met(minutes <= MINUTES)} |"
    )
    if len(runs) > 1:
        ratio, peaks = by_cpu[-1] / by_cpu[-2], [run.worker_bytes for run in runs]
        print(
            f"| marginal rows a CPU s, largest size / the one before | {ratio:.2f} "
            f"| >= {1 - WITHIN} | {met(ratio >= 1 - WITHIN)} |"
        )
        print(
            f"| a worker's memory, largest size / smallest | {peaks[-1] / peaks[0]:.2f} "
            f"| <= {1 + WITHIN} | {met(peaks[-1] <= peaks[0] * (1 + WITHIN))} |"
        )


def met(good: bool) -> str:
    """Say whether a bar was reached."""
    return "yes" if good else "no"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
