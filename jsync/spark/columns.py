"""Record batches for Spark, converted by whole columns. Pure.

Spark accepts a record batch only if its schema is exactly the one that Spark would make,
with microseconds, signed integers, and the same order and nullability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow
from pyarrow import compute

from .buckets import operation_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .. import Headers, StoredMessage

_STORED = {
    "subject": pyarrow.string(),
    "data": pyarrow.binary(),
    "sequence": pyarrow.uint64(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
    "headers": pyarrow.map_(pyarrow.string(), pyarrow.list_(pyarrow.string())),
}
_OF_ENTRIES = {
    "key": "subject",
    "value": "data",
    "revision": "sequence",
    "timestamp": "timestamp",
    "operation": "headers",
}
"""The column of messages that each column of entries is made of."""


def conform(
    batch: pyarrow.RecordBatch, stream: str, schema: pyarrow.Schema
) -> pyarrow.RecordBatch:
    """Return the columns of `schema`, all of which the batch has except `stream`."""
    columns = []
    for field in schema:
        if field.name == "stream":
            column = pyarrow.repeat(pyarrow.scalar(stream, field.type), batch.num_rows)
        else:
            column = batch.column(field.name)
            if field.name in ("sequence", "revision"):
                column = column.view(field.type)  # sequences are below 2**63
            elif column.type != field.type:
                column = column.cast(field.type, safe=False)
        columns.append(column)
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def entries(
    batch: pyarrow.RecordBatch, prefix: str, names: Sequence[str]
) -> pyarrow.RecordBatch:
    """Return messages of a bucket as its entries, with the named columns.

    Args:
        batch: The messages, with the columns of `message_columns`.
        prefix: The subjects of the bucket, up to the key.
        names: The columns of the entries.
    """
    columns = []
    for name in names:
        column = batch.column(_OF_ENTRIES[name])
        if name == "key":
            column = compute.utf8_slice_codeunits(column, len(prefix))
        elif name == "operation":
            column = _operations(column)
        columns.append(column)
    return pyarrow.RecordBatch.from_arrays(columns, names=list(names))


def message_columns(names: Sequence[str]) -> list[str]:
    """Return the columns of messages that the columns of entries are made of."""
    return [_OF_ENTRIES[name] for name in names]


def _operations(headers: pyarrow.Array) -> pyarrow.Array:
    if headers.null_count == len(headers):
        return pyarrow.repeat(pyarrow.scalar("PUT"), len(headers))
    return pyarrow.array(
        [
            operation_of({name: values[0] for name, values in items or () if values})
            for items in headers.to_pylist()
        ],
        pyarrow.string(),
    )


def first_missing(position: int, sequences: pyarrow.Array) -> int:
    """Return the first sequence after `position` that is missing in `sequences`."""
    if sequences[0].as_py() > position + 1:
        return position + 1
    steps = compute.pairwise_diff(sequences.view(pyarrow.int64()))
    index = compute.index(compute.greater(steps, 1), True).as_py()
    before: int = sequences[index - 1].as_py()
    return before + 1


def without_header(batch: pyarrow.RecordBatch, name: str) -> pyarrow.RecordBatch:
    """Return the batch without one header. Rows without other headers get null."""
    index = batch.schema.get_field_index("headers")
    headers = batch.column(index)
    kept = compute.not_equal(headers.keys, name)
    counts = compute.cumulative_sum(kept.cast(pyarrow.int32()))
    cumulative = pyarrow.concat_arrays([pyarrow.array([0], pyarrow.int32()), counts])
    offsets = cumulative.take(headers.offsets)
    empty = compute.equal(offsets[:-1], offsets[1:])
    starts = compute.if_else(empty, None, offsets[:-1])
    column = pyarrow.MapArray.from_arrays(
        pyarrow.concat_arrays([starts, offsets[-1:]]),
        headers.keys.filter(kept),
        headers.items.filter(kept),
    )
    columns = [*batch.columns[:index], column, *batch.columns[index + 1 :]]
    return pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def stored_batch(
    messages: Sequence[StoredMessage], names: Sequence[str]
) -> pyarrow.RecordBatch:
    """Return messages that came one by one as a batch with the named columns."""
    columns = []
    for name in names:
        values: list[Any] = [getattr(message, name) for message in messages]
        if name == "headers":
            values = [_header_items(headers) for headers in values]
        elif name == "subject":
            values = [_readable(subject) for subject in values]
        columns.append(pyarrow.array(values, _STORED[name]))
    return pyarrow.RecordBatch.from_arrays(columns, names=list(names))


def _header_items(headers: Headers | None) -> list[tuple[str, list[str]]] | None:
    if headers is None:
        return None
    return [
        (_readable(name), [_readable(value) for value in headers.get_all(name)])
        for name in headers
    ]


def _readable(text: str) -> str:
    """Replace bytes that are not UTF-8, because strings of Arrow cannot hold them."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
