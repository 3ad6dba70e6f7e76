"""The configuration of a store, and of the stream behind it (ADR-20).

Pure: no socket, thread or clock.
"""

from __future__ import annotations

from typing import Self

from ...models import ConsumerLimits, Model, Placement, Storage, StreamConfig
from ...models.codec import PositiveSeconds  # noqa: TC001 (a field's type)
from ..buckets.engine import check_bucket, normalize_limit, user_metadata
from .engine import STREAM_PREFIX


class ObjectStoreConfig(Model, kw_only=True, frozen=True):
    """The configuration of a store. A field that is not set has its default.

    Example:
        ```python
        config = jsync.ObjectStoreConfig(bucket="reports", ttl=7 * 86400)
        store = js.create_object_store(config)
        ```
    """

    bucket: str | None = None
    """Its name, of letters, digits, `-` and `_`."""
    description: str | None = None
    """A human-readable description, up to 4 KiB. Default: none."""
    ttl: PositiveSeconds | None = None
    """Seconds that an object stays. Default: 0, forever."""
    max_bytes: int | None = None
    """Bytes that the store may hold. Default: -1, any number."""
    storage: Storage | None = None
    """`file` or `memory`. Default: `file`."""
    replicas: int | None = None
    """Servers that hold it, at most 5. Default: 1."""
    placement: Placement | None = None
    """The cluster or the tags of the servers that may hold the store. Default: any."""
    compression: bool | None = None
    """Compress the files. Default: False."""
    metadata: dict[str, str] | None = None
    """Your own notes, up to 128 KiB. `_nats.` is the server's."""

    def _check(self) -> None:
        check_bucket(self.bucket)

    @classmethod
    def from_stream_config(cls, config: StreamConfig) -> Self:
        """Read the configuration of a store from its stream.

        Args:
            config: The configuration of the stream.

        Returns:
            The configuration of the store.
        """
        return cls(
            bucket=(config.name or "").removeprefix(STREAM_PREFIX),
            description=config.description,
            ttl=config.max_age or None,
            max_bytes=normalize_limit(config.max_bytes),
            storage=config.storage,
            replicas=config.num_replicas,
            placement=config.placement,
            compression=config.compression == "s2",
            metadata=user_metadata(config),
        )

    def stream(self) -> StreamConfig:
        """Make the configuration of the store's stream, the same as nats.go makes.

        Returns:
            The configuration of the stream.
        """
        ttl = self.ttl or 0.0
        return StreamConfig(
            name=f"{STREAM_PREFIX}{self.bucket}",
            description=self.description or None,
            subjects=[f"$O.{self.bucket}.C.>", f"$O.{self.bucket}.M.>"],
            max_bytes=self.max_bytes or -1,
            retention="limits",
            max_consumers=0,
            max_msgs=0,
            max_msgs_per_subject=0,
            max_age=ttl,
            storage=self.storage or "file",
            discard="new",
            num_replicas=self.replicas or 1,
            placement=self.placement,
            allow_rollup_hdrs=True,
            allow_direct=True,
            mirror_direct=False,
            consumer_limits=ConsumerLimits(),
            compression="s2" if self.compression else "none",
            metadata=self.metadata or None,
        )
