"""jsync: a blocking, thread-based NATS JetStream client.

The map of the package, lowest first; each part imports only from those above it:

    terminal    text of strangers, made safe for a terminal
    errors      every error
    checks      numbers and callbacks that the user gives
    headers     message headers
    _fast       the hot path, in Cython: messages, parsing, the write buffer, waiting
    models      JetStream's configurations and replies
    core        NATS itself: the I/O thread, subscriptions, requests
    jetstream   JetStream: streams, consumers, publishing, key-value
    connection  `connect` and `Connection`, on top of both
    testing     messages made by hand, for tests of handlers
    metrics     counts of connections as Prometheus text
    server      a local nats-server for demos, scripts and tests
    spark       the data source of Spark and its pipelines, on public names only
    cli         the `jsync` command, on public names only
"""

from ._fast import ArrowBatch, FastPubAck, JetStreamMsg, Metadata, Msg, PubAckFuture
from ._version import __version__
from .connection import Connection, Statistics, connect
from .core.protocol import ServerInfo
from .core.session import ConnectionState
from .core.subscription import Subscription
from .headers import Headers
from .jetstream.advisory import BatchAdvisories
from .jetstream.atomic.batch import AtomicBatch
from .jetstream.atomic.engine import BatchState
from .jetstream.consumer import Consumer
from .jetstream.context import JetStream
from .jetstream.ingest.driver import FastIngest
from .jetstream.keyvalue.bucket import KeyValue
from .jetstream.keyvalue.codecs import (
    JSON,
    Base64Keys,
    KeyCodec,
    MsgPack,
    PathKeys,
    ValueCodec,
)
from .jetstream.keyvalue.config import KeyValueConfig
from .jetstream.keyvalue.election import Election
from .jetstream.keyvalue.engine import Entry
from .jetstream.keyvalue.live import Live
from .jetstream.keyvalue.lock import Lock
from .jetstream.keyvalue.status import KeyValueStatus
from .jetstream.keyvalue.watch import Watch
from .jetstream.ordered.arrow import ArrowRange
from .jetstream.ordered.batch import OrderedBatch
from .jetstream.ordered.consumer import OrderedConsumer, OrderedOptions
from .jetstream.publishing.arrow import MessageColumns
from .jetstream.publishing.publisher import Publisher
from .jetstream.pulls.arrow import ArrowBatches
from .jetstream.pulls.faces import ConsumeContext, MessagesContext
from .jetstream.pulls.fetch import Batch
from .jetstream.push.consumer import PushConsumer
from .jetstream.push.pull_subscription import PullSubscription
from .jetstream.push.subscription import PushSubscription
from .jetstream.stream import Stream
from .models import (
    BatchAbandoned,
    ConsumerConfig,
    ConsumerInfo,
    PubAck,
    StoredMessage,
    StreamConfig,
    StreamInfo,
)
from .models.publish import PublishOptions

__all__ = [
    # Connecting
    "connect",
    "Connection",
    "ConnectionState",
    "ServerInfo",
    "Statistics",
    # Messages
    "Headers",
    "Msg",
    "Subscription",
    # JetStream
    "JetStream",
    "Stream",
    "Consumer",
    "OrderedConsumer",
    "OrderedOptions",
    "PushConsumer",
    "PushSubscription",
    "Batch",
    "OrderedBatch",
    "MessagesContext",
    "ConsumeContext",
    "PullSubscription",
    "ArrowBatch",
    "ArrowBatches",
    "ArrowRange",
    "JetStreamMsg",
    "Metadata",
    "PubAck",
    "PublishOptions",
    "MessageColumns",
    "Publisher",
    "PubAckFuture",
    "AtomicBatch",
    "BatchState",
    "BatchAdvisories",
    "BatchAbandoned",
    "StoredMessage",
    "FastIngest",
    "FastPubAck",
    "StreamConfig",
    "StreamInfo",
    "ConsumerConfig",
    "ConsumerInfo",
    # Key-value
    "KeyValue",
    "KeyValueConfig",
    "KeyValueStatus",
    "Entry",
    "Watch",
    "Live",
    "Lock",
    "Election",
    "JSON",
    "MsgPack",
    "PathKeys",
    "Base64Keys",
    "ValueCodec",
    "KeyCodec",
    # The package
    "__version__",
]
