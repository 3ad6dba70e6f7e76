"""A message as a stream holds it."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Self

import msgspec

from .._fast import DirectAnswer, Msg, parse_headers, read_direct
from ..errors import JetStreamError, ProtocolError
from ..headers import Headers

_MOST: Final = (1 << 64) - 1
_ADDED: Final = frozenset(
    ("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp")
)
"""Headers that a direct get puts behind the message's own (ADR-31)."""
_ADDED_IN_BATCHES: Final = _ADDED | {"Nats-Num-Pending", "Nats-Last-Sequence"}


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message, read without a consumer. You cannot acknowledge it."""

    subject: str
    sequence: int
    """The sequence of the message in the stream."""
    data: bytes = b""
    headers: Headers | None = None
    """The headers. None if there are none."""
    timestamp: datetime
    """When the stream stored the message: aware, UTC, microseconds."""
    stream: str
    """The name of the stream that answered: the requested one, or its mirror."""

    @classmethod
    def from_api(cls, stream: str, message: Mapping[str, Any]) -> Self:
        """Read the `message` of a `STREAM.MSG.GET` reply.

        Args:
            stream: The name of the stream.
            message: The JSON object.

        Returns:
            The message.

        Raises:
            JetStreamError: The object is not a message.
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
        """Read a reply to a direct get.

        Args:
            msg: The reply.
            batched: Whether it is one of several replies.

        Returns:
            The message.

        Raises:
            JetStreamError: The reply is not a message, or ends several replies.
        """
        answer = direct_answer(msg, batched=batched)
        if answer is None:
            raise JetStreamError("not a stored message of a batch")
        return cls.from_answer(msg, answer)

    @classmethod
    def from_answer(cls, msg: Msg, answer: DirectAnswer) -> Self:
        """Make the message of a reply to a direct get that has been read.

        Args:
            msg: The reply.
            answer: The fields that were read from its headers.

        Returns:
            The message.
        """
        return cls(
            subject=answer.subject,
            sequence=answer.sequence,
            data=msg.data,
            headers=_own(msg, answer) if answer.has_own else None,
            timestamp=answer.timestamp,
            stream=answer.stream,
        )

    def __repr__(self) -> str:
        return (
            f"<StoredMessage {self.sequence} of {self.stream!r}, {self.subject!r}, "
            f"{len(self.data)} bytes>"
        )


def direct_answer(msg: Msg, *, batched: bool) -> DirectAnswer | None:
    """Read a reply to a direct get of one message, or of several (`batched`).

    None: one of several it is not. Raises `JetStreamError` for what is no stored message.
    """
    try:
        return read_direct(msg, batched=batched)
    except ValueError as error:
        raise JetStreamError(f"not a stored message: {error}") from error


def _own(msg: Msg, answer: DirectAnswer) -> Headers | None:
    headers = msg.headers or Headers()
    added = _ADDED_IN_BATCHES if answer.batched else _ADDED
    own = {
        # A republished message has headers of the same names, too.
        name: headers.get_all(name)[: -1 if name in added else None]
        for name in headers
    }
    return Headers(own) or None


_WRONG: Final = (KeyError, TypeError, ValueError, OverflowError, ProtocolError)
"""What reading raises for a message that cannot be."""


def _sequence(number: Any) -> int:
    sequence = int(number)
    if not 0 <= sequence <= _MOST:
        raise ValueError("a sequence of more than 64 bits")
    return sequence


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
