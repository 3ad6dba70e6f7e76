"""Buckets and object stores as streams on the server. Everything here blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import StreamNameInUseError, StreamNotFoundError
from .. import management
from .engine import bucket_exists, bucket_not_found, check_bucket, with_unmanaged_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...models import StreamInfo
    from ...validation import Seconds
    from ..api import API
    from .engine import BucketConfig


def create(
    api: API, config: BucketConfig, noun: str, bind: str, timeout: Seconds | None
) -> StreamInfo:
    """Create a bucket.

    Raises `BucketExistsError`, with `noun` and `bind` in its text, if the bucket exists with
    another configuration.
    """
    try:
        return management.create_stream(api, config.stream(), {}, timeout)
    except StreamNameInUseError as error:
        raise bucket_exists(noun, config.bucket, bind, error) from error


def update(
    api: API,
    config: BucketConfig,
    fields: Mapping[str, Any] | None,
    timeout: Seconds | None,
) -> StreamInfo:
    """Change a bucket: only these `fields` of `config`, or all if `fields` is None."""
    stream = config.stream()
    try:
        info = management.stream_info(api, stream.name or "", timeout=timeout)
        if fields is None:
            stream = with_unmanaged_fields(stream, info.config)
            return management.update_stream(api, stream, {}, timeout)
        before = config.from_stream_config(info.config)
        changes = before.updated(fields).stream().changes_from(before.stream())
        return management.update_stream(
            api, None, {"name": stream.name, **changes}, timeout
        )
    except StreamNotFoundError as error:
        raise bucket_not_found(config.bucket or "") from error


def create_or_update(
    api: API, config: BucketConfig, timeout: Seconds | None
) -> StreamInfo:
    try:
        return update(api, config, None, timeout)
    except StreamNotFoundError:
        return management.create_or_update_stream(api, config.stream(), {}, timeout)


def find(api: API, prefix: str, bucket: str, timeout: Seconds | None) -> StreamInfo:
    """Look up the stream of a bucket. Raises `BucketNotFoundError` if there is none."""
    stream = prefix + check_bucket(bucket)
    try:
        return management.stream_info(api, stream, timeout=timeout)
    except StreamNotFoundError as error:
        raise bucket_not_found(bucket) from error


def delete(api: API, prefix: str, bucket: str, timeout: Seconds | None) -> None:
    """Delete a bucket. Raises `BucketNotFoundError` if there is none."""
    stream = prefix + check_bucket(bucket)
    try:
        management.delete_stream(api, stream, timeout)
    except StreamNotFoundError as error:
        raise bucket_not_found(bucket) from error


def names(
    api: API, prefix: str, subject: str, timeout: Seconds | None
) -> Iterator[str]:
    """Iterate over the names of the buckets whose streams have `subject`, page by page."""
    for name in management.stream_names(api, subject, timeout):
        if name.startswith(prefix):
            yield name.removeprefix(prefix)


def infos(
    api: API, prefix: str, subject: str, timeout: Seconds | None
) -> Iterator[StreamInfo]:
    """Iterate over the streams of the buckets that have `subject`, page by page."""
    for info in management.streams(api, subject, timeout):
        if (info.config.name or "").startswith(prefix):
            yield info
