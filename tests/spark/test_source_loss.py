"""Tests of a query whose stream has lost messages, with the calls of Spark but without Spark.

Each reader here stands for a process of Spark. The calls are those of its engine.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import jsync
from jsync import errors
from jsync.spark import range_reader, stream_state

from .engine import batch, latest, sequences, streaming
from .support import fill, numbers


def test_the_first_batch_starts_at_its_recorded_place(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    options["startingOffsets"] = "latest"
    fill(js, stream, *numbers(3))
    first = streaming(options)
    start = first.initialOffset()
    fill(js, stream, *numbers(4, start=4))
    assert first.initialOffset() == start
    end = latest(first, start)
    again = streaming(options)  # the driver died before it had committed
    replayed = again.initialOffset()
    assert replayed != start
    assert sequences(again, again.partitions(replayed, end)) == [4, 5, 6, 7]


def test_an_offset_stays_the_same_without_new_messages(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(3))
    reader = streaming(options)
    end = latest(reader, reader.initialOffset())
    assert json.dumps(latest(reader, end)) == json.dumps(end)
    assert json.dumps(latest(streaming(options), end)) == json.dumps(end)


def test_interior_deletes_are_no_loss(
    options: dict[str, str],
    js: jsync.JetStream,
    stream: jsync.Stream,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(js, stream, *numbers(10))
    for sequence in (3, 4, 10):
        stream.delete_message(sequence)
    reader = batch(options)
    assert sequences(reader, reader.partitions()) == [1, 2, 5, 6, 7, 8, 9]
    assert "3 of the sequences 1 to 10" in caplog.text


def test_messages_that_are_passed_over_are_counted(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """The count goes on in later offsets, and over a restart."""

    def missing(offset: dict[str, Any]) -> int:
        found: int = offset["streams"][stream.name].get("missing", 0)
        return found

    options["failOnDataLoss"] = "false"
    fill(js, stream, *numbers(10))
    for sequence in (3, 4):
        stream.delete_message(sequence)
    reader = streaming(options)
    start = reader.initialOffset()
    end = latest(reader, start)
    assert sequences(reader, reader.partitions(start, end)) == [1, 2, *range(5, 11)]
    assert (missing(start), missing(end)) == (0, 2)
    assert latest(reader, end) == end
    stream.delete_message(5)  # it was read
    fill(js, stream, *numbers(10, start=11))
    again = streaming(options)
    stream.purge(sequence=14)
    stream.delete_message(16)
    after = latest(again, end)
    assert missing(after) == 2 + 3 + 1
    stream.purge(sequence=18)
    assert sequences(again, again.partitions(end, after)) == [18, 19, 20]
    fill(js, stream, *numbers(1, start=21))
    # 14, 15 and 17 went between the plan of the batch and its partitions.
    assert missing(latest(again, after)) == 6 + 3
    stream.delete()
    js.create_stream(
        name=stream.name,
        subjects=[f"{stream.name}.>"],
        storage="memory",
        allow_direct=True,
    )
    fill(js, stream, *numbers(2))
    other = latest(again, after)
    assert sequences(again, again.partitions(after, other)) == [1, 2]
    assert missing(other) == 6  # the plan did not know message 21 of the old stream


def test_a_repeated_batch_counts_no_message_twice(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """The process that has planned the batch is gone, and so are some of its messages."""
    options["failOnDataLoss"] = "false"
    fill(js, stream, *numbers(10))
    for sequence in (3, 4, 8):
        stream.delete_message(sequence)
    reader = streaming(options)
    start = reader.initialOffset()
    end = latest(reader, start)
    again = streaming(options)
    stream.purge(sequence=7)
    stream.delete_message(9)
    assert sequences(again, again.partitions(start, end)) == [7, 10]
    fill(js, stream, *numbers(1, start=11))
    after = latest(again, end)
    assert after["streams"][stream.name]["missing"] == 8  # 1 to 6, 8 and 9


@pytest.mark.parametrize("mode", ["consumer", "direct"])
def test_a_purge_of_unread_messages_fails_the_query(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream, mode: str
) -> None:
    fill(js, stream, *numbers(10))
    reader = streaming(options, maxOffsetsPerTrigger=4, readMode=mode)
    end = json.loads(
        json.dumps(
            reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        )
    )
    assert sequences(reader, reader.partitions({"v": 1, "streams": {}}, end)) == [
        1,
        2,
        3,
        4,
    ]
    stream.purge(sequence=8)
    wanted = "sequences 5 to 7 of stream .* went before being read"
    with pytest.raises(errors.DataLossError, match=wanted) as caught:
        latest(reader, end)
    assert caught.value.stream == stream.name
    lenient = streaming(options, failOnDataLoss=False, readMode=mode)
    after = latest(lenient, end)
    assert sequences(lenient, lenient.partitions(end, after)) == [8, 9, 10]


def test_a_repeated_batch_that_a_limit_removed_fails(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(10))
    reader = streaming(options)
    start = reader.initialOffset()
    end = latest(reader, start)
    js.update_stream(name=stream.name, max_msgs=6)
    with pytest.raises(errors.DataLossError, match="sequences 1 to 4 of"):
        reader.partitions(start, end)
    lenient = streaming(options, failOnDataLoss=False)
    assert sequences(lenient, lenient.partitions(start, end)) == [5, 6, 7, 8, 9, 10]


def test_messages_lost_after_the_plan_fail_the_executor(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(10))
    reader, lenient = batch(options), batch(options, failOnDataLoss=False)
    planned, allowed = reader.partitions(), lenient.partitions()
    stream.purge(sequence=4)
    with pytest.raises(errors.DataLossError, match="sequences 1 to 3 of"):
        sequences(reader, planned)
    assert sequences(lenient, allowed) == [4, 5, 6, 7, 8, 9, 10]
    stream.purge()
    with pytest.raises(errors.DataLossError, match="sequences 1 to 10 of"):
        sequences(reader, planned)
    assert sequences(lenient, allowed) == []


def test_another_stream_of_that_name_is_not_continued(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(5))
    reader, lenient = streaming(options), streaming(options, failOnDataLoss=False)
    start = reader.initialOffset()
    end = latest(reader, start)
    planned = reader.partitions(start, end)
    config = stream.config
    stream.delete()
    with pytest.raises(errors.DataLossError, match="no longer exists"):
        latest(reader, end)
    assert latest(lenient, end) == end
    js.create_stream(config)
    fill(js, stream, *numbers(8))
    with pytest.raises(errors.DataLossError, match="was recreated"):
        latest(reader, end)
    with pytest.raises(errors.DataLossError, match="was recreated"):
        reader.partitions(start, end)
    with pytest.raises(errors.DataLossError, match="was recreated"):
        sequences(reader, planned)
    assert lenient.partitions(start, end) == []
    assert sequences(lenient, planned) == []
    after = latest(lenient, end)
    assert sequences(lenient, lenient.partitions(end, after)) == list(range(1, 9))


def test_a_deleted_stream_leaves_the_others_readable(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """Also with the trigger availableNow, and if a batch of both streams is repeated."""
    other = js.create_stream(name=f"{stream.name}B", subjects=[f"{stream.name}B.>"])
    fill(js, stream, *numbers(5))
    fill(js, other, *numbers(3))
    options["stream"] = f"{stream.name},{other.name}"
    first = streaming(options)
    start = first.initialOffset()
    end = latest(first, start)
    other.delete()
    fill(js, stream, *numbers(2))
    reader, lenient = streaming(options), streaming(options, failOnDataLoss=False)
    for each in (reader, lenient):
        each.prepareForTriggerAvailableNow()
    for refused in (
        lambda: reader.partitions(start, end),
        lambda: latest(reader, end),
    ):
        with pytest.raises(errors.DataLossError, match="no longer exists"):
            refused()
    repeated = lenient.partitions(start, end)
    assert sequences(lenient, repeated) == [1, 2, 3, 4, 5]
    more = latest(lenient, end)
    assert sequences(lenient, lenient.partitions(end, more)) == [6, 7]
    new = streaming(options, failOnDataLoss=False)
    new.prepareForTriggerAvailableNow()
    with pytest.raises(errors.StreamNotFoundError, match=other.name):
        new.initialOffset()


def test_a_place_beyond_the_end_is_an_error(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(5))
    at_end, beyond = {"startingOffsets": 6}, {"startingOffsets": 7}
    with pytest.raises(errors.DataLossError, match="no sequence 7 to begin with"):
        streaming(options, **beyond).initialOffset()
    with pytest.raises(errors.DataLossError, match="no sequence 7 to begin with"):
        batch(options, **beyond).partitions()
    strict = streaming(options, **at_end)
    assert batch(options, **at_end).partitions() == []
    lenient = streaming(options, **beyond, failOnDataLoss=False)
    readers = [(reader, reader.initialOffset()) for reader in (strict, lenient)]
    fill(js, stream, *numbers(2))
    for reader, start in readers:
        end = latest(reader, start)
        assert sequences(reader, reader.partitions(start, end)) == [6, 7]


def test_no_batch_may_begin_before_its_stream(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(6))
    stream.purge(sequence=4)
    with pytest.raises(errors.DataLossError, match="sequences 2 to 3 of"):
        batch(options, startingOffsets=2).partitions()
    with pytest.raises(errors.DataLossError, match="sequences 2 to 3 of"):
        streaming(options, startingOffsets=2).initialOffset()
    reader = batch(options)
    assert sequences(reader, reader.partitions()) == [4, 5, 6]


@pytest.mark.parametrize("mode", ["consumer", "direct"])
def test_a_purge_during_a_read_fails_the_executor(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream, mode: str
) -> None:
    """The range is larger than the prefetch, so that the read reaches the hole."""
    fill(js, stream, *([bytes(1 << 19)] * 80))
    reader = batch(options, readMode=mode)
    lenient = batch(options, readMode=mode, failOnDataLoss=False)
    (part,), (allowed,) = reader.partitions(), lenient.partitions()
    reading, going_on = reader.read(part), lenient.read(allowed)
    assert next(reading)["sequence"][0].as_py() == 1
    found = next(going_on)["sequence"].to_pylist()
    stream.purge(sequence=78)
    with pytest.raises(errors.DataLossError, match="to 77 of stream"):
        list(reading)
    for more in going_on:
        found += more["sequence"].to_pylist()
    assert found[-3:] == [78, 79, 80]
    assert len(found) < 80


@pytest.mark.parametrize("mode", ["consumer", "direct"])
def test_no_row_comes_from_a_recreated_stream(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream, mode: str
) -> None:
    """The range is larger than the prefetch, so that the read reaches the other stream."""
    fill(js, stream, *([b"o" * (1 << 19)] * 80))
    strict = batch(options, readMode=mode)
    lenient = batch(options, readMode=mode, failOnDataLoss=False)
    readings = [
        reader.read(part)
        for reader in (strict, lenient)
        for part in reader.partitions()
    ]
    found = [next(reading) for reading in readings]
    config = stream.cached_info.config
    stream.delete()
    fill(js, js.create_stream(config), *([b"n" * (1 << 19)] * 80))
    with pytest.raises(errors.DataLossError, match=r"recreated|deleted"):
        list(readings[0])
    found += readings[1]
    assert {data[:1] for rows in found for data in rows["data"].to_pylist()} == {b"o"}


def test_the_leader_not_the_consumer_ends_a_range(
    options: dict[str, str],
    js: jsync.JetStream,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A consumer can be on a follower that does not have all of the range yet."""
    fill(js, stream, *numbers(30))
    for sequence in (29, 30):
        stream.delete_message(sequence)
    reader = batch(options)
    planned = reader.partitions()
    read_arrow, asked = jsync.Stream.read_arrow, list[int]()

    def lagging(self: jsync.Stream, start: int, end: int, **more: Any) -> Any:
        asked.append(start)
        return read_arrow(self, start, min(end, 10 * len(asked)), **more)

    monkeypatch.setattr(jsync.Stream, "read_arrow", lagging)
    monkeypatch.setattr(range_reader, "has_followers", lambda _: True)
    assert sequences(reader, planned) == list(range(1, 29))
    assert asked == [1, 11, 21]


def test_missing_messages_after_the_consumer_ends_are_lost(
    options: dict[str, str],
    js: jsync.JetStream,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(js, stream, *numbers(30))
    read_arrow = jsync.Stream.read_arrow

    def lagging(self: jsync.Stream, start: int, end: int, **more: Any) -> Any:
        return read_arrow(self, start, min(end, 10), **more)

    monkeypatch.setattr(jsync.Stream, "read_arrow", lagging)
    monkeypatch.setattr(range_reader, "has_followers", lambda _: True)
    reader = batch(options)
    (part,) = reader.partitions()
    found = reader.read(part)
    assert next(found)["sequence"].to_pylist() == list(range(1, 11))
    stream.purge()
    with pytest.raises(errors.DataLossError, match="sequences 11 to 30 of"):
        list(found)


def test_a_leader_that_stays_behind_has_lost_messages(
    options: dict[str, str],
    js: jsync.JetStream,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(js, stream, *numbers(10))
    reader = streaming(options)
    end = latest(reader, reader.initialOffset())
    end["streams"][stream.name]["next"] = 13  # from a leader that is gone
    monkeypatch.setattr(stream_state, "sleep", lambda _: fill(js, stream, *numbers(2)))
    assert latest(reader, end) == end
    assert stream.info().state.last_seq == 12  # the reader has waited once
    end["streams"][stream.name]["next"] = 30
    monkeypatch.setattr(stream_state, "CATCH_UP_SECONDS", 0.0)
    with pytest.raises(
        errors.DataLossError, match="ends at sequence 12, but reached 29"
    ):
        latest(reader, end)
