"""`jsync export`: write the messages of a stream to a file or the standard output."""

from __future__ import annotations

import base64
import contextlib
import os
from contextlib import ExitStack
from datetime import datetime  # noqa: TC003 (msgspec reads it)
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, cast

import click
import msgspec

from jsync.errors import ConfigError, Error, MessageNotFoundError, StreamNotFoundError

from ..groups import ExampleCommand
from ..params.completion import FILE, STREAM
from ..params.values import PAST_TIME, Number
from ..ui.errors import ExitCode, print_error
from ..ui.output import byte_output, echo, write_json
from ..ui.partial_file import PartialFile, last_line

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsync

    from ..params.settings import Settings
    from ..ui.output import EscapingTerminal
    from ..ui.progress import ProgressState

FORMATS: Final = ("ndjson", "raw", "parquet")


class Writer(Protocol):
    """An object that reads a range of a stream and writes it to a file."""

    count: int
    last: int
    """The sequence of the last written message, or 0 before the first."""
    unreadable: int
    """The number of messages with unreadable headers."""

    def run(
        self, stream: jsync.Stream, filters: list[str], start: int, end: int
    ) -> None:
        """Read and write the range. Blocks until all of it is written."""

    def close(self) -> None:
        """Finish the file so that the written part is valid."""


class LineWriter:
    """A writer of lines: each message as JSON, or only its payload."""

    def __init__(self, file: IO[bytes] | EscapingTerminal, *, raw: bool) -> None:
        self._file = file
        self._line = _payload if raw else _document
        self.count = 0
        self.last = 0
        self.unreadable = 0

    def run(
        self, stream: jsync.Stream, filters: list[str], start: int, end: int
    ) -> None:
        created = stream.cached_info.created
        consumer = stream.ordered_consumer(
            filter_subjects=filters or None, opt_start_seq=start
        )
        # Check only now: from here on, the consumer notices another stream itself.
        if stream.info().created != created:
            raise StreamNotFoundError(
                f"stream {stream.name!r} was deleted, and another one created"
            )
        write, line = self._file.write, self._line
        with consumer.messages(until_end=True) as messages:
            for msg in messages:
                sequence = msg.metadata.stream_sequence
                if sequence > end:
                    break
                write(line(msg, sequence))
                self.count += 1
                self.last = sequence
                if msg.headers_error is not None:
                    self.unreadable += 1

    def close(self) -> None:
        self._file.flush()


class ParquetWriter:
    """A writer of Parquet, with the columns of `Stream.read_arrow`."""

    def __init__(self, file: IO[bytes] | EscapingTerminal) -> None:
        self._file = file
        self._opened: Any = None
        self.count = 0
        self.last = 0
        self.unreadable = 0

    def run(
        self, stream: jsync.Stream, filters: list[str], start: int, end: int
    ) -> None:
        import pyarrow
        import pyarrow.parquet

        found = stream.read_arrow(start, end, filter_subjects=filters or None)
        schema = pyarrow.schema(found)
        self._opened = pyarrow.parquet.ParquetWriter(
            self._file, schema, compression="zstd"
        )
        with iter(found) as batches:
            for batch in batches:
                self._opened.write_table(pyarrow.table(batch))
                self.count += len(batch)
                self.unreadable += batch.unreadable_headers
                self.last = batch.last_sequence or self.last

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()


_encode: Final = msgspec.json.Encoder().encode


def _payload(msg: jsync.JetStreamMsg, sequence: int) -> bytes:
    return msg.data + b"\n"


def _document(msg: jsync.JetStreamMsg, sequence: int) -> bytes:
    document: dict[str, Any] = {
        "subject": msg.subject,
        "sequence": sequence,
        "timestamp": msg.metadata.timestamp,
    }
    headers = msg.headers
    if headers:
        document["headers"] = {name: headers.get_all(name) for name in headers}
    if msg.headers_error is not None:
        document["headers_error"] = msg.headers_error
    try:
        document["data"] = msg.data.decode()
    except UnicodeDecodeError:
        document["data_base64"] = base64.b64encode(msg.data).decode()
    try:
        return _encode(document) + b"\n"
    except UnicodeEncodeError:  # a header or subject that is not UTF-8
        return _encode(_readable(document)) + b"\n"


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode(errors="replace")
    if isinstance(value, dict):
        return {_readable(name): _readable(one) for name, one in value.items()}
    return [_readable(one) for one in value] if isinstance(value, list) else value


@click.command(
    short_help="Write the messages of a stream to a file.",
    cls=ExampleCommand,
    example="jsync export ORDERS --output orders.ndjson --since 7d",
)
@click.argument("name", type=STREAM, metavar="STREAM")
@click.option(
    "--output",
    "-o",
    type=FILE,
    metavar="FILE",
    help="The file to write. Default: standard output, as with `-`.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="The format of the file. Default: by the name of the file, or NDJSON.",
)
@click.option(
    "--raw", "-r", is_flag=True, help="Write only the payloads, as --format raw."
)
@click.option(
    "--subject",
    "filters",
    multiple=True,
    metavar="SUBJECT",
    help="Only messages of this subject, wildcards allowed.",
)
@click.option("--from", "start", type=Number(1), help="The first sequence to write.")
@click.option("--to", "end", type=Number(0), help="The last sequence to write.")
@click.option("--since", type=PAST_TIME, help="Start at a time, or a duration ago.")
@click.option(
    "--resume", is_flag=True, help="Continue FILE.partial of an interrupted export."
)
@click.option("--force", "-f", is_flag=True, help="Replace an existing file.")
@click.option("--no-progress", is_flag=True, help="Show no progress bar.")
@click.pass_obj
def export(settings: Settings, /, **options: Any) -> int | None:
    """Write the messages of a stream to a file.

    NDJSON has one object per message, with its payload as `data`, or as `data_base64`
    if it is not text. Raw has only the payloads, one per line. Parquet has the columns
    subject, data, sequence, timestamp and headers. The command writes the messages that
    the stream has at the start, in order, and leaves nothing behind on the server.

    A complete file gets its name at the end. Until then its name is FILE.partial. If the
    command was interrupted, repeat it with --resume: it continues a file of NDJSON after
    its last message.
    """
    target: str | None = options["output"] if options["output"] != "-" else None
    form = options["form"] or ("raw" if options["raw"] else _format_of(target))
    if options["raw"] and form != "raw":
        raise click.UsageError("--raw and --format exclude each other")
    if options["start"] is not None and options["since"] is not None:
        raise click.UsageError("--from and --since exclude each other")
    if options["resume"] and (target is None or form != "ndjson"):
        raise click.UsageError("--resume continues a file of NDJSON: --output FILE")
    if options["resume"] and options["force"]:
        raise click.UsageError("--resume and --force exclude each other")
    if form == "parquet":
        _check_parquet(target)
    partial = None
    if target is not None:
        partial = PartialFile(target, force=options["force"])
    with ExitStack() as opened:
        nc = opened.enter_context(settings.connect(flow=True))
        stream = settings.jetstream(nc).stream(options["name"])
        start, end = _range(stream, options)
        file: IO[bytes] | EscapingTerminal = byte_output()
        if partial is not None:
            file = opened.enter_context(partial.open(resume=options["resume"]))
            if options["resume"]:
                start = max(start, _behind(stream, partial, file))
        writer: Writer = LineWriter(file, raw=form == "raw")
        if form == "parquet":
            writer = ParquetWriter(file)
        try:
            interrupted = _write(
                writer,
                lambda: writer.run(stream, list(options["filters"]), start, end),
                lambda: _progress(writer, options["name"], start, end),
                shown=not options["no_progress"] and target is not None,
            )
        except (Error, OSError):
            if partial is not None and writer.count:
                print_error(f"a part is in {partial.path}{_advice(form, None)}")
            raise
        if interrupted:
            nc.close()  # do not wait: the server may be frozen
        if writer.unreadable:
            print_error(f"messages with unreadable headers: {writer.unreadable:,}")
        if partial is None:
            return ExitCode.INTERRUPTED if interrupted else None
        if interrupted:
            part = (
                f"{writer.count:,} messages, up to sequence {writer.last}, are in "
                f"{partial.path}{_advice(form, writer.last)}"
            )
            print_error(
                f"interrupted: {part if writer.count else 'no messages were written'}"
            )
            return ExitCode.INTERRUPTED
        partial.publish(cast("IO[bytes]", file))
    _write_summary(settings, writer, options, partial.target)
    return None


def _advice(form: str, last: int | None) -> str:
    """Return how to continue after an incomplete export, as the end of a sentence.

    `last` is the last sequence in the file, or None if it is not known.
    """
    if form == "ndjson":
        return "; continue with --resume"
    if last is None:
        return ", which may not be complete"
    return f"; keep it, and write the rest to another file with --from {last + 1}"


def _behind(stream: jsync.Stream, partial: PartialFile, file: IO[bytes]) -> int:
    """Return the sequence after the last message in the partial file.

    Blocks. Raises `ConfigError` if the file is not an export of this stream.
    """
    line = last_line(file)
    if line is None:
        return 1
    try:
        last = msgspec.json.decode(line, type=_Written)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{partial.path} is not an export: {error}") from error
    other = f"{partial.path} is not of stream {stream.name}: "
    if last.sequence > stream.cached_info.state.last_seq:
        raise ConfigError(
            f"{other}it has message {last.sequence}, and the stream not yet"
        )
    with contextlib.suppress(MessageNotFoundError):  # removed since
        found = stream.get_message(last.sequence, direct=False)
        if (found.subject, found.timestamp) != (last.subject, last.timestamp):
            raise ConfigError(f"{other}message {last.sequence} is another one")
    return last.sequence + 1


class _Written(msgspec.Struct):
    """A line of the file, without its payload."""

    subject: str
    sequence: int
    timestamp: datetime


def _format_of(target: str | None) -> str:
    ending = os.path.splitext(target or "")[1].lower()
    return "parquet" if ending == ".parquet" else "ndjson"


def _check_parquet(target: str | None) -> None:
    if target is None:
        raise click.UsageError("Parquet goes to a file: --output FILE")
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ConfigError("Parquet needs pyarrow: pip install pyarrow") from None


def _range(stream: jsync.Stream, options: dict[str, Any]) -> tuple[int, int]:
    """Return the first and the last sequence to write. Blocks."""
    # Another server may report an older end, and the rest would be missing in the file.
    state = stream.leader_info().state
    start = options["start"] or state.first_seq or 1
    if options["since"] is not None:
        start = _first_since(stream, options["since"]) or state.last_seq + 1
    end = state.last_seq if options["end"] is None else options["end"]
    return start, min(end, state.last_seq)


def _first_since(stream: jsync.Stream, since: datetime) -> int | None:
    consumer = stream.ordered_consumer(opt_start_time=since, headers_only=True)
    with consumer.messages(until_end=True, max_messages=1) as messages:
        for msg in messages:
            return msg.metadata.stream_sequence
    return None


def _write(
    writer: Writer,
    run: Callable[[], None],
    get_state: Callable[[], ProgressState],
    *,
    shown: bool,
) -> bool:
    """Run the export with a progress bar, and close the writer.

    Returns whether Ctrl-C has interrupted it.
    """
    from ..ui.progress import Bar

    with Bar(get_state, "written", shown=shown):
        try:
            run()
        except KeyboardInterrupt:
            writer.close()
            return True
        except (Error, OSError):
            with contextlib.suppress(Exception):
                writer.close()
            raise
        writer.close()
    return False


def _progress(writer: Writer, name: str, start: int, end: int) -> ProgressState:
    from ..ui.progress import ProgressState

    done = max(0, writer.last - start + 1)
    return ProgressState(name, done, max(0, end - start + 1), writer.count)


def _write_summary(
    settings: Settings, writer: Writer, options: dict[str, Any], target: str
) -> None:
    size = os.path.getsize(target)
    if settings.json:
        write_json(
            {
                "stream": options["name"],
                "file": target,
                "messages": writer.count,
                "last_sequence": writer.last,
                "bytes": size,
                "resumed": options["resume"],
            }
        )
        return
    more = "more messages" if options["resume"] else "messages"
    echo(f"{writer.count:,} {more} of {options['name']} in {target}, {size:,} bytes")
