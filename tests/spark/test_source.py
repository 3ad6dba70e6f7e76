"""Reading what a stream holds, as a batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from .support import Reading, fill, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import jsync
    from jsync.server import LocalServer


def test_a_stream_is_a_dataframe_without_any_registration(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(10))
    frame = (
        spark.read.format("jetstream")
        .option("nats.servers", server.url)
        .option("stream", stream.name)
        .load()
    )
    assert frame.dtypes == [
        ("stream", "string"),
        ("subject", "string"),
        ("sequence", "bigint"),
        ("timestamp", "timestamp"),
        ("data", "binary"),
    ]
    rows = sorted(frame.collect(), key=lambda row: row.sequence)
    expected = [(m.subject, m.sequence, m.data) for m in stream.get_messages()]
    assert [(r.subject, r.sequence, bytes(r.data)) for r in rows] == expected
    assert {row.stream for row in rows} == {stream.name}
    stored = stream.get_message(10).timestamp
    assert rows[-1].timestamp.timestamp() == pytest.approx(stored.timestamp(), abs=1e-6)


def test_headers_come_when_they_are_asked_for(
    reading: Reading, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    subject = f"{stream.name}.x"
    js.publish(subject, b"one", headers={"Kind": ["a", "b"], "Trace": "7"})
    js.publish(subject, b"two")
    frame = reading.batch(stream, includeHeaders=True)
    one, two = sorted(frame.collect(), key=lambda row: row.sequence)
    assert one.headers == {"Kind": ["a", "b"], "Trace": ["7"]}
    assert two.headers is None


@pytest.mark.parametrize("mode", ["consumer", "direct"])
def test_a_schema_says_which_columns_are_read(
    reading: Reading, js: jsync.JetStream, stream: jsync.Stream, mode: str
) -> None:
    subject = f"{stream.name}.x"
    js.publish(subject, b"one", headers={"Kind": ["a", "b"]})
    js.publish(subject, b"two")
    frame = reading.batch(
        stream,
        "sequence bigint, headers map<string,array<string>>, stream string",
        readMode=mode,
    )
    assert [tuple(row) for row in sorted(frame.collect())] == [
        (1, {"Kind": ["a", "b"]}, stream.name),
        (2, None, stream.name),
    ]


@pytest.mark.parametrize("mode", ["consumer", "direct"])
def test_subjects_and_sequences_say_which_rows_are_read(
    reading: Reading, js: jsync.JetStream, stream: jsync.Stream, mode: str
) -> None:
    fill(js, stream, *numbers(20))
    frame = reading.batch(
        stream,
        subjects=f"{stream.name}.0, {stream.name}.2",
        startingOffsets=4,
        endingOffsets=10,
        readMode=mode,
    )
    found = sorted((row.sequence, bytes(row.data)) for row in frame.collect())
    assert found == [(n, b"%d" % n) for n in (4, 6, 7, 9)]


def test_several_streams_are_one_frame(
    reading: Reading, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    other = js.create_stream(name=f"{stream.name}B", subjects=[f"{stream.name}B.>"])
    fill(js, stream, *numbers(5))
    fill(js, other, *numbers(5))
    start = json.dumps({stream.name: 4, other.name: "earliest"})
    both = f"{stream.name},{other.name}"
    frame = reading.batch(both, startingOffsets=start)
    found = sorted((row.stream, row.sequence) for row in frame.collect())
    assert found == [
        *((stream.name, n) for n in (4, 5)),
        *((other.name, n) for n in range(1, 6)),
    ]
    other.delete()
