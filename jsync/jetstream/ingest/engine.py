"""The states and the accounting of fast-ingest batches (ADR-50).

Pure: no socket, thread or clock. Where the ADR and released servers disagree, this follows
nats-server 2.14 and 2.15.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

from ... import errors
from ..._fast import IngestCounts
from ...checks import check_count
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
from .answer import Kind, Operation
from .missing import Missing

if TYPE_CHECKING:
    from .answer import Answer

Gaps: TypeAlias = Literal["fail", "ok"]

DEFAULT_FLOW: Final = 1000
"""The default of the most messages per ack. Servers ack every 500 messages at least."""
DEFAULT_WINDOW_BYTES: Final = 8 << 20
"""A stream rejects messages while 128 MiB of all its publishers wait to be stored."""
VAIN_PINGS: Final = 3
MUCH_ROOM: Final = 8
"""If messages are so many times smaller than a batch has expected, it is ended early, and
the next batch requests fewer acks."""
MAX_FLOW: Final = 65535
MAX_REPEATS: Final = 2
"""The most batches that are begun again without any progress while connected."""


class Tail(NamedTuple):
    """The end of a broken ingest in its stream by the last answer, still to be checked."""

    stream: str
    sequence: int
    """The sequence of one of its messages in the stream."""
    behind: int | None
    """The number of its messages that follow. None: unknown, as some may be duplicates."""
    final: bool
    """True if this is from a final answer, False if the server had forgotten the batch."""


class _Place(NamedTuple):
    """One message whose sequence in the stream is known."""

    number: int
    stream: str
    sequence: int


class State(Enum):
    """The state of a batch."""

    IDLE = "nothing of it has been sent"
    STARTING = "its first message has been sent"
    OPEN = "messages may be sent, as many as the window allows"
    BLOCKED = "no stream answers: pings alone are sent"
    BREAKING = "something is missing or refused: its final answer will come"
    ASKING = "it is over before its end, says one server: others are asked until none knows it"
    BROKEN = "it is over before its end: the rest may be sent in another one"
    TURNING = "its end has been sent, and another batch follows"
    ENDING = "its end has been sent"
    ENDED = "all is stored"
    FAILED = "it is over, and not all is stored"


_SENT_END: Final = frozenset(
    {
        *(State.OPEN, State.BLOCKED, State.BREAKING, State.ASKING, State.BROKEN),
        *(State.ENDED, State.FAILED),
    }
)
LEGAL: Final[dict[State, frozenset[State]]] = {
    State.IDLE: frozenset({State.STARTING, State.ENDING, State.ENDED, State.FAILED}),
    State.STARTING: frozenset(
        {State.OPEN, State.BREAKING, State.ASKING, State.BROKEN, State.FAILED}
    ),
    State.OPEN: frozenset(
        {
            *(State.BLOCKED, State.BREAKING, State.ASKING, State.BROKEN),
            *(State.TURNING, State.ENDING, State.ENDED, State.FAILED),
        }
    ),
    State.BLOCKED: frozenset(
        {
            *(State.OPEN, State.BREAKING, State.ASKING, State.BROKEN),
            *(State.ENDED, State.FAILED),
        }
    ),
    State.BREAKING: frozenset(
        {State.OPEN, State.ASKING, State.BROKEN, State.ENDED, State.FAILED}
    ),
    State.ASKING: frozenset(
        {State.OPEN, State.BREAKING, State.BROKEN, State.ENDED, State.FAILED}
    ),
    State.BROKEN: frozenset({State.IDLE, State.FAILED}),
    State.TURNING: _SENT_END,
    State.ENDING: _SENT_END,
    State.ENDED: frozenset(),
    State.FAILED: frozenset(),
}
"""The next states of each state. Another move is a fault of the driver or the server."""

OVER: Final = (State.ENDED, State.FAILED)
SILENT: Final = (State.IDLE, State.BROKEN, *OVER)
"""The states without an open batch: nothing is sent to the server, and answers are late."""


_REFUSALS: Final = (
    APIError,
    UnsupportedFeatureError,
    NoStreamResponseError,
    PermissionsError,
)


class IngestEngine(IngestCounts):
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
        self.asked = self.flow
        """The most messages per ack that this batch has requested."""
        self.state = State.IDLE
        self.msgs = 0
        """The number of messages per ack that the server has chosen."""
        self.missing = Missing()
        """The lost and the unconfirmed messages, with `gaps="ok"`."""
        self.replicated = True
        """True if another leader of the stream may have stored more, with `gaps="ok"`."""
        self.pub_ack: PubAck | None = None
        self.cause: Exception | None = None
        """The error that ended the ingest."""
        self.busy: Exception | None = None
        """The error of a stream with too much to store. The rest is sent after a pause."""
        self.known_to_server = False
        """True if the server may hold a batch of this ingest, which has to be ended."""
        self._most_sent = 0
        self._refusal: tuple[int, Exception] | None = None
        self._nobody = False
        self._repeats = 0
        self._exact = False  # whether we know how much of the broken batch is stored
        self._place: _Place | None = None
        self._unsettled = self._final = False
        # An earlier batch may have stored unacknowledged messages up to this one.
        self._doubt = 0
        # Pings after the last message that brought no progress.
        self._vain_pings = 0
        # With `gaps="ok"`: the last message before the connection or the leader was
        # lost. Reports of gaps and refusals up to here may be lost, and the stream
        # repeats none.
        self._cut = 0
        self._loss: Exception | None = None

    @property
    def highest(self) -> int:
        """The number of messages sent so far, in the whole ingest."""
        return max(self._most_sent, self.base + self.sent)

    @property
    def settled_count(self) -> int:
        """The number of messages that are acknowledged or known to be missing."""
        return self.acked + self.missing.under_way

    @property
    def limit(self) -> int:
        """The number of the last message of this batch that may be sent now."""
        match self.state:
            case State.IDLE:
                return 1
            case State.OPEN:
                # A missing message never gets an ack, so do not count it as pending.
                window = self.msgs * self.outstanding
                return self.received + window + self.missing.under_way
        return self.sent

    def ill_paced(self, under_way: int, *, full: bool) -> bool:
        """Return whether a new batch with another number of messages per ack is better.

        The first message of a batch sets this number, so it cannot change later.
        `under_way` is the number of unacknowledged bytes, and `full` says that no more are
        allowed.
        """
        if self.state is not State.OPEN:
            return False
        if full:
            return self._stalls() or self.sent < self.received + self.msgs
        if self.sent < self.limit:
            return False
        return self._stalls() or (
            self.asked < self.flow
            and self.msgs >= self.asked
            and under_way * MUCH_ROOM <= self.window_bytes
        )

    def tail(self, *, duplicates: bool) -> Tail | None:
        """Return the end of the ingest in its stream, to be checked before a retry.

        None if no check is needed. `duplicates` says that the stream may have had some of
        the messages before, so that they are acknowledged, but not stored after the others.
        """
        if self.state is not State.BROKEN or not self._unsettled:
            return None
        if self._place is None:
            return None
        number, stream, sequence = self._place
        behind: int | None = self.acked - number
        if behind and duplicates:
            behind = None
        return Tail(stream, sequence, behind, self._final)

    def settled(self) -> None:
        """Record that no message after the last acknowledged one is stored."""
        self._unsettled = False
        self._exact = True

    def _stalls(self) -> bool:
        """Return whether reports of rejections seem lost, so that no ack will make room."""
        return self.gaps == "ok" and self._vain_pings >= VAIN_PINGS

    def _go(self, state: State) -> None:
        if state in LEGAL[self.state]:
            self.state = state
        elif state is not self.state:
            self.fail(JetStreamError(f"the stream answers out of turn: {self!r}"))

    # Sending ----------------------------------------------------------------------------

    def begins(self, size: int) -> None:
        """Choose the messages per ack of a new batch of messages of about `size` bytes."""
        fitting = self.window_bytes // (self.outstanding * max(size, 1))
        self.asked = min(max(fitting, 1), self.flow)

    def wrote(self) -> None:
        """Record that a message was sent."""
        if self.sent == 1:
            self.known_to_server = True
        if self.state is State.IDLE:
            self._go(State.STARTING)

    def ends(self, *, more: bool = False) -> None:
        """Record that the end of the batch, or its last message as a commit, was sent.

        With `more`, another batch follows.
        """
        self.known_to_server = True
        if self.state not in OVER:
            self._go(State.TURNING if more else State.ENDING)

    def ended_empty(self) -> None:
        """End without a batch: earlier batches stored all messages, or there were none."""
        if self.state is State.IDLE:
            self._go(State.ENDED)
            ack = self.pub_ack or PubAck()
            self.pub_ack = msgspec.structs.replace(ack, count=self.base)

    def restarts(self, *, reconnected: bool) -> None:
        """Prepare another batch for the messages that are not stored.

        Fails instead after `MAX_REPEATS` batches without progress.
        """
        if self.state is not State.BROKEN:
            return
        if self.received or reconnected or self.busy is not None:
            self._repeats = 0
        elif self._repeats == MAX_REPEATS:
            self.fail(self._cause_of_break())
            return
        else:
            self._repeats += 1
        self._most_sent = self.highest
        self.msgs = 0
        self._refusal = self.busy = None
        self._nobody = self._exact = False
        self._unsettled = self._final = False
        self._vain_pings = self._cut = 0
        self.rebase()
        # Last: if Ctrl-C comes before this line, all of this is repeated.
        self._go(State.IDLE)

    def leaves(self) -> bool:
        """Return whether an end has to be sent for an open batch. True only once."""
        told = self.known_to_server and self.state is not State.ENDED
        self.known_to_server = False
        return told

    def disconnected(self, sent: int) -> None:
        """Record that the connection broke after `sent` messages."""
        if self.state not in SILENT:
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
        if self._nobody:
            return NoStreamResponseError(
                "no stream takes the message: none has its subject, or JetStream is off"
            )
        return JetStreamError(
            "a message does not reach the stream, although it was sent several times"
        )

    def fail(self, cause: Exception) -> None:
        """Fail with `cause`. Afterwards `error` describes the messages."""
        if self.state not in OVER:
            self.state = State.FAILED
            self.cause = cause
            # A start without permission has not reached a stream.
            self._exact |= isinstance(cause, PermissionsError) and self.highest <= 1

    def error(self) -> Exception:
        """Return the error for the user, which lists lost and unconfirmed messages."""
        cause = self.cause
        assert cause is not None
        exact = self._exact and self.acked >= self._doubt
        if isinstance(cause, IngestClosedError) or (
            # Only the start has been sent.
            self.highest <= 1 and exact and isinstance(cause, _REFUSALS)
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
            if self._refusal is not None:
                at = self.base + self._refusal[0]
                if first < at:
                    lost.append(LostRange(first, at - 1, None))
                lost.append(LostRange(at, at, self._refusal[1]))
                missing = at + 1
            if missing <= last:
                lost.append(LostRange(missing, last, None))
        elif first <= last:
            unconfirmed += [
                UnconfirmedRange(*part, cause)
                for part in self.missing.others(first, last)
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

    def take(self, answer: Answer, *, repeatable: bool = False) -> None:
        """Account for an answer. This may change `state` and `limit`.

        `repeatable` says that all unacknowledged messages have a message id, so they can be
        sent again even if they are stored.
        """
        if self.state in SILENT:
            return  # a late answer about an ended batch
        match answer.kind:
            case Kind.FLOW:
                self._flow(answer)
            case Kind.GAP:
                self._gap(answer)
            case Kind.FAILED:
                self._failed(answer)
            case Kind.ENDED:
                self._ended(answer, repeatable)
            case Kind.REFUSED:
                self._refused(answer, repeatable)
            case Kind.STORED:
                self._stored(answer)
            case Kind.NOBODY:
                self._nobody_there(answer)

    def tells_of_gap(self, answer: Answer) -> bool:
        """Return whether an answer reports missing messages, with `gaps="ok"`."""
        if self.gaps != "ok" or self.state in SILENT:
            return False
        if answer.kind is Kind.ENDED and answer.ack is not None:
            return (answer.ack.count or 0) < self.sent
        return answer.kind is Kind.GAP

    def _flow(self, answer: Answer) -> None:
        if answer.seq > self.received:
            self._vain_pings = 0
        elif self._is_last_word(answer):
            self._vain_pings += 1
        # The answer to a ping, or a late answer, may be older than earlier ones.
        if answer.seq >= self.received:
            self._pass(min(answer.seq, self.sent))
            self.msgs = answer.msgs or self.msgs or 1
        if self.state in (State.STARTING, State.BLOCKED):
            self._go(State.OPEN)
        elif (
            self.state in (State.TURNING, State.ENDING)
            and answer.operation is Operation.PING
        ):
            # The batch is alive, so the server has not received its end. If this ping
            # was sent before the end, a second ping does no harm.
            self._go(State.OPEN)
        elif (
            self.state in (State.BREAKING, State.ASKING)
            and self._refusal is None
            and self._is_last_word(answer)
        ):
            # Another server leads now, and has the whole batch.
            self._unsettled = False
            self._go(State.OPEN)

    def _is_last_word(self, answer: Answer) -> bool:
        """Return whether this answers a ping that was sent after all messages."""
        return answer.operation is Operation.PING and answer.sequence >= self.sent

    def _gap(self, answer: Answer) -> None:
        if self.gaps == "fail":
            if self.state is not State.ASKING:
                self._go(State.BREAKING)
            return
        self._not_arrived(answer.last_seq, min(answer.seq - 1, self.sent))
        if self.state is State.BLOCKED:
            self._go(State.OPEN)

    def _failed(self, answer: Answer) -> None:
        if answer.error is not None:
            self._message_refused(answer.seq, answer.error)

    def _message_refused(self, sequence: int, error: Exception) -> None:
        if self.gaps == "ok":
            self._miss(sequence, sequence, error)
            return
        if self._refusal is None:
            self._refusal = sequence, error
        self._go(State.BREAKING)

    def _ended(self, answer: Answer, repeatable: bool) -> None:
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
        over = self.state is not State.TURNING and (
            self.state is State.ENDING
            or answer.operation in (Operation.END, Operation.COMMIT)
        )
        if self.gaps == "ok":
            self._not_arrived(count + 1, self.sent)
            self._pass(self.sent)
        else:
            self._receive(min(max(count, self.received), self.sent))
        self.pub_ack = msgspec.structs.replace(ack, count=number)
        if count and (self._place is None or number >= self._place.number):
            self._place = _Place(number, ack.stream, ack.seq)
        if self._refusal is not None:
            self._exact = self.received + 1 >= self._refusal[0]
            self.fail(self._refusal[1])
        elif self.received == self.sent:
            self._exact = True
            self._go(State.ENDED if over else State.BROKEN)
        elif repeatable:
            self._doubt = self.highest
            self._go(State.BROKEN)
        else:
            self._unsettled = self._final = True
            if self.sent > 1:
                self.known_to_server = True
                self._go(State.ASKING)
            else:
                # nats-server 2.14.0 starts a new batch at such a ping, and then ends
                # it.
                self._unknown(
                    JetStreamError("the stream does not know the start of the batch")
                )

    def _unknown(self, error: Exception) -> None:
        """Break, or fail, because no server knows the batch."""
        self.known_to_server = False
        if self._place is None:
            self.fail(error)
        else:
            self._unsettled = True
            self._go(State.BROKEN)

    def _refused(self, answer: Answer, repeatable: bool) -> None:
        error = answer.error
        assert error is not None
        if isinstance(error, BatchPublishUnknownBatchIDError):
            self._forgotten(answer, error, repeatable)
            return
        if type(error) is TooManyRequestsError:
            self._too_many(answer, error)
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
                self._refusal = 1, error
            self.fail(error)
        elif answer.operation in (Operation.END, Operation.PING):
            if self.state is State.STARTING:
                # The first message was rejected, and no message follows it.
                self.known_to_server = False
                self._exact = True
                self._refusal = 1, error
                self.fail(error)
            else:
                self._block()  # the batch has stored nothing: start again
        else:
            self._message_refused(answer.sequence, error)

    def _too_many(self, answer: Answer, error: APIError) -> None:
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
            and self.state is not State.STARTING
            and answer.sequence > 1
        ):
            self._miss(answer.sequence, answer.sequence, error)
            self._block()
            return
        self.busy = error
        if answer.sequence == 1:
            self.known_to_server = False
            self._exact = True
            self._go(State.BROKEN)
        elif self.state is not State.ASKING:
            # The next message reveals the gap. The batch ends there, and the rest is
            # sent again.
            self._go(State.BREAKING)

    def _forgotten(self, answer: Answer, error: APIError, repeatable: bool) -> None:
        """Account for the answer of a server that does not know the batch.

        The batch was idle for too long or is over, or the server was restarted. After a gap
        or a rejection, each later message gets this answer, too. The final answer is on its
        way then, unless a ping also gets this answer.
        """
        if self.state is State.ASKING:
            if self._is_last_word(answer):
                self._unknown(error)
            return
        if self.state is State.BREAKING and answer.operation is not Operation.PING:
            return
        self.known_to_server = False
        if self._refusal is not None:
            self.fail(self._refusal[1])
        elif self.gaps == "ok":
            # The ingest continues with another batch. Unacknowledged messages may be
            # stored or not.
            self._miss(self.received + 1, self.sent, error, doubtful=True)
            self._receive(self.sent)
            self._go(State.BROKEN)
        elif repeatable:
            self._doubt = self.highest
            self._go(State.BROKEN)
        elif self._place is None or self._is_last_word(answer):
            self._unknown(error)
        else:
            # The messages after it are in flight, and another leader may know the
            # batch.
            self._go(State.ASKING)

    def _stored(self, answer: Answer) -> None:
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

    def _nobody_there(self, answer: Answer) -> None:
        """Account for a missing stream: it was deleted, or its leader is being elected."""
        self._nobody = True
        stores = answer.operation not in (Operation.END, Operation.PING)
        if self.state is State.STARTING:
            if stores:  # otherwise it is a ping, and the start may still be stored
                self.known_to_server = False
                self._exact = True
                self._go(State.BROKEN)
            return
        if stores and self.gaps == "ok":
            self._miss(answer.sequence, answer.sequence, None)
        if self.state is not State.BLOCKED:
            self._lose_reports(
                self.sent,
                NoStreamResponseError(
                    "the stream lost its leader before it acknowledged them"
                ),
            )
        self._block()

    def _block(self) -> None:
        if self.state in (State.OPEN, State.TURNING, State.ENDING):
            self._go(State.BLOCKED)

    def blocked_error(self) -> Exception:
        """Return the error for an ingest that was blocked for too long."""
        return self._cause_of_break()

    def _pass(self, received: int) -> None:
        """Record that the server has processed all messages up to `received`.

        It has stored them, except those that it reported. If the connection or the leader
        was lost while they were under way, it is unknown which ones are stored.
        """
        cut = min(received, self._cut)
        self._miss(self.received + 1, cut, self._loss, doubtful=True)
        self._receive(received)

    def _receive(self, received: int) -> None:
        """Record that the server has acknowledged all messages up to `received`."""
        self.received = received
        self.missing.settle(self.acked)

    def _not_arrived(self, first: int, last: int) -> None:
        """Record messages that did not arrive.

        They are lost, or unconfirmed if another leader may have stored them.
        """
        self._miss(first, last, None, doubtful=self.replicated)

    def _miss(
        self, first: int, last: int, error: Exception | None, *, doubtful: bool = False
    ) -> None:
        """Record missing messages of this batch, or with `doubtful` unconfirmed ones.

        Acknowledged messages are left out.
        """
        first, last = max(first, self.received + 1), min(last, self.sent)
        self.missing.add(self.base + first, self.base + last, error, doubtful=doubtful)

    def __repr__(self) -> str:
        return (
            f"<IngestEngine {self.state.name.lower()}, {self.highest} sent, "
            f"{self.acked} acknowledged, {self.missing.lost_count} lost>"
        )
