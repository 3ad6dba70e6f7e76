"""The columns of the source, as Spark knows them."""

from __future__ import annotations

import difflib
from inspect import signature
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
from .column_types import ENTRY_TYPES, MESSAGE_TYPES, OBJECT_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow

_DATA_TYPES = {
    kind.simpleString(): kind
    for kind in (
        *(StringType(), LongType(), TimestampType(), BinaryType()),
        MapType(StringType(), ArrayType(StringType())),
    )
}


def _columns(types: Mapping[str, str]) -> dict[str, DataType]:
    return {name: _DATA_TYPES[kind] for name, kind in types.items()}


COLUMNS = _columns(MESSAGE_TYPES)
ENTRY_COLUMNS = _columns(ENTRY_TYPES)
OBJECT_COLUMNS = _columns(OBJECT_TYPES)


def source_schema(*, include_headers: bool) -> StructType:
    """Return the columns that are read if the user gives no schema."""
    return StructType(
        [
            StructField(name, kind)
            for name, kind in COLUMNS.items()
            if include_headers or name != "headers"
        ]
    )


def bucket_schema() -> StructType:
    """Return the columns of a bucket that are read if the user gives no schema."""
    return StructType([StructField(*column) for column in ENTRY_COLUMNS.items()])


def object_schema() -> StructType:
    """Return the columns of an object store that are read if the user gives no schema."""
    return StructType([StructField(*column) for column in OBJECT_COLUMNS.items()])


def check_schema(schema: StructType, columns: Mapping[str, DataType]) -> None:
    """Raise `ConfigError` unless these columns include those of the schema."""
    if not schema.fields:
        raise ConfigError(f"no column is asked for; there are {', '.join(columns)}")
    for field in schema.fields:
        if schema.names.count(field.name) > 1:
            raise ConfigError(
                f"two columns of the schema have the name {field.name}: drop one"
            )
        kind = columns.get(field.name)
        if kind is None:
            near = difflib.get_close_matches(field.name.lower(), columns, n=1)
            hint = f"is it {near[0]}?" if near else f"there are {', '.join(columns)}"
            raise ConfigError(f"the source has no column {field.name}: {hint}")
        if field.dataType.simpleString() != kind.simpleString():
            raise ConfigError(
                f"column {field.name} is {kind.simpleString()}, not "
                f"{field.dataType.simpleString()}: cast it after reading"
            )


# A table of SQL ------------------------------------------------------------------------
#
# Spark passes the options to a Python data source only when a table is created without a
# column list. A later read of the table gets the columns alone. So the options travel in the
# metadata of the first column.

_METADATA = "jetstream.options"


def table_options(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being created, or None without a table."""
    if "provider" not in given:
        return None
    prefix = "option."
    return {
        name.removeprefix(prefix): value
        for name, value in given.items()
        if name.startswith(prefix)
    }


def with_options(columns: StructType, options: dict[str, str]) -> StructType:
    """Return the columns of a table with its options, which people see as a comment."""
    first, *others = columns.fields
    shown = ", ".join(f"'{name}' '{value}'" for name, value in sorted(options.items()))
    noted = StructField(
        first.name,
        first.dataType,
        first.nullable,
        {_METADATA: options, "comment": f"using jetstream options ({shown})"},
    )
    return StructType([noted, *others])


def options_of(columns: StructType) -> dict[str, str]:
    """Return the options of the table that has these columns, or {} without a table."""
    for field in columns.fields:
        if found := (field.metadata or {}).get(_METADATA):
            return dict(found)
    return {}


# Arrow --------------------------------------------------------------------------------


def arrow_schema(schema: StructType) -> pyarrow.Schema:
    """Return the only schema of Arrow that Spark accepts for `schema`."""
    # Import pyarrow only to read rows, not to look up a data source.
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    if "timezone" not in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema)  # Spark before 4.2, which always uses UTC
    return to_arrow_schema(schema, timezone="UTC")
