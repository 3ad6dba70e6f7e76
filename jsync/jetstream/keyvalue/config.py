"""The configuration of a bucket, and of the stream behind it (ADR-8, ADR-48, ADR-57).

Pure: no socket, thread or clock.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

import msgspec

from ...errors import ConfigError
from ...models import (
    ConsumerLimits,
    Model,
    Placement,
    Republish,
    Storage,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from ...models.codec import ByteCount, PositiveSeconds  # noqa: TC001 (types of fields)
from ..buckets.engine import check_bucket, normalize_limit, user_metadata
from .engine import STREAM_PREFIX

MAX_HISTORY: Final = 64
_DUPLICATE_WINDOW: Final = 120.0


class KeyValueConfig(Model, kw_only=True, frozen=True):
    """The configuration of a bucket. Fields that are not set have their default.

    Example:
        ```python
        config = jsync.KeyValueConfig(bucket="settings", history=5, ttl=3600)
        kv = js.create_key_value(config)
        ```
    """

    bucket: str | None = None
    """The name of the bucket: letters, digits, `-` and `_`."""
    description: str | None = None
    """A human-readable description, up to 4 KiB. Default: none."""
    max_value_size: ByteCount | None = None
    """The most bytes of one value with its headers. Default: -1, no limit."""
    history: Annotated[int, msgspec.Meta(ge=1, le=MAX_HISTORY)] | None = None
    """Revisions kept for each key, from 1 to 64. Default: 1."""
    ttl: PositiveSeconds | None = None
    """Seconds after which a revision expires. Default: 0, never."""
    max_bytes: ByteCount | None = None
    """The most bytes of the bucket. Default: -1, no limit."""
    storage: Storage | None = None
    """The storage: `file` or `memory`. Default: `file`."""
    replicas: int | None = None
    """The number of servers that store the bucket, up to 5. Default: 1."""
    placement: Placement | None = None
    """The servers that may store the bucket. Default: any."""
    republish: Republish | None = None
    """The subject to publish each change on again. Default: none."""
    mirror: StreamSource | None = None
    """The bucket to copy as a read-only mirror."""
    sources: list[StreamSource] | None = None
    """Buckets to copy keys from. A source with transforms may be any stream."""
    compression: bool | None = None
    """Compress the files. Default: False."""
    limit_marker_ttl: PositiveSeconds | None = None
    """Seconds, from 1, that a marker stays where a value expired, so that watches hear of
    it. It also allows `ttl` with `create` and `purge`. Default: 0, neither.

    Since nats-server 2.11.
    """
    metadata: dict[str, str] | None = None
    """Your own notes, up to 128 KiB. Keys with `_nats.` belong to the server."""

    @classmethod
    def from_any(cls, config: object | None, fields: Any) -> Self:
        """Make a checked object of a whole configuration or of keywords, not of both.

        Args:
            config: A `KeyValueConfig`, a mapping, or a configuration of nats-py.
            fields: The fields, instead of `config`.

        Returns:
            The checked object.

        Raises:
            ConfigError: A field has a value that is not allowed. The error names the
                field.
        """
        checked = super().from_any(config, fields)
        # nats-py has two extra fields: `direct`, which is always on in jsync, and
        # `limit_marker_ttl`, which its `as_dict` leaves out.
        unknown = checked.extra.keys() - {"direct"}
        if unknown:
            raise ConfigError(f"KeyValueConfig has no field {min(unknown)!r}")
        marker: Any = getattr(config, "limit_marker_ttl", None)
        if marker is None and not checked.extra:
            return checked
        return checked.replace(
            extra={}, limit_marker_ttl=marker or checked.limit_marker_ttl
        )._checked()

    def _check(self) -> None:
        check_bucket(self.bucket)
        if self.mirror is not None and self.sources:
            raise ConfigError("mirror and sources exclude each other: give one")
        if self.limit_marker_ttl and self.limit_marker_ttl < 1:
            raise ConfigError(
                f"limit_marker_ttl: from 1 second, not {self.limit_marker_ttl}"
            )

    @classmethod
    def from_stream_config(cls, config: StreamConfig) -> Self:
        """Read the configuration of a bucket from that of its stream.

        Args:
            config: The configuration of the stream.

        Returns:
            The configuration of the bucket.
        """
        return cls(
            bucket=(config.name or "").removeprefix(STREAM_PREFIX),
            description=config.description,
            max_value_size=normalize_limit(config.max_msg_size),
            history=config.max_msgs_per_subject,
            ttl=config.max_age or None,
            max_bytes=normalize_limit(config.max_bytes),
            storage=config.storage,
            replicas=config.num_replicas,
            placement=config.placement,
            republish=config.republish,
            mirror=config.mirror,
            sources=config.sources,
            compression=config.compression == "s2",
            limit_marker_ttl=config.subject_delete_marker_ttl or None,
            metadata=user_metadata(config),
        )

    def stream(self) -> StreamConfig:
        """The configuration of the bucket's stream, the same as nats.go creates."""
        ttl = self.ttl or 0.0
        config = StreamConfig(
            name=f"{STREAM_PREFIX}{self.bucket}",
            description=self.description or None,
            retention="limits",
            max_consumers=-1,
            max_msgs=-1,
            max_msgs_per_subject=self.history or 1,
            max_bytes=self.max_bytes or -1,
            max_age=ttl,
            max_msg_size=self.max_value_size or -1,
            storage=self.storage or "file",
            discard="new",
            num_replicas=self.replicas or 1,
            placement=self.placement,
            duplicate_window=min(ttl, _DUPLICATE_WINDOW) or _DUPLICATE_WINDOW,
            allow_rollup_hdrs=True,
            deny_delete=True,
            allow_direct=True,
            mirror_direct=self.mirror is not None,
            republish=self.republish,
            compression="s2" if self.compression else "none",
            consumer_limits=ConsumerLimits(),
            metadata=self.metadata or None,
        )
        if self.limit_marker_ttl:
            config = config.replace(
                allow_msg_ttl=True, subject_delete_marker_ttl=self.limit_marker_ttl
            )
        if self.mirror is not None:
            return config.replace(mirror=_stream_of(self.mirror))
        return config.replace(
            subjects=[f"$KV.{self.bucket}.>"],
            sources=[self._source(source) for source in self.sources or ()] or None,
        )

    def _source(self, source: StreamSource) -> StreamSource:
        """Convert a source for the stream. A source without transforms is another bucket."""
        if source.subject_transforms:
            return source
        stream = _stream_of(source)
        bucket = (stream.name or "").removeprefix(STREAM_PREFIX)
        if source.external is not None and bucket == self.bucket:
            return stream
        moved = SubjectTransform(src=f"$KV.{bucket}.>", dest=f"$KV.{self.bucket}.>")
        return stream.replace(subject_transforms=[moved])


def _stream_of(source: StreamSource) -> StreamSource:
    name = source.name or ""
    if name.startswith(STREAM_PREFIX):
        return source
    return source.replace(name=f"{STREAM_PREFIX}{name}")
