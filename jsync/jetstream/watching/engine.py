"""What is watched: a stream of which the last message of a subject is an entry.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...errors import StreamNotFoundError

Item = TypeVar("Item")
"""What an entry is to the reader of a watch."""


class Stored(Protocol):
    """An entry in the form of the stream."""

    @property
    def revision(self) -> int:
        """Its stream sequence."""

    @property
    def delta(self) -> int:
        """How many entries are behind it."""

    @property
    def operation(self) -> str:
        """`PUT`, or that of a delete marker."""


class Watched(Protocol[Item]):
    """A stream of which the last message of a subject is an entry."""

    @property
    def make(self) -> Callable[..., Any]:
        """Makes a `Stored` of its fields, which are keywords."""

    @property
    def stream(self) -> str:
        """The name of the stream."""

    @property
    def bucket(self) -> str:
        """What users call it."""

    @property
    def prefix(self) -> str:
        """What the subjects of entries begin with."""

    def filters(self, keys: tuple[str, ...], /) -> list[str]:
        """The subjects of keys or patterns, of all keys when there are none."""

    def decoder(
        self, *, bare: bool, ignore_deletes: bool
    ) -> Callable[[Any], Item | None] | None:
        """Takes an entry from the form of the stream, `bare` if it has no payload.

        None if that is the form. The decoder raises `CodecError`, and returns None for a
        delete marker that is to be left out and that `operation` does not show.
        """

    def label(self, entry: Item, /) -> str:
        """What to call it in an error."""

    def gone(self) -> StreamNotFoundError:
        """The error for a stream that does not exist."""
