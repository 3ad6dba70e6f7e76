"""Requests to a leader for the end of its stream, and how far to trust the answers.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...errors import (
    JetStreamNotEnabledError,
    JetStreamUnavailableError,
    MessageNotFoundError,
    PermissionsError,
)
from ...models import StreamInfo
from ..replies import get_field
from ..steps import APIRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ...models import ClusterInfo
    from ..steps import Steps

FRESH_SECONDS: Final = 60.0
"""Seconds for which a known number of servers of a stream is assumed to be unchanged."""
MAX_SILENCE: Final = 3.5
"""Seconds without contact to most servers after which a leader may have a successor.

Servers elect none before 4 seconds."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of a stream, as its leader reports it."""

    sequence: int
    """The last sequence that was assigned, 0 in a stream that was never written to."""
    first: int
    """The first sequence that may exist. No message is before it."""
    silence: float
    """Seconds from the last moment at which most servers confirmed this leader to its answer.

    No message that was acknowledged before that moment is after `sequence`.
    """
    info: StreamInfo
    """The whole answer."""

    @property
    def is_replicated(self) -> bool:
        """True if the stream has replicas, which may be behind the leader."""
        return (self.info.config.num_replicas or 1) > 1

    @property
    def created(self) -> datetime | None:
        """The time of the stream's creation. Another stream of that name has another time."""
        return self.info.created


class PendingMessages(NamedTuple):
    """The messages of a stream that are still to be read, as its leader reports them."""

    end: StreamEnd
    first: int | None
    """The sequence of the first one. None: there are none."""
    stored_at: str = ""
    """The time when the first one was stored, in the format of the server."""


def end_in(info: StreamInfo) -> StreamEnd:
    """Read the end from an answer. Raises `JetStreamUnavailableError` if it may be outdated."""
    silence = 0.0
    if info.cluster is not None:
        silence = _silence(info.cluster, info.ts)
        if not info.cluster.leader or not info.cluster.is_of_leader:
            raise _outdated_error(f"stream {info.config.name!r} has no leader now")
        if silence > MAX_SILENCE:
            raise _outdated_error(
                f"most servers of stream {info.config.name!r} do not answer its leader "
                f"{info.cluster.leader!r}, which may have a successor"
            )
    state = info.state
    return StreamEnd(state.last_seq, state.first_seq, silence, info)


def has_one_server(info: StreamInfo | None, now: float) -> bool:
    """Return whether only one server has the stream, as of the last minute.

    `now` is in seconds since 1970. An older `info` does not count, because the stream may have
    got more servers since.
    """
    return (
        info is not None
        and (info.config.num_replicas or 1) == 1
        and info.ts is not None
        and abs(now - info.ts.timestamp()) < FRESH_SECONDS
    )


def _silence(cluster: ClusterInfo, now: datetime | None) -> float:
    """Return the seconds since the leader had last heard from most servers of the stream.

    A leader reports 0 seconds for a server that it has never heard from. For such a server the
    seconds since the election count.
    """
    since = cluster.leader_since
    led = (now - since).total_seconds() if now and since else 0.0
    peers = [peer for peer in cluster.replicas or () if not peer.pending]
    silences = sorted(
        peer.active or (inf if peer.offline else 0.0 if peer.current else led)
        for peer in peers
    )
    needed = (len(peers) + 1) // 2
    return silences[needed - 1] if needed else 0.0


def _outdated_error(text: str) -> JetStreamUnavailableError:
    return JetStreamUnavailableError(text, code=503, err_code=10008, description=text)


# Requests -----------------------------------------------------------------------------


def end_steps(stream: str) -> Steps[StreamEnd]:
    """Request the end of a stream."""
    reply = yield APIRequest(f"STREAM.INFO.{stream}")
    return end_in(StreamInfo.from_wire(reply))


def pending_steps(
    stream: str,
    filters: Sequence[str] | None,
    after: int,
    until: int | None = None,
    start_time: str | None = None,
) -> Steps[PendingMessages]:
    """Request the messages of some subjects, or of all, after `after` and up to `until`.

    Without `until` each later message counts, also one that was stored a moment ago. With
    `start_time` messages that were stored before it are left out.
    """
    end = yield from end_steps(stream)
    pending = PendingMessages(end, None)
    if end.sequence <= after or (until is not None and end.first > until):
        return pending
    start: dict[str, object] = {"seq": max(after + 1, end.first)}
    if start_time is not None:
        start = {"start_time": start_time}
    for subject in filters or (">",):
        request = {**start, "next_by_subj": subject}
        try:
            reply = yield APIRequest(f"STREAM.MSG.GET.{stream}", request)
        except MessageNotFoundError:
            continue
        except (PermissionsError, JetStreamNotEnabledError):
            # This account may not send the request. If the stream has only one server,
            # that is the leader, so the report of the consumer's server is reliable.
            if end.is_replicated:
                raise
            continue
        message = get_field(reply, "message", dict[str, Any](), dict[str, Any])
        first = get_field(message, "seq", 0, int)
        if first <= after or (until is not None and first > until):
            continue
        if pending.first is None or first < pending.first:
            pending = PendingMessages(end, first, get_field(message, "time", "", str))
    if pending.first is None and end.is_replicated:
        yield from _confirm(stream, end)
    return pending


def _confirm(stream: str, end: StreamEnd) -> Steps[None]:
    """Make sure that the server that found no message has the end of the stream.

    An answer does not name its server. A former leader that was frozen or cut off also
    answers, until it learns of its successor, and lacks all messages that were stored since.
    """
    try:
        yield APIRequest(
            f"STREAM.MSG.GET.{stream}", {"seq": end.sequence, "next_by_subj": ">"}
        )
    except MessageNotFoundError:
        again = yield from end_steps(stream)
        if again.sequence != end.sequence:
            raise _outdated_error(
                f"a server that is behind the leader of stream {stream!r} has answered"
            ) from None
        # The last message was deleted.
