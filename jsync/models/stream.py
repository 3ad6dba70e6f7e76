"""The configuration of a stream."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from ..errors import ConfigError
from .codec import ByteCount, Count, PositiveSeconds, Seconds
from .model import Model
from .name import check_filters, check_name
from .server_version import SinceVersion
from .source import Republish, StreamSource, SubjectTransform

Retention = Literal["limits", "interest", "workqueue"]
Discard = Literal["old", "new"]
Storage = Literal["file", "memory"]
Compression = Literal["none", "s2"]
PersistMode = Literal["default", "async"]

_DEFAULTS: Final[dict[str, Any]] = {
    "retention": "limits",
    "discard": "old",
    "storage": "file",
    "compression": "none",
    "persist_mode": "default",
    "num_replicas": 1,
}
_WITHOUT_LIMIT: Final = (
    "max_consumers",
    "max_msgs",
    "max_bytes",
    "max_msgs_per_subject",
    "max_msg_size",
)
_DUPLICATE_WINDOW: Final = 120.0
_REQUIRED: Final[dict[str, Any]] = {
    "retention": "limits",
    "storage": "file",
    "max_consumers": 0,
    "max_msgs": 0,
    "max_bytes": 0,
    "max_age": 0,
    "num_replicas": 0,
}
"""Fields that the API's schemas require, with the values that stand for missing ones."""


class Placement(Model, kw_only=True, frozen=True):
    """The servers that may store a stream. Since nats-server 2.2.

    Example:
        ```python
        placement = jsync.Placement(cluster="east", tags=["ssd"])
        config = jsync.StreamConfig(name="EVENTS", subjects=["events.>"], placement=placement)
        ```
    """

    cluster: str | None = None
    """The name of a cluster. Default: the cluster of the connection."""
    tags: list[str] | None = None
    """Tags that each of the servers must have, all of them. Default: none."""
    preferred: Annotated[str | None, SinceVersion("2.11")] = None
    """The preferred leader. Servers reject it for streams. Since nats-server 2.11."""


class ConsumerLimits(Model, kw_only=True, frozen=True):
    """Defaults and limits of a stream's consumers. Since nats-server 2.10.

    Example:
        ```python
        limits = jsync.ConsumerLimits(max_ack_pending=500)
        js.create_stream(name="EVENTS", subjects=["events.>"], consumer_limits=limits)
        ```
    """

    inactive_threshold: Seconds | None = None
    """Seconds after which an unused consumer is deleted. Default: 0, no limit."""
    max_ack_pending: int | None = None
    """Messages of a consumer that may wait for their acks. Default: 0, no limit."""


class StreamConfig(Model, kw_only=True, frozen=True):
    """The configuration of a stream. Unset fields have the server's default.

    Example:
        ```python
        config = jsync.StreamConfig(
            name="EVENTS", subjects=["events.>"], max_age=7 * 86400, max_bytes=10_000_000
        )
        js.create_stream(config)
        ```
    """

    name: str | None = None
    """The name, without white space or any of `.*>/\\`. Since nats-server 2.2."""
    description: str | None = None
    """A human-readable description, up to 4 KiB. Default: none.

    Since nats-server 2.3.3.
    """
    subjects: list[str] | None = None
    """The subjects to store, wildcards allowed. Default: the name of the stream.

    Since nats-server 2.2.
    """
    retention: Retention | None = None
    """When messages are removed.

    `limits`: a limit is reached. `interest`: every consumer has acked. `workqueue`: one
    consumer has acked. Default: `limits`. Since nats-server 2.2.
    """
    max_consumers: int | None = None
    """The most consumers. Default: -1, no limit. Since nats-server 2.2."""
    max_msgs: int | None = None
    """The most messages. Default: -1, no limit. Since nats-server 2.2."""
    max_bytes: ByteCount | None = None
    """The most bytes. Default: -1, no limit. Since nats-server 2.2."""
    max_age: PositiveSeconds | None = None
    """Seconds after which a message expires, from 0.1. Default: 0, never.

    Since nats-server 2.2.
    """
    max_msgs_per_subject: int | None = None
    """The most messages of one subject. Default: -1, no limit.

    Since nats-server 2.3.
    """
    max_msg_size: ByteCount | None = None
    """The most bytes of one message with its headers. Default: -1, no limit.

    Since nats-server 2.2.
    """
    discard: Discard | None = None
    """At a limit, drop `old` messages or reject `new` ones. Default: `old`.

    Since nats-server 2.2.
    """
    discard_new_per_subject: bool | None = None
    """With `discard="new"`, also reject messages above `max_msgs_per_subject`.

    Default: False. Since nats-server 2.9.1.
    """
    storage: Storage | None = None
    """The storage: `file` or `memory`. Default: `file`. Cannot be changed.

    Since nats-server 2.2.
    """
    num_replicas: int | None = None
    """The number of servers that store the stream, up to 5. Default: 1.

    Since nats-server 2.2.
    """
    no_ack: bool | None = None
    """Send no acks to publishers. Default: False. Since nats-server 2.2."""
    duplicate_window: PositiveSeconds | None = None
    """Seconds in which a second message with the same `msg_id` is a duplicate.

    Default: 120, but at most `max_age`.

    Since nats-server 2.2.
    """
    placement: Placement | None = None
    """The servers that may store the stream. Default: any. Since nats-server 2.2."""
    mirror: StreamSource | None = None
    """The stream to copy as a mirror. A mirror has no subjects.

    Since nats-server 2.2.
    """
    sources: list[StreamSource] | None = None
    """Streams to copy messages from. Default: none. Since nats-server 2.2."""
    sealed: bool | None = None
    """Nobody can ever add or remove messages again. Only for updates.

    Since nats-server 2.6.2.
    """
    deny_delete: bool | None = None
    """Nobody can delete messages, permanently. Default: False.

    Since nats-server 2.6.2.
    """
    deny_purge: bool | None = None
    """Nobody can purge the stream, permanently. Default: False.

    Since nats-server 2.6.2.
    """
    allow_rollup_hdrs: bool | None = None
    """Messages may replace all earlier ones (`Nats-Rollup`). Default: False.

    Since nats-server 2.6.2.
    """
    republish: Republish | None = None
    """The subjects to publish stored messages on again. Default: none.

    Since nats-server 2.8.3.
    """
    allow_direct: bool | None = None
    """Every replica may answer direct gets. Default: False. Since nats-server 2.9."""
    mirror_direct: bool | None = None
    """A mirror may answer direct gets for its origin.

    Default: the origin's `allow_direct`.

    Since nats-server 2.9.
    """
    compression: Compression | None = None
    """The compression of files. Default: `none`. Since nats-server 2.10."""
    first_seq: Count | None = None
    """The sequence of the first message. Default: 1. Since nats-server 2.10."""
    subject_transform: SubjectTransform | None = None
    """The new subjects of stored messages. Default: none. Since nats-server 2.10."""
    consumer_limits: ConsumerLimits | None = None
    """Defaults and limits of the consumers. Default: none. Since nats-server 2.10."""
    metadata: dict[str, str] | None = None
    """Your own notes, up to 128 KiB. Keys with `_nats.` belong to the server.

    Since nats-server 2.10.
    """
    allow_msg_ttl: Annotated[bool | None, SinceVersion("2.11")] = None
    """Messages may have their own time to live (`Nats-TTL`). Default: False.

    Since nats-server 2.11.
    """
    subject_delete_marker_ttl: Annotated[
        PositiveSeconds | None, SinceVersion("2.11")
    ] = None
    """Seconds, from 1, that a marker for the expired last message of a subject stays.

    Default: 0, no markers. Since nats-server 2.11.
    """
    allow_msg_counter: Annotated[bool | None, SinceVersion("2.12")] = None
    """Messages are increments of counters (`Nats-Incr`). Default: False.

    Since nats-server 2.12.
    """
    allow_atomic: Annotated[bool | None, SinceVersion("2.12")] = None
    """Publishers may send atomic batches. Default: False. Since nats-server 2.12."""
    allow_msg_schedules: Annotated[bool | None, SinceVersion("2.12")] = None
    """Publishers may schedule messages (`Nats-Schedule`). Default: False.

    Since nats-server 2.12.
    """
    persist_mode: Annotated[
        PersistMode | None, SinceVersion("2.12", default="2.10")
    ] = None
    """The time of the ack. `async`: before the message is on the disk.

    Default: `default`, after that.

    Since nats-server 2.12.
    """
    allow_batched: Annotated[bool | None, SinceVersion("2.14")] = None
    """Publishers may use fast ingest. Default: False. Since nats-server 2.14."""

    def _check(self) -> None:
        if self.name is None:
            raise ConfigError("name: missing")
        check_name(self.name, "name")
        check_filters(self.subjects, "subjects")

    def updated(self, changes: Mapping[str, Any]) -> "StreamConfig":
        if "max_age" in changes and self.duplicate_window == self._default_window():
            # The server derives the default from `max_age`, and does not allow a longer
            # one.
            changes = {"duplicate_window": None, **changes}
        return Model.updated(self, changes)

    def differences(self, other: "StreamConfig") -> dict[str, tuple[Any, Any]]:
        found = Model.differences(self, other)
        windows = found.get("duplicate_window", (1, 1))
        # With sources, the default is 120 s before nats-server 2.14, and 0 since.
        sourced = bool(self.sources or other.sources)
        derived = {self._default_window(), other._default_window(), None, 0}
        if not all(windows) and (sourced or derived.issuperset(windows)):
            # The server has derived one of the two values from `max_age`.
            del found["duplicate_window"]
        return found

    def _default_window(self) -> float:
        return min(_DUPLICATE_WINDOW, self.max_age or _DUPLICATE_WINDOW)

    def _with_defaults(self) -> dict[str, Any]:
        values = Model._with_defaults(self)
        for name, default in _DEFAULTS.items():
            values[name] = values[name] or default
        for name in _WITHOUT_LIMIT:
            values[name] = max(values[name] or -1, -1)
        if self.mirror is None and not self.sources:
            window = values["duplicate_window"] or self._default_window()
            values["duplicate_window"] = window
            values["subjects"] = values["subjects"] or [self.name]
        if self.subject_delete_marker_ttl:
            values["allow_msg_ttl"] = True
        rolls_up = self.subject_delete_marker_ttl or self.allow_msg_schedules
        if rolls_up and not self.allow_rollup_hdrs:
            values.update(allow_rollup_hdrs=True, deny_purge=None)
        if self.republish is not None:
            values["republish"] = {"src": ">", **values["republish"]}
        return values


def stream_request(config: StreamConfig) -> dict[str, Any]:
    """Return the JSON object of a request, with each field that its schema requires."""
    return {**_REQUIRED, **config.to_wire()}
