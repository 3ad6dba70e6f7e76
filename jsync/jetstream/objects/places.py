"""Where in a stream the chunks of an object are: found by few questions.

The chunks of an object have one subject, and no number of their own. A chunk is known by
how many follow it, which the server says, or by its sequence if no other message can stand
between.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

from typing import NamedTuple

NEAR = 4
"""Chunks that are rather read and dropped than looked for."""


class Place(NamedTuple):
    """The chunk `number`, from 0, is at stream sequence `sequence`, or a bound before it."""

    number: int
    sequence: int


class Places:
    """What is known of the sequences of `chunks` chunks, all below `end`.

    They rise. So between a chunk at `low` and the bound `high` each chunk has a least and a
    greatest sequence. `trusted` says whether to believe how many chunks follow one: a
    replica that is behind the leader does not know them all. A mirror that answers may be
    behind as well, or hold only some messages, so only a count that fits is believed of it.
    """

    def __init__(self, chunks: int, end: int, *, trusted: bool) -> None:
        self._chunks = chunks
        self._trusted = trusted
        self._end = end
        self._first: Place | None = None
        self._low: Place | None = None
        self._high = Place(chunks, end)
        self._asked = 0

    def begin(self, index: int) -> None:
        """Begin to look for a chunk."""
        self._asked = 0
        if self._low is not None and self._low.number >= index:
            self._low = self._first
        self._high = Place(self._chunks, self._end)

    def guess(self, index: int) -> int:
        """The sequence to ask from for a chunk: what comes first there is told to `saw`."""
        low = self._low
        if index == 0 or low is None:
            return 1
        if low.number == index - 1:
            return low.sequence + 1
        if not self._is_sure(index):
            return low.sequence + 1
        least, most = self._bounds(low, index)
        self._asked += 1
        if least >= most or self._asked == 1:
            return most
        return least if self._asked == 2 else (least + most) // 2

    def saw(
        self,
        asked: int,
        sequence: int,
        following: int,
        index: int,
        *,
        own: bool = True,
    ) -> int | None:
        """A chunk has come at or behind `asked`, with so many behind it, for `index`.

        Args:
            asked: The sequence that was asked from.
            sequence: That of the chunk.
            following: How many chunks there are behind it.
            index: The chunk that is looked for.
            own: Whether the stream of the store has answered, and no mirror of it.

        Returns:
            Which chunk it is; None: chunks are missing.
        """
        low = self._low
        if asked == 1:
            found = 0
        elif low is not None and asked == low.sequence + 1:
            found = low.number + 1
        elif self._trusted and own:
            found = self._chunks - 1 - following
        elif not self._trusted and sequence == asked:
            found = index  # the offset can be in no other chunk
        else:
            return None
        if found < 0 or not self._fits(found, following, own):
            return None
        if found > index:
            self._high = Place(found, asked)
        else:
            self._read(found, sequence)
        return found

    def followed(
        self, sequence: int, following: int, *, own: bool = True
    ) -> int | None:
        """The chunk behind the last one has come: which one it is; None as with `saw`."""
        index = 0 if self._low is None else self._low.number + 1
        if not self._fits(index, following, own):
            return None
        self._read(index, sequence)
        return index

    def _fits(self, index: int, following: int, own: bool) -> bool:
        """Whether as many chunks follow as should; all of them are known by the first."""
        expected = self._chunks - 1 - index
        if following == expected:
            return True
        return own and not self._trusted and index > 0 and expected > 0

    def nothing(self, asked: int) -> bool:
        """No chunk is at or behind `asked`; whether the chunk may be elsewhere."""
        self._high = Place(self._chunks, asked)
        return self._low is not None and asked > self._low.sequence + 1

    def leads_to(self, found: int, index: int) -> bool:
        """Whether to read on from the chunk that was found to the one looked for."""
        if found > index:
            return False
        return index - found <= NEAR or not self._is_sure(index)

    def _is_sure(self, index: int) -> bool:
        """Whether `guess` can do better than to read on."""
        if self._trusted or self._low is None:
            return True
        least, most = self._bounds(self._low, index)
        return least == most

    def _read(self, index: int, sequence: int) -> None:
        self._low = Place(index, sequence)
        if index == 0:
            self._first = self._low

    def _bounds(self, low: Place, index: int) -> tuple[int, int]:
        """The least and the greatest sequence that the chunk may have."""
        least = low.sequence + index - low.number
        return least, max(least, self._high.sequence - (self._high.number - index))

    def __repr__(self) -> str:
        return f"<Places of {self._chunks} chunks from {self._low} to {self._high}>"
