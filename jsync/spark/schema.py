"""The columns of the source, as Spark knows them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..errors import ConfigError

if TYPE_CHECKING:
    import pyarrow

COLUMNS: dict[str, DataType] = {
    "stream": StringType(),
    "subject": StringType(),
    "sequence": LongType(),
    "timestamp": TimestampType(),
    "headers": MapType(StringType(), ArrayType(StringType())),
    "data": BinaryType(),
}


def source_schema(*, include_headers: bool) -> StructType:
    """What is read when the user names no schema."""
    return StructType(
        [
            StructField(name, kind)
            for name, kind in COLUMNS.items()
            if include_headers or name != "headers"
        ]
    )


def check_schema(schema: StructType) -> None:
    """Whether the source has these columns; raises `ConfigError`."""
    if not schema.fields:
        raise ConfigError(f"no column is asked for; there are {', '.join(COLUMNS)}")
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            near = difflib.get_close_matches(field.name.lower(), COLUMNS, n=1)
            hint = f"is it {near[0]}?" if near else f"there are {', '.join(COLUMNS)}"
            raise ConfigError(f"the source has no column {field.name}: {hint}")
        if field.dataType.simpleString() != kind.simpleString():
            raise ConfigError(
                f"column {field.name} is {kind.simpleString()}, not "
                f"{field.dataType.simpleString()}: cast it after reading"
            )


def arrow_schema(schema: StructType) -> pyarrow.Schema:
    """The one schema that Spark takes for `schema`."""
    # pyarrow is loaded where rows are read, not where a data source is looked up.
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    return to_arrow_schema(schema, timezone="UTC")
