"""What the replay of a batch may do. Pure: entries of the bucket and times are arguments.

Spark runs a batch again, with the same id, when it ended before its commit: a task that
failed, or all of it in another run of the query. A stream drops what it has already, by the
ids, as long as it remembers them. Behind that the fence knows three things of the last
batch: that it is stored as a whole (`Committed`), when it was begun, and by which run
(`Begun`), and when a task of this run was begun (`Tasked`). A commit also notes the stream's
last message, so that the next batch sees a stream that was recreated or restored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from ..marks import Mark  # noqa: TC001 (msgspec reads the annotation)

if TYPE_CHECKING:
    from collections.abc import Iterable


class Digest(msgspec.Struct, frozen=True):
    """The same for the same rows, in whatever order and partitions they come."""

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
    there = [one for one in ids if one is not None]
    return pick(there) if there else None  # type: ignore[operator]


class Totals(msgspec.Struct, frozen=True):
    """Counts of all batches of a query or a job so far."""

    rows: int = 0
    duplicates: int = 0
    """As far as the stream tells."""
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
    """All of a batch is stored, and of those before it."""

    batch: int
    digest: Digest
    report: dict[str, object] = {}
    """What the stream has confirmed, for people."""
    stream: str | None = None
    """What was written into; None for what an older version noted."""
    created: str = ""
    """When that stream was created."""
    mark: Mark | None = None
    """The stream's last message at the commit."""
    totals: Totals | None = None
    """None for what an older version noted."""
    since: int | None = None
    """That of `Begun`."""


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """Some of a batch may be stored."""

    batch: int
    run: str
    """Of the query, or of the job: another one for each try of the whole batch."""
    last_sequence: int
    """What the stream's was before it."""
    since: int | None = None
    """What it was before the first batch of the query or the job; None for what an older
    version noted."""


class Tasked(msgspec.Struct, frozen=True, tag="task"):
    """A task of a run has begun."""

    batch: int
    run: str
    time: float | None = None
    """When its first attempt began, by the server's clock; None: with this entry."""


Entry: TypeAlias = Committed | Begun | Tasked


class Standing(Enum):
    """Where a batch stands when a task of it is about to publish."""

    NEW = "nothing of it is stored"
    SHARED = "other tasks of this run have begun it, this one has not"
    RETRIED = "a task of this run has been here before, and failed"
    REPLAYED = "another run has begun it, and ended before its commit"
    COMMITTED = "all of it is stored: nothing is to be published"
    BEHIND = "a later batch is stored or begun: this is an older checkpoint"


ENDS = frozenset({Standing.COMMITTED, Standing.BEHIND})
"""Nothing is published then."""
TIMED = frozenset({Standing.RETRIED, Standing.REPLAYED})
"""What may be stored already has to be remembered by the stream still."""


UNSEEN = frozenset({Standing.NEW, Standing.REPLAYED, Standing.COMMITTED})
"""No task of this run has looked yet whether the stream still has what was stored."""


@dataclass(frozen=True)
class Attempt:
    """One task about to publish."""

    batch: int
    run: str


def standing(
    attempt: Attempt,
    committed: Committed | None,
    begun: Begun | None,
    task: Tasked | None,
    last_sequence: int,
) -> Standing:
    """Where its batch stands, by the entries, and by the stream's last sequence."""
    if committed is not None and committed.batch >= attempt.batch:
        if committed.batch > attempt.batch:
            return Standing.BEHIND
        return Standing.COMMITTED
    if begun is None or begun.batch < attempt.batch:
        return Standing.NEW
    if begun.batch > attempt.batch:
        return Standing.BEHIND
    if begun.run != attempt.run:
        if begun.last_sequence == last_sequence:
            return Standing.NEW  # no message was published since
        return Standing.REPLAYED
    if task is None or (task.batch, task.run) != (attempt.batch, attempt.run):
        return Standing.SHARED
    return Standing.RETRIED


def seconds_left(since: float, now: float, replay_seconds: float) -> float:
    """How long a batch may go on that was begun at `since`; below 0: not at all."""
    return replay_seconds - max(0.0, now - since)


def total(digests: Iterable[Digest]) -> Digest:
    return sum(digests, Digest())


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Committed | Begun | Tasked)


def encode(entry: Entry) -> bytes:
    return _encoder.encode(entry)


UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What `decode` raises for bytes that others have stored."""


def decode(data: bytes) -> Entry:
    """Read an entry. Raises one of `UNREADABLE` for what is none."""
    entry: Entry = _decoder.decode(data)
    return entry
