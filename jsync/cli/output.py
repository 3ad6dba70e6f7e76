"""Tables for people, tab-separated lines for pipes, JSON for programs.

A command says what it has found as a document, and how that looks as a table. With `--json`
the document is written, one to a command; what flows is one document to a line.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def is_terminal() -> bool:
    """Whether people look at the standard output."""
    return sys.stdout.isatty()


def write_bytes(data: bytes) -> None:
    """Bytes as they are, at once: whoever reads the pipe may wait for them."""
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


def write_json(document: Any) -> None:
    """One document, indented for people who look at it."""
    write_bytes(_json(document, indent=2))


def write_line(document: Any) -> None:
    """One document of a flow on a line of its own, at once."""
    write_bytes(_json(document, separators=(",", ":")))


def _json(document: Any, **form: Any) -> bytes:
    try:
        return json.dumps(document, ensure_ascii=False, **form).encode() + b"\n"
    except UnicodeEncodeError:  # bytes of a header that are no UTF-8
        return json.dumps(document, **form).encode() + b"\n"


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on a terminal; else a line of headings and lines, tab-separated."""
    if not is_terminal():
        click.echo("\t".join(columns))
        for row in rows:
            click.echo("\t".join(_plain(cell) for cell in row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown = [list(row) for row in rows]
    for number, column in enumerate(columns):
        numbers = all(isinstance(row[number], int | float) for row in shown)
        table.add_column(column, justify="right" if numbers else "left")
    for row in shown:
        table.add_row(*(Text(_readable(cell)) for cell in row))
    Console().print(table)


def write_facts(title: str, facts: Mapping[str, object]) -> None:
    """Names and values of one thing; those that are None are left out."""
    known = {name: value for name, value in facts.items() if value is not None}
    if not is_terminal():
        for name, value in known.items():
            click.echo(f"{name}\t{_plain(value)}")
        return
    click.secho(title, bold=True)
    width = max(map(len, known), default=0)
    for name, value in known.items():
        lines = _readable(value).splitlines() or [""]
        click.echo(f"  {name:>{width}}  " + f"\n  {'':{width}}  ".join(lines))


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_plain, value))
    return _readable(value, "{}").replace("\t", " ").replace("\n", " ")


def _readable(value: object, number: str = "{:,}") -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return number.format(value)
    if isinstance(value, list | tuple):
        return "\n".join(_readable(item, number) for item in value)
    return printable(str(value))


def printable(text: str) -> str:
    """Text whose control characters cannot do anything to a terminal."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )
