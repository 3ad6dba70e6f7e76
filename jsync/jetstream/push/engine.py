"""Push consumers: what their statuses mean, and when flow control is answered (ADR-15).

Pure: no socket, thread or clock. Which messages are missing says `_fast.Trail`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from ...errors import (
    ConsumerDeletedError,
    JetStreamError,
    MessageGapError,
    NoRespondersError,
    PushError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

HEARTBEATS_MISSED: Final = 3
"""Intervals of silence until the alarm (ADR-15, heartbeats)."""
_GONE: Final = ("consumer deleted", "consumer is push based")


class Ownership(Enum):
    """What a subscription has to do with the consumer that it reads."""

    NONE = "its consumer is not known, or is gone"
    THEIRS = "its consumer was there before, and stays"
    OURS = "its consumer was created for it, and goes with it"
    DELETING = "its consumer is being deleted"


OWNERSHIP_MOVES: Final = {
    Ownership.NONE: {Ownership.NONE, Ownership.THEIRS, Ownership.OURS},
    Ownership.THEIRS: set[Ownership](),
    Ownership.OURS: {Ownership.NONE, Ownership.DELETING},
    Ownership.DELETING: {Ownership.NONE, Ownership.OURS},
}
"""What it may become. A deletion that has failed may be tried again."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What the headers of a heartbeat say; None for what they do not."""

    consumer_sequence: int | None
    """Of the last message that was sent."""
    stream_sequence: int | None
    """The last that the consumer is done with in its stream."""
    stalled: str | None
    """The flow control that the server waits for an answer to."""

    @classmethod
    def of(cls, headers: Mapping[str, str] | None) -> Heartbeat:
        given = headers or {}
        return cls(
            _number(given.get("Nats-Last-Consumer")),
            _number(given.get("Nats-Last-Stream")),
            given.get("Nats-Consumer-Stalled") or None,
        )


def _number(text: str | None) -> int | None:
    # A longer number is not a sequence.
    if text and text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    return None


def status_error(status: int, text: str) -> JetStreamError | NoRespondersError | None:
    """The error that a status is, None for one that the user need not hear of.

    `ConsumerDeletedError` is the end; after the others it goes on.
    """
    if status in (100, 404, 408):
        return None
    if status == 503:
        return NoRespondersError(f"503 {text or 'no responders'}")
    if status == 409 and text.lower().startswith(_GONE):
        return ConsumerDeletedError(text)
    return PushError(f"{status} {text}".strip(), status=status)


def gap_error(consumer: str, gap: tuple[int, int, int, int]) -> MessageGapError:
    """A gap of a `Trail` as the user gets it."""
    first, last, after, before = gap
    if first == last:
        missing = f"the message with consumer sequence {first} did not arrive"
    else:
        missing = (
            f"the messages with consumer sequences {first} to {last} did not arrive"
        )
    return MessageGapError(
        f"consumer {consumer}: {missing}, between stream sequences {after} and {before}",
        first=first,
        last=last,
        after_stream_sequence=after,
        before_stream_sequence=before,
    )


class FlowControl:
    """Which requests for flow control are answered, and which have been.

    The server has one open at a time, and asks in each heartbeat until the answer has
    come. A heartbeat may have crossed the answer; one more that still asks has not, so
    that the answer is lost and given again.
    """

    def __init__(self) -> None:
        self._answered: str | None = None
        self._asked_again = False

    def __repr__(self) -> str:
        return f"<FlowControl {self._answered or 'not asked'}>"

    def reached(self, subject: str) -> bool:
        """The request is where it would have been handed over: whether to answer it."""
        return self._answer(subject) if subject != self._answered else False

    def stalled(self, subject: str, *, waits: bool) -> bool:
        """A heartbeat asks for an answer: whether to give it.

        Not while a request `waits` for its turn among the messages: it is answered then,
        or a reader that is slow would be sent more and more.
        """
        if waits:
            return False
        if subject != self._answered or self._asked_again:
            return self._answer(subject)
        self._asked_again = True
        return False

    def lost(self) -> None:
        """An answer that was given may not have arrived."""
        self._answered = None

    def _answer(self, subject: str) -> bool:
        self._answered = subject
        self._asked_again = False
        return True
