"""The results of a task, and of a batch: the rows that the stream has confirmed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from .fence_state import Digest, Totals, total

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class TaskReport(WriterCommitMessage):
    """The report of a task whose rows are all stored, or published as dead letters."""

    rows: int = 0
    """Rows that the task was given."""
    confirmed: int = 0
    """Rows that the stream has acknowledged: stored, or known by their ids."""
    duplicates: int | None = 0
    """Rows of `confirmed` that the stream had already. None: it does not report them."""
    dead_letters: int = 0
    collisions: int = 0
    """Rows of `duplicates` that were not stored before this query or job. They have the id of
    another row, and are lost."""
    collision_sequence: int | None = None
    """The message that has the id of the last of these rows."""
    first_sequence: int | None = None
    last_sequence: int | None = None
    """Sequences of rows that are no duplicates. Other messages may be in between."""
    skipped: bool = False
    """The fence knew that all rows are stored."""
    key: str | None = None
    """The key of the query or the job in the fence."""
    digest: Digest = field(default_factory=Digest)


@dataclass(frozen=True, kw_only=True)
class BatchReport:
    """The report of a commit."""

    rows: int
    confirmed: int
    duplicates: int | None
    dead_letters: int
    collisions: int
    first_sequence: int | None
    last_sequence: int | None
    skipped: int
    """Rows that an earlier run of the batch has stored, as the fence knew."""
    digest: Digest

    @classmethod
    def of(cls, tasks: Sequence[TaskReport]) -> BatchReport:
        duplicates = [task.duplicates for task in tasks]
        firsts = [task.first_sequence for task in tasks]
        lasts = [task.last_sequence for task in tasks]
        return cls(
            rows=sum(task.rows for task in tasks),
            confirmed=sum(task.confirmed for task in tasks),
            duplicates=(
                None if None in duplicates else sum(n for n in duplicates if n)
            ),
            dead_letters=sum(task.dead_letters for task in tasks),
            collisions=sum(task.collisions for task in tasks),
            first_sequence=min((n for n in firsts if n is not None), default=None),
            last_sequence=max((n for n in lasts if n is not None), default=None),
            skipped=sum(task.rows for task in tasks if task.skipped),
            digest=total(task.digest for task in tasks),
        )

    def __str__(self) -> str:
        parts = [f"{self.rows} rows", f"{self.confirmed} confirmed"]
        if self.duplicates:
            parts[-1] += f", {self.duplicates} of them duplicates"
        elif self.duplicates is None:
            parts[-1] += " (duplicates are not told)"
        if self.last_sequence is not None:
            first = "" if self.first_sequence is None else f"{self.first_sequence} to "
            parts.append(f"sequences {first}{self.last_sequence}")
        if self.dead_letters:
            parts.append(f"{self.dead_letters} dead letters")
        if self.collisions:
            parts.append(f"{self.collisions} dropped for an id of another row")
        if self.skipped:
            parts.append(f"{self.skipped} stored by an earlier run")
        return ", ".join(parts)

    def totals(self) -> Totals:
        """Return the counts, to be added up over batches."""
        return Totals(
            self.rows, self.duplicates or 0, self.dead_letters, self.collisions
        )

    def as_dict(self) -> dict[str, object]:
        """Return the report as the fence stores it, for people and tools."""
        found: dict[str, object] = {
            "rows": self.rows,
            "confirmed": self.confirmed,
            "duplicates": self.duplicates,
            "dead_letters": self.dead_letters,
            "first_sequence": self.first_sequence,
            "last_sequence": self.last_sequence,
        }
        if self.collisions:
            found["collisions"] = self.collisions
        return found
