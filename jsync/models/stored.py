"""A message as a stream holds it."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Self

import msgspec

from .._fast import Msg, parse_headers
from ..errors import JetStreamError, ProtocolError
from ..headers import Headers

_MOST: Final = (1 << 64) - 1
_ADDED: Final = frozenset(
    ("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp")
)
"""Headers that a direct get puts behind the message's own (ADR-31)."""
_ADDED_IN_BATCHES: Final = _ADDED | {"Nats-Num-Pending", "Nats-Last-Sequence"}


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a stream holds it, got without a consumer: it has no ack."""

    subject: str
    sequence: int
    """Its sequence in the stream."""
    data: bytes = b""
    headers: Headers | None = None
    """None when it has none."""
    timestamp: datetime
    """When the stream stored it: aware, UTC, microseconds."""
    stream: str
    """The stream that gave it: the one that was asked, or a mirror of it."""

    @classmethod
    def from_api(cls, stream: str, message: Mapping[str, Any]) -> Self:
        """Read the `message` of a `STREAM.MSG.GET` reply.

        Raises `JetStreamError` for what is none.
        """
        try:
            block = base64.b64decode(message.get("hdrs") or "")
            return cls(
                subject=str(message["subject"]),
                sequence=_sequence(message["seq"]),
                data=base64.b64decode(message.get("data") or ""),
                headers=(parse_headers(block)[2] or None) if block else None,
                timestamp=_time(message["time"]),
                stream=stream,
            )
        except _WRONG as error:
            raise JetStreamError(f"not a stored message: {error!r}") from error

    @classmethod
    def from_direct(cls, msg: Msg, *, batched: bool = False) -> Self:
        """Read a reply to a direct get, of one message or of a batch.

        Raises `JetStreamError` for what is none.
        """
        headers = msg.headers or Headers()
        added = _ADDED_IN_BATCHES if batched else _ADDED
        own = {
            # A message that was republished here has such headers of its own, too.
            name: headers.get_all(name)[: -1 if name in added else None]
            for name in headers
        }
        try:
            return cls(
                subject=last(headers, "Nats-Subject"),
                sequence=_sequence(last(headers, "Nats-Sequence")),
                data=msg.data,
                headers=Headers(own) or None,
                timestamp=_time(last(headers, "Nats-Time-Stamp")),
                stream=last(headers, "Nats-Stream"),
            )
        except _WRONG as error:
            raise JetStreamError(f"not a stored message: {error!r}") from error

    def __repr__(self) -> str:
        return (
            f"<StoredMessage {self.sequence} of {self.stream!r}, {self.subject!r}, "
            f"{len(self.data)} bytes>"
        )


def last(headers: Headers, name: str) -> str:
    """The value that the server put behind those of the message; raises `KeyError`."""
    values = headers.get_all(name)
    if not values:
        raise KeyError(name)
    return values[-1]


_WRONG: Final = (KeyError, TypeError, ValueError, OverflowError, ProtocolError)
"""What reading raises for a message that cannot be."""


def _sequence(number: Any) -> int:
    sequence = int(number)
    if not 0 <= sequence <= _MOST:
        raise ValueError("a sequence of more than 64 bits")
    return sequence


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
