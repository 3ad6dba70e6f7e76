"""`jsync ingest`: rows of files, or of standard input, into a stream."""

from __future__ import annotations

import contextlib
import enum
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from jsync.errors import ConfigError, Error

from ..groups import ExampleCommand
from ..params.completion import FILE, STREAM
from ..ui.errors import ExitCode, format_error, print_error
from ..ui.output import echo, write_json
from ..ui.stdin import standard_input
from .errors import BadRowError, BadValueError
from .files import FORMATS, STDIN, format_of, identity_of, is_pipe, open_source
from .load import Load
from .message_ids import PositionIds, TemplateIds
from .rows import ReadOptions, open_rows
from .target import choose_sink, find_resume, find_resume_by_ids, find_stream
from .template import SubjectTemplate, column_or_template

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsync

    from ..params.settings import Settings
    from ..ui.progress import ProgressState
    from .files import Source
    from .message_ids import Ids
    from .resume import Resume
    from .template import ColumnTemplate

MAX_REPORTED = 5
"""The number of bad rows that are reported one by one."""


class EndReason(enum.Enum):
    """The way in which an ingest ended without an error."""

    DONE = enum.auto()
    INTERRUPTED = enum.auto()
    """Ctrl-C was pressed, and the sent rows are stored."""
    GIVEN_UP = enum.auto()
    """Ctrl-C was pressed again."""


class IngestJob(NamedTuple):
    """The files to ingest, and how."""

    files: tuple[str, ...]
    form: str | None
    source: str | None
    reading: ReadOptions
    template: SubjectTemplate
    ids: ColumnTemplate | None
    no_ids: bool

    def open(self, path: str) -> contextlib.AbstractContextManager[Source]:
        return open_source(
            path, form=self.form, identity=self.source, stdin=standard_input()
        )

    def ids_of(self, source: Source) -> Ids | None:
        if self.no_ids:
            return None
        if self.ids is not None:
            return TemplateIds(self.ids)
        return None if source.identity is None else PositionIds(source)

    @property
    def has_ids(self) -> bool:
        """True if every row gets a message id."""
        if self.no_ids:
            return False
        return bool(self.ids) or None not in self.identities

    @property
    def identities(self) -> list[str | None]:
        if self.source is not None:
            return [self.source]
        return [identity_of(path) for path in self.files]

    def first_rows(self) -> dict[str, int]:
        """Return the smallest possible number of a row, by the file's identity."""
        found: dict[str, int] = {}
        for path, identity in zip(self.files, self.identities, strict=True):
            if identity is not None:
                table = format_of(path, self.form) in ("csv", "tsv")
                found[identity] = 2 if table and not self.reading.header else 1
        return found

    def rows_with_ids(self) -> Iterator[tuple[str, int, str]]:
        """Read the files. Yield the file's name, the number and the id of each row."""
        for path in self.files:
            with self.open(path) as source:
                ids = self.ids_of(source)
                for row in open_rows(source, self.reading):
                    if ids is not None and not isinstance(row, BadRowError):
                        with contextlib.suppress(BadValueError):
                            yield source.name, row.number, ids.of(row)

    def check(self) -> None:
        """Check the files as far as possible before a message is sent.

        Raises `ConfigError` if the files or their columns do not fit the options.
        """
        if self.source is not None and len(self.files) > 1:
            raise ConfigError("source: a name for the rows of one file, not of several")
        if self.files.count(STDIN) > 1:
            raise ConfigError("standard input can be read only once: give `-` once")
        for path in self.files:
            if not is_pipe(path):
                with self.open(path) as source:
                    self.check_columns(open_rows(source, self.reading).columns)

    def check_columns(self, existing: tuple[str, ...] | None) -> None:
        if existing is not None:
            self.template.check_columns(existing)
            if self.ids is not None:
                self.ids.check_columns(existing)


@click.command(
    short_help="Rows of files into a stream.",
    cls=ExampleCommand,
    example="jsync ingest flights.csv --subject 'flights.{carrier}' --types delay=int",
)
@click.argument("files", nargs=-1, type=FILE, metavar="[FILE]...")
@click.option(
    "--subject",
    required=True,
    metavar="TEMPLATE",
    help="The subject, in which flights.{carrier}.{origin} takes tokens from columns.",
)
@click.option(
    "--stream",
    type=STREAM,
    metavar="NAME",
    help="The stream, if several could store the subject.",
)
@click.option("--create", is_flag=True, help="Create the stream if there is none.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="The format of the files. Default: by their names.",
)
@click.option(
    "--id",
    "msg_id",
    metavar="COLUMN|TEMPLATE",
    help="A column or a template of the message ids. Default: made of file, line and content.",
)
@click.option(
    "--no-ids",
    is_flag=True,
    help="Publish without message ids, which is faster but cannot be repeated safely.",
)
@click.option(
    "--source",
    metavar="NAME",
    help="The prefix of message ids, instead of the name of the file.",
)
@click.option("--resume", is_flag=True, help="Continue after the last stored row.")
@click.option(
    "--data",
    metavar="COLUMN",
    help="The column to publish as the payload, not all columns as JSON.",
)
@click.option(
    "--delimiter", metavar="CHARACTER", help="The character between the columns of CSV."
)
@click.option(
    "--header",
    metavar="A,B,...",
    help="The names of the columns, for CSV without a header.",
)
@click.option(
    "--infer",
    is_flag=True,
    help="Read numbers, true and false in CSV as such, not as text.",
)
@click.option(
    "--types",
    multiple=True,
    metavar="COLUMN=TYPE",
    help="Types of CSV columns: text, int, float or bool, as in delay=int,price=float.",
)
@click.option(
    "--null",
    "nulls",
    multiple=True,
    metavar="TEXT",
    help="The text for a missing value in CSV.",
)
@click.option(
    "--replace-with",
    metavar="TEXT",
    help="The text for characters that a subject token cannot have.",
)
@click.option("--skip-bad", is_flag=True, help="Leave out rows that cannot be sent.")
@click.option(
    "--publisher",
    "how",
    type=click.Choice(["auto", "ingest", "async"]),
    default="auto",
    help="Use fast ingest, or an ack for each message. Default: fast ingest if the stream allows it.",
)
@click.option("--no-progress", is_flag=True, help="Show no progress bar.")
@click.pass_obj
def ingest(settings: Settings, /, **options: Any) -> int | None:
    """Rows of files into a stream.

    The formats are NDJSON, CSV, TSV, Parquet and lines, also compressed by gzip, bzip2,
    xz or zip. `-` is the standard input, read as lines unless you give --format. A line
    of NDJSON is published unchanged, a row of CSV or Parquet as a JSON object.

    Ctrl-C ends the command once all sent messages are stored. If you repeat the
    command, it sends all rows again, and the stream drops duplicates within its
    duplicate window (by default 2 minutes). With --resume the command continues after
    the last stored row, at any time.
    """
    job = _make_job(options)
    job.check()
    if options["resume"] and not job.has_ids:
        raise ConfigError(
            "resume: it finds its place by message ids; leave out --no-ids, and give "
            "standard input a --source NAME"
        )
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        stream = find_stream(
            js, job.template, options["stream"], create=options["create"]
        )
        ended = _ingest(settings, js, stream, job, options)
        if ended is EndReason.GIVEN_UP:
            nc.close()  # do not wait: the server may be frozen
    return None if ended is EndReason.DONE else ExitCode.INTERRUPTED


def _make_job(options: dict[str, Any]) -> IngestJob:
    header = options["header"]
    msg_id = options["msg_id"]
    if msg_id is not None and (options["no_ids"] or options["source"]):
        raise click.UsageError("--id excludes --no-ids and --source")
    return IngestJob(
        files=options["files"] or (STDIN,),
        form=options["form"],
        source=options["source"],
        reading=ReadOptions(
            delimiter=options["delimiter"],
            header=tuple(header.split(",")) if header else (),
            infer=options["infer"],
            types=_types(options["types"]),
            nulls=frozenset(options["nulls"]),
            data=options["data"],
        ),
        template=SubjectTemplate(options["subject"], options["replace_with"]),
        ids=None if msg_id is None else column_or_template(msg_id),
        no_ids=options["no_ids"],
    )


def _types(given: tuple[str, ...]) -> dict[str, str]:
    """Read `a=int,b=float`."""
    types: dict[str, str] = {}
    for part in ",".join(given).split(",") if given else ():
        column, equals, kind = part.rpartition("=")
        if not equals:
            raise click.UsageError(f"--types: {part!r}: write COLUMN=TYPE, as in a=int")
        types[column] = kind
    return types


def _ingest(
    settings: Settings,
    js: jsync.JetStream,
    stream: jsync.Stream,
    job: IngestJob,
    options: dict[str, Any],
) -> EndReason:
    from ..ui.progress import Bar

    resume: Resume | None = None
    if options["resume"]:
        if job.ids is None:
            resume = find_resume(stream, job.template, job.first_rows())
        else:
            pipes = any(map(is_pipe, job.files))
            rows = None if pipes else job.rows_with_ids
            resume = find_resume_by_ids(stream, job.template, rows)
    sink, word = choose_sink(js, stream, options["how"], ids=job.has_ids)
    if word is not None:
        print_error(word)
    on_bad_row = _BadRowPolicy(skip=options["skip_bad"])
    load = Load(sink, job.template, stream.cached_info.config, resume, on_bad_row)
    begin = perf_counter()
    with Bar(lambda: _progress(load), "stored", shown=not options["no_progress"]):
        try:
            end = _load(load, job)
            if resume is not None and end is EndReason.DONE:
                resume.end()
        except (Error, OSError) as error:
            if isinstance(error, BadRowError):
                _finish_rows_before(load)
            load.give_up()
            print_error(f"{_reached(load, stream)}; {_advice(stream, job)}")
            raise
    seconds = perf_counter() - begin
    if end is not EndReason.DONE:
        print_error(f"interrupted: {_reached(load, stream)}; {_advice(stream, job)}")
    _write_summary(settings, load, stream, sink.name, seconds, end)
    return end


def _finish_rows_before(load: Load) -> None:
    """Wait until the rows before a bad one are stored. Ctrl-C ends the wait."""
    with contextlib.suppress(Error, KeyboardInterrupt):
        load.finish()


def _load(load: Load, job: IngestJob) -> EndReason:
    """Send all rows, and wait until they are stored."""
    end = EndReason.DONE
    try:
        for path in job.files:
            with ExitStack() as opened:
                source = opened.enter_context(job.open(path))
                rows = open_rows(source, job.reading)
                job.check_columns(rows.columns)
                load.run(rows, job.ids_of(source))
    except KeyboardInterrupt:
        end = EndReason.INTERRUPTED
    try:
        if end is EndReason.INTERRUPTED:
            print_error(
                "waiting until the rows that were sent are stored; Ctrl-C again stops at once"
            )
        load.finish()
    except KeyboardInterrupt:
        # A second Ctrl-C: the user does not want to wait for the server.
        load.give_up()
        end = EndReason.GIVEN_UP
    return end


class _BadRowPolicy:
    """The handler of bad rows. It raises the first error, or reports and skips them."""

    def __init__(self, *, skip: bool) -> None:
        self._skip = skip
        self._seen = 0

    def __call__(self, error: BadRowError) -> None:
        if not self._skip:
            raise error
        self._seen += 1
        if self._seen <= MAX_REPORTED:
            print_error(f"left out: {format_error(error)}")
        elif self._seen == MAX_REPORTED + 1:
            print_error("left out: more rows, counted at the end")


def _progress(load: Load) -> ProgressState:
    from ..ui.progress import ProgressState

    source = load.source
    if source is None:
        return ProgressState("", 0, None, 0)
    with contextlib.suppress(ValueError):  # the file has just been closed
        return ProgressState(
            source.name, source.position(), source.size, load.counts.stored
        )
    return ProgressState(source.name, source.size or 0, source.size, load.counts.stored)


def _reached(load: Load, stream: jsync.Stream) -> str:
    rows = f"{load.counts.stored:,} rows are stored in {stream.name}"
    if load.last is not None:
        source, number = load.last
        rows += f", up to {source.unit} {number} of {source.name}"
    if load.first_open is not None:
        source, number = load.first_open
        rows += (
            f"; {source.unit} {number} of {source.name} is the first that was sent and is "
            "not known to be stored"
        )
    return rows


def _advice(stream: jsync.Stream, job: IngestJob) -> str:
    """Return how to continue after an ingest that was interrupted or failed."""
    if not job.has_ids:
        return "the rows have no ids, so begin again with an empty stream"
    if stream.cached_info.config.retention in ("workqueue", "interest"):
        return "repeat the command within the duplicate window of the stream"
    return "continue with --resume"


def _write_summary(
    settings: Settings,
    load: Load,
    stream: jsync.Stream,
    how: str,
    seconds: float,
    end: EndReason,
) -> None:
    counts = load.counts
    holds = None
    if end is not EndReason.GIVEN_UP:
        with contextlib.suppress(Error):
            holds = stream.info().state.messages
    if settings.json:
        last = None if load.last is None else [load.last[0].name, load.last[1]]
        write_json(
            {
                "stream": stream.name,
                "stored": counts.stored,
                "already_there": counts.skipped,
                "bad": counts.bad,
                "bytes": counts.bytes,
                "seconds": round(seconds, 3),
                "publisher": how,
                "last": last,
                "interrupted": end is not EndReason.DONE,
                "stream_messages": holds,
            }
        )
        return
    words = [f"{counts.stored:,} rows into {stream.name} by {how} in {seconds:.1f} s"]
    if seconds > 0:
        words.append(f"{counts.stored / seconds:,.0f}/s")
    if counts.skipped:
        words.append(f"{counts.skipped:,} were already stored")
    if counts.bad:
        words.append(f"{counts.bad:,} bad rows left out")
    if holds is not None:
        words.append(f"the stream holds {holds:,} messages")
    echo(", ".join(words))
