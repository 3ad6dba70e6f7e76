"""Tests of pipelines into tables of Delta and Iceberg, whose driver is killed repeatedly.

Each runs on the newest Spark for which Maven Central has its package. `make sparks` fetches
those. `JSYNC_SPARK_KILLS` sets the number of kills.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from ..support.servers import wait_for
from .support import LONG

if TYPE_CHECKING:
    import jsync
    from jsync.server import LocalServer

pytestmark = [pytest.mark.sparks, pytest.mark.usefixtures("spark_environment")]

CACHE = Path(__file__).parent.parent.parent / ".cache"
KILLS = int(os.environ.get("JSYNC_SPARK_KILLS", "2"))
KEYS = 37
LAST = 5
"""Every fifth message deletes its key."""

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

    js: jsync.JetStream
    stream: jsync.Stream
    out: Path
    values: dict[str, str]
    conf: dict[str, str]
    commits: str
    """A pattern for the files of a table that appear with each commit."""
    published: int = 0
    runs: int = 0

    def fill(self, count: int) -> None:
        with self.js.publisher() as publisher:
            for number in range(self.published, self.published + count):
                gone = "true" if number % LAST == 0 else "false"
                text = f'{{"key": {number % KEYS}, "number": {number}, "gone": {gone}}}'
                publisher.publish(f"{self.stream.name}.a", text.encode())
        self.published += count

    def start(self, text: str, **values: str) -> subprocess.Popen[bytes]:
        file = self.out / "lake.toml"
        file.write_text(text.format(**self.values, **values))
        command = [sys.executable, "-m", "jsync.spark.pipeline", "run", str(file)]
        for name, value in self.conf.items():
            command += ["--conf", f"{name}={value}"]
        self.runs += 1
        with (self.out / f"run-{self.runs}.log").open("wb") as log:
            return subprocess.Popen([*command, "--quiet"], stdout=log, stderr=log)

    def run(self, text: str, **values: str) -> None:
        process = self.start(text, **values)
        try:
            code = process.wait(LONG)
        finally:
            kill(process)
        assert code == 0, (self.out / f"run-{self.runs}.log").read_text()[-3000:]

    def start_and_kill(self, commits: int) -> None:
        """Kill a driver after more than so many commits, which both tables share."""
        before = self.committed()
        process = self.start(STREAMING, trigger="1 second", limit="50")
        try:
            wait_for(
                lambda: (
                    process.poll() is not None or self.committed() > before + commits
                ),
                LONG,
            )
            assert process.poll() is None, "the pipeline has failed"
        finally:
            kill(process)

    def committed(self) -> int:
        return sum(1 for _ in self.out.glob(self.commits))

    def rows(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pq.read_table(
            self.out / f"{name}.parquet"
        ).to_pylist()
        return found


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a driver and its JVM, which is in a separate process session, with SIGKILL."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    jvms = children.read_text().split() if children.exists() else []
    for pid in jvms:
        os.killpg(int(pid), signal.SIGKILL)
    process.kill()
    process.wait()


@pytest.fixture
def lake(
    request: pytest.FixtureRequest,
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
) -> Lake:
    name, line = request.param
    jars = sorted((CACHE / f"lake-{line}").glob("*.jar"))
    assert jars, "make sparks fetches the packages of the lakes"
    conf = {"spark.jars": ",".join(map(str, jars))}
    values = {"format": name, "stream": stream.name, "url": server.url}
    values["out"] = str(tmp_path)
    for table in ("appended", "merged"):
        values[table] = f'path = "{tmp_path}/{table}"'
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
    return Lake(js, stream, tmp_path, values, conf, commits)


@pytest.mark.parametrize(
    "lake",
    [
        pytest.param(("delta", "4.2"), marks=pytest.mark.spark_version("4.2")),
        pytest.param(("iceberg", "4.1"), marks=pytest.mark.spark_version("4.1")),
    ],
    indirect=True,
    ids=["delta", "iceberg"],
)
@pytest.mark.timeout(LONG * 2)
def test_killed_drivers_leave_each_row_once(lake: Lake) -> None:
    for _ in range(KILLS):
        lake.fill(400)
        lake.start_and_kill(commits=3)
    lake.fill(50)
    lake.run(STREAMING, trigger="available-now", limit="1000")
    lake.run(VERIFYING)
    numbers = sorted(row["number"] for row in lake.rows("appended"))
    assert numbers == list(range(lake.published))
    newest = {number % KEYS: number for number in range(lake.published)}
    there = {key: number for key, number in newest.items() if number % LAST}
    assert {row["key"]: row["number"] for row in lake.rows("merged")} == there
    assert len(lake.rows("merged")) == len(there)
