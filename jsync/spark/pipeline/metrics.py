"""What Spark counts of a batch write: its rows, and the malformed messages it dropped.

Spark's `Observation` counts for the first of several sinks only, and a caller waits for ever
for one that Spark has optimized away. A listener is told of every write.
"""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)

from .progress import MALFORMED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS: Final = "jsync rows"
_LONGEST: Final = 30.0
"""Seconds that Spark may take to tell the metrics of a write that has ended."""


class Counts(NamedTuple):
    rows: int | None
    malformed: int | None


UNKNOWN: Final = Counts(None, None)


class BatchMetrics:
    """The listener of one session, for as long as that lasts: Python cannot remove it."""

    def __init__(self, spark: SparkSession) -> None:
        self._told = threading.Condition()
        self._counts: dict[str, Counts | None] = {}
        ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
        spark._jsparkSession.listenerManager().register(self)

    def counted(self, frame: DataFrame) -> tuple[DataFrame, str]:
        """Have the rows of a write counted; return them with the key of their counts."""
        key = f"{_ROWS} {uuid.uuid4().hex}"
        with self._told:
            self._counts[key] = None
        return frame.observe(key, F.count(F.lit(1)).alias("rows")), key

    def counts(self, key: str) -> Counts:
        """What was counted of a write that has ended; blocks until Spark tells it."""
        with self._told:
            self._told.wait_for(lambda: self._counts[key] is not None, _LONGEST)
            return self._counts.pop(key) or UNKNOWN

    def onSuccess(self, _function: str, execution: Any, _nanoseconds: int) -> None:
        metrics = execution.observedMetrics()
        names, found = metrics.keysIterator(), {}
        while names.hasNext():
            name = names.next()
            if name.startswith((_ROWS, f"{MALFORMED} ")):
                row = metrics.apply(name)
                found[name] = 0 if row.isNullAt(0) else row.getLong(0)
        with self._told:
            for key in self._counts.keys() & found.keys():
                dropped = [n for name, n in found.items() if not name.startswith(_ROWS)]
                self._counts[key] = Counts(found[key], sum(dropped))
            self._told.notify_all()

    def onFailure(self, _function: str, _execution: Any, _error: Any) -> None:
        """The write raises it."""

    class Java:
        implements = ("org.apache.spark.sql.util.QueryExecutionListener",)


_listening: WeakKeyDictionary[SparkSession, BatchMetrics] = WeakKeyDictionary()


def metrics_of(spark: SparkSession) -> BatchMetrics:
    """The listener of a session, which is registered at the first call."""
    found = _listening.get(spark)
    if found is None:
        found = _listening[spark] = BatchMetrics(spark)
    return found
