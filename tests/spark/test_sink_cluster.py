"""Tests that each row is stored once in replicated streams while leaders step down or die."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Self

import pytest

import jsync
from jsync import errors
from jsync.spark.sink.batch_fence import commit
from jsync.spark.sink.bucket import open_bucket
from jsync.spark.sink.fence_state import Committed, decode
from jsync.spark.sink.report import BatchReport, TaskReport

from ..support.campaign import seeded
from ..support.servers import wait_for
from .campaign import KILLS
from .sink_support import LONG, numbers, stored, with_columns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ..support.servers import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.bulk]

ROWS = 5000
STEPS = 2
FEW = 500


class SteppingDown:
    """Makes the leaders of the stream and of the fence step down during a write."""

    def __init__(self, cluster: Cluster, stream: str) -> None:
        self._cluster = cluster
        self._stream = stream
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rows: list[int] = []
        """The number of stored rows at each loss of a leader of the stream."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with jsync.connect(self._cluster.urls) as nc:
            stream = nc.jetstream().stream(self._stream)
            step_down = "$JS.API.STREAM.LEADER.STEPDOWN."
            while not self._over.is_set() and len(self.rows) < STEPS:
                # For a moment there is no leader that replies.
                with contextlib.suppress(errors.Error):
                    stored = stream.info(timeout=1).state.messages
                    if stored > (self.rows[-1] if self.rows else 0):
                        nc.request(step_down + self._stream, timeout=2)
                        self.rows.append(stored)
                        nc.request(step_down + "KV_jsync_spark", timeout=2)


@pytest.fixture
def replicated(cluster: Cluster, unique: str) -> Iterator[jsync.Stream]:
    with jsync.connect(cluster.urls) as nc:
        js = nc.jetstream(timeout=20)
        stream = js.create_stream(
            name=unique, subjects=[f"{unique}.>"], num_replicas=3, storage="memory"
        )
        yield stream
        stream.delete()
        js.delete_stream("KV_jsync_spark")


def test_leaders_stepping_down_neither_lose_nor_double_rows(
    spark: SparkSession, cluster: Cluster, replicated: jsync.Stream, tmp_path: Path
) -> None:
    options = {
        "nats.servers": ",".join(cluster.urls),
        "stream": replicated.name,
        "delivery": "exactly-once",
    }
    spark.range(ROWS, 2 * ROWS, 1, 2).write.json(str(tmp_path / "in"))
    lines = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", "1")
    streamed = with_columns(lines.json(str(tmp_path / "in")), replicated.name)
    batch = numbers(spark, replicated, ROWS)
    with SteppingDown(cluster, replicated.name) as leaders:
        query = (
            streamed.writeStream.format("jetstream")
            .options(**options, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        batch.write.format("jetstream").options(**options).mode("append").save()
        assert query.awaitTermination(LONG)
    assert leaders.rows, "no leader has stepped down"
    assert leaders.rows[0] < 2 * ROWS, "it was in the middle"
    wait_for(lambda: replicated.info().state.messages >= 2 * ROWS, timeout=30)
    found = sorted(int(data) for (data,) in stored(replicated, "data"))
    assert found == list(range(2 * ROWS))


@pytest.mark.fault
@pytest.mark.parametrize("kill", range(max(3, KILLS)))
def test_exactly_once_batches_survive_lost_leaders_during_planning(
    spark: SparkSession, cluster: Cluster, replicated: jsync.Stream, kill: int
) -> None:
    """The leader dies before the driver starts to plan, or up to a second later."""
    delay = seeded(kill).uniform(0, 1) if kill else 0.0
    writer = numbers(spark, replicated, FEW).write.format("jetstream")
    writer.options(
        **{
            "nats.servers": ",".join(cluster.urls),
            "nats.timeout": "1",  # less than an election takes
            "stream": replicated.name,
            "delivery": "exactly-once",
        }
    )
    leader = cluster.stream_leader(replicated.name)
    killing = threading.Timer(delay, leader.kill)
    try:
        killing.start()
        if not delay:
            killing.join()
        writer.mode("append").save()
    finally:
        killing.join()
        leader.start()
        cluster.wait_until_ready()
    wait_for(lambda: replicated.info().state.messages >= FEW, timeout=30)
    found = sorted(int(data) for (data,) in stored(replicated, "data"))
    assert found == list(range(FEW))


@pytest.mark.parametrize("killed", ["fence", "stream"])
def test_a_commit_waits_for_the_next_leader(
    cluster: Cluster, replicated: jsync.Stream, killed: str
) -> None:
    """The leader has died when the driver commits the rows of its tasks."""
    with jsync.connect(cluster.urls) as nc:
        js = nc.jetstream(timeout=1)  # less than an election takes
        fence = open_bucket(js, "jsync_spark", replicas=3)
        leader = cluster.stream_leader(
            fence.name if killed == "fence" else replicated.name
        )
        leader.kill()
        try:
            report = BatchReport.of([TaskReport(rows=3, confirmed=3, key="query.q")])
            commit(
                lambda: js,
                "jsync_spark",
                "query.q",
                7,
                report,
                fenced=replicated.name,
                last=False,
            )
        finally:
            leader.start()
            cluster.wait_until_ready()
        message = js.stream("KV_jsync_spark").get_message(
            last_by_subject="$KV.jsync_spark.query.q.committed"
        )
        entry = decode(message.data)
    assert isinstance(entry, Committed)
    assert (entry.batch, entry.stream) == (7, replicated.name)


@pytest.mark.fault
@pytest.mark.parametrize("kill", range(KILLS))
@pytest.mark.parametrize("killed", ["fence", "stream"])
def test_a_leader_that_dies_mid_commit_loses_nothing(
    cluster: Cluster, replicated: jsync.Stream, killed: str, kill: int
) -> None:
    """Commit one batch after the other, until one more is committed after the kill."""
    report = BatchReport.of([TaskReport(rows=3, confirmed=3, key="query.q")])
    subject = "$KV.jsync_spark.query.q.committed"
    with jsync.connect(cluster.urls) as nc:
        js = nc.jetstream(timeout=1)  # less than an election takes
        fence = open_bucket(js, "jsync_spark", replicas=3)
        leader = cluster.stream_leader(
            fence.name if killed == "fence" else replicated.name
        )
        dead = threading.Event()

        def kill_leader() -> None:
            leader.kill()
            dead.set()

        killing = threading.Timer(seeded(kill).uniform(0, 0.3), kill_leader)
        killing.start()
        try:
            batch, was_dead = 0, False
            while not was_dead:
                was_dead = dead.is_set()
                commit(
                    lambda: js,
                    "jsync_spark",
                    "query.q",
                    batch,
                    report,
                    fenced=replicated.name,
                    last=False,
                )
                batch += 1
        finally:
            killing.join()
            leader.start()
            cluster.wait_until_ready()
        message = js.stream("KV_jsync_spark").get_message(last_by_subject=subject)
        entry = decode(message.data)
    assert isinstance(entry, Committed)
    assert (entry.batch, entry.stream) == (batch - 1, replicated.name)
