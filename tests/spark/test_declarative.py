"""Tests of examples/declarative, run by the command of Spark, and of the claims in its guide."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import jsync

from ..docs.markdown import ROOT, blocks
from .connect_server import connect_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = [pytest.mark.bulk, pytest.mark.timeout(900)]

FLIGHTS = Path(__file__).with_name("flights.csv")
CONF = {
    "spark.sql.catalogImplementation": "hive",
    # On a busy machine a Python worker can take longer to start than Spark waits.
    "spark.sql.pipelines.maxFlowRetryAttempts": "10",
}
DONE = 3600
"""The seconds in which a run must end, even on a slow machine."""


def flights() -> list[dict[str, Any]]:
    """Return the flights in the order of their hours."""
    rows = csv.DictReader(FLIGHTS.read_text().splitlines())
    found = [
        {
            **row,
            "flight": int(row["flight"]),
            "dep_delay": None if row["dep_delay"] == "NA" else int(row["dep_delay"]),
            "arr_delay": None if row["arr_delay"] == "NA" else int(row["arr_delay"]),
        }
        for row in rows
    ]
    return sorted(found, key=lambda row: str(row["time_hour"]))


class Project:
    """A copy of the example, with its tables and checkpoints in the same directory."""

    def __init__(self, directory: Path, server: LocalServer) -> None:
        self.directory = directory
        shutil.copytree(ROOT / "examples" / "declarative", directory)
        spec = directory / "spark-pipeline.yml"
        storage = (directory / "storage").as_uri()
        text = spec.read_text().replace("file:///tmp/jsync-flights", storage)
        spec.write_text(text)
        assert storage in text
        # Not the directory of the example, whose files a run reads.
        self._connect = directory / "connect"
        self._connect.mkdir()
        self._environment = {**os.environ, "NATS_URL": server.url}

    def run(self, *arguments: str) -> None:
        with connect_server(self._connect, self._environment) as environment:
            self._run(environment, *arguments)

    def _run(self, environment: dict[str, str], *arguments: str) -> None:
        command = Path(sys.executable).with_name("spark-pipelines")
        settings = [
            part for each in CONF.items() for part in ("--conf", "=".join(each))
        ]
        done = subprocess.run(
            [str(command), *arguments, *settings],
            env=environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=DONE,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]

    def table(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table. A streaming table includes the files of earlier runs."""
        files = sorted((self.directory / "spark-warehouse" / name).glob("*.parquet"))
        return [row for file in files for row in pq.read_table(file).to_pylist()]


@pytest.fixture
def project(spark_environment: None, own_server: StartServer, tmp_path: Path) -> Any:
    server = own_server()
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name="FLIGHTS", subjects=["flights.>"])
        for name in ("DELAYS", "DEAD"):
            js.create_stream(
                name=name, subjects=[f"{name.lower()}.>"], duplicate_window=86400
            )
        yield Project(tmp_path / "project", server), js


def publish(js: jsync.JetStream, rows: Sequence[dict[str, Any]]) -> None:
    with js.publisher() as publisher:
        for row in rows:
            subject = f"flights.{row['carrier']}.{row['origin']}"
            publisher.publish(subject, json.dumps(row).encode())
        publisher.publish("flights.none", b"no flight")


def expected_hours(rows: Sequence[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """Return the flights of each carrier and hour that are older than the watermark of a day."""
    latest = max(datetime.fromisoformat(row["time_hour"]) for row in rows)
    return Counter(
        (row["carrier"], row["time_hour"].replace("Z", ".000Z"))
        for row in rows
        if datetime.fromisoformat(row["time_hour"]) + timedelta(hours=1)
        <= latest - timedelta(days=1)
    )


def written_hours(js: jsync.JetStream) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    with js.ordered_consumer("DELAYS").messages(until_end=True) as messages:
        for message in messages:
            hour = json.loads(message.data)
            assert (hour["carrier"], hour["hour"]) not in found, "each hour once"
            found[hour["carrier"], hour["hour"]] = hour["flights"]
    return found


def check(files: Project, js: jsync.JetStream, rows: Sequence[dict[str, Any]]) -> None:
    """Check that each flight is in its tables once, and each dead letter in its stream."""
    dead = js.stream("DEAD")
    parts = dead.info().state.messages
    assert sorted(row["sequence"] for row in files.table("bronze")) == list(
        range(1, len(rows) + parts + 1)
    )
    silver = files.table("silver")
    assert len({row["sequence"] for row in silver}) == len(silver) == len(rows)
    days = {
        str(row["date"]): (row["flights"], row["cancelled"])
        for row in files.table("days")
    }
    dates = Counter(row["time_hour"][:10] for row in rows)
    assert {day: flights for day, (flights, _) in days.items()} == dates
    assert sum(cancelled for _, cancelled in days.values()) == sum(
        row["dep_delay"] is None for row in rows
    )
    assert written_hours(js) == expected_hours(rows)
    for number in range(1, parts + 1):
        assert dead.get_message(number).data == b"no flight"


def test_flights_pass_three_layers_and_return_once(
    project: tuple[Project, jsync.JetStream],
) -> None:
    files, js = project
    rows = flights()
    half = len(rows) // 2
    publish(js, rows[:half])
    for _ in range(2):  # the second run has nothing to do
        files.run("run")
        check(files, js, rows[:half])
        assert js.stream("DEAD").info().state.messages == 1
    publish(js, rows[half:])
    files.run("run")
    check(files, js, rows)
    assert js.stream("DEAD").info().state.messages == 2
    # The run reads everything again. Messages whose ids the streams remember are not stored again.
    files.run("run", "--full-refresh-all")
    check(files, js, rows)
    assert js.stream("DEAD").info().state.messages == 2


def test_the_guide_shows_the_code_of_the_example() -> None:
    shown = [
        block
        for block in blocks(ROOT / "docs" / "guides" / "declarative.md")
        if block.title
    ]
    assert len(shown) == 3
    for block in shown:
        example = (ROOT / "examples" / "declarative" / str(block.title)).read_text()
        for part in block.text.strip().split("\n\n\n"):
            assert part in example, f"a part of {block} is not in the example"
