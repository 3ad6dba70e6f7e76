"""Counts of workers, as data and as Prometheus text. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from .._prometheus import PrometheusText

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BUCKETS: Final = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
"""Upper bounds in seconds of the histogram of calls."""


class HandlerMetrics(msgspec.Struct):
    """Counts of the handler of one consumer."""

    seconds: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    """Calls by duration: one count for each of `BUCKETS`, and one for longer calls."""
    total_seconds: float = 0.0
    failed: int = 0
    retried: int = 0
    redelivered: int = 0
    dead: int = 0
    dropped: int = 0
    kept: int = 0
    timeouts: int = 0
    in_hand: int = 0
    pending: int | None = None
    """Messages that wait in the stream: the consumer's `num_pending`. None: unknown."""
    ack_pending: int | None = None

    def add(self, other: HandlerMetrics) -> None:
        """Add the counts of another process, or thread, of the same consumer."""
        self.seconds = [a + b for a, b in zip(self.seconds, other.seconds, strict=True)]
        for name in ("total_seconds", *_SUMMED):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.pending is not None:  # both report the same consumer
            self.pending, self.ack_pending = other.pending, other.ack_pending

    @classmethod
    def sum(cls, parts: Iterable[HandlerMetrics]) -> HandlerMetrics:
        """Return the sum of counts."""
        total = cls()
        for part in parts:
            total.add(part)
        return total

    def without_gauges(self) -> HandlerMetrics:
        """Return the counts that remain when a process has ended."""
        return msgspec.structs.replace(self, in_hand=0, pending=None, ack_pending=None)


_SUMMED: Final = (
    *("failed", "retried", "redelivered", "dead", "dropped", "kept", "timeouts"),
    "in_hand",
)


class WorkerReport(msgspec.Struct):
    """The figures of a process, by stream and consumer."""

    ready: bool = False
    attempts: int = 0
    """The attempts to start that failed because no server answered."""
    consumers: dict[str, HandlerMetrics] = {}


# Name, type, help, attribute of `HandlerMetrics`.
_METRICS: Final = (
    ("failures_total", "counter", "Calls of the handler that raised.", "failed"),
    ("retries_total", "counter", "Failed messages that were given back.", "retried"),
    (
        "redeliveries_total",
        "counter",
        "Messages that were delivered again.",
        "redelivered",
    ),
    ("dead_letters_total", "counter", "Messages that became dead letters.", "dead"),
    ("dropped_total", "counter", "Messages given up without dead letter.", "dropped"),
    ("dead_letter_failures_total", "counter", "Dead letters not stored.", "kept"),
    ("timeouts_total", "counter", "Calls that took too long.", "timeouts"),
    ("in_hand", "gauge", "Messages that are being handled.", "in_hand"),
    ("num_pending", "gauge", "Messages that wait in the stream.", "pending"),
    ("num_ack_pending", "gauge", "Messages delivered and not acked.", "ack_pending"),
)


def prometheus_text(
    consumers: Mapping[str, HandlerMetrics], processes: int, ready: int, restarts: int
) -> str:
    """Write figures by `STREAM.CONSUMER` in Prometheus' text format 0.0.4."""
    text = PrometheusText("jsync_worker_")
    text.add("processes", "gauge", "Processes that should run.", [({}, processes)])
    text.add(
        "processes_ready", "gauge", "Processes that handle messages.", [({}, ready)]
    )
    text.add(
        *("restarts_total", "counter", "Processes started to replace another."),
        [({}, restarts)],
    )
    labelled = [(_labels(name), metrics) for name, metrics in sorted(consumers.items())]
    for name, kind, words, field in _METRICS:
        values = ((labels, getattr(metrics, field)) for labels, metrics in labelled)
        text.add(name, kind, words, values)
    text.add_histogram(
        *("handler_seconds", "Seconds of a call of the handler.", BUCKETS),
        (
            (labels, metrics.seconds, metrics.total_seconds)
            for labels, metrics in labelled
        ),
    )
    return str(text)


def _labels(name: str) -> dict[str, str]:
    stream, _, consumer = name.partition(".")  # neither name contains a dot
    return {"stream": stream, "consumer": consumer}
