"""The input and output of a fast ingest (ADR-50), and its public class."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from ... import errors
from ..._fast import (
    FastIngestBase,
    FastPubAck,
    IngestWriter,
    Mailbox,
    ends_by,
    enter_self,
    safe_finalizer,
)
from ...core.resources import NotCopyable
from ...core.session import ConnectionState, SubscriptionEntry
from ...core.sync import ForkSafeRLock
from ...errors import (
    ConnectionClosedError,
    ConnectionLostError,
    Error,
    IngestClosedError,
    JetStreamError,
    LostRange,
    MaxPayloadError,
    MessagesLostError,
    MessagesUnconfirmedError,
)
from ...validation import (
    check_count,
    check_optional_callable,
    check_positive_seconds,
    format_seconds,
)
from ..features import FAST_INGEST
from ..publishing.arrow import arrow_source, publish_table
from ..publishing.backoff import backoff_delay
from ..publishing.options import publish_headers
from .engine import MAX_RESTARTS, QUIET, TERMINAL, IngestEngine, IngestState
from .flow_messages import FlowKind, Operation, parse_flow_message
from .recovery import find_ambiguity, is_replicated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Unpack

    from ..._fast import Msg
    from ...core.requests import Data
    from ...core.timers import Timer
    from ...errors import PermissionsError, UnconfirmedRange
    from ...headers import HeadersLike
    from ...models import PubAck
    from ...models.publish import PublishOptions
    from ...validation import Seconds
    from ..api import API
    from ..publishing.arrow import ArrowTable, MessageColumns, Rows
    from .flow_messages import FlowMessage

Message: TypeAlias = "tuple[str, Data, HeadersLike | bytes | None, int]"
"""The arguments of `IngestWriter.write`."""
RetainedMessage: TypeAlias = tuple[str, bytes, bytes | None, int]
"""A message that `IngestWriter.rewind` puts back to be sent again."""

KEEP_ALIVE: Final = 3.0
"""Seconds between two checks whether messages were added. If not, a ping keeps the batch
alive, which comes after twice that time at most. The server forgets a batch after 10 s."""
RESUME_SECONDS: Final = 10.0
"""Seconds for which a server remembers a batch whose connection is lost."""
REPAIR_SECONDS: Final = 1.0
"""Seconds after which an ack may be lost. A ping makes the server repeat the last ack."""
BLOCKED_SECONDS: Final = 0.25
BATCHES_LEVEL: Final = 4
"""The API level of nats-server 2.14. A server below it would store a ping."""

_UNSUPPORTED: Final = {
    "expected_last_msg_id": "a server that finds another id drops the message and counts it "
    "as stored: use expected_last_sequence or expected_last_subject_sequence"
}


class FastIngest(NotCopyable, FastIngestBase):
    """Messages into a stream, as fast as it takes them, with few acks.

    `JetStream.fast_ingest` returns it. Use it in a `with` block: its end waits until
    all messages are stored, and raises if that is not certain. If the block raises,
    messages that you have added stay stored, and the ingest ends without waiting.

    With `gaps="fail"` the stream stores exactly the messages that you added, in that
    order. Messages of other publishers may be stored between them. If the connection or
    the stream's leader is lost, the ingest finds out how many messages are stored, and
    continues after the last one with another batch.

    The server knows this number for about ten seconds, and not after a restart. A
    former leader may report less than the stream stores in the end, so the ingest also
    queries the stream: `STREAM.INFO`, and `STREAM.MSG.GET` if the stream is replicated and
    has other publishers. The answer stays unknown if messages were deleted since,
    if other publishers' messages look alike, or if these requests are not
    permitted. Then `IngestError` says which messages are stored and which are unknown,
    and nothing is sent twice. If every message has a `msg_id`, the ingest sends them
    again instead, and the stream drops duplicates.

    With `gaps="ok"` the ingest reports lost and rejected messages to `on_error`, and
    continues. `lost` has the messages that are certainly not stored: you can send them
    again. `unconfirmed_ranges` has the messages that may be stored. If the connection
    is lost, these are all messages that the stream had neither acknowledged nor
    reported as missing.

    A stream that has too much to store rejects messages. The ingest then waits, and
    sends them again. With `gaps="ok"` it waits, and they are `lost`.

    Use an ingest from one thread at a time: a second one gets `ConcurrentUseError`. Any
    thread may call `abandon`.

    Example:
        ```python
        with js.fast_ingest() as ingest:
            for number in range(1000):
                ingest.add("orders.new", b"%d" % number)
        print(ingest.acked)
        ```
    """

    def __init__(
        self,
        api: API,
        engine: IngestEngine,
        *,
        ack_timeout: Seconds,
        resume_bytes: int,
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        ack_timeout = check_positive_seconds(ack_timeout, "ack_timeout")
        resume_bytes = check_count(resume_bytes, "resume_bytes", 1)
        check_optional_callable(on_error, "on_error")
        self._api = api
        self._session = api.session
        self._owner = api.owner
        self._engine = engine
        self._ack_timeout = ack_timeout
        self._repair = min(REPAIR_SECONDS, ack_timeout / 3)
        self._on_error = on_error
        self._session.check_open()
        super().__init__(
            IngestWriter(
                self._session.write_buffer, engine, resume_bytes, engine.window_bytes
            )
        )
        # Held while the engine changes its state, never while we wait. Re-entrant: a
        # signal handler may abandon the ingest on the thread that holds the lock.
        self._state_lock = ForkSafeRLock()
        self._mailbox: Mailbox | None = None
        self._to_resend: deque[RetainedMessage] = deque()
        self._timer: Timer | None = None
        self._added_before = 0
        self._lost_at = 0.0
        # For each lost connection: the counts of answers and of messages at that
        # moment.
        self._losses: deque[tuple[int, int]] = deque()
        self._handled = 0
        self._reconnected = False
        self._progress = self._last_ping = 0.0
        self._wrote = False
        self._written = self._left = 0
        """Bytes written to the connection up to our last message, and bytes sent."""
        self._renewals = 0
        """The answers since the last progress that promised progress, but brought none."""
        self._subject = ""
        self._replicas_known = False
        self._size = 0
        """The likely size of the messages of the next batch, in bytes."""
        self._pauses = 0
        """The pauses for too much to store since the stream last accepted a message."""
        self._busy_since = 0.0

    # Adding -----------------------------------------------------------------------------

    def add_many(
        self, subjects: str | Iterable[str], payloads: Iterable[Data]
    ) -> FastPubAck:
        """Add many messages in one call, with less work for each than `add`.

        All messages are checked before the first is sent. Blocks and raises like `add`.

        Args:
            subjects: One subject for all messages, or one for each payload.
            payloads: The payloads.

        Returns:
            The number of the last message in this ingest, and the last acknowledged
            number.

        Example:
            ```python
            with js.fast_ingest() as ingest:
                ingest.add_many("orders.new", [b"%d" % number for number in range(1000)])
            ```
        """
        self._add_rows(*self._writer.checked_many(subjects, payloads))
        return self._writer.last

    def publish_arrow(
        self,
        table: ArrowTable,
        *,
        subject: str,
        data: str,
        **columns: Unpack[MessageColumns],
    ) -> int:
        """Add the rows of a table in order.

        Blocks and raises like `add`.

        Args:
            table: Any object with `__arrow_c_stream__`, of pyarrow, polars or DuckDB.
            subject: The name of a text column with the subjects. If there is no such
                column: the subject of all rows.
            data: The name of the column with the payloads, text or binary.
            **columns: The names of further columns, as `MessageColumns` lists them,
                without `expected_last_msg_id`.

        Returns:
            The number of rows.
        """
        source = arrow_source(table, subject, data, columns, _UNSUPPORTED)

        def add(rows: Rows) -> None:
            self._add_rows(*rows[:3], self._writer.check_rows(*rows))

        return publish_table(source, add)

    def _add_rows(
        self,
        names: str | list[str],
        those: list[bytes],
        blocks: list[bytes | None] | None = None,
        ids: bytes | None = None,
    ) -> None:
        with self._writer:
            at = 0
            while at < len(those):
                # The first message may have to wait. As many of the following messages
                # are written as the window allows now.
                name = names if isinstance(names, str) else names[at]
                block = None if blocks is None else blocks[at]
                self._drive((name, those[at], block, Operation.APPEND.value))
                at = self._writer.write_many(names, those, at + 1, blocks, ids)

    def _headers_of(
        self, subject: str, data: Data, options: PublishOptions
    ) -> HeadersLike | None:
        return publish_headers(subject, data, options, _UNSUPPORTED)

    def _add(self, message: Message) -> FastPubAck:
        with self._writer:
            self._drive(message)
            return self._writer.last

    # Ending -----------------------------------------------------------------------------

    def close(self) -> PubAck:
        """End the ingest, and block until all messages are stored.

        Raises like `add`. A second call returns or raises the same.

        Returns:
            The ack of all messages.
        """
        with self._writer:
            self._drive(end=True)
        self._abandon_batch()
        return self.pub_ack

    def commit(
        self, subject: str, data: Data = b"", **options: Unpack[PublishOptions]
    ) -> PubAck:
        """Add a last message and end the ingest. Blocks and raises as `close` does.

        If it is the only message, this saves one round trip.

        Args:
            subject: The subject to publish to.
            data: The payload.
            **options: The options of `PublishOptions`, without `expected_last_msg_id`.

        Returns:
            The ack of all messages.
        """
        headers = self._headers_of(subject, data, options) if options else None
        operation = Operation.COMMIT
        if self._engine.gaps == "ok":
            # nats-server 2.14.0 to 2.14.2 may never answer such a commit, and its batch
            # slows down all other batches until the server restarts.
            operation = Operation.APPEND
        with self._writer:
            self._drive((subject, data, headers, operation.value), end=True)
        self._abandon_batch()
        return self.pub_ack

    def abandon(self) -> None:
        """End the ingest without waiting, from any thread. Does not block.

        Messages that arrive at the stream stay stored. A call that waits on another
        thread raises an error.

        Raises:
            IngestClosedError: Raised by a call that waits on another thread.
        """
        self._fail(IngestClosedError("the ingest was abandoned"))
        self._abandon_batch()

    @property
    def pub_ack(self) -> PubAck:
        """The ack of all messages, after the end.

        `count` is the number of added messages. `seq` is the sequence of the last
        message. It and `stream` are missing if the server's last answer was lost and
        all messages are known to be stored. With `gaps="ok"` fewer messages may be
        stored: see `lost`.

        Raises:
            IngestClosedError: The ingest has not ended.
            IngestError: The ingest ended with an error.
        """
        if self._engine.state is IngestState.FAILED:
            raise self._engine.error()
        if self._engine.state is not IngestState.ENDED or self._engine.pub_ack is None:
            raise IngestClosedError("the ingest has not ended yet")
        return self._engine.pub_ack

    @property
    def added(self) -> int:
        """Messages added so far."""
        return self._engine.highest

    @property
    def acked(self) -> int:
        """The last stored message. With `gaps="ok"`: the last received one."""
        return self._engine.acked

    @property
    def lost(self) -> tuple[LostRange, ...]:
        """Messages that are certainly not stored, with `gaps="ok"`.

        The first 10,000 ranges, in order. You can send these messages again.
        """
        return tuple(self._engine.missing.lost)

    @property
    def lost_count(self) -> int:
        """The number of lost messages, even beyond the first 10,000 ranges."""
        return self._engine.missing.lost_count

    @property
    def unconfirmed_ranges(self) -> tuple[UnconfirmedRange, ...]:
        """Messages that may be stored or not, with `gaps="ok"`.

        The first 10,000 ranges, in order. They were under way when the connection was
        lost, when the server was restarted, or when the stream lost its leader. At most two
        windows are under way at a time: 1000 messages with the default `outstanding`. If
        you send them again, some may be stored twice, unless each has a `msg_id`.
        """
        return tuple(self._engine.missing.unconfirmed)

    @property
    def unconfirmed_count(self) -> int:
        """The number of unconfirmed messages, even beyond the first 10,000 ranges."""
        return self._engine.missing.unconfirmed_count

    # On the caller's thread ---------------------------------------------------------------

    def _drive(self, message: Message | None = None, *, end: bool = False) -> None:
        """Send the messages to repeat, then `message`, and with `end` the end. Blocks."""
        try:
            self._drive_loop(message, end)
        finally:
            if self._to_resend:
                self._writer.limit = 0  # a quick `add` would overtake these messages

    def _drive_loop(self, message: Message | None, end: bool) -> None:
        engine, writer = self._engine, self._writer
        self._progress = self._last_ping = monotonic()
        self._wrote = True  # a quick `add` may have written since
        if engine.state is IngestState.IDLE and engine.sent:
            # Ctrl-C interrupted us after the first message of a batch was written,
            # before it was counted.
            with self._state_lock:
                engine.record_sent()
        while True:
            self._handle_replies()
            state = engine.state
            if state is IngestState.FAILED:
                self._raise()
            if state is IngestState.ENDED:
                if message is not None:
                    raise IngestClosedError(
                        "the ingest has ended: nothing can be added"
                    )
                return
            if state is IngestState.BROKEN:
                self._restart()
                continue
            if state in (IngestState.IDLE, IngestState.OPEN):
                if self._to_resend or message is not None:
                    again = bool(self._to_resend)
                    if self._write(None if again else message):
                        if not again:
                            message = None
                        continue
                    if self._roll_over():
                        continue
                elif not end:
                    return
                elif state is IngestState.IDLE:
                    with self._state_lock:
                        engine.ended_empty()
                    continue
                elif writer.end():
                    self._wrote = True
                    with self._state_lock:
                        engine.end()
                    continue
            self._wait()

    def _write(self, message: Message | None) -> bool:
        """Write `message`, or without one the first message that is sent again.

        Returns False if it has to wait. An error in `message` is raised, while an error of
        any other cause ends the ingest.
        """
        engine, writer = self._engine, self._writer
        one: Message = self._to_resend[0] if message is None else message
        try:
            if self._mailbox is None:
                self._begin_or_fail(one)
            writer.limit = engine.limit
            if message is not None:
                if writer.write(*message) is None:
                    return False
            elif not writer.write_again(self._to_resend):
                return False
        except MaxPayloadError as error:
            if message is not None:
                raise
            # We are connected to another server now, which has a smaller max_payload.
            self._fail(error)
            self._raise()
        finally:
            if engine.state is not IngestState.OPEN:
                writer.limit = (
                    0  # a quick `add` may write only after the start was answered
                )
        self._wrote = True
        with self._state_lock:
            if one[-1] == Operation.COMMIT.value:
                engine.end()
            else:
                engine.record_sent()
        return True

    def _roll_over(self) -> bool:
        """End the batch for another one if its acks do not suit its messages."""
        engine, writer = self._engine, self._writer
        if not engine.should_roll_over(writer.under_way, full=writer.full):
            return False
        self._size = writer.mean_size
        if not writer.end():
            return False
        with self._state_lock:
            engine.end(more=True)
        return True

    def _begin_or_fail(self, message: Message) -> None:
        try:
            self._api.require(FAST_INGEST)
            self._begin_batch(message)
        except Error as error:
            if not self._engine.highest:
                raise
            self._fail(error)
            self._raise()

    def _begin_batch(self, message: Message) -> None:
        """Subscribe to the answers of a new batch that begins with `message`."""
        session, engine = self._session, self._engine
        self._subject = message[0]
        engine.begin(self._size or len(message[1]))
        # The server identifies a batch by this token alone, across all clients.
        prefix = f"{session.options.inbox_prefix}.{os.urandom(11).hex()}"
        reply = f"{prefix}.{engine.requested_flow}.{engine.gaps}."
        sid = session.next_sid()
        mailbox = Mailbox(session.write_buffer, sid)
        interest = SubscriptionEntry(
            sid,
            f"{prefix}.>",
            None,
            mailbox,
            on_lost=_weak_callback(self, FastIngest._on_lost),
            on_connected=_weak_callback(self, FastIngest._on_connected),
            on_permission_error=_weak_callback(self, FastIngest._on_denied),
        )
        self._handled = 0
        self._losses.clear()
        session.subscribe(interest, piggyback=True)
        self._writer.begin(mailbox, reply.encode())
        # Assign this last: if Ctrl-C interrupts us before, the batch is begun again.
        self._mailbox = mailbox
        if self._timer is None:
            self._schedule_keep_alive()

    def _handle_replies(self) -> None:
        mailbox = self._mailbox
        while mailbox is not None and len(mailbox):
            msg = mailbox.get(0)
            if msg is not None and not self._handle_reply(msg):
                return

    def _handle_reply(self, msg: Msg) -> bool:
        """Process an answer. Returns False if the batch is over."""
        engine = self._engine
        try:
            answer = parse_flow_message(msg.subject, msg.status, msg.data)
        except JetStreamError as error:
            self._handled += 1
            self._session.callbacks.report(error)
            return True
        try:
            if engine.is_gap(answer):
                self._check_replicas()
        finally:
            self._apply(answer)
        return engine.state not in QUIET

    def _apply(self, answer: FlowMessage) -> None:
        engine, writer = self._engine, self._writer
        with self._state_lock:
            while self._losses and self._losses[0][0] <= self._handled:
                engine.disconnected(self._losses.popleft()[1])
            self._handled += 1
            before, answered = engine.state, engine.answered_count
            engine.handle(answer, repeatable=writer.repeatable)
            news = engine.missing.take_new()
            writer.limit = engine.limit
        writer.confirm()
        went_on = before in (IngestState.STARTING, IngestState.BLOCKED) and (
            engine.state is IngestState.OPEN
        )
        moved = engine.answered_count > answered
        if moved or news:
            self._progress = monotonic()
            self._renewals = 0
        elif (
            went_on or answer.kind in (FlowKind.GAP, FlowKind.ENDED)
        ) and self._renewals < MAX_RESTARTS:
            # More answers should follow. Do not wait forever for a server that repeats
            # this one.
            self._progress = monotonic()
            self._renewals += 1
        if engine.received:
            self._pauses = 0
        if (
            engine.state is IngestState.FAILING and answer.kind is FlowKind.REJECTED
        ) or (
            engine.state is IngestState.CONFIRMING_END
            and (
                before is not IngestState.CONFIRMING_END
                or answer.kind is FlowKind.ENDED
            )
        ):
            # A rejection leaves a gap, which the next message would reveal. Ping, as
            # there may be no next message.
            writer.ping()
        for missing in news:
            self._report(missing)

    def _check_replicas(self) -> None:
        """Find out once whether the stream is replicated. Blocks for a request.

        If it is, messages that did not arrive may have reached another leader. A stream
        that gets replicas later is not noticed.
        """
        engine = self._engine
        if engine.replicated and not self._replicas_known:
            deadline = monotonic() + self._ack_timeout
            engine.replicated = is_replicated(self._api, self._subject, deadline)
            self._replicas_known = True

    def _report(self, missing: LostRange | UnconfirmedRange) -> None:
        kind: type[MessagesLostError | MessagesUnconfirmedError]
        if isinstance(missing, LostRange):
            kind, fate = MessagesLostError, "are lost"
        else:
            kind, fate = MessagesUnconfirmedError, "may be stored or not"
        error = kind(
            f"messages {missing.first} to {missing.last} of an ingest {fate}"
            + (f": {missing.error}" if missing.error else ""),
            first=missing.first,
            last=missing.last,
        )
        error.__cause__ = missing.error
        self._session.callbacks.report_to(self._on_error, error)

    def _restart(self) -> None:
        """Continue with another batch after the last stored message of the broken one."""
        engine = self._engine
        if not self._confirm_tail():
            return
        busy = engine.busy
        if busy is not None and self._was_busy_for_long():
            self._fail(busy)
            return
        again = not engine.received and not self._reconnected
        self._unsubscribe()
        if not self._writer.rewind(self._to_resend):
            self._fail(
                JetStreamError(
                    "the messages to send again exceed resume_bytes: raise it, or give a "
                    "smaller flow"
                )
            )
            return
        with self._state_lock:
            engine.restart(reconnected=self._reconnected)
        self._reconnected = False
        if busy is not None:
            self._pauses += 1
            self._pause(backoff_delay(self._pauses))
        self._progress = monotonic()
        if again and busy is None and engine.state is IngestState.IDLE:
            self._pause(BLOCKED_SECONDS)

    def _pause(self, duration: float) -> None:
        try:
            self._session.sleep(duration)
        except Error as error:
            self._fail(error)

    def _was_busy_for_long(self) -> bool:
        """Return whether the stream has rejected all messages for `ack_timeout`."""
        if not self._pauses or self._engine.received:
            self._pauses = 0
            self._busy_since = monotonic()
        return monotonic() >= self._busy_since + self._ack_timeout

    def _confirm_tail(self) -> bool:
        """Make sure that no message after the last acknowledged one is stored. Blocks.

        Returns False if the state may have changed, so that the caller checks it again.
        Ctrl-C leaves the state as it was.
        """
        engine, writer = self._engine, self._writer
        tail = engine.recovery_point(duplicates=writer.has_ids)
        if tail is None:
            return True
        if self._session.state is not ConnectionState.CONNECTED:
            self._await_connected()
            return False
        after = writer.first_unacknowledged()
        deadline = monotonic() + self._ack_timeout
        try:
            doubt = find_ambiguity(
                self._api, tail, None if after is None else after[1], deadline
            )
        except ConnectionLostError:
            return False
        except Error as error:
            self._fail(error)
            return False
        if doubt is not None:
            self._fail(
                JetStreamError(
                    "the batch broke, and without message ids it is unknown which of its "
                    f"messages are stored: {doubt}"
                )
            )
        with self._state_lock:
            if engine.state is IngestState.BROKEN:
                engine.confirm_tail()
        return engine.state is IngestState.BROKEN

    def _wait(self) -> None:
        """Block until an answer comes. Pings if it is late, fails after `ack_timeout`."""
        engine, mailbox, session = self._engine, self._mailbox, self._session
        if mailbox is not None and session.state is not ConnectionState.CONNECTED:
            self._await_connected()
            return
        if mailbox is None:  # another thread has abandoned the ingest
            return
        _, written = session.write_buffer.counters
        if self._wrote:
            self._wrote, self._written = False, written
        left = written - session.write_buffer.pending
        if self._left < min(left, self._written):
            self._progress = monotonic()  # the server still reads what we have written
        self._left = max(self._left, left)
        blocked = engine.state in (IngestState.BLOCKED, IngestState.CONFIRMING_END)
        pause = BLOCKED_SECONDS if blocked else self._repair
        deadline = self._progress + self._ack_timeout
        msg = mailbox.get_before(min(deadline, self._last_ping + pause))
        if msg is not None:
            self._handle_reply(msg)
        elif mailbox.closed:
            self._fail(mailbox.failure or ConnectionClosedError("closed"))
        elif monotonic() >= deadline:
            self._fail(
                engine.blocked_error()
                if engine.state is IngestState.BLOCKED
                else errors.TimeoutError(
                    f"no answer from the stream within {format_seconds(self._ack_timeout)}"
                )
            )
        else:
            self._last_ping = monotonic()
            self._ping()

    def _await_connected(self) -> None:
        try:
            since = self._lost_at or self._progress
            self._session.wait_connected(since + RESUME_SECONDS)
        except errors.TimeoutError:
            lost = ConnectionLostError(
                f"not reconnected within {RESUME_SECONDS:g} s, after which the server forgets "
                "the batch"
            )
            self._fail(lost)
        except Error as error:
            mailbox = self._mailbox
            self._fail((mailbox and mailbox.failure) or error)
        self._progress = self._last_ping = monotonic()

    def _fail(self, cause: Exception) -> None:
        with self._state_lock:
            self._engine.fail(cause)

    def _raise(self) -> NoReturn:
        self._abandon_batch()
        raise self._engine.error()

    # Any thread ---------------------------------------------------------------------------

    def _ping(self) -> None:
        state = self._engine.state
        if state in QUIET:
            return
        if state is IngestState.STARTING and self._session.info.api_lvl < BATCHES_LEVEL:
            return
        self._writer.ping()

    def _abandon_batch(self) -> None:
        """End the batch on the server, and remove its subscription and its timer."""
        engine = self._engine
        with self._state_lock:
            must_end = engine.abandon()
        if must_end:
            started = engine.base or engine.msgs
            if started or self._session.info.api_lvl >= BATCHES_LEVEL:
                with contextlib.suppress(Error):
                    self._writer.end()
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()

    def _unsubscribe(self) -> None:
        mailbox, self._mailbox = self._mailbox, None
        self._writer.limit = 0
        if mailbox is not None:
            mailbox.close(discard=True)
            self._session.unsubscribe(mailbox.sid, deferred=True)

    # The I/O thread -----------------------------------------------------------------------

    def _schedule_keep_alive(self) -> None:
        self._timer = self._session.call_later(
            KEEP_ALIVE, _weak_callback(self, FastIngest._keep_alive)
        )

    def _keep_alive(self, *_: object) -> None:
        """Keep the batch alive while the caller adds no messages."""
        if self._engine.state in TERMINAL:
            return
        added = self._engine.highest
        if added == self._added_before:
            with contextlib.suppress(Error):
                self._ping()
        self._added_before = added
        self._schedule_keep_alive()

    def _on_lost(self, *_: object) -> None:
        self._lost_at = monotonic()
        if (mailbox := self._mailbox) is not None:
            self._losses.append((mailbox.delivered, self._engine.sent))

    def _on_connected(self, *_: object) -> None:
        """Ping immediately, so that the server reports the messages that have arrived."""
        self._lost_at = 0.0
        self._reconnected = True
        with contextlib.suppress(Error):
            self._ping()

    def _on_denied(self, error: PermissionsError) -> None:
        """Close the mailbox, because a message without permission gets no answer."""
        mailbox = self._mailbox
        if mailbox is not None and self._writer.is_unacknowledged(error.subject):
            mailbox.close(error)

    __enter__ = enter_self

    @ends_by(lambda self: self.abandon())
    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if error is None:
                self.close()
        finally:
            # The body raised or Ctrl-C came. Otherwise the ingest has already ended.
            self.abandon()

    @safe_finalizer
    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if self._engine.state not in TERMINAL:
                self.abandon()

    def __repr__(self) -> str:
        if not hasattr(self, "_engine"):  # __init__ raised for an invalid option
            return super().__repr__()
        return (
            f"<FastIngest {self._engine.state.name.lower()}, {self.added} added, "
            f"{self.acked} acknowledged, gaps={self._engine.gaps!r}>"
        )


def _weak_callback(
    ingest: FastIngest, method: Callable[..., None]
) -> Callable[..., None]:
    """Return a callback that does not keep the ingest alive."""
    reference = weakref.ref(ingest)

    def call(*arguments: object) -> None:
        found = reference()
        if found is not None:
            method(found, *arguments)

    return call
