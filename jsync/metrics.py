"""The counters of connections as Prometheus text.

Connections keep these counters anyway, and nothing runs between two calls. So programs that
do not import this module pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ._prometheus import PrometheusText
from .errors import ConfigError

if TYPE_CHECKING:
    from .connection import Connection

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of an HTTP response with the text of `prometheus_text`."""

# Name, type, help. Without `jsync_` and `_total`, the name is the field of
# `Statistics`.
_METRICS: Final = (
    ("in_messages", "counter", "Messages received."),
    ("in_bytes", "counter", "Bytes of headers and payloads received."),
    ("out_messages", "counter", "Messages published, requests and acks included."),
    ("out_bytes", "counter", "Bytes of headers and payloads published."),
    ("reconnects", "counter", "Times the connection was lost and restored."),
    ("slow_consumers", "counter", "Times a subscription began to drop messages."),
    ("subscriptions", "gauge", "Subscriptions, those of pulls and replies included."),
    ("pending_messages", "gauge", "Messages that wait for their reader."),
    ("pending_bytes", "gauge", "Bytes of messages that wait for their reader."),
    ("unsent_bytes", "gauge", "Bytes that have not reached the socket."),
)


def prometheus_text(*connections: Connection) -> str:
    """Write the counters of connections as Prometheus text, format 0.0.4.

    Serve the text with `CONTENT_TYPE`, or write it to a file for the node exporter.
    Each series has the label `connection`, so give each connection a `name` in
    `connect`. The call does not block and sends nothing to the server. You may call it
    from any thread, and for closed connections.

    Args:
        *connections: The connections.

    Returns:
        The text.

    Raises:
        ConfigError: Two connections have the same name.
    """
    names = [connection.name for connection in connections]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(
            f"two connections have the name {twice.pop()!r}: give each its own with "
            "connect(name=...), to tell their metrics apart"
        )
    text = PrometheusText("jsync_")
    labels = [{"connection": name} for name in names]
    connected = (connection.is_connected for connection in connections)
    text.add(
        *("connected", "gauge", "Whether it is connected."),
        zip(labels, connected, strict=True),
    )
    statistics = [connection.stats() for connection in connections]
    for field, kind, words in _METRICS:
        name = f"{field}_total" if kind == "counter" else field
        values = (getattr(counts, field) for counts in statistics)
        text.add(name, kind, words, zip(labels, values, strict=True))
    return str(text)
