"""Updates of the rows of a table by their keys, with SQL's MERGE."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.sql import (
    Window,
    functions as F,  # noqa: N812 (Spark's own name for it)
)

from .merge_statement import DELETES, merge_statement, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from .config import FormatSink

_RANK = "_jsync_rank"


def check_merge(view: DataFrame, sink: FormatSink) -> None:
    """Let Spark analyze the columns and the condition of a merge, before any row is read.

    Raises `AnalysisException` if one of them is not valid.
    """
    assert sink.sequence_by is not None
    view.select(*map(quoted, [*sink.merge_on, sink.sequence_by]))
    if sink.delete_when is not None:
        view.filter(F.expr(sink.delete_when))


def merger(sink: FormatSink) -> Callable[[DataFrame, int], None]:
    """Return a function that merges each micro-batch into the table of a sink.

    A merge is one transaction, and a micro-batch that is merged again changes nothing. The
    table is created if it is missing.
    """
    made: list[str] = []

    def merge(rows: DataFrame, _batch: int) -> None:
        session = rows.sparkSession
        if not made:
            made.append(_ensure_table(rows, sink))
        name = f"jsync_{uuid.uuid4().hex}"
        _newest(rows, sink).createOrReplaceTempView(name)
        try:
            session.sql(merge_statement(sink, made[0], name, rows.columns))
        finally:
            session.catalog.dropTempView(name)

    return merge


def _newest(rows: DataFrame, sink: FormatSink) -> DataFrame:
    """Return the newest row of each key, and whether it deletes."""
    assert sink.sequence_by is not None
    newest_first = F.col(quoted(sink.sequence_by)).desc_nulls_last()
    keys = Window.partitionBy(*map(quoted, sink.merge_on)).orderBy(newest_first)
    deletes = F.lit(False)
    if sink.delete_when is not None:
        deletes = F.coalesce(F.expr(sink.delete_when).cast("boolean"), F.lit(False))
    ranked = rows.withColumn(DELETES, deletes).withColumn(
        _RANK, F.row_number().over(keys)
    )
    return ranked.filter(F.col(_RANK) == 1).drop(_RANK)


def _ensure_table(rows: DataFrame, sink: FormatSink) -> str:
    """Create the table if it is missing. Return its name in SQL."""
    session = rows.sparkSession
    empty = session.createDataFrame([], rows.schema)
    writer = empty.write.format(sink.format).mode("ignore").options(**sink.options)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.table is not None:
        writer.saveAsTable(sink.table)
        return sink.table
    assert sink.path is not None
    writer.save(sink.path)
    return f"{sink.format}.{quoted(sink.path)}"
