"""jsync: a blocking, thread-based NATS JetStream client.

The map of the package, lowest first. Each part imports only from those above it:

    _version        the version of jsync
    terminal        foreign text, made safe for a terminal
    hints           the right names for users who type those of nats-py
    errors          every error
    validation      the checks of numbers and callbacks that the user gives
    headers         message headers
    subjects        the subjects that a pattern with wildcards matches
    health          the meanings of connected, current, ready and alive
    _prometheus     the text format of Prometheus
    _fast           the hot path, in Cython: messages, parsing, the write buffer, waiting
    models          JetStream's configurations and replies
    core            NATS itself: the I/O thread, subscriptions, requests
    handlers        the signatures and payloads of handlers, for services and workers
    contexts        the contexts that the nats command stores
    services        services: endpoints on threads, discovery, calls
    jetstream       JetStream: streams, consumers, publishing, key-value, objects, groups
    system          the servers themselves: `$SYS` requests and their replies
    tracing         the way of a message through servers and accounts
    connection      `connect` and `Connection`, on top of these
    shared          one connection for each process and set of options
    metrics         counts of connections as Prometheus text
    worker          handlers of consumers as a program that runs forever
    testing         messages made by hand, for tests of handlers
    _win32_job      a group of processes that Windows ends together
    _server_config  the keys of a nats-server's configuration
    server          a local nats-server for demos, scripts and tests

The last parts are built on public names only, as a program of yours is:

    spark           the data source of Spark and its pipelines
    integrations    jsync in other libraries
    cli             the `jsync` command
    __main__        `python -m jsync`, which is the command
"""

from importlib import import_module
from typing import TYPE_CHECKING

try:
    from ._fast import (
        ArrowBatch,
        FastPubAck,
        JetStreamMsg,
        Metadata,
        Msg,
        PubAckFuture,
    )
except ModuleNotFoundError as error:
    if error.name != "jsync._fast":
        raise
    from pathlib import Path

    folder = Path(__file__).parents[1]
    raise ImportError(
        f"jsync is not compiled in {folder}: run `pip install --editable .` there, or "
        "start Python in another folder to import the jsync that you installed"
    ) from None
except ImportError as error:
    # CPython and Cython have different messages, and both name an interpreter.
    if "interpreter" not in str(error):
        raise
    raise ImportError(
        "jsync cannot be imported in a subinterpreter: import it in the main interpreter, "
        "and use threads or processes",
        name="jsync",
    ) from None

from ._version import __version__

if TYPE_CHECKING:
    from .connection import (
        Connection,
        Statistics,
        connect,
    )
    from .core.events import (
        BackgroundError,
        Closed,
        Connected,
        ConnectionEvent,
        ConnectionEvents,
        Disconnected,
        EventsDropped,
        LameDuck,
        Reconnected,
        ServersDiscovered,
    )
    from .core.protocol import (
        ServerInfo,
    )
    from .core.server_pool import (
        PoolServer,
    )
    from .core.session import (
        ConnectionState,
    )
    from .core.subscription import (
        Subscription,
    )
    from .headers import (
        Headers,
    )
    from .jetstream.advisory import (
        Advisories,
        BatchAdvisories,
    )
    from .jetstream.atomic.batch import (
        AtomicBatch,
    )
    from .jetstream.atomic.engine import (
        BatchState,
    )
    from .jetstream.backups.account import (
        AccountBackup,
    )
    from .jetstream.backups.driver import (
        StreamBackup,
    )
    from .jetstream.consumer import (
        Consumer,
    )
    from .jetstream.context import (
        JetStream,
    )
    from .jetstream.counters.counters import (
        Counters,
    )
    from .jetstream.counters.engine import (
        CounterEntry,
    )
    from .jetstream.groups.engine import (
        ConsumerGroupConfig,
        GroupMemberInfo,
        MemberState,
    )
    from .jetstream.groups.group import (
        ConsumerGroup,
    )
    from .jetstream.groups.member import (
        GroupMember,
    )
    from .jetstream.ingest.driver import (
        FastIngest,
    )
    from .jetstream.keyvalue.aesgcm import (
        AESGCM,
    )
    from .jetstream.keyvalue.bucket import (
        KeyValue,
    )
    from .jetstream.keyvalue.codecs import (
        JSON,
        Base64,
        Base64Keys,
        KeyCodec,
        MsgPack,
        PathKeys,
        ValueCipher,
        ValueCodec,
    )
    from .jetstream.keyvalue.config import (
        KeyValueConfig,
    )
    from .jetstream.keyvalue.election import (
        Election,
    )
    from .jetstream.keyvalue.engine import (
        Entry,
    )
    from .jetstream.keyvalue.live_view import (
        LiveView,
    )
    from .jetstream.keyvalue.lock import (
        Lock,
    )
    from .jetstream.keyvalue.status import (
        KeyValueStatus,
    )
    from .jetstream.keyvalue.watch import (
        Watch,
    )
    from .jetstream.objects.config import (
        ObjectStoreConfig,
    )
    from .jetstream.objects.engine import (
        ObjectInfo,
        ObjectLink,
    )
    from .jetstream.objects.reader import (
        ObjectReader,
    )
    from .jetstream.objects.repair import (
        StoreCheck,
    )
    from .jetstream.objects.status import (
        ObjectStoreStatus,
    )
    from .jetstream.objects.store import (
        ObjectStore,
    )
    from .jetstream.objects.watch import (
        ObjectWatch,
    )
    from .jetstream.objects.writer import (
        ObjectWriter,
    )
    from .jetstream.ordered.arrow import (
        ArrowRange,
    )
    from .jetstream.ordered.batch import (
        OrderedBatch,
    )
    from .jetstream.ordered.consumer import (
        OrderedConsumer,
        OrderedOptions,
    )
    from .jetstream.publishing.arrow import (
        MessageColumns,
    )
    from .jetstream.publishing.publisher import (
        Publisher,
    )
    from .jetstream.pulls.arrow import (
        ArrowBatches,
    )
    from .jetstream.pulls.consume import (
        ConsumeContext,
    )
    from .jetstream.pulls.messages import (
        MessagesContext,
    )
    from .jetstream.pulls.pull import (
        Batch,
    )
    from .jetstream.push.consumer import (
        PushConsumer,
    )
    from .jetstream.retries.engine import (
        Retry,
    )
    from .jetstream.schedules.engine import (
        Schedule,
    )
    from .jetstream.schedules.schedules import (
        Schedules,
    )
    from .jetstream.stream import (
        Stream,
    )
    from .jetstream.subscribe.pull_subscription import (
        PullSubscription,
    )
    from .jetstream.subscribe.subscription import (
        PushSubscription,
    )
    from .models import (
        BatchAbandoned,
        ConsumerConfig,
        ConsumerInfo,
        ConsumerLimits,
        External,
        Placement,
        PubAck,
        Republish,
        SourceConsumer,
        StoredMessage,
        StreamConfig,
        StreamInfo,
        StreamSource,
        SubjectTransform,
    )
    from .models.publish import (
        PublishOptions,
    )
    from .services.discovery import (
        Services,
    )
    from .services.engine import (
        ServiceState,
    )
    from .services.messages import (
        EndpointInfo,
        EndpointStats,
        ServiceInfo,
        ServicePing,
        ServiceStats,
    )
    from .services.request import (
        Request,
    )
    from .services.service import (
        Group,
        Service,
    )
    from .shared import (
        shared_connection,
    )
    from .worker.worker import (
        RunningWorker,
        Worker,
    )

__all__ = [
    # Connecting
    "connect",
    "shared_connection",
    "Connection",
    "ConnectionState",
    "PoolServer",
    "ServerInfo",
    "Statistics",
    # Events of a connection
    "ConnectionEvent",
    "ConnectionEvents",
    "Connected",
    "Disconnected",
    "Reconnected",
    "LameDuck",
    "ServersDiscovered",
    "BackgroundError",
    "EventsDropped",
    "Closed",
    # Messages
    "Headers",
    "Msg",
    "Subscription",
    # Services
    "Service",
    "Group",
    "Request",
    "ServiceState",
    "Services",
    "ServicePing",
    "ServiceInfo",
    "EndpointInfo",
    "ServiceStats",
    "EndpointStats",
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
    "Retry",
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
    "Advisories",
    "BatchAdvisories",
    "BatchAbandoned",
    "StoredMessage",
    "FastIngest",
    "FastPubAck",
    "AccountBackup",
    "StreamBackup",
    "StreamConfig",
    "StreamSource",
    "SourceConsumer",
    "External",
    "SubjectTransform",
    "Placement",
    "Republish",
    "ConsumerLimits",
    "StreamInfo",
    "ConsumerConfig",
    "ConsumerInfo",
    # Workers
    "Worker",
    "RunningWorker",
    # Key-value
    "KeyValue",
    "KeyValueConfig",
    "KeyValueStatus",
    "Entry",
    "Watch",
    "LiveView",
    "Lock",
    "Election",
    "AESGCM",
    "JSON",
    "MsgPack",
    "PathKeys",
    "Base64",
    "Base64Keys",
    "ValueCipher",
    "ValueCodec",
    "KeyCodec",
    # Counters
    "Counters",
    "CounterEntry",
    # Schedules
    "Schedules",
    "Schedule",
    # Consumer groups
    "ConsumerGroup",
    "ConsumerGroupConfig",
    "GroupMember",
    "GroupMemberInfo",
    "MemberState",
    # Objects
    "ObjectStore",
    "ObjectStoreConfig",
    "ObjectStoreStatus",
    "ObjectInfo",
    "ObjectLink",
    "ObjectReader",
    "ObjectWriter",
    "ObjectWatch",
    "StoreCheck",
    # The package
    "__version__",
]

# The rest is imported on first use. A process that Spark starts to find or to plan a data
# source uses little of it, and would wait for all of it.
_NAMES = {
    name: module
    for module, names in {
        "connection": "Connection Statistics connect",
        "core.events": "BackgroundError Closed Connected ConnectionEvent ConnectionEvents Disconnected EventsDropped LameDuck Reconnected ServersDiscovered",
        "core.server_pool": "PoolServer",
        "core.protocol": "ServerInfo",
        "core.session": "ConnectionState",
        "core.subscription": "Subscription",
        "headers": "Headers",
        "jetstream.advisory": "Advisories BatchAdvisories",
        "jetstream.atomic.batch": "AtomicBatch",
        "jetstream.atomic.engine": "BatchState",
        "jetstream.backups.account": "AccountBackup",
        "jetstream.backups.driver": "StreamBackup",
        "jetstream.consumer": "Consumer",
        "jetstream.context": "JetStream",
        "jetstream.counters.counters": "Counters",
        "jetstream.counters.engine": "CounterEntry",
        "jetstream.groups.engine": "ConsumerGroupConfig GroupMemberInfo MemberState",
        "jetstream.groups.group": "ConsumerGroup",
        "jetstream.groups.member": "GroupMember",
        "jetstream.ingest.driver": "FastIngest",
        "jetstream.keyvalue.aesgcm": "AESGCM",
        "jetstream.keyvalue.bucket": "KeyValue",
        "jetstream.keyvalue.codecs": "JSON Base64 Base64Keys KeyCodec MsgPack PathKeys ValueCipher ValueCodec",
        "jetstream.keyvalue.config": "KeyValueConfig",
        "jetstream.keyvalue.election": "Election",
        "jetstream.keyvalue.engine": "Entry",
        "jetstream.keyvalue.live_view": "LiveView",
        "jetstream.keyvalue.lock": "Lock",
        "jetstream.keyvalue.status": "KeyValueStatus",
        "jetstream.keyvalue.watch": "Watch",
        "jetstream.objects.config": "ObjectStoreConfig",
        "jetstream.objects.engine": "ObjectInfo ObjectLink",
        "jetstream.objects.reader": "ObjectReader",
        "jetstream.objects.repair": "StoreCheck",
        "jetstream.objects.status": "ObjectStoreStatus",
        "jetstream.objects.store": "ObjectStore",
        "jetstream.objects.watch": "ObjectWatch",
        "jetstream.objects.writer": "ObjectWriter",
        "jetstream.ordered.arrow": "ArrowRange",
        "jetstream.ordered.batch": "OrderedBatch",
        "jetstream.ordered.consumer": "OrderedConsumer OrderedOptions",
        "jetstream.publishing.arrow": "MessageColumns",
        "jetstream.publishing.publisher": "Publisher",
        "jetstream.pulls.arrow": "ArrowBatches",
        "jetstream.pulls.consume": "ConsumeContext",
        "jetstream.pulls.messages": "MessagesContext",
        "jetstream.pulls.pull": "Batch",
        "jetstream.push.consumer": "PushConsumer",
        "jetstream.retries.engine": "Retry",
        "jetstream.schedules.engine": "Schedule",
        "jetstream.schedules.schedules": "Schedules",
        "jetstream.stream": "Stream",
        "jetstream.subscribe.pull_subscription": "PullSubscription",
        "jetstream.subscribe.subscription": "PushSubscription",
        "models": "BatchAbandoned ConsumerConfig ConsumerInfo ConsumerLimits External Placement PubAck Republish SourceConsumer StoredMessage StreamConfig StreamInfo StreamSource SubjectTransform",
        "models.publish": "PublishOptions",
        "services.discovery": "Services",
        "services.engine": "ServiceState",
        "services.messages": "EndpointInfo EndpointStats ServiceInfo ServicePing ServiceStats",
        "services.request": "Request",
        "services.service": "Group Service",
        "shared": "shared_connection",
        "worker.worker": "RunningWorker Worker",
    }.items()
    for name in names.split()
}

_MODULES = {
    *(module.partition(".")[0] for module in _NAMES.values()),
    *("contexts", "health", "subjects", "system", "terminal", "tracing", "validation"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_MODULES} - {"TYPE_CHECKING", "import_module"})


if not TYPE_CHECKING:  # a type checker reads the imports above

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f".{name}", __name__)
        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f".{_NAMES[name]}", __name__), name)
        globals()[name] = found
        return found
