"""Rows of sources into a sink, one after the other, with what became of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jsync.errors import InvalidHeaderError, InvalidSubjectError, MaxPayloadError

from ..subjects import takes
from .bad import BadRowError, BadValueError
from .files import BROKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from .files import Source
    from .ids import Ids
    from .resume import Resume
    from .rows import Row, Rows
    from .sinks import Sink
    from .template import SubjectTemplate


_BAD: Final = (BadValueError, MaxPayloadError, InvalidSubjectError, InvalidHeaderError)
"""What is wrong with one row: nothing of it was sent."""


@dataclass
class Counts:
    """What became of the rows."""

    sent: int = 0
    skipped: int = 0
    """Left out since the stream has them: `--resume`."""
    bad: int = 0
    """Left out since they cannot be read or sent: `--skip-bad`."""
    stored: int = 0
    bytes: int = 0
    """Of the messages, without subjects and headers."""


class Load:
    """One ingest: call `run` for each source, then `finish`."""

    def __init__(
        self,
        sink: Sink,
        template: SubjectTemplate,
        subjects: list[str],
        resume: Resume,
        on_bad: Callable[[BadRowError], None],
    ) -> None:
        self._sink = sink
        self._template = template
        # If the stream accepts every subject of the template, do not check each row.
        self._subjects = [] if takes(subjects, template.filter) else subjects
        self._taken: set[str] = set()
        self._resume = resume
        self._on_bad = on_bad
        self.counts = Counts()
        self.source: Source | None = None
        """What is being read."""
        self.last: tuple[Source, int] | None = None
        """The last row that is known to be stored: all before it are stored."""
        self._under_way: deque[tuple[Source, int]] = deque()

    def run(self, rows: Rows, ids: Ids | None) -> None:
        """Send the rows of a source; returns before all of them are stored.

        Raises `BadRowError`, unless `on_bad` swallows it, and what ends the sink.
        """
        self.source = source = rows.source
        iterator = iter(rows)
        while True:
            try:
                row = next(iterator, None)
            except BROKEN as error:
                raise BadRowError(f"{source.name} is damaged: {error}") from error
            if row is None:
                break
            if isinstance(row, BadRowError):
                self._bad(row)
                continue
            try:
                msg_id = None if ids is None else ids.of(row)
                subject = self._subject(row)
                if self._resume.skips(source, row, msg_id):
                    self.counts.skipped += 1
                else:
                    self._send(source, row, subject, msg_id)
            except _BAD as error:
                self._bad(source.bad_row(row.number, str(error)))
        self._resume.ended(source)

    def _subject(self, row: Row) -> str:
        subject = self._template.fill(row.fields)
        if self._subjects and subject not in self._taken:
            if not takes(self._subjects, subject):
                raise BadValueError(
                    f"the stream does not take {subject!r}; it takes "
                    f"{', '.join(self._subjects)}"
                )
            self._taken.add(subject)
        return subject

    def _send(self, source: Source, row: Row, subject: str, msg_id: str | None) -> None:
        counts = self.counts
        # Record the row before it is sent, so that Ctrl-C in between loses no row.
        self._under_way.append((source, row.number))
        try:
            self._sink.add(subject, row.data, msg_id)
        except _BAD:
            self._under_way.pop()
            raise
        counts.sent += 1
        counts.bytes += len(row.data)
        if counts.sent & 0xFF == 0:
            self.settle()

    def _bad(self, error: BadRowError) -> None:
        self._on_bad(error)
        self.counts.bad += 1

    def settle(self) -> None:
        """Look at how much is stored."""
        stored = self._sink.stored
        while self.counts.stored < stored and self._under_way:
            self.last = self._under_way.popleft()
            self.counts.stored += 1

    def finish(self) -> None:
        """Block until all that was sent is stored; raises for what is not."""
        try:
            self._sink.close()
        finally:
            self.settle()

    def give_up(self) -> None:
        """End without waiting; what is known to be stored is."""
        self._sink.abandon()
        self.settle()
