"""Read and write messages of three sizes, with one core and with two.

Each figure with one core has all processes on the same core: Spark, its workers, the server
and this program.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from .place import allowed_cores, interleaved, run_on
from .reading import columns, drop, frame
from .writing import filling, ingest, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import jsync

    from .place import Place, Taken

ROUNDS = 3
DIVISORS = {128: 1, 1024: 4, 16_384: 32}
"""By how much the number of messages is divided, for each size in bytes."""
OF_COLUMNS, OF_INGEST, EXACTLY_ONCE, TWO_CORES, CPU_OF_COLUMNS = 0.9, 0.9, 0.65, 1.7, 2


@dataclass
class Case:
    """The messages of one size."""

    size: int
    count: int
    stream: jsync.Stream
    files: str

    def __str__(self) -> str:
        return f"{self.size} B" if self.size < 1024 else f"{self.size >> 10} KiB"


def measure(place: Place, count: int) -> None:
    """Measure with `count` messages of the smallest size, and with fewer of the others."""
    for size, divisor in DIVISORS.items():
        with _case(place, size, max(count // divisor, 1)) as case:
            taken = {cores: _measure(place, case, cores) for cores in (1, 2)}
        _compare(place, case, taken)


@contextmanager
def _case(place: Place, size: int, count: int) -> Iterator[Case]:
    stream = place.filled(f"SIZE{size}", count, size)
    stream.info()
    with tempfile.TemporaryDirectory() as folder:
        files = str(Path(folder, "parquet"))
        frame(place, stream, minPartitions=2).write.parquet(files)
        yield Case(size, count, stream, files)
    stream.delete()


def _measure(place: Place, case: Case, cores: int) -> dict[str, Taken]:
    read = frame(place, case.stream, minPartitions=cores, maxPartitions=cores)
    rows = place.spark.range(0, case.count, 1, cores).selectExpr(
        f"repeat('a', {case.size}) data", "concat('n', id) msg_id"
    )
    plain = rows.drop("msg_id")
    table = pa.table({"data": [b"a" * case.size] * case.count})
    once = {"delivery": "exactly-once"}

    def into(job: Callable[[str], object]) -> Callable[[], None]:
        return filling(place, case.count, job)

    jobs: dict[str, Callable[[], object]] = {
        "read, columns": lambda: columns(case.stream),
        "read, spark": lambda: drop(read),
        "read, Parquet files": lambda: drop(place.spark.read.parquet(case.files)),
        "write, fast ingest": into(lambda name: ingest(place, table, name)),
        "write, spark": into(lambda name: write(place, plain, name)),
        "write, exactly-once": into(lambda name: write(place, rows, name, **once)),
    }
    with run_on(allowed_cores()[:cores]):
        for job in jobs.values():
            job()  # warm up
        taken = interleaved(ROUNDS, jobs)
    for name, one in taken.items():
        place.report(f"{case}, cores: {cores}, {name}", one.rate(case.count))
    return taken


def _compare(place: Place, case: Case, taken: dict[int, dict[str, Taken]]) -> None:
    both = taken[2]
    for name, base, bar in (
        ("read, spark", "read, columns", OF_COLUMNS),
        ("write, spark", "write, fast ingest", OF_INGEST),
        ("write, exactly-once", "write, fast ingest", EXACTLY_ONCE),
    ):
        ratio = both[base].seconds / both[name].seconds
        what = f"{case}: {name} / {base}"
        place.report(what, f"{ratio:.2f}", f">= {bar}", ratio >= bar)
    for name in ("read, spark", "write, spark"):
        ratio = taken[1][name].seconds / both[name].seconds
        what = f"{case}: {name}, two cores / one"
        place.report(what, f"{ratio:.2f}", f">= {TWO_CORES}", ratio >= TWO_CORES)
    ratio = both["read, spark"].cpu / both["read, columns"].cpu
    what, figure = f"{case}: CPU of read, spark / read, columns", f"{ratio:.2f}"
    if case.size == max(DIVISORS):
        place.report(what, figure, f"<= {CPU_OF_COLUMNS}", ratio <= CPU_OF_COLUMNS)
    else:
        place.report(what, figure)
