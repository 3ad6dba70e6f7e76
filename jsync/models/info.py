"""What the server tells of streams and consumers."""

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
    """Their sequences."""
    bytes: Count = 0
    """Their size."""


class StreamState(Model, kw_only=True, frozen=True):
    """What a stream holds."""

    messages: Count = 0
    """Messages in it."""
    bytes: Count = 0
    """Their size, as the server stores them."""
    first_seq: Count = 0
    """The sequence of the first message; one past `last_seq` when there is none."""
    first_ts: datetime | None = None
    """When the first message was stored."""
    last_seq: Count = 0
    """The sequence of the last message that was stored, deleted or not."""
    last_ts: datetime | None = None
    """When the last message was stored."""
    num_subjects: Count = 0
    """Different subjects in it. Since nats-server 2.7.2."""
    subjects: dict[str, int] | None = None
    """Messages of each subject, when asked for. Since nats-server 2.7.2."""
    num_deleted: Count = 0
    """Messages deleted between the first and the last. Since nats-server 2.2.2."""
    deleted: list[int] | None = None
    """Their sequences, when asked for."""
    lost: LostStreamData | None = None
    """Messages that the server could not recover."""
    consumer_count: Count = 0
    """Consumers it has."""


class StreamSourceInfo(Model, kw_only=True, frozen=True):
    """How the copying from a mirror's origin, or from a source, is going."""

    name: str = ""
    """The stream that is copied."""
    external: External | None = None
    """Where it is, when in another account or domain."""
    lag: int = 0
    """Messages still to be copied."""
    active: Seconds | None = None
    """Seconds since something was last heard of it; negative for never."""
    error: ApiErrorReply | None = None
    """Why it cannot be copied."""
    filter_subject: str | None = None
    """The subjects that are copied. Since nats-server 2.10."""
    subject_transforms: list[SubjectTransform] | None = None
    """Their new subjects. Since nats-server 2.10."""


class StreamAlternate(Model, kw_only=True, frozen=True):
    """A stream with the same messages: this one, or a mirror of it."""

    name: str = ""
    domain: str | None = None
    cluster: str = ""


class StreamInfo(Model, kw_only=True, frozen=True):
    """A stream, as `STREAM.INFO`, `STREAM.CREATE` and `STREAM.UPDATE` give it."""

    config: StreamConfig = StreamConfig()
    """How it is set up."""
    state: StreamState = StreamState()
    """What it holds."""
    created: datetime | None = None
    """When it was created."""
    ts: datetime | None = None
    """The server's time when it gave this. Since nats-server 2.10."""
    domain: str | None = None
    """The JetStream domain. Since nats-server 2.6."""
    cluster: ClusterInfo | None = None
    """The servers that hold it."""
    mirror: StreamSourceInfo | None = None
    """How the copying from its origin is going."""
    sources: list[StreamSourceInfo] | None = None
    """How the copying from its sources is going, in any order."""
    alternates: list[StreamAlternate] | None = None
    """Streams with the same messages, the nearest first. Since nats-server 2.8."""
    did_create: bool = False
    """Whether this request created it. Since nats-server 2.6."""
    total: int = 0
    """Subjects there are, when asked for `state.subjects`; one reply has 100,000.

    Since nats-server 2.9.
    """
    offset: int = 0
    """The number of the first of them here. Since nats-server 2.9."""
    limit: int = 0
    """How many of them one reply has at most. Since nats-server 2.9."""


class SequenceInfo(Model, kw_only=True, frozen=True):
    """A place in a consumer, and in its stream."""

    consumer_seq: Count = 0
    """Messages sent, those sent again included."""
    stream_seq: Count = 0
    """The sequence in the stream."""
    last_active: datetime | None = None
    """When it last moved; None for never."""


class PriorityGroupState(Model, kw_only=True, frozen=True):
    """Who is pinned in a priority group. Since nats-server 2.11."""

    group: str = ""
    pinned_client_id: str | None = None
    """The id that the pinned client sends along."""
    pinned_ts: datetime | None = None
    """When it was pinned."""


class ConsumerInfo(Model, kw_only=True, frozen=True):
    """A consumer, as `CONSUMER.INFO` and `CONSUMER.CREATE` give it."""

    stream_name: str = ""
    name: str = ""
    config: ConsumerConfig = ConsumerConfig()
    """How it is set up."""
    created: datetime | None = None
    """When it was created."""
    ts: datetime | None = None
    """The server's time when it gave this. Since nats-server 2.10."""
    delivered: SequenceInfo = SequenceInfo()
    """The last message that was sent."""
    ack_floor: SequenceInfo = SequenceInfo()
    """The last message up to which all are acknowledged."""
    num_ack_pending: Count = 0
    """Messages that wait for their acks."""
    num_redelivered: Count = 0
    """Messages that were sent more than once and wait for their acks."""
    num_waiting: Count = 0
    """Pulls that wait."""
    num_pending: Count = 0
    """Messages still to be sent for the first time."""
    cluster: ClusterInfo | None = None
    """The servers that hold it."""
    push_bound: bool = False
    """Whether somebody listens to a push consumer. Since nats-server 2.4."""
    paused: bool = False
    """Whether it is paused. Since nats-server 2.11."""
    pause_remaining: Seconds | None = None
    """Seconds that it stays paused. Since nats-server 2.11."""
    priority_groups: list[PriorityGroupState] | None = None
    """Who is pinned. Since nats-server 2.11."""


class ConsumerPause(Model, kw_only=True, frozen=True):
    """What pausing or resuming a consumer came to. Since nats-server 2.11."""

    paused: bool = False
    pause_until: datetime | None = None
    """None when it is not paused."""
    pause_remaining: Seconds | None = None
    """Seconds that it stays paused."""


class ConsumerReset(ConsumerInfo, kw_only=True, frozen=True):
    """A consumer that has been reset. Since nats-server 2.14."""

    reset_seq: Count = 0
    """The stream sequence that it goes on from."""
