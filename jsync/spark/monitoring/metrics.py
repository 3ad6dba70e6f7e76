"""The metrics of a streaming query: as data, as a line and as Prometheus text. Pure."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from ..._prometheus import PrometheusText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MALFORMED: Final = "malformed"
"""The name of the observed column that counts malformed messages."""


_LAST: Final = (
    *("name", "time", "batch", "input_rate", "processed_rate", "streams"),
    *("dead_letters", "duplicates", "collisions"),
)
"""Attributes of `QueryMetrics` that keep their values until a run reports new ones."""


class Position(msgspec.Struct, frozen=True):
    """The position of a query in a stream."""

    created: str
    """When the stream was created, ISO 8601."""
    next: int
    """The first sequence that the query has not read."""
    missing: int = 0
    """Messages before `next` that were gone before the query could read them."""


class StreamMetrics(msgspec.Struct, kw_only=True):
    """The lag of a query behind a stream."""

    created: str
    next: int
    lag: int | None = None
    """Messages from `next` to the end of the stream, or more in a stream with gaps. None:
    unknown."""
    lag_seconds: float | None = None
    """The age in seconds of the first unread message. None: unknown."""
    missing: int = 0
    """Messages that were gone before the query could read them, since its beginning: deleted,
    or dropped from the stream with `failOnDataLoss=false`."""


class QueryMetrics(msgspec.Struct, kw_only=True):
    """The progress and the lag of a streaming query."""

    id: str
    """The id in the checkpoint of the query."""
    run_id: str = ""
    """The id of this start of the query."""
    name: str | None = None
    state: Literal["running", "ended", "failed"] = "running"
    error: str | None = None
    """The first line of the error of a failed query."""
    time: str = ""
    """When the monitor measured the lag, ISO 8601."""
    batch: int | None = None
    """The number of the last micro-batch."""
    is_complete: bool = True
    """True if the counts include the earlier runs, which the monitor's bucket remembers. It is
    False until the bucket has been read."""
    batches: int = 0
    """Micro-batches with rows. A repeated micro-batch counts again."""
    rows: int = 0
    """Rows of these micro-batches."""
    input_rate: float | None = None
    """Rows per second that came, in the last micro-batch with rows."""
    processed_rate: float | None = None
    """Rows per second that Spark processed, in the last micro-batch with rows."""
    streams: dict[str, StreamMetrics] = {}
    malformed: int = 0
    """Messages that an observed column `malformed` has counted."""
    dead_letters: int | None = None
    """Rows that the sink published as dead letters. None: the sink keeps no report."""
    duplicates: int | None = None
    """Rows that the sink's stream had already. None: the sink keeps no report."""
    collisions: int | None = None
    """Rows that were dropped, since another row had their `msg_id`. None: the sink keeps no
    report."""

    @property
    def label(self) -> str:
        """The name of the query, or its id."""
        return self.name or self.id

    @property
    def measured(self) -> float | None:
        """When the monitor measured the lag, in seconds since 1970. None: never."""
        try:
            return datetime.fromisoformat(self.time).timestamp()
        except ValueError:
            return None

    @property
    def lag(self) -> int | None:
        """Unread messages of all streams. None: unknown."""
        known = [
            stream.lag for stream in self.streams.values() if stream.lag is not None
        ]
        return sum(known) if known else None

    @property
    def lag_seconds(self) -> float | None:
        """The age of the oldest unread message. None: unknown."""
        ages = [stream.lag_seconds for stream in self.streams.values()]
        return max((age for age in ages if age is not None), default=None)

    @property
    def missing(self) -> int:
        """Messages of all streams that were gone before the query could read them."""
        return sum(stream.missing for stream in self.streams.values())

    def add(self, before: QueryMetrics) -> None:
        """Add the earlier runs, and keep what this run has told."""
        self.batches += before.batches
        self.rows += before.rows
        self.malformed += before.malformed
        for name in _LAST:
            if getattr(self, name) in (None, "", {}):
                setattr(self, name, getattr(before, name))
        if not self.run_id:
            self.run_id, self.state = before.run_id, before.state
            self.error = before.error

    def take(self, report: Mapping[str, Any]) -> None:
        """Take in Spark's report of a micro-batch."""
        self.run_id, self.name = str(report["runId"]), report["name"]
        self.state, self.error = "running", None
        self.batch = report["batchId"]
        if rows := report["numInputRows"]:
            self.batches += 1
            self.rows += rows
            self.input_rate = _finite(report["inputRowsPerSecond"])
            self.processed_rate = _finite(report["processedRowsPerSecond"])
        self.malformed += malformed(report)
        found: dict[str, StreamMetrics] = {}
        for stream, position in positions(report):
            if stream in found and found[stream].next <= position.next:
                continue  # two sources read the stream, and the other one is behind
            known = self.streams.get(stream)
            lag = (known.lag, known.lag_seconds) if known else (None, None)
            found[stream] = StreamMetrics(
                created=position.created,
                next=position.next,
                lag=lag[0],
                lag_seconds=lag[1],
                missing=position.missing,
            )
        self.streams = found or self.streams

    def line(self) -> str:
        """The metrics in one line, for a log."""
        parts = [f"{self.label}: {self.state}, {self.rows:,} rows"]
        if self.processed_rate is not None:
            parts.append(f"{self.processed_rate:,.0f}/s")
        for name, stream in sorted(self.streams.items()):
            if stream.lag is None:
                parts.append(f"{name} lag unknown")
            else:
                age = f" ({seconds_text(stream.lag_seconds)})" if stream.lag else ""
                parts.append(f"{name} {stream.lag:,} behind{age}")
        for count, words in (
            (self.missing, "gone before they were read"),
            (self.malformed, "malformed"),
            (self.dead_letters, "dead letters"),
            (self.duplicates, "duplicates"),
            (self.collisions, "dropped for the msg_id of another row"),
        ):
            if count:
                parts.append(f"{count:,} {words}")
        if self.error is not None:
            parts.append(self.error)
        return ", ".join(parts)


def seconds_text(seconds: float | None) -> str:
    """Format a duration for people."""
    return "age unknown" if seconds is None else f"{seconds:,.1f} s"


def malformed(report: Mapping[str, Any]) -> int:
    """Return how many malformed messages a micro-batch has counted, in all sources."""
    found = 0
    for row in (report.get("observedMetrics") or {}).values():
        values = row if isinstance(row, dict) else row.asDict()
        count = values.get(MALFORMED)
        found += count if isinstance(count, int) else 0
    return found


def positions(report: Mapping[str, Any]) -> Iterator[tuple[str, Position]]:
    """Yield the end of a micro-batch in each stream of each JetStream source."""
    for source in report["sources"]:
        for name, found in parse_offsets(source.get("endOffset")).items():
            missing = int(found.get("missing", 0))
            created = str(found.get("created", ""))
            yield name, Position(created, int(found["next"]), missing)


def parse_offsets(offset: Any) -> Mapping[str, Mapping[str, Any]]:
    """Return the streams in an offset. Empty if the source is not JetStream."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    streams = offset.get("streams") if isinstance(offset, dict) else None
    return streams if isinstance(streams, dict) else {}


def _finite(rate: float | None) -> float | None:
    return rate if rate is not None and 0 <= rate < float("inf") else None


# Prometheus ---------------------------------------------------------------------------

# Name, type, help, attribute of `QueryMetrics`.
_METRICS: Final = (
    ("batches_total", "counter", "Micro-batches with rows.", "batches"),
    ("rows_total", "counter", "Rows of micro-batches.", "rows"),
    ("input_rows_per_second", "gauge", "Rows that came.", "input_rate"),
    ("processed_rows_per_second", "gauge", "Rows processed.", "processed_rate"),
    ("malformed_total", "counter", "Malformed messages.", MALFORMED),
    ("dead_letters_total", "counter", "Rows that became dead letters.", "dead_letters"),
    ("duplicates_total", "counter", "Rows that the stream had.", "duplicates"),
    ("collisions_total", "counter", "Rows with the id of another row.", "collisions"),
    (
        *("measured_timestamp_seconds", "gauge"),
        *("When the lag was measured, in seconds since 1970.", "measured"),
    ),
)
_SUMS: Final = frozenset({"batches", "rows", MALFORMED})
"""Counters that would restart without the earlier runs."""
# Name, type, help, attribute of `StreamMetrics`.
_OF_STREAMS: Final = (
    ("lag_messages", "gauge", "Unread messages of the stream.", "lag"),
    ("lag_seconds", "gauge", "Age of the first unread message.", "lag_seconds"),
    ("next_sequence", "gauge", "First sequence that is not read.", "next"),
    ("missing_total", "counter", "Messages gone before they were read.", "missing"),
)


def prometheus_text(queries: Iterable[QueryMetrics]) -> str:
    """Write metrics in Prometheus' text format 0.0.4, labelled by query and stream."""
    text = PrometheusText("jsync_spark_")
    by_label = {query.label: query for query in queries}
    labelled = [({"query": label}, query) for label, query in by_label.items()]
    text.add(
        *("query_running", "gauge", "Whether the query runs."),
        ((labels, query.state == "running") for labels, query in labelled),
    )
    for name, kind, words, field in _METRICS:
        values = (
            (labels, getattr(query, field))
            for labels, query in labelled
            if query.is_complete or field not in _SUMS
        )
        text.add(name, kind, words, values)
    for name, kind, words, field in _OF_STREAMS:
        values = (
            ({**labels, "stream": stream}, getattr(position, field))
            for labels, query in labelled
            for stream, position in sorted(query.streams.items())
        )
        text.add(name, kind, words, values)
    return str(text)
