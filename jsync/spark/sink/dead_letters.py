"""Rows that no stream takes, published to another subject with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...errors import (
    AmbiguousSubjectError,
    ConfigError,
    InvalidHeaderError,
    InvalidSubjectError,
    MaxPayloadError,
    MessageTooLargeError,
    MessageTTLInvalidError,
    SourceHeaderError,
    StreamMismatchError,
    StreamNotFoundError,
    StreamStoreError,
    WrongLastMsgIDError,
    WrongLastSequenceError,
)
from ..retry import RETRY_SECONDS

if TYPE_CHECKING:
    from ... import JetStream
    from ...headers import HeadersLike

UNSENDABLE: Final = (
    ConfigError,
    InvalidHeaderError,
    InvalidSubjectError,
    MaxPayloadError,
)
"""Errors of a row itself, of which nothing was sent."""
_REFUSED: Final = (
    MessageTooLargeError,
    MessageTTLInvalidError,
    SourceHeaderError,
    StreamMismatchError,
    WrongLastMsgIDError,
    WrongLastSequenceError,
)
"""Errors of one message, which its stream refuses. Temporary errors and errors of the stream
are not among them, such as no leader, a missing feature or a full stream."""

UNTIL_TIMEOUT: Final = -1
"""No limit on the attempts to publish a message that no stream has answered or stored."""
REASON: Final = "Dead-Letter-Reason"
SUBJECT: Final = "Dead-Letter-Subject"
SIZE: Final = "Dead-Letter-Size"
HEADERS_SIZE: Final = "Dead-Letter-Headers-Size"
MAX_ERROR_TEXT: Final = 1000
MAX_HEADERS: Final = 60_000
"""Bytes of a row's own headers. Streams keep 64 KiB of headers, those added here included."""


def is_rejection(error: Exception) -> bool:
    """Return whether a stream refuses this message, but would take another one."""
    if isinstance(error, StreamStoreError):
        return "per subject" in str(error)
    return isinstance(error, _REFUSED) and error.code < 500


def has_no_stream(js: JetStream, subject: str) -> bool:
    """Return whether no stream has this subject, as the cluster reports. Blocks.

    A stream without a leader does not answer a publish, but still has its subjects.

    Raises:
        Error: The cluster did not answer.
    """
    try:
        js.stream_name_by_subject(subject)
    except StreamNotFoundError:
        return True
    except AmbiguousSubjectError:
        return False
    return False


class DeadLetters:
    """Publishes to the subject of dead letters, with acks."""

    def __init__(
        self,
        js: JetStream,
        subject: str,
        max_payload: int,
        timeout: float = RETRY_SECONDS,
    ) -> None:
        self._subject = subject
        self._publisher = js.publisher(
            retry_attempts=UNTIL_TIMEOUT, ack_timeout=timeout, stall_timeout=timeout
        )
        self._most = max_payload
        self.count = 0

    def add(
        self,
        error: Exception,
        subject: str | None,
        data: bytes | str | None,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
    ) -> None:
        """Publish a row. Blocks while the window is full."""
        payload = data.encode() if isinstance(data, str) else data or b""
        added = {REASON: _one_line(str(error))}
        if subject is not None:
            added[SUBJECT] = _one_line(subject)
        if len(payload) > self._most // 2:
            added[SIZE] = str(len(payload))
            payload = b""
        name = (
            None if not msg_id or not msg_id.isprintable() else f"dead {msg_id.strip()}"
        )
        own = {
            name: values
            for name, values in (headers or {}).items()
            # Leave out the instructions to the other stream.
            if not name.startswith("Nats-")
        }
        size = _size(own)
        if size > MAX_HEADERS:
            added[HEADERS_SIZE] = str(size)
            own = {}
        try:
            self._publisher.publish(
                self._subject, payload, headers={**own, **added}, msg_id=name
            )
        except UNSENDABLE:  # the fault is in the headers
            self._publisher.publish(self._subject, payload, headers=added, msg_id=name)
        self.count += 1

    def close(self) -> None:
        """Wait for the acks. Raises `PublisherError` if one does not come."""
        self._publisher.close()

    def __repr__(self) -> str:
        return f"<DeadLetters {self._subject!r}, {self.count} so far>"


def _size(headers: HeadersLike) -> int:
    """Return the bytes of the headers on the wire."""
    return sum(
        len(f"{name}: {value}\r\n".encode())
        for name, values in headers.items()
        for value in ([values] if isinstance(values, str) else values)
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_ERROR_TEXT]
