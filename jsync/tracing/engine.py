"""The servers' reports about a traced message, put together (ADR-41). Pure."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 (msgspec reads it)
from typing import Any, Final, TypeAlias

import msgspec

from ..errors import JetStreamError
from ..system.models import SystemServer

DESTINATION: Final = "Nats-Trace-Dest"
ONLY: Final = "Nats-Trace-Only"
HOP: Final = "Nats-Trace-Hop"

KINDS: Final = (
    *("client", "router", "gateway", "system", "leafnode", "jetstream", "account"),
)
"""The kinds of connections. The index of each is the number that servers send."""


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    ts: datetime | None = None
    """When it happened, by the clock of the server."""


class _PeerEvent(_Event, frozen=True, kw_only=True):
    kind: int = 0
    cid: int = 0
    """The number of the connection. `Connection.client_id` has yours."""
    name: str = ""
    """The name of the client, or of the other server."""

    @property
    def connection(self) -> str:
        """The kind of the connection: `client`, `router`, `gateway`, `leafnode`..."""
        return KINDS[self.kind] if 0 <= self.kind < len(KINDS) else str(self.kind)


class Ingress(_PeerEvent, frozen=True, kw_only=True, tag_field="type", tag="in"):
    """The message came into the server."""

    account: str = msgspec.field(name="acc", default="")
    subject: str = msgspec.field(name="subj", default="")
    error: str | None = None
    """Why the server rejected the message."""


class SubjectMapping(_Event, frozen=True, kw_only=True, tag_field="type", tag="sm"):
    """The subject was changed by a mapping."""

    to: str = ""


class StreamExport(_Event, frozen=True, kw_only=True, tag_field="type", tag="se"):
    """The message crossed into an account that imports it."""

    account: str = msgspec.field(name="acc", default="")
    to: str = ""


class ServiceImport(_Event, frozen=True, kw_only=True, tag_field="type", tag="si"):
    """The request crossed into the account that exports the service."""

    account: str = msgspec.field(name="acc", default="")
    source: str = msgspec.field(name="from", default="")
    to: str = ""


class StreamIngress(_Event, frozen=True, kw_only=True, tag_field="type", tag="js"):
    """The message reached a stream of JetStream."""

    stream: str = ""
    subject: str = ""
    nointerest: bool = False
    """True if the stream dropped the message, because no consumer wants it."""
    error: str | None = None


class Egress(_PeerEvent, frozen=True, kw_only=True, tag_field="type", tag="eg"):
    """The message left the server for a client or for another server."""

    hop: str | None = None
    """The hop of the other server."""
    account: str = msgspec.field(name="acc", default="")
    subscription: str | None = msgspec.field(name="sub", default=None)
    queue: str | None = None
    error: str | None = None
    """Why it could not leave."""


class UnknownEvent(_Event, frozen=True, kw_only=True):
    """An event that this jsync does not know."""

    type: str = ""
    fields: dict[str, Any]
    """The event, as it is on the wire."""


TraceEvent: TypeAlias = (
    Ingress
    | SubjectMapping
    | StreamExport
    | ServiceImport
    | StreamIngress
    | Egress
    | UnknownEvent
)
_Known: TypeAlias = (
    Ingress | SubjectMapping | StreamExport | ServiceImport | StreamIngress | Egress
)


class TraceHop(msgspec.Struct, frozen=True, kw_only=True):
    """A server that the message passed."""

    hop: str
    """The position: empty for your own server, `1` for the first server that got the
    message from there, `1.2` for the second that got it from `1`."""
    server: SystemServer
    events: list[TraceEvent]
    """The events on the server, in order."""
    forwards: int
    """The number of servers that it sent the message to."""


class Trace(msgspec.Struct, frozen=True):
    """The way of a message. `Connection.trace` returns it."""

    hops: list[TraceHop]
    """The servers, each one before those that got the message from it."""
    complete: bool
    """True if every server has reported, False if the time was up before."""

    @property
    def clients(self) -> list[Egress]:
        """The subscriptions of clients that the message reached, or would reach."""
        return [
            event
            for hop in self.hops
            for event in hop.events
            if isinstance(event, Egress)
            and event.connection == "client"
            and event.error is None
        ]

    @property
    def streams(self) -> list[StreamIngress]:
        """The streams that the message reached, or would reach."""
        return [
            event
            for hop in self.hops
            for event in hop.events
            if isinstance(event, StreamIngress)
        ]

    @property
    def errors(self) -> list[str]:
        """Why servers did not let the message pass."""
        found = (
            getattr(event, "error", None) for hop in self.hops for event in hop.events
        )
        return [error for error in found if error]


class Collector:
    """The hops that have been reported so far."""

    def __init__(self) -> None:
        self._hops: dict[str, TraceHop] = {}

    def take(self, data: bytes) -> None:
        """Add the report of one server. Raises `JetStreamError` if it is not a report."""
        hop = read_hop(data)
        self._hops[hop.hop] = hop

    @property
    def complete(self) -> bool:
        """True if every server to which a reported hop forwarded has reported too."""
        if "" not in self._hops:
            return False
        return all(
            f"{hop}.{number}".lstrip(".") in self._hops
            for hop, hop_event in self._hops.items()
            for number in range(1, hop_event.forwards + 1)
        )

    def trace(self) -> Trace:
        """Return the trace of the reports so far."""

        def place(hop: str) -> list[int]:
            return [int(part) for part in hop.split(".") if part.isdecimal()]

        ordered = sorted(self._hops.values(), key=lambda event: place(event.hop))
        return Trace(ordered, self.complete)


class _TracedRequest(msgspec.Struct):
    header: dict[str, list[str]] = {}


class _TraceMessage(msgspec.Struct):
    server: dict[str, Any] = {}
    request: _TracedRequest = msgspec.field(default_factory=_TracedRequest)
    hops: int = 0
    events: list[dict[str, Any]] = []


_decode: Final = msgspec.json.Decoder(_TraceMessage).decode


def read_hop(data: bytes) -> TraceHop:
    """Parse the report of a server. Raises `JetStreamError` if it is not a report."""
    try:
        event = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JetStreamError(f"not a trace of a message: {data[:100]!r}") from error
    return TraceHop(
        hop=(event.request.header.get(HOP) or [""])[0],
        server=SystemServer.from_wire(event.server),
        events=[_event(fields) for fields in event.events],
        forwards=event.hops,
    )


def _event(fields: dict[str, Any]) -> TraceEvent:
    try:
        known: _Known = msgspec.convert(fields, _Known)
    except msgspec.ValidationError:
        return UnknownEvent(type=str(fields.get("type", "")), fields=fields)
    return known
