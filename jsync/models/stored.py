"""A message as a stream holds it."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Self

import msgspec

from .._fast import DirectGetReply, Msg, parse_headers, read_direct
from ..errors import JetStreamError
from ..headers import Headers

_MAX_SEQUENCE: Final = (1 << 64) - 1


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message, read without a consumer. You cannot acknowledge it.

    Example:
        ```python
        message = stream.get_message(last_by_subject="orders.new")
        print(message.sequence, message.data, message.timestamp)
        ```
    """

    subject: str
    sequence: int
    """The sequence of the message in the stream."""
    data: bytes = b""
    headers: Headers | None = None
    """The headers. None if there are none, or if they are unreadable."""
    headers_error: str | None = None
    """Why headers, or some of them, are unreadable. None: all are readable."""
    raw_headers: bytes | None = None
    """The header block as bytes. None if there are no headers."""
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
            block = base64.b64decode(message.get("hdrs") or "") or None
            headers, error = _headers_of(block)
            return cls(
                subject=str(message["subject"]),
                sequence=_sequence(message["seq"]),
                data=base64.b64decode(message.get("data") or ""),
                headers=headers,
                headers_error=error,
                raw_headers=block,
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
        answer = parse_direct_headers(msg, batched=batched)
        if answer is None:
            raise JetStreamError("not a stored message of a batch")
        return cls.from_answer(msg, answer)

    @classmethod
    def from_answer(cls, msg: Msg, answer: DirectGetReply) -> Self:
        """Make the message of a reply to a direct get that has been read.

        Args:
            msg: The reply.
            answer: The fields that were read from its headers.

        Returns:
            The message.
        """
        block = answer.own_block
        headers, error = _headers_of(block)
        return cls(
            subject=answer.subject,
            sequence=answer.sequence,
            data=msg.data,
            headers=headers,
            headers_error=error,
            raw_headers=block,
            timestamp=answer.timestamp,
            stream=answer.stream,
        )

    def __repr__(self) -> str:
        return (
            f"<StoredMessage {self.sequence} of {self.stream!r}, {self.subject!r}, "
            f"{len(self.data)} bytes>"
        )


def parse_direct_headers(msg: Msg, *, batched: bool) -> DirectGetReply | None:
    """Read a reply to a direct get of one message, or of several if `batched`.

    Return None if several were requested, but the reply is not one of several, which have
    `Nats-Num-Pending`. Raises `JetStreamError` if the reply is not a stored message.
    """
    try:
        return read_direct(msg, batched=batched)
    except ValueError as error:
        raise JetStreamError(f"not a stored message: {error}") from error


def is_stored(msg: Msg) -> bool:
    """Return whether a reply with a status is a stored message nevertheless.

    Any client may publish a header block that has a status.
    """
    try:
        read_direct(msg)
    except ValueError:
        return False
    return True


def _headers_of(block: bytes | None) -> tuple[Headers | None, str | None]:
    """Return the headers of a block, and why some are unreadable."""
    if block is None:
        return None, None
    _, _, headers, error = parse_headers(block)
    return headers or None, error


_WRONG: Final = (KeyError, TypeError, ValueError, OverflowError)
"""The exceptions of reading an object that is not a message."""


def _sequence(number: Any) -> int:
    sequence = int(number)
    if not 0 <= sequence <= _MAX_SEQUENCE:
        raise ValueError("a sequence of more than 64 bits")
    return sequence


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
