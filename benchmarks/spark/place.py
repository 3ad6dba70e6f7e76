"""One server, one Spark of two threads, and the measuring tools."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import jsync
from jsync.server import LocalServer

from ..place import machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

ROOT = Path(__file__).parent.parent.parent
SIZE = 128
CHUNK = 16 << 20
"""The most bytes that are added to a stream at a time."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Row:
    """A line of the table."""

    what: str
    figure: str
    bar: str = ""
    met: bool | None = None


@dataclass
class Place:
    """The server and the Spark session of all benchmarks, for the time of a `with` block."""

    server: LocalServer = field(default_factory=LocalServer)
    rows: list[Row] = field(default_factory=list)
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    on_report: Callable[[], object] = field(default=lambda: None)
    """Called after each row."""

    def __enter__(self) -> Self:
        need_java = str(ROOT / "scripts" / "need-java")
        found = subprocess.run([need_java], check=True, stdout=subprocess.PIPE)
        os.environ.update(
            JAVA_HOME=found.stdout.decode().strip(),
            PYSPARK_PYTHON=sys.executable,
            PYTHONPATH=str(ROOT),
            SPARK_LOCAL_IP="127.0.0.1",
        )
        with ExitStack() as stack:
            stack.enter_context(self.server)
            self.nc = stack.enter_context(jsync.connect(self.server.url))
            self.spark = session()
            stack.callback(stop, self.spark)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def facts(self) -> dict[str, str]:
        """Return the software, the hardware, the time and the load."""
        return {**machine(self.server.url, self.load), "pyspark": self.spark.version}

    def filled(self, name: str, count: int, size: int = SIZE) -> jsync.Stream:
        """Return a stream in files, with `count` messages of `size` bytes."""
        js = self.nc.jetstream()
        stream = js.create_stream(
            name=name, subjects=[f"{name}.>"], allow_batched=True, allow_direct=True
        )
        chunk = min(10_000, CHUNK // size)
        with js.fast_ingest() as ingest:
            for start in range(0, count, chunk):
                payloads = [bytes(size)] * min(chunk, count - start)
                ingest.add_many(f"{name}.a", payloads)
        return stream

    def report(
        self, what: str, figure: str, bar: str = "", met: bool | None = None
    ) -> None:
        self.rows.append(Row(what, figure, bar, met))
        print(f"{what}: {figure}  {bar}", flush=True)
        self.on_report()


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("jsync's benchmarks")
    for name, value in {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def stop(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()


def timed(job: Callable[[], object]) -> float:
    begun = time.perf_counter()
    job()
    return time.perf_counter() - begun


@dataclass
class Taken:
    """The medians of one job."""

    seconds: float
    cpu: float
    """The CPU time of all processes, which other programs affect less."""

    def rate(self, count: int) -> str:
        per_million = self.cpu / count * 1_000_000
        return (
            f"{count / self.seconds / 1000:,.0f} thousand/s, "
            f"{per_million:.2f} CPU s a million"
        )


def interleaved(
    rounds: int, jobs: Mapping[str, Callable[[], object]]
) -> dict[str, Taken]:
    """Return the medians of each job.

    The jobs take turns, so none gets all the quiet time.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    cpu: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            before = cpu_seconds()
            seconds[name].append(timed(job))
            cpu[name].append(cpu_seconds() - before)
    return {name: Taken(median(seconds[name]), median(cpu[name])) for name in jobs}


def workers_peak() -> int:
    """Return the peak resident memory of the Python workers of Spark, in bytes."""
    peak = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            command = (status.parent / "cmdline").read_bytes()
            if b"pyspark.daemon" in command and is_ours(int(status.parent.name)):
                lines = status.read_text().splitlines()
                high = next(line for line in lines if line.startswith("VmHWM"))
                peak = max(peak, int(high.split()[1]) * 1024)
        except (OSError, StopIteration):
            continue
    return peak


def allowed_cores() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


@contextmanager
def run_on(cores: Sequence[int]) -> Iterator[None]:
    """Keep this process and its descendants on these cores."""
    before = allowed_cores()
    _pin(cores)
    try:
        yield
    finally:
        _pin(before)


def _pin(cores: Sequence[int]) -> None:
    """Move every thread of all processes. Later threads inherit the cores."""
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        with suppress(OSError):  # it may have just ended
            if is_ours(int(task.parent.parent.name)):
                os.sched_setaffinity(int(task.name), cores)


def is_ours(pid: int) -> bool:
    """Return whether the process is a descendant of this one."""
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def cpu_seconds() -> float:
    """Return the CPU seconds of all descendants of this process, running or ended."""
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if is_ours(int(stat.parent.name)):
                fields = stat.read_text().rpartition(")")[2].split()
                found += sum(map(int, fields[11:15]))
        except OSError:
            continue  # the process has just ended
    return found / TICKS
