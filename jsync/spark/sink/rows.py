"""The rows of Spark as record batches, also where it passes single rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .fence_state import Digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from .columns import ColumnPlan

ROWS: Final = 10_000
"""The most rows of a batch that is made of single rows."""


def digest(batch: pa.RecordBatch, plan: ColumnPlan) -> Digest:
    """Return the fence's summary of rows, computed by whole columns."""
    import pyarrow.compute as pc  # noqa: PLC0415

    ids = batch.column(plan.names.index("msg_id"))
    data = batch.column(plan.names.index("data"))
    least = pc.min_max(ids)
    return Digest(
        batch.num_rows,
        pc.sum(pc.binary_length(data)).as_py() or 0,
        pc.sum(pc.binary_length(ids)).as_py() or 0,
        least["min"].as_py(),
        least["max"].as_py(),
    )


def as_batches(given: Iterable[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield record batches as they are, and make some of the single rows of Spark 4.0."""
    import pyarrow as pa  # noqa: PLC0415

    rows: list[Any] = []
    for one in given:
        if isinstance(one, pa.RecordBatch):
            yield one
            continue
        rows.append(one)
        if len(rows) == ROWS:
            yield _batch_of(rows, schema)
            rows = []
    if rows:
        yield _batch_of(rows, schema)


def _batch_of(rows: list[Any], schema: StructType) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    arrow = to_arrow_schema(schema)
    columns = [
        pa.array(
            [
                list(value.items()) if isinstance(value, dict) else value
                for value in values
            ],
            field.type,
        )
        for values, field in zip(zip(*rows, strict=True), arrow, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow)
