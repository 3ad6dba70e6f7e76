"""Tests of starting a query whose Python worker starts too late."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from jsync.spark.pipeline.start_retry import RETRYING, failed_to_start, start_with_retry

if TYPE_CHECKING:
    from pathlib import Path

FILES = """
[sources.rows]
format = "csv"
path = "{path}"
[sinks.out]
format = "console"
from = "rows"
"""
LATE = "Python worker failed to connect back."


def test_only_a_late_worker_justifies_another_start() -> None:
    errors = [PySparkException(LATE), PySparkException(LATE), None]

    def start() -> str:
        if error := errors.pop(0):
            raise error
        return "a query"

    assert start_with_retry(start) == "a query"
    errors[:] = [PySparkException("there is no stream A"), None]
    with pytest.raises(PySparkException, match="no stream A"):
        start_with_retry(start)


def test_a_late_start_is_repeated_until_it_works() -> None:
    left = [PySparkException(LATE)] * 50
    said: list[str] = []

    def start() -> str:
        if left:
            raise left.pop()
        return "a query"

    assert start_with_retry(start, say=said.append) == "a query"
    assert said == [RETRYING] * 50


def test_a_stop_or_the_time_ends_late_starts() -> None:
    asked: list[None] = []

    def start() -> str:
        asked.append(None)
        raise PySparkException(LATE)

    with pytest.raises(PySparkException, match="connect back"):
        start_with_retry(start, is_stopped=lambda: len(asked) == 3)
    assert len(asked) == 3
    with pytest.raises(PySparkException, match="connect back"):
        start_with_retry(start, seconds=0)
    assert len(asked) == 4


def test_a_job_that_has_begun_is_not_repeated() -> None:
    """Its tasks may have written rows."""
    errors = [PySparkException(f"Job aborted due to stage failure: {LATE}"), None]

    def start() -> None:
        if error := errors.pop(0):
            raise error

    with pytest.raises(PySparkException, match="Job aborted"):
        start_with_retry(start, is_retried=failed_to_start)
    assert len(errors) == 1


def test_without_java_the_output_has_the_reason(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    file = tmp_path / "pipeline.toml"
    file.write_text(FILES.format(path=tmp_path / "rows.csv"))
    done = subprocess.run(
        [sys.executable, "-m", "jsync", "pipeline", "run", file],
        check=False,
        env={**os.environ, "JAVA_HOME": str(tmp_path / "none")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 1
    assert f"{tmp_path}/none/bin/java" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert "Spark did not start, for the reason in its output above" in last
