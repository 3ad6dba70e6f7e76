"""A campaign against Spark's source and sink: each row comes once, and each loss is reported.

A query calls the source and the sink as Spark does: with the calls of Spark 4.0 or of 4.3, from
batch to batch, with a checkpoint, two tasks and retries of them. Its driver and its tasks are
processes of their own, which are killed with SIGKILL at any moment. Meanwhile leaders step down,
followers freeze, servers are killed, others publish, and messages that were read are dropped. The
judge knows all messages.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pyarrow as pa
import pytest

import jsync
from jsync import errors
from jsync.spark.sink.fence_state import Committed, decode

from .spark_query import AGAIN, BAD, KEY, PERMANENT, Checkpoint, Outcome, Run

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable
    from pathlib import Path

    from ..support.campaign import Campaign
    from ..support.servers import Cluster

pytestmark = pytest.mark.cluster

ROWS = 150
"""The messages that a round publishes at least."""
AHEAD = 100
"""The messages by which the writer is ahead of the query at most."""
LONG = 300
"""The seconds in which a round must end, even on a slow machine."""


def with_retries(call: Any) -> Any:
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
        self.reached = 1
        """The first sequence of the source that may not be dropped yet."""
        self.lost: set[int] = set()
        """Those that were removed before the query had read them."""
        self._next = 0

    def create(self, name: str) -> None:
        with_retries(
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
        self.publish_rows(range(self._next, self._next + count))
        self._next += count

    def publish_rows(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            with_retries(
                lambda number=number: self.js.publish(
                    f"{self.source}.{number % 3}",
                    b"%d" % number,
                    msg_id=f"{number}",
                )
            )
            self.published.append(number)

    def drop(self, upto: int) -> None:
        """Drop the messages before a sequence, as a limit does."""
        with contextlib.suppress(errors.Error):
            self.js.bind_stream(self.source).purge(sequence=upto)

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

        found: list[int] = with_retries(read)
        return found

    def collisions(self) -> int:
        """Return the rows that the sink has reported as lost for the id of another one."""
        fence = with_retries(lambda: self.js.key_value(self.fence))
        entry = decode(with_retries(lambda: fence.get(f"{KEY}.committed")).value)
        assert isinstance(entry, Committed)
        assert entry.totals is not None
        return entry.totals.collisions

    def close(self) -> None:
        for name in (self.source, self.sink, self.dead, f"KV_{self.fence}"):
            with contextlib.suppress(errors.Error):
                self.js.delete_stream(name)
        self._nc.close()


class Disturbances:
    """Disturbs the cluster from a thread until the block ends: two servers always stay."""

    def __init__(self, cluster: Cluster, world: World, rng: random.Random) -> None:
        self._cluster = cluster
        self._world = world
        self._rng = rng
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
            if len(self._world.published) < self._world.reached + AHEAD:
                self._world.publish(2)
            self._world.write_into_sink(number)
            number += 1

    def _disturb(self) -> None:
        rng, world = self._rng, self._world
        names = [world.source, world.sink, world.dead, f"KV_{world.fence}"]
        while not self._over.wait(rng.uniform(0.1, 0.6)):
            match rng.choice(
                ["step down"] * 3 + ["freeze"] * 2 + ["drop"] * 2 + ["kill"]
            ):
                case "drop":
                    world.drop(world.reached)
                case "step down":
                    with contextlib.suppress(errors.Error):
                        stream = world.js.bind_stream(rng.choice(names))
                        stream.leader_step_down(timeout=1)
                case "freeze":
                    server = rng.choice(self._cluster.servers)
                    server.pause()
                    time.sleep(rng.uniform(0.1, 1))
                    server.resume()
                case "kill":
                    server = rng.choice(self._cluster.servers)
                    server.kill()
                    time.sleep(rng.uniform(0, 0.5))
                    server.start()
                    self._cluster.wait_until_ready()


class Drivers:
    """The process that drivers are forked from, so that none has to import Spark."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.spark_query"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._groups: list[int] = []

    def run(self, run: Run, life: float, *, alone: bool) -> bool:
        """Run a driver, and return whether it was killed after so many seconds.

        Its tasks are killed with it, or, if `alone`, outlive it.
        """
        self._input.write(msgspec.json.encode(run) + b"\n")
        pid = int(self._output.readline())
        self._groups.append(pid)
        ended, _, _ = select.select([self._output], [], [], life)
        if not ended:
            with contextlib.suppress(ProcessLookupError):
                (os.kill if alone else os.killpg)(pid, signal.SIGKILL)
        assert self._output.readline() == b"over\n"
        return not ended

    def close(self) -> None:
        """End all processes, also tasks that have outlived their driver."""
        self._process.kill()
        self._process.wait()
        self._input.close()
        self._output.close()
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


class Query:
    """A streaming query from the source into files and into the sink, as Spark runs it."""

    def __init__(
        self,
        cluster: Cluster,
        world: World,
        rng: random.Random,
        drivers: Drivers,
        directory: Path,
    ) -> None:
        connection = {
            "nats.servers": ",".join(cluster.urls),
            "nats.timeout": "1",
            "nats.retryTimeout": "20",
        }
        self._read = {
            **connection,
            "stream": world.source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(rng.randrange(20, 120)),
            "minPartitions": "2",
        }
        self._write = {
            **connection,
            "stream": world.sink,
            "delivery": "exactly-once",
            "deadLetterSubject": f"{world.dead}.letter",
            "fenceBucket": world.fence,
        }
        self.world = world
        self._rng = rng
        self._drivers = drivers
        self._directory = directory
        self.checkpoint = Checkpoint(directory)
        self.is_killed = True
        self._life = 1.0
        """The longest life of a driver. A slow machine needs more for a batch."""

    def run(self, *, is_old: bool, lenient: bool = False) -> Outcome | None:
        """Run the query in a new process until there is nothing new. None: it was killed."""
        rng = self._rng
        run = Run(
            checkpoint=str(self._directory),
            read={**self._read, "failOnDataLoss": str(not lenient).lower()},
            write=self._write,
            sink=self.world.sink,
            is_old=is_old,
            deadly=self.is_killed,
            seed=f"{rng.random()}",
        )
        life = rng.uniform(0.05, self._life) if self.is_killed else LONG
        commits = self.checkpoint.count("commits")
        was_killed = self._drivers.run(run, life, alone=rng.random() < 0.5)
        self._life = (
            1.0 if self.checkpoint.count("commits") > commits else 1.5 * self._life
        )
        self.world.reached = self.checkpoint.reached(self.world.source)
        if was_killed:
            assert self.is_killed, "the run has not ended"
            return None
        outcome = self._directory / "outcome"
        found = msgspec.json.decode(outcome.read_bytes(), type=Outcome)
        outcome.unlink()
        return found


def lose(world: World, query: Query, rng: random.Random) -> str | None:
    """Drop messages that were read; at times unread ones, or all of the stream."""
    kind = rng.choice(["read"] * 6 + ["unread", "recreate"])

    def unread() -> set[int]:
        return set(world.published) - set(query.checkpoint.rows)

    if kind == "read":
        world.drop(rng.randint(1, world.reached))
        return None
    world.lost |= unread() - world.lost
    if kind == "unread":
        # A message stays behind those that are gone, as in a stream with a limit.
        with_retries(lambda: world.js.stream(world.source).purge())
        if not world.lost:
            return None
    else:
        with_retries(lambda: world.js.delete_stream(world.source))
        world.create(world.source)
    return kind


def test_rows_come_once_and_losses_are_reported(
    cluster: Cluster, campaign: Campaign, tmp_path: Path
) -> None:
    counts: Counter[str] = Counter()
    drivers = Drivers()
    try:
        for number in campaign.rounds():
            rng = campaign.random(f"round {number}")
            world = World(cluster, number)
            directory = tmp_path / f"{number}"
            directory.mkdir()
            query = Query(cluster, world, rng, drivers, directory)
            faults = campaign.random(f"faults {number}")
            try:
                # The calls of Spark 4.0 come first, and every second round begins with them.
                is_old = not number % 2
                run_round(cluster, query, rng, faults, counts, is_old=is_old)
                judge(world, query)
            finally:
                cluster.wait_until_ready()
                world.close()
    finally:
        drivers.close()
        print(dict(counts))  # noqa: T201 (pytest shows it if the test fails)


def run_round(
    cluster: Cluster,
    query: Query,
    rng: random.Random,
    faults: random.Random,
    counts: Counter[str],
    *,
    is_old: bool,
) -> None:
    world, checkpoint = query.world, query.checkpoint
    deadline = time.monotonic() + LONG
    with Disturbances(cluster, world, faults):
        while len(world.published) < ROWS or checkpoint.count("commits") < 3:
            assert time.monotonic() < deadline
            live(query, counts, is_old=is_old)
            is_old = is_old and rng.random() < 0.8  # Spark was updated
    # Losses only now: what was unread when they happened is exactly known.
    cluster.wait_until_ready()
    query.is_killed = False
    live(query, counts, is_old=is_old, must_end=True)
    before = world.collisions()
    rows = [row for row in checkpoint.rows if row % BAD]
    world.publish_rows(row + AGAIN for row in rng.sample(rows, 5))
    repeated = live(query, counts, is_old=is_old, must_end=True)
    collisions = world.collisions() - before
    # The rows of a repeated task may be its own, so they are not reported.
    assert collisions == 5 or (repeated and collisions < 5)
    world.publish(rng.randrange(5, 40))
    lost = lose(world, query, rng)
    world.publish(rng.randrange(0, 20))
    if lost:
        counts[f"lost: {lost}"] += 1
        outcome = query.run(is_old=is_old)
        assert outcome is not None
        assert outcome.error == "DataLossError", outcome.text
    live(query, counts, is_old=is_old, lenient=bool(lost), must_end=True)


def live(
    query: Query,
    counts: Counter[str],
    *,
    is_old: bool,
    lenient: bool = False,
    must_end: bool = False,
) -> int:
    """Run the query until it has ended or was killed; with `must_end` until it has ended.

    Returns how many of its runs and attempts of tasks failed.
    """
    deadline = time.monotonic() + LONG
    repeated = 0
    while True:
        outcome = query.run(is_old=is_old, lenient=lenient)
        if outcome is None:
            counts["killed"] += 1
        elif not outcome.error:
            counts["ended"] += 1
            return repeated + outcome.repeated
        else:
            counts[outcome.error] += 1
            error = getattr(errors, outcome.error, None)
            assert error is not None, outcome.text
            assert not issubclass(error, PERMANENT), outcome.text
        if not must_end:
            return repeated
        repeated += 1
        assert time.monotonic() < deadline


def judge(world: World, query: Query) -> None:
    expected = [row for row in world.published if row not in world.lost]
    assert len(set(expected)) == len(expected)
    assert Counter(query.checkpoint.rows) == Counter(expected)
    good = [row for row in expected if row % BAD and row < AGAIN]
    bad = [row for row in expected if not row % BAD]
    assert Counter(world.stored(world.sink, "copy")) == Counter(good)
    assert Counter(world.stored(world.dead, "letter")) == Counter(bad)
