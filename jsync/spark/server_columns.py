"""The columns of the source that a server gives to each message. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

GIVEN: Final = ("stream", "sequence", "timestamp", "revision")
"""The names of these columns."""


def given_by_servers(columns: StructType) -> tuple[str, ...]:
    """Return the names among `columns` that a server gives, which no write can set."""
    return tuple(field.name for field in columns if field.name in GIVEN)
