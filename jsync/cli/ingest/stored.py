"""The rows that a stream holds, found by the ids of its messages.

Rows are sent ahead of their acks, so a row can be rejected while later rows are stored.
At most `WINDOW` rows are sent after a rejected one, and a resumed ingest sends no new
row before the missing ones are stored. So all rows further back than `WINDOW` before
the last stored one are stored, and only the last ones must be looked up one by one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from .message_ids import position_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import jsync

    from .message_ids import RowPosition

WINDOW: Final = 5_000
"""More rows than a publisher or an ingest sends ahead of the acks."""
_FIRST_READ: Final = 5_000
"""The number of messages in the first part. It grows tenfold up to `_MAX_READ`."""
_MAX_READ: Final = 100_000
_MAX_IDS: Final = 200_000
_MAX_SCANNED: Final = 2_000_000
_ID: Final = "Nats-Msg-Id"


class StoredRow(NamedTuple):
    """A message of the stream, without its payload."""

    sequence: int
    subject: str
    msg_id: str


class Limits(NamedTuple):
    """The limits by which the stream can have removed messages."""

    per_subject: int
    """The number of messages that the stream keeps of each subject. 0 means all."""
    oldest: bool
    """True if the stream removes its oldest messages, and has removed some."""

    @classmethod
    def of(cls, info: jsync.StreamInfo) -> Limits:
        config = info.config
        rejects = config.discard == "new"  # instead of removing old messages
        keeps = config.max_msgs_per_subject or 0
        if rejects and config.discard_new_per_subject:
            keeps = 0
        limits = [config.max_age]
        if not rejects:
            limits += [config.max_msgs, config.max_bytes]
        limited = any(limit is not None and limit > 0 for limit in limits)
        return cls(max(keeps, 0), limited and info.state.first_seq > 1)


class BackwardReader:
    """The ids of a stream, read from its end in parts that grow.

    Iterate over the parts. Within a part, the messages are in their order.
    """

    def __init__(self, stream: jsync.Stream, subjects: str) -> None:
        self._stream = stream
        self._subjects = subjects
        # Rows that another server does not have yet would be sent again.
        info = stream.leader_info()
        self.limits = Limits.of(info)
        self._state = info.state
        self.is_whole = not info.state.messages
        """True once the beginning of the stream has been read."""
        self._sequences: defaultdict[str, list[int]] = defaultdict(list)

    def __iter__(self) -> Iterator[list[StoredRow]]:
        first, end = self._state.first_seq, self._state.last_seq
        count = _FIRST_READ
        while not self.is_whole:
            start = max(first, end - count + 1)
            found = list(self._read(start, end))
            self.is_whole = start == first
            if self.limits.per_subject:
                sequences = defaultdict[str, list[int]](list)
                for message in found:
                    sequences[message.subject].append(message.sequence)
                for subject, numbers in sequences.items():
                    self._sequences[subject] = numbers + self._sequences[subject]
            yield found
            end, count = start - 1, min(count * 10, _MAX_READ)

    def _read(self, start: int, end: int) -> Iterator[StoredRow]:
        consumer = self._stream.ordered_consumer(
            filter_subjects=self._subjects, opt_start_seq=start, headers_only=True
        )
        with consumer.messages(until_end=True) as messages:
            for msg in messages:
                sequence = msg.metadata.stream_sequence
                if sequence > end:
                    break
                msg_id = (msg.headers.get(_ID) if msg.headers else None) or ""
                yield StoredRow(sequence, msg.subject, msg_id)

    def sequences(self, subject: str, after: int) -> list[int]:
        """Return the sequences of a subject above `after`, in the parts read so far.

        They are recorded only if the stream limits the messages of each subject.
        """
        known = self._sequences.get(subject, [])
        return known[bisect_right(known, after) :]


class StoredRows:
    """The last rows of one file that the stream holds."""

    def __init__(self, first: int) -> None:
        self.last = 0
        """The number of the last row."""
        self._first = first  # smallest possible number of a row
        self._rows: dict[int, dict[str, int]] = {}  # sequences by number and checksum
        self._reaches_back = False

    def add(self, position: RowPosition, sequence: int) -> None:
        self.last = max(self.last, position.number)
        self._rows.setdefault(position.number, {})[position.content] = sequence

    def prune(self) -> None:
        """Forget rows that are too far back to be missing."""
        limit = self.last - 2 * WINDOW
        old = [number for number in self._rows if number <= limit]
        for number in old:
            del self._rows[number]
        self._reaches_back = self._reaches_back or bool(old)

    @property
    def is_complete(self) -> bool:
        """True if it is known of every row that can be missing whether it is stored."""
        return self._reaches_back or len(self._rows) == self.last - self._first + 1

    @property
    def first(self) -> int:
        """The smallest number of a row that is stored and not forgotten."""
        return min(self._rows)

    def is_before(self, number: int) -> bool:
        """Return whether a row is too far back to be missing."""
        return number <= self.last - WINDOW

    def contents_of(self, number: int) -> Collection[str]:
        """Return the checksums of a row, none if it is not stored."""
        return self._rows.get(number, ())

    def sequence_before(self, number: int) -> int:
        """Return the sequence of a stored row before a missing one, or 0.

        A row that was itself missing, and was stored after its successors, does not
        count.
        """
        rows, smallest = self._sequences
        at = bisect_left(rows, (number, 0))
        before = (rows[index][1] for index in range(at - 1, -1, -1))
        return next((number for number in before if number < smallest[at]), 0)

    def number_at(self, sequence: int) -> int:
        """Return the number of a message's row, or 0 for a message from elsewhere."""
        return self._numbers.get(sequence, 0)

    @cached_property
    def _sequences(self) -> tuple[list[tuple[int, int]], list[float]]:
        """The number and sequence of each row, and minimums of the sequences.

        The minimum at an index is that of the row with this index and all rows after
        it.
        """
        rows = sorted(
            (number, min(found.values())) for number, found in self._rows.items()
        )
        smallest = list(
            accumulate((row[1] for row in reversed(rows)), min, initial=inf)
        )
        return rows, smallest[::-1]

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {
            sequence: number
            for number, found in self._rows.items()
            for sequence in found.values()
        }


def stored_rows(
    backwards: BackwardReader, files: Mapping[str, int]
) -> dict[str, StoredRows]:
    """Find the last stored rows of each file, and leave out files without any. Blocks.

    Reads the stream from its end towards its beginning, until all of them are known.

    Args:
        backwards: The ids of the stream.
        files: The smallest number of a row, by the identity of the file.
    """
    by_file = {identity: StoredRows(first) for identity, first in files.items()}
    for found in backwards:
        for message in found:
            position = position_of(message.msg_id)
            if position is not None and position.identity in by_file:
                by_file[position.identity].add(position, message.sequence)
        for rows in by_file.values():
            rows.prune()
        if all(rows.last and rows.is_complete for rows in by_file.values()):
            break
    return {identity: rows for identity, rows in by_file.items() if rows.last}


class StoredIds(NamedTuple):
    """The ids of the last messages of a stream, with the sequences of the messages."""

    ids: dict[str, int]
    last: str
    """The last id of the stream, empty if there is none."""


def stored_ids(backwards: BackwardReader) -> StoredIds:
    """Read the last ids of a stream. Blocks."""
    ids: dict[str, int] = {}
    looked_at = 0
    for found in backwards:
        for message in reversed(found):
            if message.msg_id:
                ids.setdefault(message.msg_id, message.sequence)
        looked_at += len(found)
        if len(ids) >= _MAX_IDS or looked_at >= _MAX_SCANNED:
            break
    return StoredIds(ids, next(iter(ids), ""))
