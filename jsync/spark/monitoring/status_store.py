"""The metrics of all queries in a key-value bucket, for tools outside Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ...errors import BucketNotFoundError, InvalidKeyError, KeyNotFoundError
from ..bucket_limit import create_bucket
from .lag import measure_lag
from .metrics import QueryMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ... import JetStream, KeyValue

BUCKET: Final = "jsync_spark_progress"
_MAX_AGE: Final = 30 * 86400.0
"""Seconds after which the bucket forgets a query that no longer runs."""


def query_statuses(js: JetStream, bucket: str = BUCKET) -> list[QueryMetrics]:
    """Read the metrics of all queries that a monitor has noted. Blocks.

    The lag is measured now, so it is right even if the driver of a query is gone.

    Args:
        js: The context of the server that the monitor uses.
        bucket: The bucket of the monitor.

    Returns:
        The metrics of each query, by name. The list is empty if there is no such bucket.

    Raises:
        JetStreamError: The bucket cannot be read.
    """
    try:
        store = js.key_value(bucket)
    except BucketNotFoundError:
        return []
    found = sorted(_entries(store), key=lambda query: query.label)
    for query in found:
        measure_lag(js, query)
    return found


def _entries(store: KeyValue[bytes]) -> Iterator[QueryMetrics]:
    for key in store.keys(">"):
        query = read_status(store, key)
        if query is not None:
            yield query


def read_status(store: KeyValue[bytes], query: str) -> QueryMetrics | None:
    """Return the metrics of a query, or None if the bucket has none. Blocks.

    Keys and values of other programs in the bucket count as None.
    """
    try:
        return msgspec.json.decode(store.get(query).value, type=QueryMetrics)
    except (
        InvalidKeyError,
        KeyNotFoundError,
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
    ):
        return None


def write_status(store: KeyValue[bytes], query: QueryMetrics) -> None:
    """Put the metrics of a query into the bucket. Blocks."""
    store.put(query.id, msgspec.json.encode(query))


def open_status_bucket(js: JetStream, bucket: str) -> KeyValue[bytes]:
    """Return the bucket, and create it if there is none. Blocks."""
    try:
        return js.key_value(bucket)
    except BucketNotFoundError:
        return create_bucket(
            js.create_key_value,
            bucket=bucket,
            description="progress of Spark queries on JetStream",
            ttl=_MAX_AGE,
        )
