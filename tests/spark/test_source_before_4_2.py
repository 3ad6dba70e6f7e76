"""Tests of the source with the calls that Spark 4.0 and 4.1 make, without Spark.

Each reader here stands for a process of Spark. These versions ask for the latest offset before
they ask for the initial one, pass no start and no limit, and tell the last offset of a query that
is started again by `partitions(offset, offset)`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors
from jsync.spark import micro_batch

from .engine import sequences, streaming
from .support import fill, numbers

if TYPE_CHECKING:
    from pathlib import Path

    import jsync
    from jsync.spark.micro_batch import JetStreamStreamReader


@pytest.fixture(autouse=True)
def _before_4_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batch, "LIMITS", False)


class OldSpark:
    """A streaming query as Spark 4.0 runs it, and its checkpoint."""

    def __init__(self, options: dict[str, str], **more: object) -> None:
        self._options = options
        self._more = more
        self._reader: JetStreamStreamReader | None = None
        self._committed: str | None = None
        self._logged: str | None = None

    def start(self, **more: object) -> None:
        """Start the query in a new process of Spark."""
        self._more |= more
        self._reader = streaming(self._options, **self._more)
        if self._logged is not None:
            last = json.loads(self._logged)
            assert self._reader.partitions(last, last) == []

    def plan(self) -> bool:
        """Log the end of the next batch if there is one, or keep that of a failed batch."""
        assert self._reader is not None
        if self._logged == self._committed:
            self._logged = json.dumps(self._reader.latestOffset())
        return self._logged != self._committed

    def batch(self) -> list[int] | None:
        """Read the next batch. None: there is nothing new."""
        if not self.plan():
            return None
        assert self._reader is not None
        assert self._logged is not None
        start: Any = self._committed and json.loads(self._committed)
        start = start or self._reader.initialOffset()
        end = json.loads(self._logged)
        found = sequences(self._reader, self._reader.partitions(start, end))
        self._committed = self._logged
        return found


def test_no_message_comes_in_two_batches(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(3))
    query = OldSpark(options)
    query.start()
    assert query.batch() == [1, 2, 3]
    assert query.batch() is None
    fill(js, stream, *numbers(2))
    assert query.batch() == [4, 5]
    query.start()
    assert query.batch() is None
    fill(js, stream, *numbers(2))
    assert query.batch() == [6, 7]


def test_dropped_messages_that_were_read_are_no_loss(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(10))
    query = OldSpark(options)
    query.start()
    assert query.batch() == [*range(1, 11)]
    stream.purge(sequence=8)
    query.start()
    assert query.batch() is None
    fill(js, stream, *numbers(2))
    assert query.batch() == [11, 12]
    fill(js, stream, *numbers(2))
    stream.purge()
    query.start()
    with pytest.raises(errors.DataLossError, match="sequences 13 to 14 of"):
        query.batch()


def test_limits_hold_in_every_batch(
    options: dict[str, str],
    js: jsync.JetStream,
    stream: jsync.Stream,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(js, stream, *numbers(10))
    query = OldSpark(options, maxOffsetsPerTrigger=4)
    query.start()
    assert query.batch() == [1, 2, 3, 4]
    query.start()
    assert query.batch() == [5, 6, 7, 8]
    assert "ends after one micro-batch" in caplog.text
    assert query.batch() == [9, 10]
    query.start(minOffsetsPerTrigger=3)
    fill(js, stream, *numbers(1))
    assert query.batch() == [11]
    fill(js, stream, *numbers(1))
    assert query.batch() is None


def test_the_first_batch_is_repeated_from_its_start(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """The initial offset has changed by then: messages were dropped, or are not latest."""
    fill(js, stream, *numbers(6))
    query = OldSpark(options, startingOffsets=4)
    query.start()
    assert query.plan()
    query.start(startingOffsets="latest")
    assert query.batch() == [4, 5, 6]
    query = OldSpark(options, startingOffsets="earliest")
    query.start()
    assert query.plan()
    stream.purge(sequence=3)
    query.start()
    with pytest.raises(errors.DataLossError, match="sequences 1 to 2 of"):
        query.batch()


def test_a_pause_holds_the_first_batch(
    options: dict[str, str],
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
) -> None:
    pause = tmp_path / "pause"
    pause.touch()
    fill(js, stream, *numbers(3))
    query = OldSpark(options, pauseFile=pause)
    query.start()
    assert query.batch() == []
    query.start()
    assert query.batch() is None
    pause.unlink()
    assert query.batch() == [1, 2, 3]


def test_an_offset_requested_too_early_is_an_error(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """A setting of Spark makes availableNow ask before it tells where the query is."""
    fill(js, stream, *numbers(3))
    query = OldSpark(options)
    query.start()
    assert query.batch() == [1, 2, 3]
    assert query._committed is not None
    last = json.loads(query._committed)
    fill(js, stream, *numbers(3))
    reader = streaming(options)
    reader.latestOffset()
    with pytest.raises(errors.ConfigError, match=r"triggerAvailableNowWrapper"):
        reader.partitions(last, last)
