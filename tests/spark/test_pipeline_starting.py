"""Tests of starting a query whose Python worker starts too late."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from jsync.spark.pipeline.start_retry import RETRYING, has_not_begun, start_with_retry

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
        start_with_retry(start, is_retried=has_not_begun)
    assert len(errors) == 1
