"""Tests of writing to a stream that was restored to older data: missing rows are reported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync.spark.sink.fence_state import Committed, Digest, encode

from ..support.campaign import seeded
from .campaign import KILLS
from .restoring import Restorable
from .sink_support import run, stored, with_columns, write
from .test_sink_streaming import add_file, lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

SUBJECTS = ["A.>"]


@pytest.fixture
def restorable(tmp_path: Path) -> Iterator[Restorable]:
    restorable = Restorable(tmp_path)
    with jsync.connect(restorable.server.url) as nc:
        nc.jetstream().create_stream(name="A", subjects=SUBJECTS)
    yield restorable
    restorable.close()


def write_batch(spark: SparkSession, restorable: Restorable, batch: int) -> None:
    """Write ten rows as the batch of that number in one job."""
    frame = with_columns(spark.range(10 * batch, 10 * batch + 10, 1, 2), "A")
    write(
        frame,
        restorable.server,
        stream="A",
        delivery="exactly-once",
        jobId="j",
        jobBatch=batch,
    )


def found(restorable: Restorable) -> list[int]:
    with jsync.connect(restorable.server.url) as nc:
        stream = nc.jetstream().stream("A")
        return sorted(int(data) for (data,) in stored(stream, "data"))


def restore_older(restorable: Restorable, stream: jsync.Stream) -> None:
    restorable.restore("A")


def restore_and_fill(restorable: Restorable, stream: jsync.Stream) -> None:
    """Restore the stream, and publish other messages until it has as many as before."""
    restorable.restore("A")
    with jsync.connect(restorable.server.url) as nc:
        js = nc.jetstream()
        for number in range(1000, 1030):
            js.publish("A.other", b"%d" % number)


def recreate(restorable: Restorable, stream: jsync.Stream) -> None:
    stream.delete()
    with jsync.connect(restorable.server.url) as nc:
        nc.jetstream().create_stream(name="A", subjects=SUBJECTS)


def purge(restorable: Restorable, stream: jsync.Stream) -> None:
    stream.purge()


def delete_the_last(restorable: Restorable, stream: jsync.Stream) -> None:
    stream.delete_message(stream.info().state.last_seq)


def add_another(restorable: Restorable, stream: jsync.Stream) -> None:
    with jsync.connect(restorable.server.url) as nc:
        nc.jetstream().publish("A.other", b"1000")


def change_after_two_batches(
    spark: SparkSession, restorable: Restorable, change: Any
) -> list[int]:
    """Write two batches, change the stream, and return its messages then."""
    write_batch(spark, restorable, 0)
    restorable.back_up("A")
    write_batch(spark, restorable, 1)
    with jsync.connect(restorable.server.url) as nc:
        change(restorable, nc.jetstream().stream("A"))
    return found(restorable)


@pytest.mark.parametrize(
    ("change", "batch"),
    [
        (restore_older, 2),
        (restore_and_fill, 1),
        pytest.param(restore_older, 1, marks=pytest.mark.bulk),
        pytest.param(restore_and_fill, 2, marks=pytest.mark.bulk),
        pytest.param(recreate, 1, marks=pytest.mark.bulk),
        pytest.param(recreate, 2, marks=pytest.mark.bulk),
    ],
)
def test_rows_lost_in_a_restore_end_the_query(
    spark: SparkSession, restorable: Restorable, change: Any, batch: int
) -> None:
    """This holds even if the fence knows the batch.

    If it were skipped, its rows would be missing.
    """
    before = change_after_two_batches(spark, restorable, change)
    what = "stream A (was re|ends at)(?s:.*)Rows up to batch 1 of job.j may be missing"
    with pytest.raises(Exception, match=what):
        write_batch(spark, restorable, batch)
    assert found(restorable) == before
    # The message gives the right advice.
    with jsync.connect(restorable.server.url) as nc:
        bucket = nc.jetstream().stream("KV_jsync_spark")
        for key in ("committed", "begun"):
            bucket.purge(subject=f"$KV.jsync_spark.job.j.{key}")
    write_batch(spark, restorable, batch)
    written = range(10 * batch, 10 * batch + 10)
    assert set(found(restorable)) == {*before, *written}


@pytest.mark.parametrize(
    "change",
    [
        delete_the_last,
        pytest.param(purge, marks=pytest.mark.bulk),
        pytest.param(add_another, marks=pytest.mark.bulk),
    ],
)
def test_messages_added_or_removed_end_no_query(
    spark: SparkSession, restorable: Restorable, change: Any
) -> None:
    before = change_after_two_batches(spark, restorable, change)
    write_batch(spark, restorable, 2)
    assert found(restorable) == sorted([*before, *range(20, 30)])


def test_a_fence_without_the_last_message_gets_it(
    spark: SparkSession, restorable: Restorable
) -> None:
    write_batch(spark, restorable, 0)
    with jsync.connect(restorable.server.url) as nc:
        js = nc.jetstream()
        entry = encode(Committed(0, Digest()))
        js.publish("$KV.jsync_spark.job.j.committed", entry)
        write_batch(spark, restorable, 1)
        message = js.stream("KV_jsync_spark").get_message(
            last_by_subject="$KV.jsync_spark.job.j.committed"
        )
        entry = json.loads(message.data)
    assert (entry["stream"], entry["mark"]["sequence"]) == ("A", 20)


@pytest.mark.parametrize(
    "together", [True, pytest.param(False, marks=pytest.mark.bulk)]
)
def test_a_query_ends_when_its_sink_was_restored(
    spark: SparkSession, restorable: Restorable, tmp_path: Path, together: bool
) -> None:
    """The sink is restored alone, or with the fence, which is then older than the checkpoint."""
    streams = ("A", "KV_jsync_spark") if together else ("A",)
    add_file(tmp_path / "in", "0", range(10))
    frame = with_columns(lines(spark, tmp_path / "in"), "A")

    def run_query() -> None:
        run(
            frame,
            restorable.server,
            tmp_path / "checkpoint",
            stream="A",
            delivery="exactly-once",
        )

    run_query()
    restorable.back_up(*streams)
    add_file(tmp_path / "in", "1", range(10, 20))
    run_query()
    restorable.restore(*streams)
    add_file(tmp_path / "in", "2", range(20, 30))
    what = "fence(?s:.*)was restored" if together else "stream A ends at sequence 10"
    with pytest.raises(Exception, match=what):
        run_query()
    assert found(restorable) == list(range(10))


@pytest.mark.fault
@pytest.mark.parametrize("restore", range(KILLS))
def test_restoring_any_older_batch_ends_the_query(
    spark: SparkSession, restorable: Restorable, restore: int
) -> None:
    """Other programs have stored messages since, or not."""
    moment = seeded(restore)
    kept, batches = moment.randrange(1, 3), moment.randrange(3, 5)
    for batch in range(batches):
        if batch == kept:
            restorable.back_up("A")
        write_batch(spark, restorable, batch)
    restorable.restore("A")
    others = moment.randrange(2) * moment.randrange(1, 20 * batches)
    with jsync.connect(restorable.server.url) as nc:
        js = nc.jetstream()
        for number in range(others):
            js.publish("A.other", b"%d" % (1000 + number))
    what = "stream A (was re|ends at)(?s:.*)Rows up to batch"
    with pytest.raises(Exception, match=what):
        write_batch(spark, restorable, batches)
    assert found(restorable) == [
        *range(10 * kept),
        *range(1000, 1000 + others),
    ]
