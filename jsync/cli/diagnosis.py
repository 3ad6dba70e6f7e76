"""Problems of streams, consumers and servers, found in their infos."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jsync import ConsumerInfo, StreamInfo
    from jsync.models import PeerInfo, StreamState
    from jsync.system import System

_SILENT_SECONDS: Final = 5.0
"""The seconds after which a silent server counts as away.

Servers in a group send every second, but they call another one offline only after half
a minute.
"""


def stranded(info: ConsumerInfo, state: StreamState) -> int:
    """Return the number of messages that reached `max_deliver`.

    The server never delivers them again, but counts them as redelivered until they are
    acknowledged. Messages that are delivered but not acknowledged yet can be among the
    redelivered ones, too. Before 2.14 the server also counts messages that were deleted
    since, so the result is at most the number of messages in the stream.

    Args:
        info: The consumer.
        state: The state of its stream, requested after `info`.
    """
    if (info.config.max_deliver or 0) <= 0:
        return 0
    delivered = info.delivered.stream_seq
    held = min(state.messages - info.num_pending, delivered + 1 - state.first_seq)
    return max(0, min(info.num_redelivered - info.num_ack_pending, held))


def leaderless(infos: Iterable[StreamInfo]) -> Iterator[str]:
    """Yield the names of the streams without a leader."""
    for info in infos:
        if info.cluster and info.cluster.name and not info.cluster.leader:
            yield info.config.name or ""


def is_away(peer: PeerInfo, led: float) -> bool:
    """Return whether a server that holds a replica does not answer its leader.

    Args:
        peer: The server.
        led: The seconds since the leader was elected. A leader that has never heard from a
            server, such as its killed predecessor, reports 0 seconds since the last message.
    """
    silence = peer.active or led
    lags = not peer.current and not peer.pending
    return peer.offline or (lags and silence > _SILENT_SECONDS)


def _seconds_led(info: StreamInfo) -> float:
    """Return the seconds since the leader was elected, or inf before 2.11.9."""
    since = info.cluster and info.cluster.leader_since
    return (info.ts - since).total_seconds() if info.ts and since else inf


def replicas_away(infos: Iterable[StreamInfo]) -> Counter[str]:
    """Return the servers that are away, each with its number of replicas."""
    return Counter(
        peer.name
        for info in infos
        for peer in (info.cluster.replicas if info.cluster else None) or []
        if is_away(peer, _seconds_led(info))
    )


def silent_servers(system: System, replied: Iterable[str]) -> dict[str, str | None]:
    """Return the servers of JetStream's cluster that did not reply, by name.

    The value is the name of the cluster. Blocks. A server without JetStream is missing
    here, because no other server reports it once it is away.
    """
    names = set(replied)
    return {
        peer.name: group.name
        for reply in system.jsz()
        if (group := reply.data.meta_cluster) is not None
        for peer in group.replicas or []
        if peer.name and peer.name not in names
    }
