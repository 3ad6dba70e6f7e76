"""The last message of a stream, remembered to detect streams that were restored.

A checkpoint remembers sequences. A stream that is restored from older data gives the same
sequences to other messages, although its name and its time of creation can stay the same.
The time at which a remembered sequence was stored tells the two apart.
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

MAX_CLOCK_SKEW: Final = timedelta(seconds=5)
"""The most that the clocks of successive leaders of a stream may differ."""
_TICK: Final = timedelta(microseconds=1)

logger = logging.getLogger("jsync.spark")


@dataclass(frozen=True, slots=True)
class StreamFingerprint:
    """A sequence of a stream, and the time at which its message was stored."""

    sequence: int
    time: str
    """ISO 8601, in microseconds."""

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> StreamFingerprint:
        """Read a fingerprint. Raises `KeyError`, `TypeError` or `ValueError` if it is invalid."""
        return cls(
            int(given["sequence"]), datetime.fromisoformat(given["time"]).isoformat()
        )

    def to_json(self) -> dict[str, Any]:
        return {"sequence": self.sequence, "time": self.time}

    @property
    def moment(self) -> datetime:
        return datetime.fromisoformat(self.time)


def fingerprint_of(stream: Stream) -> StreamFingerprint | None:
    """Return the last message by the stream's cached info, or None if it never had one."""
    state = stream.cached_info.state
    if not state.last_seq or state.last_ts is None:
        return None
    return StreamFingerprint(state.last_seq, state.last_ts.isoformat())


def find_mismatch(stream: Stream, fingerprint: StreamFingerprint) -> str | None:
    """Describe how the stream contradicts a fingerprint, or return None. Blocks.

    This costs no request while the fingerprint is the last message, and otherwise one to the
    leader. If the message is gone, a second request looks for messages that are later by
    time, but not by sequence.

    Args:
        stream: The stream, whose info was just fetched.
        fingerprint: The last message that the stream had earlier.
    """
    if fingerprint == fingerprint_of(stream):
        return None
    try:
        message = stream.get_message(fingerprint.sequence, direct=False)
    except MessageNotFoundError:
        later = first_after(stream, fingerprint, MAX_CLOCK_SKEW)
        if later is None or later > fingerprint.sequence:
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
        if message.timestamp.isoformat() == fingerprint.time:
            return None
        found = f"it is a message of {message.timestamp.isoformat()} now"
    return (
        f"stream {stream.name} was restored from older data: its sequence "
        f"{fingerprint.sequence} was stored at {fingerprint.time}, and {found}"
    )


def first_after(
    stream: Stream, fingerprint: StreamFingerprint, later: timedelta = timedelta()
) -> int | None:
    """Return the first sequence that was stored after a fingerprint. Blocks.

    Without such a message, return the sequence that the next one will have. Return None if
    the server is older than 2.11, or does not permit the request.

    Args:
        stream: The stream.
        fingerprint: The last message that the stream had earlier.
        later: The least time between the fingerprint and the message.
    """
    try:
        moment = fingerprint.moment + later + _TICK
        return stream.get_message(start_time=moment, direct=False).sequence
    except MessageNotFoundError:
        return stream.cached_info.state.last_seq + 1
    except (PermissionsError, UnsupportedFeatureError):
        return None
