"""The last message of a stream, remembered: whether the stream still is what it was.

A checkpoint remembers sequences. A stream that is restored from older data gives the same
sequences to other messages. Its name and its time of creation can stay the same. The time
at which a remembered sequence was stored tells the two apart.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ..errors import MessageNotFoundError, PermissionsError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .. import Stream

SKEW: Final = timedelta(seconds=5)
"""How far the clocks of two servers may differ that lead a stream one after the other."""
_TICK: Final = timedelta(microseconds=1)

logger = logging.getLogger("jsync.spark")


@dataclass(frozen=True, slots=True)
class Mark:
    """A sequence of a stream, and when its message was stored."""

    sequence: int
    time: str
    """ISO 8601, in microseconds."""

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Mark:
        """Raises `KeyError`, `TypeError` or `ValueError` for what is no mark."""
        return cls(
            int(given["sequence"]), datetime.fromisoformat(given["time"]).isoformat()
        )

    def to_json(self) -> dict[str, Any]:
        return {"sequence": self.sequence, "time": self.time}

    @property
    def moment(self) -> datetime:
        return datetime.fromisoformat(self.time)


def mark_of(stream: Stream) -> Mark | None:
    """The last message, as the stream's info has it; None for a stream that had none."""
    state = stream.cached_info.state
    if not state.last_seq or state.last_ts is None:
        return None
    return Mark(state.last_seq, state.last_ts.isoformat())


def contradiction(stream: Stream, mark: Mark) -> str | None:
    """Say how the stream contradicts a mark; None if it does not. Blocks.

    Costs nothing while the mark is the last message, else one request to the leader. If the
    message is gone, a second request asks for messages that are later by time, but not by
    sequence.

    Args:
        stream: The stream, with its info just fetched.
        mark: Its last message as it was seen before.
    """
    if mark == mark_of(stream):
        return None
    try:
        message = stream.get_message(mark.sequence, direct=False)
    except MessageNotFoundError:
        later = first_after(stream, mark, SKEW)
        if later is None or later > mark.sequence:
            return None
        found = f"sequence {later} is later than that"
    except PermissionsError as error:
        logger.warning(
            "cannot check whether stream %s was restored from older data: %s; allow the "
            "subject",
            *(stream.name, error),
        )
        return None
    else:
        if message.timestamp.isoformat() == mark.time:
            return None
        found = f"it is a message of {message.timestamp.isoformat()} now"
    return (
        f"stream {stream.name} was restored from older data: its sequence "
        f"{mark.sequence} was stored at {mark.time}, and {found}"
    )


def first_after(
    stream: Stream, mark: Mark, later: timedelta = timedelta()
) -> int | None:
    """Return the first sequence that was stored after a mark, or the next one. Blocks.

    None if the server is older than 2.11, or does not permit the question.

    Args:
        stream: The stream to ask for.
        mark: What was its last message.
        later: How much later than the mark, at least.
    """
    try:
        moment = mark.moment + later + _TICK
        return stream.get_message(start_time=moment, direct=False).sequence
    except MessageNotFoundError:
        return stream.cached_info.state.last_seq + 1
    except (PermissionsError, UnsupportedFeatureError):
        return None
