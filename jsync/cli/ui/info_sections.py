"""The infos of streams and consumers in sections, for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from jsync.models import Model

from ..diagnosis import stranded
from .formatting import format_duration, format_duration_short
from .output import Duration, Size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from jsync import (
        ConsumerConfig,
        ConsumerInfo,
        KeyValueConfig,
        StreamConfig,
        StreamInfo,
    )
    from jsync.models import ClusterInfo, SequenceInfo, StreamSourceInfo, StreamState

_GENERAL: Final = ""
_OPTIONS: Final = "Options"
_LIMITS: Final = "Limits"
_UNLIMITED: Final = "unlimited"

_STREAM: Final = {
    "description": (_GENERAL, "Description"),
    "subjects": (_GENERAL, "Subjects"),
    "num_replicas": (_GENERAL, "Replicas"),
    "storage": (_GENERAL, "Storage"),
    "compression": (_GENERAL, "Compression"),
    "placement": (_GENERAL, "Placement"),
    "discard": (_OPTIONS, "Discard Policy"),
    "duplicate_window": (_OPTIONS, "Duplicate Window"),
    "allow_atomic": (_OPTIONS, "Allows Atomic Batch Publish"),
    "allow_batched": (_OPTIONS, "Allows Fast Batch Publish"),
    "allow_direct": (_OPTIONS, "Direct Get"),
    "mirror_direct": (_OPTIONS, "Mirror Direct Get"),
    "allow_msg_counter": (_OPTIONS, "Allows Counters"),
    "allow_msg_schedules": (_OPTIONS, "Allows Schedules"),
    "allow_msg_ttl": (_OPTIONS, "Allows Per-Message TTL"),
    "allow_rollup_hdrs": (_OPTIONS, "Allows Rollups"),
    "deny_delete": (_OPTIONS, "Denies Msg Delete"),
    "deny_purge": (_OPTIONS, "Denies Purge"),
    "subject_delete_marker_ttl": (_OPTIONS, "Subject Delete Markers TTL"),
    "max_msgs": (_LIMITS, "Maximum Messages"),
    "max_msgs_per_subject": (_LIMITS, "Maximum Per Subject"),
    "max_bytes": (_LIMITS, "Maximum Bytes"),
    "max_age": (_LIMITS, "Maximum Age"),
    "max_msg_size": (_LIMITS, "Maximum Message Size"),
    "max_consumers": (_LIMITS, "Maximum Consumers"),
    "consumer_limits": (_LIMITS, "Consumer Limits"),
    "metadata": ("Metadata", "Entries"),
    "mirror": ("Replication", "Mirror"),
    "sources": ("Replication", "Sources"),
}
_CONSUMER: Final = {
    "description": (_GENERAL, "Description"),
    "durable_name": (_GENERAL, "Durable Name"),
    "filter_subject": (_GENERAL, "Filter Subject"),
    "filter_subjects": (_GENERAL, "Filter Subjects"),
    "deliver_subject": (_GENERAL, "Delivery Subject"),
    "deliver_group": (_GENERAL, "Deliver Queue Group"),
    "num_replicas": (_GENERAL, "Replicas"),
    "mem_storage": (_GENERAL, "Memory Storage"),
    "max_deliver": (_LIMITS, "Maximum Deliveries"),
    "max_ack_pending": (_LIMITS, "Max Ack Pending"),
    "max_waiting": (_LIMITS, "Max Waiting Pulls"),
    "max_batch": (_LIMITS, "Max Pull Batch"),
    "max_expires": (_LIMITS, "Max Pull Expire"),
    "max_bytes": (_LIMITS, "Max Pull MaxBytes"),
    "inactive_threshold": (_LIMITS, "Inactive Threshold"),
    "rate_limit_bps": (_LIMITS, "Rate Limit Bits"),
    "metadata": ("Metadata", "Entries"),
}
"""The section and the words of each field, mostly the nats tool's."""
_SIZES: Final = frozenset(("max_bytes", "max_msg_size"))


def stream_sections(info: StreamInfo) -> dict[str, dict[str, object]]:
    """Return the configuration and the state of a stream."""
    config, state = info.config, info.state
    sections = _configured(config, _STREAM, "name")
    for field in ("max_msgs", "max_bytes", "max_age"):
        sections[_LIMITS].setdefault(_STREAM[field][1], _UNLIMITED)
    replication = sections.setdefault("Replication", {})
    sources = info.sources or []
    for source in [info.mirror, *sources] if info.mirror else sources:
        replication[f"From {source.name}"] = _copying(source)
    sections["Cluster"] = _cluster(info.cluster, info.ts)
    lost = state.lost
    sections["State"] = {
        "Messages": state.messages,
        "Bytes": Size(state.bytes),
        "First Sequence": _format_position(state.first_seq, state.first_ts, info.ts),
        "Last Sequence": _format_position(state.last_seq, state.last_ts, info.ts),
        "Deleted Messages": state.num_deleted or None,
        "Lost Messages": len(lost.msgs or []) if lost else None,
        "Lost Bytes": Size(lost.bytes) if lost else None,
        "Active Consumers": state.consumer_count,
        "Number of Subjects": state.num_subjects or None,
    }
    return sections


def consumer_sections(
    info: ConsumerInfo, state: StreamState | None
) -> dict[str, dict[str, object]]:
    """Return the configuration and the state of a consumer.

    `state` is the state of its stream.
    """
    config = info.config
    sections = _configured(config, _CONSUMER, "name")
    general = {"Mode": "push" if config.deliver_subject else "pull"}
    sections[_GENERAL] = general | sections[_GENERAL]
    sections["Cluster"] = _cluster(info.cluster, info.ts)
    limit = config.max_ack_pending or 0
    bound = (
        ("bound" if info.push_bound else "no subscriber")
        if (config.deliver_subject)
        else None
    )
    sections["State"] = {
        "Last Delivered Message": _format_sequences(info.delivered, info.ts),
        "Acknowledgment Floor": _format_sequences(info.ack_floor, info.ts),
        "Outstanding Acks": _format_limit(info.num_ack_pending, limit),
        "Redelivered Messages": info.num_redelivered,
        "Stranded Messages": (state and stranded(info, state)) or None,
        "Unprocessed Messages": info.num_pending,
        "Waiting Pulls": None
        if bound
        else _format_limit(info.num_waiting, config.max_waiting),
        "Active Interest": bound,
        "Paused": Duration(info.pause_remaining or 0) if info.paused else None,
    }
    for group in info.priority_groups or []:
        sections["State"][f"Group {group.group}"] = group.pinned_client_id or "unpinned"
    return sections


def ago(when: datetime | None, now: datetime | None) -> str:
    """Return a time and its age: `2026-11-23 12:00:00Z, 5m ago`."""
    if when is None:
        return "never"
    text = f"{when:%F %TZ}"
    if now is None:
        return text
    return (
        f"{text}, {format_duration_short(max(0.0, (now - when).total_seconds()))} ago"
    )


def _configured(
    config: StreamConfig | ConsumerConfig,
    words: Mapping[str, tuple[str, str]],
    *but: str,
) -> dict[str, dict[str, object]]:
    sections: dict[str, dict[str, object]] = {_GENERAL: {}, _OPTIONS: {}, _LIMITS: {}}
    for field, value in format_config(config, *but).items():
        other = (_OPTIONS, field.replace("_", " ").title())
        section, name = words.get(field, other)
        if field in _SIZES and isinstance(value, int):
            value = Size(value)
        sections.setdefault(section, {})[name] = value
    return sections


def _copying(source: StreamSourceInfo) -> str:
    active = source.active
    seen = (
        "never seen"
        if active is None or active < 0
        else f"seen {format_duration_short(active)} ago"
    )
    error = f", {source.error.description}" if source.error else ""
    return f"lag {source.lag:,}, {seen}{error}"


def _cluster(cluster: ClusterInfo | None, now: datetime | None) -> dict[str, Any]:
    if cluster is None or cluster.name is None:
        return {}
    fields: dict[str, Any] = {"Name": cluster.name, "Leader": cluster.leader or "none"}
    if cluster.leader and cluster.leader_since:
        fields["Leader Since"] = ago(cluster.leader_since, now)
    for peer in cluster.replicas or []:
        known = "current" if peer.current else "outdated"
        state = "offline" if peer.offline else known
        lag = f", {peer.lag:,} operations behind" if peer.lag else ""
        is_online = peer.active or peer.current
        seen = (
            f"seen {format_duration_short(peer.active)} ago"
            if is_online
            else "not seen by this leader"
        )
        fields[f"Replica {peer.name}"] = f"{state}, {seen}{lag}"
    return fields


def _format_position(sequence: int, when: datetime | None, now: datetime | None) -> str:
    # Servers report the first moment of year 1 for an empty stream.
    if when is None or when.year < 1970:
        return f"{sequence:,}"
    return f"{sequence:,} @ {ago(when, now)}"


def _format_sequences(place: SequenceInfo, now: datetime | None) -> str:
    last = f", {ago(place.last_active, now)}" if place.last_active else ""
    return f"stream {place.stream_seq:,}, consumer {place.consumer_seq:,}{last}"


def _format_limit(number: int, limit: int | None) -> str:
    return f"{number:,} of {limit:,}" if limit and limit > 0 else f"{number:,}"


def format_config(
    config: StreamConfig | ConsumerConfig | KeyValueConfig, *but: str
) -> dict[str, object]:
    """Return the fields that are set, for people, except those named in `but`."""
    fields: dict[str, object] = {}
    for name, value in config.to_wire().items():
        if name in but or value in (None, -1, 0, "", False, {}, []):
            continue
        fields[name] = format_value(getattr(config, name, value))
    notes = [
        f"{k}={v}" for k, v in (config.metadata or {}).items() if k[:6] != "_nats."
    ]
    fields["metadata"] = notes or None
    return fields


def format_value(value: object) -> object:
    if value is None:
        return "unset"
    if isinstance(value, float):
        return format_duration(value)
    if isinstance(value, list):
        return [format_value(item) for item in value]
    if isinstance(value, Model):
        return json.dumps(value.to_wire())
    return value
