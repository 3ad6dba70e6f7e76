"""The replies of servers to `$SYS` requests.

They have the fields that monitoring needs most. All other fields are in `extra`, as they
are on the wire.
"""

from datetime import datetime
from typing import Any, TypedDict

import msgspec

from ..models import APIStats
from ..models.codec import Seconds
from ..models.model import Model


class SystemServer(Model, kw_only=True, frozen=True):
    """The server that replied."""

    id: str = ""
    """The id, a new one for each start."""
    name: str = ""
    host: str = ""
    cluster: str | None = None
    """The name of the cluster."""
    domain: str | None = None
    """The JetStream domain."""
    ver: str = ""
    """The version."""
    tags: list[str] | None = None
    metadata: dict[str, str] | None = None
    jetstream: bool = False
    """True if JetStream is on."""
    time: datetime | None = None
    """The time of the reply, by the clock of the server."""


class Traffic(Model, kw_only=True, frozen=True):
    """Messages and bytes."""

    msgs: int = 0
    bytes: int = 0


class Statsz(Model, kw_only=True, frozen=True):
    """The load of a server in short: the reply to a ping."""

    start: datetime | None = None
    """When the server started."""
    mem: int = 0
    """Bytes of resident memory."""
    cores: int = 0
    cpu: float = 0.0
    """Percent of one core."""
    connections: int = 0
    total_connections: int = 0
    """All connections since the start."""
    active_accounts: int = 0
    subscriptions: int = 0
    sent: Traffic = Traffic()
    received: Traffic = Traffic()
    slow_consumers: int = 0
    active_servers: int = 0
    """The number of servers that this server knows of, itself included."""
    jetstream: dict[str, Any] | None = None
    """The state of JetStream, if it is on."""


class Varz(Model, kw_only=True, frozen=True):
    """The configuration and the counters of a server."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    host: str = ""
    port: int = 0
    max_connections: int = 0
    max_subscriptions: int = 0
    max_payload: int = 0
    max_pending: int = 0
    ping_interval: Seconds = 0.0
    """Seconds between pings to clients."""
    ping_max: int = 0
    write_deadline: Seconds = 0.0
    auth_required: bool = False
    tls_required: bool = False
    start: datetime | None = None
    now: datetime | None = None
    uptime: str = ""
    """The words of the server, such as `1h2m3s`."""
    mem: int = 0
    """Bytes of resident memory."""
    cores: int = 0
    cpu: float = 0.0
    """Percent of one core."""
    connections: int = 0
    total_connections: int = 0
    routes: int = 0
    leafnodes: int = 0
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    slow_consumers: int = 0
    subscriptions: int = 0
    config_load_time: datetime | None = None
    """When the configuration was read, or reloaded."""
    system_account: str | None = None
    tags: list[str] | None = None
    cluster: dict[str, Any] | None = None
    jetstream: dict[str, Any] | None = None


class ConnectionInfo(Model, kw_only=True, frozen=True):
    """A connection of a client to a server."""

    cid: int = 0
    """The number of the connection. `Connection.client_id` has yours."""
    kind: str = ""
    type: str = ""
    ip: str = ""
    port: int = 0
    start: datetime | None = None
    stop: datetime | None = None
    """When a closed connection ended."""
    reason: str | None = None
    """Why a closed connection ended."""
    last_activity: datetime | None = None
    rtt: str | None = None
    uptime: str = ""
    idle: str = ""
    pending_bytes: int = 0
    """Bytes that wait for the client to read them."""
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    subscriptions: int = 0
    subscriptions_list: list[str] | None = None
    name: str | None = None
    """The `name` given to `connect`."""
    lang: str | None = None
    version: str | None = None
    account: str | None = None
    """The account, on request with `auth=True`."""
    authorized_user: str | None = None
    """The user, on request with `auth=True`."""


class Connz(Model, kw_only=True, frozen=True):
    """The connections of a server, a page of them."""

    now: datetime | None = None
    num_connections: int = 0
    """The connections of this page."""
    total: int = 0
    """All connections."""
    offset: int = 0
    limit: int = 0
    connections: list[ConnectionInfo] = msgspec.field(default_factory=list)


class Subsz(Model, kw_only=True, frozen=True):
    """The subscriptions of a server."""

    num_subscriptions: int = 0
    num_cache: int = 0
    num_inserts: int = 0
    num_removes: int = 0
    num_matches: int = 0
    cache_hit_rate: float = 0.0
    max_fanout: int = 0
    avg_fanout: float = 0.0
    total: int = 0
    offset: int = 0
    limit: int = 0
    subscriptions_list: list[dict[str, Any]] | None = None
    """The subscriptions, on request with `subscriptions=True`."""


class RouteInfo(Model, kw_only=True, frozen=True):
    """A route to another server of the cluster."""

    rid: int = 0
    remote_id: str = ""
    remote_name: str = ""
    did_solicit: bool = False
    ip: str = ""
    port: int = 0
    rtt: str | None = None
    pending_size: int = 0
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    subscriptions: int = 0
    account: str | None = None


class Routez(Model, kw_only=True, frozen=True):
    """The routes of a server."""

    num_routes: int = 0
    routes: list[RouteInfo] = msgspec.field(default_factory=list)


class Gatewayz(Model, kw_only=True, frozen=True):
    """The gateways of a server."""

    name: str | None = None
    host: str | None = None
    port: int = 0
    outbound_gateways: dict[str, Any] | None = None
    inbound_gateways: dict[str, Any] | None = None


class LeafInfo(Model, kw_only=True, frozen=True):
    """A connection of a leaf node."""

    name: str = ""
    is_spoke: bool = False
    account: str = ""
    ip: str = ""
    port: int = 0
    rtt: str | None = None
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    subscriptions: int = 0


class Leafz(Model, kw_only=True, frozen=True):
    """The leaf nodes of a server."""

    leafnodes: int = 0
    """The number of leaf nodes."""
    leafs: list[LeafInfo] = msgspec.field(default_factory=list)


class Accountz(Model, kw_only=True, frozen=True):
    """The accounts of a server, or one of them."""

    system_account: str | None = None
    accounts: list[str] | None = None
    account_detail: dict[str, Any] | None = None
    """The account that you asked for with `account=`."""


class MetaPeer(Model, kw_only=True, frozen=True):
    """A server of the meta group."""

    name: str = ""
    current: bool = False
    offline: bool = False
    active: Seconds = 0.0
    lag: int = 0
    peer: str = ""
    """The id of the server in the group."""


class MetaCluster(Model, kw_only=True, frozen=True):
    """The meta group, which places streams and consumers."""

    name: str | None = None
    leader: str | None = None
    peer: str | None = None
    replicas: list[MetaPeer] | None = None
    """The other servers. Only the leader knows them all."""
    cluster_size: int = 0


class Jsz(Model, kw_only=True, frozen=True):
    """JetStream on a server."""

    server_id: str = ""
    disabled: bool = False
    config: dict[str, Any] | None = None
    memory: int = 0
    """Bytes in memory."""
    storage: int = 0
    """Bytes in files."""
    reserved_memory: int = 0
    reserved_storage: int = 0
    accounts: int = 0
    ha_assets: int = 0
    api: APIStats = APIStats()
    streams: int = 0
    consumers: int = 0
    messages: int = 0
    bytes: int = 0
    meta_cluster: MetaCluster | None = None
    """The meta group, in a cluster."""
    account_details: list[dict[str, Any]] | None = None
    """The accounts, on request with `accounts=True` or `streams=True`."""


class Healthz(Model, kw_only=True, frozen=True):
    """The health of a server."""

    status: str = ""
    """`ok`, `unavailable` or `error`."""
    status_code: int = 0
    error: str | None = None
    errors: list[dict[str, Any]] | None = None
    """The errors, on request with `details=True`."""

    @property
    def ok(self) -> bool:
        """True if the server is healthy."""
        return self.status == "ok"


class Idz(Model, kw_only=True, frozen=True):
    """The id of a server."""

    id: str = ""
    name: str = ""
    host: str = ""


class AccountStat(Model, kw_only=True, frozen=True):
    """The use of a server by an account."""

    acc: str = ""
    """The account: its name, or its public key in operator mode."""
    name: str = ""
    """The name of the account. Since nats-server 2.11."""
    conns: int = 0
    """The connections of clients."""
    leafnodes: int = 0
    total_conns: int = 0
    """The connections of clients and leaf nodes."""
    num_subscriptions: int = 0
    sent: Traffic = Traffic()
    received: Traffic = Traffic()
    slow_consumers: int = 0


class Accstatz(Model, kw_only=True, frozen=True):
    """The use of a server by its accounts."""

    now: datetime | None = None
    account_statz: list[AccountStat] = msgspec.field(default_factory=list)


class Expvarz(Model, kw_only=True, frozen=True):
    """The memory of the Go runtime of a server."""

    cmdline: list[str] = msgspec.field(default_factory=list)
    """The command line of the server. It may have secrets."""
    memstats: dict[str, Any] = msgspec.field(default_factory=dict)
    """The fields of Go's `runtime.MemStats`, such as `HeapAlloc`."""


class Profilez(Model, kw_only=True, frozen=True):
    """A profile of a server."""

    profile: bytes = b""
    """The file that `go tool pprof` reads. Text if you asked with `debug`."""


class IpQueue(Model, kw_only=True, frozen=True):
    """A queue between the parts of a server."""

    pending: int = 0
    in_progress: int = 0


class Ipqueuesz(Model, kw_only=True, frozen=True):
    """The queues between the parts of a server."""

    queues: dict[str, IpQueue] = msgspec.field(default_factory=dict)
    """The queues by name."""


class RaftPeer(Model, kw_only=True, frozen=True):
    """Another server of a Raft group."""

    name: str = ""
    known: bool = False
    last_replicated_index: int = 0
    last_seen: str | None = None
    """The words of the server, such as `1.2s`."""


class RaftGroup(Model, kw_only=True, frozen=True):
    """A Raft group, as one of its servers sees it."""

    id: str = ""
    """The id of the server in the group."""
    state: str = ""
    """`LEADER`, `FOLLOWER`, `CANDIDATE` or `CLOSED`."""
    size: int = 0
    quorum_needed: int = 0
    observer: bool = False
    paused: bool = False
    committed: int = 0
    applied: int = 0
    catching_up: bool = False
    leader: str | None = None
    """The id of the leader."""
    leader_since: datetime | None = None
    ever_had_leader: bool = False
    term: int = 0
    voted_for: str | None = None
    pterm: int = 0
    pindex: int = 0
    ipq_proposal_len: int = 0
    ipq_entry_len: int = 0
    ipq_resp_len: int = 0
    ipq_apply_len: int = 0
    wal: dict[str, Any] = msgspec.field(default_factory=dict)
    """The state of the log of the group."""
    peers: dict[str, RaftPeer] = msgspec.field(default_factory=dict)
    """The other servers by id."""


class Raftz(Model, kw_only=True, frozen=True):
    """The Raft groups of a server."""

    groups: dict[str, dict[str, RaftGroup]] = msgspec.field(default_factory=dict)
    """The groups by account and name. Empty for a server without a cluster."""


class ServerFilter(TypedDict, total=False):
    """The servers that shall reply. Default: all."""

    server_name: str
    """A part of the name."""
    cluster: str
    """A part of the name of the cluster."""
    host: str
    """A part of the host."""
    domain: str
    """The JetStream domain."""
    tags: list[str]
    """All of these tags."""
    exact_match: bool
    """Compare whole names, not parts."""


class ConnzOptions(TypedDict, total=False):
    """The options of `connz`."""

    sort: str
    """`cid`, `start`, `subs`, `pending`, `msgs_to`, `bytes_to`, `idle` and others."""
    auth: bool
    """Tell the user and the account."""
    subscriptions: bool
    """List the subjects of the subscriptions."""
    subscriptions_detail: bool
    """List the subscriptions with their counters."""
    offset: int
    limit: int
    """Connections in a reply. Default: 1024."""
    cid: int
    """Only this connection."""
    mqtt_client: str
    """Only the connection of this MQTT client."""
    state: int
    """0: open connections. 1: closed ones. 2: all."""
    user: str
    acc: str
    """Only this account."""
    filter_subject: str
    """Only connections that subscribe to this subject. Needs `acc`."""


class SubszOptions(TypedDict, total=False):
    """The options of `subsz`."""

    subscriptions: bool
    """List the subscriptions."""
    offset: int
    limit: int
    account: str
    test: str
    """Only subscriptions that match this subject."""


class RoutezOptions(TypedDict, total=False):
    """The options of `routez`."""

    subscriptions: bool
    subscriptions_detail: bool


class GatewayzOptions(TypedDict, total=False):
    """The options of `gatewayz`."""

    name: str
    """Only this gateway."""
    accounts: bool
    account_name: str
    subscriptions: bool
    subscriptions_detail: bool


class LeafzOptions(TypedDict, total=False):
    """The options of `leafz`."""

    subscriptions: bool
    account: str


class AccountzOptions(TypedDict, total=False):
    """The options of `accountz`."""

    account: str
    """Tell everything of this account."""


class JszOptions(TypedDict, total=False):
    """The options of `jsz`."""

    account: str
    accounts: bool
    streams: bool
    consumer: bool
    """With the consumers of each stream."""
    direct_consumer: bool
    """With the consumers that mirrors and sources use."""
    config: bool
    """With the configurations."""
    leader_only: bool
    """Let only the leader of the meta group reply."""
    stream_leader_only: bool
    raft: bool
    offset: int
    limit: int


class HealthzOptions(TypedDict, total=False):
    """The options of `healthz`."""

    js_enabled_only: bool
    """Only check that JetStream is on."""
    js_server_only: bool
    """Do not check streams and consumers."""
    js_meta_only: bool
    """Check only the meta group."""
    account: str
    stream: str
    consumer: str
    details: bool
    """List the errors."""


class AccstatzOptions(TypedDict, total=False):
    """The options of `accstatz`."""

    accounts: list[str]
    """Only these accounts."""
    include_unused: bool
    """Tell accounts without connections, too."""


class IpqueueszOptions(TypedDict, total=False):
    """The options of `ipqueuesz`."""

    all: bool
    """Tell empty queues, too."""
    filter: str
    """A part of the names of the queues."""


class RaftzOptions(TypedDict, total=False):
    """The options of `raftz`."""

    account: str
    """Only the groups of this account. Default: the system account."""
    group: str
    """Only this group."""
