"""Entries of a bucket in the forms for people, pipes and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .messages import body_document, body_text
from .output import (
    OutputSettings,
    Styled,
    is_terminal,
    write_bytes,
    write_json,
    write_line,
    write_table,
    write_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jsync import Entry


_COLUMNS = ("key", "revision", "operation", "created", "bytes", "value")
_COLORS = {"PUT": "green", "DEL": "red", "PURGE": "red"}


class EntryFormat(NamedTuple):
    """The form in which entries are written."""

    json: bool
    raw: bool
    """Write only values, and nothing for a marker. A terminal gets them escaped."""
    values: bool = True

    def write(self, entry: Entry, end: bytes = b"\n") -> None:
        """Write one entry immediately, with `end` after a raw value."""
        if self.json:
            write_line(document_of(entry, values=self.values))
        elif self.raw:
            if entry.operation == "PUT":  # a delete marker has no value
                write_bytes(entry.value + (b"\n" if is_terminal() else end))
        else:
            text = f"{body_text(entry.value)}\n" if self._has_value(entry) else ""
            write_text(
                Styled(f"#{entry.revision} {entry.key} ", bold=True),
                Styled(entry.operation, bold=True, color=_COLORS[entry.operation]),
                *(f" {entry.created:%FT%T.%fZ}\n", text, "\n"),
            )

    def _has_value(self, entry: Entry) -> bool:
        return self.values and entry.operation == "PUT"


def entry_format(
    settings: OutputSettings, *, raw: bool, values: bool = True
) -> EntryFormat:
    """Return the form that the options select.

    Raises `click.UsageError` if the options are mutually exclusive.
    """
    if raw and settings.json:
        raise click.UsageError("--json and --raw exclude each other")
    if raw and not values:
        raise click.UsageError("--raw and --no-values exclude each other")
    return EntryFormat(settings.json, raw, values)


def write_entries(
    entries: Iterable[Entry], settings: OutputSettings, *, values: bool
) -> None:
    """Write entries as a table, or as one document of JSON."""
    if settings.json:
        write_json([document_of(entry, values=values) for entry in entries])
        return
    columns = _COLUMNS if values else _COLUMNS[:4]
    write_table(columns, (_row(entry)[: len(columns)] for entry in entries))


def _row(entry: Entry) -> list[object]:
    value = body_text(entry.value) if entry.operation == "PUT" else ""
    return [
        *(entry.key, entry.revision, entry.operation),
        *(f"{entry.created:%FT%T.%fZ}", len(entry.value), value),
    ]


def document_of(entry: Entry, *, values: bool = True) -> dict[str, Any]:
    """Return an entry as JSON: `value` if it is text, else `value_base64`."""
    document: dict[str, Any] = {
        "bucket": entry.bucket,
        "key": entry.key,
        "revision": entry.revision,
        "operation": entry.operation,
        "created": entry.created.isoformat(),
        "delta": entry.delta,
    }
    if values and entry.operation == "PUT":
        document |= body_document("value", entry.value)
    return document
