"""Writing a DataFrame into streams.

The map, lowest first:

    columns       the columns of a frame, as parts of a message (pure)
    entries       changes of the keys of a bucket, as messages
    options       the options of a write
    target        checks of the stream that is written
    fence_state   the decisions about the replay of a batch (pure)
    report        the results of a task, and of a batch
    bucket        a key-value bucket (ADR-8), for the fence
    batch_fence   the fence, with its entries on the server
    dead_letters  rows that no stream takes
    message_ids   the ids of a task's messages, each of which is unique
    rows          the rows of Spark as record batches
    publishers    the publishing of one task's rows
    writer        the writers that Spark calls
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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


if not TYPE_CHECKING:  # a type checker reads the imports above

    def __getattr__(name: str) -> object:
        # The options of a write are also checked without PySpark, so import it only on use.
        if home := _HOMES.get(name):
            return getattr(import_module(f".{home}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
