"""Advisories: events that servers publish. The types follow jsm.go."""

from datetime import datetime
from typing import ClassVar, Literal

from .cluster import PeerInfo
from .model import Model


class Advisory(Model, kw_only=True, frozen=True):
    """An event that a server publishes.

    An advisory of an unknown type has this class, with its fields in `extra`.
    """

    event: ClassVar[str] = ""
    """The last token of `type`."""
    where: ClassVar[str] = ">"
    """The subject of the advisory, below `$JS.EVENT.ADVISORY`."""

    type: str = ""
    """The type, such as `io.nats.jetstream.advisory.v1.max_deliver`."""
    id: str = ""
    """The id of the advisory itself."""
    timestamp: datetime | None = None
    """When it happened."""


class ClientInfo(Model, kw_only=True, frozen=True):
    """The client that caused an advisory. `extra` has more."""

    start: datetime | None = None
    """When it connected."""
    host: str | None = None
    id: int | None = None
    """The number of its connection."""
    acc: str | None = None
    """Its account."""
    user: str | None = None
    name: str | None = None
    """The name of its connection."""
    lang: str | None = None
    ver: str | None = None
    """The version of its library."""
    server: str | None = None
    """The server that it is connected to."""


# Streams ------------------------------------------------------------------------------


class StreamAction(Advisory, kw_only=True, frozen=True):
    """A stream was created, updated or deleted."""

    event: ClassVar[str] = "stream_action"
    where: ClassVar[str] = "STREAM.*.{stream}"

    stream: str = ""
    action: Literal["create", "delete", "modify"] | None = None
    domain: str | None = None


class SnapshotCreated(Advisory, kw_only=True, frozen=True):
    """A client began to back a stream up."""

    event: ClassVar[str] = "snapshot_create"
    where: ClassVar[str] = "STREAM.SNAPSHOT_CREATE.{stream}"

    stream: str = ""
    blocks: int = 0
    block_size: int = 0
    """In bytes."""
    client: ClientInfo = ClientInfo()
    domain: str | None = None


class SnapshotCompleted(Advisory, kw_only=True, frozen=True):
    """A backup of a stream is complete."""

    event: ClassVar[str] = "snapshot_complete"
    where: ClassVar[str] = "STREAM.SNAPSHOT_COMPLETE.{stream}"

    stream: str = ""
    start: datetime | None = None
    end: datetime | None = None
    client: ClientInfo = ClientInfo()
    domain: str | None = None


class RestoreCreated(Advisory, kw_only=True, frozen=True):
    """A client began to restore a stream."""

    event: ClassVar[str] = "restore_create"
    where: ClassVar[str] = "STREAM.RESTORE_CREATE.{stream}"

    stream: str = ""
    client: ClientInfo = ClientInfo()
    domain: str | None = None


class RestoreCompleted(Advisory, kw_only=True, frozen=True):
    """A stream was restored from a backup."""

    event: ClassVar[str] = "restore_complete"
    where: ClassVar[str] = "STREAM.RESTORE_COMPLETE.{stream}"

    stream: str = ""
    start: datetime | None = None
    end: datetime | None = None
    bytes: int = 0
    client: ClientInfo = ClientInfo()
    domain: str | None = None


class StreamLeaderElected(Advisory, kw_only=True, frozen=True):
    """A stream with replicas has a new leader."""

    event: ClassVar[str] = "stream_leader_elected"
    where: ClassVar[str] = "STREAM.LEADER_ELECTED.{stream}"

    stream: str = ""
    leader: str = ""
    replicas: list[PeerInfo] | None = None
    account: str | None = None
    domain: str | None = None


class StreamQuorumLost(Advisory, kw_only=True, frozen=True):
    """Most replicas of a stream are gone, so it takes no messages."""

    event: ClassVar[str] = "stream_quorum_lost"
    where: ClassVar[str] = "STREAM.QUORUM_LOST.{stream}"

    stream: str = ""
    replicas: list[PeerInfo] | None = None
    account: str | None = None
    domain: str | None = None


class BatchAbandoned(Advisory, kw_only=True, frozen=True):
    """A stream has abandoned an atomic batch, and stored none of it. Needs nats-server 2.12.

    Example:
        ```python
        with js.batch_advisories("ORDERS") as advisories:
            pass  # advisories.next() returns a BatchAbandoned when a batch is given up
        ```
    """

    event: ClassVar[str] = "stream_batch_abandoned"
    where: ClassVar[str] = "STREAM.BATCH_ABANDONED.{stream}"

    stream: str = ""
    domain: str | None = None
    """The JetStream domain."""
    account: str | None = None
    batch: str = ""
    """The id of the batch: `AtomicBatch.id`."""
    reason: str = ""
    """The cause: `timeout` (no message came for too long), `incomplete` (a message is
    missing, or the batch was discarded), `large` (too many messages) or `unsupported` (a
    message needs a higher API level, since nats-server 2.14)."""


# Consumers ----------------------------------------------------------------------------


class ConsumerAction(Advisory, kw_only=True, frozen=True):
    """A consumer was created or deleted."""

    event: ClassVar[str] = "consumer_action"
    where: ClassVar[str] = "CONSUMER.*.{stream}.{consumer}"

    stream: str = ""
    consumer: str = ""
    action: Literal["create", "delete", "modify"] | None = None
    domain: str | None = None


class ConsumerPaused(Advisory, kw_only=True, frozen=True):
    """A consumer was paused, or goes on. Since nats-server 2.11."""

    event: ClassVar[str] = "consumer_pause"
    where: ClassVar[str] = "CONSUMER.PAUSE.{stream}.{consumer}"

    stream: str = ""
    consumer: str = ""
    paused: bool = False
    pause_until: datetime | None = None
    domain: str | None = None


class ConsumerLeaderElected(Advisory, kw_only=True, frozen=True):
    """A consumer with replicas has a new leader."""

    event: ClassVar[str] = "consumer_leader_elected"
    where: ClassVar[str] = "CONSUMER.LEADER_ELECTED.{stream}.{consumer}"

    stream: str = ""
    consumer: str = ""
    leader: str = ""
    replicas: list[PeerInfo] | None = None
    account: str | None = None
    domain: str | None = None


class ConsumerQuorumLost(Advisory, kw_only=True, frozen=True):
    """Most replicas of a consumer are gone, so it delivers nothing."""

    event: ClassVar[str] = "consumer_quorum_lost"
    where: ClassVar[str] = "CONSUMER.QUORUM_LOST.{stream}.{consumer}"

    stream: str = ""
    consumer: str = ""
    replicas: list[PeerInfo] | None = None
    account: str | None = None
    domain: str | None = None


class ConsumerPinned(Advisory, kw_only=True, frozen=True):
    """A priority group of a consumer is pinned to one client. Since nats-server 2.11."""

    event: ClassVar[str] = "consumer_group_pinned"
    where: ClassVar[str] = "CONSUMER.PINNED.{stream}.{consumer}"

    stream: str = ""
    consumer: str = ""
    group: str = ""
    pinned_id: str = ""
    account: str | None = None
    domain: str | None = None


class ConsumerUnpinned(Advisory, kw_only=True, frozen=True):
    """A priority group of a consumer lost its pinned client. Since nats-server 2.11."""

    event: ClassVar[str] = "consumer_group_unpinned"
    where: ClassVar[str] = "CONSUMER.UNPINNED.{stream}.{consumer}"

    stream: str = ""
    consumer: str = ""
    group: str = ""
    reason: str = ""
    """`admin` or `timeout`."""
    account: str | None = None
    domain: str | None = None


class MaxDeliveries(Advisory, kw_only=True, frozen=True):
    """A consumer delivers a message no more: it reached `max_deliver`."""

    event: ClassVar[str] = "max_deliver"
    where: ClassVar[str] = "CONSUMER.MAX_DELIVERIES.{stream}.{consumer}"

    stream: str = ""
    consumer: str = ""
    stream_seq: int = 0
    """The sequence of the message in the stream."""
    deliveries: int = 0
    domain: str | None = None


class MessageNaked(Advisory, kw_only=True, frozen=True):
    """A message was given back (nak)."""

    event: ClassVar[str] = "nak"
    where: ClassVar[str] = "CONSUMER.MSG_NAKED.{stream}.{consumer}"

    stream: str = ""
    consumer: str = ""
    consumer_seq: int = 0
    stream_seq: int = 0
    deliveries: int = 0
    domain: str | None = None


class MessageTerminated(Advisory, kw_only=True, frozen=True):
    """A message was given up (term)."""

    event: ClassVar[str] = "terminated"
    where: ClassVar[str] = "CONSUMER.MSG_TERMINATED.{stream}.{consumer}"

    stream: str = ""
    consumer: str = ""
    consumer_seq: int = 0
    stream_seq: int = 0
    deliveries: int = 0
    reason: str | None = None
    """The reason that was given to `JetStreamMsg.term`."""
    domain: str | None = None


# Servers ------------------------------------------------------------------------------


class APIAudit(Advisory, kw_only=True, frozen=True):
    """A client used the JetStream API. `$JS.EVENT.ADVISORY.API`."""

    event: ClassVar[str] = "api_audit"
    where: ClassVar[str] = "API"

    server: str = ""
    client: ClientInfo = ClientInfo()
    subject: str = ""
    request: str | None = None
    """The JSON of the request."""
    response: str = ""
    """The JSON of the reply."""
    domain: str | None = None


class APILimitReached(Advisory, kw_only=True, frozen=True):
    """A server dropped API requests, since too many were waiting."""

    event: ClassVar[str] = "api_limit_reached"
    where: ClassVar[str] = "API.LIMIT_REACHED"

    server: str = ""
    domain: str | None = None
    dropped: int = 0


class DomainLeaderElected(Advisory, kw_only=True, frozen=True):
    """The servers of a JetStream domain have a new leader."""

    event: ClassVar[str] = "domain_leader_elected"
    where: ClassVar[str] = "DOMAIN.LEADER_ELECTED"

    leader: str = ""
    cluster: str = ""
    domain: str | None = None
    replicas: list[PeerInfo] | None = None


class ServerOutOfSpace(Advisory, kw_only=True, frozen=True):
    """The disk of a server is full."""

    event: ClassVar[str] = "server_out_of_space"
    where: ClassVar[str] = "SERVER.OUT_OF_STORAGE"

    server: str = ""
    server_id: str = ""
    stream: str | None = None
    cluster: str = ""
    domain: str | None = None


class ServerRemoved(Advisory, kw_only=True, frozen=True):
    """A server was removed from the cluster."""

    event: ClassVar[str] = "server_removed"
    where: ClassVar[str] = "SERVER.REMOVED"

    server: str = ""
    server_id: str = ""
    cluster: str = ""
    domain: str | None = None


KINDS = {kind.event: kind for kind in Advisory.__subclasses__()}
"""The types that jsync knows, by the last token of `type`."""
