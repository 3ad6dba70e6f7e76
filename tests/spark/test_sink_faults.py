"""Tests that each row is stored exactly once when processes are killed during a batch.

`JSYNC_SPARK_KILLS` sets the number of rounds, and `JSYNC_FAULT_SEED` their moments.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import jsync
from jsync import errors

from ..support.campaign import seeded
from ..support.servers import wait_for
from .campaign import STARTS
from .sink_support import stored

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.fault

ROWS = 30_000
LOCAL = "local[2,4]"
"""With this master a task may fail three times."""
LONG = 900
"""The seconds in which a job must end, even on a slow machine."""


class Copying:
    """The two streams, and the job between them, which is started repeatedly."""

    def __init__(
        self, server: LocalServer, directory: Path, rng: random.Random
    ) -> None:
        self._server = server
        self._directory = directory
        self._rng = rng
        self._nc = jsync.connect(server.url, reconnect_wait=0.05)
        js = self._nc.jetstream()
        self._source = js.create_stream(name="IN", subjects=["IN.>"])
        # The duration of a restart depends on the load of the machine.
        self._sink = js.create_stream(
            name="OUT", subjects=["OUT.>"], duplicate_window=3600.0
        )
        self._js = js
        self._process: subprocess.Popen[bytes] | None = None
        self._master = LOCAL
        self.published = 0
        self.starts = 0

    def start_with(self, rows: int, master: str) -> None:
        """Publish so many rows more, and start the job."""
        self._feed(rows)
        self._start(master)

    def _feed(self, rows: int) -> None:
        with self._js.publisher() as publisher:
            for number in range(self.published, self.published + rows):
                publisher.publish("IN.n", b"%d" % number)
        self.published += rows

    def _start(self, master: str | None = None) -> None:
        """Start the job. It runs until all messages that are available by then are copied."""
        self._master = master or self._master
        job = Path(__file__).with_name("copy_job.py")
        with (self._directory / f"job-{self.starts}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, str(job), self._server.url, "IN", "OUT"),
                    *(str(self.checkpoint), str(ROWS)),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, "JSYNC_MASTER": self._master},
                start_new_session=True,
            )
        self.starts += 1

    @property
    def checkpoint(self) -> Path:
        return self._directory / "checkpoint"

    def kill_driver(self) -> None:
        """Kill the driver and its JVM with SIGKILL."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_task(self) -> bool:
        """Kill a Python process that runs tasks, and return whether there was one."""
        assert self._process is not None
        there = _processes(self._process.pid)
        workers = [
            pid
            for pid, (parent, command) in there.items()
            if b"pyspark.daemon" in command
            and b"pyspark.daemon" in there.get(parent, (0, b""))[1]
        ]
        if workers:
            os.kill(self._rng.choice(workers), signal.SIGKILL)
        return bool(workers)

    def kill_executor(self) -> bool:
        """Kill one of the JVMs that run tasks, and return whether there was one."""
        assert self._process is not None
        found = [
            pid
            for pid, (_, command) in _processes(self._process.pid).items()
            if b"CoarseGrainedExecutorBackend" in command
        ]
        if found:
            os.kill(self._rng.choice(found), signal.SIGKILL)
        return bool(found)

    def kill_server(self) -> None:
        self._server.kill()
        time.sleep(self._rng.random() / 4)
        self._server.start()

    @property
    def stored(self) -> int:
        with contextlib.suppress(errors.Error):
            return self._sink.info(timeout=1).state.messages
        return -1

    def wait_until_midway(self, batch: int) -> None:
        """Wait for the middle of a batch. If the job has ended, start it again."""
        rows = batch * ROWS + self._rng.randrange(ROWS // 20, ROWS * 2 // 3)
        deadline = time.monotonic() + LONG
        while self.stored < rows:
            assert time.monotonic() < deadline, self.log
            if self._process is None or self._process.poll() is not None:
                self._start()
            time.sleep(0.01)

    def finish(self) -> None:
        """Let the job copy all published messages and end."""
        for _ in range(10):
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._process is not None
            if self._process.wait(LONG) == 0 and self.stored >= self.published:
                return
        raise AssertionError(self.log)

    @property
    def broken_off(self) -> bool:
        """Return whether a batch was begun and not committed, according to the checkpoint."""
        begun, done = (
            {file.name for file in (self.checkpoint / folder).glob("[0-9]*")}
            for folder in ("offsets", "commits")
        )
        return bool(begun - done)

    def check(self) -> None:
        found = [int(data) for (data,) in stored(self._sink, "data")]
        assert len(found) == self.published, self.log
        assert sorted(found) == list(range(self.published))

    @property
    def log(self) -> str:
        return (self._directory / f"job-{self.starts - 1}.log").read_text()[-4000:]

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill_driver()
        self._nc.close()


def _processes(session: int) -> dict[int, tuple[int, bytes]]:
    """Return the parent and the command of each process of a session."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent, _, its_session, *_ = (
                (folder / "stat").read_text().rpartition(")")[2].split()
            )
            if int(its_session) == session and state != "Z":
                command = (folder / "cmdline").read_bytes()
                found[int(folder.name)] = int(parent), command
    return found


@pytest.fixture
def pyspark_work() -> Iterator[None]:
    """Remove the logs that a cluster of this kind leaves beside PySpark."""
    yield
    shutil.rmtree(Path(pyspark.__file__).parent / "work", ignore_errors=True)


@pytest.fixture
def copying(
    own_server: StartServer, spark_environment: None, tmp_path: Path
) -> Iterator[Copying]:
    copying = Copying(own_server(), tmp_path, seeded())
    yield copying
    copying.close()


def test_killed_processes_double_and_lose_no_row(
    copying: Copying, pyspark_work: None
) -> None:
    """A start of Spark takes most of the time, so one job has to bear several kills."""
    for _ in range(STARTS):
        batches = count(copying.published // ROWS)
        copying.start_with(4 * ROWS, LOCAL)
        copying.wait_until_midway(next(batches))
        wait_for(copying.kill_task, 60)
        copying.wait_until_midway(next(batches))
        copying.kill_server()
        copying.wait_until_midway(next(batches))
        copying.kill_driver()
        while not copying.broken_off:
            copying.start_with(ROWS, LOCAL)
            copying.wait_until_midway(next(batches))
            copying.kill_driver()
        # Separate executors, as on a cluster: after a shuffle the rows come in any order.
        copying.start_with(ROWS, "local-cluster[2,1,1024]")
        copying.wait_until_midway(next(batches))
        wait_for(copying.kill_executor, 60)
        copying.finish()
    copying.check()
