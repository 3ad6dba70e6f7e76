"""`Connection.system`: requests to the servers themselves, for monitoring and control."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ..core.requests import request, request_many
from ..errors import (
    APIError,
    Error,
    NoRespondersError,
    ServerNotFoundError,
    SystemAccountError,
)
from ..jetstream.api import API
from ..jetstream.management import placement
from ..models.model import Model
from ..validation import check_int, check_seconds
from . import engine
from .models import (
    Accountz,
    Accstatz,
    Connz,
    Expvarz,
    Gatewayz,
    Healthz,
    Idz,
    Ipqueuesz,
    Jsz,
    Leafz,
    Profilez,
    Raftz,
    Routez,
    Statsz,
    Subsz,
    SystemServer,
    Varz,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from ..core.session import HasSession
    from ..validation import Seconds
    from .models import (
        AccountzOptions,
        AccstatzOptions,
        ConnzOptions,
        GatewayzOptions,
        HealthzOptions,
        IpqueueszOptions,
        JszOptions,
        LeafzOptions,
        RaftzOptions,
        RoutezOptions,
        ServerFilter,
        SubszOptions,
    )

Data = TypeVar("Data", bound=Model)


class Reply(msgspec.Struct, Generic[Data], frozen=True):
    """The reply of one server."""

    server: SystemServer
    """The server that replied."""
    data: Data
    """Its data, such as a `Varz`."""


class System:
    """All servers, or the servers of a filter. `Connection.system` returns it.

    Every call queries all servers together, and blocks until they have replied. A server that
    replies later than `stall` seconds after the one before is left out. So is a server that
    rejects the request while others accept it, and `on_error` of the connection gets the error.
    The lists are in the order of the names of the servers. Besides the errors that each call names, these
    calls raise:

    Raises:
        SystemAccountError: Your user does not belong to the system account.
        SystemRequestError: No server accepts the request.
        PermissionsError: Your user may not send the request.
        ConnectionLostError: The connection broke before the replies.
    """

    def __init__(
        self, owner: HasSession, servers: ServerFilter, timeout: Seconds, stall: Seconds
    ) -> None:
        self._owner = owner
        self._filter = engine.check_filter(dict(servers))
        self._timeout = check_seconds(timeout, "timeout")
        self._stall = check_seconds(stall, "stall")

    def servers(self) -> list[Server]:
        """Find the servers.

        Returns:
            The servers. Each has the calls of this class, for that server alone.
        """
        return [
            Server(self._owner, reply.server, self._timeout) for reply in self.ping()
        ]

    def server(self, name: str) -> Server:
        """Find one server.

        Args:
            name: Its name or its id.

        Returns:
            The server.

        Raises:
            ServerNotFoundError: No server has that name or id.
        """
        found = self.servers()
        for server in found:
            if name in (server.name, server.id):
                return server
        known = ", ".join(server.name for server in found) or "none"
        raise ServerNotFoundError(f"there is no server {name!r} (known: {known})")

    def ping(self) -> list[Reply[Statsz]]:
        """Ping the servers. Each reply has a summary of the load."""
        return self._all("STATSZ", Statsz, {})

    def varz(self) -> list[Reply[Varz]]:
        """Get the configuration and the counters of the servers."""
        return self._all("VARZ", Varz, {})

    def connz(self, **options: Unpack[ConnzOptions]) -> list[Reply[Connz]]:
        """Get the connections of clients.

        Servers answer users of other accounts, too. They tell only of the connections of
        that account.

        Args:
            **options: The options of `ConnzOptions`.

        Returns:
            The replies, each with a page of connections.
        """
        return self._all("CONNZ", Connz, dict(options))

    def subsz(self, **options: Unpack[SubszOptions]) -> list[Reply[Subsz]]:
        """Get the subscriptions.

        Args:
            **options: The options of `SubszOptions`.
        """
        return self._all("SUBSZ", Subsz, dict(options))

    def routez(self, **options: Unpack[RoutezOptions]) -> list[Reply[Routez]]:
        """Get the routes between the servers of a cluster.

        Args:
            **options: The options of `RoutezOptions`.
        """
        return self._all("ROUTEZ", Routez, dict(options))

    def gatewayz(self, **options: Unpack[GatewayzOptions]) -> list[Reply[Gatewayz]]:
        """Get the gateways between clusters.

        Args:
            **options: The options of `GatewayzOptions`.
        """
        return self._all("GATEWAYZ", Gatewayz, dict(options))

    def leafz(self, **options: Unpack[LeafzOptions]) -> list[Reply[Leafz]]:
        """Get the leaf nodes.

        Args:
            **options: The options of `LeafzOptions`.
        """
        return self._all("LEAFZ", Leafz, dict(options))

    def accountz(self, **options: Unpack[AccountzOptions]) -> list[Reply[Accountz]]:
        """Get the accounts.

        Args:
            **options: The options of `AccountzOptions`.
        """
        return self._all("ACCOUNTZ", Accountz, dict(options))

    def jsz(self, **options: Unpack[JszOptions]) -> list[Reply[Jsz]]:
        """Get the state of JetStream.

        Args:
            **options: The options of `JszOptions`.
        """
        return self._all("JSZ", Jsz, dict(options))

    def healthz(self, **options: Unpack[HealthzOptions]) -> list[Reply[Healthz]]:
        """Get the health of the servers.

        Args:
            **options: The options of `HealthzOptions`.
        """
        return self._all("HEALTHZ", Healthz, dict(options))

    def idz(self) -> list[Reply[Idz]]:
        """Get the ids of the servers."""
        return self._all("IDZ", Idz, {})

    def accstatz(self, **options: Unpack[AccstatzOptions]) -> list[Reply[Accstatz]]:
        """Get the connections and the traffic of each account.

        Servers answer users of other accounts, too. They tell only of that account.

        Args:
            **options: The options of `AccstatzOptions`.
        """
        return self._all("ACCSTATZ", Accstatz, dict(options))

    def raftz(self, **options: Unpack[RaftzOptions]) -> list[Reply[Raftz]]:
        """Get the Raft groups of the servers, which replicate streams and consumers.

        Args:
            **options: The options of `RaftzOptions`.
        """
        return self._all("RAFTZ", Raftz, dict(options))

    def ipqueuesz(self, **options: Unpack[IpqueueszOptions]) -> list[Reply[Ipqueuesz]]:
        """Get the internal queues of the servers.

        Args:
            **options: The options of `IpqueueszOptions`.
        """
        return self._all("IPQUEUESZ", Ipqueuesz, dict(options))

    def expvarz(self) -> list[Reply[Expvarz]]:
        """Get the memory statistics of the servers' Go runtimes."""
        return self._all("EXPVARZ", Expvarz, {})

    def profilez(
        self, name: str, *, debug: int = 0, duration: Seconds | None = None
    ) -> list[Reply[Profilez]]:
        """Get profiles of the servers.

        Args:
            name: The profile: `cpu`, `heap`, `allocs`, `goroutine`, `block`, `mutex` or
                `threadcreate`.
            debug: 0 for the binary format of `go tool pprof`, 1 or 2 for text.
            duration: Seconds to measure `cpu`, up to 15. The call takes that much longer.

        Raises:
            SystemRequestError: There is no such profile, or `cpu` has no duration.
        """
        request, longer = _profile(name, debug, duration)
        return self._all("PROFILEZ", Profilez, request, longer)

    def meta_leader_step_down(
        self,
        *,
        preferred: str | None = None,
        cluster: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> None:
        """Have the leader of the meta group step down, so that another one is elected.

        The filter of `Connection.system` does not count here.

        Args:
            preferred: The name of the server to become the leader. Since nats-server
                2.11.
            cluster: A cluster to choose the leader from. Since nats-server 2.11.
            tags: Tags of the server to choose. Since nats-server 2.11.

        Raises:
            APIError: The servers are not in a cluster, or the leader rejects the request.
        """
        self._require_cluster()
        self._api().request(
            "META.LEADER.STEPDOWN",
            placement(preferred=preferred, cluster=cluster, tags=tags),
        )

    def remove_server(self, name: str = "", *, peer: str | None = None) -> None:
        """Remove a server that will not come back from the meta group.

        Its streams and consumers are moved to other servers, and it cannot join again
        under that id.

        Args:
            name: The name of the server.
            peer: The id of the server in the group, from `MetaPeer.peer`, if names are
                not unique.

        Raises:
            APIError: The servers are not in a cluster, or the group has no such server.
        """
        self._require_cluster()
        body = {"peer": name} | ({} if peer is None else {"peer_id": peer})
        self._api().request("SERVER.REMOVE", body)

    def _require_cluster(self) -> None:
        """Raise `APIError` without a cluster: no leader would answer the request then."""
        everyone = System(self._owner, {}, self._timeout, self._stall)
        if all(reply.data.meta_cluster is None for reply in everyone.jsz()):
            raise APIError(
                "the servers are not in a cluster: JetStream has no meta group to change",
                code=500,
                err_code=10006,
                description="JetStream not in clustered mode",
            )

    def _api(self) -> API:
        return API(self._owner, "$JS.API", self._timeout)

    def _all(
        self,
        endpoint: str,
        kind: type[Data],
        options: dict[str, Any],
        longer: float = 0.0,
    ) -> list[Reply[Data]]:
        payload = engine.request(endpoint, options, self._filter)
        subject = engine.subject(endpoint)
        replies = request_many(
            self._owner._session,
            subject,
            payload,
            self._timeout + longer,
            self._stall,
            None,
            None,
            None,
        )
        expected = 1 if endpoint == "STATSZ" and not self._filter else 0
        found: list[Reply[Data]] = []
        failures: list[Error] = []
        try:
            for msg in replies:
                try:
                    answer = engine.read(endpoint, msg.data)
                    if answer.error is not None:
                        raise answer.error
                    data = kind.from_wire(answer.data)
                except Error as failure:
                    failures.append(failure)
                    continue
                found.append(Reply(answer.server, data))
                if expected:
                    servers = answer.data.get("active_servers")
                    expected = servers if isinstance(servers, int) else 0
                    if len(found) >= expected > 0:
                        break
        except NoRespondersError as no_responders:
            raise _no_system_account_error(subject) from no_responders
        if failures and not found:
            raise failures[0]
        for error in failures:
            self._owner._session.callbacks.report(error)
        return sorted(found, key=lambda reply: (reply.server.name, reply.server.id))

    def __repr__(self) -> str:
        return f"<System on {self._owner!r}>"


class Server:
    """One server. `System.servers` and `System.server` return it.

    The calls are the same as in `System`, and raise the same errors.

    Raises:
        ServerNotFoundError: The server has stopped.
    """

    def __init__(self, owner: HasSession, info: SystemServer, timeout: float) -> None:
        self._owner = owner
        self._timeout = timeout
        self.info = info
        """The server's description of itself in the reply that found it."""

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.info.name

    @property
    def id(self) -> str:
        """The id of the server, a new one for each start."""
        return self.info.id

    def ping(self) -> Statsz:
        """Get a summary of the load of the server."""
        return self._one("STATSZ", Statsz, {})

    def varz(self) -> Varz:
        """Get the configuration and the counters of the server."""
        return self._one("VARZ", Varz, {})

    def connz(self, **options: Unpack[ConnzOptions]) -> Connz:
        """Get the client connections of the server.

        Args:
            **options: The options of `ConnzOptions`.
        """
        return self._one("CONNZ", Connz, dict(options))

    def subsz(self, **options: Unpack[SubszOptions]) -> Subsz:
        """Get the subscriptions of the server.

        Args:
            **options: The options of `SubszOptions`.
        """
        return self._one("SUBSZ", Subsz, dict(options))

    def routez(self, **options: Unpack[RoutezOptions]) -> Routez:
        """Get the routes of the server to others of its cluster.

        Args:
            **options: The options of `RoutezOptions`.
        """
        return self._one("ROUTEZ", Routez, dict(options))

    def gatewayz(self, **options: Unpack[GatewayzOptions]) -> Gatewayz:
        """Get the gateways of the server to other clusters.

        Args:
            **options: The options of `GatewayzOptions`.
        """
        return self._one("GATEWAYZ", Gatewayz, dict(options))

    def leafz(self, **options: Unpack[LeafzOptions]) -> Leafz:
        """Get the leaf nodes of the server.

        Args:
            **options: The options of `LeafzOptions`.
        """
        return self._one("LEAFZ", Leafz, dict(options))

    def accountz(self, **options: Unpack[AccountzOptions]) -> Accountz:
        """Get the accounts of the server.

        Args:
            **options: The options of `AccountzOptions`.
        """
        return self._one("ACCOUNTZ", Accountz, dict(options))

    def jsz(self, **options: Unpack[JszOptions]) -> Jsz:
        """Get the state of JetStream on the server.

        Args:
            **options: The options of `JszOptions`.
        """
        return self._one("JSZ", Jsz, dict(options))

    def healthz(self, **options: Unpack[HealthzOptions]) -> Healthz:
        """Get the health of the server.

        Args:
            **options: The options of `HealthzOptions`.
        """
        return self._one("HEALTHZ", Healthz, dict(options))

    def idz(self) -> Idz:
        """Get the id of the server."""
        return self._one("IDZ", Idz, {})

    def accstatz(self, **options: Unpack[AccstatzOptions]) -> Accstatz:
        """Get the connections and the traffic of each account.

        Args:
            **options: The options of `AccstatzOptions`.
        """
        # Only a filter restricts this request to one server. A server without used accounts
        # replies only if the request includes the unused ones.
        only: dict[str, Any] = {"server_name": self.name, "exact_match": True}
        request = {**options, "include_unused": True}
        payload = engine.request("ACCSTATZ", request, only)
        reply = Accstatz.from_wire(self._send("ACCSTATZ", payload))
        if options.get("include_unused"):
            return reply
        used = [
            account
            for account in reply.account_statz
            if account.conns or account.leafnodes
        ]
        return reply.replace(account_statz=used)

    def raftz(self, **options: Unpack[RaftzOptions]) -> Raftz:
        """Get the Raft groups of the server, which replicate streams and consumers.

        Args:
            **options: The options of `RaftzOptions`.
        """
        return self._one("RAFTZ", Raftz, dict(options))

    def ipqueuesz(self, **options: Unpack[IpqueueszOptions]) -> Ipqueuesz:
        """Get the internal queues of the server.

        Args:
            **options: The options of `IpqueueszOptions`.
        """
        return self._one("IPQUEUESZ", Ipqueuesz, dict(options))

    def expvarz(self) -> Expvarz:
        """Get the memory statistics of the server's Go runtime."""
        return self._one("EXPVARZ", Expvarz, {})

    def profilez(
        self, name: str, *, debug: int = 0, duration: Seconds | None = None
    ) -> Profilez:
        """Get a profile of the server, for `go tool pprof`.

        Args:
            name: The profile: `cpu`, `heap`, `allocs`, `goroutine`, `block`, `mutex` or
                `threadcreate`.
            debug: 0 for the binary format of `go tool pprof`, 1 or 2 for text.
            duration: Seconds to measure `cpu`, up to 15. The call takes that much longer.

        Raises:
            SystemRequestError: There is no such profile, or `cpu` has no duration.
        """
        request, longer = _profile(name, debug, duration)
        payload = engine.request("PROFILEZ", request)
        return Profilez.from_wire(self._send("PROFILEZ", payload, longer))

    def reload(self) -> None:
        """Have the server read its configuration file again.

        Blocks until the new configuration is in force.

        Raises:
            SystemRequestError: The file has an error, or a change needs a restart. The
                server keeps its configuration.
        """
        self._send("RELOAD", b"")

    def kick(self, client_id: int) -> None:
        """Close the connection of a client, which will reconnect.

        Args:
            client_id: The `cid` from `connz`, or `Connection.client_id`.

        Raises:
            SystemRequestError: The server has no such client.
        """
        self._send("KICK", self._client(client_id))

    def lame_duck(self, client_id: int) -> None:
        """Tell a client that the server will shut down, so that the client moves away.

        The server keeps running. Clients reconnect to another server, if they know one.

        Args:
            client_id: The `cid` from `connz`, or `Connection.client_id`.

        Raises:
            SystemRequestError: The server has no such client.
        """
        self._send("LDM", self._client(client_id))

    def _client(self, client_id: int) -> bytes:
        return msgspec.json.encode({"cid": check_int(client_id, "client_id", 1)})

    def _one(self, endpoint: str, kind: type[Data], options: dict[str, Any]) -> Data:
        return kind.from_wire(self._send(endpoint, engine.request(endpoint, options)))

    def _send(
        self, endpoint: str, payload: bytes, longer: float = 0.0
    ) -> dict[str, Any]:
        subject = engine.subject(endpoint, self.id)
        timeout = self._timeout + longer
        try:
            msg = request(self._owner._session, subject, payload, timeout)
        except NoRespondersError as no_responders:
            raise ServerNotFoundError(
                f"server {self.name} ({self.id}) does not answer: it has stopped, or your "
                "user may not query it"
            ) from no_responders
        answer = engine.read(endpoint, msg.data)
        if answer.error is not None:
            raise answer.error
        return answer.data

    def __repr__(self) -> str:
        return f"<Server {self.name!r}>"


def _profile(
    name: str, debug: int, duration: Seconds | None
) -> tuple[dict[str, Any], float]:
    """Return the options of a profile, and the seconds that it takes."""
    request: dict[str, Any] = {"name": name, "debug": check_int(debug, "debug", 0)}
    if duration is None:
        return request, 0.0
    length = check_seconds(duration, "duration")
    return {**request, "duration": int(length * 1e9)}, length


def _no_system_account_error(subject: str) -> SystemAccountError:
    return SystemAccountError(
        f"no server answers on {subject}: connect as a user of the system account, which "
        "`system_account` names in the configuration of the server"
    )
