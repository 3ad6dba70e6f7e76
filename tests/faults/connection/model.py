"""What each publish was told, against what the stream holds: the judge of the campaign."""

from __future__ import annotations

import threading
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from jsync import errors

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    Result = TypeVar("Result")

Outcome: TypeAlias = Literal["sent", "acked", "absent", "maybe"]

ABSENT = (
    errors.APIError,
    errors.NoStreamResponseError,
    errors.MaxPayloadError,
)
"""The errors of a publish after which the message is not stored."""
MAYBE = (errors.TimeoutError, errors.ConnectionError)
"""Those after which it may be stored."""
SLACK = 30.0
"""Seconds after its timeout in which a call may return on a busy machine."""


@dataclass
class Record:
    """A message of a writer, and what the writer was told of it."""

    outcome: Outcome = "sent"
    sequence: int = 0


class Model:
    """What writers know of their messages. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, list[Record]] = {}
        self._calls: dict[int, tuple[str, float]] = {}
        self.faults: list[str] = []
        """What was wrong, in words."""
        self.counts: Counter[str] = Counter()

    def wrong(self, words: str) -> None:
        with self._lock:
            self.faults.append(words)

    def count(self, name: str) -> None:
        with self._lock:
            self.counts[name] += 1

    # Calls ----------------------------------------------------------------------------

    def call(self, name: str, timeout: float, function: Callable[[], Result]) -> Result:
        """Return the result of a call, which ends by its timeout or is a fault."""
        begun = time.monotonic()
        me = threading.get_ident()
        self._calls[me] = name, begun + timeout + SLACK
        try:
            return function()
        finally:
            del self._calls[me]
            late = time.monotonic() - begun - timeout
            if late > SLACK:
                self.wrong(f"{name} ended {late:.1f} s after its timeout")

    def hanging(self) -> list[str]:
        """Return the calls that have not ended although their time is over."""
        now = time.monotonic()
        return [name for name, until in list(self._calls.values()) if until < now]

    # Messages -------------------------------------------------------------------------

    def begin(self, writer: str, rng: random.Random, size: int) -> tuple[int, bytes]:
        """Return the number and the payload of the next message of a writer."""
        with self._lock:
            records = self._records.setdefault(writer, [])
            number = len(records)
            records.append(Record())
        padding = rng.randbytes(size)
        head = f"{writer} {number} {zlib.crc32(padding)} "
        return number, head.encode() + padding

    def end(
        self, writer: str, number: int, outcome: Outcome, sequence: int = 0
    ) -> None:
        with self._lock:
            record = self._records[writer][number]
            if record.outcome != "sent":
                self.faults.append(f"{writer} {number} ended twice")
            record.outcome, record.sequence = outcome, sequence
            self.counts[f"{writer}: {outcome}"] += 1

    def unfinished(self) -> set[tuple[str, int]]:
        """Return the writers and numbers of the messages whose outcome is not known yet."""
        with self._lock:
            return {
                (writer, number)
                for writer, records in self._records.items()
                for number, record in enumerate(records)
                if record.outcome == "sent"
            }

    def failed(self, writer: str, number: int, error: BaseException) -> None:
        """Note the error of a message that was sent, or may have been."""
        if isinstance(error, ABSENT):
            self.end(writer, number, "absent")
        elif isinstance(error, MAYBE):
            self.end(writer, number, "maybe")
        else:
            self.end(writer, number, "maybe")
            self.wrong(f"{writer} {number} ended with {error!r}")

    # The judgement --------------------------------------------------------------------

    def judge_stream(self, stored: Iterable[tuple[int, bytes]]) -> None:
        """`stored` has the sequence and the payload of each message of the stream."""
        places: dict[tuple[str, int], list[int]] = {}
        for sequence, data in stored:
            name, count, checksum, padding = data.split(b" ", 3)
            if zlib.crc32(padding) != int(checksum):
                self.wrong(f"{data[:30]!r} has other bytes than were sent")
            place = name.decode(), int(count)
            places.setdefault(place, []).append(sequence)
        for writer, records in self._records.items():
            for number, record in enumerate(records):
                found = places.pop((writer, number), [])
                self._judge(f"{writer} {number}", record, found)
        if places:
            self.wrong(f"nobody has sent {list(places)[:5]}")

    def _judge(self, name: str, record: Record, found: list[int]) -> None:
        if len(found) > 1:
            self.wrong(f"{name} is stored {len(found)} times")
        if record.outcome == "sent":
            self.wrong(f"{name} never ended")
        elif record.outcome == "absent" and found:
            self.wrong(f"{name} is stored, though its error said that it is not")
        elif record.outcome == "acked" and not found:
            self.wrong(f"{name} was acknowledged as {record.sequence}, and is lost")
        elif record.outcome == "acked" and record.sequence not in (0, *found):
            self.wrong(f"{name} is {found}, not {record.sequence} as acknowledged")

    def judge_order(self, writer: str) -> None:
        """A writer waits for each ack, so its acknowledged messages are stored in order."""
        acked = [r.sequence for r in self._records[writer] if r.outcome == "acked"]
        if acked != sorted(acked):
            self.wrong(f"{writer} is stored in another order than it was sent")

    def judge_batches(
        self, writer: str, size: int, stored: Iterable[tuple[int, bytes]]
    ) -> None:
        """All messages of a batch of a writer are stored in a row, or none is."""
        batches: dict[int, list[tuple[int, int]]] = {}
        for sequence, data in stored:
            words = data.split(b" ", 2)
            if words[0] == writer.encode():
                number = int(words[1])
                batch = batches.setdefault(number // size, [])
                batch.append((sequence, number % size))
        for number, places in batches.items():
            first = places[0][0]
            if places != [(first + i, i) for i in range(size)]:
                self.wrong(f"batch {number} of {writer} is stored as {places}")

    def judge(self) -> None:
        print(dict(sorted(self.counts.items())))  # noqa: T201 (shown if it fails)
        assert not self.faults, "\n".join(self.faults[:20])
