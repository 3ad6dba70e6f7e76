"""jsync: a blocking, thread-based NATS JetStream client.

The map of the package, lowest first; each part imports only from those above it:

    terminal    text of strangers, made safe for a terminal
    errors      every error
    checks      numbers and callbacks that the user gives
    headers     message headers
    _fast       the hot path, in Cython: messages, parsing, the write buffer, waiting
    models      JetStream's configurations and replies
    core        NATS itself: the connection, subscriptions, requests
    jetstream   JetStream: streams, consumers, publishing
    testing     messages made by hand, for tests of handlers
    metrics     counts of connections as Prometheus text
    server      a local nats-server for demos, scripts and tests
    spark       the data source of Spark and its pipelines, on public names only
    cli         the `jsync` command, on public names only
"""

from ._fast import ArrowBatch, FastPubAck, JetStreamMsg, Metadata, Msg, PubAckFuture
from ._version import __version__
from .core.connection import Connection, Statistics, connect
from .core.protocol import ServerInfo
from .core.session import ConnectionState
from .core.subscription import Subscription
from .headers import Headers
from .jetstream.advisory import BatchAdvisories
from .jetstream.arrow import ArrowBatches, ArrowRange
from .jetstream.arrow_publish import MessageColumns
from .jetstream.atomic import AtomicBatch
from .jetstream.batch import BatchState
from .jetstream.consume import ConsumeContext, MessagesContext
from .jetstream.consumer import Consumer
from .jetstream.context import JetStream
from .jetstream.fast_ingest import FastIngest
from .jetstream.fetch import Batch
from .jetstream.ordered_batch import OrderedBatch
from .jetstream.ordered_consumer import OrderedConsumer, OrderedOptions
from .jetstream.publish_options import PublishOptions
from .jetstream.publisher import Publisher
from .jetstream.pull_subscription import PullSubscription
from .jetstream.push_consumer import PushConsumer
from .jetstream.push_subscription import PushSubscription
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
    # The package
    "__version__",
]
