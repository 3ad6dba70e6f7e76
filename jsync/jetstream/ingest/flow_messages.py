"""The answers of the server to a fast-ingest batch (ADR-50).

Pure. Where the ADR and released servers disagree, this follows nats-server 2.14 and 2.15.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...errors import JetStreamError
from ...models import PubAck
from ..replies import api_error

if TYPE_CHECKING:
    from ...errors import APIError


class Operation(Enum):
    """The last but one token of a reply subject."""

    START = 0
    APPEND = 1
    COMMIT = 2
    END = 3
    PING = 4


class FlowKind(Enum):
    """The kind of an answer."""

    ACK = "so far has been received, and so many may be under way"
    GAP = "messages did not arrive"
    ERROR = "a message was refused"
    ENDED = "the batch is over"
    REJECTED = "an error of the message that it answers"
    STORED = "a message was stored, as one of no batch"
    NO_STREAM = "no stream takes the subject"


@dataclass(frozen=True, slots=True)
class FlowMessage:
    """One answer of the server, on the reply subject of the message that caused it."""

    kind: FlowKind
    sequence: int
    """The sequence of the answered message."""
    operation: Operation
    seq: int = 0
    """ACK: the last received message. GAP: the message that came. ERROR: the rejected one."""
    last_seq: int = 0
    """The message that should have come (GAP)."""
    msgs: int = 0
    """The number of messages per ack from now on (ACK)."""
    error: APIError | None = None
    ack: PubAck | None = None


class _FlowFields(msgspec.Struct):
    """All fields that an answer may have. Its kind follows from the fields that are set."""

    type: str | None = None
    seq: int = 0
    last_seq: int = 0
    msgs: int = 0
    error: dict[str, Any] | None = None
    stream: str = ""
    batch: str | None = None
    count: int = 0
    domain: str | None = None
    duplicate: bool = False
    val: str | None = None


_decode: Final = msgspec.json.Decoder(_FlowFields).decode
_MAX_SEQUENCE: Final = (1 << 63) - 1
"""The highest sequence that an answer may have."""
_MAX_MESSAGES: Final = (1 << 32) - 1
"""The most messages per ack. Sums with a sequence still fit into 64 bits."""


def parse_flow_message(subject: str, status: int | None, data: bytes) -> FlowMessage:
    """Read an answer. Raises `JetStreamError` if the message is none.

    A status without a body is a 503 (no responders). Others have one, such as 429.
    """
    tokens = subject.split(".")
    try:
        sequence, operation = int(tokens[-3]), Operation(int(tokens[-2]))
        if not 0 <= sequence <= _MAX_SEQUENCE:
            raise ValueError("a sequence out of bounds")
    except (IndexError, ValueError) as error:
        raise JetStreamError(f"not a reply subject of a batch: {subject!r}") from error
    if status is not None and not data:
        return FlowMessage(FlowKind.NO_STREAM, sequence, operation)
    try:
        wire = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JetStreamError(f"not an answer to a batch: {data[:100]!r}") from error
    if not (
        0 <= wire.seq <= _MAX_SEQUENCE
        and 0 <= wire.last_seq <= _MAX_SEQUENCE
        and 0 <= wire.count <= _MAX_SEQUENCE
        and 0 <= wire.msgs <= _MAX_MESSAGES
    ):
        raise JetStreamError(f"not an answer to a batch: {data[:100]!r}")
    failure = api_error(wire.error) if wire.error is not None else None
    if (failure and not failure.err_code) or not (wire.type or failure or wire.stream):
        # Any other responder may have subscribed to the subject, too.
        raise JetStreamError(f"not an answer to a batch: {data[:100]!r}")
    match wire.type:
        case "ack":
            return FlowMessage(
                FlowKind.ACK, sequence, operation, seq=wire.seq, msgs=wire.msgs
            )
        case "gap":
            return FlowMessage(
                FlowKind.GAP, sequence, operation, seq=wire.seq, last_seq=wire.last_seq
            )
        case "err":
            return FlowMessage(
                FlowKind.ERROR, sequence, operation, seq=wire.seq, error=failure
            )
        case None:
            pass
        case other:
            raise JetStreamError(f"a batch cannot be answered with {other!r}")
    if failure is not None:
        return FlowMessage(FlowKind.REJECTED, sequence, operation, error=failure)
    ack = PubAck(
        stream=wire.stream,
        seq=wire.seq,
        duplicate=wire.duplicate,
        domain=wire.domain,
        batch=wire.batch,
        count=wire.count if wire.batch is not None else None,
        val=wire.val,
    )
    kind = FlowKind.ENDED if wire.batch is not None else FlowKind.STORED
    return FlowMessage(kind, sequence, operation, ack=ack)
