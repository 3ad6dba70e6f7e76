"""Logs as JSON or text, each line with the message that its thread handles."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .runner import current_message

if TYPE_CHECKING:
    from .._fast import JetStreamMsg


class JSONFormatter(logging.Formatter):
    """A record as JSON: time, level, logger, process, text, exception, and the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record in one line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "text": record.getMessage(),
        }
        line |= _about(current_message())
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """A record as a plain line, with the message that the thread of the record handles."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line without the traceback."""
        line = super().formatMessage(record)
        if (msg := current_message()) is None:
            return line
        return f"{line} ({msg.metadata.stream} {msg.metadata.stream_sequence})"


def _about(msg: JetStreamMsg | None) -> dict[str, Any]:
    if msg is None:
        return {}
    about = msg.metadata
    return {
        "stream": about.stream,
        "consumer": about.consumer,
        "subject": msg.subject,
        "sequence": about.stream_sequence,
        "attempt": about.num_delivered,
    }
