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
from ..stream_end.engine import Rest, ask_rest
from .engine import NextAction, ReadState
from .read import OrderedRead

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg, Msg
    from ...errors import ConnectionLostError, MissedHeartbeatError
    from ...models import ConsumerInfo
    from ..pulls.engine import ConsumeLimits, PullRequest
    from .place import Place

MIN_POLL_INTERVAL = 0.1
"""Seconds of silence until the rest is first requested of the messages."""

BEHIND: Final = "its server is behind the leader of the stream"


class OrderedPull(ContinuousPull):
    """Fills one backlog from the successive consumers of a read."""

    def __init__(
        self,
        place: Place,
        limits: ConsumeLimits,
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        self._place = place
        self._cursor = place.cursor
        order = place.order() if place.cursor.name else SequenceChecker(0)
        self._read = OrderedRead(place, self, order)
        # Set by code that may neither wait nor lock, or when Ctrl-C interrupted `stop`.
        # The next caller does the rest of `stop`.
        self._abandoned = False
        self._was_disused = False
        self._look_after = MIN_POLL_INTERVAL
        self._looks = 0  # the number of looks so far: only the last one continues
        # Called on the I/O thread after each loss of the connection, and each reconnect.
        self.when_lost: Callable[[], object] | None = None
        self.when_connected: Callable[[], object] | None = None
        # Called before the next consumer is read, which may be on another server.
        self.when_moved: Callable[[], object] | None = None
        self._ran_dry = False  # the server of the consumer had nothing more, once
        # Pulls to the consumer, statuses of it, and messages of it before that.
        self._pulls = self._statuses = self._before = 0
        super().__init__(place.source(), limits, on_error, lock=self._read.lock)
        self.mailbox.on_order = self._on_order

    @property
    def closed(self) -> bool:
        """True once no more messages are taken."""
        return self._abandoned or self.mailbox.closed

    # One consumer ---------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to read. Called once there is an object that gets the messages."""
        self._read.state.try_to(ReadState.STARTING)
        self.session.call_soon(self._begin)

    def _begin(self) -> None:
        if self._read.state.current is not ReadState.STARTING or self._abandoned:
            return
        if self._cursor.at_end or self._cursor.name is None:
            self._read.go_on()
        else:
            self._pull_from_it()

    def _pull_from_it(self, pending: int | None = None) -> None:
        """Pull from the current consumer, with `pending` messages if that is known."""
        read = self._read
        with self._lock:
            if not read.state.try_to(ReadState.LIVE):
                return
            read.order = self.mailbox.order = self._place.order()
            target = self._place.source()
            self._consumer = target.consumer
            self._inbox.set_target(target)
            self._pulls = self._statuses = 0
            self._before = read.order.consumer_sequence
            self._ran_dry = False
        read.began_at = self._place.used_at = monotonic()
        self._heartbeats.resume(read.began_at)
        self._refill()
        self._look_after = MIN_POLL_INTERVAL
        if self._cursor.until is not None and pending is None:
            self._ask_server(self._next_look())
        elif self._cursor.until is not None and pending == 0:
            self._ask_leader(self._next_look())
        else:
            self._look(self._next_look())

    def _is_paused(self) -> bool:
        return self.closed or not self._read.live or super()._is_paused()

    def _on_status(self, msg: Msg) -> None:
        if not self._read.live or msg.subject != self._inbox.reply:
            return
        self._statuses += 1
        result = classify_status(msg.status or 0, msg.status_text)
        lost = result.kind is StatusKind.INTERRUPTED or isinstance(
            result.error, ConsumerDeletedError | NoRespondersError
        )
        if lost:
            self._read.reset(None if self._was_disused else result.error)
        else:
            super()._on_status(msg)

    def _publish(self, request: PullRequest) -> None:
        # Pulls stop while the buffer is full. A slow reader may take longer than the
        # server keeps the consumer.
        place, arrived = self._place, self.mailbox.last_arrival
        if not self._was_disused or arrived > place.used_at:
            place.note_arrival(arrived)
            self._was_disused = place.is_disused
        place.used_at = monotonic()
        self._pulls += 1
        super()._publish(request)

    def _on_heartbeat_missed(self, error: MissedHeartbeatError) -> None:
        messages = self._read.order.consumer_sequence - self._before
        try:
            self._cursor.fell_silent(self._pulls, messages + self._statuses)
        except Error as final:
            self.end(final)
        else:
            self._read.reset(error)

    def _on_order(self) -> None:
        order = self._read.order
        passed_over = order.take_passed_over()
        with self._lock:
            self._engine.on_skipped(*passed_over)
        if order.stopped is not None:
            self._read.look()
            return
        self._refill()
        if order.take_ran_dry() and self._read.live and not self._ran_dry:
            # Only once, because a server that is catching up runs dry after each message.
            self._ran_dry = True
            self._ask_leader(self._next_look())

    # The next consumer ----------------------------------------------------------------

    def renew(self) -> None:
        """Stop pulling from the last consumer."""
        self._engine.reset(*self._update_counts())
        self._cancel_retry()
        with contextlib.suppress(ConnectionClosedError):
            self._inbox.resubscribe()

    def made(self, info: ConsumerInfo) -> None:
        """Pull from the next consumer, which has been made."""
        if self.when_moved is not None:
            self.when_moved()
        self._pull_from_it(info.num_pending)

    # Looks for the end, where no message marks it -------------------------------------

    def _next_look(self) -> int:
        self._looks += 1
        return self._looks

    def _is_over(self, look: int) -> bool:
        """Return whether a look is not needed any more, or another one has begun."""
        return look != self._looks or not self._read.live

    def _look(self, look: int) -> None:
        """Request the rest after some silence, because it may be deleted or withheld."""
        read = self._read
        if self._is_over(look) or not (
            self._cursor.until is not None
            or self._cursor.may_stall(read.order.stream_sequence)
        ):
            return
        quiet = monotonic() - max(self.mailbox.last_arrival, read.began_at)
        if quiet < self._look_after:
            read.after(self._look_after - quiet + 0.001, lambda: self._look(look))
        else:
            self._ask_server(look)

    def _look_later(self, look: int, seconds: float | None = None) -> None:
        # Look earlier than the next heartbeat, which counts as an arrival, too.
        self._look_after = min(self._look_after * 2, self._limits.idle_heartbeat / 2)
        wait = self._look_after if seconds is None else seconds
        self._read.after(wait, lambda: self._look(look))

    def _ask_server(self, look: int) -> None:
        """Query the server of the consumer what it has sent, and what it still has."""
        follow(
            self._place.api,
            self._place.consumer_info(),
            lambda said: self._on_server(look, said),
        )

    def _on_server(self, look: int, said: ConsumerInfo | Error) -> None:
        if self._is_over(look):
            return
        read = self._read
        if isinstance(said, ConsumerNotFoundError):
            read.reset(said)
        elif isinstance(said, Error):
            self._unanswered(look, said)
        else:
            with self._lock:
                step = self._cursor.checked(
                    said,
                    read.order.consumer_sequence,
                    monotonic(),
                    self._heartbeats.timeout,
                    stream_sequence=read.order.stream_sequence,
                    waits=bool(said.num_waiting),
                )
            if step is NextAction.ASK:
                self._ask_leader(look)
            else:
                self._take(step, look, "the last message of the server did not arrive")

    def _ask_leader(self, look: int) -> None:
        """Query the leader of the stream what is left up to the end."""
        after = self.position
        follow(
            self._place.api,
            ask_rest(
                self._place.stream, self._cursor.filters, after, self._cursor.until
            ),
            lambda rest: self._on_leader(look, after, rest),
        )

    def _on_leader(self, look: int, after: int, rest: Rest | Error) -> None:
        if self._is_over(look):
            return
        if isinstance(rest, Error):
            self._unanswered(look, rest)
            return
        step = self._step_of(rest, after)
        if step is not None:
            self._take(step, look, BEHIND)

    def _step_of(self, rest: Rest, after: int) -> NextAction | None:
        """Return the next step by the leader's answer, or None if it ended the read."""
        try:
            with self._lock:
                return self._cursor.rest(rest, after, monotonic())
        except Error as final:
            self.end(final)
            return None

    def _unanswered(self, look: int, error: Error) -> None:
        """Retry later, because a request failed, unless the error is final."""
        try:
            pause = self._cursor.failed(error)
        except Error as final:
            self.end(final)
        else:
            self.report(error)
            self._look_later(look, pause)

    def _take(self, step: NextAction, look: int, why: str) -> None:
        match step:
            case NextAction.END:
                self.end()
            case NextAction.NEXT:
                self._read.reset(None)
            case NextAction.RESET:
                self._read.reset(JetStreamError(why))
            case _:
                self._look_later(look)

    @property
    def position(self) -> int:
        """The last stream sequence that has arrived."""
        with self._lock:
            return max(self._cursor.position, self._read.order.stream_sequence)

    def behind(self, rest: Rest, after: int) -> None:
        """Leave a server that lacks messages after `after`, which the leader has."""
        read = self._read
        # A server without an open pull owes nothing.
        if not read.live or self.position != after or not self._is_open():
            return
        if self._step_of(rest, after) is NextAction.RESET:
            read.reset(JetStreamError(BEHIND))

    # The connection -------------------------------------------------------------------

    def _on_lost(self, error: ConnectionLostError) -> None:
        super()._on_lost(error)
        self._read.lost(error)
        self._cancel_retry()
        if self.when_lost is not None:
            self.when_lost()

    def _on_connected(self) -> None:
        self._connected = monotonic()
        self._heartbeats.resume(self._connected)
        self._read.connected()
        self._watch_heartbeats()
        if self.when_connected is not None:
            self.when_connected()

    # The end --------------------------------------------------------------------------

    def end(self, error: Exception | None = None) -> None:
        self._settle()
        self._read.cancel()
        self._cancel_retry()
        super().end(error)

    def stop(self) -> None:
        """End the pull now. The next read begins with the unread messages."""
        rest: list[Msg] = []
        try:
            with self._lock:
                self.mailbox.close()
                self.mailbox.take_rest(rest)
                self._settle()
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
        self._read.state.try_to(ReadState.ENDING)
        self._inbox.drain(bool)  # dropped messages are read again from the cursor
        self._settle()
        self.session.call_soon(self._finish)

    def close_nowait(self) -> None:
        if self._read.state.current is ReadState.ENDED and not len(self.mailbox):
            self._let_go()
            return
        self._abandoned = True
        self._place.retire()
        self.session.call_soon(self.stop)

    def release(self) -> bool:
        """Return whether the read is over. Then the next one continues at the cursor."""
        # Ctrl-C may have come before the read began.
        if self._abandoned or self._read.state.current is ReadState.NEW:
            self.stop()
        if not self.mailbox.closed or len(self.mailbox):
            return False
        self._settle()
        return True

    def _settle(self) -> None:
        """Move the cursor after the last message that has arrived. Acts only once."""
        read = self._read
        with self._lock:
            if read.state.current is not ReadState.ENDED:
                read.note()  # first, because Ctrl-C may come in between
                read.state.try_to(ReadState.ENDED)
                self._place.retire()

    def _finish(self) -> None:
        self._read.cancel()
        self._cancel_retry()
        super().end()
        self._let_go()

    def _let_go(self) -> None:
        # Break the reference cycle here: the garbage collector may find it only much
        # later.
        mailbox = self.mailbox
        mailbox.on_status = mailbox.on_credit = mailbox.on_order = None
        self.when_lost = self.when_connected = None
        self._read.let_go()
