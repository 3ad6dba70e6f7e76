"""The columns of messages, buckets and object stores, as a source of a pipeline has them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..column_types import ENTRY_TYPES, MESSAGE_TYPES, OBJECT_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .config import JetStreamSource


def column_types(source: JetStreamSource) -> Mapping[str, str]:
    """Return the types of all columns that a source can have, but for its payload's fields."""
    if source.object_store is not None:
        return OBJECT_TYPES
    return MESSAGE_TYPES if source.bucket is None else ENTRY_TYPES


def row_name(source: JetStreamSource) -> str:
    """Return what a row of a source is, for people."""
    if source.object_store is not None:
        return "object"
    return "message" if source.bucket is None else "bucket"


def payload_column(source: JetStreamSource) -> str:
    """Return the column with the payload, which `json` describes."""
    return "data" if source.bucket is None else "value"


def offered_columns(source: JetStreamSource) -> list[str]:
    """Return the columns that the options of a source permit."""
    given = {name.lower(): value for name, value in source.options.items()}
    with_headers = given.get("includeheaders", "").strip().lower() == "true"
    return [n for n in column_types(source) if n != "headers" or with_headers]


def source_columns(source: JetStreamSource) -> list[str]:
    """Return the columns of the view of a source, without the fields of the payload."""
    payload = payload_column(source)
    return source.columns or [
        name for name in offered_columns(source) if name != payload or not source.json
    ]


def decoded_columns(source: JetStreamSource) -> list[str]:
    """Return the columns that are needed to decode payloads, and to name a malformed one."""
    if source.bucket is None:
        return ["data", "stream", "sequence"]
    return ["value", "key", "revision", "operation"]


def dead_columns(source: JetStreamSource) -> list[str]:
    """Return the columns of which dead letters are made."""
    if source.bucket is None:
        return ["stream", "subject", "sequence", "timestamp", "data"]
    return ["key", "value", "revision", "timestamp", "operation"]
