"""JetStream's configurations and replies, seconds and datetimes for nanoseconds and RFC 3339.

The parts, lowest first:

    codec       how values look on the wire
    model       the base of them all: reading, writing, checking, comparing
    name        what streams, consumers and subjects may be called
    source      mirrors, sources, transforms, republishing
    stream      the configuration of streams
    consumer    the configuration of consumers
    cluster     the servers that hold them
    ack         publish acks, and errors in replies
    info        what the server tells of streams and consumers
    account     what an account has and may have
    advisory    what the server tells of by itself
    stored      messages as a stream holds them

The rest of jsync imports from here.
"""

from .account import AccountInfo, AccountLimits, APIStats, Tier
from .ack import ApiErrorReply, PubAck, decode_pub_ack
from .advisory import (
    Advisory,
    APIAudit,
    APILimitReached,
    BatchAbandoned,
    ClientInfo,
    ConsumerAction,
    ConsumerLeaderElected,
    ConsumerPaused,
    ConsumerPinned,
    ConsumerQuorumLost,
    ConsumerUnpinned,
    DomainLeaderElected,
    MaxDeliveries,
    MessageNaked,
    MessageTerminated,
    RestoreCompleted,
    RestoreCreated,
    ServerOutOfSpace,
    ServerRemoved,
    SnapshotCompleted,
    SnapshotCreated,
    StreamAction,
    StreamLeaderElected,
    StreamQuorumLost,
)
from .cluster import (
    ClusterInfo,
    DesiredClusterInfo,
    MoveOrigin,
    MoveStatus,
    MoveStep,
    PeerInfo,
)
from .consumer import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    PriorityPolicy,
    ReplayPolicy,
)
from .info import (
    ConsumerInfo,
    ConsumerPause,
    ConsumerReset,
    LostStreamData,
    PriorityGroupState,
    SequenceInfo,
    StreamAlternate,
    StreamInfo,
    StreamSourceInfo,
    StreamState,
)
from .model import Model
from .name import check_filter, check_name
from .source import (
    External,
    Republish,
    SourceConsumer,
    StreamSource,
    SubjectTransform,
)
from .stored import StoredMessage
from .stream import (
    Compression,
    ConsumerLimits,
    Discard,
    PersistMode,
    Placement,
    Retention,
    Storage,
    StreamConfig,
)

__all__ = [
    # Configurations
    "StreamConfig",
    "ConsumerConfig",
    "ConsumerLimits",
    "External",
    "Placement",
    "Republish",
    "SourceConsumer",
    "StreamSource",
    "SubjectTransform",
    # Their words
    "AckPolicy",
    "Compression",
    "DeliverPolicy",
    "Discard",
    "PersistMode",
    "PriorityPolicy",
    "ReplayPolicy",
    "Retention",
    "Storage",
    # Replies
    "AccountInfo",
    "AccountLimits",
    "APIStats",
    "ApiErrorReply",
    "ClusterInfo",
    "ConsumerInfo",
    "ConsumerPause",
    "ConsumerReset",
    "DesiredClusterInfo",
    "LostStreamData",
    "MoveOrigin",
    "MoveStatus",
    "MoveStep",
    "PeerInfo",
    "PriorityGroupState",
    "PubAck",
    "SequenceInfo",
    "StoredMessage",
    "StreamAlternate",
    "StreamInfo",
    "StreamSourceInfo",
    "StreamState",
    "Tier",
    # Advisories
    "Advisory",
    "ClientInfo",
    "StreamAction",
    "SnapshotCreated",
    "SnapshotCompleted",
    "RestoreCreated",
    "RestoreCompleted",
    "StreamLeaderElected",
    "StreamQuorumLost",
    "BatchAbandoned",
    "ConsumerAction",
    "ConsumerPaused",
    "ConsumerLeaderElected",
    "ConsumerQuorumLost",
    "ConsumerPinned",
    "ConsumerUnpinned",
    "MaxDeliveries",
    "MessageNaked",
    "MessageTerminated",
    "APIAudit",
    "APILimitReached",
    "DomainLeaderElected",
    "ServerOutOfSpace",
    "ServerRemoved",
    # What they are made with
    "Model",
    "check_filter",
    "check_name",
    "decode_pub_ack",
]
