"""The lag of a position, as the leaders of streams report it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import (
    Error,
    MessageNotFoundError,
    PermissionsError,
    StreamNotFoundError,
    UnsupportedFeatureError,
)

if TYPE_CHECKING:
    from ... import JetStream
    from .metrics import QueryMetrics, StreamMetrics


def measure_lag(js: JetStream, query: QueryMetrics) -> Error | None:
    """Measure the lag of a query in each of its streams. Blocks.

    Costs a request to the leader of each stream, and a second one if there are unread
    messages.

    Args:
        js: The context for the requests.
        query: The metrics, which get the lag.

    Returns:
        The last error if a lag could not be measured. That lag is None.
    """
    failure: Error | None = None
    for name, metrics in query.streams.items():
        try:
            metrics.lag, metrics.lag_seconds = _lag(js, name, metrics)
        except Error as error:
            metrics.lag = metrics.lag_seconds = None
            if not isinstance(error, StreamNotFoundError):
                failure = error
    return failure


def _lag(
    js: JetStream, name: str, metrics: StreamMetrics
) -> tuple[int | None, float | None]:
    stream = js.bind_stream(name)
    info = stream.leader_info()
    if info.created is None or info.created.isoformat() != metrics.created:
        return None, None  # the stream was recreated
    state = info.state
    start = max(metrics.next, state.first_seq)
    if start > state.last_seq or not state.messages:
        return 0, 0.0
    age: float | None = None
    try:
        first = stream.get_message(sequence=start, next_by_subject=">", direct=False)
    except MessageNotFoundError:
        return 0, 0.0
    except (PermissionsError, UnsupportedFeatureError):
        pass
    else:
        start = first.sequence
        if info.ts is not None:
            seconds = (info.ts - first.timestamp).total_seconds()
            age = max(0.0, round(seconds, 3))
    # With gaps there are fewer messages than sequences.
    return max(0, min(state.last_seq + 1 - start, state.messages)), age
