"""A campaign against Spark's source and sink: each row comes once, and each loss is reported.

A query calls the source and the sink as Spark does, in this process: with the calls of Spark 4.0
or of 4.3, from batch to batch, with a checkpoint, two tasks and retries of them. It is killed at
any step, and its tasks in the middle. Meanwhile leaders step down, followers freeze, servers are
killed, others publish, and messages that were read are dropped. The judge knows all messages.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import jsync
from jsync import errors
from jsync.spark import source_stream
from jsync.spark.connecting import close_connections
from jsync.spark.options import Options
from jsync.spark.schema import source_schema
from jsync.spark.sink import writer
from jsync.spark.sink.writer import Sink
from jsync.spark.source_stream import JetStreamStreamReader

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from ..servers import Cluster
    from .campaign import Campaign

pytestmark = pytest.mark.cluster

ROWS = 400
"""The messages that a round publishes at least."""
LONG = 300
"""The seconds in which a round must end, even on a slow machine."""
ATTEMPTS = 4
"""How often Spark runs a task."""
BAD = 37
"""Each row of this number has a subject that the sink does not take."""

COLUMNS = source_schema(include_headers=False)
WRITTEN = StructType(
    [StructField(name, StringType()) for name in ("subject", "data", "msg_id")]
)


class Killed(BaseException):
    """The process of a task or of the driver has ended."""


class Task(threading.local):
    """What Spark tells a task of itself."""

    partition = 0

    def get(self) -> Self:
        return self

    def partitionId(self) -> int:  # noqa: N802 (Spark's name)
        return self.partition


def patiently(call: Any) -> Any:
    """Return the result of a call that succeeds once the cluster has its leaders."""
    deadline = time.monotonic() + LONG
    while True:
        try:
            return call()
        except errors.Error:
            assert time.monotonic() < deadline
            time.sleep(0.1)


class World:
    """The streams of a round, and all messages that were ever in the source."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._nc = jsync.connect(cluster.urls, reconnect_wait=0.1)
        self.js = self._nc.jetstream(timeout=2)
        self.source, self.sink, self.dead = (
            f"IN{number}",
            f"OUT{number}",
            f"DEAD{number}",
        )
        self.fence = f"fence{number}"
        for name in (self.source, self.sink, self.dead):
            self.create(name)
        self.published: list[int] = []
        """The messages of the source that were acknowledged."""
        self.lost: set[int] = set()
        """Those that were removed before the query had read them."""
        self._next = 0

    def create(self, name: str) -> None:
        patiently(
            lambda: self.js.create_stream(
                name=name,
                subjects=[f"{name}.>"],
                num_replicas=3,
                storage="memory",
                duplicate_window=900.0,
                allow_direct=True,
            )
        )

    def publish(self, count: int) -> None:
        """Publish messages to the source, each once."""
        for number in range(self._next, self._next + count):
            patiently(
                lambda number=number: self.js.publish(
                    f"{self.source}.{number % 3}",
                    b"%d" % number,
                    msg_id=f"{number}",
                )
            )
            self.published.append(number)
        self._next += count

    def write_into_sink(self, number: int) -> None:
        """Publish as another program does that writes to the same stream."""
        with contextlib.suppress(errors.Error):
            self.js.publish(f"{self.sink}.other", b"%d" % number)

    def stored(self, stream: str, subject: str) -> list[int]:
        def read() -> list[int]:
            found = self.js.stream(stream).read_arrow(
                columns=["data"], filter_subjects=[f"{stream}.{subject}"]
            )
            return [int(data) for data in pa.table(found)["data"].to_pylist()]

        found: list[int] = patiently(read)
        return found

    def close(self) -> None:
        for name in (self.source, self.sink, self.dead, f"KV_{self.fence}"):
            with contextlib.suppress(errors.Error):
                self.js.delete_stream(name)
        self._nc.close()


class Disturbances:
    """Disturbs the cluster from a thread until the block ends: two servers always stay."""

    def __init__(self, cluster: Cluster, world: World, dice: random.Random) -> None:
        self._cluster = cluster
        self._world = world
        self._dice = dice
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._disturb),
            threading.Thread(target=self._write),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _write(self) -> None:
        """A second writer, of the source and of the sink."""
        number = 0
        while not self._over.wait(0.02):
            self._world.publish(2)
            self._world.write_into_sink(number)
            number += 1

    def _disturb(self) -> None:
        dice, world = self._dice, self._world
        names = [world.source, world.sink, world.dead, f"KV_{world.fence}"]
        while not self._over.wait(dice.uniform(0.1, 0.6)):
            match dice.choice(["step down"] * 4 + ["freeze"] * 2 + ["kill"]):
                case "step down":
                    with contextlib.suppress(errors.Error):
                        stream = world.js.bind_stream(dice.choice(names))
                        stream.leader_step_down(timeout=1)
                case "freeze":
                    server = dice.choice(self._cluster.servers)
                    server.pause()
                    time.sleep(dice.uniform(0.1, 1))
                    server.resume()
                case "kill":
                    server = dice.choice(self._cluster.servers)
                    server.kill()
                    time.sleep(dice.uniform(0, 0.5))
                    server.start()
                    self._cluster.wait_until_ready()


class Query:
    """A streaming query from the source into files and into the sink, as Spark runs it."""

    def __init__(self, cluster: Cluster, world: World, dice: random.Random) -> None:
        connection = {
            "nats.servers": ",".join(cluster.urls),
            "nats.timeout": "1",
            "nats.retryTimeout": "20",
        }
        self._read = {
            **connection,
            "stream": world.source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(dice.randrange(20, 120)),
            "minPartitions": "2",
        }
        self._write = {
            **connection,
            "stream": world.sink,
            "delivery": "exactly-once",
            "deadLetterSubject": f"{world.dead}.letter",
            "fenceBucket": world.fence,
        }
        self._world = world
        self._dice = dice
        self._key = "query.campaign"
        self.is_killed = True
        self.offsets: list[str] = []
        """The log of offsets, in the checkpoint."""
        self.commits = 0
        self.files: dict[int, list[int]] = {}
        """The rows of each batch, as the log of a file sink knows them."""
        self.read_upto = 0
        """The first sequence that no committed batch has."""

    def run(self, *, is_old: bool, lenient: bool = False) -> None:
        """Run the query in a new process, until there is nothing new."""
        close_connections()
        source_stream.LIMITS = not is_old
        options = {**self._read, "failOnDataLoss": str(not lenient).lower()}
        reader = JetStreamStreamReader(Options(options, "read"), COLUMNS)
        if self.offsets and is_old:
            last = json.loads(self.offsets[-1])
            assert reader.partitions(last, last) == []
        while self._plan(reader, is_old=is_old):
            self._may_die()
            self._run_batch(reader)

    def _plan(self, reader: JetStreamStreamReader, *, is_old: bool) -> bool:
        """Log the end of the next batch; False if there is nothing new."""
        if self.commits < len(self.offsets):
            return True  # it was not committed, and is repeated
        last = self.offsets[-1] if self.offsets else None
        if is_old:
            end = reader.latestOffset()
        else:
            start = json.loads(last) if last else reader.initialOffset()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if json.dumps(end) == last:
            return False
        self._may_die()
        self.offsets.append(json.dumps(end))
        return True

    def _run_batch(self, reader: JetStreamStreamReader) -> None:
        batch = len(self.offsets) - 1
        end = json.loads(self.offsets[batch])
        start = json.loads(self.offsets[batch - 1]) if batch else reader.initialOffset()
        parts = reader.partitions(start, end)
        rows = [
            row for part in parts for row in self._attempts(self._task, reader, part)
        ]
        self._may_die()
        self.files.setdefault(batch, rows)
        self._may_die()
        self._write_batch(batch, rows)
        self._may_die()
        self.commits += 1
        self.read_upto = end["streams"][self._world.source]["next"]

    def _task(self, reader: JetStreamStreamReader, part: Any) -> list[int]:
        """Read a partition in a process of its own, which may be killed on the way."""
        reader, part = pickle.loads(pickle.dumps((reader, part)))
        found: list[int] = []
        for rows in reader.read(part):
            self._may_die(task=True)
            found += map(int, rows.column("data").to_pylist())
        return found

    def _write_batch(self, batch: int, rows: list[int]) -> None:
        """Write the rows into the sink, after a shuffle."""
        sink = Sink(
            Options(self._write, "write"), WRITTEN, overwrite=False, streaming=True
        )
        self._dice.shuffle(rows := list(rows))
        half = self._dice.randrange(len(rows) + 1)
        reports = [
            self._attempts(self._send, sink, batch, number, part)
            for number, part in enumerate((rows[:half], rows[half:]))
        ]
        self._may_die()
        sink.commit_batch(reports, batch, last=False)

    def _send(self, sink: Sink, batch: int, number: int, rows: list[int]) -> Any:
        def batches() -> Iterator[pa.RecordBatch]:
            for at in range(0, len(rows), 25):
                yield self._columns(rows[at : at + 25])
                self._may_die(task=True)

        TASK.partition = number
        return pickle.loads(pickle.dumps(sink)).write_task(batches(), self._key, batch)

    def _columns(self, rows: list[int]) -> pa.RecordBatch:
        """Return messages; some have a subject that the stream does not take."""
        name = self._world.sink
        return pa.RecordBatch.from_pydict(
            {
                "subject": [
                    f"{name}.copy" if row % BAD else f"no.{name}" for row in rows
                ],
                "data": [str(row) for row in rows],
                "msg_id": [f"row {row}" for row in rows],
            }
        )

    def _attempts(self, call: Any, *arguments: Any) -> Any:
        """Run a task as often as Spark does."""
        for attempt in range(ATTEMPTS):
            try:
                return call(*arguments)
            except (errors.DataLossError, errors.CheckpointError):
                raise
            except (Killed, errors.Error):
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _may_die(self, *, task: bool = False) -> None:
        if self.is_killed and self._dice.random() < (0.03 if task else 0.05):
            raise Killed


TASK = Task()


def lose(world: World, query: Query, dice: random.Random) -> str | None:
    """Drop messages that were read; at times unread ones, or all of the stream."""
    kind = dice.choice(["read"] * 6 + ["unread", "recreate"])

    def unread() -> set[int]:
        done = {row for rows in query.files.values() for row in rows}
        return {row for row in world.published if row not in done}

    if kind == "read":
        if query.read_upto > 1:
            upto = dice.randrange(1, query.read_upto)
            patiently(lambda: world.js.stream(world.source).purge(sequence=upto))
        return None
    world.lost |= unread() - world.lost
    if kind == "unread":
        # A message stays behind those that are gone, as in a stream with a limit.
        patiently(lambda: world.js.stream(world.source).purge())
        if not world.lost:
            return None
    else:
        patiently(lambda: world.js.delete_stream(world.source))
        world.create(world.source)
    return kind


def test_rows_come_once_and_losses_are_reported(
    cluster: Cluster, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "TaskContext", TASK)
    monkeypatch.setattr(source_stream, "LIMITS", True)  # and undone at the end
    counts: Counter[str] = Counter()
    for number in campaign.rounds():
        dice = campaign.random(f"round {number}")
        world = World(cluster, number)
        try:
            run_round(cluster, world, dice, campaign.random(f"faults {number}"), counts)
        finally:
            close_connections()
            cluster.wait_until_ready()
            world.close()
    print(dict(counts))  # noqa: T201 (pytest shows it if the test fails)


def run_round(
    cluster: Cluster,
    world: World,
    dice: random.Random,
    faults: random.Random,
    counts: Counter[str],
) -> None:
    query = Query(cluster, world, dice)
    is_old = dice.random() < 0.5
    deadline = time.monotonic() + LONG
    with Disturbances(cluster, world, faults):
        while len(world.published) < ROWS or query.commits < 5:
            assert time.monotonic() < deadline
            live(world, query, counts, is_old=is_old)
            is_old = is_old and dice.random() < 0.8  # Spark was updated
    # Losses only now: what was unread when they happened is exactly known.
    cluster.wait_until_ready()
    query.is_killed = False
    live(world, query, counts, is_old=is_old, must_end=True)
    world.publish(dice.randrange(5, 40))
    lost = lose(world, query, dice)
    world.publish(dice.randrange(0, 20))
    if lost:
        counts[f"lost: {lost}"] += 1
        with pytest.raises(errors.DataLossError):
            query.run(is_old=is_old)
    live(world, query, counts, is_old=is_old, lenient=bool(lost), must_end=True)
    judge(world, query)


def live(
    world: World,
    query: Query,
    counts: Counter[str],
    *,
    is_old: bool,
    lenient: bool = False,
    must_end: bool = False,
) -> None:
    """Run the query until it has ended or was killed; with `must_end` until it has ended."""
    deadline = time.monotonic() + LONG
    while True:
        try:
            query.run(is_old=is_old, lenient=lenient)
        except Killed:
            counts["killed"] += 1
        except (errors.DataLossError, errors.CheckpointError):
            raise
        except errors.Error as error:
            counts[type(error).__name__] += 1
        else:
            counts["ended"] += 1
            return
        if not must_end:
            return
        assert time.monotonic() < deadline


def judge(world: World, query: Query) -> None:
    expected = [row for row in world.published if row not in world.lost]
    assert len(set(expected)) == len(expected)
    files = [row for batch in sorted(query.files) for row in query.files[batch]]
    assert Counter(files) == Counter(expected)
    good = [row for row in expected if row % BAD]
    bad = [row for row in expected if not row % BAD]
    assert Counter(world.stored(world.sink, "copy")) == Counter(good)
    assert Counter(world.stored(world.dead, "letter")) == Counter(bad)
