"""The size and the configuration of a store, as `ObjectStore.status` returns them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .config import ObjectStoreConfig

if TYPE_CHECKING:
    from ...models import StreamInfo
    from ...models.stream import Storage


class ObjectStoreStatus:
    """The size and the configuration of a store, at the moment of the call.

    Example:
        ```python
        status = store.status()
        print(status.bucket, status.size, status.is_sealed)
        ```
    """

    def __init__(self, info: StreamInfo) -> None:
        self.stream_info = info
        """All that the server tells about the stream of the store."""
        self.config = ObjectStoreConfig.from_stream_config(info.config)
        """The configuration of the store."""

    @property
    def bucket(self) -> str:
        """The name of the store."""
        return self.config.bucket or ""

    @property
    def description(self) -> str | None:
        """The description of the store."""
        return self.config.description

    @property
    def size(self) -> int:
        """Bytes that the store takes, infos and headers included."""
        return self.stream_info.state.bytes

    @property
    def ttl(self) -> float | None:
        """Seconds that an object stays. None: forever."""
        return self.config.ttl

    @property
    def storage(self) -> Storage:
        """`file` or `memory`."""
        return self.config.storage or "file"

    @property
    def replicas(self) -> int:
        """The number of servers that hold the store."""
        return self.config.replicas or 1

    @property
    def is_sealed(self) -> bool:
        """True if the store is sealed, so that it cannot be changed."""
        return bool(self.stream_info.config.sealed)

    @property
    def is_compressed(self) -> bool:
        """True if the server compresses the files of the store."""
        return bool(self.config.compression)

    @property
    def backing_store(self) -> str:
        """The kind of storage below the store: always `JetStream`."""
        return "JetStream"

    @property
    def metadata(self) -> dict[str, str]:
        """Your own notes on the store."""
        return dict(self.config.metadata or {})

    def __repr__(self) -> str:
        return f"<ObjectStoreStatus of {self.bucket!r}, {self.size} bytes>"
