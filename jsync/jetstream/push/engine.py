"""The meaning of a push consumer's statuses, and when flow control is answered (ADR-15).

Pure: no socket, thread or clock. `_fast.GapTracker` detects missing messages.
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
    """The relation of a subscription to the consumer that it reads."""

    NONE = "its consumer is not known, or is gone"
    THEIRS = "its consumer was there before, and stays"
    OURS = "its consumer was created for it, and goes with it"
    DELETING = "its consumer is being deleted"


OWNERSHIP_TRANSITIONS: Final = {
    Ownership.NONE: {Ownership.NONE, Ownership.THEIRS, Ownership.OURS},
    Ownership.THEIRS: set[Ownership](),
    Ownership.OURS: {Ownership.NONE, Ownership.DELETING},
    Ownership.DELETING: {Ownership.NONE, Ownership.OURS},
}
"""The next states of each ownership. A deletion that has failed may be tried again."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The headers of a heartbeat, with None for missing ones."""

    consumer_sequence: int | None
    """The consumer sequence of the last message that was sent."""
    stream_sequence: int | None
    """The last stream sequence that the consumer is done with."""
    stalled: str | None
    """The subject of the flow control message whose answer the server awaits."""

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
    """Return the error that a status stands for, or None if it concerns no user.

    `ConsumerDeletedError` ends the delivery, which continues after the other errors.
    """
    if status in (100, 404, 408):
        return None
    if status == 503:
        return NoRespondersError(f"503 {text or 'no responders'}")
    if status == 409 and text.lower().startswith(_GONE):
        return ConsumerDeletedError(text)
    return PushError(f"{status} {text}".strip(), status=status)


def gap_error(consumer: str, gap: tuple[int, int, int, int]) -> MessageGapError:
    """Make the user's error from a gap of a `GapTracker`."""
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
    """Decides when to answer the server's flow control requests.

    The server has one request open at a time, and repeats it in each heartbeat until the
    answer arrives. The first heartbeat after our answer may have crossed it on the way.
    When a second one repeats the request, the answer was lost, so we answer again.
    """

    def __init__(self) -> None:
        self._answered: str | None = None
        self._asked_again = False

    def __repr__(self) -> str:
        return f"<FlowControl {self._answered or 'not asked'}>"

    def reached(self, subject: str) -> bool:
        """Return whether to answer a request that the reader has reached."""
        return self._answer(subject) if subject != self._answered else False

    def stalled(self, subject: str, *, waits: bool) -> bool:
        """Return whether to answer a request that a heartbeat repeats.

        It is not answered while the request `waits` for its turn among the messages,
        because the server would send a slow reader more and more.
        """
        if waits:
            return False
        if subject != self._answered or self._asked_again:
            return self._answer(subject)
        self._asked_again = True
        return False

    def lost(self) -> None:
        """Forget the last answer, because it may not have arrived."""
        self._answered = None

    def _answer(self, subject: str) -> bool:
        self._answered = subject
        self._asked_again = False
        return True
