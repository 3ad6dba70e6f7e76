"""Rows of several sources into a sink, with counts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jsync.errors import Error, InvalidHeaderError, InvalidSubjectError, MaxPayloadError
from jsync.subjects import any_covers

from .errors import BadRowError, BadValueError
from .resume import RowToSend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsync import StreamConfig

    from .files import Source
    from .message_ids import Ids
    from .resume import Resume
    from .rows import Row, Rows
    from .sinks import Sink
    from .template import SubjectTemplate


_BAD: Final = (BadValueError, MaxPayloadError, InvalidSubjectError, InvalidHeaderError)
"""The errors of one row that was not sent."""
_HEADER_SIZE: Final = len(b"NATS/1.0\r\nNats-Msg-Id: \r\n\r\n")
"""The size of the headers of a message with an empty id."""


@dataclass
class Counts:
    """The numbers of rows, by their outcome."""

    sent: int = 0
    skipped: int = 0
    """Skipped with `--resume`, because the stream has them."""
    bad: int = 0
    """Skipped with `--skip-bad`, because they cannot be read or sent."""
    stored: int = 0
    bytes: int = 0
    """The size of the payloads, without subjects and headers."""


class Load:
    """One ingest. Call `run` for each source, and then `finish`."""

    def __init__(
        self,
        sink: Sink,
        template: SubjectTemplate,
        config: StreamConfig,
        resume: Resume | None,
        on_bad: Callable[[BadRowError], None],
    ) -> None:
        self._sink = sink
        self._template = template
        subjects = config.subjects or []
        # If the stream accepts every subject of the template, do not check each row.
        self._subjects = [] if any_covers(subjects, template.filter) else subjects
        self._max_size = config.max_msg_size or -1
        self._taken: set[str] = set()
        self._resume = resume
        self._on_bad = on_bad
        self.counts = Counts()
        self.source: Source | None = None
        """The source that is being read."""
        self.last: tuple[Source, int] | None = None
        """The last row of those that are stored without a gap."""
        self._under_way: deque[tuple[Source, int]] = deque()

    @property
    def first_open(self) -> tuple[Source, int] | None:
        """The first row that was sent and is not known to be stored, if any."""
        return self._under_way[0] if self._under_way else None

    def run(self, rows: Rows, ids: Ids | None) -> None:
        """Send the rows of a source, without waiting until all of them are stored.

        Raises `BadRowError`, unless `on_bad` swallows it, and the errors of the sink.
        """
        self.source = source = rows.source
        for row in rows:
            if isinstance(row, BadRowError):
                self._bad(row)
                continue
            try:
                msg_id = None if ids is None else ids.of(row)
                sending = RowToSend(source, row, self._subject(row), msg_id)
                self._check_size(sending)
                if self._resume is None:
                    self._send(sending)
                    continue
            except _BAD as error:
                self._bad(source.bad_row(row.number, str(error)))
                continue
            # The resume may choose none, this row, or earlier rows.
            self.counts.skipped += 1
            self._send_all(self._resume.choose(sending))
        if self._resume is not None:
            self._resume.end_file(source)

    def _send_all(self, chosen: Iterable[RowToSend | None]) -> None:
        for sending in chosen:
            if sending is None:
                self._sink.flush()
                self.update_stored()
                continue
            self.counts.skipped -= 1
            try:
                self._send(sending)
            except _BAD as error:
                self._bad(sending.source.bad_row(sending.row.number, str(error)))

    def _subject(self, row: Row) -> str:
        subject = self._template.fill(row.fields)
        if self._subjects and subject not in self._taken:
            if not any_covers(self._subjects, subject):
                raise BadValueError(
                    f"the stream does not take {subject!r}; it takes "
                    f"{', '.join(self._subjects)}"
                )
            self._taken.add(subject)
        return subject

    def _check_size(self, sending: RowToSend) -> None:
        if self._max_size < 0:
            return
        size = len(sending.row.data)
        if sending.msg_id is not None:
            size += _HEADER_SIZE + len(sending.msg_id.encode(errors="replace"))
        if size > self._max_size:
            raise BadValueError(
                f"the message has {size:,} bytes; the stream takes {self._max_size:,}"
            )

    def _send(self, sending: RowToSend) -> None:
        counts = self.counts
        source, row, subject, msg_id = sending
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
            self.update_stored()

    def _bad(self, error: BadRowError) -> None:
        self._on_bad(error)
        self.counts.bad += 1

    def update_stored(self) -> None:
        """Update the number of stored rows."""
        stored = self._sink.stored
        while self.counts.stored < stored and self._under_way:
            self.last = self._under_way.popleft()
            self.counts.stored += 1

    def finish(self) -> None:
        """Block until all sent rows are stored.

        Raises the error of the sink, or `Error` if rows are not known to be stored.
        """
        try:
            self._sink.close()
        finally:
            self.update_stored()
        if self._under_way:
            raise Error(f"{len(self._under_way):,} rows are not known to be stored")

    def give_up(self) -> None:
        """End without waiting. Rows that are known to be stored still count."""
        self._sink.abandon()
        self.update_stored()
