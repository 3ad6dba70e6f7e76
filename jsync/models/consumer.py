"""The configuration of a consumer."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from ..errors import ConfigError
from .codec import ByteCount, Count, PositiveSeconds, Seconds
from .model import Model
from .name import check_filter, check_filters, check_literal, check_name
from .server_version import SinceVersion

DeliverPolicy = Literal[
    "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"
]
AckPolicy = Literal["none", "all", "explicit", "flow_control"]
ReplayPolicy = Literal["instant", "original"]
PriorityPolicy = Literal["none", "overflow", "pinned_client", "prioritized"]

_ACK_WAIT: Final = 30.0
_MAX_ACK_PENDING: Final = 1000
_MAX_WAITING: Final = 512
_INACTIVE_THRESHOLD: Final = 5.0
_PRIORITY_TIMEOUT: Final = 120.0


class ConsumerConfig(Model, kw_only=True, frozen=True):
    """The configuration of a consumer. Unset fields have the server's default.

    `ack_policy` is an exception: here the default is `explicit`, while the server's is
    `none`.

    Example:
        ```python
        config = jsync.ConsumerConfig(durable_name="billing", ack_wait=60, max_deliver=5)
        stream.create_consumer(config)
        ```
    """

    durable_name: str | None = None
    """The name of a consumer that stays while nobody uses it. Default: not durable.

    Since nats-server 2.2.
    """
    name: str | None = None
    """The name, without white space or any of `.*>/\\`. Default: a random name.

    Since nats-server 2.9.
    """
    description: str | None = None
    """A human-readable description, up to 4 KiB. Default: none.

    Since nats-server 2.3.3.
    """
    deliver_policy: DeliverPolicy | None = None
    """The first message to deliver. Default: `all`. Since nats-server 2.2."""
    opt_start_seq: Count | None = None
    """The sequence to start from, with `by_start_sequence`. Since nats-server 2.2."""
    opt_start_time: datetime | None = None
    """The time to start from, with `by_start_time`. Since nats-server 2.2."""
    ack_policy: Annotated[AckPolicy, SinceVersion(flow_control="2.14")] = "explicit"
    """The messages that need acks. Default: `explicit`, unlike the server's `none`.

    Since nats-server 2.2, `flow_control` since 2.14.
    """
    ack_wait: PositiveSeconds | None = None
    """Seconds until the server redelivers a message without an ack. Default: 30.

    Since nats-server 2.2.
    """
    max_deliver: int | None = None
    """The most deliveries of one message. Default: -1, no limit.

    Since nats-server 2.2.
    """
    backoff: list[PositiveSeconds] | None = None
    """Seconds to wait before each redelivery, instead of `ack_wait`.

    Default: none. Since nats-server 2.7.1.
    """
    filter_subject: str | None = None
    """The subject to deliver, wildcards allowed. Default: all.

    Since nats-server 2.2.
    """
    filter_subjects: list[str] | None = None
    """The subjects to deliver, instead of `filter_subject`. Default: all.

    Since nats-server 2.10.
    """
    replay_policy: ReplayPolicy | None = None
    """The pace: `instant`, or `original` as stored. Default: `instant`.

    Since nats-server 2.2.
    """
    rate_limit_bps: Count | None = None
    """The most bits a second, for push consumers. Default: 0, no limit.

    Since nats-server 2.2.
    """
    sample_freq: str | None = None
    """The percentage of acks to report as advisories, such as `100`. Default: none.

    Since nats-server 2.2.
    """
    max_waiting: int | None = None
    """The most waiting pulls, for pull consumers. Default: 512.

    Since nats-server 2.2.
    """
    max_ack_pending: int | None = None
    """The most messages that wait for their acks. -1: no limit. Default: 1000.

    Since nats-server 2.2.
    """
    flow_control: bool | None = None
    """Wait for slow readers, for push consumers. Default: False.

    Since nats-server 2.2.
    """
    headers_only: bool | None = None
    """Deliver no payloads, only their size as `Nats-Msg-Size`. Default: False.

    Since nats-server 2.6.2.
    """
    max_batch: int | None = None
    """The most messages of one pull. Default: 0, no limit. Since nats-server 2.7."""
    max_expires: PositiveSeconds | None = None
    """The most seconds of one pull. Default: 0, no limit. Since nats-server 2.7."""
    max_bytes: ByteCount | None = None
    """The most bytes of one pull. Default: 0, no limit. Since nats-server 2.8.3."""
    deliver_subject: str | None = None
    """The subject to push messages to. Default: none, a pull consumer.

    Since nats-server 2.2.
    """
    deliver_group: str | None = None
    """The queue group of a push consumer. Default: none. Since nats-server 2.4."""
    idle_heartbeat: Seconds | None = None
    """Seconds between heartbeats, for push consumers. Default: 0, no heartbeats.

    Since nats-server 2.2.
    """
    inactive_threshold: Seconds | None = None
    """Seconds without use until the server deletes the consumer.

    Default: 5, or never for a durable consumer.

    Since nats-server 2.7, for durable consumers since 2.9.
    """
    num_replicas: int | None = None
    """The number of servers that store its state. Default: 0, as many as the stream has.

    Since nats-server 2.8.3.
    """
    mem_storage: bool | None = None
    """Store the state in memory. Default: as the stream does.

    Since nats-server 2.8.3.
    """
    direct: bool | None = None
    """Used by servers for mirrors and sources. Since nats-server 2.2."""
    sourcing: Annotated[bool | None, SinceVersion("2.14")] = None
    """Used by servers for mirrors and sources. Since nats-server 2.14."""
    metadata: dict[str, str] | None = None
    """Your own notes, up to 128 KiB. Keys with `_nats.` belong to the server.

    Since nats-server 2.10.
    """
    pause_until: Annotated[datetime | None, SinceVersion("2.11")] = None
    """The end of the pause. Default: not paused. Since nats-server 2.11."""
    priority_groups: Annotated[list[str] | None, SinceVersion("2.11")] = None
    """The priority groups of the consumer. Servers allow one.

    Since nats-server 2.11.
    """
    priority_policy: Annotated[
        PriorityPolicy | None, SinceVersion("2.11", none="2.10", prioritized="2.12")
    ] = None
    """The rule that chooses the pull to serve. Default: `none`.

    Since nats-server 2.11, `prioritized` since 2.12.
    """
    priority_timeout: Annotated[Seconds | None, SinceVersion("2.11")] = None
    """Seconds until a silent pinned client loses its pin. Default: 120.

    Since nats-server 2.11.
    """

    def _check(self) -> None:
        if self.name is not None:
            check_name(self.name, "name")
        if self.durable_name is not None:
            check_name(self.durable_name, "durable_name")
        if self.name != self.durable_name and self.name and self.durable_name:
            raise ConfigError(
                f"name {self.name!r} is not durable_name {self.durable_name!r}: give one"
            )
        if self.filter_subject:
            check_filter(self.filter_subject, "filter_subject")
        check_filters(self.filter_subjects, "filter_subjects")
        if self.deliver_subject:
            check_literal(self.deliver_subject, "deliver_subject")

    def updated(self, changes: Mapping[str, Any]) -> "ConsumerConfig":
        one, many = "filter_subject", "filter_subjects"
        for name, other in ((one, many), (many, one)):
            if changes.get(name) is not None and other not in changes:
                # Each field replaces the other, because servers reject both together.
                changes = {**changes, other: None}
        return Model.updated(self, changes)

    def differences(self, other: "ConsumerConfig") -> dict[str, tuple[Any, Any]]:
        found = Model.differences(self, other)
        if None in found.get("name", ()):
            # The server has generated the name.
            del found["name"]
        return found

    def _with_defaults(self) -> dict[str, Any]:
        values = Model._with_defaults(self)
        for name, value in values.items():
            if isinstance(value, (int, float)) and value < 0:
                values[name] = -1 if name == "max_ack_pending" else None
        pull, acks = not self.deliver_subject, self.ack_policy in ("all", "explicit")
        defaults = {
            "name": self.durable_name,
            "deliver_policy": "all",
            "replay_policy": "instant",
            "priority_policy": "none",
            "max_deliver": -1,
            "max_waiting": _MAX_WAITING if pull else None,
            "ack_wait": _ACK_WAIT if acks else None,
            "max_ack_pending": _MAX_ACK_PENDING if acks else None,
            "inactive_threshold": None if self.durable_name else _INACTIVE_THRESHOLD,
        }
        if self.priority_policy == "pinned_client":
            defaults["priority_timeout"] = _PRIORITY_TIMEOUT
        for name, default in defaults.items():
            values[name] = values[name] or default
        if self.backoff:
            values["ack_wait"] = self.backoff[0]
        return values


def consumer_request(config: ConsumerConfig) -> dict[str, Any]:
    """Return the JSON object of a request, with each field that its schema requires."""
    return {"deliver_policy": "all", **config.to_wire()}
