"""Tests of writing a DataFrame into a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import nats
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

import jsync
from jsync import errors
from jsync.spark.sink.fence_state import BatchStarted, encode

from .sink_support import numbers, stored, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jsync.server import LocalServer

MAP = "subject string, data string, headers map<string,string>"


def entry_of(js: jsync.JetStream, key: str, bucket: str = "jsync_spark") -> Any:
    """Return the value of a key of the fence."""
    message = js.stream(f"KV_{bucket}").get_message(
        last_by_subject=f"$KV.{bucket}.{key}"
    )
    return json.loads(message.data)


def put_entry(js: jsync.JetStream, key: str, entry: BatchStarted) -> None:
    js.publish(f"$KV.jsync_spark.{key}", encode(entry))


@pytest.mark.parametrize("publisher", ["ingest", "async"])
def test_rows_are_messages(
    spark: SparkSession, server: LocalServer, stream: jsync.Stream, publisher: str
) -> None:
    stream.update(allow_batched=True)
    frame = numbers(spark, stream, 25_000).drop("msg_id")
    write(frame, server, stream=stream.name, publisher=publisher)
    found = stored(stream, "subject", "data")
    assert sorted(found, key=lambda row: int(row[1])) == [
        (f"{stream.name}.{n % 3}", b"%d" % n) for n in range(25_000)
    ]


@pytest.mark.sparks
@pytest.mark.parametrize("publisher", ["ingest", "async"])
def test_each_part_of_a_message_is_a_column(
    spark: SparkSession,
    server: LocalServer,
    js: jsync.JetStream,
    unique: str,
    publisher: str,
) -> None:
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        storage="memory",
        allow_msg_ttl=True,
        allow_batched=True,
    )
    rows: list[tuple[object, ...]] = [
        (
            *(f"{unique}.a", bytearray(b"\x00\xff"), {"A": ["1", "2"], "B": ["é"]}),
            *("x", 60, 0, unique),
        ),
        (f"{unique}.b", bytearray(), None, None, None, None, None),
    ]
    frame = spark.createDataFrame(
        rows,
        "subject string, data binary, headers map<string,array<string>>, msg_id string, "
        "ttl int, expected_last_subject_sequence bigint, expected_stream string",
    )
    write(frame.coalesce(1), server, stream=unique, publisher=publisher)
    (first, second) = stored(stream, "subject", "data", "headers")
    assert first[:2] == (f"{unique}.a", b"\x00\xff")
    assert dict(first[2]) == {
        "A": ["1", "2"],
        "B": ["é"],
        "Nats-Msg-Id": ["x"],
        "Nats-TTL": ["60s"],
        "Nats-Expected-Last-Subject-Sequence": ["0"],
        "Nats-Expected-Stream": [unique],
    }
    assert second == (f"{unique}.b", b"", None)
    stream.delete()


def test_a_subject_given_as_option_finds_its_stream(
    spark: SparkSession, server: LocalServer, stream: jsync.Stream
) -> None:
    frame = spark.createDataFrame([("1",), ("2",)], "data string")
    # With this option, the sink takes no subjects from a column.
    write(frame.coalesce(1), server, subject=f"{stream.name}.data")
    assert stored(stream, "subject", "data") == [
        (f"{stream.name}.data", b"1"),
        (f"{stream.name}.data", b"2"),
    ]


def test_nothing_to_write_is_written(
    spark: SparkSession, server: LocalServer, stream: jsync.Stream
) -> None:
    write(numbers(spark, stream, 0), server, stream=stream.name)
    assert stored(stream, "data") == []


@pytest.mark.parametrize(
    ("columns", "options", "what"),
    [
        (["data", "id"], {}, "a message has no id"),
        (["data"], {"deadLetterSubject": "nobody.takes"}, "nobody.takes"),
        (["data"], {"mode": "overwrite"}, "allowPurge=true"),
    ],
)
def test_bad_options_are_rejected_before_rows_are_sent(
    spark: SparkSession,
    server: LocalServer,
    stream: jsync.Stream,
    columns: list[str],
    options: dict[str, str],
    what: str,
) -> None:
    frame = spark.range(3).selectExpr("cast(id as string) data", "id").select(*columns)
    given = {"subject": f"{stream.name}.x", "stream": stream.name, **options}
    with pytest.raises(PySparkException, match=what):
        write(frame, server, **given)
    assert stored(stream, "data") == []


def test_overwrite_purges_once(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    js.publish(f"{stream.name}.old", b"old")
    frame = numbers(spark, stream, 5000).drop("msg_id")
    options = {"stream": stream.name, "allowPurge": "true"}
    write(frame, server, "overwrite", **options)
    assert len(stored(stream, "data")) == 5000
    assert stream.info().state.first_seq == 2


def test_a_bad_row_fails_its_task_with_counts(
    spark: SparkSession, server: LocalServer, stream: jsync.Stream
) -> None:
    frame = spark.createDataFrame(
        [(f"{stream.name}.x", str(n) if n != 2500 else None) for n in range(3000)],
        "subject string, data string",
    ).coalesce(1)
    with pytest.raises(PySparkException, match="data: row 2500 is null") as caught:
        write(frame, server, stream=stream.name, publisher="async")
    assert "rows of this task are stored" in str(caught.value)
    with pytest.raises(PySparkException, match="does not take the subject 'other'"):
        write(
            spark.createDataFrame([("other", "1")], "subject string, data string"),
            server,
            stream=stream.name,
        )


@pytest.mark.sparks
def test_rows_that_cannot_be_published_become_dead_letters(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, unique: str
) -> None:
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", max_msg_size=2000
    )
    dead = js.create_stream(
        name=f"{unique}-dead", subjects=[f"dead.{unique}"], storage="memory"
    )
    good: list[Any] = [(f"{unique}.a", str(n), {}) for n in range(3000)]
    bad = [
        (f"{unique}.a", None, {}),
        (None, "no subject", {}),
        (f"{unique}.a b", "blank", {}),
        ("other.x", "not ours", {"Own": "1"}),
        (f"{unique}.a", "a" * 3000, {"Own": "2"}),
        (f"{unique}.a", "b" * 2_000_000, {}),
        (f"{unique}.a", "line", {"Own": "a\nb"}),
        (f"{unique}.a", "heads", {"Own": "c" * 70_000}),
    ]
    rows = [*good[:700], *bad[:3], *good[700:2500], *bad[3:], *good[2500:]]
    frame = spark.createDataFrame(rows, MAP).coalesce(1)
    write(
        frame,
        server,
        stream=unique,
        deadLetterSubject=f"dead.{unique}",
        fenceBucket=f"b{unique}",
        jobId="dead",
    )
    assert stored(stream, "data") == [(str(n).encode(),) for n in range(3000)]
    letters = [
        (bytes(data[:10]), {name: value for name, (value,) in headers})
        for data, headers in stored(dead, "data", "headers")
    ]
    assert len(letters) == len(bad)
    reasons = sorted(
        (headers["Dead-Letter-Reason"], headers.get("Dead-Letter-Subject"))
        for _, headers in letters
    )
    found = "; ".join(reason for reason, _ in reasons)
    for reason in ("null", "subject", "max_payload", "line break", "10054", "not take"):
        assert reason in found, found
    assert (b"a" * 10, "2", f"{unique}.a") in [
        (data, headers.get("Own"), headers["Dead-Letter-Subject"])
        for data, headers in letters
        if "Dead-Letter-Subject" in headers
    ]
    assert [
        headers["Dead-Letter-Headers-Size"]
        for data, headers in letters
        if data == b"heads"
    ] == ["70007"]
    report = entry_of(js, "job.dead.committed", f"b{unique}")["report"]
    assert report["rows"] == 3008
    assert report["confirmed"] == 3000
    assert report["dead_letters"] == len(bad)
    stream.delete()
    dead.delete()


@pytest.mark.sparks
def test_a_job_that_runs_again_doubles_no_row(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    js.publish(f"{stream.name}.0", b"0", msg_id="n0")
    options = {"stream": stream.name, "delivery": "exactly-once", "jobId": stream.name}
    write(numbers(spark, stream, 3000), server, **options)
    report = entry_of(js, f"job.{stream.name}.committed")["report"]
    assert report == {
        "rows": 3000,
        "confirmed": 3000,
        "duplicates": 1,
        "dead_letters": 0,
        "first_sequence": 2,
        "last_sequence": 3000,
    }
    # This holds even if the stream has forgotten all ids, because the sink asks only the fence.
    stream.purge()
    write(numbers(spark, stream, 3000).repartition(3), server, **options)
    assert stored(stream, "data") == []
    with pytest.raises(PySparkException, match="was stored with other rows"):
        write(numbers(spark, stream, 3001), server, **options)
    # Without an id, each run is a new job, and leaves nothing in the bucket.
    del options["jobId"]
    before = js.stream("KV_jsync_spark").info().state.messages
    write(numbers(spark, stream, 3000), server, **options)
    assert js.stream("KV_jsync_spark").info().state.messages == before


@pytest.mark.sparks
def test_an_id_that_comes_back_is_reported(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """A mean changes and returns to an earlier value: the stream drops the third message."""
    job = f"aba-{stream.name}"
    options = {"stream": stream.name, "delivery": "exactly-once", "jobId": job}
    js.publish(f"{stream.name}.other", b"", msg_id="hour/11")
    for batch, mean in enumerate(["10", "11", "12", "10"]):
        frame = spark.createDataFrame(
            [(f"{stream.name}.mean", mean, f"hour/{mean}")],
            "subject string, data string, msg_id string",
        )
        write(frame, server, **options, jobBatch=batch)
        report = entry_of(js, f"job.{job}.committed")["report"]
        # Another program has stored an equal message before this job began.
        assert report["duplicates"] == (mean == "11" or batch == 3)
        assert report.get("collisions", 0) == (batch == 3)
    totals = entry_of(js, f"job.{job}.committed")["totals"]
    assert (totals["duplicates"], totals["collisions"]) == (2, 1)


def test_the_fence_is_a_bucket_that_others_read(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    import asyncio  # noqa: PLC0415

    job = f"kv-{stream.name}"
    options = {"stream": stream.name, "delivery": "exactly-once", "jobId": job}
    write(numbers(spark, stream, 10), server, **options)

    async def read() -> tuple[bytes | None, list[str]]:
        nc = await nats.connect(server.url)
        bucket = await nc.jetstream().key_value("jsync_spark")
        entry = await bucket.get(f"job.{job}.committed")
        keys = await bucket.keys()
        await nc.close()
        return entry.value, keys

    value, keys = asyncio.run(read())
    assert value is not None
    assert json.loads(value)["report"]["confirmed"] == 10
    assert f"job.{job}.begun" in keys


def test_an_interrupted_job_continues_while_ids_are_remembered(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    job = f"half-{stream.name}"
    options = {"stream": stream.name, "delivery": "exactly-once", "jobId": job}
    write(numbers(spark, stream, 0), server, **options)
    put_entry(js, f"job.{job}.begun", BatchStarted(0, "another", 0))
    with js.publisher() as publisher:
        for number in range(0, 3000, 2):
            subject = f"{stream.name}.{number % 3}"
            publisher.publish(subject, b"%d" % number, msg_id=f"n{number}")
    write(numbers(spark, stream, 3000), server, **options)
    found = sorted(int(data) for (data,) in stored(stream, "data"))
    assert found == list(range(3000))
    assert entry_of(js, f"job.{job}.committed")["report"]["duplicates"] == 1500


def test_a_job_interrupted_long_ago_raises_with_advice(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    stream.update(duplicate_window=4.0)
    job = f"late-{stream.name}"
    options = {"stream": stream.name, "delivery": "exactly-once", "jobId": job}
    write(numbers(spark, stream, 0), server, **options)
    put_entry(js, f"job.{job}.begun", BatchStarted(0, "another", 0))
    js.publish(f"{stream.name}.0", b"0", msg_id="n0")
    begun = js.stream("KV_jsync_spark").get_message(
        last_by_subject=f"$KV.jsync_spark.job.{job}.begun"
    )
    while True:  # until the clock of the server is past the duplicate window
        now = js.stream("KV_jsync_spark").info().ts
        assert now is not None
        if (now - begun.timestamp).total_seconds() > 4:
            break
    with pytest.raises(PySparkException, match="ReplayWindowExceededError") as caught:
        write(numbers(spark, stream, 100), server, **options)
    said = str(caught.value)
    assert "stored after sequence 0" in said
    assert stored(stream, "data") == [(b"0",)]
    # The advice in the message solves the problem.
    assert f"job.{job}.begun of the bucket jsync_spark" in said
    stream.purge()
    js.stream("KV_jsync_spark").purge(subject=f"$KV.jsync_spark.job.{job}.begun")
    write(numbers(spark, stream, 100), server, **options)
    assert len(stored(stream, "data")) == 100


def test_a_job_without_stored_rows_may_start_anytime(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    stream.update(duplicate_window=4.0)
    job = f"none-{stream.name}"
    options = {"stream": stream.name, "delivery": "exactly-once", "jobId": job}
    write(numbers(spark, stream, 0), server, **options)
    put_entry(js, f"job.{job}.begun", BatchStarted(0, "another", 0))
    write(numbers(spark, stream, 100), server, **options)
    assert len(stored(stream, "data")) == 100
    assert entry_of(js, f"job.{job}.begun")["run"] != "another"


@pytest.mark.sparks
def test_ids_that_repeat_in_a_task_are_named(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """Each attempt at the job finds them, and without them it is completed."""
    options = {"stream": stream.name, "delivery": "exactly-once", "jobId": stream.name}
    frame = numbers(spark, stream, 300)
    more = frame.where("data in ('7', '8')").withColumn("data", F.lit("other"))
    doubled = frame.union(more).coalesce(1)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    try:
        for _ in range(2):
            with pytest.raises(PySparkException, match=r"4 rows .* msg_id: 'n7', 'n8'"):
                write(doubled, server, **options)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    write(doubled.dropDuplicates(["msg_id"]), server, **options)
    assert len(stored(stream, "data")) == 300
    assert entry_of(js, f"job.{stream.name}.committed")["report"]["confirmed"] == 300


def test_repeated_ids_of_one_batch_send_nothing(
    spark: SparkSession, server: LocalServer, stream: jsync.Stream
) -> None:
    frame = numbers(spark, stream, 5).coalesce(1).withColumn("msg_id", F.lit("a"))
    options = {"stream": stream.name, "delivery": "exactly-once"}
    with pytest.raises(PySparkException, match="5 rows of a task repeat a msg_id: 'a'"):
        write(frame, server, **options)
    assert stored(stream, "data") == []


def test_exactly_once_needs_an_id_in_every_row(
    spark: SparkSession, server: LocalServer, stream: jsync.Stream
) -> None:
    frame = spark.createDataFrame(
        [(f"{stream.name}.x", "1", "a"), (f"{stream.name}.x", "2", None)],
        "subject string, data string, msg_id string",
    ).coalesce(1)
    options = {"stream": stream.name, "delivery": "exactly-once"}
    with pytest.raises(PySparkException, match="msg_id is null in 1 rows"):
        write(frame, server, **options)
    assert stored(stream, "data") == []


def test_a_refused_row_fails_the_write(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    frame = spark.createDataFrame(
        [(f"{stream.name}.x", "1", 5)],
        "subject string, data string, expected_last_sequence bigint",
    )
    with pytest.raises(PySparkException, match="wrong last sequence"):
        write(frame, server, stream=stream.name)
    with pytest.raises(errors.StreamNotFoundError):
        js.stream("NONE")
