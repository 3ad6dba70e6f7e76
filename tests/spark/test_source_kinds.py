"""What streams of every kind give, and what is refused before anything runs.

As Spark calls the readers, without Spark.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    In,
    LessThan,
    LessThanOrEqual,
)

import jsync
from jsync import errors
from jsync.spark.options import Options
from jsync.spark.source import FilteringReader

from ..servers import wait_for
from .engine import SCHEMA, batch, latest, sequences, streaming
from .support import LONG, fill, numbers

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_what_workers_are_to_do_is_read_without_taking_it_from_them(
    options: dict[str, str], js: jsync.JetStream, unique: str, retention: str
) -> None:
    stream = js.create_stream(
        name=f"{unique}Q",
        subjects=[f"{unique}Q.>"],
        retention=retention,
        storage="memory",
        allow_direct=True,
    )
    worker = stream.create_consumer(
        durable_name="worker", filter_subject=f"{unique}Q.>"
    )
    fill(js, stream, *numbers(20))
    options["stream"] = stream.name
    reader = batch(options, subjects=f"{stream.name}.0,{stream.name}.1")
    expected = [number for number in range(1, 21) if number % 3 != 0]
    assert sequences(reader, reader.partitions()) == expected
    assert list(stream.consumer_names()) == ["worker"]
    with worker.fetch(20, timeout=10) as given:
        assert [msg.metadata.stream_sequence for msg in given] == list(range(1, 21))
    if retention == "workqueue":
        with pytest.raises(errors.ConfigError, match=r"work queue.*readMode direct"):
            batch(options, readMode="consumer").partitions()
    js.update_stream(name=stream.name, allow_direct=False)
    with pytest.raises(errors.ConfigError, match="set it to allow_direct"):
        batch(options).partitions()
    stream.delete()


def test_a_mirror_has_the_sequences_of_its_origin_and_a_sourced_stream_its_own(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(10))
    stream.purge(sequence=4)
    mirror = js.create_stream(name=f"{stream.name}M", mirror={"name": stream.name})
    other = js.create_stream(name=f"{stream.name}S", sources=[{"name": stream.name}])
    for copy in (mirror, other):
        wait_for(lambda copy=copy: copy.info().state.messages == 7, LONG)  # type: ignore[misc]
    names = f"{mirror.name},{other.name}"
    reader = streaming({**options, "stream": names})
    start = reader.initialOffset()
    end = latest(reader, start)
    spans = {
        name: (span["from"], span["next"]) for name, span in end["streams"].items()
    }
    assert spans == {mirror.name: (4, 11), other.name: (1, 8)}
    found = sequences(reader, reader.partitions(start, end))
    assert found == sorted([*range(4, 11), *range(1, 8)])
    mirror.delete()
    other.delete()


def test_a_moment_is_a_place_in_a_stream(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(9))
    third, seventh = (stream.get_message(n).timestamp for n in (3, 7))
    del options["startingOffsets"]
    reader = batch(
        options, startingTimestamp=third.isoformat(), endingTimestamp=seventh
    )
    found = sequences(reader, reader.partitions())
    # Messages stored within the same microsecond are one moment.
    assert found[0] <= 3 <= found[-1] <= 6
    assert stream.get_message(found[0]).timestamp == third
    later = batch(options, startingTimestamp=4_102_444_800_000)
    assert sequences(later, later.partitions()) == []


def test_what_is_admitted_is_shared_by_the_streams(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    other = js.create_stream(name=f"{stream.name}B", subjects=[f"{stream.name}B.>"])
    fill(js, stream, *numbers(30))
    fill(js, other, *numbers(10))
    options["streams"] = f"{options.pop('stream')},{other.name}"
    reader = streaming(options, maxOffsetsPerTrigger=20)
    start = reader.initialOffset()
    end: Any = reader.latestOffset(start, reader.getDefaultReadLimit())
    taken = [span["next"] - span["from"] for span in end["streams"].values()]
    assert taken == [15, 5]
    smaller = streaming(options, maxBytesPerTrigger=1)
    end = smaller.latestOffset(start, smaller.getDefaultReadLimit())
    assert [span["next"] for span in end["streams"].values()] == [2, 2]
    other.delete()


def test_a_stream_that_is_added_begins_where_new_ones_do_and_that_is_kept(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """Even before it has brought anything: `latest` would be somewhere else each time."""
    fill(js, stream, *numbers(3))
    first = streaming(options)
    end = latest(first, first.initialOffset())
    other = js.create_stream(name=f"{stream.name}B", subjects=[f"{stream.name}B.>"])
    fill(js, other, *numbers(5))
    both = {
        **options,
        "stream": f"{stream.name},{other.name}",
        "startingOffsets": "latest",
    }
    after = latest(streaming(both), end)
    assert after != end
    fill(js, other, *numbers(2, start=6))
    reader = streaming(both)
    more = latest(reader, after)
    assert sequences(reader, reader.partitions(after, more)) == [6, 7]
    with pytest.raises(errors.CheckpointError, match=f"is of stream {other.name} too"):
        latest(streaming(options), more)
    other.delete()


def test_an_offset_of_another_version_is_refused(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    reader = streaming(options)
    for offset, wanted in {
        '{"v": 2, "streams": {}}': "written by a newer jsync",
        '{"topic": {"0": 5}}': "not an offset of JetStream",
        '{"v": 1, "streams": {"A": {"next": 1}}}': "not an offset of JetStream",
    }.items():
        with pytest.raises(errors.CheckpointError, match=wanted):
            latest(reader, json.loads(offset))


def test_what_the_servers_refuse_is_said_on_the_driver(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    name = stream.name
    with pytest.raises(errors.StreamNotFoundError):
        batch({**options, "stream": f"{name}NONE"}).partitions()
    with pytest.raises(errors.ConfigError, match="subject"):
        batch(options, subjects=f"{name}..x").partitions()
    with pytest.raises(errors.OverlappingFilterSubjectsError):
        batch(options, subjects=f"{name}.*,{name}.a").partitions()
    with pytest.raises(errors.OverlappingFilterSubjectsError):
        streaming(options, subjects=f"{name}.*,{name}.a").initialOffset()
    with pytest.raises(errors.ConnectionError, match=r"cannot connect to 127.0.0.1:1"):
        batch({**options, "nats.servers": "nats://127.0.0.1:1"}).partitions()


def test_filters_that_are_pushed_narrow_what_is_asked_for(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """Each is given back too, so that Spark checks the rows that come all the same."""
    fill(js, stream, *numbers(100))
    filters: list[Filter] = [
        In(("subject",), (f"{stream.name}.0", f"{stream.name}.1")),
        GreaterThan(("sequence",), 40),
        LessThanOrEqual(("sequence",), 50),
        EqualTo(("stream",), stream.name),
        LessThan(("timestamp",), stream.get_message(1).timestamp + timedelta(hours=1)),
    ]
    reader = FilteringReader(
        Options({**options, "subjects": f"{stream.name}.*"}), SCHEMA
    )
    assert list(reader.pushFilters(filters)) == filters
    expected = [number for number in range(41, 51) if number % 3 != 0]
    assert sequences(reader, reader.partitions()) == expected
    for nowhere in (EqualTo(("subject",), "elsewhere"), EqualTo(("stream",), "OTHER")):
        reader = FilteringReader(
            Options({**options, "subjects": f"{stream.name}.*"}), SCHEMA
        )
        reader.pushFilters([nowhere])
        assert reader.partitions() == []


def test_many_subjects_are_not_asked_for_one_by_one(
    options: dict[str, str],
    js: jsync.JetStream,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each would have a memory stream search all of its messages, for each partition."""
    asked = []
    get_message = jsync.Stream.get_message

    def counted(self: jsync.Stream, *args: Any, **more: Any) -> jsync.StoredMessage:
        asked.append(more)
        return get_message(self, *args, **more)

    monkeypatch.setattr(jsync.Stream, "get_message", counted)
    with js.publisher() as publisher:
        for number in range(2000):
            publisher.publish(f"{stream.name}.{number}", b"")
    wanted = list(range(0, 2000, 10))
    subjects = ",".join(f"{stream.name}.{number}" for number in wanted)
    reader = batch(options, subjects=subjects, minPartitions=4)
    planned = reader.partitions()
    assert len(planned) == 4
    assert sequences(reader, planned) == [number + 1 for number in wanted]
    assert asked == []


def test_small_streams_share_a_partition_and_keep_their_order(
    options: dict[str, str], js: jsync.JetStream, unique: str
) -> None:
    names = [f"{unique}S{number}" for number in range(40)]
    made = [
        js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
        for name in names
    ]
    for stream in made:
        fill(js, stream, *numbers(3))
    given = {name: value for name, value in options.items() if name != "stream"}
    given["streams"] = ",".join(names)
    reader = streaming(given)
    start = reader.initialOffset()
    end = latest(reader, start)
    planned = reader.partitions(start, end)
    assert len(planned) == 3
    found = [
        (row["stream"], row["sequence"])
        for part in planned
        for records in reader.read(part)
        for row in records.to_pylist()
    ]
    assert found == [(name, number) for name in names for number in (1, 2, 3)]
    # Another run does the batch again with the same partitions, whatever its options say.
    again = streaming(given, maxPartitions=1)
    repeated = again.partitions(start, end)
    assert [part.value for part in repeated] == [part.value for part in planned]
    for stream in made:
        fill(js, stream, *numbers(2))
    assert len(again.partitions(end, latest(again, end))) == 1
    wider = streaming(given, minPartitions=30)
    assert len(wider.partitions(end, latest(wider, end))) == 30
    for stream in made:
        stream.delete()
