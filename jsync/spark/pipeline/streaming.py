"""A streaming pipeline: a query for each sink, until all have ended or a stop is requested."""

from __future__ import annotations

import contextlib
import functools
import time
from math import inf
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from ...errors import PipelineError
from ..errors import explain
from ..options import Options
from ..sink.options import SinkSettings
from .batch import write_rows
from .config import ConsoleSink, FileSink, FormatSink, JetStreamSink, JetStreamSource
from .merging import merger
from .progress import SinkProgress
from .start_retry import RETRYING, START_SECONDS, is_late, start_with_retry
from .tasks import running_tasks
from .validator import AVAILABLE_NOW, jetstream_options
from .views import FILES, collect_problems, escape_rows, failures, one_batch_a_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from .config import Pipeline, Sink
    from .console import Report
    from .diagnostics import Diagnostics
    from .signals import StopRequest

_POLL = 0.25
_TASKS_EVERY = 1.0
_MAX_START = 30.0
_BOUNDARY_POLL = 0.02
"""Seconds. This is below the tenth of a second that a micro-batch spends on planning."""
_IDLE = "Waiting for data to arrive"
"""Spark's status after its sources had no new data, until it checks them again."""


def run_streaming(
    pipeline: Pipeline,
    views: Mapping[str, DataFrame],
    problems: Diagnostics,
    stop: StopRequest,
    report: Report,
    pause: Path,
) -> list[dict[str, Any]]:
    """Run to the end, and return a summary for each sink.

    The first requested stop waits for the running micro-batch. A second one does not, and
    Spark repeats that batch in the next run. While the file `pause` exists, sources begin no
    new micro-batch that a stop could interrupt. Raises `PipelineError` if a query fails,
    after the others have been stopped.
    """
    queries: dict[str, StreamingQuery] = {}
    progress = {name: SinkProgress(name) for name in pipeline.sinks}
    session = next(iter(views.values())).sparkSession
    tasks = _Tasks(session.sparkContext)

    def begin(name: str) -> StreamingQuery:
        sink = pipeline.sinks[name]
        view = views[sink.view.lower()]
        start = functools.partial(_begin, pipeline, name, sink, view, stop)
        return start_with_retry(start, is_stopped=stop.is_requested, say=report.say)

    # One micro-batch may be the repetition of an interrupted one.
    for _ in range(2 if one_batch_a_run(pipeline) else 1):
        try:
            for name in pipeline.sinks:
                with (
                    failures(f"sink {name}", stop),
                    collect_problems(problems, ("sinks", name)),
                ):
                    with report.during(f"{name}: starting"):
                        queries[name] = begin(name)
            problems.raise_any()
            if _follow(queries, progress, tasks, stop, report, begin):
                pause.touch()
                _stop_at_boundary(queries, stop, paused=_can_pause(pipeline))
        finally:
            for query in queries.values():
                query.stop()
        for name, query in queries.items():
            progress[name].update(query.recentProgress)
            failure = query.exception()
            if failure is not None:
                raise PipelineError(f"sink {name}: {explain(failure)[0]}") from failure
        if stop.requests:
            break
    return [query.summary() for query in progress.values()]


def _begin(
    pipeline: Pipeline, name: str, sink: Sink, view: DataFrame, stop: StopRequest
) -> StreamingQuery:
    """Start a query and wait until its sources have begun. Raises its error if it fails."""
    query = _start(pipeline, name, sink, view)
    _await_offsets(query, stop)
    failure = query.exception()
    if failure is not None:
        query.stop()  # waits until Spark has released its name
        raise failure
    return query


def _start(
    pipeline: Pipeline, name: str, sink: Sink, view: DataFrame
) -> StreamingQuery:
    streaming = pipeline.streaming
    assert streaming is not None
    if isinstance(sink, ConsoleSink):
        view = escape_rows(view)
    writer = view.writeStream.queryName(name).option(
        "checkpointLocation", f"{streaming.checkpoint.rstrip('/')}/{name}"
    )
    if streaming.trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=streaming.trigger)
    match sink:
        case JetStreamSink():
            options = jetstream_options(pipeline, sink.options)
            return _start_jetstream(writer, sink, options)
        case FileSink():
            writer = writer.format(FILES[sink.format]).partitionBy(*sink.partition_by)
            return writer.options(**sink.options).start(sink.path)
        case FormatSink():
            return _start_format(writer, sink)
        case ConsoleSink():
            writer = writer.format("console").outputMode(sink.output_mode)
            return writer.options(numRows=sink.rows, truncate=sink.truncate).start()


def _await_offsets(query: StreamingQuery, stop: StopRequest) -> None:
    """Wait until the sources of a query have begun, so that queries start one by one.

    Spark's runners of Python sources share a map without a lock. Two that begin at the same
    time may break it, and then no task of the source can be read.
    """
    deadline = time.monotonic() + _MAX_START
    while query.isActive and not stop.requests and time.monotonic() < deadline:
        status = query.status
        if status["isDataAvailable"] or status["message"].startswith("Waiting"):
            return
        time.sleep(_BOUNDARY_POLL)


def _start_jetstream(
    writer: DataStreamWriter, sink: JetStreamSink, options: dict[str, str]
) -> StreamingQuery:
    writer = writer.outputMode(sink.output_mode)
    if sink.output_mode == "append":
        return writer.format("jetstream").options(**options).start()
    # Spark does not support output mode `update` for Python data sources, so write each
    # micro-batch as a batch.
    return writer.foreachBatch(_write_batch(options)).start()


def _start_format(writer: DataStreamWriter, sink: FormatSink) -> StreamingQuery:
    writer = writer.outputMode(sink.output_mode)
    if sink.merge_on:
        return writer.foreachBatch(merger(sink)).start()
    if sink.foreach_batch:

        def write(rows: DataFrame, _batch: int) -> None:
            write_rows(rows, sink, "append")

        return writer.foreachBatch(write).start()
    writer = writer.format(sink.format).options(**sink.options)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.table is not None:
        return writer.toTable(sink.table)
    return writer.start(sink.path)


def _write_batch(options: dict[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a writer of micro-batches, which are the batches of one job for the fence."""
    settings = SinkSettings.of(Options(options, "write"))

    def write(rows: DataFrame, batch: int) -> None:
        writer = rows.write.format("jetstream").mode("append").options(**options)
        if settings.exactly_once:
            job = settings.job or rows.sparkSession.sparkContext.getLocalProperty(
                "sql.streaming.queryId"
            )
            writer = writer.options(jobId=job, jobBatch=str(batch))
        writer.save()

    return write


def _follow(
    queries: dict[str, StreamingQuery],
    progress: Mapping[str, SinkProgress],
    tasks: _Tasks,
    stop: StopRequest,
    report: Report,
    begin: Callable[[str], StreamingQuery],
) -> bool:
    """Wait until every query has ended, or one has failed. Return True on a requested stop.

    A query whose Python worker did not start in time is restarted, at its checkpoint.
    """
    late = {name: _StartRetries() for name in queries}
    while True:
        for name, query in list(queries.items()):
            progress[name].update(query.recentProgress)
            failure = None if query.isActive else query.exception()
            if failure is None:
                continue
            if stop.requests or not is_late(failure):
                return False
            if late[name].is_over(progress[name].batches):
                return False
            report.say(f"{name}: {RETRYING}")
            query.stop()  # waits until Spark has released its name
            with failures(f"sink {name}", stop):
                queries[name] = begin(name)
        if not any(query.isActive for query in queries.values()):
            return False
        lines = [
            query.line(tasks.of(queries[name])) for name, query in progress.items()
        ]
        report.progress(" | ".join(lines))
        if stop.requests:
            report.say(
                "stopping after the running micro-batches; Ctrl-C again stops at once"
            )
            return True
        time.sleep(_POLL)


class _Tasks:
    """The tasks of running micro-batches, requested from Spark once a second."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._known: dict[str, tuple[float, str]] = {}

    def of(self, query: StreamingQuery) -> str:
        now, run = time.monotonic(), str(query.runId)
        at, text = self._known.get(run, (-inf, ""))
        if now >= at + _TASKS_EVERY:
            text = ""
            # A query may end in this moment, and its progress is only for people.
            with contextlib.suppress(Py4JError, OSError):
                if query.isActive:
                    text = running_tasks(self._context, run)
            self._known[run] = now, text
        return text


class _StartRetries:
    """Limits how long a query is restarted because its Python workers start too late."""

    def __init__(self) -> None:
        self._batches = -1
        self._until = 0.0

    def is_over(self, batches: int) -> bool:
        """Return whether to give up after one more failure, when `batches` have ended.

        Each micro-batch that has ended since the last failure extends the time.
        """
        if batches != self._batches:
            self._batches = batches
            self._until = time.monotonic() + START_SECONDS
        return time.monotonic() >= self._until


def _can_pause(pipeline: Pipeline) -> bool:
    """Return whether the pipeline's pause file stops all streaming sources.

    Spark's sources cannot pause, and a source with the option `pauseFile` checks that file
    instead.
    """
    return all(
        source.static
        or (
            isinstance(source, JetStreamSource)
            and "pausefile" not in map(str.lower, source.options)
        )
        for source in pipeline.sources.values()
    )


def _stop_at_boundary(
    queries: Mapping[str, StreamingQuery], stop: StopRequest, *, paused: bool
) -> None:
    """Stop each query between two micro-batches, or all on a second requested stop.

    Paused queries begin no micro-batch. Another query may have begun one since the last
    check, and Spark repeats that batch in the next run.
    """
    running = {query: _last_batch(query) for query in queries.values()}
    while running and stop.requests < 2:
        for query, batch in list(running.items()):
            status = query.status
            between = not status["isTriggerActive"]
            if paused:
                between = between or status["message"] == _IDLE
            else:
                between = between or _last_batch(query) != batch
            if between or not query.isActive:
                query.stop()
                del running[query]
        time.sleep(_BOUNDARY_POLL)


def _last_batch(query: StreamingQuery) -> object:
    last = query.lastProgress
    return None if last is None else (last["batchId"], last["timestamp"])
