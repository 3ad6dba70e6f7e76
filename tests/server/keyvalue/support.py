"""What the tests of buckets share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import jsync


def fill(nc: jsync.Connection, bucket: jsync.KeyValue, keys: Iterable[str]) -> None:
    """Put each key, with itself as its value, without waiting for each."""
    with nc.jetstream().publisher() as publisher:
        for key in keys:
            publisher.publish(f"$KV.{bucket.bucket}.{key}", key.encode())


def consumers(js: jsync.JetStream, bucket: jsync.KeyValue) -> list[str]:
    """The names of the consumers on the server."""
    return list(js.consumer_names(f"KV_{bucket.bucket}"))
