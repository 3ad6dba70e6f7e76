"""Tests of the progress line of a pipeline."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from jsync.spark.pipeline.console import Report

if TYPE_CHECKING:
    import pytest


def test_a_long_step_is_shown_before_it_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report()
    before = threading.active_count()
    with report.during("starting Spark"):
        assert capsys.readouterr().err == "starting Spark\n"
        report.say("one more start")
        assert capsys.readouterr().err == "one more start\n"
    assert threading.active_count() == before


def test_a_quiet_step_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Report(quiet=True).during("starting Spark"):
        pass
    assert capsys.readouterr().err == ""
