"""Ordered consumers: where one is in its stream, and what to do next (ADR-37).

An ordered consumer is a series of consumers on the server. Each begins
behind what was read of the last, so that nothing is missing and nothing comes twice.

Pure: no socket, thread or clock. Whether a message is the next one says `_fast.Order`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from ...checks import span, whole
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
from ..replies import ONE_REPLY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ...models import ConsumerInfo, StreamInfo
    from ..stream_end.engine import Rest, StreamEnd

INACTIVE_THRESHOLD: Final = 30.0
"""Seconds. Only a consumer whose deletion was lost with the connection stays so long."""
IDLE_HEARTBEAT: Final = 5.0
RESET_ATTEMPTS: Final = 60
FIRST_RETRY: Final = 0.25
LAST_RETRY: Final = 10.0
_STARTS: Final = {
    "opt_start_seq": "by_start_sequence",
    "opt_start_time": "by_start_time",
}
_FIELDS: Final = (
    *("filter_subjects", "deliver_policy", "opt_start_seq", "opt_start_time"),
    *("replay_policy", "headers_only", "inactive_threshold", "metadata"),
)
STUCK_SECONDS: Final = 1.0
"""How long a consumer may not send what it has before another one takes its place."""
LAG_SECONDS: Final = 2.0
"""How long the server of a consumer may bring nothing of what the leader has."""
BEHIND: Final = 3
"""Answers that a stream is behind what was read of it before that is believed."""
SINGLE_REPLIES: Final = 3
"""Consumers in a row that bring one reply to each pull before that is believed."""


def ordered_config(options: Mapping[str, Any]) -> ConsumerConfig:
    """The first consumer, but for its name; `ConfigError` for what cannot be.

    No acks, one delivery, and its state in the memory of one server (ADR-37).
    """
    fields = {name: options.get(name) for name in _FIELDS}
    if fields["inactive_threshold"] is not None:
        fields["inactive_threshold"] = span(
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
    return ConsumerConfig.of(None, {**fields, **fixed, **place})


def ordered_push_config(config: ConsumerConfig) -> ConsumerConfig:
    """The first consumer, when the server is to push, but for name and deliver subject.

    With flow control, for which a server wants heartbeats (ADR-15).
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


class State(Enum):
    """How far a read is with its series of consumers."""

    NEW = "nobody has begun to read"
    STARTING = "the I/O thread is to begin"
    BETWEEN = "no consumer is read, and the next one is to be made"
    LIVE = "a consumer is read"
    ENDING = "no other consumer is made, and what is on its way is still taken"
    ENDED = "the cursor is where the next read goes on"


_AT_END: Final = {State.ENDING, State.ENDED}

MOVES: Final = {
    State.NEW: {State.STARTING, State.LIVE, *_AT_END},
    State.STARTING: {State.BETWEEN, State.LIVE, *_AT_END},
    State.BETWEEN: {State.BETWEEN, State.LIVE, *_AT_END},
    State.LIVE: {State.BETWEEN, *_AT_END},
    State.ENDING: {State.ENDED},
    State.ENDED: set[State](),
}
"""What a state may become. Nothing goes on once it is at its end."""


class Step(Enum):
    """What follows."""

    WAIT = "more will come"
    ASK = "its server has nothing more, so ask the leader for the rest"
    NEXT = "another consumer goes on, as was planned"
    RESET = "another consumer goes on, since something was lost"
    END = "all is read"


@dataclass(frozen=True, slots=True)
class Range:
    """What may be taken of one consumer: stream sequences behind `after`, up to `last`."""

    after: int
    last: int | None
    to_end: bool
    consumer_sequence: int
    """The last that has come of it."""


def is_final(error: Exception) -> bool:
    """Whether no other attempt to make a consumer can come to another result."""
    if isinstance(error, APIError):
        refused = error.code == 400 and not isinstance(error, MaximumConsumersError)
        return refused or isinstance(error, StreamNotFoundError)
    return isinstance(
        error, ConnectionClosedError | ForkedProcessError | PermissionsError
    )


class Cursor:
    """Where an ordered consumer is, and which consumer comes next.

    With `last_per_subject` the stream's last sequence before the first consumer is made
    is the snapshot. What was the last of its subject then cannot be asked for from the
    middle on. So up to the snapshot each further consumer is asked for the last of each
    subject once more, and what was read is passed over; all that is behind the snapshot
    then comes from one by sequence, since of that nothing may be left out. What was the
    last then, and was not read yet, gives way to what has followed on its subject since.

    A server stops at each message of the snapshot that is gone when its turn comes, and
    sends nothing until something wakes it (nats-server 2.10 to 2.15). So a consumer that
    is silent below the snapshot gives way to another one.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        prefix: str,
        *,
        max_reset_attempts: int | None = RESET_ATTEMPTS,
    ) -> None:
        if max_reset_attempts is not None:
            whole(max_reset_attempts, "max_reset_attempts", 1)
        self.position = 0
        """The last stream sequence that is done with; the next consumer goes on behind."""
        self.until: int | None = None
        """Read to this sequence and end; None: never end."""
        self.name: str | None = None
        """The consumer that goes on behind the position; None: another has to be made."""
        self.consumer_sequence = 0
        """The last that has come of that consumer."""
        self._config = config
        self.prefix = prefix
        """What the names of its consumers begin with."""
        self.inactive_threshold = config.inactive_threshold or INACTIVE_THRESHOLD
        """Seconds without use after which the server deletes a consumer that is pulled."""
        self._created: datetime | None = None
        self._max_attempts = max_reset_attempts
        self._snapshot = 0
        self._serial = 0
        self._born = False
        self._is_first = True
        self._read = 0  # the highest sequence that existed in the stream
        self._failures = 0
        self._idle_resets = 0
        self._behind: list[int] = []
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
        """The subjects that are read. None: all."""
        return self._config.filter_subjects

    @property
    def is_latest(self) -> bool:
        """Whether it begins with the last message of each subject."""
        return self._config.deliver_policy == "last_per_subject"

    # The next consumer ----------------------------------------------------------------

    @property
    def needs_snapshot(self) -> bool:
        """Whether it has to see the stream before the first consumer is made."""
        return self.is_latest and not self._born

    def next_config(self) -> ConsumerConfig:
        """The next consumer. Its name is new: the fate of the last one may be unknown."""
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

    def began(self, info: ConsumerInfo) -> None:
        """The server has made it."""
        self.name, self.consumer_sequence = info.name, 0
        self._failures = 0
        self._unseen = self._lagging = None
        if not self._born:
            # Remember where the policy began. It cannot be asked again: "new" and
            # "last" would mean other messages by then.
            self._born = True
            self.position = info.delivered.stream_seq
        else:
            self._is_first = False

    def range(self) -> Range:
        """What may be taken of the consumer that began last."""
        last = self.until
        if not self._is_first and self.position < self._snapshot:
            last = self._snapshot if last is None else min(last, self._snapshot)
        return Range(
            self.position, last, self.until is not None, self.consumer_sequence
        )

    def coming(self) -> Range:
        """What may be taken of the consumer that is made next.

        For one that pushes, and so may send before it is known to be there.
        """
        last = self.until
        if self._born and self.position < self._snapshot:
            last = self._snapshot if last is None else min(last, self._snapshot)
        return Range(self.position, last, self.until is not None, 0)

    @property
    def at_end(self) -> bool:
        return self.until is not None and self.position >= self.until

    # What has come of it --------------------------------------------------------------

    def reached(self, sequence: int, consumer_sequence: int) -> bool:
        """What has come of the consumer; whether that is progress."""
        self.consumer_sequence = consumer_sequence
        if sequence <= self.position:
            return False
        self.position = sequence
        self._read = max(self._read, sequence)
        return True

    def rewind(self, sequence: int) -> None:
        """What is behind `sequence` has come, but nobody has got it: read it again."""
        self.position = min(self.position, sequence)
        self.name = None

    def return_to(self, sequence: int) -> None:
        """The user has the messages up to `sequence`, and no later ones: read on there."""
        self.position = sequence
        self._read = max(self._read, sequence)
        self.name = None

    def stopped(self, why: str, span: Range) -> Step:
        """The order has stopped, see `_fast.Order`."""
        if why == "gap":
            return Step.RESET
        if span.last is not None:
            self.position = max(self.position, span.last)
        return Step.END if self.at_end else Step.NEXT

    def may_stall(self, stream_sequence: int) -> bool:
        """Whether its consumer may be silent although it has something to send.

        `stream_sequence` is the last that has come of it.
        """
        return max(stream_sequence, self.position) < self._snapshot

    def checked(
        self,
        info: ConsumerInfo,
        consumer_sequence: int,
        now: float,
        patience: float,
        *,
        stream_sequence: int = 0,
        waits: bool = True,
    ) -> Step:
        """Nothing has come for a while, and the end is not reached: the server was asked.

        What was there may have been deleted, or have expired. The sequences are of the
        last message that has come. What the server has sent and does not come for
        `patience` seconds is taken for lost. `waits`: the server may send more. It may be
        behind the leader, whose word alone is the end of a read to the end.
        """
        sent = info.delivered.consumer_seq
        if sent > consumer_sequence:
            if self._unseen is None or self._unseen[0] != consumer_sequence:
                self._unseen = consumer_sequence, now
            lost = now - self._unseen[1] >= patience
            return Step.RESET if lost else Step.WAIT
        self._unseen = None
        if sent < consumer_sequence:
            return Step.WAIT
        if self.until is not None:
            if info.delivered.stream_seq >= self.until:
                return Step.END
            if info.num_pending == 0:
                return Step.ASK
        if not self.may_stall(stream_sequence):
            return Step.WAIT
        if info.num_pending == 0:
            self._snapshot = 0  # every message of the snapshot was read
            return Step.NEXT
        if not waits:
            self._silent = None
        elif self._silent is None or self._silent[:2] != (info.name, sent):
            self._silent = info.name, sent, now
        elif now - self._silent[2] >= STUCK_SECONDS:
            return Step.RESET
        return Step.WAIT

    def rest(self, rest: Rest, stream_sequence: int, now: float) -> Step:
        """The server of the consumer has nothing more, and the leader was asked.

        `stream_sequence` is the last that has come. Raises `StreamNotFoundError` if this is
        another stream.
        """
        self._failures = 0
        self.same(rest.end.info)
        if rest.first is not None:
            self._shorter = 0
            lagging = self.name, stream_sequence
            if self._lagging is None or self._lagging[:2] != lagging:
                self._lagging = *lagging, now
            lost = now - self._lagging[2] >= LAG_SECONDS
            return Step.RESET if lost else Step.WAIT
        self._lagging = None
        # A stream may come back from a crash with less than it had. A new leader of
        # nats-server 2.10 may have less until it has read its own log.
        self._shorter += 1
        shorter = self.until is not None and rest.end.sequence < self.until
        return Step.WAIT if shorter and self._shorter <= BEHIND else Step.END

    # Another one ----------------------------------------------------------------------

    def reset(self, *, progress: bool, lived: float) -> float:
        """A consumer was lost; seconds to wait for the next one, so that nothing spins.

        `lived` is the age that it reached, `progress` whether it brought anything. Raises
        `OrderedConsumerResetError` for a read to an end that comes no further.
        """
        if progress or (self.until is None and lived > LAST_RETRY):
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

    def fell_silent(self, pulls: int, replies: int) -> None:
        """A consumer has sent no heartbeat; `replies` came to its pulls, messages included.

        Raises `OrderedConsumerResetError` if each brings one reply to each pull.
        """
        self._single_replies = self._single_replies + 1 if pulls == replies > 0 else 0
        if self._single_replies >= SINGLE_REPLIES:
            raise OrderedConsumerResetError(
                f"{self._single_replies} consumers in a row have sent one reply to a pull "
                f"and nothing more: {ONE_REPLY}"
            )

    def same(self, info: StreamInfo) -> None:
        """Look whether this is the stream that was read; raises `StreamNotFoundError`.

        Also takes note of its limits for consumers.
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

    def seen(self, end: StreamEnd) -> None:
        """Look whether the stream still has what was read.

        A stream may come back from a crash with less than was read of it; so may a new
        leader that has not read its own log yet, which is why the first answers to say so
        raise an error that is no final one.
        """
        last = end.sequence
        if self.needs_snapshot:
            self._snapshot = last
        if last >= self._read:
            self._behind.clear()
            return
        self._behind.append(last)
        if len(self._behind) <= BEHIND:
            raise OrderedConsumerResetError(
                f"stream {end.info.config.name!r} ends at sequence {last}, "
                f"but sequence {self._read} was already read"
            )
        self.position = self._read = min(self._behind)
        self._snapshot = 0
        self._behind.clear()

    def failed(self, error: Exception) -> float:
        """No consumer could be made; seconds until the next attempt, or raises the end."""
        if is_final(error):
            raise error
        self._failures += 1
        if self._max_attempts is not None and self._failures >= self._max_attempts:
            raise OrderedConsumerResetError(
                f"no consumer after {self._failures} attempts: {error}"
            ) from error
        return _pause(self._failures)


def _pause(failures: int) -> float:
    """0 for none, and then longer each time."""
    if failures == 0:
        return 0.0
    return min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 10))
