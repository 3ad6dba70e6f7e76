"""Where an ingest was left off, as the stream tells.

A stream forgets ids after its `duplicate_window`, but not where its messages come from:
their ids stay with them. Rows are stored in their order, so that the last message of a
file says that all before it are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from jsync.errors import ConfigError, MessageNotFoundError

from .ids import Place, place_of

if TYPE_CHECKING:
    from collections.abc import Collection

    import jsync

    from .files import Source
    from .rows import Row

_FIRST_LOOK: Final = 5_000
"""Messages at the end of the stream that are looked at first; then ten times as many."""
_ID: Final = "Nats-Msg-Id"


def last_places(
    stream: jsync.Stream, subjects: str, identities: Collection[str]
) -> dict[str, Place]:
    """The last message of each of these files, of those that have any; blocks.

    From the end of the stream towards its beginning, without the payloads, until all
    have been found.
    """
    state = stream.info().state
    missing, found = set(identities), dict[str, Place]()
    end, look = state.last_seq, _FIRST_LOOK
    while missing and end >= state.first_seq and state.messages:
        start = max(state.first_seq, end - look + 1)
        places = _places(stream, subjects, start, end, missing)
        found |= places
        missing -= places.keys()
        end, look = start - 1, look * 10
    return found


def _places(
    stream: jsync.Stream, subjects: str, start: int, end: int, wanted: Collection[str]
) -> dict[str, Place]:
    places: dict[str, Place] = {}
    consumer = stream.ordered_consumer(
        filter_subjects=subjects, opt_start_seq=start, headers_only=True
    )
    with consumer.messages(until_end=True) as messages:
        for msg in messages:
            if msg.metadata.stream_sequence > end:
                break
            place = place_of(msg.headers.get(_ID) or "") if msg.headers else None
            if place is not None and place.identity in wanted:
                places[place.identity] = place
    return places


def last_id(stream: jsync.Stream, subjects: str) -> str | None:
    """The id of the last message on these subjects; None when there is no message. Blocks."""
    try:
        message = stream.get_message(last_by_subject=subjects, direct=False)
    except MessageNotFoundError:
        return None
    return (message.headers and message.headers.get(_ID)) or ""


class Resume(Protocol):
    """Which rows are left out."""

    def skips(self, source: Source, row: Row, msg_id: str | None) -> bool:
        """Whether the stream has it."""

    def ended(self, source: Source) -> None:
        """Raise `ConfigError` when a source cannot be what was ingested."""


class FromStart:
    """Nothing is left out."""

    def skips(self, source: Source, row: Row, msg_id: str | None) -> bool:
        return False

    def ended(self, source: Source) -> None:
        pass


class BehindPlaces:
    """Goes on behind the last line of each file that the stream has."""

    def __init__(self, places: dict[str, Place]) -> None:
        self._places = places
        self._reached: set[str] = set()

    def skips(self, source: Source, row: Row, msg_id: str | None) -> bool:
        place = self._places.get(source.identity or "")
        if place is None or row.number > place.number:
            self._check(source, place)
            return False
        if row.number == place.number:
            if msg_id is None or place_of(msg_id) != place:
                raise ConfigError(
                    f"resume: {source.unit} {row.number} of {source.name} is not the row "
                    "that was ingested: use the same file and options as before"
                )
            self._reached.add(place.identity)
        return True

    def ended(self, source: Source) -> None:
        self._check(source, self._places.get(source.identity or ""))

    def _check(self, source: Source, place: Place | None) -> None:
        if place is not None and place.identity not in self._reached:
            raise ConfigError(
                f"resume: {source.name} has no {source.unit} {place.number}, which was "
                "ingested: use the same file and options as before"
            )


class BehindId:
    """Goes on behind the row with an id, in whichever file that is."""

    def __init__(self, msg_id: str) -> None:
        self._id = msg_id
        self.found = False

    def skips(self, source: Source, row: Row, msg_id: str | None) -> bool:
        if self.found:
            return False
        self.found = msg_id == self._id
        return True

    def ended(self, source: Source) -> None:
        pass

    def check(self) -> None:
        """At the end of all files: raise when there was no such row."""
        if not self.found:
            raise ConfigError(
                f"resume: the last message of the stream has the id {self._id!r}, which "
                "no row has: nothing was sent"
            )
