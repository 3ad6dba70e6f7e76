"""Tests of the pipelines of examples/, with flights of a few days."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync.spark import pipeline

from ..docs.markdown import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..conftest import StartServer

pytestmark = pytest.mark.bulk

FLIGHTS = Path(__file__).with_name("flights.csv")


def test_the_examples_work_one_after_the_other(
    spark: SparkSession,
    own_server: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    server = own_server()
    monkeypatch.setenv("NATS_URL", server.url)
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("FLIGHTS", str(FLIGHTS))
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        flights = js.create_stream(
            name="FLIGHTS", subjects=["flights.>"], allow_batched=True
        )
        delays = js.create_stream(
            name="DELAYS", subjects=["delays.>"], max_msgs_per_subject=1
        )
        for name in ("publish", "flights", "flights", "report"):
            file = ROOT / "examples" / "pipelines" / f"{name}.toml"
            assert pipeline.run(file, spark=spark, quiet=True).exit_code == 0

        rows = list(csv.DictReader(FLIGHTS.read_text().splitlines()))
        assert flights.info().state.messages == len(rows)
        hours = Counter((row["carrier"], row["day"], row["hour"]) for row in rows)
        found = Counter[tuple[str, str, str]]()
        with js.ordered_consumer(delays.name).messages(until_end=True) as messages:
            for message in messages:
                hour = json.loads(message.data)
                day = str(int(hour["date"].rpartition("-")[2]))
                found[hour["carrier"], day, str(hour["hour"])] += hour["flights"]
        assert found.total() == hours.total() == len(rows)
        state = delays.info().state
        assert state.last_seq == state.messages, "the second run has added nothing"
    assert (tmp_path / "flights" / "date=2013-01-01").is_dir()
    reported = [
        json.loads(line)
        for part in (tmp_path / "report").glob("part-*")
        for line in part.read_text().splitlines()
    ]
    assert sum(day["flights"] for day in reported) == len(rows)
    assert "worst_hour" in capfd.readouterr().out
