"""The server's info about streams and consumers."""

from datetime import datetime

from .ack import ApiErrorReply
from .cluster import ClusterInfo
from .codec import Count, Seconds
from .consumer import ConsumerConfig
from .model import Model
from .source import External, SubjectTransform
from .stream import StreamConfig


class LostStreamData(Model, kw_only=True, frozen=True):
    """Messages that the server could not recover."""

    msgs: list[int] | None = None
    """The sequences of these messages."""
    bytes: Count = 0
    """The bytes of these messages."""


class StreamState(Model, kw_only=True, frozen=True):
    """The state of a stream."""

    messages: Count = 0
    """The number of stored messages."""
    bytes: Count = 0
    """The bytes of these messages in storage."""
    first_seq: Count = 0
    """The sequence of the first message. `last_seq` + 1 for an empty stream."""
    first_ts: datetime | None = None
    """When the first message was stored."""
    last_seq: Count = 0
    """The sequence of the last message, deleted or not."""
    last_ts: datetime | None = None
    """When the last message was stored."""
    num_subjects: Count = 0
    """The number of different subjects. Since nats-server 2.7.2."""
    subjects: dict[str, int] | None = None
    """The number of messages of each subject, on request. Since nats-server 2.7.2."""
    num_deleted: Count = 0
    """Messages deleted between the first and the last. Since nats-server 2.2.2."""
    deleted: list[int] | None = None
    """The sequences of deleted messages, on request."""
    lost: LostStreamData | None = None
    """Messages that the server could not recover."""
    consumer_count: Count = 0
    """The number of consumers."""


class StreamSourceInfo(Model, kw_only=True, frozen=True):
    """The state of copying from a mirror's origin, or from a source."""

    name: str = ""
    """The name of the copied stream."""
    external: External | None = None
    """The account or domain of that stream, if it is another one."""
    lag: int = 0
    """The number of messages that are not copied yet."""
    active: Seconds | None = None
    """Seconds since the last sign of life. Negative: never."""
    error: ApiErrorReply | None = None
    """The error that prevents copying."""
    filter_subject: str | None = None
    """The subjects that are copied. Since nats-server 2.10."""
    subject_transforms: list[SubjectTransform] | None = None
    """The new subjects of copied messages. Since nats-server 2.10."""


class StreamAlternate(Model, kw_only=True, frozen=True):
    """A stream with the same messages: this one, or a mirror of it."""

    name: str = ""
    domain: str | None = None
    cluster: str = ""


class StreamInfo(Model, kw_only=True, frozen=True):
    """The configuration and the state of a stream, as the server returns them.

    Example:
        ```python
        info = stream.info()
        print(info.config.subjects, info.state.messages, info.state.last_seq)
        ```
    """

    config: StreamConfig = StreamConfig()
    """The configuration of the stream."""
    state: StreamState = StreamState()
    """The state of the stream."""
    created: datetime | None = None
    """When the stream was created."""
    ts: datetime | None = None
    """The time of this info, by the server's clock. Since nats-server 2.10."""
    domain: str | None = None
    """The JetStream domain. Since nats-server 2.6."""
    cluster: ClusterInfo | None = None
    """The servers that store the stream."""
    mirror: StreamSourceInfo | None = None
    """The state of copying from its origin."""
    sources: list[StreamSourceInfo] | None = None
    """The state of copying from each source, in any order."""
    alternates: list[StreamAlternate] | None = None
    """Streams with the same messages, the nearest first. Since nats-server 2.8."""
    did_create: bool = False
    """True if this request created the stream. Since nats-server 2.6."""
    total: int = 0
    """The number of subjects, if `state.subjects` was requested.

    Since nats-server 2.9.
    """
    offset: int = 0
    """The offset of the first subject in this reply. Since nats-server 2.9."""
    limit: int = 0
    """The most subjects of one reply. Since nats-server 2.9."""


class SequenceInfo(Model, kw_only=True, frozen=True):
    """A place in a consumer, and in its stream."""

    consumer_seq: Count = 0
    """Messages sent, those sent again included."""
    stream_seq: Count = 0
    """The sequence in the stream."""
    last_active: datetime | None = None
    """When the position last changed. None: never."""


class PriorityGroupState(Model, kw_only=True, frozen=True):
    """The pinned client of a priority group. Since nats-server 2.11."""

    group: str = ""
    pinned_client_id: str | None = None
    """The id that the pinned client sends with its pulls."""
    pinned_ts: datetime | None = None
    """When the client was pinned."""


class ConsumerInfo(Model, kw_only=True, frozen=True):
    """The configuration and the state of a consumer, as the server returns them.

    Example:
        ```python
        consumer = stream.create_consumer(durable_name="billing")
        info = consumer.info()
        print(info.num_pending, info.num_ack_pending, info.num_redelivered)
        ```
    """

    stream_name: str = ""
    name: str = ""
    config: ConsumerConfig = ConsumerConfig()
    """The configuration of the consumer."""
    created: datetime | None = None
    """When the consumer was created."""
    ts: datetime | None = None
    """The time of this info, by the server's clock. Since nats-server 2.10."""
    delivered: SequenceInfo = SequenceInfo()
    """The last delivered message."""
    ack_floor: SequenceInfo = SequenceInfo()
    """The last message before the first unacknowledged one."""
    num_ack_pending: Count = 0
    """The number of delivered messages without an ack."""
    num_redelivered: Count = 0
    """The number of redelivered messages without an ack."""
    num_waiting: Count = 0
    """The number of waiting pulls."""
    num_pending: Count = 0
    """The number of messages that are not delivered yet."""
    cluster: ClusterInfo | None = None
    """The servers that store the consumer's state."""
    push_bound: bool = False
    """True if a push consumer has a subscriber. Since nats-server 2.4."""
    paused: bool = False
    """True while the consumer is paused. Since nats-server 2.11."""
    pause_remaining: Seconds | None = None
    """Seconds until the pause ends. Since nats-server 2.11."""
    priority_groups: list[PriorityGroupState] | None = None
    """The pinned client of each group. Since nats-server 2.11."""


class ConsumerPause(Model, kw_only=True, frozen=True):
    """The result of pausing or resuming a consumer. Since nats-server 2.11."""

    paused: bool = False
    pause_until: datetime | None = None
    """The end of the pause. None if the consumer is not paused."""
    pause_remaining: Seconds | None = None
    """Seconds until the pause ends."""


class ConsumerReset(ConsumerInfo, kw_only=True, frozen=True):
    """A consumer that has been reset. Since nats-server 2.14."""

    reset_seq: Count = 0
    """The stream sequence that the consumer continues from."""
