"""Requests to servers and their replies: subjects and JSON. Pure."""

from __future__ import annotations

import binascii
from typing import Any, Final

import msgspec

from ..errors import ConfigError, JetStreamError, SystemRequestError
from ..models.codec import did_you_mean
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
    SystemServer,
)

ALL: Final = "PING"
"""Replaces the id of a server in a subject, for a request to all servers."""

OPTIONS: Final[dict[str, frozenset[str]]] = {
    endpoint: frozenset(kind.__annotations__)
    for endpoint, kind in {
        "CONNZ": ConnzOptions,
        "SUBSZ": SubszOptions,
        "ROUTEZ": RoutezOptions,
        "GATEWAYZ": GatewayzOptions,
        "LEAFZ": LeafzOptions,
        "ACCOUNTZ": AccountzOptions,
        "JSZ": JszOptions,
        "HEALTHZ": HealthzOptions,
        "ACCSTATZ": AccstatzOptions,
        "IPQUEUESZ": IpqueueszOptions,
        "RAFTZ": RaftzOptions,
    }.items()
} | {"PROFILEZ": frozenset(("name", "debug", "duration"))}
_FILTERS: Final = frozenset(ServerFilter.__annotations__)
_HYPHENATED: Final = {
    "js_enabled_only": "js-enabled-only",
    "js_server_only": "js-server-only",
    "js_meta_only": "js-meta-only",
}
"""Options that have dashes on the wire."""


class ServerReply(msgspec.Struct):
    """A parsed reply of a server."""

    server: SystemServer
    data: dict[str, Any]
    error: SystemRequestError | None


def subject(endpoint: str, server: str = ALL) -> str:
    """Return the subject of a request to one server, or to all."""
    if endpoint == "ACCSTATZ":  # this request goes to all servers only
        return "$SYS.REQ.ACCOUNT.PING.STATZ"
    return f"$SYS.REQ.SERVER.{server}.{endpoint}"


def check_filter(given: dict[str, Any]) -> dict[str, Any]:
    """Return the filter of servers without None. Raises `TypeError` for an unknown name."""
    return _known(given, _FILTERS, "a filter of servers")


def request(
    endpoint: str, options: dict[str, Any], servers: dict[str, Any] | None = None
) -> bytes:
    """Return the payload of a request. Raises `TypeError` for an unknown option."""
    known = OPTIONS.get(endpoint, frozenset())
    fields = _known(options, known, f"an option of {endpoint.lower()}")
    body = {_HYPHENATED.get(name, name): value for name, value in fields.items()}
    try:
        return msgspec.json.encode({**body, **(servers or {})})
    except (TypeError, UnicodeEncodeError) as error:
        raise ConfigError(f"{endpoint.lower()}: {error}") from error


def _known(given: dict[str, Any], names: frozenset[str], what: str) -> dict[str, Any]:
    for name in given:
        if name not in names:
            raise TypeError(f"{name!r} is not {what}{did_you_mean(name, names)}")
    return {name: value for name, value in given.items() if value is not None}


def read(endpoint: str, data: bytes) -> ServerReply:
    """Parse a reply. Raises `JetStreamError` if it is not a server's reply."""
    try:
        reply = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise JetStreamError(f"not a reply of a server: {data[:100]!r}") from wrong
    if "server" not in reply:  # the reply to IDZ is the server itself
        reply = {"server": reply, "data": reply}
    server = SystemServer.from_wire(_object(reply["server"]))
    # The reply to a ping has its data under the name `statsz`.
    found = _object(reply.get("data") or reply.get("statsz"))
    error = _object(reply.get("error"))
    if endpoint == "PROFILEZ" and (words := found.pop("error", "")):
        error = {"code": 400, "description": words}
    refused = _request_error(server, error) if error else None
    if endpoint == "PROFILEZ":
        found["profile"] = _bytes(found.get("profile"))
    elif (names := _NAMED.get(endpoint)) is not None:
        found = {names: found}
    return ServerReply(server, found, refused)


_NAMED: Final = {"IPQUEUESZ": "queues", "RAFTZ": "groups"}
"""Replies that are a dict by name, with the field of the model that takes the dict."""


def _request_error(server: SystemServer, error: dict[str, Any]) -> SystemRequestError:
    code = error.get("code")
    code = code if isinstance(code, int) else 0
    words = str(error.get("description", "")) or "rejected"
    name = server.name or server.id
    return SystemRequestError(
        f"{name}: {words} (code {code})", code=code, description=words, server=name
    )


def _bytes(text: Any) -> bytes:
    try:
        return binascii.a2b_base64(text or "")
    except (TypeError, ValueError) as wrong:
        raise JetStreamError("not a profile of a server") from wrong


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
