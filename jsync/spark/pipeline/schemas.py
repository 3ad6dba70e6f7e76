"""The types of columns that are known without Spark, and the types in existing files.

Files of one folder whose types differ can no longer be read together.
"""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from . import sql
from .config import JetStreamSource
from .source_columns import column_types, source_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .config import Pipeline

_PARQUET: Final = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
    "large_binary": "binary",
    "date32[day]": "date",
}
"""The types of Spark by those of Arrow, where each has one. Timestamps have several."""


class Conflict(NamedTuple):
    """A column that existing files have in another type."""

    column: str
    stored: str
    written: str

    def __str__(self) -> str:
        return (
            f"the files there have the column {self.column} as {self.stored}, and this "
            f"writes {self.written}: write to another path, or cast the column"
        )


def known_types(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """Return the types of columns of each view, by its name in lower case.

    Sources declare their types. A step has the types of the columns that it passes on
    unchanged from one view.
    """
    views: dict[str, dict[str, str]] = {}
    for name, source in pipeline.sources.items():
        found: dict[str, str] = {}
        if isinstance(source, JetStreamSource):
            types = column_types(source)
            found = {name: types[name] for name in source_columns(source)}
        declared = source.json if isinstance(source, JetStreamSource) else source.schema
        if declared is not None:
            found |= sql.types(declared)
        views[name.lower()] = found
    for name, step in pipeline.steps.items():
        passed = None if step.unchecked else sql.passed(step.sql)
        if passed is None:
            continue
        before = views.get(passed.view.lower(), {})
        views[name.lower()] = {
            **(before if passed.all_columns else {}),
            **{
                new: kind
                for new, old in passed.columns.items()
                if old is not None and (kind := _find(before, old)) is not None
            },
        }
        for new, old in passed.columns.items():
            if old is None:
                views[name.lower()].pop(new, None)
    return views


def conflicts(
    written: Mapping[str, str], stored: Mapping[str, str]
) -> Iterator[Conflict]:
    """Yield the columns whose types are known on both sides, and differ."""
    for column, kind in written.items():
        field = _find(stored, column)
        if field is not None and field != kind:
            yield Conflict(column, field, kind)


def _find(types: Mapping[str, str], column: str) -> str | None:
    """Return the type of a column, whose name is not case-sensitive in Spark."""
    return next(
        (kind for name, kind in types.items() if name.lower() == column.lower()), None
    )


def parquet_types(path: str) -> dict[str, str]:
    """Return the types of columns in the newest Parquet file of a folder, or {}."""
    import pyarrow.parquet  # noqa: PLC0415 (only pipelines with such files need it)
    from pyarrow import ArrowException  # noqa: PLC0415

    files = [
        file
        for file in glob.glob(f"{glob.escape(path)}/**/*.parquet", recursive=True)
        if not os.path.basename(file).startswith(("_", "."))
    ]
    try:
        newest = max(files, key=os.path.getmtime, default=None)
        schema = None if newest is None else pyarrow.parquet.read_schema(newest)
    except (OSError, ArrowException):
        return {}
    found = {}
    for field in schema or ():
        kind = str(field.type)
        if kind in _PARQUET:
            found[field.name] = _PARQUET[kind]
        elif kind.startswith("decimal128("):
            found[field.name] = kind.replace("decimal128", "decimal").replace(" ", "")
    return found
