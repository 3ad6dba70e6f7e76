"""The ranges and subjects to which filters narrow a batch. Pure, and only a hint.

Spark still checks each row. So a filter that is ignored here costs only time, but no row
that matches may be left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ..subjects import intersections

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SUBJECTS: Final = 100
"""The most subjects by which a consumer filters."""
CLOCK_SLACK: Final = timedelta(minutes=5)
"""A later message may have an earlier time, because the clocks of leaders differ."""
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC) + CLOCK_SLACK
_LATEST: Final = datetime.max.replace(tzinfo=UTC) - CLOCK_SLACK


@dataclass(frozen=True)
class PushedFilters:
    """The limits within which wanted rows can be. None is no limit."""

    streams: frozenset[str] | None = None
    subjects: tuple[str, ...] | None = None
    """Patterns. With an empty tuple, no row is wanted."""
    first: int = 1
    last: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    def with_filter(self, kind: str, column: str, value: Any) -> PushedFilters:
        """Return these limits with one more filter of Spark, whose class is called `kind`."""
        match column, kind, value:
            case "stream", "EqualTo", str():
                return self._in_streams([value])
            case "stream", "In", _:
                return self._in_streams(value)
            case "subject", "EqualTo", str():
                return self._of_subjects([value])
            case "subject", "In", _:
                return self._of_subjects(value)
            case "subject", "StringStartsWith", str():
                if value.endswith(".") and is_plain(value[:-1]):
                    return self._of_patterns((f"{value}>",))
            case "sequence", "In", _:
                numbers = [number for number in value if isinstance(number, int)]
                if not numbers:
                    return self
                return self._within(min(numbers), max(numbers))
            case "sequence", _, int():
                return self._sequence(kind, value)
            case "timestamp", _, datetime():
                return self._time(kind, value)
        return self

    def _in_streams(self, names: Iterable[Any]) -> PushedFilters:
        selected = frozenset(names)
        return replace(
            self, streams=selected if self.streams is None else self.streams & selected
        )

    def _of_subjects(self, selected: Iterable[Any]) -> PushedFilters:
        subjects = tuple(dict.fromkeys(selected))
        if not all(
            isinstance(subject, str) and is_plain(subject) for subject in subjects
        ):
            return self
        return self._of_patterns(subjects)

    def _of_patterns(self, patterns: tuple[str, ...]) -> PushedFilters:
        if self.subjects is not None:
            patterns = intersections(self.subjects, patterns)
        if len(patterns) > MAX_SUBJECTS:
            return self
        return replace(self, subjects=patterns)

    def _sequence(self, kind: str, value: int) -> PushedFilters:
        match kind:
            case "EqualTo":
                return self._within(value, value)
            case "GreaterThan":
                return self._within(value + 1, None)
            case "GreaterThanOrEqual":
                return self._within(value, None)
            case "LessThan":
                return self._within(1, value - 1)
            case "LessThanOrEqual":
                return self._within(1, value)
        return self

    def _within(self, first: int, last: int | None) -> PushedFilters:
        ends = [end for end in (self.last, last) if end is not None]
        return replace(self, first=max(self.first, first), last=min(ends, default=None))

    def _time(self, kind: str, value: datetime) -> PushedFilters:
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        since = until = None
        if kind in ("EqualTo", "GreaterThan", "GreaterThanOrEqual"):
            since = max(moment, _EARLIEST) - CLOCK_SLACK
        if kind in ("EqualTo", "LessThan", "LessThanOrEqual"):
            until = min(moment, _LATEST) + CLOCK_SLACK
        starts = [m for m in (self.since, since) if m is not None]
        ends = [m for m in (self.until, until) if m is not None]
        return replace(
            self, since=max(starts, default=None), until=min(ends, default=None)
        )


# Subjects -----------------------------------------------------------------------------


def is_plain(subject: str) -> bool:
    """Return whether this is one subject, without wildcards."""
    if any(c.isspace() or c == "\0" for c in subject):
        return False
    return not {"", "*", ">"} & set(subject.split("."))
