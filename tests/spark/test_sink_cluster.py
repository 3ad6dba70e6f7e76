"""Writing streams of three replicas while their leaders step down: each row once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import pytest

import jsync
from jsync import errors

from ..servers import wait_for
from .sink_support import LONG, numbers, stored, with_columns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ..servers import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.fault]

ROWS = 10_000
STEPS = 2


class SteppingDown:
    """While a write goes on the leaders of the stream and of the fence step down."""

    def __init__(self, cluster: Cluster, stream: str) -> None:
        self._cluster = cluster
        self._stream = stream
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rows: list[int] = []
        """How many were stored when a leader of the stream went."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with jsync.connect(self._cluster.urls) as nc:
            stream = nc.jetstream().stream(self._stream)
            while not self._over.is_set() and len(self.rows) < STEPS:
                try:
                    stored = stream.info(timeout=1).state.messages
                    if stored <= (self.rows[-1] if self.rows else 0):
                        continue
                    for name in (self._stream, "KV_jsync_spark"):
                        subject = f"$JS.API.STREAM.LEADER.STEPDOWN.{name}"
                        nc.request(subject, timeout=2)
                except errors.Error:
                    continue  # there is no leader at the moment
                self.rows.append(stored)


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


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "streaming"])
def test_a_leader_that_steps_down_in_the_middle_neither_loses_nor_doubles_a_row(
    spark: SparkSession,
    cluster: Cluster,
    replicated: jsync.Stream,
    tmp_path: Path,
    streaming: bool,
) -> None:
    options = {
        "nats.servers": ",".join(cluster.urls),
        "stream": replicated.name,
        "delivery": "exactly-once",
    }
    with SteppingDown(cluster, replicated.name) as leaders:
        if streaming:
            spark.range(0, ROWS, 1, 2).write.json(str(tmp_path / "in"))
            reader = spark.readStream.schema("id bigint")
            reader = reader.option("maxFilesPerTrigger", "1")
            frame = with_columns(reader.json(str(tmp_path / "in")), replicated.name)
            query = (
                frame.writeStream.format("jetstream")
                .options(**options, checkpointLocation=str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(LONG)
        else:
            frame = numbers(spark, replicated, ROWS)
            frame.write.format("jetstream").options(**options).mode("append").save()
    assert leaders.rows, "no leader stepped down"
    assert leaders.rows[0] < ROWS, "it was in the middle"
    wait_for(lambda: replicated.info().state.messages >= ROWS, timeout=30)
    found = sorted(int(data) for (data,) in stored(replicated, "data"))
    assert found == list(range(ROWS))
