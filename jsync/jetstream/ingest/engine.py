"""The states and the accounting of fast-ingest batches (ADR-50).

Pure: no socket, thread or clock. Where the ADR and released servers disagree, this follows
nats-server 2.14 and 2.15.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

from ... import errors
from ..._fast import IngestCounters
from ...core.state import StateMachine
from ...errors import (
    APIError,
    BatchPublishError,
    BatchPublishUnknownBatchIDError,
    ConfigError,
    ConnectionLostError,
    IngestClosedError,
    IngestConnectionError,
    IngestError,
    IngestTimeoutError,
    IngestUnsupportedError,
    JetStreamError,
    LostRange,
    NoStreamResponseError,
    PermissionsError,
    RequiredAPILevelError,
    TooManyRequestsError,
    UnconfirmedRange,
    UnsupportedFeatureError,
)
from ...models import PubAck
from ...validation import check_count
from .flow_messages import FlowKind, Operation
from .missing_messages import MissingMessages

if TYPE_CHECKING:
    from .flow_messages import FlowMessage

Gaps: TypeAlias = Literal["fail", "ok"]

DEFAULT_FLOW: Final = 1000
"""The default of the most messages per ack. Servers ack every 500 messages at least."""
DEFAULT_WINDOW_BYTES: Final = 8 << 20
"""A stream rejects messages while 128 MiB of all its publishers wait to be stored."""
MAX_UNANSWERED_PINGS: Final = 3
SIZE_SLACK: Final = 8
"""If messages are so many times smaller than a batch has expected, it is ended early, and
the next batch requests fewer acks."""
MAX_FLOW: Final = 65535
MAX_RESTARTS: Final = 2
"""The most batches that are begun again without any progress while connected."""


class RecoveryPoint(NamedTuple):
    """The end of a broken ingest in its stream by the last answer, still to be checked."""

    stream: str
    sequence: int
    """The sequence of one of its messages in the stream."""
    following: int | None
    """The number of its messages that follow. None: unknown, as some may be duplicates."""
    final: bool
    """True if this is from a final answer, False if the server had forgotten the batch."""


class _StoredAt(NamedTuple):
    """One message whose sequence in the stream is known."""

    number: int
    stream: str
    sequence: int


class IngestState(Enum):
    """The state of a batch."""

    IDLE = "nothing of it has been sent"
    STARTING = "its first message has been sent"
    OPEN = "messages may be sent, as many as the window allows"
    BLOCKED = "no stream answers: pings alone are sent"
    FAILING = "something is missing or refused: its final answer will come"
    CONFIRMING_END = "it is over before its end, says one server: others are asked until none knows it"
    BROKEN = "it is over before its end: the rest may be sent in another one"
    ROLLING_OVER = "its end has been sent, and another batch follows"
    ENDING = "its end has been sent"
    ENDED = "all is stored"
    FAILED = "it is over, and not all is stored"


_SENT_END: Final = frozenset(
    {
        *(
            IngestState.OPEN,
            IngestState.BLOCKED,
            IngestState.FAILING,
            IngestState.CONFIRMING_END,
            IngestState.BROKEN,
        ),
        *(IngestState.ENDED, IngestState.FAILED),
    }
)
TRANSITIONS: Final[dict[IngestState, frozenset[IngestState]]] = {
    IngestState.IDLE: frozenset(
        {
            IngestState.STARTING,
            IngestState.ENDING,
            IngestState.ENDED,
            IngestState.FAILED,
        }
    ),
    IngestState.STARTING: frozenset(
        {
            IngestState.OPEN,
            IngestState.FAILING,
            IngestState.CONFIRMING_END,
            IngestState.BROKEN,
            IngestState.FAILED,
        }
    ),
    IngestState.OPEN: frozenset(
        {
            *(
                IngestState.BLOCKED,
                IngestState.FAILING,
                IngestState.CONFIRMING_END,
                IngestState.BROKEN,
            ),
            *(
                IngestState.ROLLING_OVER,
                IngestState.ENDING,
                IngestState.ENDED,
                IngestState.FAILED,
            ),
        }
    ),
    IngestState.BLOCKED: frozenset(
        {
            *(
                IngestState.OPEN,
                IngestState.FAILING,
                IngestState.CONFIRMING_END,
                IngestState.BROKEN,
            ),
            *(IngestState.ENDED, IngestState.FAILED),
        }
    ),
    IngestState.FAILING: frozenset(
        {
            IngestState.OPEN,
            IngestState.CONFIRMING_END,
            IngestState.BROKEN,
            IngestState.ENDED,
            IngestState.FAILED,
        }
    ),
    IngestState.CONFIRMING_END: frozenset(
        {
            IngestState.OPEN,
            IngestState.FAILING,
            IngestState.BROKEN,
            IngestState.ENDED,
            IngestState.FAILED,
        }
    ),
    IngestState.BROKEN: frozenset({IngestState.IDLE, IngestState.FAILED}),
    IngestState.ROLLING_OVER: _SENT_END,
    IngestState.ENDING: _SENT_END,
    IngestState.ENDED: frozenset(),
    IngestState.FAILED: frozenset(),
}
"""The next states of each state. Another move is a fault of the driver or the server."""

TERMINAL: Final = (IngestState.ENDED, IngestState.FAILED)
QUIET: Final = (IngestState.IDLE, IngestState.BROKEN, *TERMINAL)
"""The states without an open batch: nothing is sent to the server, and answers are late."""


_REJECTIONS: Final = (
    APIError,
    UnsupportedFeatureError,
    NoStreamResponseError,
    PermissionsError,
)


class IngestEngine(IngestCounters):
    """The accounting of one ingest: a batch, and the batches that continue after a break.

    The server counts the messages within a batch. All numbers for the user (`acked`,
    `lost`, errors) count through the whole ingest. The driver changes the engine under one
    lock, since any thread may abandon the ingest. After the end, nothing changes any more.
    """

    def __init__(
        self,
        gaps: Gaps = "fail",
        flow: int = DEFAULT_FLOW,
        outstanding: int = 2,
        window_bytes: int = DEFAULT_WINDOW_BYTES,
    ) -> None:
        if gaps not in ("fail", "ok"):
            raise ConfigError(f'gaps has to be "fail" or "ok", not {gaps!r}')
        self.gaps: Gaps = gaps
        self.flow = check_count(flow, "flow", 1, MAX_FLOW)
        self.outstanding = check_count(outstanding, "outstanding", 1, 1 << 16)
        self.window_bytes = check_count(window_bytes, "window_bytes", 1, 1 << 62)
        self.requested_flow = self.flow
        """The most messages per ack that this batch has requested."""
        self._state = StateMachine(IngestState.IDLE, TRANSITIONS)
        self.msgs = 0
        """The number of messages per ack that the server has chosen."""
        self.missing = MissingMessages()
        """The lost and the unconfirmed messages, with `gaps="ok"`."""
        self.replicated = True
        """True if another leader of the stream may have stored more, with `gaps="ok"`."""
        self.pub_ack: PubAck | None = None
        self.cause: Exception | None = None
        """The error that ended the ingest."""
        self.busy: Exception | None = None
        """The error of a stream with too much to store. The rest is sent after a pause."""
        self.known_to_server = False
        """True if the server may hold a batch of this ingest, which must be ended."""
        self._most_sent = 0
        self._rejection: tuple[int, Exception] | None = None
        self._no_stream = False
        self._restarts = 0
        self._exact = False  # whether we know how much of the broken batch is stored
        self._stored_at: _StoredAt | None = None
        self._tail_unconfirmed = self._final = False
        # An earlier batch may have stored unacknowledged messages up to this one.
        self._ambiguous_up_to = 0
        # Pings after the last message that brought no progress.
        self._unanswered_pings = 0
        # With `gaps="ok"`: the last message before the connection or the leader was
        # lost. Reports of gaps and rejections up to here may be lost, and the stream
        # repeats none.
        self._cut = 0
        self._loss: Exception | None = None

    @property
    def highest(self) -> int:
        """The number of messages sent so far, in the whole ingest."""
        return max(self._most_sent, self.base + self.sent)

    @property
    def state(self) -> IngestState:
        """The state of the ingest."""
        return self._state.current

    @property
    def answered_count(self) -> int:
        """The number of messages that are acknowledged or known to be missing."""
        return self.acked + self.missing.in_flight

    @property
    def limit(self) -> int:
        """The number of the last message of this batch that may be sent now."""
        match self.state:
            case IngestState.IDLE:
                return 1
            case IngestState.OPEN:
                # A missing message never gets an ack, so do not count it as pending.
                window = self.msgs * self.outstanding
                return self.received + window + self.missing.in_flight
        return self.sent

    def should_roll_over(self, under_way: int, *, full: bool) -> bool:
        """Return whether a new batch with another number of messages per ack is better.

        The first message of a batch sets this number, so it cannot change later.
        `under_way` is the number of unacknowledged bytes, and `full` says that no more are
        allowed.
        """
        if self.state is not IngestState.OPEN:
            return False
        if full:
            return self._is_stalled() or self.sent < self.received + self.msgs
        if self.sent < self.limit:
            return False
        return self._is_stalled() or (
            self.requested_flow < self.flow
            and self.msgs >= self.requested_flow
            and under_way * SIZE_SLACK <= self.window_bytes
        )

    def recovery_point(self, *, duplicates: bool) -> RecoveryPoint | None:
        """Return the end of the ingest in its stream, to be checked before a retry.

        None if no check is needed. `duplicates` says that the stream may have had some of
        the messages before, so that they are acknowledged, but not stored after the others.
        """
        if self.state is not IngestState.BROKEN or not self._tail_unconfirmed:
            return None
        if self._stored_at is None:
            return None
        number, stream, sequence = self._stored_at
        following: int | None = self.acked - number
        if following and duplicates:
            following = None
        return RecoveryPoint(stream, sequence, following, self._final)

    def confirm_tail(self) -> None:
        """Record that no message after the last acknowledged one is stored."""
        self._tail_unconfirmed = False
        self._exact = True

    def _is_stalled(self) -> bool:
        """Return whether reports of rejections seem lost, so that no ack will make room."""
        return self.gaps == "ok" and self._unanswered_pings >= MAX_UNANSWERED_PINGS

    def _transition(self, state: IngestState) -> None:
        if not self._state.try_to(state) and state is not self.state:
            self.fail(JetStreamError(f"the stream answers out of turn: {self!r}"))

    # Sending ----------------------------------------------------------------------------

    def begin(self, size: int) -> None:
        """Choose the messages per ack of a new batch of messages of about `size` bytes."""
        fitting = self.window_bytes // (self.outstanding * max(size, 1))
        self.requested_flow = min(max(fitting, 1), self.flow)

    def record_sent(self) -> None:
        """Record that a message was sent."""
        if self.sent == 1:
            self.known_to_server = True
        if self.state is IngestState.IDLE:
            self._transition(IngestState.STARTING)

    def end(self, *, more: bool = False) -> None:
        """Record that the end of the batch, or its last message as a commit, was sent.

        With `more`, another batch follows.
        """
        self.known_to_server = True
        if self.state not in TERMINAL:
            self._transition(IngestState.ROLLING_OVER if more else IngestState.ENDING)

    def ended_empty(self) -> None:
        """End without a batch: earlier batches stored all messages, or there were none."""
        if self.state is IngestState.IDLE:
            self._transition(IngestState.ENDED)
            ack = self.pub_ack or PubAck()
            self.pub_ack = msgspec.structs.replace(ack, count=self.base)

    def restart(self, *, reconnected: bool) -> None:
        """Prepare another batch for the messages that are not stored.

        Fails instead after `MAX_RESTARTS` batches without progress.
        """
        if self.state is not IngestState.BROKEN:
            return
        if self.received or reconnected or self.busy is not None:
            self._restarts = 0
        elif self._restarts == MAX_RESTARTS:
            self.fail(self._cause_of_break())
            return
        else:
            self._restarts += 1
        self._most_sent = self.highest
        self.msgs = 0
        self._rejection = self.busy = None
        self._no_stream = self._exact = False
        self._tail_unconfirmed = self._final = False
        self._unanswered_pings = self._cut = 0
        self.rebase()
        # Last: if Ctrl-C comes before this line, all of this is repeated.
        self._transition(IngestState.IDLE)

    def abandon(self) -> bool:
        """Return whether an end must be sent for an open batch. True only once."""
        must_end = self.known_to_server and self.state is not IngestState.ENDED
        self.known_to_server = False
        return must_end

    def disconnected(self, sent: int) -> None:
        """Record that the connection broke after `sent` messages."""
        if self.state not in QUIET:
            self._lose_reports(
                sent,
                ConnectionLostError(
                    "the connection was lost before the stream acknowledged them"
                ),
            )

    def _lose_reports(self, sent: int, loss: Exception) -> None:
        """Record that reports of gaps and rejections up to message `sent` may be lost."""
        if self.gaps == "ok":
            self._cut, self._loss = sent, loss

    def _cause_of_break(self) -> Exception:
        if self.busy is not None:
            return self.busy
        if self._no_stream:
            return NoStreamResponseError(
                "no stream takes the message: none has its subject, its stream has no "
                "leader now, or JetStream is off"
            )
        return JetStreamError(
            "a message does not reach the stream, although it was sent several times"
        )

    def fail(self, cause: Exception) -> None:
        """Fail with `cause`. Afterwards `error` describes the messages."""
        if self._state.try_to(IngestState.FAILED):
            self.cause = cause
            # A start without permission has not reached a stream.
            self._exact |= isinstance(cause, PermissionsError) and self.highest <= 1

    def error(self) -> Exception:
        """Return the error for the user, which lists lost and unconfirmed messages."""
        cause = self.cause
        assert cause is not None
        exact = self._exact and self.acked >= self._ambiguous_up_to
        if isinstance(cause, IngestClosedError) or (
            # Only the start has been sent.
            self.highest <= 1 and exact and isinstance(cause, _REJECTIONS)
        ):
            return cause
        kind: type[IngestError] = IngestError
        if isinstance(cause, errors.TimeoutError):
            kind = IngestTimeoutError
        elif isinstance(cause, errors.ConnectionError):
            kind = IngestConnectionError
        first, last = self.acked + 1, self.highest
        lost = list(self.missing.lost)
        unconfirmed = list(self.missing.unconfirmed)
        if exact and first <= last:
            missing = first
            if self._rejection is not None:
                at = self.base + self._rejection[0]
                if first < at:
                    lost.append(LostRange(first, at - 1, None))
                lost.append(LostRange(at, at, self._rejection[1]))
                missing = at + 1
            if missing <= last:
                lost.append(LostRange(missing, last, None))
        elif first <= last:
            unconfirmed += [
                UnconfirmedRange(*part, cause)
                for part in self.missing.uncovered(first, last)
            ]
        what = f"the ingest ended at message {last}: {cause}"
        if unconfirmed:
            what += f" ({unconfirmed[0].first} to {unconfirmed[-1].last} may be stored or not)"
        elif first <= last:
            what += f" ({first} to {last} are not stored)"
        error = kind(
            what,
            acked=self.acked,
            lost=tuple(lost),
            unconfirmed=tuple(unconfirmed),
            pub_ack=self.pub_ack,
        )
        error.__cause__ = cause
        return error

    # Answers ----------------------------------------------------------------------------

    def handle(self, answer: FlowMessage, *, repeatable: bool = False) -> None:
        """Account for an answer. This may change `state` and `limit`.

        `repeatable` says that all unacknowledged messages have a message id, so they can be
        sent again even if they are stored.
        """
        if self.state in QUIET:
            return  # a late answer about an ended batch
        match answer.kind:
            case FlowKind.ACK:
                self._on_ack(answer)
            case FlowKind.GAP:
                self._on_gap(answer)
            case FlowKind.ERROR:
                self._on_error(answer)
            case FlowKind.ENDED:
                self._on_end(answer, repeatable)
            case FlowKind.REJECTED:
                self._on_rejected(answer, repeatable)
            case FlowKind.STORED:
                self._on_stored(answer)
            case FlowKind.NO_STREAM:
                self._on_no_stream(answer)

    def is_gap(self, answer: FlowMessage) -> bool:
        """Return whether an answer reports missing messages, with `gaps="ok"`."""
        if self.gaps != "ok" or self.state in QUIET:
            return False
        if answer.kind is FlowKind.ENDED and answer.ack is not None:
            return (answer.ack.count or 0) < self.sent
        return answer.kind is FlowKind.GAP

    def _on_ack(self, answer: FlowMessage) -> None:
        if answer.seq > self.received:
            self._unanswered_pings = 0
        elif self._answers_last_ping(answer):
            self._unanswered_pings += 1
        # The answer to a ping, or a late answer, may be older than earlier ones.
        if answer.seq >= self.received:
            self._pass(min(answer.seq, self.sent))
            self.msgs = answer.msgs or self.msgs or 1
        if self.state in (IngestState.STARTING, IngestState.BLOCKED):
            self._transition(IngestState.OPEN)
        elif (
            self.state in (IngestState.ROLLING_OVER, IngestState.ENDING)
            and answer.operation is Operation.PING
        ):
            # The batch is alive, so the server has not received its end. If this ping
            # was sent before the end, a second ping does no harm.
            self._transition(IngestState.OPEN)
        elif (
            self.state in (IngestState.FAILING, IngestState.CONFIRMING_END)
            and self._rejection is None
            and self._answers_last_ping(answer)
        ):
            # Another server leads now, and has the whole batch.
            self._tail_unconfirmed = False
            self._transition(IngestState.OPEN)

    def _answers_last_ping(self, answer: FlowMessage) -> bool:
        """Return whether this answers a ping that was sent after all messages."""
        return answer.operation is Operation.PING and answer.sequence >= self.sent

    def _on_gap(self, answer: FlowMessage) -> None:
        if self.gaps == "fail":
            if self.state is not IngestState.CONFIRMING_END:
                self._transition(IngestState.FAILING)
            return
        self._not_arrived(answer.last_seq, min(answer.seq - 1, self.sent))
        if self.state is IngestState.BLOCKED:
            self._transition(IngestState.OPEN)

    def _on_error(self, answer: FlowMessage) -> None:
        if answer.error is not None:
            self._message_rejected(answer.seq, answer.error)

    def _message_rejected(self, sequence: int, error: Exception) -> None:
        if self.gaps == "ok":
            self._add_gap(sequence, sequence, error)
            return
        if self._rejection is None:
            self._rejection = sequence, error
        self._transition(IngestState.FAILING)

    def _on_end(self, answer: FlowMessage, repeatable: bool) -> None:
        """Account for the final answer of a batch.

        With `gaps="ok"`, its count does not say which messages are stored. With "fail", a
        count that is too low is not certain either: after a leader change, the former
        leader may answer while the stream still stores messages that it had replicated.
        """
        ack = answer.ack
        assert ack is not None
        count = ack.count or 0
        number = self.base + count
        self.known_to_server = False
        over = self.state is not IngestState.ROLLING_OVER and (
            self.state is IngestState.ENDING
            or answer.operation in (Operation.END, Operation.COMMIT)
        )
        if self.gaps == "ok":
            self._not_arrived(count + 1, self.sent)
            self._pass(self.sent)
        else:
            self._receive(min(max(count, self.received), self.sent))
        self.pub_ack = msgspec.structs.replace(ack, count=number)
        if count and (self._stored_at is None or number >= self._stored_at.number):
            self._stored_at = _StoredAt(number, ack.stream, ack.seq)
        if self._rejection is not None:
            self._exact = self.received + 1 >= self._rejection[0]
            self.fail(self._rejection[1])
        elif self.received == self.sent:
            self._exact = True
            self._transition(IngestState.ENDED if over else IngestState.BROKEN)
        elif repeatable:
            self._ambiguous_up_to = self.highest
            self._transition(IngestState.BROKEN)
        else:
            self._tail_unconfirmed = self._final = True
            if self.sent > 1:
                self.known_to_server = True
                self._transition(IngestState.CONFIRMING_END)
            else:
                # nats-server 2.14.0 starts a new batch at such a ping, and then ends
                # it.
                self._break_or_fail(
                    JetStreamError("the stream does not know the start of the batch")
                )

    def _break_or_fail(self, error: Exception) -> None:
        """Break, or fail, because no server knows the batch."""
        self.known_to_server = False
        if self._stored_at is None:
            self.fail(error)
        else:
            self._tail_unconfirmed = True
            self._transition(IngestState.BROKEN)

    def _on_rejected(self, answer: FlowMessage, repeatable: bool) -> None:
        error = answer.error
        assert error is not None
        if isinstance(error, BatchPublishUnknownBatchIDError):
            self._on_unknown_batch(answer, error, repeatable)
            return
        if type(error) is TooManyRequestsError:
            self._on_overload(answer, error)
            return
        first = answer.sequence == 1 and answer.operation in (
            Operation.START,
            Operation.COMMIT,
        )
        ends_it = isinstance(error, BatchPublishError | RequiredAPILevelError)
        if ends_it or (first and self.gaps == "fail"):
            self.known_to_server = False
            if first:
                self._exact = True
                self._rejection = 1, error
            self.fail(error)
        elif answer.operation in (Operation.END, Operation.PING):
            if self.state is IngestState.STARTING:
                # The first message was rejected, and no message follows it.
                self.known_to_server = False
                self._exact = True
                self._rejection = 1, error
                self.fail(error)
            else:
                self._block()  # the batch has stored nothing: start again
        else:
            self._message_rejected(answer.sequence, error)

    def _on_overload(self, answer: FlowMessage, error: APIError) -> None:
        """Account for a rejection by a stream that has too much to store.

        The stream has not looked at the message.
        """
        if answer.operation is Operation.PING:
            return  # a later ping gets the answer
        if answer.operation is Operation.END:
            self._block()
            return
        if (
            self.gaps == "ok"
            and self.state is not IngestState.STARTING
            and answer.sequence > 1
        ):
            self._add_gap(answer.sequence, answer.sequence, error)
            self._block()
            return
        self.busy = error
        if answer.sequence == 1:
            self.known_to_server = False
            self._exact = True
            self._transition(IngestState.BROKEN)
        elif self.state is not IngestState.CONFIRMING_END:
            # The next message reveals the gap. The batch ends there, and the rest is
            # sent again.
            self._transition(IngestState.FAILING)

    def _on_unknown_batch(
        self, answer: FlowMessage, error: APIError, repeatable: bool
    ) -> None:
        """Account for the answer of a server that does not know the batch.

        The batch was idle for too long or is over, or the server was restarted. After a gap
        or a rejection, each later message gets this answer, too. The final answer is on its
        way then, unless a ping also gets this answer.
        """
        if self.state is IngestState.CONFIRMING_END:
            if self._answers_last_ping(answer):
                self._break_or_fail(error)
            return
        if self.state is IngestState.FAILING and answer.operation is not Operation.PING:
            return
        self.known_to_server = False
        if self._rejection is not None:
            self.fail(self._rejection[1])
        elif self.gaps == "ok":
            # The ingest continues with another batch. Unacknowledged messages may be
            # stored or not.
            self._add_gap(self.received + 1, self.sent, error, ambiguous=True)
            self._receive(self.sent)
            self._transition(IngestState.BROKEN)
        elif repeatable:
            self._ambiguous_up_to = self.highest
            self._transition(IngestState.BROKEN)
        elif self._stored_at is None or self._answers_last_ping(answer):
            self._break_or_fail(error)
        else:
            # The messages after it are in flight, and another leader may know the
            # batch.
            self._transition(IngestState.CONFIRMING_END)

    def _on_stored(self, answer: FlowMessage) -> None:
        ack = answer.ack
        assert ack is not None
        self.known_to_server = False
        self.pub_ack = ack
        self._exact = True
        self._receive(min(answer.sequence, self.sent))
        self.fail(
            IngestUnsupportedError(
                "the server has no fast ingest (it needs nats-server 2.14): it stored "
                f"the first message as an ordinary one, at {ack.seq} of stream {ack.stream!r}",
                stored=ack,
            )
        )

    def _on_no_stream(self, answer: FlowMessage) -> None:
        """Account for a missing stream: it was deleted, or its leader is being elected."""
        self._no_stream = True
        stores = answer.operation not in (Operation.END, Operation.PING)
        if self.state is IngestState.STARTING:
            if stores:  # otherwise it is a ping, and the start may still be stored
                self.known_to_server = False
                self._exact = True
                self._transition(IngestState.BROKEN)
            return
        if stores and self.gaps == "ok":
            self._add_gap(answer.sequence, answer.sequence, None)
        if self.state is not IngestState.BLOCKED:
            self._lose_reports(
                self.sent,
                NoStreamResponseError(
                    "the stream lost its leader before it acknowledged them"
                ),
            )
        self._block()

    def _block(self) -> None:
        if self.state in (
            IngestState.OPEN,
            IngestState.ROLLING_OVER,
            IngestState.ENDING,
        ):
            self._transition(IngestState.BLOCKED)

    def blocked_error(self) -> Exception:
        """Return the error for an ingest that was blocked for too long."""
        return self._cause_of_break()

    def _pass(self, received: int) -> None:
        """Record that the server has processed all messages up to `received`.

        It has stored them, except those that it reported. If the connection or the leader
        was lost while they were under way, it is unknown which ones are stored.
        """
        cut = min(received, self._cut)
        self._add_gap(self.received + 1, cut, self._loss, ambiguous=True)
        self._receive(received)

    def _receive(self, received: int) -> None:
        """Record that the server has acknowledged all messages up to `received`."""
        self.received = received
        self.missing.acknowledge(self.acked)

    def _not_arrived(self, first: int, last: int) -> None:
        """Record messages that did not arrive.

        They are lost, or unconfirmed if another leader may have stored them.
        """
        self._add_gap(first, last, None, ambiguous=self.replicated)

    def _add_gap(
        self, first: int, last: int, error: Exception | None, *, ambiguous: bool = False
    ) -> None:
        """Record missing messages of this batch, or with `ambiguous` unconfirmed ones.

        Acknowledged messages are left out.
        """
        first, last = max(first, self.received + 1), min(last, self.sent)
        self.missing.add(
            self.base + first, self.base + last, error, ambiguous=ambiguous
        )

    def __repr__(self) -> str:
        return (
            f"<IngestEngine {self.state.name.lower()}, {self.highest} sent, "
            f"{self.acked} acknowledged, {self.missing.lost_count} lost>"
        )
