"""What is wrong with streams, consumers and servers, from their infos."""

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
"""A server that sends nothing for so long is away. Servers in a group send every second, but
they call another one offline only after half a minute."""


def stranded(info: ConsumerInfo, state: StreamState) -> int:
    """The messages that reached `max_deliver`: the server never delivers them again.

    The server counts them as redelivered until somebody acknowledges them, which nobody does.
    Messages that are under way can be among the redelivered ones, too. Before 2.14 the server
    also counts messages that were deleted since, so no more count than the stream can hold.

    Args:
        info: The consumer.
        state: The state of its stream, asked for after `info`.
    """
    if (info.config.max_deliver or 0) <= 0:
        return 0
    delivered = info.delivered.stream_seq
    held = min(state.messages - info.num_pending, delivered + 1 - state.first_seq)
    return max(0, min(info.num_redelivered - info.num_ack_pending, held))


def leaderless(infos: Iterable[StreamInfo]) -> Iterator[str]:
    """The names of the streams without a leader."""
    for info in infos:
        if info.cluster and info.cluster.name and not info.cluster.leader:
            yield info.config.name or ""


def is_away(peer: PeerInfo, led: float) -> bool:
    """Whether a server that holds a replica does not answer its leader.

    Args:
        peer: The server.
        led: The seconds since the leader was elected. A leader says that it heard from a server
            0 seconds ago if it has never heard from it, such as from its killed predecessor.
    """
    silence = peer.active or led
    lags = not peer.current and not peer.pending
    return peer.offline or (lags and silence > _SILENT_SECONDS)


def _led(info: StreamInfo) -> float:
    """The seconds since the leader was elected, which servers before 2.11.9 do not tell."""
    since = info.cluster and info.cluster.leader_since
    return (info.ts - since).total_seconds() if info.ts and since else inf


def replicas_away(infos: Iterable[StreamInfo]) -> Counter[str]:
    """The servers that are away, and how many streams have a replica there."""
    return Counter(
        peer.name
        for info in infos
        for peer in (info.cluster.replicas if info.cluster else None) or []
        if is_away(peer, _led(info))
    )


def silent_servers(system: System, replied: Iterable[str]) -> dict[str, str | None]:
    """The servers of JetStream's cluster that did not reply, each with the cluster's name.

    Blocks. Servers without JetStream are not known to anybody once they are away.
    """
    names = set(replied)
    return {
        peer.name: group.name
        for reply in system.jsz()
        if (group := reply.data.meta_cluster) is not None
        for peer in group.replicas or []
        if peer.name and peer.name not in names
    }
