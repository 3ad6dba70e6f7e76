"""Changes of the keys of a bucket, as the messages that its stream stores (ADR-8)."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from ...errors import ConfigError, MessageNotFoundError, WrongLastSequenceError
from ..buckets import STREAM_PREFIX, operation_of
from ..server_columns import GIVEN
from .columns import ColumnPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ... import JetStream, PubAckFuture, Stream

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "key": ("string",),
    "value": ("binary", "string"),
    "operation": ("string",),
    "expected_revision": _WHOLE,
}
"""The columns of a write into a bucket, and the types that Spark may have for each."""
KEY: Final = r"[-/_=a-zA-Z0-9]+(?:\.[-/_=a-zA-Z0-9]+)*"
"""Keys that clients accept. A purge of any other key could remove the values of many."""
WRITE: Final = "Jsync-Write"
"""The header that names the write of a message with an expected revision."""

_EXPECTED: Final = "expected_last_subject_sequence"
_EXPECTED_HEADER: Final = "Nats-Expected-Last-Subject-Sequence"
_ELSEWHERE: Final = {
    "data": "value",
    "subject": "key",
    "revision": "expected_revision",
    "expected_last_subject_sequence": "expected_revision",
}


class EntryPlan:
    """The columns of one write into a bucket, in their order."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        """Read the names and Spark's types of columns. Raises `ConfigError` for invalid ones."""
        for name, kind in fields:
            _check(name, kind)
        self.names = tuple(name.lower() for name, _ in fields)
        for name in self.names:
            if self.names.count(name) > 1:
                raise ConfigError(
                    f"two columns have the name {name}: rename or drop one"
                )
        if "key" not in self.names:
            raise ConfigError("there is no column key: the key of each row")
        if not {"value", "operation"} & set(self.names):
            raise ConfigError(
                "there is no column value: the value of each key, null for a delete"
            )
        expected = (_EXPECTED,) if "expected_revision" in self.names else ()
        self.messages = ColumnPlan(("subject", "data", "headers", *expected))
        """The columns of the messages."""

    def batch_of(
        self, entries: pa.RecordBatch, prefix: str, write: str
    ) -> pa.RecordBatch:
        """Return the messages of some rows.

        Args:
            entries: The rows.
            prefix: The subjects of the bucket up to the key.
            write: The name of the write, which is the same if the write is repeated.

        Raises:
            ConfigError: A row has an unknown operation, or should put no value.
        """
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        columns = dict(zip(self.names, entries.columns, strict=True))
        count = entries.num_rows
        subjects = pc.binary_join_element_wise(
            pa.scalar(prefix), columns["key"].cast(pa.string()), ""
        )
        values = columns.get("value")
        if values is None:
            values = pa.nulls(count, pa.binary())
        values = values.cast(pa.binary())
        operations = _operations(columns.get("operation"), values)
        is_put = pc.equal(operations, "PUT")
        data = pc.if_else(is_put, values, pa.scalar(b"", pa.binary()))
        expected = columns.get("expected_revision")
        headers = pa.array(
            _headers(columns["key"], operations, data, expected, write),
            pa.map_(pa.string(), pa.string()),
        )
        arrays = [subjects, data, headers]
        if expected is not None:
            arrays.append(expected.cast(pa.int64()))
        return pa.RecordBatch.from_arrays(arrays, names=list(self.messages.names))


def _operations(given: pa.Array | None, values: pa.Array) -> pa.Array:
    """Return the operation of each row. Raises `ConfigError` for a row that is not valid."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    by_value = pc.if_else(pc.is_null(values), "DEL", "PUT")
    if given is None:
        return by_value
    upper = pc.utf8_upper(given.cast(pa.string()))
    known = pc.is_in(upper, value_set=pa.array(["PUT", "DEL", "PURGE", None]))
    if not pc.all(known).as_py():
        other = pc.filter(given, pc.invert(known))[0].as_py()
        raise ConfigError(
            f"the column operation has {other!r}: it has to be PUT, DEL, PURGE or null"
        )
    operations = pc.coalesce(upper, by_value)
    empty = pc.and_(pc.equal(operations, "PUT"), pc.is_null(values))
    if pc.any(empty).as_py():
        raise ConfigError(
            "a row has the operation PUT, and its value is null: give a value, or the "
            "operation DEL"
        )
    return operations


def _headers(
    keys: pa.Array,
    operations: pa.Array,
    data: pa.Array,
    expected: pa.Array | None,
    write: str,
) -> list[list[tuple[str, str]] | None]:
    fixed = {
        "PUT": [],
        "DEL": [("KV-Operation", "DEL")],
        "PURGE": [("KV-Operation", "PURGE"), ("Nats-Rollup", "sub")],
    }
    if expected is None:
        return [fixed[operation] or None for operation in operations.to_pylist()]
    found: list[list[tuple[str, str]] | None] = []
    columns = (column.to_pylist() for column in (keys, operations, data, expected))
    for key, operation, value, revision in zip(*columns, strict=True):
        headers = list(fixed[operation])
        if revision is not None:
            # Another row of the write may expect the same revision of the same key.
            identity = f"{key} {revision} {operation} ".encode() + value
            row = hashlib.blake2b(identity, digest_size=12).hexdigest()
            headers.append((WRITE, f"{write}/{row}"))
        found.append(headers or None)
    return found


def _check(name: str, kind: str) -> None:
    kinds = KINDS.get(name.lower())
    if kinds is None:
        near = _ELSEWHERE.get(name.lower())
        hint = "" if near is None else f" Is it {near}? Rename it, or drop it."
        if name.lower() in GIVEN:
            hint = f"{hint} The server gives it."
        raise ConfigError(
            f"a bucket takes no column {name}: there are {', '.join(KINDS)}.{hint}"
        )
    if kind.split(" collate")[0] not in kinds:
        raise ConfigError(
            f"the column {name} is {kind}, and has to be {' or '.join(kinds)}: cast it"
        )


class Expectations:
    """Decides whether a rejected row was stored by an earlier attempt of the same write."""

    def __init__(self, js: JetStream, bucket: str, prefix: str) -> None:
        """Do not block.

        Args:
            js: JetStream.
            bucket: The bucket.
            prefix: The subjects to publish to, up to the key.
        """
        self._js = js
        self._stream: Stream = js.bind_stream(STREAM_PREFIX + bucket)
        self._prefix = prefix
        self._stored = f"$KV.{bucket}."

    def resolve(self, future: PubAckFuture) -> bool:
        """Return whether the row of a rejected message is stored now. Blocks.

        An earlier attempt may have stored it. Expected revision 0 also means a key that was
        deleted, so the row is published again over the delete.

        Raises:
            WrongLastSequenceError: Another writer has changed the key in this moment.
        """
        headers = future.headers
        if headers is None or headers.get(WRITE) is None:
            return False
        write = headers[WRITE]
        subject = self._stored + future.subject.removeprefix(self._prefix)
        expected = int(headers[_EXPECTED_HEADER])
        last, sequence = None, expected + 1
        while True:
            try:
                last = self._stream.get_message(
                    sequence=sequence, next_by_subject=subject, direct=False
                )
            except MessageNotFoundError:
                break
            if last.headers is not None and last.headers.get(WRITE) == write:
                return True
            sequence = last.sequence + 1
        if expected or last is None or operation_of(last.headers) == "PUT":
            return False
        kept = {
            name: headers.get_all(name) for name in headers if name != _EXPECTED_HEADER
        }
        self._js.publish(
            future.subject,
            future.data,
            headers=kept,
            expected_last_subject_sequence=last.sequence,
        )
        return True

    def conflict(self, future: PubAckFuture, error: Exception) -> Exception:
        """Return the error of a row whose key has another revision than it expects."""
        headers = future.headers
        if not isinstance(error, WrongLastSequenceError) or headers is None:
            return error
        key = future.subject.removeprefix(self._prefix)
        expected = headers.get(_EXPECTED_HEADER)
        text = (
            f"key {key!r} is not at expected_revision {expected}, because another writer "
            "has changed it: read the key again, or give the option deadLetterSubject"
        )
        return type(error)(
            text,
            code=error.code,
            err_code=error.err_code,
            description=error.description,
        )


def subjects_of(prefix: str) -> str:
    """Return a regular expression, of Python and of RE2, for the subjects of valid keys."""
    return f"^{re.escape(prefix)}{KEY}$"
