"""The configuration of a consumer."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from ..errors import ConfigError
from .codec import Count, PositiveSeconds, Seconds
from .model import Model
from .name import check_filter, check_filters, check_literal, check_name
from .since import Since

DeliverPolicy = Literal[
    "all",
    "last",
    "new",
    "by_start_sequence",
    "by_start_time",
    "last_per_subject",
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
    """How a consumer is set up. What is not set has the server's default.

    But for `ack_policy`, which is `explicit` here: the server's default is to expect no
    acks.
    """

    durable_name: str | None = None
    """Its name, when it is to outlast its users. Default: not durable.

    Since nats-server 2.2.
    """
    name: str | None = None
    """Its name, without white space or any of `.*>/\\`. Default: the server makes one.

    Since nats-server 2.9.
    """
    description: str | None = None
    """Words for people, 4 KiB at most. Default: none. Since nats-server 2.3.3."""
    deliver_policy: DeliverPolicy | None = None
    """Where in the stream it starts. Default: `all`. Since nats-server 2.2."""
    opt_start_seq: Count | None = None
    """The sequence to start from, with `by_start_sequence`. Since nats-server 2.2."""
    opt_start_time: datetime | None = None
    """The time to start from, with `by_start_time`. Since nats-server 2.2."""
    ack_policy: Annotated[AckPolicy, Since(flow_control="2.14")] = "explicit"
    """Which messages are acknowledged. jsync's default: `explicit`, the server's: `none`.

    Since nats-server 2.2, `flow_control` since 2.14.
    """
    ack_wait: PositiveSeconds | None = None
    """Seconds after which a message without an ack is sent again. Default: 30.

    Since nats-server 2.2.
    """
    max_deliver: int | None = None
    """How often a message is sent at most. Default: -1, any number.

    Since nats-server 2.2.
    """
    backoff: list[PositiveSeconds] | None = None
    """Seconds to wait before each time it is sent again, in place of `ack_wait`.

    Default: none. Since nats-server 2.7.1.
    """
    filter_subject: str | None = None
    """The one subject it is for, wildcards allowed. Default: all. Since nats-server 2.2."""
    filter_subjects: list[str] | None = None
    """The subjects it is for, in place of `filter_subject`. Default: all.

    Since nats-server 2.10.
    """
    replay_policy: ReplayPolicy | None = None
    """As fast as it goes, or at the pace of storing. Default: `instant`.

    Since nats-server 2.2.
    """
    rate_limit_bps: Count | None = None
    """Bits a second at most; push only. Default: 0, any. Since nats-server 2.2."""
    sample_freq: str | None = None
    """The percentage of acks to report on, `100` for instance. Default: none.

    Since nats-server 2.2.
    """
    max_waiting: int | None = None
    """Pulls that may wait at a time; pull only. Default: 512. Since nats-server 2.2."""
    max_ack_pending: int | None = None
    """Messages that may wait for their acks; -1 is any number. Default: 1000.

    Since nats-server 2.2.
    """
    flow_control: bool | None = None
    """Slow down with its reader; push only. Default: False. Since nats-server 2.2."""
    headers_only: bool | None = None
    """Send no payloads, but their size as `Nats-Msg-Size`. Default: False.

    Since nats-server 2.6.2.
    """
    max_batch: int | None = None
    """Messages that one pull may ask for. Default: 0, any number. Since nats-server 2.7."""
    max_expires: PositiveSeconds | None = None
    """Seconds that one pull may wait. Default: 0, any number. Since nats-server 2.7."""
    max_bytes: int | None = None
    """Bytes that one pull may ask for. Default: 0, any number. Since nats-server 2.8.3."""
    deliver_subject: str | None = None
    """Where to send messages to; makes it a push consumer. Default: pull.

    Since nats-server 2.2.
    """
    deliver_group: str | None = None
    """The queue group of a push consumer. Default: none. Since nats-server 2.4."""
    idle_heartbeat: Seconds | None = None
    """Seconds of silence until a heartbeat; push only. Default: 0, none.

    Since nats-server 2.2.
    """
    inactive_threshold: Seconds | None = None
    """Seconds without use after which it goes. Default: 5, never for a durable one.

    Since nats-server 2.7; for durable ones since 2.9.
    """
    num_replicas: int | None = None
    """Servers that hold it. Default: 0, as many as the stream. Since nats-server 2.8.3."""
    mem_storage: bool | None = None
    """Keep its state in memory. Default: as the stream. Since nats-server 2.8.3."""
    direct: bool | None = None
    """The server's own, for mirrors and sources. Since nats-server 2.2."""
    sourcing: Annotated[bool | None, Since("2.14")] = None
    """The server's own, for mirrors and sources. Since nats-server 2.14."""
    metadata: dict[str, str] | None = None
    """Your own notes, 128 KiB at most; `_nats.` is the server's. Since nats-server 2.10."""
    pause_until: Annotated[datetime | None, Since("2.11")] = None
    """Send nothing until then. Default: not paused. Since nats-server 2.11."""
    priority_groups: Annotated[list[str] | None, Since("2.11")] = None
    """The groups that pulls are for, of which there can be one now.

    Since nats-server 2.11.
    """
    priority_policy: Annotated[
        PriorityPolicy | None, Since("2.11", none="2.10", prioritized="2.12")
    ] = None
    """Who of a group is served. Default: `none`.

    Since nats-server 2.11, `prioritized` since 2.12.
    """
    priority_timeout: Annotated[Seconds | None, Since("2.11")] = None
    """Seconds after which a silent pinned client loses its place. Default: 120.

    Since nats-server 2.11.
    """

    def to_request(self) -> dict[str, Any]:
        """The JSON object of a request, with every field that its schema requires."""
        return {"deliver_policy": "all", **self.to_wire()}

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

    def changed(self, changes: Mapping[str, Any]) -> "ConsumerConfig":
        one, many = "filter_subject", "filter_subjects"
        for name, other in ((one, many), (many, one)):
            if changes.get(name) is not None and other not in changes:
                # Each takes the place of the other: servers refuse both.
                changes = {**changes, other: None}
        return Model.changed(self, changes)

    def differences(self, other: "ConsumerConfig") -> dict[str, tuple[Any, Any]]:
        found = Model.differences(self, other)
        if None in found.get("name", ()):
            # The server has made one up.
            del found["name"]
        return found

    def _settled(self) -> dict[str, Any]:
        settled = Model._settled(self)
        for name, value in settled.items():
            if isinstance(value, (int, float)) and value < 0:
                settled[name] = -1 if name == "max_ack_pending" else None
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
            settled[name] = settled[name] or default
        if self.backoff:
            settled["ack_wait"] = self.backoff[0]
        return settled
