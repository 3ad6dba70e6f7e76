"""The position of a query in its streams, as a checkpoint holds it, and its next one.

Pure: no Spark, socket or clock. The offset of a query is JSON:

    {"v": 1, "streams": {"ORDERS": {"created": "...", "from": 1, "next": 101, "parts": 2,
                                    "mark": {"sequence": 250, "time": "..."}}}}

`next` is the sequence to continue from. An offset is also the end of a batch, and alone
defines that batch: it begins at `from`, in `parts` partitions, of the stream that was
created at `created`. So a batch that Spark repeats after a crash reads the same messages,
even if the options have changed, and even if it is the first batch, whose start Spark does
not keep. `mark` is the fingerprint of the stream, its last message then, to detect a stream
that was restored from older data. The checkpoints of older versions have none. Streams with
the same `pack` share a partition. `edges` are the sequences where partitions begin, if they
are not of equal width. `missing` counts the messages that the query could not read, since its
beginning. Of these, the plan of the batch knew `deleted` as gaps of the stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..errors import CheckpointError
from .fingerprint import StreamFingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Part = TypeVar("Part")

VERSION: Final = 1
MAX_ROWS: Final = 1_000_000
"""Sequences per partition, if no option limits them."""
MAX_BYTES: Final = 128 * 1024 * 1024
"""Bytes per partition, as Spark reads files (`spark.sql.files.maxPartitionBytes`)."""
PACK_ROWS: Final = 60_000
"""Sequences that a partition of several small streams has. Spark takes about 85 ms of CPU
for each partition, and reads that many sequences in about three times as long."""
STREAM_ROWS: Final = 1000
"""The cost of the consumer of a stream, in sequences."""


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """The extent of a stream, as its leader reports it."""

    stream: str
    created: str
    first: int
    """The sequence of the first message, or of the next one if the stream is empty."""
    next: int
    """The sequence that the next message will have."""
    message_bytes: float = 0.0
    """The average size of a message."""
    messages: int = 0
    """The messages that the stream has. There may be gaps between their sequences."""
    leader: str = ""
    """The name of the leader. Empty outside a cluster."""
    fingerprint: StreamFingerprint | None = None
    """The last message. None if the stream never had one."""
    deleted: int = 0
    """The gaps between its messages, if only deletes make gaps in this stream."""
    is_bucket: bool = False
    """A newer revision of a key replaces an older one, so messages may go before they are
    read, and nothing is lost."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The part of one stream that a batch reads: from `start` to before `next`."""

    created: str
    start: int | None
    """None: the batch starts at the end of the offset before, if Spark passes that one."""
    next: int
    parts: int = 0
    fingerprint: StreamFingerprint | None = None
    """The stream's last message when the range was planned."""
    pack: int | None = None
    """The number of the partition that the stream shares with others. None: no sharing."""
    edges: tuple[int, ...] = ()
    """The sequences where the partitions after the first begin. (): of equal width."""
    missing: int = 0
    """Sequences up to `next` that the query has passed over, because their messages were gone."""
    deleted: int = 0
    """The part of `missing` that this range had as gaps when it was planned."""

    @property
    def reached(self) -> int:
        """The next sequence of the stream when the range was planned."""
        return (
            self.next
            if self.fingerprint is None
            else max(self.next, self.fingerprint.sequence + 1)
        )

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"created": self.created}
        if self.start is not None:
            found["from"] = self.start
        found |= {"next": self.next, "parts": self.parts}
        if self.fingerprint is not None:
            found["mark"] = self.fingerprint.to_json()
        if self.pack is not None:
            found["pack"] = self.pack
        if self.edges:
            found["edges"] = list(self.edges)
        if self.missing:
            found["missing"] = self.missing
        if self.deleted:
            found["deleted"] = self.deleted
        return found


StreamOffsets = dict[str, OffsetRange]


def to_json(ranges: Mapping[str, OffsetRange]) -> dict[str, Any]:
    return {
        "v": VERSION,
        "streams": {
            name: offset_range.to_json() for name, offset_range in ranges.items()
        },
    }


def from_json(offset: Mapping[str, Any]) -> StreamOffsets:
    """Read an offset. Raises `CheckpointError` if it is invalid."""
    version = offset.get("v")
    if isinstance(version, int) and version > VERSION:
        raise CheckpointError(
            f"the checkpoint was written by a newer jsync: its offsets have version "
            f"{version}, and this one knows {VERSION}"
        )
    try:
        return {
            str(name): OffsetRange(
                str(offset_range["created"]),
                int(offset_range["from"]) if "from" in offset_range else None,
                int(offset_range["next"]),
                int(offset_range["parts"]),
                StreamFingerprint.from_json(offset_range["mark"])
                if "mark" in offset_range
                else None,
                int(offset_range["pack"]) if "pack" in offset_range else None,
                tuple(map(int, offset_range.get("edges", ()))),
                int(offset_range.get("missing", 0)),
                int(offset_range.get("deleted", 0)),
            )
            for name, offset_range in offset["streams"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"not an offset of JetStream: {offset!r}") from error


def with_start(offset_range: OffsetRange, before: OffsetRange | None) -> OffsetRange:
    """Return the range with its start, taken from the offset before if it has none."""
    if offset_range.start is not None or before is None:
        return offset_range
    return replace(offset_range, start=before.next)


# Lost messages ------------------------------------------------------------------------


def describe_loss(
    created: str, start: int, stop: int, bounds: StreamBounds
) -> str | None:
    """Describe the lost messages from `start` to before `stop`, or return None."""
    if bounds.created != created:
        return (
            f"stream {bounds.stream} was recreated at {bounds.created}, or restored from "
            f"a backup, and sequence {start} of the old one was to be read next"
        )
    last = min(bounds.first, stop) - 1
    if last < start or bounds.is_bucket:
        return None
    which = f"sequence {start}" if last == start else f"sequences {start} to {last}"
    return (
        f"{which} of stream {bounds.stream} went before being read, by a limit, a purge "
        f"or a delete: the stream begins at {bounds.first}"
    )


def check_start(start: int, bounds: StreamBounds) -> str | None:
    """Describe why reading cannot start beyond the end of a stream, or return None."""
    if start <= bounds.next:
        return None
    return (
        f"stream {bounds.stream} has no sequence {start} to begin with: the next message "
        f"will have sequence {bounds.next}"
    )


def check_truncated(stop: int, bounds: StreamBounds) -> str | None:
    """Describe how the stream ends before `stop`, which it had reached, or return None."""
    if bounds.next >= stop:
        return None
    return (
        f"stream {bounds.stream} ends at sequence {bounds.next - 1}, but reached "
        f"{stop - 1} before"
    )


def resume_offset(
    offset_range: OffsetRange, bounds: StreamBounds, unread: int | None
) -> int:
    """Return the sequence to continue from after a loss.

    Args:
        offset_range: The range that was read last.
        bounds: The current extent of the stream.
        unread: In a stream that was recreated or restored, the first message that is later
            than the fingerprint of the range. None if that is not known.
    """
    if unread is None and bounds.created != offset_range.created:
        return bounds.first
    sequence = offset_range.next if unread is None else min(offset_range.next, unread)
    return min(max(sequence, bounds.first), bounds.next)


def passed_over(offset_range: OffsetRange, created: str, sequence: int) -> int:
    """Return how many messages a query passes over that continues at a sequence.

    Args:
        offset_range: The range that was read last.
        created: When the stream was created in which the query continues.
        sequence: The sequence to continue from.
    """
    if created == offset_range.created:
        return max(0, sequence - offset_range.next)
    return max(0, offset_range.reached - offset_range.next)


# How far the next batch goes ----------------------------------------------------------


def rate_limit(backlogs: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """Return how many messages each backlog gives, in proportion, to reach `limit` together.

    Each backlog gives at least one message, so that no stream waits forever. The sum may
    therefore be a few more than the limit.
    """
    total = sum(backlogs.values())
    if limit is None or total <= limit:
        return dict(backlogs)
    shares = {
        name: min(count, max(1, limit * count // total)) if count else 0
        for name, count in backlogs.items()
    }
    rest = limit - sum(shares.values())
    for name, count in backlogs.items():
        more = max(0, min(rest, count - shares[name]))
        shares[name] += more
        rest -= more
    return shares


def rows_for_bytes(
    limit_bytes: int, backlogs: Mapping[str, int], sizes: Mapping[str, float]
) -> int:
    """Return about how many messages have `limit_bytes` together, at least 1."""
    total = sum(backlogs.values())
    size = sum(count * sizes[name] for name, count in backlogs.items())
    return max(1, int(limit_bytes * total / size)) if size else max(1, total)


def partition_counts(
    counts: Mapping[str, int],
    min_partitions: int | None,
    max_rows: int | None,
    max_partitions: int | None = None,
    bytes_of: Mapping[str, float] | None = None,
    max_bytes: int = MAX_BYTES,
) -> dict[str, int]:
    """Return in how many partitions each stream is read."""
    total = sum(counts.values())
    parts = {}
    for name, count in counts.items():
        needed = -(-count // (max_rows or MAX_ROWS))
        size = (bytes_of or {}).get(name, 0.0)
        needed = max(needed, -int(-count * size // max_bytes))
        if min_partitions is not None and total:
            needed = max(needed, -(-count * min_partitions // total))
        parts[name] = min(count, needed)
    planned = sum(parts.values())
    if max_partitions is not None and planned > max_partitions:
        parts = {
            name: min(count, max(1, count * max_partitions // planned))
            for name, count in parts.items()
        }
    return parts


def pack_streams(
    counts: Mapping[str, int],
    parts: Mapping[str, int],
    min_partitions: int | None,
    max_partitions: int | None,
) -> dict[str, int]:
    """Return the streams that share partitions, with the number of the partition of each.

    Streams are packed in order, so the same streams always make the same partitions.
    """
    alone = {name: count for name, count in counts.items() if parts[name] == 1}
    small = {name: count for name, count in alone.items() if count < PACK_ROWS}
    others = sum(parts.values()) - len(small)
    if max_partitions is not None and others >= max_partitions:
        # Even large streams have to share.
        small, others = alone, sum(parts.values()) - len(alone)
    costs = {name: count + STREAM_ROWS for name, count in small.items()}
    total = sum(costs.values())
    packs = -(-total // PACK_ROWS)
    if min_partitions is not None:
        packs = max(packs, min_partitions - others)
    if max_partitions is not None:
        packs = max(1, min(packs, max_partitions - others))
    if packs >= len(small):
        return {}
    before, found = 0, {}
    for name, cost in costs.items():
        found[name] = before * packs // total
        before += cost
    return found


def plan_partitions(
    ranges: Mapping[str, OffsetRange],
    min_partitions: int | None,
    max_rows: int | None,
    max_partitions: int | None = None,
    min_rows: int | None = None,
    *,
    rows: Mapping[str, int] | None = None,
    bytes_of: Mapping[str, float] | None = None,
    max_bytes: int = MAX_BYTES,
) -> StreamOffsets:
    """Return the ranges with the partitions in which they are read.

    Args:
        ranges: The ranges.
        min_partitions: The fewest partitions.
        max_rows: The most sequences of a partition.
        max_partitions: The most partitions.
        min_rows: With fewer sequences for each of `min_partitions` partitions, there are fewer.
        rows: The messages of ranges that have far fewer messages than sequences.
        bytes_of: The average size of the messages of each stream.
        max_bytes: The most bytes of a partition.

    Returns:
        The ranges, with the number of partitions of each, or the partition that it shares.
    """
    counts = {
        name: offset_range.next - (offset_range.start or offset_range.next)
        for name, offset_range in ranges.items()
    }
    counts |= {name: max(1, count) for name, count in (rows or {}).items()}
    if min_partitions is not None and min_rows is not None:
        min_partitions = max(1, min(min_partitions, sum(counts.values()) // min_rows))
    parts = partition_counts(
        counts, min_partitions, max_rows, max_partitions, bytes_of, max_bytes
    )
    # A limit on the rows of a partition prevents sharing, unless partitions are limited.
    packs = (
        {}
        if max_rows and not max_partitions
        else pack_streams(counts, parts, min_partitions, max_partitions)
    )
    return {
        name: replace(offset_range, parts=parts[name], pack=packs.get(name))
        for name, offset_range in ranges.items()
    }


def packed(
    ranges: Mapping[str, OffsetRange],
    part: Callable[[str, OffsetRange, int, int], Part],
) -> list[list[Part]]:
    """Return the parts of each partition, in the order of the streams.

    Args:
        ranges: The ranges, with their partitions.
        part: Makes a part from the name of a stream, its range, and the first and the last
            sequence of the part.
    """
    found: list[list[Part]] = []
    packs: dict[int, list[Part]] = {}
    for name, offset_range in ranges.items():
        for start, end in split_range(
            offset_range.start or offset_range.next,
            offset_range.next,
            offset_range.parts,
            offset_range.edges,
        ):
            made = part(name, offset_range, start, end)
            if offset_range.pack is None:
                found.append([made])
            elif offset_range.pack in packs:
                packs[offset_range.pack].append(made)
            else:
                packs[offset_range.pack] = [made]
                found.append(packs[offset_range.pack])
    return found


def split_range(
    start: int, stop: int, parts: int, within: Sequence[int] = ()
) -> list[tuple[int, int]]:
    """Split `start` to before `stop` into ranges whose ends are both included.

    Args:
        start: The first sequence.
        stop: The sequence after the last one.
        parts: The number of ranges.
        within: The first sequences of the ranges after the first. (): of equal width.
    """
    count = stop - start
    if count <= 0:
        return []
    if within:
        inner = sorted({edge for edge in within if start < edge < stop})
        return [(low, high - 1) for low, high in pairwise([start, *inner, stop])]
    parts = max(1, min(parts, count))
    edges = [start + count * part // parts for part in range(parts + 1)]
    return [(low, high - 1) for low, high in pairwise(edges)]
