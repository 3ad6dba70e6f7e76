"""`jsync pipeline`: data pipelines on Spark, from a TOML file."""

from __future__ import annotations

import signal
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import click
import msgspec

from jsync.spark import query_statuses, serve_statuses
from jsync.spark.pipeline import Inference, samples

from ..groups import CommandGroup
from ..params.completion import FILE, STREAM
from ..params.values import Number
from ..ui.errors import print_error
from ..ui.output import echo, write_json, write_table

if TYPE_CHECKING:
    from jsync.spark import QueryMetrics

    from ..params.settings import Settings


_NEEDED: Final = 'pipelines need pip install "jsync[spark]"'

_COLUMNS: Final = (
    *("query", "state", "batch", "rows", "lag", "lag seconds", "rows/s"),
    *("missing", "malformed", "dead letters", "duplicates", "measured"),
)
_STREAM_COLUMNS: Final = (
    *("query", "stream", "next sequence", "lag", "lag seconds", "missing"),
)


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Run, check, watch and replay data pipelines on Spark."""


@pipeline.command("run", example="jsync pipeline run delays.toml")
@click.argument("file", type=FILE)
@click.option(
    "--master", metavar="URL", help="The master of Spark. Default: this machine."
)
@click.option(
    "--conf",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of Spark. Can be repeated.",
)
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
@click.option(
    "--explain",
    is_flag=True,
    help="Show the settings that jsync chooses for Spark, and do not run.",
)
@click.pass_obj
def run(
    settings: Settings,
    file: str,
    master: str | None,
    conf: tuple[str, ...],
    quiet: bool,
    explain: bool,
) -> int:
    """Check a pipeline's file and run it.

    FILE says which server and streams, and what becomes of them. Ctrl-C and SIGTERM end a
    streaming pipeline in order: exit code 130 or 143. 2 is a file that is wrong, with a
    line for each thing that is.
    """
    _check_options(settings)
    if find_spec("pyspark") is None:
        raise click.ClickException(_NEEDED)
    arguments = ["run", file]
    if explain:
        arguments.append("--explain")
    if master is not None:
        arguments += ["--master", master]
    for setting in conf:
        arguments += ["--conf", setting]
    if quiet:
        arguments.append("--quiet")
    if settings.json:
        arguments.append("--json")
    return _main(arguments)


@pipeline.command("check", example="jsync pipeline check delays.toml")
@click.argument("file", type=FILE)
@click.option(
    "--offline", is_flag=True, help="Do not look up the streams on the server."
)
@click.pass_obj
def check(settings: Settings, file: str, offline: bool) -> int:
    """Check a pipeline's file, without Spark.

    In full: names, options, schemas, SQL, and, unless --offline, the streams of the
    server that it names. Exit code 2, and a line for each thing that is wrong.
    """
    _check_options(settings)
    return _main(["check", file, *(["--offline"] if offline else [])])


@pipeline.command(
    "replay",
    example="jsync pipeline replay delays.toml archive --start 2026-01-31T12:00:00Z",
)
@click.argument("file", type=FILE)
@click.argument("sink")
@click.option(
    "--source",
    metavar="NAME",
    help="The source to replay. Default: the only source that is a stream.",
)
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="SUBJECT",
    help="Only messages of this subject, wildcards allowed. Can be repeated.",
)
@click.option(
    "--start",
    metavar="PLACE",
    help="The place to start at. Default: the beginning of the stream.",
)
@click.option(
    "--end",
    metavar="PLACE",
    help="The place to stop before. Default: the end of the stream.",
)
@click.option(
    "--stream",
    type=STREAM,
    help="Write into this stream, not into the stream of the sink.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Also write rows whose message ids the stream has forgotten, maybe twice.",
)
@click.option(
    "--master", metavar="URL", help="The master of Spark. Default: this machine."
)
@click.option(
    "--conf",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of Spark. Can be repeated.",
)
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
@click.pass_obj
def replay(
    settings: Settings,
    file: str,
    sink: str,
    *,
    source: str | None,
    subjects: tuple[str, ...],
    start: str | None,
    end: str | None,
    stream: str | None,
    again: bool,
    master: str | None,
    conf: tuple[str, ...],
    quiet: bool,
) -> int:
    """Send a part of a stream through a pipeline again, into one sink.

    The replay is a batch beside the running pipeline. The SINK must be exactly-once: its
    stream drops rows that it remembers, and a replay of the same range that you start
    again stores no row twice. A PLACE is a sequence, or a time such as
    2026-01-31T12:00:00Z.
    """
    _check_options(settings)
    if find_spec("pyspark") is None:
        raise click.ClickException(_NEEDED)
    arguments = ["replay", file, sink]
    for name, value in (
        *(("source", source), ("start", start), ("end", end)),
        *(("stream", stream), ("master", master)),
        *(("subject", subject) for subject in subjects),
        *(("conf", setting) for setting in conf),
    ):
        if value is not None:
            arguments.append(f"--{name}={value}")
    for name, is_given in (("again", again), ("quiet", quiet), ("json", settings.json)):
        if is_given:
            arguments.append(f"--{name}")
    return _main(arguments)


@pipeline.command("status", example="jsync pipeline status --streams")
@click.option(
    "--bucket",
    default="jsync_spark_progress",
    metavar="NAME",
    help="The bucket of the monitor. Default: jsync_spark_progress.",
)
@click.option(
    "--streams", is_flag=True, help="Write a line for each stream of a query."
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve a page of all queries on this address, until Ctrl-C.",
)
@click.pass_obj
def status(settings: Settings, bucket: str, streams: bool, http: str | None) -> None:
    """Show the lag of queries on Spark, without Spark.

    `jsync.spark.monitor` notes the queries in a bucket. The lag is measured now, so it is
    right for a query that no longer runs, too. --http serves a page for a browser, and
    /livez, /readyz and /metrics. /readyz fails if a query has failed.
    """
    if http is not None:
        if streams or settings.json:
            given = "--streams" if streams else "--json"
            raise click.UsageError(f"{given} and --http are mutually exclusive")
        _serve_status(settings, bucket, http)
        return
    with settings.connect() as nc:
        found = query_statuses(settings.jetstream(nc), bucket)
    if settings.json:
        write_json([_document(query) for query in found])
    elif not found:
        print_error(
            f"no query in the bucket {bucket}: call jsync.spark.monitor in the session of "
            "your queries, or set monitor = true in the file of a pipeline"
        )
    elif streams:
        write_table(
            _STREAM_COLUMNS, [row for query in found for row in _streams(query)]
        )
    else:
        write_table(_COLUMNS, [_row(query) for query in found])


@pipeline.command("infer", example="jsync pipeline infer ORDERS --samples 100")
@click.argument("stream", type=STREAM)
@click.option(
    "--subject",
    metavar="SUBJECT",
    help="Only messages of this subject, wildcards allowed.",
)
@click.option(
    "--samples",
    "count",
    type=Number(1),
    default=200,
    help="The number of messages to look at. Default: 200.",
)
@click.pass_obj
def infer(settings: Settings, stream: str, subject: str | None, count: int) -> None:
    """Print a schema of JSON payloads, from samples of a stream.

    The schema is in Spark's DDL, for `json` of a pipeline's source and for `from_json`. The
    samples are spread over the whole stream. A field is a string if its samples disagree,
    or if all of them are null.
    """
    if find_spec("sqlglot") is None:
        raise click.ClickException(_NEEDED)
    with settings.connect() as nc:
        bound = settings.jetstream(nc).stream(stream)
        found = Inference.of(samples(bound, count, subject))
    if settings.json:
        write_json(
            {
                "stream": stream,
                "samples": found.samples,
                "malformed": found.malformed,
                "schema": found.schema,
                "fields": [
                    {"name": name, "type": kind.ddl(), "present": kind.present}
                    for name, kind in found.payload.fields.items()
                ],
            }
        )
        return
    print_error(f"{found.samples} samples, {found.malformed} are no JSON object")
    if not found.schema:
        raise click.ClickException(f"{stream}: no sample is a JSON object with fields")
    echo(found.schema)


def _serve_status(settings: Settings, bucket: str, http: str) -> None:
    """Serve the page until Ctrl-C or SIGTERM. Blocks."""
    with settings.connect(flow=True) as nc:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with serve_statuses(settings.jetstream(nc), http, bucket) as port:
            print_error(f"queries of {bucket} on port {port}, Ctrl-C ends it")
            threading.Event().wait()


def _row(query: QueryMetrics) -> list[object]:
    return [
        *(query.label, query.state, query.batch, query.rows),
        *(query.lag, query.lag_seconds, query.processed_rate),
        *(query.missing, query.malformed, query.dead_letters, query.duplicates),
        query.time,
    ]


def _streams(query: QueryMetrics) -> list[list[object]]:
    return [
        [query.label, name, stream.next, stream.lag, stream.lag_seconds, stream.missing]
        for name, stream in sorted(query.streams.items())
    ]


def _document(query: QueryMetrics) -> dict[str, object]:
    document = {"query": query.label, **msgspec.to_builtins(query)}
    figures = {"lag": query.lag, "lag_seconds": query.lag_seconds}
    return {**document, **figures, "missing": query.missing}


def _check_options(settings: Settings) -> None:
    others = [name for name in settings.given if name != "json"]
    if others:
        raise click.UsageError(
            f"--{others[0].replace('_', '-')}: not for pipelines, whose file says where to connect"
        )


def _main(arguments: list[str]) -> int:
    try:
        from jsync.spark.pipeline import main
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{_NEEDED} (there is no {error.name})") from None
    try:
        return main(arguments)
    except SystemExit as end:  # argparse has printed the reason
        return end.code if isinstance(end.code, int) else 2
