"""One atomic batch: its messages, its states, and the meaning of the server's answers.

Pure: no socket, thread or clock. Follows ADR-50 as nats-server 2.12 to 2.15 implement it.
The server keeps the messages of a batch aside by the id of the batch, and stores all or
none of them at the commit, when it also checks expectations, message ids and limits.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ..._fast import BatchQueue
from ...core.state import StateMachine
from ...errors import (
    AtomicBatchClosedError,
    AtomicBatchUnsupportedError,
    ConfigError,
    JetStreamError,
)
from ...models import decode_pub_ack
from ...validation import check_int
from ..publishing.options import publish_headers
from ..replies import api_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..._fast import BatchMessage
    from ...models import PubAck, StreamInfo
    from ...models.publish import PublishOptions

MAX_MESSAGES: Final = 1000
"""The default limit of a server, which its `max_batch_size` changes."""

COMMIT: Final = b"Nats-Batch-Commit: 1\r\n"
COMMIT_ALL_SENT: Final = b"Nats-Batch-Commit: eob\r\n"
"""Commits the batch without storing this message. Needs nats-server 2.14."""

UNSUPPORTED: Final = {"expected_last_msg_id": "no server checks it in a batch (ADR-50)"}
"""The options that no message of a batch may have, and why."""


class BatchState(Enum):
    """The state of an atomic batch.

    Example:
        ```python
        with js.atomic_batch() as batch:
            batch.add("orders.new", b"first")
            batch.commit("orders.new", b"last")
        print(batch.state is jsync.BatchState.COMMITTED)
        ```
    """

    OPEN = "open"
    """Messages may be added."""
    COMMITTING = "committing"
    """The commit is under way."""
    COMMITTED = "committed"
    """All of it is in the stream."""
    DISCARDED = "discarded"
    """Given up before a commit: nothing is in the stream."""
    FAILED = "failed"
    """Rejected, or lost before a commit: nothing is in the stream."""
    UNCLEAR = "unclear"
    """The commit was sent, and its answer did not come: all or nothing is in the stream."""


TRANSITIONS: Final = {
    BatchState.OPEN: {BatchState.COMMITTING, BatchState.DISCARDED, BatchState.FAILED},
    BatchState.COMMITTING: {
        BatchState.COMMITTED,
        BatchState.FAILED,
        BatchState.UNCLEAR,
    },
    BatchState.UNCLEAR: {BatchState.COMMITTED, BatchState.FAILED},
    BatchState.COMMITTED: set[BatchState](),
    BatchState.DISCARDED: set[BatchState](),
    BatchState.FAILED: set[BatchState](),
}
"""The next states of each state. Of those after a commit, only UNCLEAR has any."""


class AtomicEngine:
    """The state of one atomic batch. The caller sends the returned entries, in order."""

    def __init__(self, batch_id: str, max_messages: int | None = MAX_MESSAGES) -> None:
        if max_messages is not None:
            check_int(max_messages, "max_messages", 1)
        self.id = batch_id
        header = f"Nats-Batch-Id: {batch_id}\r\nNats-Batch-Sequence: ".encode()
        self.messages = BatchQueue(header, max_messages, len(COMMIT))
        self._state = StateMachine(BatchState.OPEN, TRANSITIONS)
        self.confirmed = 0
        """The number of messages, from the first, that the server has acknowledged."""
        self.pub_ack: PubAck | None = None
        self.failure: BaseException | None = None
        """The error of a batch that failed before its commit."""
        self.stream: str | None = None
        """The stream that the first message expects."""
        self.min_sequence: int | None = None
        """The last sequence of the stream that the first message expects."""
        self._msg_ids: set[str] = set()

    @property
    def state(self) -> BatchState:
        """The state of the batch."""
        return self._state.current

    @property
    def added(self) -> int:
        """The number of messages in the batch."""
        return self.messages.added

    @property
    def sent(self) -> int:
        """The number of messages, from the first, that were sent."""
        return self.messages.sent

    @property
    def waiting(self) -> Sequence[BatchMessage]:
        """The messages that were added, but not sent yet."""
        return self.messages.waiting

    @property
    def last_subject(self) -> str:
        """The subject of the last message."""
        return self.messages.last_subject

    def check_open(self) -> None:
        """Raise unless messages may be added."""
        if self._state.current is not BatchState.OPEN:
            raise AtomicBatchClosedError(
                f"the batch is {self.state.value}: begin another one"
            )

    def transition(self, state: BatchState) -> None:
        if not self._state.try_to(state):
            raise AtomicBatchClosedError(f"the batch is {self.state.value} already")

    # Building -------------------------------------------------------------------------

    def add(
        self,
        subject: str,
        data: bytes | bytearray | memoryview,
        options: PublishOptions,
        max_payload: int,
    ) -> BatchMessage:
        """Check a message and add it to the batch, to be sent later.

        If the server would certainly reject the message, this raises, and the batch does
        not change.
        """
        self.check_open()
        headers = None
        if options:
            headers = publish_headers(subject, data, options, UNSUPPORTED)
            self._check_within(subject, options)
        entry = self.messages.add(subject, data, headers, max_payload)
        if options:
            if (msg_id := options.get("msg_id")) is not None:
                self._msg_ids.add(msg_id)
            if entry.sequence == 1:
                self.stream = options.get("expected_stream")
                self.min_sequence = options.get("expected_last_sequence")
        return entry

    def add_plain(
        self, messages: Iterator[object], max_payload: int
    ) -> tuple[object, ...]:
        """Add pairs of subject and data, up to the first message that is not such a pair.

        Returns a tuple with that message, or an empty one if all were added.
        """
        self.check_open()
        return self.messages.add_plain(messages, max_payload)

    def _check_within(self, subject: str, options: PublishOptions) -> None:
        """Raise `ConfigError` if the server would reject a message at the commit.

        Checks the options that depend on the earlier messages of the batch.
        """
        if self.added and options.get("expected_last_sequence") is not None:
            raise ConfigError(
                "expected_last_sequence: only the first message of a batch may have it"
            )
        if options.get("expected_last_subject_sequence") is not None:
            expected = options.get("expected_last_subject") or subject
            if expected in self.messages.subjects:
                raise ConfigError(
                    "expected_last_subject_sequence: an earlier message of the batch is "
                    f"on {expected!r} already"
                )
        msg_id = options.get("msg_id")
        if msg_id is not None and msg_id in self._msg_ids:
            raise ConfigError(f"msg_id {msg_id!r} is twice in the batch")

    # Sending --------------------------------------------------------------------------

    def due(self, *, last: bool) -> list[BatchMessage]:
        """Take the messages to send now.

        Without `last`, the last message is held back, because it may be the one that
        commits.
        """
        return self.messages.due(last=last)

    def begin_commit(self) -> tuple[list[BatchMessage], BatchMessage, bytes]:
        """Take the waiting messages, the message that commits, and its commit header.

        If all messages were sent, the message that commits is one that is not stored.
        """
        self.check_open()
        if not self.added:
            raise ConfigError("the batch is empty: nothing to commit")
        self.transition(BatchState.COMMITTING)
        entries = self.due(last=True)
        if entries:
            return entries[:-1], entries[-1], COMMIT
        return [], self.messages.unstored(self.added + 1), COMMIT_ALL_SENT

    def gap_message(self) -> BatchMessage:
        """Return a message that ends the batch on the server, so that nothing is stored.

        If the server has had the first message, no later message begins the batch again.
        """
        return self.messages.unstored(self.added + 2)

    def opening_message(self) -> BatchMessage:
        """Return a message that begins the batch instead of the first message.

        A first message that arrives while the server keeps this one ends the batch.
        """
        return self.messages.unstored(1)

    # Answers --------------------------------------------------------------------------

    def confirm(self, sequence: int, reply: bytes) -> None:
        """Read the answer to a message before the commit. Raises if it was rejected.

        The server accepts a message only if it has all messages before.
        """
        ack = self._read(reply)
        if ack is not None:
            raise self._stored(ack)
        self.confirmed = max(self.confirmed, sequence)

    def committed(self, reply: bytes) -> PubAck:
        """Read the answer to the commit, and return its ack. Raises if it was rejected."""
        ack = self._read(reply)
        if ack is None:
            raise JetStreamError("an empty answer to a commit: not from a stream")
        if ack.batch is None:
            raise self._stored(ack)
        if ack.batch != self.id or ack.count != self.added:
            raise JetStreamError(f"not the ack of this batch: {ack!r}")
        self.pub_ack = ack
        return ack

    def _read(self, reply: bytes) -> PubAck | None:
        """Read an answer. None if it is empty, which acknowledges a message of a batch."""
        if not reply:
            return None
        ack = decode_pub_ack(reply)
        if isinstance(ack, dict):
            raise api_error(ack)
        return ack

    def _stored(self, ack: PubAck) -> AtomicBatchUnsupportedError:
        return AtomicBatchUnsupportedError(
            f"the server of stream {ack.stream!r} is older than nats-server 2.12 and has "
            "no atomic batches: it stored a message of the batch as an ordinary one, with "
            f"sequence {ack.seq}",
            stored=ack,
        )


# Servers that store batches wrongly -----------------------------------------------------

_VERSION: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})")


def affected_option(options: PublishOptions) -> str | None:
    """Return the first option that some servers store wrongly in a batch, or None."""
    for name in ("incr", "schedule"):
        if options.get(name) is not None:
            return name
    return None


def has_batch_fix(version: str) -> bool:
    """Return whether a server stores counters and schedules of a batch correctly.

    Before 2.12.12, and from 2.13 to 2.14.2, a counter loses its value permanently, and a
    schedule does not replace the earlier one of its subject.
    """
    found = _VERSION.match(version)
    if found is None:
        return False
    number = tuple(map(int, found.groups()))
    return number >= (2, 14, 3) or (2, 12, 12) <= number < (2, 13, 0)


# Commits without an answer --------------------------------------------------------------


class BatchPosition(NamedTuple):
    """A stored message of a batch."""

    sequence: int
    """Its sequence in the stream."""
    number: int
    """Its number in the batch, from 1."""


def parse_batch_headers(
    sequence: int, headers: Mapping[str, str] | None, batch: str
) -> BatchPosition | None:
    """Return the place of a stored message in a batch, or None if it is of another one."""
    if not headers or headers.get("Nats-Batch-Id") != batch:
        return None
    if "Nats-Scheduler" in headers:
        # A message that a schedule published has the headers of the schedule.
        return None
    number = headers.get("Nats-Batch-Sequence", "")
    is_number = number.isdecimal() and len(number) < 10
    return BatchPosition(sequence, int(number)) if is_number else None


def search_steps(floor: int, last: int, count: int) -> range:
    """Return sequences that cannot all miss a batch of `count` messages above `floor`.

    The messages of a batch have consecutive sequences, so each `count`-th is enough.
    """
    return range(floor + count, last + 1, count)


def inconclusive_reason(info: StreamInfo, floor: int) -> str | None:
    """Return why a batch may have been stored above `floor`, although it is not found.

    None if it certainly was not. `info` must have been requested before the search.
    """
    state = info.state
    if state.last_seq < floor:
        return "it is another stream than before"
    if state.first_seq > floor + 1:
        return "the stream has removed messages since"
    if state.num_deleted and (
        state.deleted is None or any(sequence > floor for sequence in state.deleted)
    ):
        return "messages have been deleted from the stream since"
    return None


def is_applied(info: StreamInfo, seconds: float) -> bool:
    """Return whether the leader has stored all messages that it got `seconds` ago.

    A stream without replicas stores immediately. Otherwise the leader needs a majority. A
    replica that is current, and was active since then, has all that the leader sent it.
    """
    if info.cluster is None:
        return True
    if not info.cluster.is_of_leader:
        return False
    if not info.cluster.replicas:
        return True
    replicas = info.cluster.replicas
    reported = sum(
        replica.current and not replica.offline and 0 <= replica.active < seconds
        for replica in replicas
    )
    return 2 * (reported + 1) > len(replicas) + 1
