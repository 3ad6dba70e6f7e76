"""The continuous pull of an ordered consumer: one consumer after the other (ADR-37).

What becomes of it is decided by the `Cursor`; this carries it out. All of it happens on
the I/O thread, where requests are sent and answered without waiting, so that neither a
slow reader nor one that waits is in the way of a new consumer, and `stop` ends everything
at once.
"""

from __future__ import annotations

import contextlib
import threading
from time import monotonic
from typing import TYPE_CHECKING, cast

from ..._fast import Order
from ...errors import (
    ConnectionClosedError,
    ConnectionLostError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    Error,
    JetStreamError,
    NoRespondersError,
)
from ...models import ConsumerInfo
from ..pulls.driver import ContinuousPull
from ..pulls.engine import Meaning, judge
from .engine import Step
from .succession import Succession, reply_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg, Msg
    from ...errors import MissedHeartbeatError
    from ..inquiry import Answer
    from ..pulls.engine import ConsumeLimits, PullRequest
    from .place import Place

FIRST_LOOK = 0.1
"""Seconds of silence before the end until the server is asked for it, at first."""


class OrderedPull(ContinuousPull):
    """Fills one backlog from a row of consumers."""

    def __init__(
        self,
        place: Place,
        limits: ConsumeLimits,
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        self._place = place
        self._cursor = place.cursor
        self._order = place.order() if place.cursor.name else Order(0)
        self._begun = self._live = self._settled = self._abandoned = False
        self._was_disused = self._started = False
        self._began_at = 0.0
        self._loss: Exception | None = None
        self._look_after = FIRST_LOOK
        lock = threading.RLock()
        self._succession = Succession(
            place,
            lock,
            stopped=lambda: self._stopped,
            on_made=self._on_made,
            on_end=self.end,
            report=self.report,
        )
        super().__init__(place.source(), limits, on_error, lock=lock)
        self.mailbox.on_order = self._on_order

    # One consumer ---------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to read, now that somebody has what is read."""
        self._started = True
        self._session.call_soon(self._begin)

    def _begin(self) -> None:
        if self._begun or self._stopped:
            return
        self._begun = True
        if self._cursor.at_end:
            self.end()
        elif self._cursor.name is None:
            self._go_on()
        else:
            self._pull_from_it()

    def _pull_from_it(self) -> None:
        """The consumer is there: go on with it."""
        with self._lock:
            if self._stopped:
                return
            self._order = self.mailbox.order = self._place.order()
            source = self._place.source()
            self._consumer = source.consumer
            self._inbox.use(source)
            self._live = True
        self._began_at = self._place.used_at = monotonic()
        self._heartbeats.resume(self._began_at)
        self._refill()
        if self._cursor.until is not None:
            self._look_after = FIRST_LOOK
            self._look()

    def _is_held(self) -> bool:
        return not self._live or super()._is_held()

    def _on_status(self, msg: Msg) -> None:
        if not self._live or msg.subject != self._inbox.reply:
            return
        verdict = judge(msg.status or 0, msg.status_text)
        lost = verdict.meaning is Meaning.INTERRUPTED or isinstance(
            verdict.error, ConsumerDeletedError | NoRespondersError
        )
        if lost:
            self._reset(None if self._was_disused else verdict.error)
        else:
            super()._on_status(msg)

    def _publish(self, request: PullRequest) -> None:
        # Nothing is pulled while the buffer is full: a slow reader may take longer than
        # the server keeps the consumer.
        place, arrived = self._place, self.mailbox.last_arrival
        if not self._was_disused or arrived > place.used_at:
            place.used_at = max(place.used_at, arrived)
            self._was_disused = place.is_disused
        place.used_at = monotonic()
        super()._publish(request)

    def _missed(self, error: MissedHeartbeatError) -> None:
        self._reset(error)

    def _on_order(self) -> None:
        order = self._order
        passed_over = order.take_passed_over()
        with self._lock:
            self._engine.passed_over(*passed_over)
        if order.stopped is None:
            self._refill()
            return
        with self._lock:
            if self._stopped or not self._live:
                return
            span = self._cursor.range()
            self._cursor.reached(order.stream_sequence, order.consumer_sequence)
            step = self._cursor.stopped(order.stopped, span)
        match step:
            case Step.END:
                self.end()
            case Step.RESET:
                self._reset(
                    JetStreamError(
                        f"a message of consumer {self._consumer} is missing behind "
                        f"stream sequence {order.stream_sequence}"
                    )
                )
            case _:
                self._reset(None)

    # The next consumer ----------------------------------------------------------------

    def _reset(self, reason: Exception | None, *, at_once: bool = False) -> None:
        """Give the consumer up; another goes on behind what has come of it."""
        with self._lock:
            if self._stopped or self.mailbox.closed or self._session.closing:
                return
            self._live = False
            progress = self._cursor.reached(
                self._order.stream_sequence, self._order.consumer_sequence
            )
            self._engine.reset(*self._account())
            self._place.retire()
        self._cancel()
        with contextlib.suppress(ConnectionClosedError):
            self._inbox.renew()
        if reason is not None and not self._cursor.at_end:
            self.report(self._place.lost(reason))
        lived = monotonic() - self._began_at
        pause = 0.0
        if reason is not None and not at_once:
            pause = self._cursor.reset(progress=progress, lived=lived)
        self._go_on(pause)

    def _go_on(self, pause: float = 0.0) -> None:
        """Have the next consumer made, if there is anything left to read."""
        if self._cursor.at_end:
            self.end()
        else:
            self._succession.begin(pause)

    def _on_made(self, info: ConsumerInfo) -> None:
        if self._cursor.until is not None and not info.num_pending:
            self.end()
        else:
            self._pull_from_it()

    def _cancel(self) -> None:
        self._succession.cancel()
        if self._retrying is not None:
            self._retrying.cancel()
        self._retrying = None

    # The end of what is read to its end -----------------------------------------------

    def _look(self) -> None:
        """Ask whether anything is left: what was may be gone, and then nobody says so."""
        if self._stopped:
            return
        quiet = monotonic() - max(self.mailbox.last_arrival, self._began_at)
        first = self._look_after == FIRST_LOOK and not self._order.consumer_sequence
        if quiet < self._look_after and not first:
            self._succession.after(self._look_after - quiet + 0.001, self._look)
            return
        self._look_after = min(self._look_after * 2, self._limits.idle_heartbeat)
        where = f"{self._place.stream}.{self._cursor.name}"
        self._succession.ask(f"CONSUMER.INFO.{where}", None, self._on_looked)

    def _on_looked(self, answer: Answer) -> None:
        if self._stopped or not self._live:
            return
        step = Step.WAIT
        try:
            info = ConsumerInfo.from_wire(reply_of(answer))
            with self._lock:
                sequence = self._order.consumer_sequence
                patience = self._heartbeats.patience
                step = self._cursor.checked(info, sequence, monotonic(), patience)
        except ConsumerNotFoundError as gone:
            self._reset(gone)
            return
        except Error as error:
            self.report(error)
        match step:
            case Step.END:
                self.end()
            case Step.RESET:
                self._reset(
                    JetStreamError("what the server has sent last has not come")
                )
            case _:
                self._succession.after(self._look_after, self._look)

    def has_all(self, info: ConsumerInfo) -> bool:
        """Whether all that the consumer could send, as of `info`, has come."""
        with self._lock:
            return (
                self._live
                and info.name == self._cursor.name
                and info.num_pending == 0
                and info.delivered.consumer_seq <= self._order.consumer_sequence
            )

    def replace(self, reason: Exception | None) -> None:
        """Have another consumer go on in place of this one; from any thread."""
        self._session.call_soon(lambda: self._reset(reason, at_once=True))

    # The connection -------------------------------------------------------------------

    def _on_lost(self, error: ConnectionLostError) -> None:
        super()._on_lost(error)
        if self._live:  # otherwise it is told already
            self._loss = error
        self._live = False
        self._cancel()

    def _on_connected(self) -> None:
        self._connected = monotonic()
        self._heartbeats.resume(self._connected)
        if not self._started:
            return
        self._begun = True
        loss, self._loss = self._loss, None
        self._reset(loss, at_once=True)
        self._watch_heartbeats()

    # The end --------------------------------------------------------------------------

    def end(self, error: Exception | None = None) -> None:
        self._settle()
        self._cancel()
        super().end(error)

    def stop(self) -> None:
        """End it now; what is not handed over is read again by who reads next."""
        rest: list[Msg] = []
        try:
            with self._lock:
                self._stopped = True
                self.mailbox.close()
                self.mailbox.take_rest(rest)
                self._settle()
                if rest:
                    first = cast("JetStreamMsg", rest[0]).metadata.stream_sequence
                    self._cursor.rewind(first - 1)
            self._session.call_soon(self._finish)
        except BaseException:  # Ctrl-C: who reads next stops it
            self.mailbox.put_back(rest)
            self._abandoned = True
            raise

    def drain(self) -> None:
        """Pull no more, and end after what the server has sent already."""
        self._stopped = True
        self._inbox.collect(bool)  # what is dropped then is read from the cursor again
        self._settle()
        self._session.call_soon(self._finish)

    def abandon(self) -> None:
        if self._settled and not len(self.mailbox):
            self._let_go()
            return
        self._abandoned = self._stopped = True
        self._place.retire()
        self._session.call_soon(self.stop)

    def release(self) -> bool:
        """Whether nobody reads it any more: then the cursor is where to go on."""
        if self._abandoned or not self._started:  # Ctrl-C came before it began
            self.stop()
        if not self.mailbox.closed or len(self.mailbox):
            return False
        self._settle()
        return True

    def _settle(self) -> None:
        """Leave the cursor behind all that has come; once."""
        with self._lock:
            self._stopped = True
            if self._settled:
                return
            self._cursor.reached(
                self._order.stream_sequence, self._order.consumer_sequence
            )
            self._settled = True
            self._place.retire()

    def _finish(self) -> None:
        self._cancel()
        super().end()
        self._let_go()

    def _let_go(self) -> None:
        # The cycle is taken apart here, since the collector may take long to find it.
        mailbox = self.mailbox
        mailbox.on_status = mailbox.on_credit = mailbox.on_order = None
        self._succession.let_go()
