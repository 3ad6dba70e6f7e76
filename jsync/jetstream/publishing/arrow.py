"""Tables as messages, for the `publish_arrow` of publishers and fast ingests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypedDict

from ..._fast import ArrowSource
from ...errors import ConfigError
from .options import check_header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    Rows: TypeAlias = tuple[
        str | list[str], list[bytes], list[bytes | None] | None, bool
    ]

ROWS = 1000
"""Rows that are checked before the first of them is sent."""


class ArrowTable(Protocol):
    """Any table of columns: of pyarrow, polars, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A stream of record batches, as a capsule."""


class MessageColumns(TypedDict, total=False):
    """The names of table columns that are options of the messages.

    `PublishOptions` describes the options. A null value is the same as no option.

    Example:
        ```python
        import pyarrow as pa

        table = pa.table({"id": ["1", "2"], "body": [b"{}", b"{}"]})
        columns: jsync.MessageColumns = {"msg_id": "id"}
        with js.publisher() as publisher:
            publisher.publish_arrow(table, subject="orders.new", data="body", **columns)
        ```
    """

    msg_id: str | None
    """The column of ids: text."""
    headers: str | None
    """The column of headers: a map, or a list of pairs, of names to values."""
    ttl: str | None
    """The column of times to live: whole seconds as an integer, or the text
    `"never"`."""
    expected_stream: str | None
    """The column of stream names: text. If there is no such column: the name for all
    rows."""
    expected_last_sequence: str | None
    """The column of sequences: integers. The next option is the same."""
    expected_last_subject_sequence: str | None
    expected_last_msg_id: str | None
    """The column of ids: text."""


def arrow_source(
    table: ArrowTable,
    subject: str,
    data: str,
    columns: MessageColumns,
    unsupported: Mapping[str, str] | None = None,
) -> ArrowSource:
    """Return the rows of a table as a source of messages.

    `unsupported` has the options that this way of publishing cannot carry, and why.
    """
    for name, why in (unsupported or {}).items():
        if columns.get(name) is not None:
            raise ConfigError(f"{name}: {why}")
    return ArrowSource(
        table, subject=subject, data=data, check_header=check_header, **columns
    )


def publish_table(source: ArrowSource, publish: Callable[[Rows], object]) -> int:
    """Publish all rows in order, and return their number.

    The attribute `published` of an error is the number of rows published before it.
    """
    done = 0
    try:
        while (rows := source.take(ROWS)) is not None:
            publish(rows)
            done += len(rows[1])
    except BaseException as error:
        error.published = done + getattr(error, "published", 0)  # type: ignore[attr-defined]
        raise
    return done
