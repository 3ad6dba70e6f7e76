"""Tests of the words for the messages of a replay."""

from __future__ import annotations

import json

import pytest

from jsync.spark.pipeline.config import JetStreamSource, Pipeline, Spark
from jsync.spark.pipeline.replaying import range_of


@pytest.mark.parametrize(
    ("starts", "ends", "words"),
    [
        ({"A": 2}, {"A": 6}, "A from 2 to 5"),
        ({"A": 6}, {"A": 6}, "no messages of A"),
        ({"A": 1, "B": 3}, {"A": 1, "B": 4}, "no messages of A, B from 3 to 3"),
    ],
)
def test_a_replay_names_its_messages(
    starts: dict[str, int], ends: dict[str, int], words: str
) -> None:
    def source(options: dict[str, str], *, static: bool = False) -> JetStreamSource:
        return JetStreamSource(format="jetstream", options=options, static=static)

    places = {
        name: json.dumps(at) for name, at in (("starting", starts), ("ending", ends))
    }
    pipeline = Pipeline(
        name="p",
        spark=Spark(),
        nats={},
        streaming=None,
        sources={
            "fixed": source({"endingOffsets": '{"C": 9}'}, static=True),
            "others": source({}),
            "chosen": source({f"{name}Offsets": at for name, at in places.items()}),
        },
        steps={},
        sinks={},
    )
    assert range_of(pipeline) == words
