"""The MERGE statement of a sink. Pure, and without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .config import FormatSink

DELETES: Final = "_jsync_deletes"
"""The column that says whether a row deletes its key."""


def merge_statement(
    sink: FormatSink, target: str, source: str, columns: Sequence[str]
) -> str:
    """Return the MERGE statement."""
    assert sink.sequence_by is not None
    on = " and ".join(
        f"target.{key} <=> source.{key}" for key in map(quoted, sink.merge_on)
    )
    order = quoted(sink.sequence_by)
    newer = f"(target.{order} is null or source.{order} >= target.{order})"
    names = list(map(quoted, columns))
    updates = ", ".join(f"{name} = source.{name}" for name in names)
    values = ", ".join(f"source.{name}" for name in names)
    # Names are quoted, and the target and the condition are the user's.
    lines = [
        f"merge into {target} as target using {source} as source on {on}",
        f"when matched and {newer} and source.{DELETES} then delete",
        f"when matched and {newer} then update set {updates}",
        f"when not matched and not source.{DELETES} then "  # noqa: S608
        f"insert ({', '.join(names)}) values ({values})",
    ]
    return "\n".join(lines)


def quoted(name: str) -> str:
    """Quote a name for Spark's SQL."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
