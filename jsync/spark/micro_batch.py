"""Streaming reads in micro-batches, as Spark calls them on the driver."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ..errors import CheckpointError, ConfigError, StreamNotFoundError
from .fingerprint import StreamFingerprint, find_mismatch, first_after
from .offsets import (
    OffsetRange,
    StreamBounds,
    check_start,
    check_truncated,
    describe_loss,
    from_json,
    passed_over,
    rate_limit,
    resume_offset,
    rows_for_bytes,
    to_json,
    with_start,
)
from .parallel import map_parallel
from .source import SourceScan
from .stream_state import logger

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark before 4.2 has no read limits
    LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stand-in for the class of later versions of Spark."""
else:
    LIMITS = True

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow
    from pyspark.sql.types import StructType

    from .. import Stream
    from .offsets import StreamOffsets
    from .options import Options

    Answer = TypeVar("Answer")


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of micro-batches.

    Spark keeps one on the driver while a query runs, and calls it for each batch.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._source = SourceScan(options, schema, streaming=True)
        # The start of each stream in this process, by name and by `found`, see `_begin`.
        self._starts: dict[tuple[str, bool], OffsetRange] = {}
        # The last offset that Spark got. Before 4.2 it does not pass the one to continue from.
        self._last: dict[str, Any] | None = None
        self._heads: dict[str, StreamBounds] = {}  # the last known, by stream
        # The fingerprints of the last offset that Spark got.
        self._planned: dict[str, StreamFingerprint | None] = {}
        # The messages that went between the plan of the last batch and its partitions.
        self._late: dict[str, int] = {}
        self._targets: dict[str, StreamBounds] | None = None
        self._last_batch: float | None = None
        self._has_warned = False

    # Offsets --------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query.

        Spark calls it twice, before 4.2 after the first `latestOffset`, and again when it
        repeats the first batch. So the end of a batch alone defines what the batch reads.
        """
        return to_json(dict(self._request_all(self._begin, self._source.streams())))

    def _begin(self, name: str, *, found: bool = False) -> OffsetRange:
        """Return the start of a stream that the query does not know yet.

        One stream may need the start for both values of `found`, because it can appear
        before Spark repeats the first batch.

        Args:
            name: The name of the stream.
            found: A pattern has found the stream after the query began. All of it is read,
                unless the options name its start.
        """
        if (name, found) not in self._starts:
            stream, bounds = self._source.fetch_stream(name)
            starting = self._source.options.starting
            spec = starting.of(name)
            if found and name not in starting.named:
                spec = "earliest"
            start = self._source.sequence_at(stream, bounds, spec)
            loss = check_start(start, bounds) or describe_loss(
                bounds.created, start, bounds.next, bounds
            )
            if loss is not None:
                self._source.policy.report(name, loss)
            first = min(max(start, bounds.first), bounds.next)
            started = OffsetRange(
                *(bounds.created, first, first),
                fingerprint=bounds.fingerprint,
                missing=0 if loss is None else max(0, first - start),
            )
            self._starts[name, found] = started
        return self._starts[name, found]

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._source.options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the messages that exist now.

        A missing stream is left out here. It is an error in `initialOffset`, or data loss if
        the query has read from it before.
        """

        def fetch(name: str) -> StreamBounds | None:
            try:
                return self._source.fetch_stream(name)[1]
            except StreamNotFoundError:
                return None

        names = self._source.options.streams or self._source.later_streams()
        found = self._request_all(fetch, names)
        self._targets = {name: bounds for name, bounds in found if bounds is not None}

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the end of the next batch, or `start` itself if there is nothing new.

        Spark before 4.2 passes neither `start` nor `limit`. The query continues from the last
        offset that Spark got, which it passes to `partitions` when a query is restarted.
        """
        is_old = start is None
        if start is None:
            start = self._last or self.initialOffset()
        before = self._read_offset(start)
        pause = self._source.options.pause_file
        if pause is not None and pause.exists():
            after = before
        else:
            # Spark before 4.2 passes no limits, so apply the limits of the options.
            limited = is_old or not (
                limit is None or isinstance(limit, ReadAllAvailable)
            )
            after = self._next_end(before, limited=limited, warn=is_old)
        end = start if after == before else to_json(after)
        if is_old:
            self._last = end
        return end

    def _read_offset(self, offset: dict[str, Any]) -> StreamOffsets:
        """Read an offset. Raises `CheckpointError` if it has streams that are not read."""
        ranges = from_json(offset)
        left = [name for name in ranges if not self._source.reads(name)]
        if left:
            raise CheckpointError(
                f"the checkpoint also has stream {left[0]}, which this query does not read: "
                "add it to the option stream, or use a new checkpoint"
            )
        return ranges

    def _next_end(
        self, before: StreamOffsets, *, limited: bool, warn: bool
    ) -> StreamOffsets:
        """Return the end of the next batch, or `before` if no batch is to begin.

        Args:
            before: The end of the last batch.
            limited: Apply the limits of the options.
            warn: Log a warning if a limit leaves messages to the next batch.
        """
        positions: StreamOffsets = {}
        fingerprints: dict[str, StreamFingerprint | None] = {}
        backlogs: dict[str, int] = {}
        sizes: dict[str, float] = {}
        is_found = self._source.options.pattern is not None

        def fetch(name: str) -> tuple[OffsetRange, OffsetRange, StreamBounds | None]:
            known = before.get(name) or self._begin(name, found=is_found)
            return (known, *self._resume_range(name, known))

        found = self._request_all(fetch, self._names(before))
        for name, (known, position, bounds) in found:
            if bounds is None and is_found:
                continue  # a later stream of this name is a new one
            positions[name] = position
            fingerprints[name] = (
                known.fingerprint if bounds is None else bounds.fingerprint
            )
            backlogs[name] = 0 if bounds is None else self._backlog(position, bounds)
            sizes[name] = 0.0 if bounds is None else bounds.message_bytes
        shares = backlogs
        if limited:
            shares = self._limited(positions, backlogs, sizes)
        if warn and sum(shares.values()) < sum(backlogs.values()):
            self._warn_of_limit(sum(backlogs.values()) - sum(shares.values()))
        moved = before.keys() != positions.keys() or any(
            offset_range is not before[name] for name, offset_range in positions.items()
        )
        if not moved and (
            not any(shares.values()) or self._should_delay(positions, backlogs)
        ):
            return before
        self._last_batch = monotonic()
        after = {
            name: OffsetRange(
                offset_range.created,
                offset_range.next,
                offset_range.next + shares[name],
                fingerprint=fingerprints[name],
                missing=offset_range.missing + self._late.get(name, 0),
            )
            for name, offset_range in positions.items()
        }

        def deleted(name: str) -> int:
            return self._source.deleted(name, after[name])

        for name, count in self._request_all(deleted, list(after)):
            missing = after[name].missing + count
            after[name] = replace(after[name], missing=missing, deleted=count)
        self._planned, self._late = fingerprints, {}
        return self._source.planned(after)

    def _warn_of_limit(self, left: int) -> None:
        """Warn once that a limit may end the query early.

        It does so with some triggers, and Spark does not pass the trigger to the source.
        """
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "a limit leaves %d sequences to later micro-batches. Before Spark 4.2 a query "
                "with the trigger availableNow or once ends after one micro-batch: without "
                "the limit it would read them now",
                left,
            )

    def _names(self, before: StreamOffsets) -> list[str]:
        """Return the streams of the next batch, with a pattern also new streams."""
        if self._source.options.pattern is None:
            return list(self._source.options.streams)
        new = self._source.later_streams() if self._targets is None else self._targets
        return list(dict.fromkeys([*before, *new]))

    def _counts(
        self, positions: StreamOffsets, backlogs: dict[str, int]
    ) -> dict[str, int]:
        """Return how many messages each backlog has, and not only sequences. Blocks."""

        def count(name: str) -> int:
            start = positions[name].next
            return self._source.count(
                name, OffsetRange("", start, start + backlogs[name])
            )

        sparse = [
            name
            for name, left in backlogs.items()
            if left and self._source.is_sparse(name)
        ]
        return {**backlogs, **dict(self._request_all(count, sparse))}

    def _limited(
        self,
        positions: StreamOffsets,
        backlogs: dict[str, int],
        sizes: dict[str, float],
    ) -> dict[str, int]:
        """Return how many sequences each stream goes on, within the limits. Blocks."""
        shares = self._allocate(backlogs, sizes)
        if sum(shares.values()) >= sum(backlogs.values()):
            return shares
        counts = self._counts(positions, backlogs)
        rows = self._allocate(counts, sizes)
        for name, left in backlogs.items():
            start = positions[name].next
            if counts[name] == left:  # a message has each sequence
                shares[name] = rows[name]
            elif rows[name] >= counts[name]:
                shares[name] = left
            else:
                end = self._source.sequence_after(name, start, start + left, rows[name])
                shares[name] = end - start
        return shares

    def _should_delay(self, positions: StreamOffsets, backlogs: dict[str, int]) -> bool:
        """Return whether a batch of so few messages waits for more."""
        options = self._source.options
        if options.min_rows is None or self._targets is not None:
            return False
        if self._last_batch is None:
            return False
        if sum(backlogs.values()) >= options.min_rows:
            counts = self._counts(positions, backlogs)
            if sum(counts.values()) >= options.min_rows:
                return False
        return monotonic() - self._last_batch < options.max_delay

    def _resume_range(
        self, name: str, offset_range: OffsetRange
    ) -> tuple[OffsetRange, StreamBounds | None]:
        """Return the range to continue from, and the stream's extent, None if it is missing.

        A loss is reported to the policy.
        """
        source = self._source
        try:
            stream, bounds = source.fetch_stream_at_least(
                name, offset_range.created, offset_range.reached
            )
            self._heads[name] = bounds
            loss = describe_loss(
                offset_range.created, offset_range.next, bounds.next, bounds
            )
            unread = None
            if altered := self._find_mismatch(stream, offset_range, bounds):
                loss, unread = altered, self._first_unread(stream, offset_range)
        except StreamNotFoundError:
            source.policy.report(name, _no_stream_text(name))
            return offset_range, None
        if loss is None:
            return offset_range, bounds
        sequence = resume_offset(offset_range, bounds, unread)
        source.policy.report(name, loss, sequence)
        missing = passed_over(offset_range, bounds.created, sequence)
        resumed = OffsetRange(
            *(bounds.created, sequence, sequence),
            missing=offset_range.missing + missing,
        )
        return resumed, bounds

    def _find_mismatch(
        self, stream: Stream, offset_range: OffsetRange, bounds: StreamBounds
    ) -> str | None:
        """Describe how the stream was recreated or restored from older data, or return None."""
        if bounds.created != offset_range.created:
            return describe_loss(
                offset_range.created, offset_range.next, bounds.next, bounds
            )
        if loss := check_truncated(offset_range.reached, bounds):
            return loss
        fingerprint = offset_range.fingerprint
        if fingerprint is None:
            return None
        return self._source.retry(lambda: find_mismatch(stream, fingerprint))

    def _first_unread(self, stream: Stream, offset_range: OffsetRange) -> int | None:
        """Return the first message of an altered stream that the query has not read."""
        fingerprint = offset_range.fingerprint
        if fingerprint is None:
            return None
        return self._source.retry(lambda: first_after(stream, fingerprint))

    def _backlog(self, offset_range: OffsetRange, bounds: StreamBounds) -> int:
        stop = bounds.next
        if self._targets is not None:
            target = self._targets.get(bounds.stream)
            if target is None or target.created != bounds.created:
                return 0
            stop = min(stop, target.next)
        return max(0, stop - offset_range.next)

    def _allocate(
        self, backlogs: dict[str, int], sizes: dict[str, float]
    ) -> dict[str, int]:
        options = self._source.options
        limit = options.max_rows
        if options.max_bytes is not None:
            rows = rows_for_bytes(options.max_bytes, backlogs, sizes)
            limit = rows if limit is None else min(limit, rows)
        return rate_limit(backlogs, limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the streams, for the progress of the query.

        Each has the number of messages, because there are fewer than sequences with gaps.
        """
        if not self._heads:
            return None
        ends = to_json(
            {
                name: OffsetRange(head.created, head.next, head.next)
                for name, head in self._heads.items()
            }
        )
        for name, head in self._heads.items():
            ends["streams"][name]["messages"] = head.messages
        return ends

    # Partitions -----------------------------------------------------------------------

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[InputPartition]:
        """Plan the partitions of a batch, which `end` alone defines."""
        if start == end:
            if not LIMITS:
                self._resume(end)
            return []
        before = from_json(start)
        ends = {
            name: offset_range
            for name, known in self._read_offset(end).items()
            for offset_range in [with_start(known, before.get(name))]
            if offset_range.start is not None and offset_range.start < offset_range.next
        }

        def fetch(name: str) -> OffsetRange:
            return self._available(name, ends[name], before.get(name))

        ranges = dict(self._request_all(fetch, list(ends)))
        if any(not offset_range.parts for offset_range in ranges.values()):
            ranges = self._source.planned(ranges)
        return self._source.partitions(
            {
                name: offset_range
                for name, offset_range in ranges.items()
                if offset_range.start is not None
                and offset_range.start < offset_range.next
            }
        )

    def _resume(self, offset: dict[str, Any]) -> None:
        """Take the last offset of a query that is restarted.

        Spark before 4.2 passes it as an empty batch, before the first `latestOffset`.
        """
        if self._last not in (None, offset):
            raise ConfigError(
                "before Spark 4.2 the source cannot go on from a checkpoint with "
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled: set it to false"
            )
        self._last = offset

    def _available(
        self, name: str, offset_range: OffsetRange, before: OffsetRange | None
    ) -> OffsetRange:
        """Return the part of a range that still exists: all of it, unless loss is allowed."""
        source = self._source
        assert offset_range.start is not None
        try:
            stream, bounds = source.fetch_stream_at_least(
                name, offset_range.created, offset_range.reached
            )
        except StreamNotFoundError:
            source.policy.report(name, _no_stream_text(name))
            lost = offset_range.next - offset_range.start
            self._late[name] = lost - offset_range.deleted
            return replace(offset_range, start=offset_range.next)
        loss = describe_loss(
            offset_range.created, offset_range.start, offset_range.next, bounds
        )
        stop = bounds.next
        # Do not check again what this process has just planned.
        if (
            offset_range.fingerprint is None
            or self._planned.get(name) != offset_range.fingerprint
        ):
            for known in filter(None, (before, offset_range)):
                if altered := self._find_mismatch(stream, known, bounds):
                    unread = self._first_unread(stream, known)
                    loss, stop = altered, stop if unread is None else unread
                    break
        if loss is None:
            return offset_range
        start = min(max(offset_range.start, bounds.first), offset_range.next)
        if bounds.created != offset_range.created:
            start = offset_range.next
        stop = max(start, min(offset_range.next, stop))
        source.policy.report(name, loss, start)
        left = replace(offset_range, start=start, next=stop)
        lost = offset_range.next - offset_range.start - (stop - start)
        lost += source.deleted(name, left)
        self._late[name] = max(0, lost - offset_range.deleted)
        return left

    def _request_all(
        self, ask: Callable[[str], Answer], names: Sequence[str]
    ) -> Iterator[tuple[str, Answer]]:
        """Call `ask` for all these streams, in parallel. Blocks."""
        self._source.jetstream()  # connect once, for all threads
        return map_parallel(ask, names)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        yield from self._source.read(partition.value)


def _no_stream_text(stream: str) -> str:
    return f"stream {stream} no longer exists"
