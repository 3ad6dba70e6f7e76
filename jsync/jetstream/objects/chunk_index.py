"""The sequences of an object's chunks in the stream, found with few requests.

The chunks of an object share one subject, and carry no number. The number of a chunk follows
from the count of later chunks, which the server reports, or from its sequence if no other
message can be in between.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

from typing import NamedTuple

SCAN_LIMIT = 4
"""The most chunks that are read and dropped, because a search would cost more."""


class ChunkPosition(NamedTuple):
    """The number of a chunk, from 0, with its stream sequence or an upper bound of it."""

    number: int
    sequence: int


class ChunkIndex:
    """The known sequences of `chunks` chunks, all below `end`.

    Sequences rise with the number. So between a known chunk and the bound above it, each
    chunk has a least and a greatest possible sequence. `trusted` is whether the count of the
    chunks that follow is reliable: a replica that is behind the leader does not know them all.
    A mirror may be behind as well, or hold only some messages, so its count is used only if it
    fits.
    """

    def __init__(self, chunks: int, end: int, *, trusted: bool) -> None:
        self._chunks = chunks
        self._trusted = trusted
        self._end = end
        self._first: ChunkPosition | None = None
        self._low: ChunkPosition | None = None
        self._high = ChunkPosition(chunks, end)
        self._probes = 0

    def start(self, index: int) -> None:
        """Begin the search for a chunk."""
        self._probes = 0
        if self._low is not None and self._low.number >= index:
            self._low = self._first
        self._high = ChunkPosition(self._chunks, self._end)

    def next_probe(self, index: int) -> int:
        """Choose the sequence to request next. The first chunk found there goes to `observe`."""
        low = self._low
        if index == 0 or low is None:
            return 1
        if low.number == index - 1:
            return low.sequence + 1
        if not self._is_exact(index):
            return low.sequence + 1
        lower, upper = self._bounds(low, index)
        self._probes += 1
        if lower >= upper or self._probes == 1:
            return upper
        return lower if self._probes == 2 else (lower + upper) // 2

    def observe(
        self, probe: int, sequence: int, following: int, index: int, *, own: bool = True
    ) -> int | None:
        """Record the first chunk that a request has found, and work out its number.

        Args:
            asked: The first sequence of the request.
            sequence: The sequence of the chunk.
            following: The number of chunks that follow it.
            index: The number of the wanted chunk.
            own: True if the stream of the store has answered, False if a mirror has.

        Returns:
            The number of the chunk that was found. None: chunks are missing.
        """
        low = self._low
        if probe == 1:
            found = 0
        elif low is not None and probe == low.sequence + 1:
            found = low.number + 1
        elif self._trusted and own:
            found = self._chunks - 1 - following
        elif not self._trusted and sequence == probe:
            found = index  # the offset can be in no other chunk
        else:
            return None
        if found < 0 or not self._fits(found, following, own):
            return None
        if found > index:
            self._high = ChunkPosition(found, probe)
        else:
            self._read(found, sequence)
        return found

    def observe_next(
        self, sequence: int, following: int, *, own: bool = True
    ) -> int | None:
        """Record the chunk after the last one. Return its number, or None as `observe` does."""
        index = 0 if self._low is None else self._low.number + 1
        if not self._fits(index, following, own):
            return None
        self._read(index, sequence)
        return index

    def _fits(self, index: int, following: int, own: bool) -> bool:
        """Return whether the count of following chunks fits the number of a chunk.

        A replica that lags may count fewer, so a wrong count between the first and the last
        chunk is no fault there. The first chunk must have the right count from any server.
        """
        expected = self._chunks - 1 - index
        if following == expected:
            return True
        return own and not self._trusted and index > 0 and expected > 0

    def observe_none(self, probe: int) -> bool:
        """Record that no chunk is at or after `probe`. False: the chunk is missing."""
        self._high = ChunkPosition(self._chunks, probe)
        return self._low is not None and probe > self._low.sequence + 1

    def should_scan(self, found: int, index: int) -> bool:
        """Return whether to read on from the found chunk to the wanted one."""
        if found > index:
            return False
        return index - found <= SCAN_LIMIT or not self._is_exact(index)

    def _is_exact(self, index: int) -> bool:
        """Return whether `next_probe` can find the chunk faster than reading on would."""
        if self._trusted or self._low is None:
            return True
        lower, upper = self._bounds(self._low, index)
        return lower == upper

    def _read(self, index: int, sequence: int) -> None:
        self._low = ChunkPosition(index, sequence)
        if index == 0:
            self._first = self._low

    def _bounds(self, low: ChunkPosition, index: int) -> tuple[int, int]:
        """Return the least and the greatest sequence that the chunk may have."""
        lower = low.sequence + index - low.number
        return lower, max(lower, self._high.sequence - (self._high.number - index))

    def __repr__(self) -> str:
        return f"<ChunkIndex of {self._chunks} chunks from {self._low} to {self._high}>"
