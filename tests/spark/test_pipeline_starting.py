"""Tests of starting a query whose Python worker starts too late."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from jsync.spark.pipeline.starting import STARTS, started

LATE = "Python worker failed to connect back."


def test_only_a_worker_that_came_too_late_is_a_reason_to_start_again() -> None:
    errors = [PySparkException(LATE), PySparkException(LATE), None]

    def start() -> str:
        if error := errors.pop(0):
            raise error
        return "a query"

    assert started(start) == "a query"
    errors[:] = [PySparkException("there is no stream A"), None]
    with pytest.raises(PySparkException, match="no stream A"):
        started(start)
    errors[:] = [PySparkException(LATE)] * STARTS
    with pytest.raises(PySparkException, match="connect back"):
        started(start)
    assert not errors
