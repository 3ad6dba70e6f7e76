"""Writing a DataFrame into streams.

The map, lowest first; the first four are pure:

    columns     what the columns of a frame are to a message
    settings    the options of a write
    target      whether a stream takes such a write
    fence       what the replay of a batch may do
    report      what came of a task, and of a batch
    bucket      a key-value bucket (ADR-8), for the fence
    guard       the fence, beside the server
    dead        rows that no stream takes
    rows        what Spark hands over, by columns
    sending     one task's rows, published
    writer      what Spark calls
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report import BatchReport as BatchReport, TaskReport as TaskReport
    from .writer import (
        JetStreamStreamWriter as JetStreamStreamWriter,
        JetStreamWriter as JetStreamWriter,
    )

_HOMES = {
    "BatchReport": "report",
    "TaskReport": "report",
    "JetStreamStreamWriter": "writer",
    "JetStreamWriter": "writer",
}

__all__ = ["BatchReport", "JetStreamStreamWriter", "JetStreamWriter", "TaskReport"]


def __getattr__(name: str) -> Any:
    # The options of a write are also checked without PySpark.
    if home := _HOMES.get(name):
        return getattr(import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
