"""The names, the limits and the errors that buckets and object stores share (ADR-8, ADR-20).

Pure: no socket, thread or clock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from ... import errors
from ...errors import (
    BucketExistsError,
    BucketNotFoundError,
    ConnectionLostError,
    InvalidBucketNameError,
    JetStreamNotEnabledError,
    JetStreamUnavailableError,
    NoStreamResponseError,
    ReadOnlyBucketError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from ...errors import StreamNameInUseError
    from ...models import StreamConfig

TRANSIENT_ERRORS: Final = (
    errors.TimeoutError,
    ConnectionLostError,
    JetStreamNotEnabledError,
    JetStreamUnavailableError,
    NoStreamResponseError,
)
"""Temporary errors, while servers restart or a stream has no leader."""

_UNMANAGED_FIELDS: Final = (
    *("allow_atomic", "allow_batched", "allow_msg_counter", "allow_msg_schedules"),
    *("persist_mode", "subject_transform"),
)
"""Fields of a stream that the configuration of a bucket never sets."""

_BUCKET: Final = re.compile(r"[a-zA-Z0-9_-]+")


class BucketConfig(Protocol):
    """The configuration of a bucket or of an object store."""

    @property
    def bucket(self) -> str | None:
        """The name of the bucket."""

    def stream(self) -> StreamConfig:
        """Make the configuration of the bucket's stream."""

    @classmethod
    def from_stream_config(cls, config: StreamConfig) -> Self:
        """Read the configuration of a bucket from that of its stream."""

    def updated(self, changes: Mapping[str, Any]) -> Self:
        """Make a checked copy with some fields changed."""


def check_bucket(bucket: object) -> str:
    """Return a valid name of a bucket. Raises `InvalidBucketNameError` otherwise."""
    if isinstance(bucket, str) and _BUCKET.fullmatch(bucket):
        return bucket
    raise InvalidBucketNameError(
        f"not the name of a bucket: {bucket!r}; use letters, digits, - and _"
    )


def bucket_not_found(bucket: str) -> BucketNotFoundError:
    return BucketNotFoundError(
        f"no such bucket: {bucket!r}; create it, or check the account and the domain",
        code=404,
        err_code=10059,
        description="stream not found",
    )


def bucket_exists(
    noun: str, bucket: str | None, bind: str, error: StreamNameInUseError
) -> BucketExistsError:
    """Make the error for a bucket that exists with another configuration.

    Args:
        noun: The word for the bucket in the error.
        bucket: The name of the bucket.
        bind: The method that opens such a bucket.
        error: The error of the bucket's stream.

    Returns:
        The error.
    """
    # The fields of its stream show why a bucket of another client differs.
    differing = ", ".join(error.differences)
    found = f", in {differing}" if differing else ""
    remedy = f"give it this configuration with create_or_update_{bind}"
    if "storage" in error.differences:
        remedy = "delete it: its storage cannot be changed"
    return BucketExistsError(
        f"{noun} exists with another configuration: {bucket!r}{found}; bind to it with "
        f"{bind}, or {remedy}",
        code=error.code,
        err_code=error.err_code,
        description=error.description,
        differences=error.differences,
    )


def user_metadata(config: StreamConfig) -> dict[str, str] | None:
    """Return the metadata that the user gave, without the keys of the server."""
    metadata = config.metadata or {}
    return {k: v for k, v in metadata.items() if not k.startswith("_nats.")} or None


def bucket_in_subjects(config: StreamConfig, stream_prefix: str, space: str) -> str:
    """Return the bucket that the subjects of a stream name.

    It is the bucket of the stream, or the origin of a mirror that transforms no subjects.

    Args:
        config: The configuration of the stream.
        stream_prefix: The begin of the names of such streams, such as `KV_`.
        space: The first token of their subjects, such as `$KV`.

    Returns:
        The name of the bucket.
    """
    mirror: Any = config.mirror
    if mirror is None:
        return (config.name or "").removeprefix(stream_prefix)
    for transform in mirror.subject_transforms or ():
        words = (transform.dest or "").split(".")
        if words[0] == space and len(words) > 2:
            return str(words[1])
    return str(mirror.name or "").removeprefix(stream_prefix)


def origin_of(config: StreamConfig, stream_prefix: str) -> str | None:
    """Return the bucket that a bucket is a mirror of. None: it is no mirror."""
    mirror: Any = config.mirror
    return None if mirror is None else (mirror.name or "").removeprefix(stream_prefix)


def read_only(noun: str, bucket: str, origin: str) -> ReadOnlyBucketError:
    """Make the error for a write to a mirror."""
    return ReadOnlyBucketError(
        f"{noun} {bucket!r} is a mirror; write to {noun} {origin!r}"
    )


def normalize_limit(value: int | None) -> int | None:
    """Return a limit of the stream. None: the stream has none."""
    return value if value is not None and value > 0 else None


def with_unmanaged_fields(config: StreamConfig, existing: StreamConfig) -> StreamConfig:
    """Add to the requested stream those settings of the existing one that no bucket sets.

    An update of the bucket must leave these settings as they are. Among them is
    `allow_msg_ttl`, which nats-py turns on for every bucket and which cannot be turned off. It
    belongs to the bucket only together with `limit_marker_ttl`.
    """
    kept = {name: getattr(existing, name) for name in _UNMANAGED_FIELDS}
    if existing.allow_msg_ttl and not existing.subject_delete_marker_ttl:
        kept["allow_msg_ttl"] = True
    return config.replace(**kept)
