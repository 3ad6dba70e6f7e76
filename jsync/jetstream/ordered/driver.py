"""The continuous pull of an ordered consumer: one consumer after the other (ADR-37).

The `Cursor` decides what to do next, and this module does it on the I/O thread. There
requests are sent and answered without waiting, so that a slow or waiting reader does not
delay a new consumer, and `stop` ends everything immediately.
"""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from ..._fast import SequenceChecker
from ...errors import (
    ConnectionClosedError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    Error,
    JetStreamError,
    NoRespondersError,
)
from ..pulls.driver import ContinuousPull
from ..pulls.engine import StatusKind, classify_status
from ..stream_end.driver import follow
from ..stream_end.engine import PendingMessages, pending_steps
from .engine import NextAction, ReadState
from .session import OrderedSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg, Msg
    from ...errors import ConnectionLostError, MissedHeartbeatError
    from ...models import ConsumerInfo
    from ..pulls.engine import ConsumeLimits, PullRequest
    from .factory import ConsumerFactory

MIN_POLL_INTERVAL = 0.1
"""Seconds of silence until the leader is first asked for pending messages."""

ANNOUNCE_SECONDS: Final = 1.0
"""Seconds after its creation in which a consumer may not be known to our server yet.

Between clusters, the answer to its creation may come before the gateway announces it."""
ANNOUNCE_PAUSE: Final = 0.02
"""Seconds between the pulls until then."""

BEHIND_LEADER: Final = "its server is behind the leader of the stream"


class OrderedPull(ContinuousPull):
    """Fills one backlog from the successive consumers of a read."""

    adapts_silently = True

    def __init__(
        self,
        factory: ConsumerFactory,
        limits: ConsumeLimits,
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        self._factory = factory
        self._cursor = factory.cursor
        order = (
            factory.sequence_checker() if factory.cursor.name else SequenceChecker(0)
        )
        self._ordered = OrderedSession(factory, self, order)
        # Set by code that may neither wait nor lock, or when Ctrl-C interrupted `stop`.
        # The next caller does the rest of `stop`.
        self._abandoned = False
        self._was_expired = False
        self._poll_after = MIN_POLL_INTERVAL
        self._polls = 0  # the number of polls so far: only the last one continues
        # Called on the I/O thread after each loss of the connection, and each reconnect.
        self.when_lost: Callable[[], object] | None = None
        self.when_connected: Callable[[], object] | None = None
        # Called before the next consumer is read, which may be on another server.
        self.when_moved: Callable[[], object] | None = None
        self._ran_dry = False  # the server of the consumer had nothing more, once
        # Pulls to the consumer, statuses of it, and messages of it before that.
        self._pulls = self._statuses = self._before = 0
        super().__init__(
            factory.pull_target(), limits, on_error, lock=self._ordered.lock
        )
        self.mailbox.on_order = self._on_order

    @property
    def closed(self) -> bool:
        """True once no more messages are taken."""
        return self._abandoned or self.mailbox.closed

    # One consumer ---------------------------------------------------------------------

    def begin(self) -> None:
        try:
            super().begin()
            self._ordered.state.try_to(ReadState.STARTING)
            self.session.call_soon(self._begin)
        except BaseException:  # Ctrl-C: the caller may have nothing to stop
            self.close_nowait()
            raise

    def _begin(self) -> None:
        if self._ordered.state.current is not ReadState.STARTING or self._abandoned:
            return
        if self._cursor.at_end or self._cursor.name is None:
            self._ordered.start_next_consumer()
        else:
            self._start_pulling()

    def _start_pulling(self, pending: int | None = None) -> None:
        """Pull from the current consumer, with `pending` messages if that is known."""
        ordered = self._ordered
        with self._lock:
            if not ordered.state.try_to(ReadState.LIVE):
                return
            ordered.order = self.mailbox.order = self._factory.sequence_checker()
            self._inbox.target = self._factory.pull_target()
            self._pulls = self._statuses = 0
            self._before = ordered.order.consumer_sequence
            self._ran_dry = False
        ordered.created_at = self._factory.used_at = monotonic()
        self._heartbeats.resume(ordered.created_at)
        self._refill()
        self._poll_after = MIN_POLL_INTERVAL
        if self._cursor.until is not None and pending is None:
            self._request_info(self._next_poll())
        elif self._cursor.until is not None and pending == 0:
            self._request_pending(self._next_poll())
        else:
            self._poll(self._next_poll())

    def _is_paused(self) -> bool:
        return self.closed or not self._ordered.is_live or super()._is_paused()

    def _on_status(self, msg: Msg) -> None:
        if not self._ordered.is_live or msg.subject != self._inbox.reply:
            return
        self._statuses += 1
        result = classify_status(msg.status or 0, msg.status_text)
        if isinstance(result.error, NoRespondersError) and self._is_unannounced():
            with self._lock:
                self._engine.reset(*self._update_counts())
                self._retry_in(ANNOUNCE_PAUSE)
            return
        lost = result.kind is StatusKind.INTERRUPTED or isinstance(
            result.error, ConsumerDeletedError | NoRespondersError
        )
        if lost:
            self._ordered.reset(None if self._was_expired else result.error)
        else:
            super()._on_status(msg)

    def _is_unannounced(self) -> bool:
        """Return whether our server may not know the new consumer yet."""
        ordered = self._ordered
        return (
            ordered.order.consumer_sequence == self._before
            and monotonic() - ordered.created_at < ANNOUNCE_SECONDS
        )

    def _publish(self, request: PullRequest) -> None:
        # Pulls stop while the buffer is full. A slow reader may take longer than the
        # server keeps the consumer.
        factory, arrived = self._factory, self.mailbox.last_arrival
        if not self._was_expired or arrived > factory.used_at:
            factory.record_arrival(arrived)
            self._was_expired = factory.is_expired
        factory.used_at = monotonic()
        self._pulls += 1
        super()._publish(request)

    def _on_heartbeat_missed(self, error: MissedHeartbeatError) -> None:
        messages = self._ordered.order.consumer_sequence - self._before
        try:
            self._cursor.on_silence(self._pulls, messages + self._statuses)
        except Error as final:
            self.end(final)
        else:
            self._ordered.reset(error)

    def _on_order(self) -> None:
        order = self._ordered.order
        passed_over = order.take_passed_over()
        with self._lock:
            self._engine.on_skipped(*passed_over)
        if order.stopped is not None:
            self._ordered.check_sequence()
            return
        self._refill()
        if order.take_ran_dry() and self._ordered.is_live and not self._ran_dry:
            # Only once, because a server that is catching up runs dry after each message.
            self._ran_dry = True
            self._request_pending(self._next_poll())

    # The next consumer ----------------------------------------------------------------

    def resubscribe(self) -> None:
        """Stop pulling from the last consumer."""
        self._engine.reset(*self._update_counts())
        self._cancel_retry()
        with contextlib.suppress(ConnectionClosedError):
            self._inbox.resubscribe()

    def on_created(self, info: ConsumerInfo) -> None:
        """Pull from the next consumer, which has been made."""
        if self.when_moved is not None:
            self.when_moved()
        self._start_pulling(info.num_pending)

    # Polls for the end, where no message marks it -------------------------------------

    def _next_poll(self) -> int:
        self._polls += 1
        return self._polls

    def _is_obsolete(self, poll: int) -> bool:
        """Return whether a poll is not needed any more, or another one has begun."""
        return poll != self._polls or not self._ordered.is_live

    def _poll(self, poll: int) -> None:
        """Ask for pending messages after a silence: they may be deleted, or withheld."""
        ordered = self._ordered
        if self._is_obsolete(poll) or not (
            self._cursor.until is not None
            or self._cursor.may_stall(ordered.order.stream_sequence)
        ):
            return
        quiet = monotonic() - max(self.mailbox.last_arrival, ordered.created_at)
        if quiet < self._poll_after:
            ordered.call_later(
                self._poll_after - quiet + 0.001, lambda: self._poll(poll)
            )
        else:
            self._request_info(poll)

    def _poll_later(self, poll: int, seconds: float | None = None) -> None:
        # Look earlier than the next heartbeat, which counts as an arrival, too.
        self._poll_after = min(self._poll_after * 2, self._limits.idle_heartbeat / 2)
        wait = self._poll_after if seconds is None else seconds
        self._ordered.call_later(wait, lambda: self._poll(poll))

    def _request_info(self, poll: int) -> None:
        """Query the server of the consumer what it has sent, and what it still has."""
        follow(
            self._factory.api,
            self._factory.consumer_info(),
            lambda answer: self._on_info(poll, answer),
        )

    def _on_info(self, poll: int, answer: ConsumerInfo | Error) -> None:
        if self._is_obsolete(poll):
            return
        ordered = self._ordered
        if isinstance(answer, ConsumerNotFoundError):
            ordered.reset(answer)
        elif isinstance(answer, Error):
            self._on_request_failed(poll, answer)
        else:
            with self._lock:
                step = self._cursor.on_info(
                    answer,
                    ordered.order.consumer_sequence,
                    monotonic(),
                    self._heartbeats.timeout,
                    stream_sequence=ordered.order.stream_sequence,
                    waits=bool(answer.num_waiting),
                )
            if step is NextAction.QUERY_LEADER:
                self._request_pending(poll)
            else:
                self._act(step, poll, "the last message of the server did not arrive")

    def _request_pending(self, poll: int) -> None:
        """Ask the leader of the stream for what is pending up to the end."""
        after = self.position
        follow(
            self._factory.api,
            pending_steps(
                self._factory.stream, self._cursor.filters, after, self._cursor.until
            ),
            lambda pending: self._on_pending(poll, after, pending),
        )

    def _on_pending(
        self, poll: int, after: int, pending: PendingMessages | Error
    ) -> None:
        if self._is_obsolete(poll):
            return
        if isinstance(pending, Error):
            self._on_request_failed(poll, pending)
            return
        step = self._next_action(pending, after)
        if step is not None:
            self._act(step, poll, BEHIND_LEADER)

    def _next_action(self, pending: PendingMessages, after: int) -> NextAction | None:
        """Return the next step by the leader's answer, or None if it ended the read."""
        try:
            with self._lock:
                return self._cursor.on_pending(pending, after, monotonic())
        except Error as final:
            self.end(final)
            return None

    def _on_request_failed(self, poll: int, error: Error) -> None:
        """Retry later, because a request failed, unless the error is final."""
        try:
            pause = self._cursor.on_request_failed(error)
        except Error as final:
            self.end(final)
        else:
            self.report(error)
            self._poll_later(poll, pause)

    def _act(self, step: NextAction, poll: int, why: str) -> None:
        match step:
            case NextAction.END:
                self.end()
            case NextAction.NEXT:
                self._ordered.reset(None)
            case NextAction.RESET:
                self._ordered.reset(JetStreamError(why))
            case _:
                self._poll_later(poll)

    @property
    def position(self) -> int:
        """The last stream sequence that has arrived."""
        with self._lock:
            return max(self._cursor.position, self._ordered.order.stream_sequence)

    def leave_if_behind(self, pending: PendingMessages, after: int) -> None:
        """Leave a server that lacks messages after `after`, which the leader has."""
        ordered = self._ordered
        # A server without an open pull owes nothing.
        if not ordered.is_live or self.position != after or not self._is_open():
            return
        if self._next_action(pending, after) is NextAction.RESET:
            ordered.reset(JetStreamError(BEHIND_LEADER))

    # The connection -------------------------------------------------------------------

    def _on_lost(self, error: ConnectionLostError) -> None:
        super()._on_lost(error)
        self._ordered.on_disconnected(error)
        self._cancel_retry()
        if self.when_lost is not None:
            self.when_lost()

    def _on_connected(self) -> None:
        self._connected = monotonic()
        self._heartbeats.resume(self._connected)
        self._ordered.on_connected()
        self._watch_heartbeats()
        if self.when_connected is not None:
            self.when_connected()

    # The end --------------------------------------------------------------------------

    def end(self, error: Exception | None = None) -> None:
        self._save_position()
        self._ordered.cancel()
        self._cancel_retry()
        super().end(error)

    def stop(self) -> None:
        """End the pull now. The next read begins with the unread messages."""
        rest: list[Msg] = []
        try:
            with self._lock:
                self.mailbox.close()
                self.mailbox.take_rest(rest)
                self._save_position()
                if rest:
                    first = cast("JetStreamMsg", rest[0]).metadata.stream_sequence
                    self._cursor.rewind(first - 1)
            self.session.call_soon(self._finish)
        except BaseException:  # Ctrl-C: the next reader stops it
            self.mailbox.put_back(rest)
            self._abandoned = True
            raise

    def drain(self) -> None:
        """Pull no more, and end after the messages that the server has already sent."""
        try:
            self._ordered.state.try_to(ReadState.ENDING)
            self._inbox.drain(bool)  # dropped messages are read again from the cursor
            self._save_position()
            self.session.call_soon(self._finish)
        except BaseException:  # Ctrl-C: the next reader stops it
            self._abandoned = True
            raise

    def close_nowait(self) -> None:
        ended = self._ordered.state.current is ReadState.ENDED and not len(self.mailbox)
        if ended and not self._abandoned:
            self._break_cycles()
            return
        self._abandoned = True
        self._factory.schedule_delete()
        self.session.call_soon(self.stop)

    def release(self) -> bool:
        """Return whether the read is over. Then the next one continues at the cursor."""
        # Ctrl-C may have come before the read began.
        if self._abandoned or self._ordered.state.current is ReadState.NEW:
            self.stop()
        if not self.mailbox.closed or len(self.mailbox):
            return False
        self._save_position()
        return True

    def _save_position(self) -> None:
        """Move the cursor after the last message that has arrived. Acts only once."""
        ordered = self._ordered
        with self._lock:
            if ordered.state.current is not ReadState.ENDED:
                # The state is last, because Ctrl-C may come in between.
                ordered.save_progress()
                self._factory.schedule_delete()
                ordered.state.try_to(ReadState.ENDED)

    def _finish(self) -> None:
        self._ordered.cancel()
        self._cancel_retry()
        super().end()
        self._break_cycles()

    def _break_cycles(self) -> None:
        # Break the reference cycle here: the garbage collector may find it only much
        # later.
        mailbox = self.mailbox
        mailbox.on_status = mailbox.on_credit = mailbox.on_order = None
        self.when_lost = self.when_connected = None
        self._ordered.detach_listener()
