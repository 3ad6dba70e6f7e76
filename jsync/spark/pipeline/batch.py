"""A batch pipeline: one write after the other, in the file's order."""

from __future__ import annotations

import threading
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import (
    Observation,
    functions as F,  # noqa: N812 (Spark's own name for it)
)

from ...errors import PipelineError
from .checks import jetstream_options
from .config import ConsoleSink, FileSink, JetStreamSink
from .views import FILES, explain, refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from .config import Pipeline, Sink
    from .problems import Problems
    from .report import Report
    from .stopping import Stop

_POLL = 0.1


def run_batch(
    spark: SparkSession,
    pipeline: Pipeline,
    views: Mapping[str, DataFrame],
    problems: Problems,
    stop: Stop,
    report: Report,
) -> list[dict[str, Any]]:
    """Write every sink, and tell what has gone to each.

    A stop that is asked for cancels the write that is running: files appear when their write
    has ended, messages as they are sent. Raises `PipelineError` when a write fails.
    """
    summaries = []
    for name, sink in pipeline.sinks.items():
        view, counted = views[sink.view.lower()], None
        if not isinstance(sink, ConsoleSink):
            counted = Observation()
            view = view.observe(counted, F.count(F.lit(1)).alias("rows"))
        begin = time.monotonic()
        with refusals(problems, ("sinks", name)):
            _Write(spark, name, partial(_write, pipeline, sink, view)).wait(
                stop, report
            )
        problems.raise_any()
        if stop.asked:
            break
        summaries.append(
            {
                "sink": name,
                "rows": None if counted is None else counted.get["rows"],
                "seconds": round(time.monotonic() - begin, 3),
            }
        )
    return summaries


class _Write:
    """One write on a thread of its own, so that this one can tell of it and cancel it."""

    def __init__(
        self, spark: SparkSession, name: str, write: Callable[[], None]
    ) -> None:
        self._spark = spark
        self._name = name
        self._write = write
        self._tag = f"jsync-{uuid.uuid4().hex}"
        self._error: BaseException | None = None

    def wait(self, stop: Stop, report: Report) -> None:
        """Until it has ended, or been cancelled; raises what Spark says of its plan."""
        thread = threading.Thread(
            target=self._run, name=f"write {self._name}", daemon=True
        )
        begin = time.monotonic()
        thread.start()
        while thread.is_alive():
            thread.join(_POLL)
            if stop.asked:
                self._spark.interruptTag(self._tag)
            seconds = time.monotonic() - begin
            report.progress(f"{self._name}: {self._tasks()}{seconds:.0f} s")
        if self._error is None or stop.asked:
            return
        if isinstance(self._error, AnalysisException):
            raise self._error
        message, _ = explain(self._error)
        raise PipelineError(f"sink {self._name}: {message}") from self._error

    def _run(self) -> None:
        self._spark.addTag(self._tag)
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 (it is raised where it is waited for)
            self._error = error

    def _tasks(self) -> str:
        """How many of the tasks are done, of the stages that are running."""
        tracker = self._spark.sparkContext.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        stages = [info for info in infos if info is not None]
        if not stages:
            return ""
        done = sum(info.numCompletedTasks for info in stages)
        return f"{done} of {sum(info.numTasks for info in stages)} tasks, "


def _write(pipeline: Pipeline, sink: Sink, view: DataFrame) -> None:
    match sink:
        case JetStreamSink():
            options = jetstream_options(pipeline, sink.options)
            view.write.format("jetstream").mode("append").options(**options).save()
        case FileSink():
            writer = view.write.format(FILES[sink.format]).mode(sink.mode)
            writer.partitionBy(*sink.partition_by).options(**sink.options).save(
                sink.path
            )
        case ConsoleSink():
            view.show(sink.rows, truncate=sink.truncate)
