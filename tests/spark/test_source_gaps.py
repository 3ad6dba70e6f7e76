"""Tests of planning reads of streams that have far fewer messages than sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from jsync.spark.connection import close_connections
from jsync.spark.pipeline.progress import lag

from . import engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsync
    from jsync.server import LocalServer


@pytest.fixture
def gaps(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    """A stream that keeps one message for each subject: 1001 of 30,000."""
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", max_msgs_per_subject=1
    )
    with js.publisher() as publisher:
        publisher.publish(f"{unique}.first", b"x")
        for number in range(29_999):
            publisher.publish(f"{unique}.{number % 1000}", b"x")
    yield stream
    stream.delete()
    close_connections()


@pytest.fixture
def mixed(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    """A stream of 40,000 messages, of which one of 100 is on the subject `rare`."""
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"], storage="memory")
    with js.publisher() as publisher:
        for number in range(40_000):
            rare = number % 100 == 0
            publisher.publish(f"{unique}.{'rare' if rare else 'other'}", b"x" * 100)
    yield stream
    stream.delete()
    close_connections()


def options_of(server: LocalServer, stream: jsync.Stream) -> dict[str, str]:
    return {
        "nats.servers": server.url,
        "stream": stream.name,
        "startingOffsets": "earliest",
    }


def test_gaps_leave_partitions_even(server: LocalServer, gaps: jsync.Stream) -> None:
    reader = engine.batch(options_of(server, gaps), minPartitions=8)
    parts = reader.partitions()
    counts = [len(engine.sequences(reader, [part])) for part in parts]
    assert sum(counts) == 1001
    assert len(counts) == 8
    assert max(counts) <= 1001 / 8 * 1.1


def test_the_lag_counts_messages_and_no_gaps(
    server: LocalServer, gaps: jsync.Stream
) -> None:
    reader = engine.streaming(options_of(server, gaps))
    start = reader.initialOffset()
    engine.latest(reader, start)
    source = {"endOffset": start, "latestOffset": reader.reportLatestOffset()}
    assert lag({"sources": [source]}) == 1001


def test_a_limit_counts_matching_messages(
    server: LocalServer, mixed: jsync.Stream
) -> None:
    reader = engine.streaming(
        options_of(server, mixed),
        subjects=f"{mixed.name}.rare",
        maxOffsetsPerTrigger=150,
    )
    offset, counts, found = reader.initialOffset(), [], []
    while True:
        end = reader.latestOffset(offset, reader.getDefaultReadLimit())
        if end == offset:
            break
        read = engine.sequences(reader, reader.partitions(offset, end))
        counts.append(len(read))
        found += read
        offset = end
    assert found == list(range(1, 40_001, 100))
    assert len(counts) == 3
    assert max(counts) <= 150


def test_a_minimum_counts_matching_messages(
    server: LocalServer, js: jsync.JetStream, mixed: jsync.Stream
) -> None:
    reader = engine.streaming(
        options_of(server, mixed),
        subjects=f"{mixed.name}.rare",
        minOffsetsPerTrigger=50,
        maxTriggerDelay="1h",
    )
    start = engine.latest(reader, reader.initialOffset())  # the first does not wait
    with js.publisher() as publisher:
        for _ in range(60):
            publisher.publish(f"{mixed.name}.other", b"x")
            publisher.publish(f"{mixed.name}.rare", b"x")
    end = engine.latest(reader, start)
    assert len(engine.sequences(reader, reader.partitions(start, end))) == 60
    with js.publisher() as publisher:
        for _ in range(60):
            publisher.publish(f"{mixed.name}.other", b"x")
        publisher.publish(f"{mixed.name}.rare", b"x")
    assert engine.latest(reader, end) == end


def test_large_messages_are_several_partitions(
    server: LocalServer, mixed: jsync.Stream
) -> None:
    reader = engine.batch(options_of(server, mixed), maxPartitionBytes=2_000_000)
    parts = reader.partitions()
    assert len(parts) > 2
    assert len(engine.sequences(reader, parts)) == 40_000
    few = engine.batch(
        options_of(server, mixed), maxPartitionBytes=100_000, maxPartitions=2
    )
    assert len(few.partitions()) == 2


def test_an_offset_repeats_its_partitions(
    server: LocalServer, gaps: jsync.Stream
) -> None:
    reader = engine.streaming(options_of(server, gaps), minPartitions=4)
    start = reader.initialOffset()
    end = engine.latest(reader, start)
    first = reader.partitions(start, end)
    again = engine.streaming(options_of(server, gaps)).partitions(start, end)
    assert [part.value for part in again] == [part.value for part in first]
    assert len(engine.sequences(reader, again)) == 1001


def test_a_stream_that_counts_nothing_is_read(
    server: LocalServer, js: jsync.JetStream, mixed: jsync.Stream
) -> None:
    """A stream may permit no more consumers while its messages are counted."""
    reader = engine.batch(
        options_of(server, mixed), subjects=f"{mixed.name}.rare", minPartitions=4
    )
    reader.range_of(mixed.name)  # checks that the stream can be read
    config = mixed.leader_info().config
    mixed.create_consumer(ack_policy="none", mem_storage=True, inactive_threshold=600)
    js.update_stream(msgspec.structs.replace(config, max_consumers=1))
    parts = reader.partitions()
    assert len(parts) == 4
