"""Tests of streams of every kind, and of options that are rejected before a query runs.

The tests call the readers as Spark does, but without Spark.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    In,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StringType, StructField, StructType

import jsync
from jsync import errors
from jsync.spark.data_source import JetStreamDataSource
from jsync.spark.options import Options
from jsync.spark.source import JetStreamReader, PushdownReader

from ..support.servers import wait_for
from .engine import SCHEMA, batch, latest, sequences, streaming
from .support import LONG, fill, numbers

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


@pytest.mark.parametrize(
    ("call", "options", "what"),
    [
        ("reader", {"subject": "a.b"}, "is it subjects?"),
        ("streamReader", {"delivery": "exactly-once"}, "is for a write"),
        ("writer", {"subjects": "a.b"}, "is it subject?"),
        ("streamWriter", {"startingOffsets": "earliest"}, "is for a read"),
    ],
)
def test_reads_and_writes_refuse_options_of_each_other(
    call: str, options: dict[str, str], what: str
) -> None:
    """An option that has no effect would be a read of all messages, for example."""
    source = JetStreamDataSource({"stream": "A", **options})
    more = {"overwrite": False} if "riter" in call else {}
    with pytest.raises(errors.ConfigError, match=what):
        getattr(source, call)(schema=SCHEMA, **more)


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_reading_work_queues_leaves_their_messages_to_workers(
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


def test_a_mirror_keeps_origin_sequences_unlike_sourced_streams(
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
    # Messages stored within the same microsecond have the same timestamp.
    assert found[0] <= 3 <= found[-1] <= 6
    assert stream.get_message(found[0]).timestamp == third
    later = batch(options, startingTimestamp=4_102_444_800_000)
    assert sequences(later, later.partitions()) == []


@pytest.mark.parametrize(
    ("early", "late"),
    [
        ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
        ("1500-01-01T00:00:00Z", "2300-01-01T00:00:00Z"),
    ],
)
def test_uncountable_moments_lie_before_or_after_all_messages(
    options: dict[str, str],
    js: jsync.JetStream,
    stream: jsync.Stream,
    early: str,
    late: str,
) -> None:
    """A server counts nanoseconds in 64 bits, and takes such a time for another one."""
    fill(js, stream, *numbers(9))
    del options["startingOffsets"]
    reader = batch(options, startingTimestamp=early, endingTimestamp=late)
    assert sequences(reader, reader.partitions()) == list(range(1, 10))
    for nothing in ({"startingTimestamp": late}, {"endingTimestamp": early}):
        reader = batch(options, **nothing)
        assert sequences(reader, reader.partitions()) == []
    ends = [datetime.fromisoformat(each) for each in (early, late)]
    filtered = PushdownReader(Options(options), SCHEMA)
    filtered.pushFilters(
        [GreaterThan(("timestamp",), ends[0]), LessThan(("timestamp",), ends[1])]
    )
    assert sequences(filtered, filtered.partitions()) == list(range(1, 10))


def test_the_admitted_rows_are_shared_by_the_streams(
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


def test_an_added_stream_begins_like_a_new_one(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """This holds even before the stream has new messages, because `latest` changes all the time."""
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
    with pytest.raises(errors.CheckpointError, match=f"also has stream {other.name}"):
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


def test_a_rejection_by_servers_raises_on_the_driver(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    name = stream.name
    wanted = f"there is no stream '{name}E': did you mean '{name}'?"
    with pytest.raises(errors.StreamNotFoundError, match=re.escape(wanted)) as gone:
        batch({**options, "stream": f"{name}E"}).partitions()
    assert gone.value.err_code == 10059
    with pytest.raises(errors.StreamNotFoundError, match="'zzz': create it first"):
        streaming({**options, "stream": "zzz"}).initialOffset()
    with pytest.raises(errors.ConfigError, match="subject"):
        batch(options, subjects=f"{name}..x").partitions()
    with pytest.raises(errors.ConnectionError, match=r"cannot connect to 127.0.0.1:1"):
        batch({**options, "nats.servers": "nats://127.0.0.1:1"}).partitions()


def test_a_column_of_another_type_needs_a_cast(
    options: dict[str, str],
) -> None:
    schema = StructType([StructField("data", StringType())])
    with pytest.raises(errors.ConfigError, match="cast it after reading"):
        JetStreamReader(Options(options), schema)


def test_a_schema_has_each_column_once(options: dict[str, str]) -> None:
    schema = StructType([StructField("subject", StringType()) for _ in range(2)])
    with pytest.raises(errors.ConfigError, match="have the name subject: drop one"):
        JetStreamReader(Options(options), schema)


def test_a_message_matching_two_subjects_is_read_once(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """A server refuses a consumer with a filter that another one covers."""
    name = stream.name
    for subject in ("a.b", "a.c", "c.b") * 3:
        js.publish(f"{name}.{subject}", b"")
    subjects = f"{name}.*.b,{name}.a.*"
    for filters in (subjects, f"{name}.*.b,{name}.a.b,{name}.>"):
        for mode in ("direct", "consumer"):
            reader = batch(options, readMode=mode, subjects=filters, minPartitions=2)
            assert sequences(reader, reader.partitions()) == list(range(1, 10))


def test_pushed_filters_narrow_the_requests(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """The source also returns each filter to Spark, which therefore checks the rows again."""
    fill(js, stream, *numbers(100))
    filters: list[Filter] = [
        In(("subject",), (f"{stream.name}.0", f"{stream.name}.1")),
        GreaterThan(("sequence",), 40),
        LessThanOrEqual(("sequence",), 50),
        EqualTo(("stream",), stream.name),
        LessThan(("timestamp",), stream.get_message(1).timestamp + timedelta(hours=1)),
    ]
    reader = PushdownReader(
        Options({**options, "subjects": f"{stream.name}.*"}), SCHEMA
    )
    assert list(reader.pushFilters(filters)) == filters
    expected = [number for number in range(41, 51) if number % 3 != 0]
    assert sequences(reader, reader.partitions()) == expected
    for nowhere in (EqualTo(("subject",), "elsewhere"), EqualTo(("stream",), "OTHER")):
        reader = PushdownReader(
            Options({**options, "subjects": f"{stream.name}.*"}), SCHEMA
        )
        reader.pushFilters([nowhere])
        assert reader.partitions() == []


def test_many_subjects_need_no_request_for_each(
    options: dict[str, str],
    js: jsync.JetStream,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a request for each, a memory stream would search all its messages for each partition."""
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


def test_small_streams_share_a_partition_in_their_order(
    options: dict[str, str], js: jsync.JetStream, unique: str
) -> None:
    names = [f"{unique}S{number}" for number in range(70)]
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
    assert len(planned) == 2
    found = [
        (row["stream"], row["sequence"])
        for part in planned
        for records in reader.read(part)
        for row in records.to_pylist()
    ]
    assert found == [(name, number) for name in names for number in (1, 2, 3)]
    # A restarted query repeats the batch with the same partitions, whatever its options are.
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


def test_each_stream_begins_and_ends_at_its_moment(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    other = js.create_stream(name=f"{stream.name}B", subjects=[f"{stream.name}B.>"])
    names = (stream.name, other.name)
    for each in (stream, other):
        for payload in numbers(5):
            js.publish(f"{each.name}.0", payload)
    times = {
        (name, n): js.stream(name).get_message(n).timestamp.isoformat()
        for name in names
        for n in range(1, 6)
    }
    del options["startingOffsets"], options["stream"]
    reader = batch(
        {**options, "streams": ",".join(names)},
        startingTimestamp=json.dumps(
            {names[0]: times[names[0], 2], names[1]: times[names[1], 4]}
        ),
        endingTimestamp=json.dumps(
            {names[0]: times[names[0], 4], names[1]: "2099-01-01T00:00:00Z"}
        ),
    )
    assert sequences(reader, reader.partitions()) == [2, 3, 4, 5]
    other.delete()


def test_a_pattern_is_resolved_for_each_batch(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(3))
    del options["stream"], options["startingOffsets"]
    options["streamPattern"] = f"{stream.name}.*"
    reader = streaming(options)  # from the latest offset on
    start = reader.initialOffset()
    assert latest(reader, start) == start
    other = js.create_stream(name=f"{stream.name}B", subjects=[f"{stream.name}B.>"])
    js.create_key_value(bucket=f"{stream.name}").put("a", b"1")
    fill(js, other, *numbers(4))
    # A stream that was created later is read from its beginning.
    end = latest(reader, start)
    assert end["streams"].keys() == {stream.name, other.name}
    assert sequences(reader, reader.partitions(start, end)) == [1, 2, 3, 4]
    # The same applies if no query was running at the time.
    assert sequences(streaming(options), streaming(options).partitions(start, end)) == [
        *(1, 2, 3, 4)
    ]
    other.delete()
    with pytest.raises(errors.DataLossError, match=f"{other.name} no longer exists"):
        latest(reader, end)
    going_on = streaming(options, failOnDataLoss="false")
    after = latest(going_on, end)
    assert after["streams"].keys() == {stream.name}
    assert latest(going_on, after) == after
    found = batch(options)
    assert sequences(found, found.partitions()) == [1, 2, 3]
    js.delete_key_value(f"{stream.name}")


def test_a_stream_created_before_a_repeat_is_read(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """The first batch was not committed, so a new process asks for the start again."""
    del options["stream"], options["startingOffsets"]
    options["streamPattern"] = f"{stream.name}.*"
    reader = streaming(options)  # from the latest offset on
    start = reader.initialOffset()
    fill(js, stream, *numbers(2))
    end = latest(reader, start)
    other = js.create_stream(name=f"{stream.name}B", subjects=[f"{stream.name}B.>"])
    fill(js, other, *numbers(4))
    again = streaming(options)
    parts = again.partitions(again.initialOffset(), end)
    assert sequences(again, parts) == [1, 2]
    after = latest(again, end)
    assert sequences(again, again.partitions(end, after)) == [1, 2, 3, 4]
    other.delete()


def test_a_query_ends_with_its_initial_streams(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(3))
    del options["stream"]
    options["streamPattern"] = f"{stream.name}.*"
    reader = streaming(options)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    other = js.create_stream(name=f"{stream.name}B", subjects=[f"{stream.name}B.>"])
    fill(js, other, *numbers(2))
    end = latest(reader, start)
    assert end["streams"].keys() == {stream.name}
    assert latest(reader, end) == end
    other.delete()


def test_few_messages_wait_for_more_or_the_delay(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(2))
    reader = streaming(options, minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    start = latest(reader, reader.initialOffset())
    assert start["streams"][stream.name]["next"] == 3, "the first batch does not wait"
    fill(js, stream, *numbers(4))
    assert latest(reader, start) == start
    fill(js, stream, b"the fifth")
    assert latest(reader, start)["streams"][stream.name]["next"] == 8
    soon = streaming(options, minOffsetsPerTrigger=500, maxTriggerDelay="1ms")
    end = latest(soon, start)
    fill(js, stream, b"one more")
    wait_for(lambda: latest(soon, end) != end, LONG)
    # Any available messages are read, even if they are few.
    now = streaming(options, minOffsetsPerTrigger=500)
    now.prepareForTriggerAvailableNow()
    first = latest(now, start)
    assert first != start
