"""The servers that hold a stream or a consumer."""

from datetime import datetime
from typing import Literal

from .codec import Seconds
from .model import Model
from .stream import Placement, Retention

MoveStep = Literal[
    "meta", "membership", "snapshot", "catchup", "quorum", "blocked", "unavailable"
]


class PeerInfo(Model, kw_only=True, frozen=True):
    """A server that holds a replica, other than the leader."""

    name: str = ""
    """The server's name."""
    current: bool = False
    """True if the server was seen lately and has all data."""
    offline: bool = False
    """True if the server was not seen lately."""
    active: Seconds = 0.0
    """Seconds since the server was last seen."""
    lag: int = 0
    """The number of operations that the server lags behind."""
    peer: str = ""
    """The id of the server in the cluster. Since nats-server 2.9.1."""
    pending: bool = False
    """True if the server has not joined yet. Since nats-server 2.15."""


class MoveOrigin(Model, kw_only=True, frozen=True):
    """The settings before a move. Since nats-server 2.15."""

    replicas: int = 0
    placement: Placement | None = None
    retention: Retention | None = None


class MoveStatus(Model, kw_only=True, frozen=True):
    """The state of a move. Since nats-server 2.15."""

    description: str = ""
    """The server's words."""
    type: MoveStep | None = None
    """The step that must change before the move continues."""
    err: str | None = None
    """The error of the move."""


class DesiredClusterInfo(Model, kw_only=True, frozen=True):
    """The target servers of a move. Since nats-server 2.15."""

    name: str | None = None
    """The cluster's name."""
    created: datetime | None = None
    """When the move was recorded. Since nats-server 2.15.1."""
    replicas: list[PeerInfo] | None = None
    origin: MoveOrigin | None = None
    status: MoveStatus | None = None


class ClusterInfo(Model, kw_only=True, frozen=True):
    """The servers that hold a stream or a consumer."""

    name: str | None = None
    """The cluster's name."""
    raft_group: str | None = None
    """The name of the raft group. Since nats-server 2.10.4."""
    leader: str | None = None
    """The name of the leader. None while there is no leader."""
    leader_since: datetime | None = None
    """When this leader was elected. Since nats-server 2.11.9."""
    system_account: bool = False
    """True if replication goes through the system account. Since nats-server 2.11.9."""
    traffic_account: str | None = None
    """The account that replication goes through. Since nats-server 2.11.9."""
    replicas: list[PeerInfo] | None = None
    """The other servers."""
    desired: DesiredClusterInfo | None = None
    """The target servers, during a move. Since nats-server 2.15."""

    @property
    def is_of_leader(self) -> bool:
        """True if the leader itself sent this info.

        Without a leader, and in the first seconds of a stream, other servers answer too.
        """
        if self.raft_group is None or self.leader_since is not None:
            return True
        if self.traffic_account is not None:
            return False  # since nats-server 2.11.9, a leader sends `leader_since`
        names = [peer.name for peer in self.replicas or ()]
        return bool(self.leader) and self.leader not in names
