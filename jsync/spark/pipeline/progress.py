"""The progress of a pipeline, from the reports of Spark on each micro-batch. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from ..monitoring.metrics import malformed, parse_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass
class SinkProgress:
    """The progress of one sink."""

    name: str
    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    rate: float | None = None
    """Rows per second, of the last micro-batch that had any."""
    lag: int | None = None
    """Messages of its streams that are still to be read. None: not known."""
    malformed: int = 0
    """Messages that were dropped because their payload was not of the declared schema."""
    _seen: set[tuple[int, str]] = field(default_factory=set, repr=False)

    def update(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Add the reports of Spark on micro-batches. A report that comes again is ignored."""
        for report in reports:
            event = report["batchId"], report["timestamp"]
            if event in self._seen:
                continue
            self._seen.add(event)
            self.lag = lag(report)
            self.malformed += malformed(report)
            if rows := report["numInputRows"]:
                self.batches += 1
                self.rows += rows
                self.seconds += report["durationMs"].get("triggerExecution", 0) / 1000
                self.rate = report["processedRowsPerSecond"]

    def line(self, running: str = "") -> str:
        """Return the progress in one line.

        Args:
            running: The part of the micro-batch that runs now.
        """
        parts = [f"{self.name}: {self.rows:,} rows"]
        if self.rate is not None:
            parts.append(f"{self.rate:,.0f}/s")
        if self.lag is not None:
            parts.append(f"{self.lag:,} behind")
        if self.malformed:
            parts.append(f"{self.malformed:,} malformed dropped")
        if running:
            parts.append(f"batch {self.batches + 1}: {running}")
        return ", ".join(parts)

    def summary(self) -> dict[str, Any]:
        return {
            "sink": self.name,
            "rows": self.rows,
            "batches": self.batches,
            "seconds": round(self.seconds, 3),
            "lag": self.lag,
            "malformed": self.malformed,
        }


def lag(report: Mapping[str, Any]) -> int | None:
    """Return the messages between the end of a micro-batch and the ends of the streams.

    With gaps a stream has fewer messages than sequences, as the monitor counts them.
    """
    total = None
    for source in report["sources"]:
        ends = parse_offsets(source.get("endOffset"))
        latest = parse_offsets(source.get("latestOffset"))
        if not ends or not latest:
            continue
        total = (total or 0) + sum(
            max(0, min(head["next"] - ends[name]["next"], head.get("messages", inf)))
            for name, head in latest.items()
            if name in ends
        )
    return total


def table(summaries: list[dict[str, Any]]) -> str:
    """Format the summary for people."""
    width = max((len(summary["sink"]) for summary in summaries), default=0)
    lines = []
    for summary in summaries:
        rows, seconds, batches = (
            summary["rows"],
            summary["seconds"],
            summary.get("batches"),
        )
        line = f"{summary['sink']:<{width}}  "
        line += "shown" if rows is None else f"{rows:>12,} rows"
        if batches is not None:
            line += f" in {batches:,} batch{'' if batches == 1 else 'es'}"
        line += f", {seconds:.1f} s"
        if rows and seconds:
            line += f", {rows / seconds:,.0f}/s"
        if summary.get("lag"):
            line += f", {summary['lag']:,} messages behind"
        if summary.get("malformed"):
            line += f", {summary['malformed']:,} malformed messages dropped"
        lines.append(line)
    return "\n".join(lines)
