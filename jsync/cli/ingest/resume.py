"""The choice of the rows that a resumed ingest sends.

A row that the stream does not hold is sent, even if the stream holds later ones,
because it was rejected or lost. `stored` explains why only the last rows need this
check.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from jsync.errors import ConfigError

from .message_ids import RowPosition, position_of
from .stored import WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .files import Source
    from .rows import Row
    from .stored import BackwardReader, StoredIds, StoredRows


class RowToSend(NamedTuple):
    """A row with its subject and its message id."""

    source: Source
    row: Row
    subject: str
    msg_id: str | None


class Resume(Protocol):
    """A strategy that chooses the rows to send."""

    def choose(self, sending: RowToSend) -> Iterator[RowToSend | None]:
        """Yield the rows to send now, and None to wait until those are stored."""

    def end_file(self, source: Source) -> None:
        """Raise `ConfigError` if the file is not the one that was ingested."""

    def end(self) -> None:
        """Raise `ConfigError` if the files are not those that were ingested."""


class ResumeAfterPositions:
    """A resume by default ids, which contain the positions of the rows.

    It continues in each file after the last stored row. Before that, it sends the
    missing ones of the last `WINDOW` rows.
    """

    def __init__(
        self, reader: BackwardReader, file_rows: Mapping[str, StoredRows]
    ) -> None:
        self._reader = reader
        self._file_rows = dict(file_rows)
        """The files whose last stored row has not been read yet."""
        self._missing: list[tuple[int, RowToSend]] = []

    def choose(self, sending: RowToSend) -> Iterator[RowToSend | None]:
        identity, number, content = self._place(sending)
        file_rows = self._file_rows.get(identity)
        if file_rows is None:
            yield sending
        elif stored := file_rows.contents_of(number):
            if content not in stored:
                raise ConfigError(
                    f"resume: {sending.source.unit} {sending.row.number} of "
                    f"{sending.source.name} is not the row that was ingested: use the same "
                    "file and options as before"
                )
            if number == file_rows.last:
                yield from self._send_missing(file_rows)
                del self._file_rows[identity]
        elif number > file_rows.last:
            raise self._changed(sending.source, file_rows)
        elif not file_rows.is_before(number):
            self._missing.append((number, sending))

    def _place(self, sending: RowToSend) -> RowPosition:
        msg_id = sending.msg_id
        place = None if msg_id is None else position_of(msg_id)
        content = "" if place is None else place.content
        return RowPosition(sending.source.identity or "", sending.row.number, content)

    def _send_missing(self, file_rows: StoredRows) -> Iterator[RowToSend | None]:
        """Yield the missing rows that no limit of the stream would have removed."""
        chosen: list[RowToSend] = []
        later: Counter[str] = Counter()
        for number, sending in reversed(self._missing):
            if not self._was_removed(file_rows, number, sending.subject, later):
                later[sending.subject] += 1
                chosen.append(sending)
        self._missing = []
        yield from reversed(chosen)
        if chosen:
            yield None

    def _was_removed(
        self, file_rows: StoredRows, number: int, subject: str, later: Counter[str]
    ) -> bool:
        """Return whether a limit of the stream has removed the row, or would have."""
        reader = self._reader
        if reader.is_whole and reader.limits.oldest and number < file_rows.first:
            return True
        keeps = reader.limits.per_subject
        if not keeps:
            return False
        following = reader.sequences(subject, file_rows.sequence_before(number))
        stored = sum(
            not 0 < file_rows.number_at(position) < number for position in following
        )
        return stored + later[subject] >= keeps

    def end_file(self, source: Source) -> None:
        if (file_rows := self._file_rows.get(source.identity or "")) is not None:
            raise self._changed(source, file_rows)

    def _changed(self, source: Source, file_rows: StoredRows) -> ConfigError:
        return ConfigError(
            f"resume: {source.name} has no {source.unit} {file_rows.last}, which was ingested: "
            "use the same file and options as before"
        )

    def end(self) -> None:
        pass


class ResumeAfterRows(ResumeAfterPositions):
    """A resume by ids from columns, which do not contain the position of a row.

    It numbers the rows of all files as if they were one file.
    """

    def __init__(
        self, reader: BackwardReader, file_rows: StoredRows, before: Mapping[str, int]
    ) -> None:
        """Initialize. `before` has the number of rows before each file."""
        super().__init__(reader, {"": file_rows})
        self._before = before

    def _place(self, sending: RowToSend) -> RowPosition:
        number = self._before[sending.source.name] + sending.row.number
        return RowPosition("", number, sending.msg_id or "")

    def end_file(self, source: Source) -> None:
        pass


class ResumeAfterIds:
    """A resume for rows that can be read only once. It sends those whose ids are new.

    The rows before the first one that the stream holds count as stored. They are sent
    only if the whole stream was read and has removed nothing. If the ids do not reach
    far enough back, `end` raises an error.
    """

    def __init__(self, reader: BackwardReader, stored: StoredIds) -> None:
        self._reader = reader
        self._stored = stored
        self._before: deque[RowToSend] = deque(maxlen=WINDOW + 1)
        """The last rows before the first one that the stream holds."""
        self._rows = 0
        """The number of rows since the first one that the stream holds."""
        self._span = 0
        """The number of rows from that one to the last one that the stream holds."""
        self._sent = False

    def choose(self, sending: RowToSend) -> Iterator[RowToSend | None]:
        if sending.msg_id in self._stored.ids:
            if not self._rows:
                yield from self._missing()
            self._rows += 1
            self._span = self._rows
            if self._sent:
                self._sent = False
                yield None  # store these missing rows before the others
        elif self._rows:
            self._rows += 1
            self._sent = True
            yield sending
        else:
            self._before.append(sending)

    def _missing(self) -> Iterator[RowToSend]:
        """Yield the rows before the first stored one if they are surely missing."""
        before, self._before = self._before, deque()
        if not before or not self._reader.is_whole or self._reader.limits.oldest:
            return
        if len(before) > WINDOW:
            source, row, *_ = before[0]
            raise ConfigError(
                f"resume: the stream does not hold {source.unit} {row.number} of "
                f"{source.name}, but later ones: use the same file and options as before"
            )
        self._sent = True
        yield from before

    def end_file(self, source: Source) -> None:
        pass

    def end(self) -> None:
        if not self._rows:
            raise none_of(self._stored)
        if not self._reader.is_whole and self._span < WINDOW:
            raise too_few_rows()


def none_of(stored: StoredIds) -> ConfigError:
    """Return the error for files none of whose rows is in the stream."""
    return ConfigError(
        f"resume: the last message of the stream has the id {stored.last!r}, which no row "
        "has: nothing was sent"
    )


def too_few_rows() -> ConfigError:
    """Return the error for a stream whose end does not show the missing rows."""
    return ConfigError(
        "resume: messages of others fill the end of the stream, so rows before the last stored "
        "ones may be missing. Repeat the ingest without --resume"
    )
