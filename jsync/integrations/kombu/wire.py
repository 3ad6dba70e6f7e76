"""A message of kombu as the payload and headers of one of NATS, and back. Pure."""

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
REDELIVERED = "redelivered"


class Packed(NamedTuple):
    """What is published."""

    data: bytes
    headers: dict[str, str]


class Content(NamedTuple):
    """What was published, as kombu wants it."""

    body: bytes
    content_type: str | None
    content_encoding: str | None
    headers: dict[str, Any]
    properties: dict[str, Any]


def pack(message: dict[str, Any]) -> Packed:
    """Make a message of NATS from what `Channel.prepare_message` returned."""
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
    return Packed(data, headers)


def unpack(msg: jsync.Msg) -> Content:
    """Read a message. One that another program published has no headers of kombu.

    Raises:
        UnreadableHeadersError: The header block is damaged: the rest may be part of a task.
    """
    if msg.headers_error is not None:
        raise UnreadableHeadersError(msg.headers_error, subject=msg.subject)
    headers: Mapping[str, str] = msg.headers or {}
    return Content(
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
    """Where a message was published to, as far as its properties say it."""
    found = properties.get("delivery_info")
    return dict(found) if isinstance(found, dict) else {}


def due(headers: dict[str, Any]) -> datetime | None:
    """When a task of Celery is to run: its `eta`, if it has one that can be read."""
    eta = headers.get("eta")
    if isinstance(eta, str):
        try:
            eta = datetime.fromisoformat(eta)
        except ValueError:
            return None
    if not isinstance(eta, datetime):
        return None
    return eta if eta.tzinfo else eta.replace(tzinfo=UTC)


def level(properties: dict[str, Any], levels: int) -> int:
    """The priority of a message among the `levels` of its queue. The highest is first."""
    try:
        priority = int(properties.get("priority") or 0)
    except (TypeError, ValueError):
        return 0
    return max(0, min(priority, levels - 1))
