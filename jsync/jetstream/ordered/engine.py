"""The position of an ordered consumer in its stream, and its next step (ADR-37).

An ordered consumer is a series of consumers on the server. Each begins after the last
message of its predecessor, so that no message is missing or comes twice.

Pure: no socket, thread or clock. `_fast.SequenceChecker` checks that a message is the
next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from ...errors import (
    APIError,
    ConfigError,
    ConnectionClosedError,
    ForkedProcessError,
    MaximumConsumersError,
    OrderedConsumerResetError,
    PermissionsError,
    StreamNotFoundError,
)
from ...models import ConsumerConfig
from ...validation import check_int, check_positive_seconds
from ..replies import ONE_REPLY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ...models import ConsumerInfo, StreamInfo
    from ..stream_end.engine import PendingMessages, StreamEnd

INACTIVE_THRESHOLD: Final = 30.0
"""Seconds that a consumer stays if its deletion was lost with the connection."""
IDLE_HEARTBEAT: Final = 5.0
RESET_ATTEMPTS: Final = 60
INITIAL_BACKOFF: Final = 0.25
MAX_BACKOFF: Final = 10.0
_STARTS: Final = {
    "opt_start_seq": "by_start_sequence",
    "opt_start_time": "by_start_time",
}
_FIELDS: Final = (
    *("filter_subjects", "deliver_policy", "opt_start_seq", "opt_start_time"),
    *("replay_policy", "headers_only", "inactive_threshold", "metadata"),
)
STUCK_SECONDS: Final = 1.0
"""Seconds that a consumer may withhold messages before another one replaces it."""
LAG_SECONDS: Final = 2.0
"""Seconds that a consumer's server may bring nothing although the leader has more."""
MAX_STALE_REPLIES: Final = 3
"""Replies that a stream has lost read messages, until the next one is believed."""
SINGLE_REPLIES: Final = 3
"""Consumers in a row with a single reply to each pull, after which the read fails."""


def ordered_config(options: Mapping[str, Any]) -> ConsumerConfig:
    """Build the first consumer, except for its name. Raises `ConfigError` if invalid.

    It has no acks, one delivery, and its state in the memory of one server (ADR-37).
    """
    fields = {name: options.get(name) for name in _FIELDS}
    if fields["inactive_threshold"] is not None:
        fields["inactive_threshold"] = check_positive_seconds(
            fields["inactive_threshold"], "inactive_threshold"
        )
    given = [name for name in _STARTS if fields[name] is not None]
    if fields["deliver_policy"] is None and len(given) == 1:
        fields["deliver_policy"] = _STARTS[given[0]]
    for name, policy in _STARTS.items():
        if (policy == fields["deliver_policy"]) != (name in given):
            raise ConfigError(f"deliver_policy {policy!r} and {name} belong together")
    if fields["opt_start_seq"] == 0:
        raise ConfigError("opt_start_seq has to be at least 1: sequences begin there")
    filters = fields["filter_subjects"]
    if filters is None:
        filters = []
    elif isinstance(filters, str):
        filters = [filters]
    elif not isinstance(filters, Iterable):
        raise ConfigError(f"filter_subjects: a subject or several, not {filters!r}")
    filters = list(filters)
    if not filters and fields["deliver_policy"] == "last_per_subject":
        filters = [">"]  # servers require a filter
    fields["filter_subjects"] = filters or None
    fixed = {"ack_policy": "none", "max_deliver": 1}
    place = {"mem_storage": True, "num_replicas": 1}
    return ConsumerConfig.from_any(None, {**fields, **fixed, **place})


def ordered_push_config(config: ConsumerConfig) -> ConsumerConfig:
    """Build the first push consumer, except for its name and deliver subject.

    It has flow control, for which servers require heartbeats (ADR-15).
    """
    return config.replace(
        durable_name=None,
        name=None,
        deliver_subject=None,
        ack_policy="none",
        ack_wait=None,
        # Not None: servers would fill in the stream's limit, and then reject it.
        max_ack_pending=-1,
        max_deliver=1,
        mem_storage=True,
        num_replicas=1,
        flow_control=True,
        idle_heartbeat=config.idle_heartbeat or IDLE_HEARTBEAT,
    )


class ReadState(Enum):
    """The progress of a read through its series of consumers."""

    NEW = "nobody has begun to read"
    STARTING = "the I/O thread is to begin"
    BETWEEN = "no consumer is read, and the next one is to be made"
    LIVE = "a consumer is read"
    ENDING = "no other consumer is made, and what is on its way is still taken"
    ENDED = "the cursor is where the next read goes on"


_AT_END: Final = {ReadState.ENDING, ReadState.ENDED}

TRANSITIONS: Final = {
    ReadState.NEW: {ReadState.STARTING, ReadState.LIVE, *_AT_END},
    ReadState.STARTING: {ReadState.BETWEEN, ReadState.LIVE, *_AT_END},
    ReadState.BETWEEN: {ReadState.BETWEEN, ReadState.LIVE, *_AT_END},
    ReadState.LIVE: {ReadState.BETWEEN, *_AT_END},
    ReadState.ENDING: {ReadState.ENDED},
    ReadState.ENDED: set[ReadState](),
}
"""The next states of each state. A read at its end never continues."""


class NextAction(Enum):
    """The next step of a read."""

    WAIT = "more will come"
    QUERY_LEADER = (
        "its server has nothing more, so query the leader for pending messages"
    )
    NEXT = "another consumer goes on, as was planned"
    RESET = "another consumer goes on, since something was lost"
    END = "all is read"


def is_permanent(error: Exception) -> bool:
    """Return whether another attempt to make a consumer would also fail."""
    if isinstance(error, APIError):
        refused = error.code == 400 and not isinstance(error, MaximumConsumersError)
        return refused or isinstance(error, StreamNotFoundError)
    return isinstance(
        error, ConnectionClosedError | ForkedProcessError | PermissionsError
    )


class Cursor:
    """The position of an ordered consumer, and the choice of its next consumer.

    With `last_per_subject`, the snapshot is the stream's last sequence before the first
    consumer is made. No consumer can begin in the middle of the last messages per subject.
    So up to the snapshot, each further consumer delivers the last message of each subject
    again, and messages that were read are passed over. After the snapshot, no message may
    be left out, so a consumer by sequence delivers them. If the last message of a subject
    is replaced before it was read, only its successor is delivered.

    A server stops at each message of the snapshot that is deleted before its turn, and
    sends nothing until something wakes it (nats-server 2.10 to 2.15). So a consumer that
    is silent below the snapshot is replaced by another one.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        prefix: str,
        *,
        max_reset_attempts: int | None = RESET_ATTEMPTS,
    ) -> None:
        if max_reset_attempts is not None:
            check_int(max_reset_attempts, "max_reset_attempts", 1)
        self.position = 0
        """The last stream sequence that is done. The next consumer continues after it."""
        self.until: int | None = None
        """The sequence at which the read ends. None reads forever."""
        self.name: str | None = None
        """The consumer that continues after the position, or None if there is none yet."""
        self.consumer_sequence = 0
        """The last consumer sequence that has arrived from that consumer."""
        self._config = config
        self.prefix = prefix
        """The prefix of the names of its consumers."""
        self.inactive_threshold = config.inactive_threshold or INACTIVE_THRESHOLD
        """Seconds without use after which the server deletes a pull consumer."""
        self._created: datetime | None = None
        self._max_attempts = max_reset_attempts
        self._snapshot = 0
        self._serial = 0
        self._born = False
        self._is_first = True
        self._read = 0  # the highest sequence that existed in the stream
        self._failures = 0
        self._idle_resets = 0
        self._stale_replies: list[int] = []
        self._shorter = 0  # answers in a row that the stream ends before `until`
        self._single_replies = 0  # consumers in a row
        self._unseen: tuple[int, float] | None = None
        # A server that lacks what the leader has: the consumer there, the last sequence
        # that came of it, and since when.
        self._lagging: tuple[str | None, int, float] | None = None
        # A consumer that owes messages: its name, the last sequence it sent, and since
        # when.
        self._silent: tuple[str, int, float] | None = None

    def __repr__(self) -> str:
        until = "" if self.until is None else f" of {self.until}"
        return f"<Cursor at {self.position}{until}, {self._serial} consumers>"

    @property
    def filters(self) -> Sequence[str] | None:
        """The subjects to read, or None for all."""
        return self._config.filter_subjects

    @property
    def is_latest(self) -> bool:
        """True if the read begins with the last message of each subject."""
        return self._config.deliver_policy == "last_per_subject"

    # The next consumer ----------------------------------------------------------------

    @property
    def needs_snapshot(self) -> bool:
        """True if the stream's end must be known before the first consumer is made."""
        return self.is_latest and not self._born

    def next_config(self) -> ConsumerConfig:
        """Build the next consumer. Its name is new, because the last one may still exist."""
        self._serial += 1
        name = f"{self.prefix}_{self._serial}"
        if not self._born or self.position < self._snapshot:
            return self._config.replace(name=name)
        return self._config.replace(
            name=name,
            deliver_policy="by_start_sequence",
            opt_start_seq=self.position + 1,
            opt_start_time=None,
        )

    def on_created(self, info: ConsumerInfo) -> None:
        """Note that the server has made the consumer."""
        self.name, self.consumer_sequence = info.name, 0
        self._failures = 0
        self._unseen = self._lagging = None
        if not self._born:
            # Remember where the policy began. A second consumer with the policy would
            # begin elsewhere, because "new" and "last" mean other messages by then.
            self._born = True
            self.position = info.delivered.stream_seq
        else:
            self._is_first = False

    def last(self) -> int | None:
        """Return the last stream sequence to take from this consumer. None: no limit."""
        return self._last(is_first=self._is_first)

    def last_of_next(self) -> int | None:
        """Return the last stream sequence to take from the next consumer. None: no limit.

        Used for push consumers, which may send before their creation is confirmed.
        """
        return self._last(is_first=not self._born)

    def _last(self, *, is_first: bool) -> int | None:
        if is_first or self.position >= self._snapshot:
            return self.until
        return self._snapshot if self.until is None else min(self.until, self._snapshot)

    @property
    def at_end(self) -> bool:
        return self.until is not None and self.position >= self.until

    # Arrivals -------------------------------------------------------------------------

    def advance(self, sequence: int, consumer_sequence: int) -> bool:
        """Note the last arrival from the consumer. Returns whether it is progress."""
        self.consumer_sequence = consumer_sequence
        if sequence <= self.position:
            return False
        self.position = sequence
        self._read = max(self._read, sequence)
        return True

    def rewind(self, sequence: int) -> None:
        """Read again after `sequence`, because no user got the later messages."""
        self.position = min(self.position, sequence)
        self.name = None

    def seek(self, sequence: int) -> None:
        """Continue after `sequence`, which is the last message that the user has."""
        self.position = sequence
        self._read = max(self._read, sequence)
        self.name = None

    def on_stopped(self, why: str, last: int | None) -> NextAction:
        """Return the next step after the order has stopped. See `_fast.SequenceChecker`.

        `last` is what the method of that name returned before the position moved.
        """
        if why == "gap":
            return NextAction.RESET
        if last is not None:
            self.position = max(self.position, last)
        return NextAction.END if self.at_end else NextAction.NEXT

    def may_stall(self, stream_sequence: int) -> bool:
        """Return whether a silent consumer may still have messages to send.

        `stream_sequence` is the last stream sequence that has arrived from it.
        """
        return max(stream_sequence, self.position) < self._snapshot

    def on_info(
        self,
        info: ConsumerInfo,
        consumer_sequence: int,
        now: float,
        lost_after: float,
        *,
        stream_sequence: int = 0,
        waits: bool = True,
    ) -> NextAction:
        """Return the next step after a silence, by the `info` of the consumer.

        The remaining messages may have been deleted, or have expired. The sequences are of
        the last message that has arrived. A message that the server has sent is considered
        lost if it does not arrive within `lost_after` seconds. With `waits`, the server may
        send more. Since it may be behind the leader, only the leader knows whether a read
        to the end is complete.
        """
        sent = info.delivered.consumer_seq
        if sent > consumer_sequence:
            if self._unseen is None or self._unseen[0] != consumer_sequence:
                self._unseen = consumer_sequence, now
            lost = now - self._unseen[1] >= lost_after
            return NextAction.RESET if lost else NextAction.WAIT
        self._unseen = None
        if sent < consumer_sequence:
            return NextAction.WAIT
        if self.until is not None:
            if info.delivered.stream_seq >= self.until:
                return NextAction.END
            if info.num_pending == 0:
                return NextAction.QUERY_LEADER
        if not self.may_stall(stream_sequence):
            return NextAction.WAIT
        if info.num_pending == 0:
            self._snapshot = 0  # every message of the snapshot was read
            return NextAction.NEXT
        if not waits:
            self._silent = None
        elif self._silent is None or self._silent[:2] != (info.name, sent):
            self._silent = info.name, sent, now
        elif now - self._silent[2] >= STUCK_SECONDS:
            return NextAction.RESET
        return NextAction.WAIT

    def on_pending(
        self, pending: PendingMessages, stream_sequence: int, now: float
    ) -> NextAction:
        """Return the next step by the leader's reply, when the consumer's server has no more.

        `stream_sequence` is the last one that has arrived. Raises `StreamNotFoundError` if
        this is another stream.
        """
        self._failures = 0
        self.check_stream(pending.end.info)
        if pending.first is not None:
            self._shorter = 0
            lagging = self.name, stream_sequence
            if self._lagging is None or self._lagging[:2] != lagging:
                self._lagging = *lagging, now
            lost = now - self._lagging[2] >= LAG_SECONDS
            return NextAction.RESET if lost else NextAction.WAIT
        self._lagging = None
        # A stream may come back from a crash with less than it had. A new leader of
        # nats-server 2.10 may have less until it has read its own log.
        self._shorter += 1
        shorter = self.until is not None and pending.end.sequence < self.until
        return (
            NextAction.WAIT
            if shorter and self._shorter <= MAX_STALE_REPLIES
            else NextAction.END
        )

    # Another one ----------------------------------------------------------------------

    def reset(self, *, progress: bool, lived: float) -> float:
        """Count a lost consumer, and return the seconds to wait before the next one.

        `lived` is its age in seconds, and `progress` is whether it brought a message. Raises
        `OrderedConsumerResetError` if a read to an end has made no progress for too many
        consumers in a row.
        """
        if progress or (self.until is None and lived > MAX_BACKOFF):
            self._idle_resets = 0
        self._idle_resets += 1
        if (
            self.until is not None
            and self._max_attempts is not None
            and self._idle_resets > self._max_attempts
        ):
            raise OrderedConsumerResetError(
                f"{self._max_attempts} consumers in a row have brought nothing behind "
                f"stream sequence {self.position}"
            )
        return _pause(self._idle_resets - 1)

    def on_silence(self, pulls: int, replies: int) -> None:
        """Count a consumer without heartbeats, with the `replies` (or messages) to its pulls.

        Raises `OrderedConsumerResetError` if several in a row had one reply to each pull.
        """
        self._single_replies = self._single_replies + 1 if pulls == replies > 0 else 0
        if self._single_replies >= SINGLE_REPLIES:
            raise OrderedConsumerResetError(
                f"{self._single_replies} consumers in a row have sent one reply to a pull "
                f"and nothing more: {ONE_REPLY}"
            )

    def check_stream(self, info: StreamInfo) -> None:
        """Raise `StreamNotFoundError` if this is not the stream that was read.

        Also notes the stream's limits for consumers.
        """
        if self._created is None:
            self._created = info.created
        elif info.created != self._created:
            raise StreamNotFoundError(
                f"stream {info.config.name!r} was deleted, and another one created",
                code=404,
                err_code=10059,
            )
        if self._config.inactive_threshold is None:
            limits = info.config.consumer_limits
            limit = (limits and limits.inactive_threshold) or INACTIVE_THRESHOLD
            self.inactive_threshold = min(limit, INACTIVE_THRESHOLD)

    def check_end(self, end: StreamEnd) -> None:
        """Check that the stream still has the messages that were read.

        A stream may come back from a crash with fewer messages than were read. A new leader
        may also report fewer until it has read its own log. So the first such replies raise
        an `OrderedConsumerResetError`, which leads to a retry, and only later ones count.
        """
        last = end.sequence
        if self.needs_snapshot:
            self._snapshot = last
        if last >= self._read:
            self._stale_replies.clear()
            return
        self._stale_replies.append(last)
        if len(self._stale_replies) <= MAX_STALE_REPLIES:
            raise OrderedConsumerResetError(
                f"stream {end.info.config.name!r} ends at sequence {last}, "
                f"but sequence {self._read} was already read"
            )
        self.position = self._read = min(self._stale_replies)
        self._snapshot = 0
        self._stale_replies.clear()

    def on_request_failed(self, error: Exception) -> float:
        """Count a failed attempt, and return the seconds until the next one.

        Raises an error if no other attempt is worthwhile.
        """
        if is_permanent(error):
            raise error
        self._failures += 1
        if self._max_attempts is not None and self._failures >= self._max_attempts:
            raise OrderedConsumerResetError(
                f"no consumer after {self._failures} attempts: {error}"
            ) from error
        return _pause(self._failures)


def _pause(failures: int) -> float:
    """Return 0 for no failures, and a longer pause for each failure."""
    if failures == 0:
        return 0.0
    return min(MAX_BACKOFF, INITIAL_BACKOFF * 2.0 ** min(failures - 1, 10))
