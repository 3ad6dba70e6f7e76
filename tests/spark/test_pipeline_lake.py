"""Tests of pipelines into tables of Delta and Iceberg, whose processes are killed.

A driver, an executor or one of its Python workers is killed at a random moment, while two
writers publish. Each test runs on the newest Spark for which Maven Central has the package of
its tables. `make sparks` fetches those. `JSYNC_SPARK_KILLS` sets the number of kills.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jsync

from ..support.campaign import seeded
from .campaign import KILLS
from .support import LONG

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from jsync.server import LocalServer

pytestmark = [pytest.mark.sparks, pytest.mark.usefixtures("spark_environment")]

CACHE = Path(__file__).parent.parent.parent / ".cache"
KEYS = 37
EARLY = 0.25
"""The share of kills that do not wait for a commit."""
LAST = 5
"""Every fifth message deletes its key."""

log = logging.getLogger(__name__)

STREAMING = """
[streaming]
checkpoint = "{out}/checkpoint"
trigger = "{trigger}"

[sources.messages]
format = "jetstream"
options = {{ stream = "{stream}", "nats.servers" = "{url}", startingOffsets = "earliest", \
maxOffsetsPerTrigger = {limit} }}
columns = ["sequence"]
json = "key int, number int, gone boolean"

[sinks.appended]
format = "{format}"
from = "messages"
{appended}

[sinks.merged]
format = "{format}"
from = "messages"
merge_on = ["key"]
sequence_by = "sequence"
delete_when = "gone"
{merged}
"""
VERIFYING = """
[sources.appended]
format = "{format}"
{appended}

[sources.merged]
format = "{format}"
{merged}

[sinks.appended]
format = "parquet"
from = "appended"
path = "{out}/appended.parquet"

[sinks.merged]
format = "parquet"
from = "merged"
path = "{out}/merged.parquet"
"""


@dataclass
class Lake:
    """A pipeline into two tables, and the messages that are published for it."""

    url: str
    stream: jsync.Stream
    out: Path
    values: dict[str, str]
    conf: dict[str, str]
    commits: str
    """A pattern for the files of a table that appear with each commit."""
    runs: int = 0
    pipeline: subprocess.Popen[bytes] | None = None

    @contextmanager
    def writing(self, writers: int) -> Iterator[None]:
        """Publish from several threads until the block ends."""
        over = threading.Event()

        def write(number: int) -> None:
            with jsync.connect(self.url) as nc, nc.jetstream().publisher() as publisher:
                while not over.wait(0.1):
                    for _ in range(5):
                        gone = "true" if number % LAST == 0 else "false"
                        row = f'{{"key": {number % KEYS}, "number": {number}, "gone": {gone}}}'
                        publisher.publish(f"{self.stream.name}.a", row.encode())
                        number += 1

        with ThreadPoolExecutor(writers) as threads:
            started = [threads.submit(write, each * 10**6) for each in range(writers)]
            try:
                yield
            finally:
                over.set()
        for each in started:
            each.result()

    def start(self, text: str, **values: str) -> subprocess.Popen[bytes]:
        file = self.out / "lake.toml"
        file.write_text(text.format(**self.values, **values))
        command = [sys.executable, "-m", "jsync.spark.pipeline", "run", str(file)]
        for name, value in self.conf.items():
            command += ["--conf", f"{name}={value}"]
        self.runs += 1
        with (self.out / f"run-{self.runs}.log").open("wb") as log:
            self.pipeline = subprocess.Popen(
                [*command, "--master", "local-cluster[1,2,1024]", "--quiet"],
                stdout=log,
                stderr=log,
            )
        return self.pipeline

    def run(self, text: str, **values: str) -> None:
        process = self.start(text, **values)
        try:
            code = process.wait(3 * LONG)
        finally:
            self.kill_driver()
        assert code == 0, (self.out / f"run-{self.runs}.log").read_text()[-3000:]

    def kill(self, rng: random.Random) -> str:
        """Kill a process of the pipeline at a random moment, and return which one.

        The pipeline is started if it does not run. Most kills come after a commit, and the
        others at any moment of a start.
        """
        # A pipeline waits up to 15 minutes for Python workers that start too slowly.
        before, deadline = self.committed(), time.monotonic() + 3 * LONG
        self._start_if_ended()
        if rng.random() < EARLY:
            self._sleep(rng.uniform(0, 20))
        else:
            while self.committed() == before:
                assert time.monotonic() < deadline, "the pipeline commits nothing"
                self._sleep(0.1)
                self._start_if_ended()
        self._sleep(rng.uniform(0, 4))
        victim = rng.choice(("driver", "executor", "worker"))
        processes = {
            "driver": list,
            "executor": self._executors,
            "worker": self._workers,
        }
        found = processes[victim]()
        if not found:
            self.kill_driver()
            return "driver"
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(found), signal.SIGKILL)
        return victim

    def _start_if_ended(self) -> None:
        """Start the pipeline, also after a kill that has ended it."""
        if self.pipeline is None or self.pipeline.poll() is not None:
            self.start(STREAMING, trigger="1 second", limit="500")

    def _sleep(self, seconds: float) -> None:
        """Wait, but not longer than the pipeline runs."""
        assert self.pipeline is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.pipeline.wait(seconds)

    def _executors(self) -> list[int]:
        found = descendants(self._pid)
        return [pid for pid in found if b"CoarseGrainedExecutorBackend" in command(pid)]

    def _workers(self) -> list[int]:
        """Return the Python processes of the executors."""
        return [pid for one in self._executors() for pid in descendants(one)]

    @property
    def _pid(self) -> int:
        assert self.pipeline is not None
        return self.pipeline.pid

    def kill_driver(self) -> None:
        """Kill the driver, its JVM and its executors, if they run."""
        if self.pipeline is None or self.pipeline.poll() is not None:
            return
        for pid in descendants(self._pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.pipeline.kill()
        self.pipeline.wait()

    def committed(self) -> int:
        return sum(1 for _ in self.out.glob(self.commits))

    def published(self) -> dict[int, dict[str, Any]]:
        """Return the rows that the stream has, by sequence."""
        found = pa.table(self.stream.read_arrow(columns=["sequence", "data"]))
        return {
            sequence: json.loads(data)
            for sequence, data in zip(
                *(found[name].to_pylist() for name in found.column_names), strict=True
            )
        }

    def rows(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pq.read_table(
            self.out / f"{name}.parquet"
        ).to_pylist()
        return found


def descendants(pid: int) -> list[int]:
    """Return the processes below a process, the nearest first."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found + [below for child in found for below in descendants(child)]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it has ended


@pytest.fixture
def lake(
    request: pytest.FixtureRequest,
    server: LocalServer,
    stream: jsync.Stream,
    tmp_path: Path,
) -> Iterator[Lake]:
    name, line = request.param
    jars = sorted((CACHE / f"lake-{line}").glob("*.jar"))
    assert jars, "make sparks fetches the packages of the lakes"
    conf = {"spark.jars": ",".join(map(str, jars))}
    values = {"format": name, "stream": stream.name, "url": server.url}
    values["out"] = str(tmp_path)
    for table in ("appended", "merged"):
        values[table] = f'path = "{tmp_path}/{table}"'
    conf["spark.sql.shuffle.partitions"] = "2"
    # Delta reads its log in 50 tasks otherwise.
    conf["spark.databricks.delta.snapshotPartitions"] = "2"
    commits = "*/_delta_log/*.json"
    if name == "iceberg":
        commits = "warehouse/db/*/metadata/*.metadata.json"
        conf["spark.sql.catalog.lake"] = "org.apache.iceberg.spark.SparkCatalog"
        conf["spark.sql.catalog.lake.type"] = "hadoop"
        conf["spark.sql.catalog.lake.warehouse"] = f"{tmp_path}/warehouse"
        for table in ("appended", "merged"):
            values[table] = f'table = "lake.db.{table}"'
    found = Lake(server.url, stream, tmp_path, values, conf, commits)
    yield found
    found.kill_driver()


@pytest.mark.parametrize(
    "lake",
    [
        pytest.param(("delta", "4.2"), marks=pytest.mark.spark_version("4.2")),
        pytest.param(("iceberg", "4.1"), marks=pytest.mark.spark_version("4.1")),
    ],
    indirect=True,
    ids=["delta", "iceberg"],
)
@pytest.mark.timeout(LONG * (2 + 3 * KILLS))
def test_killed_processes_leave_each_row_once(lake: Lake) -> None:
    rng, victims = seeded(lake.values["format"]), Counter[str]()
    with lake.writing(2):
        for number in range(KILLS):
            victim = lake.kill(rng)
            victims[victim] += 1
            log.info(
                "kill %d, of a %s, after %d commits",
                number + 1,
                victim,
                lake.committed(),
            )
    lake.kill_driver()
    lake.run(STREAMING, trigger="available-now", limit="5000")
    lake.run(VERIFYING)
    published = lake.published()
    appended = lake.rows("appended")
    assert len(appended) == len(published)
    assert {row.pop("sequence"): row for row in appended} == published
    newest = {row["key"]: (sequence, row) for sequence, row in published.items()}
    expected = {
        key: {"sequence": sequence, **row}
        for key, (sequence, row) in newest.items()
        if not row["gone"]
    }
    merged = lake.rows("merged")
    assert len(merged) == len(expected)
    assert {row["key"]: row for row in merged} == expected
    log.info("%s, %d runs, %d rows", dict(victims), lake.runs, len(published))
