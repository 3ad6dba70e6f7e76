"""Checking and running a pipeline's file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import register
from .checks import check as check_file
from .load import load
from .report import Report
from .stopping import stop_signals
from .surroundings import check_surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from .config import Pipeline
    from .problems import Problems


class Result(NamedTuple):
    """How a run ended."""

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
    # PySpark is loaded once the file is known to be worth it.
    from .batch import run_batch  # noqa: PLC0415
    from .session import session  # noqa: PLC0415
    from .streaming import run_streaming  # noqa: PLC0415
    from .views import make_views  # noqa: PLC0415

    report = Report(quiet=quiet)
    with ExitStack() as running:
        if spark is None:
            report.progress("starting Spark")
            spark = running.enter_context(session(pipeline, master=master, conf=conf))
        register(spark)
        stop = running.enter_context(stop_signals())
        running.callback(report.end)
        for name in (*pipeline.sources, *pipeline.steps):
            running.callback(spark.catalog.dropTempView, name)
        directory = running.enter_context(TemporaryDirectory(prefix="jsync-"))
        pause = Path(directory) / "pause"
        views = make_views(spark, pipeline, problems, pause)
        problems.raise_any()
        if pipeline.streaming is None:
            sinks = run_batch(spark, pipeline, views, problems, stop, report)
        else:
            sinks = run_streaming(pipeline, views, problems, stop, report, pause)
    return Result(stop.exit_code, sinks)


def _checked(path: Path, *, offline: bool) -> tuple[Pipeline, Problems]:
    pipeline, problems = load(path)
    if pipeline is not None:
        check_file(pipeline, problems)
        if not offline and not problems:
            check_surroundings(pipeline, problems)
    problems.raise_any()
    assert pipeline is not None
    return pipeline, problems
