"""Tests of jsync.spark on a cluster of separate processes, used as a user would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
import pytest

from jsync.spark.pipeline import __main__ as program

from ...support.servers import wait_for

if TYPE_CHECKING:
    import jsync
    from jsync.server import LocalServer

    from .conftest import SparkCluster

pytestmark = pytest.mark.fault

ROWS = 200_000
DONE = 600
"""The seconds in which a pipeline must end, even on a slow machine."""

CONF = ("spark.driver.memory=1g", "spark.executor.memory=512m", "spark.cores.max=2")

PIPELINE = """
[nats]
servers = "{server}"
[sources.messages]
format = "jetstream"
options = {{ stream = "{source}", startingOffsets = "earliest", minPartitions = 2 }}
[steps]
shuffled = '''
select /*+ repartition(4, data) */
  '{target}.row' as subject, data, concat('row ', cast(data as string)) as msg_id
from messages
'''
[sinks.out]
format = "jetstream"
from = "shuffled"
options = {{ stream = "{target}", delivery = "exactly-once" }}
"""
STREAMING = """
[streaming]
checkpoint = "{checkpoint}"
trigger = "available-now"
"""


@pytest.fixture
def source(js: jsync.JetStream, unique: str) -> jsync.Stream:
    """A stream of numbered messages."""
    stream = js.create_stream(
        name=f"{unique}S",
        subjects=[f"{unique}S.>"],
        storage="memory",
        allow_batched=True,
    )
    with js.fast_ingest() as ingest:
        ingest.add_many(f"{stream.name}.n", [b"%d" % n for n in range(ROWS)])
    return stream


@pytest.fixture
def target(js: jsync.JetStream, unique: str) -> jsync.Stream:
    return js.create_stream(
        name=f"{unique}T", subjects=[f"{unique}T.>"], storage="memory"
    )


@pytest.fixture
def file(
    tmp_path: Path, server: LocalServer, source: jsync.Stream, target: jsync.Stream
) -> Path:
    path = tmp_path / "pipeline.toml"
    names = {"source": source.name, "target": target.name}
    path.write_text(PIPELINE.format(server=server.url, **names))
    return path


def each_row_once(target: jsync.Stream) -> bool:
    table = pa.table(target.read_arrow(columns=["data"]))
    return sorted(map(int, table["data"].to_pylist())) == list(range(ROWS))


def settings(*more: str) -> list[str]:
    return [part for setting in (*CONF, *more) for part in ("--conf", setting)]


def test_a_batch_is_submitted_to_the_cluster(
    spark_cluster: SparkCluster,
    environment: dict[str, str],
    file: Path,
    target: jsync.Stream,
) -> None:
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = subprocess.run(
        [
            *(str(submit), "--master", spark_cluster.url, *settings()),
            *(str(program.__file__), "run", "--json", str(file)),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=DONE,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f'"rows": {ROWS}' in done.stdout
    assert each_row_once(target)


def test_a_killed_executor_neither_loses_nor_doubles_rows(
    spark_cluster: SparkCluster,
    environment: dict[str, str],
    file: Path,
    target: jsync.Stream,
    tmp_path: Path,
) -> None:
    with file.open("a") as more:
        more.write(STREAMING.format(checkpoint=tmp_path / "checkpoint"))
    command = [
        *(sys.executable, "-m", "jsync.spark.pipeline", "run", str(file)),
        *("--master", spark_cluster.url, *settings()),
    ]
    log = tmp_path / "driver.log"
    with log.open("wb") as output:
        driver = subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdout=output, stderr=output
        )
    try:
        wait_for(lambda: target.info().state.messages > 1000, timeout=DONE)
        killed = spark_cluster.kill_executor()
        assert target.info().state.messages < ROWS, "it was in the middle of the batch"
        assert driver.wait(DONE) == 0, log.read_text()[-3000:]
    finally:
        driver.kill()
        driver.wait()
    assert killed not in spark_cluster.executors()
    assert each_row_once(target)
