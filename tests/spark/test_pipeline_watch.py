"""Tests of the thread that watches a batch write, with a JVM that fails at times."""

from __future__ import annotations

import signal
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError

from jsync.spark.pipeline.batch import _JobWatcher
from jsync.spark.pipeline.console import Report
from jsync.spark.pipeline.signals import StopRequest

from ..support.servers import wait_for


@pytest.mark.parametrize("error", [Py4JError("no answer"), BrokenPipeError()])
def test_a_watch_outlasts_calls_that_fail(error: Exception) -> None:
    context, stop = Mock(), StopRequest()
    context.statusTracker.side_effect = error
    context.cancelJobGroup.side_effect = error
    with _JobWatcher(Mock(sparkContext=context), "w", stop, Report(quiet=True)):
        wait_for(lambda: context.statusTracker.called)
        stop.request(signal.SIGINT)
        wait_for(lambda: context.cancelJobGroup.call_count > 1)
