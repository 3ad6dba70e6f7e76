"""Ordered consumers that push: one consumer after the other (ADR-15, ADR-37).

What becomes of it is decided by the `Cursor`; this carries it out, on the I/O thread. Each
consumer sends to a subject of its own, so that nothing of the last one is taken for
something of the next.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from ..._fast import Order
from ...core.deadline import deadline_after
from ...errors import (
    ConsumerDeletedError,
    ConsumerExistsError,
    JetStreamError,
    NoRespondersError,
)
from ..ordered.engine import Step
from ..ordered.succession import Succession
from .driver import PushDelivery
from .engine import Heartbeat, status_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import Msg
    from ...checks import Seconds
    from ...errors import ConnectionLostError, MissedHeartbeatError
    from ...models import ConsumerInfo
    from ..ordered.place import Place


class OrderedPush(PushDelivery):
    """Fills one backlog from a row of consumers that push, in exact order."""

    def __init__(
        self,
        place: Place,
        *,
        on_error: Callable[[Exception], object] | None,
        raises: bool,
    ) -> None:
        self._place = place
        self._cursor = place.cursor
        self._order = Order(0)
        self._live = self._begun = self._stopped = False
        self._began_at = 0.0
        self._loss: Exception | None = None
        # Without limits: flow control bounds what comes, and a message that is dropped
        # would be a gap.
        super().__init__(place.api, "", on_error=on_error, raises=raises)
        self._succession = Succession(
            place,
            self._lock,
            stopped=lambda: self._stopped,
            on_made=self._on_made,
            on_end=self.end,
            report=self.report,
        )
        self.mailbox.ackless = True
        self.mailbox.on_order = self._on_order
        self.mailbox.trail = None  # the order knows more

    def begin(self, timeout: float, patience: float | None) -> None:
        """Listen, and have the first consumer made; blocks. Raises what the server says."""
        deadline = deadline_after(timeout)
        self._listen()
        try:
            while (info := self._make(deadline)) is None:
                self._listen_anew()
                self.mailbox.take_rest()
        except BaseException:
            self.end(discard=True)
            self._place.retire()
            raise
        self.bind(info, created=True, patience=patience)
        with self._lock:
            self._begun = self._live = True
        self._began_at = monotonic()
        # What has happened meanwhile is looked at where it happens.
        self.session.call_soon(self._look)

    def _make(self, deadline: float) -> ConsumerInfo | None:
        """Have the first one made; None if what it sends before it is known may be lost.

        Where that has begun nobody could say, so that another one has to begin.
        """
        try:
            info = self._place.make(deadline)
        except ConsumerExistsError:
            # The name is ours alone: the answer was lost with the connection.
            info = None
        arrived = self._order.consumer_sequence
        if info is None or (info.delivered.consumer_seq and not arrived):
            self._place.retire()
            return None
        self._cursor.began(info)
        if arrived:
            self._cursor.position = self._order.stream_sequence
        return info

    def _look(self) -> None:
        if self._order.stopped is not None:
            self._on_order()

    # One consumer ---------------------------------------------------------------------

    def _listen_anew(self) -> None:
        """Take nothing of the last consumer any more, but what the next one sends."""
        self.session.unsubscribe(self.mailbox.sid, lazy=True)
        self.mailbox.sid = self.session.next_sid()
        self._listen()

    def _listen(self) -> None:
        self.subject = f"{self.session.inbox}{self.mailbox.sid}"
        self._place.deliver_subject = self.subject
        span = self._cursor.coming()
        self._order = self.mailbox.order = Order(span.after, last=span.last)
        self.open()

    def _on_made(self, info: ConsumerInfo) -> None:
        with self._lock:
            if self._stopped:
                self._place.retire()
                return
            self.info = info
            self._created = self._live = True
        self._began_at = monotonic()
        if self._heartbeats is not None:
            self._heartbeats.resume(self._began_at)
        self._look()

    def _on_status(self, msg: Msg) -> None:
        if msg.subject != self.subject:
            return
        error = status_error(msg.status or 0, msg.status_text)
        if isinstance(error, ConsumerDeletedError | NoRespondersError):
            self._reset(error)
        else:
            super()._on_status(msg)

    def _heartbeat(self, heartbeat: Heartbeat) -> None:
        sent = heartbeat.consumer_sequence
        if self._live and sent is not None and sent > self._order.consumer_sequence:
            self._reset(self._missing())
        else:
            super()._heartbeat(heartbeat)

    def _missed(self, error: MissedHeartbeatError) -> None:
        if self._live:
            self._reset(error)

    def _missing(self) -> JetStreamError:
        return JetStreamError(
            f"a message of consumer {self.name} is missing behind stream sequence "
            f"{self._order.stream_sequence}"
        )

    def _on_order(self) -> None:
        order = self._order
        order.take_passed_over()
        with self._lock:
            if order.stopped is None or self._stopped or not self._live:
                return
            span = self._cursor.range()
            self._cursor.reached(order.stream_sequence, order.consumer_sequence)
            step = self._cursor.stopped(order.stopped, span)
        self._reset(self._missing() if step is Step.RESET else None)

    # The next consumer ----------------------------------------------------------------

    def _reset(self, reason: Exception | None, *, at_once: bool = False) -> None:
        """Give the consumer up; another goes on behind what has come of it."""
        with self._lock:
            if self._stopped or self.mailbox.closed or self.session.closing:
                return
            self._live = self._created = False
            order = self._order
            progress = self._cursor.reached(
                order.stream_sequence, order.consumer_sequence
            )
            self._place.retire()
            self._succession.cancel()
            self._listen_anew()
        if reason is not None:
            self.report(self._place.lost(reason))
        lived = monotonic() - self._began_at
        pause = 0.0
        if reason is not None and not at_once:
            pause = self._cursor.reset(progress=progress, lived=lived)
        self._succession.begin(pause)

    # The connection -------------------------------------------------------------------

    def _on_lost(self, error: ConnectionLostError) -> None:
        super()._on_lost(error)
        if self._live:  # otherwise it is told already
            self._loss = error
        self._live = False
        self._succession.cancel()

    def _on_connected(self) -> None:
        super()._on_connected()
        if self._begun:
            loss, self._loss = self._loss, None
            self._reset(loss, at_once=True)

    # The end --------------------------------------------------------------------------

    def silence(self) -> None:
        self._stop()
        super().silence()

    def end(self, error: Exception | None = None, *, discard: bool = False) -> None:
        with self._lock:
            self._stop()
            super().end(error, discard=discard)

    def delete(self, timeout: Seconds | None = None) -> None:
        super().delete(timeout)
        self._place.retire()

    def abandon(self) -> None:
        super().abandon()
        self._succession.let_go()
        self._place.retire()

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
        self._succession.cancel()
