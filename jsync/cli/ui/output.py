"""Tables for people, tab-separated lines for pipes, JSON for programs.

A command has its result as a document and as a table. With `--json` it writes one
document, or one document per line if results arrive over time.

This module and `console` write everything that the command writes. A server, a message
or a file can hold characters that a terminal obeys, so both escape them
(`jsync.terminal`).
"""

from __future__ import annotations

import json
import sys
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from jsync.terminal import printable

from .formatting import format_duration_short, format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_PLAIN = "{}"
"""The format of a number for programs."""


class OutputSettings(Protocol):
    """The form of the output that a user has chosen."""

    @property
    def json(self) -> bool:
        """True if the output is JSON."""


class Styled(NamedTuple):
    """Text that is bold or colored on a terminal."""

    text: str
    bold: bool | None = None
    color: str | None = None


class Size(int):
    """A number of bytes: `1.5 MiB` for people, a number for programs."""

    @property
    def text(self) -> str:
        return format_size(self)


class Duration(float):
    """A number of seconds: `1m5s` for people, a number for programs."""

    @property
    def text(self) -> str:
        return format_duration_short(self)


def is_terminal() -> bool:
    """Return whether the standard output is a terminal."""
    return sys.stdout.isatty()


def write_bytes(data: bytes) -> None:
    """Write bytes immediately, because the reader of a pipe may wait for them.

    A pipe or a file gets the bytes as they are. A terminal gets them as text, escaped.
    """
    output = byte_output()
    output.write(data)
    output.flush()


def byte_output() -> IO[bytes] | EscapingTerminal:
    """Return the standard output for bytes, buffered."""
    return EscapingTerminal() if is_terminal() else sys.stdout.buffer


class EscapingTerminal:
    """A terminal as the output for bytes. It shows them as text, escaped."""

    def write(self, data: bytes) -> None:
        """Write bytes that do not end within a character."""
        write_text(data.decode(errors="surrogateescape"))

    def flush(self) -> None:
        sys.stdout.flush()


def write_text(*spans: str | Styled, err: bool = False) -> None:
    """Write text for people immediately, without adding a line break.

    A pipe or a file gets UTF-8. A terminal of another encoding gets escapes for the
    characters that it cannot show.
    """
    texts = [_styled(span) for span in spans]
    file = sys.stderr if err else sys.stdout
    if not file.isatty():
        click.echo(click.unstyle("".join(texts)).encode(), nl=False, err=err)
        return
    encoding = file.encoding or "utf-8"
    shown = "".join(texts).encode(encoding, "backslashreplace").decode(encoding)
    click.echo(shown, nl=False, err=err)


def _styled(span: str | Styled) -> str:
    if isinstance(span, str):
        return printable(span)
    return click.style(printable(span.text), fg=span.color, bold=span.bold)


def echo(*spans: str | Styled, err: bool = False) -> None:
    """Write a line for people immediately."""
    write_text(*spans, "\n", err=err)


def ask(question: str) -> bool:
    """Write a question to the standard error and wait for the answer.

    Returns whether it is yes. Blocks.
    """
    return click.confirm(printable(question), err=True)


def write_json(document: Any) -> None:
    """Write the only document of a command, with indentation."""
    write_bytes(_json(document, indent=2))


def write_result(settings: OutputSettings, text: str, document: Any) -> None:
    """Write what a command has done: a line for people, or the document."""
    if settings.json:
        write_json(document)
    else:
        echo(text)


def write_line(document: Any) -> None:
    """Write one of several documents immediately, on one line."""
    write_bytes(_json(document, separators=(",", ":")))


def _json(document: Any, **form: Any) -> bytes:
    # Only strings can contain unsafe characters, and JSON has the same escapes.
    return printable(json.dumps(document, ensure_ascii=False, **form)).encode() + b"\n"


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table on a terminal, or a line of headings and tab-separated lines."""
    if not is_terminal():
        echo("\t".join(columns))
        for row in rows:
            write_row(row)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from .console import console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown = [list(row) for row in rows]
    for number, column in enumerate(columns):
        numbers = all(isinstance(row[number], int | float) for row in shown)
        table.add_column(column, justify="right" if numbers else "left")
    for row in shown:
        table.add_row(*(Text(_readable(cell)) for cell in row))
    console().print(table)


def write_row(cells: Iterable[object]) -> None:
    """Write one line, with tabs between the cells and none within."""
    echo("\t".join(map(_plain, cells)))


def write_key_values(title: str, fields: Mapping[str, object]) -> None:
    """Write the names and values of one thing, except values that are None."""
    known = {name: value for name, value in fields.items() if value is not None}
    if not is_terminal():
        for name, value in known.items():
            write_row([name, value])
        return
    echo(Styled(title, bold=True))
    width = max(map(len, known), default=0)
    for name, value in known.items():
        lines = _readable(value).splitlines() or [""]
        echo(f"  {name:>{width}}  " + f"\n  {'':{width}}  ".join(lines))


def write_sections(title: str, sections: Mapping[str, Mapping[str, object]]) -> None:
    """Write the names and values of one thing, in groups with headings, for a terminal.

    Values that are None and empty groups are left out.
    """
    known = {
        heading: {name: value for name, value in fields.items() if value is not None}
        for heading, fields in sections.items()
    }
    width = max((len(name) for fields in known.values() for name in fields), default=0)
    echo(Styled(title, bold=True))
    for heading, fields in known.items():
        if not fields:
            continue
        echo()
        if heading:
            echo(Styled(f"{heading}:", bold=True))
        for name, value in fields.items():
            # Other programs choose the names of metadata, so make them safe.
            shown = printable(name).replace("\n", " ").replace("\t", " ")
            lines = _readable(value).splitlines() or [""]
            echo(f"  {shown:>{width}}  " + f"\n  {'':{width}}  ".join(lines))


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_plain, value))
    return _readable(value, _PLAIN).replace("\t", " ").replace("\n", " ")


def _readable(value: object, number: str = "{:,}") -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Size | Duration) and number != _PLAIN:
        return value.text
    if isinstance(value, Duration):
        return f"{value:g}"
    if isinstance(value, int):
        return number.format(value)
    if isinstance(value, list | tuple):
        return "\n".join(_readable(item, number) for item in value)
    # Escape here, before the column widths are computed.
    return printable(str(value))
