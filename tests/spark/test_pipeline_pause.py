"""Tests whether a pipeline may rely on its pause file when it stops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from jsync.spark.pipeline.config import JetStreamSource, Pipeline
from jsync.spark.pipeline.streaming import _can_pause


@pytest.mark.parametrize(
    ("options", "can_pause"),
    [({}, True), ({"pauseFile": "/mine"}, False), ({"pausefile": "/mine"}, False)],
)
def test_pipelines_cannot_pause_sources_with_own_pause_files(
    options: dict[str, str], can_pause: bool
) -> None:
    source = JetStreamSource(format="jetstream", options={"stream": "S", **options})
    pipeline = cast("Pipeline", SimpleNamespace(sources={"s": source}))
    assert _can_pause(pipeline) is can_pause
