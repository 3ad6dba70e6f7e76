"""`jsync stream report` and `jsync consumer report`: tables for comparison."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import click

from ..diagnosis import stranded
from ..groups import ExampleCommand
from ..params.completion import STREAM
from ..ui.lists import collect
from ..ui.output import Duration, Size, echo, is_terminal, write_json, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jsync import ConsumerInfo, StreamInfo
    from jsync.models import ClusterInfo, StreamSourceInfo, StreamState

    from ..params.settings import Settings

_SORTS: Final[dict[str, Callable[[StreamInfo], Any]]] = {
    "bytes": attrgetter("state.bytes"),
    "consumers": attrgetter("state.consumer_count"),
    "messages": attrgetter("state.messages"),
    "name": attrgetter("config.name"),
    "storage": attrgetter("config.storage"),
}
_STREAM_COLUMNS: Final = (
    "stream",
    "storage",
    "placement",
    "consumers",
    "messages",
    "bytes",
    "lost",
    "deleted",
    "api level",
    "replicas",
)
_COPY_COLUMNS: Final = ("stream", "kind", "from", "active", "lag", "error")
_CONSUMER_COLUMNS: Final = (
    "consumer",
    "mode",
    "ack policy",
    "ack wait",
    "ack pending",
    "redelivered",
    "unprocessed",
    "ack floor",
    "api level",
    "replicas",
    "stranded",
)


def _sort_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for flag, names in (
        ("storage", ("--storage", "-t")),
        ("name", ("--name", "-n")),
        ("messages", ("--messages", "-m")),
        ("consumers", ("--consumers", "-o")),
    ):
        option = click.option(
            *names, "sort", flag_value=flag, help=f"Sort by {flag}, not by bytes."
        )
        command = option(command)
    return command


@click.command("report", cls=ExampleCommand, example="jsync stream report --leaders")
@click.option(
    "--subject", metavar="SUBJECT", help="Only streams that store this subject."
)
@click.option("--cluster", metavar="NAME", help="Only streams in this cluster.")
@_sort_options
@click.option("--leaders", "-l", is_flag=True, help="Count the streams of each leader.")
@click.pass_obj
def stream_report(
    settings: Settings,
    subject: str | None,
    cluster: str | None,
    sort: str | None,
    leaders: bool,
) -> None:
    """Compare streams by size and messages.

    The largest is the last. Mirrors and sources have a table of their own, with the
    messages that they lag behind.
    """
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        found, missing = collect(
            stream.cached_info for stream in js.streams(subject=subject)
        )
    if cluster is not None:
        found = [
            info for info in found if info.cluster and info.cluster.name == cluster
        ]
    found.sort(key=_SORTS[sort or "bytes"])
    if settings.json:
        write_json([_stream_document(info) for info in found])
    else:
        _write(_STREAM_COLUMNS, [_stream_row(info) for info in found])
        copies = [row for info in found for row in _copies(info)]
        if copies:
            _between()
            write_table(_COPY_COLUMNS, copies)
        if leaders:
            _write_leaders("streams", [info.cluster for info in found])
    if missing is not None:
        raise missing


@click.command("report", cls=ExampleCommand, example="jsync consumer report ORDERS")
@click.argument("stream", type=STREAM)
@click.option(
    "--leaders", "-l", is_flag=True, help="Count the consumers of each leader."
)
@click.pass_obj
def consumer_report(settings: Settings, stream: str, leaders: bool) -> None:
    """Compare the consumers of a stream.

    The report has their lag, unacknowledged messages and redeliveries. Stranded messages
    have reached max_deliver: the server never delivers them again.
    """
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        bound = js.stream(stream)
        found, missing = collect(consumer.cached_info for consumer in bound.consumers())
        state = bound.info().state
    found.sort(key=attrgetter("name"))
    if settings.json:
        write_json([_consumer_document(info, state) for info in found])
    else:
        rows = [_consumer_row(info, state) for info in found]
        _write(_CONSUMER_COLUMNS, rows)
        if leaders:
            _write_leaders("consumers", [info.cluster for info in found])
    if missing is not None:
        raise missing


def _write(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table. A terminal gets only the columns with a value other than 0."""
    kept = list(range(len(columns)))
    if is_terminal() and rows:
        kept = [at for at in kept if any(row[at] not in ("", "0") for row in rows)]
    write_table(
        [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]
    )


def _between() -> None:
    if not is_terminal():
        echo()


def _level(metadata: dict[str, str] | None) -> str:
    return (metadata or {}).get("_nats.req.level", "0")


def _placed(info: StreamInfo) -> str:
    placement = info.config.placement
    if placement is None:
        return ""
    return " ".join([placement.cluster or "", *(placement.tags or [])]).strip()


def _replicas(cluster: ClusterInfo | None) -> list[str]:
    """Return the servers, `*` after the leader, `!` after lagging or offline ones."""
    if cluster is None:
        return []
    names = [
        peer.name + ("" if peer.current and not peer.offline else "!")
        for peer in cluster.replicas or []
    ]
    return sorted([*names, f"{cluster.leader}*"] if cluster.leader else names)


def _stream_row(info: StreamInfo) -> Sequence[object]:
    state = info.state
    return [
        info.config.name,
        info.config.storage,
        _placed(info),
        state.consumer_count,
        state.messages,
        Size(state.bytes),
        len(state.lost.msgs or []) if state.lost else 0,
        state.num_deleted,
        _level(info.config.metadata),
        ", ".join(_replicas(info.cluster)),
    ]


def _stream_document(info: StreamInfo) -> dict[str, Any]:
    state = info.state
    return {
        "name": info.config.name,
        "storage": info.config.storage,
        "placement": _placed(info) or None,
        "consumers": state.consumer_count,
        "messages": state.messages,
        "bytes": state.bytes,
        "lost": len(state.lost.msgs or []) if state.lost else 0,
        "deleted": state.num_deleted,
        "api_level": int(_level(info.config.metadata)),
        "cluster": info.cluster.to_wire() if info.cluster else None,
        "mirror": info.mirror.to_wire() if info.mirror else None,
        "sources": [source.to_wire() for source in info.sources or []],
    }


def _copies(info: StreamInfo) -> Iterator[Sequence[object]]:
    def row(kind: str, source: StreamSourceInfo) -> Sequence[object]:
        active = source.active
        seen = "never" if active is None or active < 0 else Duration(active)
        error = source.error.description if source.error else ""
        return [info.config.name, kind, source.name, seen, source.lag, error]

    if info.mirror is not None:
        yield row("mirror", info.mirror)
    for source in info.sources or []:
        yield row("source", source)


def _consumer_row(info: ConsumerInfo, state: StreamState) -> Sequence[object]:
    config, messages = info.config, state.messages
    share = f" ({info.num_pending / messages:.0%})" if messages else ""
    unprocessed: object = info.num_pending
    if is_terminal() and info.num_pending:
        unprocessed = f"{info.num_pending:,}{share}"
    return [
        info.name,
        _mode(info),
        config.ack_policy,
        None if config.ack_wait is None else Duration(config.ack_wait),
        info.num_ack_pending,
        info.num_redelivered,
        unprocessed,
        info.ack_floor.stream_seq,
        _level(config.metadata),
        ", ".join(_replicas(info.cluster)),
        stranded(info, state),
    ]


def _mode(info: ConsumerInfo) -> str:
    return "push" if info.config.deliver_subject else "pull"


def _consumer_document(info: ConsumerInfo, state: StreamState) -> dict[str, Any]:
    return {
        "stream": info.stream_name,
        "name": info.name,
        "mode": _mode(info),
        "ack_policy": info.config.ack_policy,
        "ack_wait": info.config.ack_wait,
        "ack_pending": info.num_ack_pending,
        "redelivered": info.num_redelivered,
        "stranded": stranded(info, state),
        "unprocessed": info.num_pending,
        "ack_floor": info.ack_floor.stream_seq,
        "api_level": int(_level(info.config.metadata)),
        "cluster": info.cluster.to_wire() if info.cluster else None,
    }


def _write_leaders(what: str, clusters: Sequence[ClusterInfo | None]) -> None:
    counts: dict[str, int] = {}
    for cluster in clusters:
        leader = (cluster.leader if cluster else None) or "none"
        counts[leader] = counts.get(leader, 0) + 1
    _between()
    write_table(["leader", what], sorted(counts.items()))
