"""Batch reads as Spark calls them, and the part that streaming reads share.

Planning happens on the driver, and `read` on the executors.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..errors import APIError, StreamNotFoundError
from ..terminal import printable
from .buckets import bucket_prefix
from .connection import ConnectionOptions, get_jetstream
from .offsets import (
    OffsetRange,
    StreamBounds,
    check_start,
    describe_loss,
    packed,
    plan_partitions,
)
from .parallel import map_parallel, read_ahead
from .pushdown import PushedFilters
from .retry import retry_until_available
from .schema import COLUMNS, ENTRY_COLUMNS, arrow_schema, check_schema
from .source_options import SourceOptions, matches
from .stream_state import (
    LossPolicy,
    check_readable,
    count_deleted,
    fetch_bounds,
    fetch_bounds_at_least,
    logger,
    pending,
    read_mode,
    resolve_offset,
    sequence_after,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    import pyarrow
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from .. import JetStream, Stream
    from .offsets import StreamOffsets
    from .options import Options
    from .range_reader import InputRange
    from .source_options import OffsetSpec, ReadMode

    Answer = TypeVar("Answer")


SPARSE: Final = 2
"""A stream is sparse if it has fewer messages than sequences divided by this."""
MAX_DELETED: Final = 100_000
"""The most gaps of a stream that are listed, to count the deleted messages of a range."""
COUNTED: Final = 10_000
"""Sequences of a sparse range from which on its messages are counted."""


class SourceScan:
    """The common part of batches and streams. Spark sends it to the executors."""

    def __init__(
        self, options: Options, schema: StructType, *, streaming: bool
    ) -> None:
        self.connection = ConnectionOptions.of(options)
        self.options = SourceOptions.of(options, streaming=streaming)
        check_schema(schema, COLUMNS if self.options.bucket is None else ENTRY_COLUMNS)
        self.subjects = self.options.subjects
        self.schema = schema
        self.policy = LossPolicy(fail=self.options.fail_on_loss)
        self._modes: dict[str, ReadMode] = {}
        self._prefixes: dict[str, str] = {}
        self._bounds: dict[str, StreamBounds] = {}
        self._uncounted: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what only the driver needs."""
        return {**self.__dict__, "_bounds": {}}

    def jetstream(self) -> JetStream:
        return get_jetstream(self.connection)

    @property
    def retry_seconds(self) -> float:
        """Seconds to wait for a lost server or for a missing leader."""
        return self.connection.retry_timeout

    def retry(self, ask: Callable[[], Answer]) -> Answer:
        """Return the result of `ask`, and retry while the servers cannot answer. Blocks."""
        return retry_until_available(ask, self.retry_seconds)

    def streams(self) -> tuple[str, ...]:
        """Return the streams to read now. Blocks with a pattern, to request their names.

        Raises `StreamNotFoundError` if the pattern matches none.
        """
        pattern = self.options.pattern
        if pattern is None:
            return self.options.streams
        found, left_out = self._matching(pattern)
        if not found:
            remedy = "create them first, or correct the pattern"
            if left_out:
                remedy = (
                    f"it leaves out {left_out[0]}, because that is the stream of a bucket or "
                    "an object store: read them with option bucket or objectStore"
                )
            raise StreamNotFoundError(
                f"option streamPattern matches no stream, {pattern.pattern!r}: {remedy}",
                code=404,
            )
        return found

    def later_streams(self) -> tuple[str, ...]:
        """Return the streams that the pattern matches now, which may be none. Blocks."""
        assert self.options.pattern is not None
        return self._matching(self.options.pattern)[0]

    def _matching(
        self, pattern: re.Pattern[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the matching streams, and the streams of matching buckets. Blocks."""
        self.jetstream()  # raises immediately for a wrong address
        names = sorted(self.retry(lambda: list(self.jetstream().stream_names())))
        found = tuple(name for name in names if matches(pattern, name))
        others = tuple(name for name in names if pattern.fullmatch(name))
        return found, tuple(name for name in others if name not in found)

    def reads(self, name: str) -> bool:
        """Return whether the options choose a stream of this name."""
        return self.options.reads(name)

    def add_bounds(self, bounds: StreamBounds) -> None:
        """Keep the extent of a stream, by which `planned` makes partitions."""
        self._bounds[bounds.stream] = bounds

    def fetch_stream(self, name: str) -> tuple[Stream, StreamBounds]:
        """Return a stream and its extent. Check once that it can be read. Blocks."""
        stream, bounds = fetch_bounds(self.jetstream(), name, self.retry_seconds)
        self._check(stream)
        self.add_bounds(bounds)
        return stream, bounds

    def fetch_stream_at_least(
        self, name: str, created: str, stop: int
    ) -> tuple[Stream, StreamBounds]:
        """Do as `fetch_bounds`, but first wait a while until the leader reaches `stop`. Blocks."""
        stream, bounds = fetch_bounds_at_least(
            self.jetstream(), name, created, stop, self.retry_seconds
        )
        self._check(stream)
        self.add_bounds(bounds)
        return stream, bounds

    def _check(self, stream: Stream) -> None:
        mode = read_mode(stream, self.options.read_mode)
        prefix = "" if self.options.bucket is None else bucket_prefix(stream.config)
        if stream.name not in self._modes:
            subjects = self._filters(prefix)
            self.retry(lambda: check_readable(stream, mode, subjects, self.connection))
        self._prefixes[stream.name] = prefix
        self._modes[stream.name] = mode

    def _filters(self, prefix: str) -> tuple[str, ...]:
        """Return the subjects to read, or () for all.

        Args:
            prefix: The subjects of the bucket up to the key.
        """
        return self.subjects or tuple(prefix + key for key in self.options.keys)

    def sequence_at(
        self, stream: Stream, bounds: StreamBounds, spec: OffsetSpec
    ) -> int:
        """Return the sequence of an offset in a stream. Blocks if that is a time."""
        return resolve_offset(stream, bounds, spec, self.retry_seconds)

    def planned(self, ranges: StreamOffsets) -> StreamOffsets:
        """Return the ranges with the partitions that the options define."""
        options = self.options
        sparse = [
            name
            for name, offset_range in ranges.items()
            if self._is_wide(name, offset_range)
        ]
        rows = dict(map_parallel(lambda name: self.count(name, ranges[name]), sparse))
        found = plan_partitions(
            ranges,
            options.min_partitions,
            options.rows_per_partition,
            options.max_partitions,
            options.min_partition_rows,
            rows=rows,
            bytes_of={
                name: bounds.message_bytes for name, bounds in self._bounds.items()
            },
            max_bytes=options.partition_bytes,
        )
        split = [name for name in rows if found[name].parts > 1]
        for name, edges in map_parallel(
            lambda name: self._edges(name, found[name]), split
        ):
            found[name] = replace(found[name], edges=edges)
        return found

    def is_sparse(self, name: str) -> bool:
        """Return whether a read gets far fewer messages than there are sequences."""
        bounds = self._bounds.get(name)
        if bounds is None or self._modes.get(name) != "consumer":
            return False
        if name in self._uncounted:
            return False
        width = bounds.next - bounds.first
        filters = self._filters(self._prefixes[name])
        return bool(filters) or bounds.messages < width // SPARSE

    def _is_wide(self, name: str, offset_range: OffsetRange) -> bool:
        """Return whether the messages of a range are counted to plan its partitions."""
        width = offset_range.next - (offset_range.start or offset_range.next)
        return width >= COUNTED and self.is_sparse(name)

    def count(self, name: str, offset_range: OffsetRange) -> int:
        """Return about how many messages a read of a range gets. Blocks."""
        start = offset_range.start or offset_range.next
        try:
            found = self._pending(name, start) - self._pending(name, offset_range.next)
        except APIError as error:
            self._uncounted.add(name)
            logger.warning(
                "the server does not count the messages of stream %s, so partitions and "
                "limits are by sequences: %s",
                *(name, printable(str(error))),
            )
            return offset_range.next - start
        return min(max(0, found), offset_range.next - start)

    def deleted(self, name: str, offset_range: OffsetRange) -> int:
        """Return how many messages of a range were deleted. Blocks if the stream has gaps.

        With filters, or with too many gaps, they are not known, and count as 0.
        """
        bounds, start = self._bounds.get(name), offset_range.start or offset_range.next
        if bounds is None or bounds.created != offset_range.created:
            return 0
        if not 0 < bounds.deleted <= MAX_DELETED or start == offset_range.next:
            return 0
        if self._filters(self._prefixes[name]):
            return 0
        stream = self.jetstream().bind_stream(name)
        try:
            return self.retry(lambda: count_deleted(stream, start, offset_range.next))
        except StreamNotFoundError:
            return 0  # the partitions of the batch report it

    def sequence_after(self, name: str, start: int, stop: int, rows: int) -> int:
        """Return a sequence before which about `rows` messages are. Blocks."""
        try:
            return sequence_after(partial(self._pending, name), start, stop, rows)
        except APIError:  # a limit of consumers, reached since `count`
            return min(stop, start + rows)

    def _pending(self, name: str, sequence: int) -> int:
        stream = self.jetstream().bind_stream(name)
        subjects = self._filters(self._prefixes[name])
        return self.retry(lambda: pending(stream, sequence, subjects))

    def _edges(self, name: str, offset_range: OffsetRange) -> tuple[int, ...]:
        """Return where the partitions of a range begin, with about as many messages each."""
        start, edges = offset_range.start or offset_range.next, []
        rows = self.count(name, offset_range)
        for left in range(offset_range.parts, 1, -1):
            part = max(1, rows // left)
            start = self.sequence_after(name, start, offset_range.next, part)
            edges.append(start)
            rows -= part
        return tuple(edge for edge in edges if edge < offset_range.next)

    def partitions(self, ranges: StreamOffsets) -> list[InputPartition]:
        """Return the partitions for the executors. `fetch_bounds` has checked each stream before."""
        from .range_reader import InputRange  # noqa: PLC0415

        def part(
            name: str, offset_range: OffsetRange, start: int, end: int
        ) -> InputRange:
            mode, prefix = self._modes[name], self._prefixes[name]
            return InputRange(name, offset_range.created, start, end, mode, prefix)

        return [InputPartition(parts) for parts in packed(ranges, part)]

    def read(self, parts: Sequence[InputRange]) -> Iterator[pyarrow.RecordBatch]:
        """Yield the record batches of a partition, in the schema of Spark. Blocks."""
        if len(parts) == 1:
            yield from self._read(parts[0])
            return
        self.retry(self.jetstream)  # connect once, before the threads start
        yield from read_ahead(self._read, parts)

    def _read(self, part: InputRange) -> Generator[pyarrow.RecordBatch]:
        from .columns import conform, entries, message_columns  # noqa: PLC0415
        from .range_reader import RangeReader  # noqa: PLC0415

        schema = arrow_schema(self.schema)
        if part.prefix:
            columns = message_columns(schema.names)
        else:
            columns = [name for name in schema.names if name != "stream"]
        reader = RangeReader(
            self.retry(self.jetstream),
            part,
            columns=list(dict.fromkeys([*columns, "sequence"])),
            subjects=self._filters(part.prefix),
            policy=self.policy,
            retry_seconds=self.retry_seconds,
        )
        for batch in reader:
            if part.prefix:
                batch = entries(batch, part.prefix, schema.names)
            yield conform(batch, part.stream, schema)


class JetStreamReader(DataSourceReader):
    """A batch that reads the current messages of the streams, or a part of them."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._source = SourceScan(options, schema, streaming=False)

    def partitions(self) -> Sequence[InputPartition]:
        source = self._source
        self._source.jetstream()
        ranges = dict(map_parallel(self.range_of, source.streams()))
        return source.partitions(source.planned(ranges))

    def range_of(self, name: str) -> OffsetRange:
        """Return the part of a stream that the options define."""
        source, options = self._source, self._source.options
        stream, bounds = source.fetch_stream(name)
        start = source.sequence_at(stream, bounds, options.starting.of(name))
        end = source.sequence_at(stream, bounds, options.ending.of(name))
        stop = min(bounds.next, end)
        loss = check_start(start, bounds) or describe_loss(
            bounds.created, start, stop, bounds
        )
        if loss is not None:
            self._source.policy.report(name, loss)
        return OffsetRange(bounds.created, min(max(start, bounds.first), stop), stop)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        # Without partitions, Spark passes one with the value None.
        if partition.value is not None:
            yield from self._source.read(partition.value)


class PushdownReader(JetStreamReader):
    """A batch that gets the filters of the query, to read less.

    Spark refuses a reader with `pushFilters` while filter pushdown is disabled, so this is a
    separate class.
    """

    _pushed = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the read by the filters. Return all of them, so that Spark still checks rows."""
        pushed = PushedFilters(subjects=self._source.subjects or None)
        for one in filters:
            match getattr(one, "attribute", ()), getattr(one, "value", None):
                case (str(column),), value:
                    pushed = pushed.with_filter(type(one).__name__, column, value)
        self._pushed = pushed
        self._source.subjects = pushed.subjects or ()
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return [] if self._pushed.subjects == () else super().partitions()

    def range_of(self, name: str) -> OffsetRange:
        offset_range, pushed = super().range_of(name), self._pushed
        stream, bounds = self._source.fetch_stream(name)
        if pushed.streams is not None and name not in pushed.streams:
            return OffsetRange(
                offset_range.created, offset_range.next, offset_range.next
            )
        start, stop = max(offset_range.start or 1, pushed.first), offset_range.next
        if pushed.last is not None:
            stop = min(stop, pushed.last + 1)
        if pushed.since is not None:
            since = self._source.sequence_at(stream, bounds, pushed.since)
            start = max(start, since)
        if pushed.until is not None:
            until = self._source.sequence_at(stream, bounds, pushed.until)
            stop = min(stop, until)
        return OffsetRange(offset_range.created, min(start, stop), stop)
