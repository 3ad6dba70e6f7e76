"""Tests of reading the messages of a stream as a batch."""

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
def test_the_schema_chooses_the_columns_that_are_read(
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


def test_filters_limit_the_requested_messages_if_spark_allows(
    spark: SparkSession, reading: Reading, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """The rows are the same with and without the conf. With it, only those rows are requested."""
    fill(js, stream, *numbers(300))
    frame = reading.batch(
        stream, "subject string, sequence bigint, timestamp timestamp"
    )
    middle = stream.get_message(150).timestamp
    wanted = (
        frame.filter(frame.subject.isin(f"{stream.name}.1", f"{stream.name}.2"))
        .filter((frame.sequence > 100) & (frame.sequence <= 110))
        .filter(frame.timestamp <= middle)
        .filter(frame.subject.startswith(f"{stream.name}."))
    )
    expected = [101, 102, 104, 105, 107, 108, 110]
    assert sorted(row.sequence for row in wanted.collect()) == expected
    assert frame.filter("subject = 'x y'").count() == 0
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert sorted(row.sequence for row in wanted.collect()) == expected
        assert frame.filter("subject = 'x y'").count() == 0
        narrow = frame.filter("stream = 'x'") if "stream" in frame.columns else frame
        assert narrow.filter("sequence = 7").collect()[0].sequence == 7
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_sql_reads_a_table_of_a_stream(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(6))
    spark.sql(
        f"create table orders_of_{stream.name} using jetstream options "
        f"(stream '{stream.name}', 'nats.servers' '{server.url}', delivery 'at-least-once')"
    )
    try:
        found = spark.sql(
            f"select subject, count(*) n, sum(cast(cast(data as string) as int)) total "
            f"from orders_of_{stream.name} group by subject order by subject"
        )
        assert [(row.n, row.total) for row in found.collect()] == [
            (2, 5),
            (2, 7),
            (2, 9),
        ]
    finally:
        spark.sql(f"drop table orders_of_{stream.name}")


def test_a_table_that_lost_its_options_gives_advice(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(3))
    name = f"orders_of_{stream.name}"
    options = f"(stream '{stream.name}', 'nats.servers' '{server.url}')"
    columns = "(subject string, data binary)"
    spark.sql(f"create table {name} {columns} using jetstream options {options}")
    try:
        for lost in (
            f"select * from {name}",
            f"insert into {name} values ('{stream.name}.x', cast('x' as binary))",
        ):
            with pytest.raises(
                Exception, match="leave the list out, as in create table"
            ):
                spark.sql(lost).collect()
    finally:
        spark.sql(f"drop table {name}")
    spark.sql(
        f"create temporary view {name} {columns} using jetstream options {options}"
    )
    try:
        assert spark.table(name).columns == ["subject", "data"]
        assert spark.table(name).count() == 3
    finally:
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"nats_password": "s3cret"}, "would show a secret in plans and logs"),
        ({"subjects": "a..b"}, "ConfigError: filter_subjects"),
        ({"schema": "payload binary"}, "no column payload"),
    ],
)
def test_a_bad_option_shows_one_error_without_secrets(
    reading: Reading, stream: jsync.Stream, options: dict[str, str], wanted: str
) -> None:
    def read() -> None:
        reading.batch(stream, **options).collect()

    with pytest.raises(Exception, match=wanted) as failed:
        read()
    assert "s3cret" not in str(failed.value)
