"""Reading as a stream of micro-batches, as Spark calls it on the driver."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ..errors import CheckpointError, ConfigError, StreamNotFoundError
from .at_once import ask_all
from .marks import Mark, contradiction, first_after
from .offsets import (
    Holding,
    Span,
    admitted,
    behind,
    beyond,
    complete,
    from_json,
    lost,
    resumed,
    rows_of,
    to_json,
)
from .source import Source
from .streams import logger

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
        """What it is in later versions of Spark."""
else:
    LIMITS = True

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow
    from pyspark.sql.types import StructType

    from .. import Stream
    from .offsets import Spans
    from .options import Options

    Answer = TypeVar("Answer")


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of micro-batches.

    Spark keeps one on the driver for as long as a query runs, and asks it what is next.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._source = Source(options, schema, streaming=True)
        # Where this process has begun each stream, and whether the query found it later.
        self._begun: dict[tuple[str, bool], Span] = {}
        # Spark before 4.2 does not pass the offset to go on from: the last one that it got.
        self._last: dict[str, Any] | None = None
        self._heads: Spans = {}  # the last known ends of the streams
        # Marks of the last offset that Spark got.
        self._planned: dict[str, Mark | None] = {}
        self._targets: dict[str, Holding] | None = None
        self._last_batch: float | None = None
        self._has_warned = False

    # Where it is ----------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins.

        Spark asks twice, before 4.2 after the first `latestOffset`, and again when it repeats
        the first batch. So the end of a batch alone says what the batch reads.
        """
        return to_json(dict(self._ask_all(self._begin, self._source.streams())))

    def _begin(self, name: str, *, found: bool = False) -> Span:
        """Where a stream begins that the query does not know yet.

        Both may be asked of one stream: it can appear before Spark repeats the first batch.

        Args:
            name: Its name.
            found: A pattern has found it after the query began. All of it is read.
        """
        if (name, found) not in self._begun:
            stream, holding = self._source.look(name)
            starting = self._source.options.starting
            place = starting.of(name)
            if found and name not in starting.named:
                place = "earliest"
            start = self._source.sequence_at(stream, holding, place)
            loss = beyond(start, holding) or lost(
                holding.created, start, holding.next, holding
            )
            if loss is not None:
                self._source.policy.found(name, loss)
            start = min(max(start, holding.first), holding.next)
            begun = Span(holding.created, start, start, mark=holding.mark)
            self._begun[name, found] = begun
        return self._begun[name, found]

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._source.options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all that the query reads.

        A stream that is not there is left out. It is an error of `initialOffset`, or data
        loss once the query has read of it.
        """

        def look(name: str) -> Holding | None:
            try:
                return self._source.look(name)[1]
            except StreamNotFoundError:
                return None

        found = self._ask_all(look, self._source.streams())
        self._targets = {
            name: holding for name, holding in found if holding is not None
        }

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the end of the next batch, or `start` itself if there is nothing new.

        Spark before 4.2 passes neither `start` nor `limit`. It goes on from the last offset
        that it got, which it tells by `partitions` when a query is started again.
        """
        is_old = start is None
        if start is None:
            start = self._last or self.initialOffset()
        before = self._known(start)
        pause = self._source.options.pause_file
        if pause is not None and pause.exists():
            after = before
        else:
            # Earlier versions of Spark have no limits that they could pass.
            limited = is_old or not (
                limit is None or isinstance(limit, ReadAllAvailable)
            )
            after = self._advanced(before, limited=limited, warn=is_old)
        end = start if after == before else to_json(after)
        if is_old:
            self._last = end
        return end

    def _known(self, offset: dict[str, Any]) -> Spans:
        """The places in an offset; raises `CheckpointError` for one of other streams."""
        spans = from_json(offset)
        left = [name for name in spans if not self._source.reads(name)]
        if left:
            raise CheckpointError(
                f"the checkpoint also has stream {left[0]}, which this query does not read: "
                "add it to the option stream, or use a new checkpoint"
            )
        return spans

    def _advanced(self, before: Spans, *, limited: bool, warn: bool) -> Spans:
        """The next end behind `before`.

        Args:
            before: The end of the last batch.
            limited: The limits of the options hold.
            warn: Log a warning if a limit leaves messages to the next batch.
        """
        places: Spans = {}
        marks: dict[str, Mark | None] = {}
        backlogs: dict[str, int] = {}
        sizes: dict[str, float] = {}
        is_found = self._source.options.pattern is not None

        def look(name: str) -> tuple[Span, Span, Holding | None]:
            known = before.get(name) or self._begin(name, found=is_found)
            return (known, *self._resumed(name, known))

        found = self._ask_all(look, self._names(before))
        for name, (known, place, holding) in found:
            if holding is None and is_found:
                continue  # a later stream of this name is a new one
            places[name] = place
            marks[name] = known.mark if holding is None else holding.mark
            backlogs[name] = 0 if holding is None else self._backlog(place, holding)
            sizes[name] = 0.0 if holding is None else holding.message_bytes
        shares = self._shares(backlogs, sizes) if limited else backlogs
        if warn and sum(shares.values()) < sum(backlogs.values()):
            self._warn_of_limit(sum(backlogs.values()) - sum(shares.values()))
        moved = before.keys() != places.keys() or any(
            span is not before[name] for name, span in places.items()
        )
        if not moved and (not any(shares.values()) or self._waits(backlogs)):
            return before
        self._last_batch = monotonic()
        after = {
            name: Span(
                span.created, span.next, span.next + shares[name], mark=marks[name]
            )
            for name, span in places.items()
        }
        self._planned = marks
        return self._source.planned(after)

    def _warn_of_limit(self, left: int) -> None:
        """Say once what a limit means to some triggers: Spark does not tell which it is."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "a limit leaves %d sequences to later micro-batches. Before Spark 4.2 a query "
                "with the trigger availableNow or once ends after one micro-batch: without "
                "the limit it would read them now",
                left,
            )

    def _names(self, before: Spans) -> list[str]:
        """The streams of the next batch: with a pattern those of now, too."""
        if self._source.options.pattern is None:
            return list(self._source.options.streams)
        new = self._source.streams() if self._targets is None else self._targets
        return list(dict.fromkeys([*before, *new]))

    def _waits(self, backlogs: dict[str, int]) -> bool:
        """Whether a batch of so few messages waits for more."""
        options = self._source.options
        if options.min_rows is None or self._targets is not None:
            return False
        if self._last_batch is None or sum(backlogs.values()) >= options.min_rows:
            return False
        return monotonic() - self._last_batch < options.max_delay

    def _resumed(self, name: str, span: Span) -> tuple[Span, Holding | None]:
        """Where to go on in a stream; and what it holds, None when it is not there."""
        source = self._source
        try:
            stream, holding = source.look_behind(name, span.created, span.reached)
            self._heads[name] = Span(holding.created, holding.next, holding.next)
            loss = lost(span.created, span.next, holding.next, holding)
            unread = None
            if altered := self._altered(stream, span, holding):
                loss, unread = altered, self._unread(stream, span)
        except StreamNotFoundError:
            source.policy.found(name, _gone(name))
            return span, None
        if loss is None:
            return span, holding
        place = resumed(span, holding, unread)
        source.policy.found(name, loss, place)
        return Span(holding.created, place, place), holding

    def _altered(self, stream: Stream, span: Span, holding: Holding) -> str | None:
        """Whether the stream is another one, or an older state of this one, in words."""
        if holding.created != span.created:
            return lost(span.created, span.next, holding.next, holding)
        if loss := behind(span.reached, holding):
            return loss
        mark = span.mark
        if mark is None:
            return None
        return self._source.patiently(lambda: contradiction(stream, mark))

    def _unread(self, stream: Stream, span: Span) -> int | None:
        """The first message of an altered stream that the query has not seen."""
        mark = span.mark
        if mark is None:
            return None
        return self._source.patiently(lambda: first_after(stream, mark))

    def _backlog(self, span: Span, holding: Holding) -> int:
        upto = holding.next
        if self._targets is not None:
            target = self._targets.get(holding.stream)
            if target is None or target.created != holding.created:
                return 0
            upto = min(upto, target.next)
        return max(0, upto - span.next)

    def _shares(
        self, backlogs: dict[str, int], sizes: dict[str, float]
    ) -> dict[str, int]:
        options = self._source.options
        limit = options.max_rows
        if options.max_bytes is not None:
            rows = rows_of(options.max_bytes, backlogs, sizes)
            limit = rows if limit is None else min(limit, rows)
        return admitted(backlogs, limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the streams, for the progress of the query."""
        return to_json(self._heads) if self._heads else None

    # What a batch reads ---------------------------------------------------------------

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[InputPartition]:
        """Plan what the executors read, which `end` alone says."""
        if start == end:
            if not LIMITS:
                self._resume(end)
            return []
        before = from_json(start)
        there = {
            name: span
            for name, known in self._known(end).items()
            for span in [complete(known, before.get(name))]
            if span.start is not None and span.start < span.next
        }

        def look(name: str) -> Span:
            return self._there(name, there[name], before.get(name))

        spans = dict(self._ask_all(look, list(there)))
        if any(not span.parts for span in spans.values()):
            spans = self._source.planned(spans)
        return self._source.partitions(
            {
                name: span
                for name, span in spans.items()
                if span.start is not None and span.start < span.next
            }
        )

    def _resume(self, offset: dict[str, Any]) -> None:
        """Take the last offset of a query that is started again.

        Spark before 4.2 tells it by an empty batch, before the first `latestOffset`.
        """
        if self._last not in (None, offset):
            raise ConfigError(
                "before Spark 4.2 the source cannot go on from a checkpoint with "
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled: set it to false"
            )
        self._last = offset

    def _there(self, name: str, span: Span, before: Span | None) -> Span:
        """What of a span is still there; all of it, unless loss is allowed for."""
        source = self._source
        assert span.start is not None
        try:
            stream, holding = source.look_behind(name, span.created, span.reached)
        except StreamNotFoundError:
            source.policy.found(name, _gone(name))
            return replace(span, start=span.next)
        loss = lost(span.created, span.start, span.next, holding)
        upto = holding.next
        # Do not check again what this process has just planned.
        if span.mark is None or self._planned.get(name) != span.mark:
            for known in filter(None, (before, span)):
                if altered := self._altered(stream, known, holding):
                    unread = self._unread(stream, known)
                    loss, upto = altered, upto if unread is None else unread
                    break
        if loss is None:
            return span
        start = min(max(span.start, holding.first), span.next)
        if holding.created != span.created:
            start = span.next
        upto = max(start, min(span.next, upto))
        source.policy.found(name, loss, start)
        return replace(span, start=start, next=upto)

    def _ask_all(
        self, ask: Callable[[str], Answer], names: Sequence[str]
    ) -> Iterator[tuple[str, Answer]]:
        """Ask for all these streams at once; blocks."""
        self._source.jetstream()  # connect once, for all threads
        return ask_all(ask, names)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        yield from self._source.read(partition.value)


def _gone(stream: str) -> str:
    return f"stream {stream} no longer exists"
