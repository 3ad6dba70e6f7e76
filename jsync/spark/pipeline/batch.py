"""A batch pipeline: one write after the other, in the file's order."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.sql import (
    Observation,
    functions as F,  # noqa: N812 (Spark's own name for it)
)

from .config import ConsoleSink, FileSink, FormatSink, JetStreamSink
from .merging import merger
from .start_retry import failed_to_start, start_with_retry
from .tasks import running_tasks
from .validator import jetstream_options
from .views import FILES, collect_problems, escape_rows, failures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from .config import Pipeline, Sink
    from .console import Report
    from .diagnostics import Diagnostics
    from .signals import StopRequest

_POLL = 0.1


def run_batch(
    spark: SparkSession,
    pipeline: Pipeline,
    views: Mapping[str, DataFrame],
    problems: Diagnostics,
    stop: StopRequest,
    report: Report,
) -> list[dict[str, Any]]:
    """Write every sink, and return a summary for each.

    A requested stop cancels the running write: files appear when their write has ended,
    but messages as they are sent. Raises `PipelineError` if a write fails.
    """
    summaries = []
    for name, sink in pipeline.sinks.items():
        view, counted = views[sink.view.lower()], None
        if not isinstance(sink, ConsoleSink):
            counted = Observation()
            view = view.observe(counted, F.count(F.lit(1)).alias("rows"))
        begin = time.monotonic()
        with (
            failures(f"sink {name}", stop),
            collect_problems(problems, ("sinks", name)),
            _JobWatcher(spark, name, stop, report),
        ):
            start_with_retry(
                functools.partial(_write, pipeline, sink, view),
                is_retried=failed_to_start,
                is_stopped=stop.is_requested,
                say=report.say,
            )
        problems.raise_any()
        if stop.requests:
            break
        summaries.append(
            {
                "sink": name,
                "rows": None if counted is None else counted.get["rows"],
                "seconds": round(time.monotonic() - begin, 3),
            }
        )
    return summaries


class _JobWatcher:
    """Reports the progress of a write, and cancels it when a stop is requested.

    It runs on a separate thread, because the write needs the calling one: Spark finds the
    data source of a write only on the thread on which its session is the active one.
    """

    def __init__(
        self, spark: SparkSession, name: str, stop: StopRequest, report: Report
    ) -> None:
        self._context = spark.sparkContext
        self._name = name
        self._stop = stop
        self._report = report
        self._group = f"jsync {uuid.uuid4().hex}"
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"watch {name}", daemon=True
        )

    def __enter__(self) -> None:
        self._context.setJobGroup(self._group, self._name, interruptOnCancel=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for name in ("spark.jobGroup.id", "spark.job.interruptOnCancel"):
            self._context.setLocalProperty(name, None)  # type: ignore[arg-type]

    def _run(self) -> None:
        begin = time.monotonic()
        while not self._over.wait(_POLL):
            # Continue after a call that fails: a later one may have to cancel the write.
            with contextlib.suppress(Py4JError, OSError):
                if self._stop.requests:
                    self._context.cancelJobGroup(self._group)
                seconds = time.monotonic() - begin
                parts = [running_tasks(self._context), f"{seconds:.0f} s"]
                self._report.progress(f"{self._name}: {', '.join(filter(None, parts))}")


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
        case FormatSink() if sink.merge_on:
            merger(sink)(view, 0)
        case FormatSink():
            write_rows(view, sink, sink.mode)
        case ConsoleSink():
            escape_rows(view).show(sink.rows, truncate=sink.truncate)


def write_rows(rows: DataFrame, sink: FormatSink, mode: str) -> None:
    """Write rows in the format of a sink, into its table or path if it has one."""
    writer = rows.write.format(sink.format).mode(mode).options(**sink.options)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.table is not None:
        writer.saveAsTable(sink.table)
    else:
        writer.save(sink.path)
