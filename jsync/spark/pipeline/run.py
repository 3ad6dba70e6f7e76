"""Checking and running a pipeline's file."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import register
from ..connection import close_connections
from .console import Report
from .load import load
from .preflight import preflight
from .signals import stop_signals
from .validator import jetstream_options, malformed_view, validate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from .config import Pipeline, Streaming
    from .diagnostics import Diagnostics
    from .local_mode import Choice


class Result(NamedTuple):
    """The result of a run."""

    exit_code: int
    """0, or 130 and 143 where Ctrl-C and SIGTERM have ended it."""
    sinks: list[dict[str, Any]]
    """For each sink its name, rows and seconds, and micro-batches and lag when streaming."""


def check(path: str | Path, *, offline: bool = False) -> Pipeline:
    """Check a pipeline's file in full, without Spark, and return what it says.

    Blocks while the server is asked for its streams, unless `offline`. Raises
    `PipelineFileError`, with a line for each problem.
    """
    pipeline, problems = _checked(Path(path), offline=offline)
    problems.raise_any()
    return pipeline


def run(
    path: str | Path,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> Result:
    """Check a pipeline's file, run it, and block until it ends.

    Spark is started for it with `master` and `conf`, which win over the file, and stopped at
    the end, unless `spark` is given: then that is used, with the pipeline's views among its
    own for as long as this lasts, and left running. On the main thread Ctrl-C and SIGTERM
    end it in order: a streaming pipeline between two micro-batches, a batch by giving up the
    write that runs. Progress goes to standard error, unless `quiet`. Raises
    `PipelineFileError` for what is wrong with the file, before any row is read, and
    `PipelineError` when it fails later.
    """
    pipeline, problems = _checked(Path(path), offline=False)
    return _run(pipeline, problems, Report(quiet=quiet), spark, master, conf)


def explain(
    path: str | Path,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> list[Choice]:
    """Check a pipeline's file, and return the settings that `run` would choose.

    Blocks while it requests the streams from the server. Spark is not started.

    Args:
        path: The pipeline's file.
        master: Spark's master, as for `run`.
        conf: Settings of Spark, as for `run`.

    Returns:
        Each setting, option of Java or option of a source, with the reason. Settings of the
        file and of `conf` are not among them.

    Raises:
        PipelineFileError: The file is wrong.
    """
    from .session import explained  # noqa: PLC0415

    pipeline, _ = _checked(Path(path), offline=False)
    return explained(pipeline, master=master, conf=conf)


def replay(
    path: str | Path,
    sink: str,
    *,
    source: str | None = None,
    subjects: Sequence[str] = (),
    start: str | None = None,
    end: str | None = None,
    stream: str | None = None,
    again: bool = False,
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> Result:
    """Send a part of a stream through a pipeline again, into one sink. Blocks until it ends.

    The replay is a batch beside the running pipeline, whose checkpoint it does not touch.
    Other sources give no rows, except static ones.
    Each row is stored once: the sink's stream drops rows whose ids it remembers, and a
    replay of the same range that you start again goes on where it ended. So the sink must be
    `delivery = "exactly-once"`.

    Args:
        path: The pipeline's file.
        sink: The name of the sink.
        source: The name of the source. Default: the only one of streams.
        subjects: Subjects to replay, wildcards allowed. Default: the source's.
        start: A sequence, or a moment in ISO 8601. Default: the beginning.
        end: The same, not included. Default: the end of the streams now.
        stream: Write into this stream instead of the stream of the sink.
        again: Replay messages that are older than the `duplicate_window` of the sink's
            stream, which then has rows twice.
        spark: The session. Default: a new one.
        master: Spark's master for a new session.
        conf: Settings of a new session.
        quiet: Show no progress.

    Returns:
        The rows of the sink, and the exit code.

    Raises:
        PipelineFileError: The file is wrong.
        ConfigError: The range, the source or the sink cannot be.
        StreamNotFoundError: The stream of the source or of the sink does not exist.
        PipelineError: The replay failed.
    """
    from .replaying import ReplayRange, range_of, replay_pipeline  # noqa: PLC0415

    pipeline, problems = _checked(Path(path), offline=False)
    replay_range = ReplayRange(sink, source, tuple(subjects), start, end, stream)
    try:
        chosen = replay_pipeline(pipeline, replay_range, again=again)
    finally:
        close_connections()
    report = Report(quiet=quiet)
    report.say(f"replaying {range_of(chosen)} into {sink}")
    if chosen.silent:
        report.say(f"without the other sources: {', '.join(sorted(chosen.silent))}")
    return _run(chosen, problems, report, spark, master, conf)


def _run(
    pipeline: Pipeline,
    problems: Diagnostics,
    report: Report,
    spark: SparkSession | None,
    master: str | None,
    conf: Mapping[str, str] | None,
) -> Result:
    # Import PySpark only after the file was found valid.
    from .batch import run_batch  # noqa: PLC0415
    from .session import save_classes, session  # noqa: PLC0415
    from .streaming import run_streaming  # noqa: PLC0415
    from .views import check_files, check_formats, make_views  # noqa: PLC0415

    with ExitStack() as running:
        if spark is None:
            started = session(pipeline, master=master, conf=conf, say=report.say)
            with report.during("starting Spark"):
                spark = running.enter_context(started)
        register(spark)
        stop = running.enter_context(stop_signals())
        running.callback(report.end)
        dead = map(malformed_view, pipeline.sources)
        for name in (*pipeline.sources, *dead, *pipeline.steps):
            running.callback(spark.catalog.dropTempView, name)
        directory = running.enter_context(TemporaryDirectory(prefix="jsync-"))
        pause = Path(directory) / "pause"
        with report.during("planning sources and steps"):
            check_formats(spark, pipeline, problems)
            problems.raise_any()
            views = make_views(spark, pipeline, problems, stop, report, pause)
            check_files(spark, pipeline, views, problems)
        problems.raise_any()
        if pipeline.streaming is None:
            sinks = run_batch(spark, pipeline, views, problems, stop, report)
        else:
            running.enter_context(_watched(spark, pipeline, pipeline.streaming))
            sinks = run_streaming(pipeline, views, problems, stop, report, pause)
        if not stop.requests:
            save_classes(report.during, stop.is_requested)
    return Result(stop.exit_code, sinks)


def _watched(
    spark: SparkSession, pipeline: Pipeline, streaming: Streaming
) -> AbstractContextManager[object]:
    """Return the monitor that the file defines, or a context that does nothing."""
    if not (streaming.monitor or streaming.http):
        return nullcontext()
    from ..monitoring.monitor import monitor  # noqa: PLC0415

    return monitor(spark, jetstream_options(pipeline, {}), http=streaming.http)


def _checked(path: Path, *, offline: bool) -> tuple[Pipeline, Diagnostics]:
    pipeline, problems = load(path)
    if pipeline is not None:
        validate(pipeline, problems)
        if not offline and not problems:
            preflight(pipeline, problems)
    problems.raise_any()
    assert pipeline is not None
    return pipeline, problems
