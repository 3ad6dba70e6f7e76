"""JetStream's configurations and replies, with seconds and datetimes for its wire formats.

The parts, lowest first:

    codec           conversion of values to and from the wire
    server_version  the server versions that introduced fields
    model           the base of all: reading, writing, checking, comparing
    name            the rules for names and subjects
    source          mirrors, sources, transforms, republishing
    stream          the configuration of streams
    consumer        the configuration of consumers
    cluster         the servers that hold them
    ack             publish acks, and errors in replies
    info            the info about streams and consumers
    account         the use and the limits of an account
    advisory        the events that servers publish
    publish         the options of a message besides its payload
    stored          messages as a stream holds them

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
    # Building blocks
    "Model",
    "check_filter",
    "check_name",
    "decode_pub_ack",
]
