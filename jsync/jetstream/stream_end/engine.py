"""What a leader says of the end of its stream: the questions, and how far to trust an answer.

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
from ..replies import part_of
from ..steps import Ask

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ...models import ClusterInfo
    from ..steps import Steps

FRESH_SECONDS: Final = 60.0
"""How long the number of servers of a stream is taken for granted."""
MAX_SILENCE: Final = 3.5
"""Seconds after which a leader may have a successor. Servers elect none before 4 seconds."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """What a leader says of the end of its stream."""

    sequence: int
    """The last sequence that was given, 0 in a stream that was never written to."""
    first: int
    """The first sequence that may be stored. None before it is."""
    silence: float
    """Seconds before the answer at which most servers had last confirmed this leader.

    Whatever was acknowledged before that moment is not behind `sequence`.
    """
    info: StreamInfo
    """The whole answer."""

    @property
    def is_replicated(self) -> bool:
        """Whether other servers, which may be behind, have the stream too."""
        return (self.info.config.num_replicas or 1) > 1

    @property
    def created(self) -> datetime | None:
        """When the stream was created. Another stream of its name has another time."""
        return self.info.created


class Rest(NamedTuple):
    """What a leader says of the part of a stream that has not been read."""

    end: StreamEnd
    first: int | None
    """The sequence of the first message of it. None: there is none."""
    stored_at: str = ""
    """When that was stored, in the words of the server."""


def end_in(info: StreamInfo) -> StreamEnd:
    """Read the end from an answer; raises `JetStreamUnavailableError` for an old word."""
    silence = 0.0
    if info.cluster is not None:
        silence = _silence(info.cluster, info.ts)
        if not info.cluster.leader or not info.cluster.is_of_leader:
            raise _old_word(f"stream {info.config.name!r} has no leader now")
        if silence > MAX_SILENCE:
            raise _old_word(
                f"most servers of stream {info.config.name!r} do not answer its leader "
                f"{info.cluster.leader!r}, which may have a successor"
            )
    state = info.state
    return StreamEnd(state.last_seq, state.first_seq, silence, info)


def is_alone(info: StreamInfo | None, now: float) -> bool:
    """Whether one server has the stream, as of the last minute.

    `now` is seconds since 1970. The stream may have other servers by now, if that was long ago.
    """
    return (
        info is not None
        and (info.config.num_replicas or 1) == 1
        and info.ts is not None
        and abs(now - info.ts.timestamp()) < FRESH_SECONDS
    )


def _silence(cluster: ClusterInfo, now: datetime | None) -> float:
    """Seconds since the leader and the servers that it heard from last were most of all.

    A leader says 0 seconds of a server that it never heard from: since it was elected.
    """
    since = cluster.leader_since
    led = (now - since).total_seconds() if now and since else 0.0
    peers = [peer for peer in cluster.replicas or () if not peer.pending]
    heard = sorted(
        peer.active or (inf if peer.offline else 0.0 if peer.current else led)
        for peer in peers
    )
    needed = (len(peers) + 1) // 2
    return heard[needed - 1] if needed else 0.0


def _old_word(text: str) -> JetStreamUnavailableError:
    return JetStreamUnavailableError(text, code=503, err_code=10008, description=text)


# Questions ----------------------------------------------------------------------------


def ask_end(stream: str) -> Steps[StreamEnd]:
    """Ask for the end of a stream."""
    reply = yield Ask(f"STREAM.INFO.{stream}")
    return end_in(StreamInfo.from_wire(reply))


def ask_rest(
    stream: str,
    filters: Sequence[str] | None,
    after: int,
    until: int | None = None,
    start_time: str | None = None,
) -> Steps[Rest]:
    """Ask for the messages of some subjects, or of all, behind `after` and up to `until`.

    Without `until` whatever is behind counts, also what was stored a moment ago. With
    `start_time` messages that were stored before are left out.
    """
    end = yield from ask_end(stream)
    rest = Rest(end, None)
    if end.sequence <= after or (until is not None and end.first > until):
        return rest
    start: dict[str, object] = {"seq": max(after + 1, end.first)}
    if start_time is not None:
        start = {"start_time": start_time}
    for subject in filters or (">",):
        wanted = {**start, "next_by_subj": subject}
        try:
            reply = yield Ask(f"STREAM.MSG.GET.{stream}", wanted)
        except MessageNotFoundError:
            continue
        except (PermissionsError, JetStreamNotEnabledError):
            # This account may not ask. The only server of a stream is its leader, so that
            # the consumer's word is good.
            if end.is_replicated:
                raise
            continue
        message = part_of(reply, "message", dict[str, Any](), dict[str, Any])
        first = part_of(message, "seq", 0, int)
        if first <= after or (until is not None and first > until):
            continue
        if rest.first is None or first < rest.first:
            rest = Rest(end, first, part_of(message, "time", "", str))
    if rest.first is None and end.is_replicated:
        yield from _confirm(stream, end)
    return rest


def _confirm(stream: str, end: StreamEnd) -> Steps[None]:
    """Make sure that who told of no message has the end of the stream.

    An answer does not say who gave it. A former leader that was frozen or cut off gives one as
    well, until it learns of its successor, and knows of nothing that was stored since.
    """
    try:
        yield Ask(
            f"STREAM.MSG.GET.{stream}", {"seq": end.sequence, "next_by_subj": ">"}
        )
    except MessageNotFoundError:
        again = yield from ask_end(stream)
        if again.sequence != end.sequence:
            raise _old_word(
                f"a server that is behind the leader of stream {stream!r} has answered"
            ) from None
        # The last message was deleted.
