"""The contents and the configuration of a bucket, as `KeyValue.status` returns them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...hints import explain_attributes
from .config import KeyValueConfig

if TYPE_CHECKING:
    from ...models import StreamInfo


@explain_attributes
class KeyValueStatus:
    """The contents and the configuration of a bucket, at the time of the call.

    Example:
        ```python
        status = kv.status()
        print(status.bucket, status.values, status.bytes)
        ```
    """

    def __init__(self, info: StreamInfo) -> None:
        self.stream_info = info
        """Everything that the server says of the bucket's stream."""
        self.config = KeyValueConfig.from_stream_config(info.config)
        """The configuration of the bucket."""

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return self.config.bucket or ""

    @property
    def values(self) -> int:
        """The number of entries, including history and delete markers."""
        return self.stream_info.state.messages

    @property
    def bytes(self) -> int:
        """The bytes of these entries."""
        return self.stream_info.state.bytes

    @property
    def history(self) -> int:
        """Revisions kept for each key."""
        return self.config.history or 1

    @property
    def ttl(self) -> float | None:
        """Seconds after which a revision expires. None: never."""
        return self.config.ttl

    @property
    def limit_marker_ttl(self) -> float | None:
        """Seconds that the marker of an expired value stays. None: no markers."""
        return self.config.limit_marker_ttl

    @property
    def is_compressed(self) -> bool:
        """True if the server compresses the files of the bucket."""
        return bool(self.config.compression)

    @property
    def backing_store(self) -> str:
        """The kind of store: always `JetStream`."""
        return "JetStream"

    @property
    def metadata(self) -> dict[str, str]:
        """Your own notes on the bucket."""
        return dict(self.config.metadata or {})

    def __repr__(self) -> str:
        return f"<KeyValueStatus of {self.bucket!r}, {self.values} values>"
