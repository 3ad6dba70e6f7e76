"""Conversion between messages of kombu and messages of NATS. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kombu.utils.json import dumps, loads

from jsync.errors import UnreadableHeadersError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import jsync

TYPE, ENCODING = "Content-Type", "Content-Encoding"
HEADERS, PROPERTIES = "Kombu-Headers", "Kombu-Properties"


class WireMessage(NamedTuple):
    """The payload and the headers of a message of NATS."""

    data: bytes
    headers: dict[str, str]


class DecodedMessage(NamedTuple):
    """The contents of a message for kombu."""

    body: bytes
    content_type: str | None
    content_encoding: str | None
    headers: dict[str, Any]
    properties: dict[str, Any]


def pack(message: dict[str, Any]) -> WireMessage:
    """Return a message of `Channel.prepare_message` as a message of NATS."""
    body = message["body"]
    headers = {
        HEADERS: dumps(message["headers"]),
        PROPERTIES: dumps(message["properties"]),
    }
    if message["content-type"]:
        headers[TYPE] = message["content-type"]
    if message["content-encoding"]:
        headers[ENCODING] = message["content-encoding"]
    data = body.encode() if isinstance(body, str) else bytes(body or b"")
    return WireMessage(data, headers)


def unpack(msg: jsync.Msg) -> DecodedMessage:
    """Read a message. Messages of other programs may have no headers of kombu.

    Raises:
        UnreadableHeadersError: The header block is damaged, so the task may be incomplete.
    """
    if msg.headers_error is not None:
        raise UnreadableHeadersError(msg.headers_error, subject=msg.subject)
    headers: Mapping[str, str] = msg.headers or {}
    return DecodedMessage(
        msg.data,
        headers.get(TYPE),
        headers.get(ENCODING),
        _mapping(headers.get(HEADERS)),
        _mapping(headers.get(PROPERTIES)),
    )


def _mapping(text: str | None) -> dict[str, Any]:
    try:
        found = loads(text) if text else {}
    except Exception:  # noqa: BLE001 (of JSON, its depth, or any decoder of a type)
        return {}
    return found if isinstance(found, dict) else {}


def delivery_info(properties: dict[str, Any]) -> dict[str, Any]:
    """Return exchange and routing key from the properties of a message, if it has them."""
    found = properties.get("delivery_info")
    return dict(found) if isinstance(found, dict) else {}


def eta(headers: dict[str, Any]) -> datetime | None:
    """Return the time at which a task of Celery should run: its `eta`, or None."""
    eta = headers.get("eta")
    if isinstance(eta, str):
        try:
            eta = datetime.fromisoformat(eta)
        except ValueError:
            return None
    if not isinstance(eta, datetime):
        return None
    return eta if eta.tzinfo else eta.replace(tzinfo=UTC)


def priority_level(properties: dict[str, Any], levels: int) -> int:
    """Return the priority of a message, limited to the `levels` of its queue."""
    try:
        priority = int(properties.get("priority") or 0)
    except (TypeError, ValueError):
        return 0
    return max(0, min(priority, levels - 1))
