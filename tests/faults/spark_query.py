"""A streaming query from a stream into files and into a sink, as Spark runs it, without Spark.

`python -m tests.faults.spark_query` reads runs from its input, one JSON object a line. Each run is
a driver in a new process, and each of its tasks is one as well. Drivers and tasks may be killed at
any moment. The checkpoint survives them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from jsync import errors
from jsync.spark import micro_batch
from jsync.spark.micro_batch import JetStreamStreamReader
from jsync.spark.options import Options
from jsync.spark.schema import source_schema
from jsync.spark.sink import writer
from jsync.spark.sink.writer import SinkWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jsync.spark.sink.report import TaskReport

ATTEMPTS: Final = 4
"""How often Spark runs a task."""
BAD: Final = 37
"""The sink does not take the subject of a row whose number is a multiple of this one."""
AGAIN: Final = 1_000_000
"""A row from this number on has the id of the row with so much less."""
KEY: Final = "query.campaign"
"""The name of the query in the fence."""
PERMANENT: Final = (errors.DataLossError, errors.CheckpointError)
"""Errors that Spark meets again in each attempt of a task."""

COLUMNS = source_schema(include_headers=False)
WRITTEN = StructType(
    [StructField(name, StringType()) for name in ("subject", "data", "msg_id")]
)

logger = logging.getLogger(__name__)


class Run(msgspec.Struct, kw_only=True):
    """One life of the driver."""

    checkpoint: str
    read: dict[str, str]
    write: dict[str, str]
    sink: str
    """The first token of the sink's subjects."""
    is_old: bool
    """Whether the calls are those of Spark 4.0, or those of 4.3."""
    deadly: bool
    """Whether tasks are killed."""
    seed: str


class Outcome(msgspec.Struct):
    """The end of a run that was not killed."""

    error: str = ""
    """The class of the error that ended it. Empty if there was nothing new to read."""
    text: str = ""
    repeated: int = 0
    """The attempts of tasks that failed, and were repeated."""


class Checkpoint:
    """The logs of a query: entries that are either written as a whole or not at all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for log in ("offsets", "files", "commits"):
            (directory / log).mkdir(exist_ok=True)

    def put(self, log: str, batch: int, entry: object) -> None:
        place = self._directory / log / f"{batch}"
        part = place.with_name(f".{batch}.{os.getpid()}")
        part.write_text(json.dumps(entry))
        part.replace(place)

    def get(self, log: str, batch: int) -> Any:
        """Return an entry, or None."""
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self._directory / log / f"{batch}").read_text())

    def count(self, log: str) -> int:
        return sum(1 for _ in (self._directory / log).glob("[0-9]*"))

    @property
    def rows(self) -> list[int]:
        """The rows of all files."""
        count = self.count("files")
        return [row for batch in range(count) for row in self.get("files", batch)]

    def reached(self, stream: str) -> int:
        """Return the first sequence that no committed batch has, or 1."""
        batches = self.count("commits")
        if not batches:
            return 1
        end = self.get("offsets", batches - 1)
        return int(end["streams"][stream]["next"])


class Task:
    """What Spark tells a task of itself."""

    partition = 0

    def get(self) -> Self:
        return self

    def partitionId(self) -> int:  # noqa: N802 (Spark's name)
        return self.partition


class Driver:
    """The driver of a query, in a process of its own."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rng = random.Random(run.seed)
        self._checkpoint = Checkpoint(Path(run.checkpoint))
        self._task = Task()
        writer.TaskContext = self._task  # type: ignore[attr-defined, assignment]
        micro_batch.LIMITS = not run.is_old
        self._reader = JetStreamStreamReader(Options(run.read, "read"), COLUMNS)
        self._results = Path(tempfile.mkdtemp(dir=run.checkpoint))
        self.repeated = 0

    def drive(self) -> None:
        """Run batches until there is nothing new."""
        planned = self._checkpoint.count("offsets")
        if planned and self._run.is_old:
            last = self._checkpoint.get("offsets", planned - 1)
            assert self._reader.partitions(last, last) == []
        while self._plan():
            self._run_batch()

    def _plan(self) -> bool:
        """Log the end of the next batch. False if there is nothing new."""
        checkpoint, reader = self._checkpoint, self._reader
        batch = checkpoint.count("offsets")
        if checkpoint.count("commits") < batch:
            return True  # the last batch was not committed, and is repeated
        last = checkpoint.get("offsets", batch - 1)
        if self._run.is_old:
            end = reader.latestOffset()
        else:
            start = reader.initialOffset() if last is None else last
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == last:
            return False
        checkpoint.put("offsets", batch, end)
        return True

    def _run_batch(self) -> None:
        checkpoint, reader = self._checkpoint, self._reader
        batch = checkpoint.count("offsets") - 1
        end = checkpoint.get("offsets", batch)
        start = checkpoint.get("offsets", batch - 1) or reader.initialOffset()
        parts = reader.partitions(start, end)
        found = self._tasks([self._reading(part) for part in parts])
        rows = [row for one in found for row in one]
        before = checkpoint.get("files", batch)
        if before is None:
            checkpoint.put("files", batch, rows)
        else:
            assert Counter(rows) == Counter(before), "the batch has changed"
        self._write(batch, rows)
        checkpoint.put("commits", batch, {})

    def _reading(self, part: Any) -> Callable[[], list[int]]:
        pickled = pickle.dumps((self._reader, part))

        def read() -> list[int]:
            reader, part = pickle.loads(pickled)
            return [
                int(data)
                for rows in reader.read(part)
                for data in rows.column("data").to_pylist()
            ]

        return read

    def _write(self, batch: int, rows: list[int]) -> None:
        """Write the rows into the sink, after a shuffle into two tasks."""
        options = Options(self._run.write, "write")
        sink = SinkWriter(options, WRITTEN, overwrite=False, streaming=True)
        self._rng.shuffle(rows)
        half = self._rng.randrange(len(rows) + 1)
        reports = self._tasks(
            [
                self._writing(sink, batch, number, part)
                for number, part in enumerate((rows[:half], rows[half:]))
            ]
        )
        sink.commit_batch(reports, batch, last=False)

    def _writing(
        self, sink: SinkWriter, batch: int, number: int, rows: list[int]
    ) -> Callable[[], TaskReport]:
        pickled = pickle.dumps(sink)

        def write() -> TaskReport:
            self._task.partition = number
            sink: SinkWriter = pickle.loads(pickled)
            return sink.write_task(self._columns(rows), KEY, batch)

        return write

    def _columns(self, rows: list[int]) -> Iterator[pa.RecordBatch]:
        """Yield messages. Some have a subject that the stream does not take."""
        name = self._run.sink
        for at in range(0, len(rows), 25):
            part = rows[at : at + 25]
            subjects = [f"{name}.copy" if row % BAD else f"no.{name}" for row in part]
            yield pa.RecordBatch.from_pydict(
                {
                    "subject": subjects,
                    "data": [f"{row}" for row in part],
                    "msg_id": [f"row {row % AGAIN}" for row in part],
                }
            )

    def _tasks(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run each call in a process of its own, all of them at the same time."""
        results: dict[int, Any] = {}
        for attempt in range(ATTEMPTS):
            left = [number for number in range(len(calls)) if number not in results]
            places = {number: self._results / f"{number}" for number in left}
            pids = [self._fork(calls[number], places[number]) for number in left]
            for pid in pids:
                os.waitpid(pid, 0)
            for number, place in places.items():
                result = self._result(place)
                if not isinstance(result, Exception):
                    results[number] = result
                elif isinstance(result, PERMANENT) or attempt == ATTEMPTS - 1:
                    raise result
                else:
                    self.repeated += 1
        return [results[number] for number in range(len(calls))]

    def _fork(self, call: Callable[[], Any], place: Path) -> int:
        is_killed = self._run.deadly and self._rng.random() < 0.15
        life = self._rng.uniform(0.001, 0.2)
        if pid := os.fork():
            return pid
        with ending():
            if is_killed:
                kill_after(life)
            try:
                found = call()
            except Exception as error:  # noqa: BLE001 (passed on to the driver)
                found = error
            part = place.with_suffix(".part")
            part.write_bytes(pickle.dumps(found))
            part.replace(place)
        raise AssertionError

    def _result(self, place: Path) -> Any:
        """Return the result of a task, or its error, and remove it."""
        try:
            found = pickle.loads(place.read_bytes())
        except FileNotFoundError:
            return errors.Error("the task was killed")
        place.unlink()
        return found


def kill_after(seconds: float) -> None:
    """Fork a process that kills this one with SIGKILL."""
    victim = os.getpid()
    if not os.fork():
        with ending():
            time.sleep(seconds)
            if os.getppid() == victim:
                os.kill(victim, signal.SIGKILL)


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """End this process with the block, whatever happens in it."""
    try:
        yield
    except BaseException:
        logger.exception("the process failed")
        os._exit(1)
    os._exit(0)


def drive(run: Run) -> None:
    """Run the driver, and write its outcome."""
    outcome = Outcome()
    try:
        driver = Driver(run)
        driver.drive()
        outcome.repeated = driver.repeated
    except Exception as error:
        logger.info("the run failed", exc_info=error)
        outcome = Outcome(type(error).__name__, f"{error}")
    part = Path(run.checkpoint, "outcome.part")
    part.write_bytes(msgspec.json.encode(outcome))
    part.replace(Path(run.checkpoint, "outcome"))


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    for line in sys.stdin:
        run = msgspec.json.decode(line, type=Run)
        pid = os.fork()
        if not pid:
            with ending():
                os.setsid()
                drive(run)
        print(pid, flush=True)  # noqa: T201 (the campaign reads it)
        os.waitpid(pid, 0)
        print("over", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
