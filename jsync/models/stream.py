"""The configuration of a stream."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from ..errors import ConfigError
from .codec import Count, PositiveSeconds, Seconds
from .model import Model
from .name import check_filters, check_name
from .since import Since
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
"""Fields that the schemas of the API require, as servers read them when they are missing."""


class Placement(Model, kw_only=True, frozen=True):
    """Where a stream is to live. Since nats-server 2.2."""

    cluster: str | None = None
    """The name of a cluster. Default: the one that is asked."""
    tags: list[str] | None = None
    """Tags that a server has to have, all of them. Default: none."""
    preferred: Annotated[str | None, Since("2.11")] = None
    """The server that should lead; refused for streams. Since nats-server 2.11."""


class ConsumerLimits(Model, kw_only=True, frozen=True):
    """Defaults and limits of a stream's consumers. Since nats-server 2.10."""

    inactive_threshold: Seconds | None = None
    """Seconds after which an unused consumer goes. Default: 0, no limit."""
    max_ack_pending: int | None = None
    """Messages that may wait for their acks. Default: 0, no limit."""


class StreamConfig(Model, kw_only=True, frozen=True):
    """How a stream is set up. What is not set has the server's default."""

    name: str | None = None
    """Its name, without white space or any of `.*>/\\`. Since nats-server 2.2."""
    description: str | None = None
    """Words for people, 4 KiB at most. Default: none. Since nats-server 2.3.3."""
    subjects: list[str] | None = None
    """What it stores, wildcards allowed. Default: its name. Since nats-server 2.2."""
    retention: Retention | None = None
    """When messages go: at a limit, when all consumers have acked, when one has.

    Default: `limits`. Since nats-server 2.2.
    """
    max_consumers: int | None = None
    """Consumers it may have. Default: -1, any number. Since nats-server 2.2."""
    max_msgs: int | None = None
    """Messages it may hold. Default: -1, any number. Since nats-server 2.2."""
    max_bytes: int | None = None
    """Bytes it may hold. Default: -1, any number. Since nats-server 2.2."""
    max_age: PositiveSeconds | None = None
    """Seconds that a message may stay, from 0.1. Default: 0, for ever.

    Since nats-server 2.2.
    """
    max_msgs_per_subject: int | None = None
    """Messages of one subject. Default: -1, any number. Since nats-server 2.3."""
    max_msg_size: int | None = None
    """Bytes of one message, with its headers. Default: -1, any. Since nats-server 2.2."""
    discard: Discard | None = None
    """At a limit, drop `old` messages or refuse `new` ones. Default: `old`.

    Since nats-server 2.2.
    """
    discard_new_per_subject: bool | None = None
    """With `discard="new"`, refuse at `max_msgs_per_subject` as well.

    Default: False. Since nats-server 2.9.1.
    """
    storage: Storage | None = None
    """Default: `file`. Cannot be changed. Since nats-server 2.2."""
    num_replicas: int | None = None
    """Servers that hold it, at most 5. Default: 1. Since nats-server 2.2."""
    no_ack: bool | None = None
    """Acknowledge no publish. Default: False. Since nats-server 2.2."""
    duplicate_window: PositiveSeconds | None = None
    """Seconds for which a `msg_id` is remembered. Default: 120, but `max_age` at most.

    Since nats-server 2.2.
    """
    placement: Placement | None = None
    """Where it is to live. Default: anywhere. Since nats-server 2.2."""
    mirror: StreamSource | None = None
    """The one stream it is a copy of; it has no subjects then. Since nats-server 2.2."""
    sources: list[StreamSource] | None = None
    """Streams to copy messages from. Default: none. Since nats-server 2.2."""
    sealed: bool | None = None
    """Nothing may be added or taken, for good. Only by an update.

    Since nats-server 2.6.2.
    """
    deny_delete: bool | None = None
    """Messages cannot be deleted, for good. Default: False. Since nats-server 2.6.2."""
    deny_purge: bool | None = None
    """It cannot be purged, for good. Default: False. Since nats-server 2.6.2."""
    allow_rollup_hdrs: bool | None = None
    """A message may replace all before it (`Nats-Rollup`). Default: False.

    Since nats-server 2.6.2.
    """
    republish: Republish | None = None
    """Publish what is stored on other subjects. Default: no. Since nats-server 2.8.3."""
    allow_direct: bool | None = None
    """Every replica may answer a get. Default: False. Since nats-server 2.9."""
    mirror_direct: bool | None = None
    """A mirror answers gets for its origin. Default: as the origin's `allow_direct`.

    Since nats-server 2.9.
    """
    compression: Compression | None = None
    """How files are compressed. Default: `none`. Since nats-server 2.10."""
    first_seq: Count | None = None
    """The sequence of the first message. Default: 1. Since nats-server 2.10."""
    subject_transform: SubjectTransform | None = None
    """Store messages under other subjects. Default: no. Since nats-server 2.10."""
    consumer_limits: ConsumerLimits | None = None
    """Defaults and limits of its consumers. Default: none. Since nats-server 2.10."""
    metadata: dict[str, str] | None = None
    """Your own notes, 128 KiB at most; `_nats.` is the server's. Since nats-server 2.10."""
    allow_msg_ttl: Annotated[bool | None, Since("2.11")] = None
    """A message may have its own time to live (`Nats-TTL`). Default: False.

    Since nats-server 2.11.
    """
    subject_delete_marker_ttl: Annotated[PositiveSeconds | None, Since("2.11")] = None
    """Seconds that a marker stays where a subject's last message expired, from 1.

    Default: 0, no markers. Since nats-server 2.11.
    """
    allow_msg_counter: Annotated[bool | None, Since("2.12")] = None
    """Messages are increments of counters (`Nats-Incr`). Default: False.

    Since nats-server 2.12.
    """
    allow_atomic: Annotated[bool | None, Since("2.12")] = None
    """Atomic batches may be published. Default: False. Since nats-server 2.12."""
    allow_msg_schedules: Annotated[bool | None, Since("2.12")] = None
    """Messages may be scheduled (`Nats-Schedule`). Default: False.

    Since nats-server 2.12.
    """
    persist_mode: Annotated[PersistMode | None, Since("2.12", default="2.10")] = None
    """`async` acknowledges before it is on the disk. Default: `default`.

    Since nats-server 2.12.
    """
    allow_batched: Annotated[bool | None, Since("2.14")] = None
    """Fast-ingest batches may be published. Default: False. Since nats-server 2.14."""

    def to_request(self) -> dict[str, Any]:
        """The JSON object of a request, with every field that its schema requires."""
        return {**_REQUIRED, **self.to_wire()}

    def _check(self) -> None:
        if self.name is None:
            raise ConfigError("name: missing")
        check_name(self.name, "name")
        check_filters(self.subjects, "subjects")

    def changed(self, changes: Mapping[str, Any]) -> "StreamConfig":
        if "max_age" in changes and self.duplicate_window == self._default_window():
            # The server's default, which goes with `max_age` and may not be longer.
            changes = {"duplicate_window": None, **changes}
        return Model.changed(self, changes)

    def differences(self, other: "StreamConfig") -> dict[str, tuple[Any, Any]]:
        found = Model.differences(self, other)
        windows = found.get("duplicate_window", (1, 1))
        # With sources the default is 120 before nats-server 2.14, and 0 since.
        sourced = bool(self.sources or other.sources)
        derived = {self._default_window(), other._default_window(), None, 0}
        if not all(windows) and (sourced or derived.issuperset(windows)):
            # The server has derived one of the two from that one's `max_age`.
            del found["duplicate_window"]
        return found

    def _default_window(self) -> float:
        return min(_DUPLICATE_WINDOW, self.max_age or _DUPLICATE_WINDOW)

    def _settled(self) -> dict[str, Any]:
        settled = Model._settled(self)
        for name, default in _DEFAULTS.items():
            settled[name] = settled[name] or default
        for name in _WITHOUT_LIMIT:
            settled[name] = max(settled[name] or -1, -1)
        if self.mirror is None and not self.sources:
            window = settled["duplicate_window"] or self._default_window()
            settled["duplicate_window"] = window
            settled["subjects"] = settled["subjects"] or [self.name]
        if self.subject_delete_marker_ttl:
            settled["allow_msg_ttl"] = True
        rolls_up = self.subject_delete_marker_ttl or self.allow_msg_schedules
        if rolls_up and not self.allow_rollup_hdrs:
            settled.update(allow_rollup_hdrs=True, deny_purge=None)
        if self.republish is not None:
            settled["republish"] = {"src": ">", **settled["republish"]}
        return settled
