"""The continuous pull of an ordered consumer: one consumer after the other (ADR-37).

What becomes of it is decided by the `Cursor`; this carries it out. All of it happens on
the I/O thread, where requests are sent and answered without waiting, so that neither a
slow reader nor one that waits is in the way of a new consumer, and `stop` ends everything
at once.
"""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING, cast

from ..._fast import Order
from ...errors import (
    ConnectionClosedError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    Error,
    JetStreamError,
    NoRespondersError,
)
from ...models import ConsumerInfo
from ..api import reply_of
from ..pulls.driver import ContinuousPull
from ..pulls.engine import Meaning, judge
from .engine import State, Step
from .read import OrderedRead

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg, Msg
    from ...errors import ConnectionLostError, MissedHeartbeatError
    from ..api import Answer
    from ..pulls.engine import ConsumeLimits, PullRequest
    from .place import Place

FIRST_LOOK = 0.1
"""Seconds of silence before the end until the server is asked for it, at first."""


class OrderedPull(ContinuousPull):
    """Fills one backlog from the consumers of one read."""

    def __init__(
        self,
        place: Place,
        limits: ConsumeLimits,
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        self._place = place
        self._cursor = place.cursor
        order = place.order() if place.cursor.name else Order(0)
        self._read = OrderedRead(place, self, order)
        # Set by code that may neither wait nor lock, or when Ctrl-C interrupted `stop`.
        # The next caller does the rest of `stop`.
        self._abandoned = False
        self._was_disused = False
        self._look_after = FIRST_LOOK
        super().__init__(place.source(), limits, on_error, lock=self._read.lock)
        self.mailbox.on_order = self._on_order

    @property
    def closed(self) -> bool:
        """Whether nothing more is taken."""
        return self._abandoned or self.mailbox.closed

    # One consumer ---------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to read, now that somebody has what is read."""
        self._read.turn(State.STARTING)
        self.session.call_soon(self._begin)

    def _begin(self) -> None:
        if self._read.state is not State.STARTING or self._abandoned:
            return
        if self._cursor.at_end or self._cursor.name is None:
            self._read.go_on()
        else:
            self._pull_from_it()

    def _pull_from_it(self) -> None:
        """The consumer is there: go on with it."""
        read = self._read
        with self._lock:
            if not read.turn(State.LIVE):
                return
            read.order = self.mailbox.order = self._place.order()
            source = self._place.source()
            self._consumer = source.consumer
            self._inbox.use(source)
        read.began_at = self._place.used_at = monotonic()
        self._heartbeats.resume(read.began_at)
        self._refill()
        self._look_after = FIRST_LOOK
        self._look()

    def _is_held(self) -> bool:
        return self.closed or not self._read.live or super()._is_held()

    def _on_status(self, msg: Msg) -> None:
        if not self._read.live or msg.subject != self._inbox.reply:
            return
        verdict = judge(msg.status or 0, msg.status_text)
        lost = verdict.meaning is Meaning.INTERRUPTED or isinstance(
            verdict.error, ConsumerDeletedError | NoRespondersError
        )
        if lost:
            self._read.reset(None if self._was_disused else verdict.error)
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
        super()._publish(request)

    def _missed(self, error: MissedHeartbeatError) -> None:
        self._read.reset(error)

    def _on_order(self) -> None:
        order = self._read.order
        passed_over = order.take_passed_over()
        with self._lock:
            self._engine.passed_over(*passed_over)
        if order.stopped is None:
            self._refill()
        else:
            self._read.look()

    # The next consumer ----------------------------------------------------------------

    def renew(self) -> None:
        """Nothing is pulled any more from the last consumer."""
        self._engine.reset(*self._account())
        self._forget_retry()
        with contextlib.suppress(ConnectionClosedError):
            self._inbox.renew()

    def made(self, info: ConsumerInfo) -> None:
        """The next consumer is there: pull from it."""
        if self._cursor.until is not None and not info.num_pending:
            self.end()
        else:
            self._pull_from_it()

    # What is left, where nobody says so -----------------------------------------------

    def _look(self) -> None:
        """Ask whether anything is left: what was may be gone, and then nobody says so."""
        read = self._read
        to_end = self._cursor.until is not None
        if read.over or not (
            to_end or self._cursor.may_stall(read.order.stream_sequence)
        ):
            return
        quiet = monotonic() - max(self.mailbox.last_arrival, read.began_at)
        begins = self._look_after == FIRST_LOOK and not read.order.consumer_sequence
        first = begins and to_end
        if quiet < self._look_after and not first:
            read.after(self._look_after - quiet + 0.001, self._look)
            return
        # Look earlier than the next heartbeat, which counts as an arrival, too.
        self._look_after = min(self._look_after * 2, self._limits.idle_heartbeat / 2)
        where = f"{self._place.stream}.{self._cursor.name}"
        read.ask(f"CONSUMER.INFO.{where}", None, self._on_looked)

    def _on_looked(self, answer: Answer) -> None:
        read = self._read
        if not read.live:
            return
        step = Step.WAIT
        try:
            info = ConsumerInfo.from_wire(reply_of(answer))
            with self._lock:
                step = self._cursor.checked(
                    info,
                    read.order.consumer_sequence,
                    monotonic(),
                    self._heartbeats.patience,
                    stream_sequence=read.order.stream_sequence,
                    waits=bool(info.num_waiting),
                )
        except ConsumerNotFoundError as gone:
            read.reset(gone)
            return
        except Error as error:
            self.report(error)
        match step:
            case Step.END:
                self.end()
            case Step.NEXT:
                read.reset(None)
            case Step.RESET:
                read.reset(
                    JetStreamError("the last message of the server did not arrive")
                )
            case _:
                read.after(self._look_after, self._look)

    def has_all(self, info: ConsumerInfo) -> bool:
        """Whether all that the consumer could send, as of `info`, has come."""
        with self._lock:
            return (
                self._read.live
                and info.name == self._cursor.name
                and info.num_pending == 0
                and info.delivered.consumer_seq <= self._read.order.consumer_sequence
            )

    # The connection -------------------------------------------------------------------

    def _on_lost(self, error: ConnectionLostError) -> None:
        super()._on_lost(error)
        self._read.lost(error)
        self._forget_retry()

    def _on_connected(self) -> None:
        self._connected = monotonic()
        self._heartbeats.resume(self._connected)
        self._read.connected()
        self._watch_heartbeats()

    # The end --------------------------------------------------------------------------

    def end(self, error: Exception | None = None) -> None:
        self._settle()
        self._read.cancel()
        self._forget_retry()
        super().end(error)

    def stop(self) -> None:
        """End it now; what is not handed over is read again by who reads next."""
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
        """Pull no more, and end after what the server has sent already."""
        self._read.turn(State.ENDING)
        self._inbox.collect(bool)  # dropped messages are read again from the cursor
        self._settle()
        self.session.call_soon(self._finish)

    def abandon(self) -> None:
        if self._read.state is State.ENDED and not len(self.mailbox):
            self._let_go()
            return
        self._abandoned = True
        self._place.retire()
        self.session.call_soon(self.stop)

    def release(self) -> bool:
        """Whether nobody reads it any more: then the cursor is where to go on."""
        # Ctrl-C may have come before the read began.
        if self._abandoned or self._read.state is State.NEW:
            self.stop()
        if not self.mailbox.closed or len(self.mailbox):
            return False
        self._settle()
        return True

    def _settle(self) -> None:
        """Leave the cursor behind all that has come; once."""
        read = self._read
        with self._lock:
            if read.state is not State.ENDED:
                read.note()  # first, because Ctrl-C may come in between
                read.turn(State.ENDED)
                self._place.retire()

    def _finish(self) -> None:
        self._read.cancel()
        self._forget_retry()
        super().end()
        self._let_go()

    def _let_go(self) -> None:
        # Break the reference cycle here: the garbage collector may find it only much
        # later.
        mailbox = self.mailbox
        mailbox.on_status = mailbox.on_credit = mailbox.on_order = None
        self._read.let_go()
