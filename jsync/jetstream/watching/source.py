"""The stream that is watched: the last message of each subject is an entry.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...errors import StreamNotFoundError

Item = TypeVar("Item")
"""The type of entries for the reader of a watch."""


class StoredEntry(Protocol):
    """An entry in the form of the stream."""

    @property
    def revision(self) -> int:
        """The stream sequence of the entry."""

    @property
    def delta(self) -> int:
        """The number of entries that follow."""

    @property
    def operation(self) -> str:
        """`PUT`, or the operation of a delete marker."""


class WatchSource(Protocol[Item]):
    """A stream in which the last message of each subject is an entry."""

    @property
    def make(self) -> Callable[..., Any]:
        """The callable that makes a `StoredEntry` from its fields, which are keywords."""

    @property
    def stream(self) -> str:
        """The name of the stream."""

    @property
    def bucket(self) -> str:
        """The name of the bucket or the store for users."""

    @property
    def prefix(self) -> str:
        """The prefix of the subjects of entries."""

    def filters(self, keys: tuple[str, ...], /) -> list[str]:
        """Return the subjects of keys or patterns, or of all keys if none are given."""

    def decoder(
        self, *, bare: bool, ignore_deletes: bool
    ) -> Callable[[Any], Item | None] | None:
        """Make the function that decodes an entry, which has no payload if `bare`.

        Returns None if entries need no decoding. The decoder raises `CodecError`, and returns
        None for a delete marker that is to be left out and that `operation` does not show.
        """

    def label(self, entry: Item, /) -> str:
        """Return the name of an entry for an error."""

    def not_found_error(self) -> StreamNotFoundError:
        """Make the error for a stream that does not exist."""
