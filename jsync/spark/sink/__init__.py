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

from .report import BatchReport, TaskReport
from .writer import JetStreamStreamWriter, JetStreamWriter

__all__ = ["BatchReport", "JetStreamStreamWriter", "JetStreamWriter", "TaskReport"]
