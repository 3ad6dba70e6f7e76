"""Which rows a resumed ingest leaves out, and which it sends.

A row that the stream does not hold is sent, even if the stream holds later ones: it was
rejected, or lost. `stored` says why only the last rows need to be looked for.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from jsync.errors import ConfigError

from .ids import Place, place_of
from .stored import WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .files import Source
    from .rows import Row
    from .stored import Backwards, StoredIds, StoredPlaces


class Sending(NamedTuple):
    """A row with its subject and its message id."""

    source: Source
    row: Row
    subject: str
    msg_id: str | None


class Resume(Protocol):
    """Chooses the rows to send."""

    def choose(self, sending: Sending) -> Iterator[Sending | None]:
        """Yield the rows to send now. None waits until all rows before it are stored."""

    def end_file(self, source: Source) -> None:
        """Raise `ConfigError` when a file cannot be what was ingested."""

    def end(self) -> None:
        """Raise `ConfigError` when the files together cannot be what was ingested."""


class BehindPlaces:
    """Continues in each file after its last stored row, and sends missing rows before it."""

    def __init__(
        self, backwards: Backwards, places: Mapping[str, StoredPlaces]
    ) -> None:
        self._backwards = backwards
        self._places = dict(places)
        """Of the files whose last stored row has not come yet."""
        self._missing: list[tuple[int, Sending]] = []

    def choose(self, sending: Sending) -> Iterator[Sending | None]:
        identity, number, content = self._place(sending)
        places = self._places.get(identity)
        if places is None:
            yield sending
        elif stored := places.contents_of(number):
            if content not in stored:
                raise ConfigError(
                    f"resume: {sending.source.unit} {sending.row.number} of "
                    f"{sending.source.name} is not the row that was ingested: use the same "
                    "file and options as before"
                )
            if number == places.last:
                yield from self._send_missing(places)
                del self._places[identity]
        elif number > places.last:
            raise self._changed(sending.source, places)
        elif not places.is_before(number):
            self._missing.append((number, sending))

    def _place(self, sending: Sending) -> Place:
        msg_id = sending.msg_id
        place = None if msg_id is None else place_of(msg_id)
        content = "" if place is None else place.content
        return Place(sending.source.identity or "", sending.row.number, content)

    def _send_missing(self, places: StoredPlaces) -> Iterator[Sending | None]:
        """Yield the missing rows that the stream would hold now, had they been stored."""
        chosen: list[Sending] = []
        later: Counter[str] = Counter()
        for number, sending in reversed(self._missing):
            if not self._was_removed(places, number, sending.subject, later):
                later[sending.subject] += 1
                chosen.append(sending)
        self._missing = []
        yield from reversed(chosen)
        if chosen:
            yield None

    def _was_removed(
        self, places: StoredPlaces, number: int, subject: str, later: Counter[str]
    ) -> bool:
        """Whether a limit of the stream has removed the row, or would have."""
        backwards = self._backwards
        if backwards.is_whole and backwards.limits.oldest and number < places.first:
            return True
        keeps = backwards.limits.per_subject
        if not keeps:
            return False
        behind = backwards.sequences(subject, places.sequence_before(number))
        stored = sum(not 0 < places.number_at(each) < number for each in behind)
        return stored + later[subject] >= keeps

    def end_file(self, source: Source) -> None:
        if (places := self._places.get(source.identity or "")) is not None:
            raise self._changed(source, places)

    def _changed(self, source: Source, places: StoredPlaces) -> ConfigError:
        return ConfigError(
            f"resume: {source.name} has no {source.unit} {places.last}, which was ingested: "
            "use the same file and options as before"
        )

    def end(self) -> None:
        pass


class BehindRows(BehindPlaces):
    """The same for ids of columns, which do not tell their place: the rows are numbered.

    The files count as one.
    """

    def __init__(
        self, backwards: Backwards, places: StoredPlaces, before: Mapping[str, int]
    ) -> None:
        """`before` has the rows in front of each file."""
        super().__init__(backwards, {"": places})
        self._before = before

    def _place(self, sending: Sending) -> Place:
        number = self._before[sending.source.name] + sending.row.number
        return Place("", number, sending.msg_id or "")

    def end_file(self, source: Source) -> None:
        pass


class BehindIds:
    """Continues with the rows whose ids the stream does not hold, of rows that come only once.

    The rows before the first one that the stream holds are stored, too, if the ids reach far
    enough back.
    """

    def __init__(self, backwards: Backwards, stored: StoredIds) -> None:
        self._backwards = backwards
        self._stored = stored
        self._before: deque[Sending] = deque(maxlen=WINDOW + 1)
        """The last rows before the first one that the stream holds."""
        self._rows = 0
        """The rows since the first one that the stream holds."""
        self._span = 0
        """The rows from that one to the last one that the stream holds."""
        self._sent = False

    def choose(self, sending: Sending) -> Iterator[Sending | None]:
        if sending.msg_id in self._stored.ids:
            if not self._rows:
                yield from self._missing()
            self._rows += 1
            self._span = self._rows
            if self._sent:
                self._sent = False
                yield None  # the rows sent so far were missing
        elif self._rows:
            self._rows += 1
            self._sent = True
            yield sending
        else:
            self._before.append(sending)

    def _missing(self) -> Iterator[Sending]:
        """The rows before the first stored one, if they were never stored for sure."""
        before, self._before = self._before, deque()
        if not before or not self._backwards.is_whole or self._backwards.limits.oldest:
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
        if not self._backwards.is_whole and self._span < WINDOW:
            raise too_few_rows()


def none_of(stored: StoredIds) -> ConfigError:
    """The error when no row of the files is in the stream."""
    return ConfigError(
        f"resume: the last message of the stream has the id {stored.last!r}, which no row "
        "has: nothing was sent"
    )


def too_few_rows() -> ConfigError:
    """The error when the end of the stream does not show which rows are missing."""
    return ConfigError(
        "resume: messages of others fill the end of the stream, so rows before the last stored "
        "ones may be missing. Repeat the ingest without --resume"
    )
