"""Decisions about the replay of a batch. Pure: entries and times are arguments.

Spark repeats a batch with the same id if it ended before its commit. It repeats a task that
failed, or the whole batch in another run of the query. A stream drops rows that it has
already, as long as it remembers their ids. In addition, the fence's bucket has up to three
entries for the last batch: it is stored completely (`Committed`), a run has begun it
(`BatchStarted`), and a task of this run has begun (`TaskStarted`). A commit also notes the
stream's last message, so that the next batch detects a stream that was recreated or restored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from ..fingerprint import StreamFingerprint  # noqa: TC001 (msgspec reads the annotation)

if TYPE_CHECKING:
    from collections.abc import Iterable


class Digest(msgspec.Struct, frozen=True):
    """A summary of rows that does not depend on their order and partitions."""

    rows: int = 0
    data_bytes: int = 0
    id_bytes: int = 0
    least_id: str | None = None
    greatest_id: str | None = None

    def __add__(self, other: Digest) -> Digest:
        return Digest(
            self.rows + other.rows,
            self.data_bytes + other.data_bytes,
            self.id_bytes + other.id_bytes,
            _first(min, self.least_id, other.least_id),
            _first(max, self.greatest_id, other.greatest_id),
        )


def _first(pick: type | object, *ids: str | None) -> str | None:
    found = [one for one in ids if one is not None]
    return pick(found) if found else None  # type: ignore[operator]


class Totals(msgspec.Struct, frozen=True):
    """Counts of all batches of a query or a job so far."""

    rows: int = 0
    duplicates: int = 0
    """As far as the stream reports them."""
    dead_letters: int = 0
    collisions: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.rows + other.rows,
            self.duplicates + other.duplicates,
            self.dead_letters + other.dead_letters,
            self.collisions + other.collisions,
        )


class Committed(msgspec.Struct, frozen=True, tag="committed"):
    """The batch and all batches before it are stored."""

    batch: int
    digest: Digest
    report: dict[str, object] = {}
    """The rows that the stream has confirmed, for people."""
    stream: str | None = None
    """The stream that was written. None in entries of older versions."""
    created: str = ""
    """When that stream was created."""
    fingerprint: StreamFingerprint | None = msgspec.field(default=None, name="mark")
    """The stream's last message at the commit."""
    totals: Totals | None = None
    """None in entries of older versions."""
    since: int | None = None
    """See `BatchStarted.since`."""


class BatchStarted(msgspec.Struct, frozen=True, tag="begun"):
    """Some rows of the batch may be stored."""

    batch: int
    run: str
    """The id of the run, different for each attempt at the whole batch."""
    last_sequence: int
    """The stream's last sequence before the batch."""
    since: int | None = None
    """The stream's last sequence before the first batch of the query or the job. None in
    entries of older versions."""
    created: str = ""
    """When the stream was created. Empty in entries of older versions."""


class TaskStarted(msgspec.Struct, frozen=True, tag="task"):
    """A task of a run has begun."""

    batch: int
    run: str
    time: float | None = None
    """The start of the task's first attempt, by the server's clock. None: this entry's time."""


Entry: TypeAlias = Committed | BatchStarted | TaskStarted


class BatchStatus(Enum):
    """The state of a batch when one of its tasks is about to publish."""

    NEW = "nothing of it is stored"
    IN_PROGRESS = "other tasks of this run have begun it, this one has not"
    RETRIED = "a task of this run has been here before, and failed"
    REPLAYED = "another run has begun it, and ended before its commit"
    COMMITTED = "all of it is stored: nothing is to be published"
    SUPERSEDED = "a later batch is stored or begun: this is an older checkpoint"


TERMINAL = frozenset({BatchStatus.COMMITTED, BatchStatus.SUPERSEDED})
"""States in which nothing is published."""
REPLAY = frozenset({BatchStatus.RETRIED, BatchStatus.REPLAYED})
"""States in which rows may be stored, so the stream must still remember their ids."""


UNCHECKED = frozenset({BatchStatus.NEW, BatchStatus.REPLAYED, BatchStatus.COMMITTED})
"""States in which no task of this run has checked yet that the stream has its old rows."""


@dataclass(frozen=True)
class TaskAttempt:
    """One task about to publish."""

    batch: int
    run: str


def batch_status(
    attempt: TaskAttempt,
    committed: Committed | None,
    started: BatchStarted | None,
    task: TaskStarted | None,
    last_sequence: int,
) -> BatchStatus:
    """Return the state of the batch, by the entries and by the stream's last sequence."""
    if committed is not None and committed.batch >= attempt.batch:
        if committed.batch > attempt.batch:
            return BatchStatus.SUPERSEDED
        return BatchStatus.COMMITTED
    if started is None or started.batch < attempt.batch:
        return BatchStatus.NEW
    if started.batch > attempt.batch:
        return BatchStatus.SUPERSEDED
    if started.run != attempt.run:
        if started.last_sequence == last_sequence:
            return BatchStatus.NEW  # no message was published since
        return BatchStatus.REPLAYED
    if task is None or (task.batch, task.run) != (attempt.batch, attempt.run):
        return BatchStatus.IN_PROGRESS
    return BatchStatus.RETRIED


def seconds_left(since: float, now: float, replay_seconds: float) -> float:
    """Return how long a batch begun at `since` may still publish. Below 0: not at all."""
    return replay_seconds - max(0.0, now - since)


def total(digests: Iterable[Digest]) -> Digest:
    return sum(digests, Digest())


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Committed | BatchStarted | TaskStarted)


def encode(entry: Entry) -> bytes:
    return _encoder.encode(entry)


UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of `decode` for bytes that other programs have stored."""


def decode(data: bytes) -> Entry:
    """Read an entry. Raises one of `UNREADABLE` if it is invalid."""
    entry: Entry = _decoder.decode(data)
    return entry
