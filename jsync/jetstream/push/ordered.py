"""Ordered push consumers: a read by one consumer after the other (ADR-15, ADR-37).

The `Cursor` decides what to do next, and this module does it on the I/O thread. Each
consumer sends to another subject, so that a late message of one consumer is not taken for
a message of its successor.
"""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING

from ..._fast import SequenceChecker
from ...core.clock import deadline_after
from ...errors import (
    ConsumerDeletedError,
    ConsumerExistsError,
    Error,
    JetStreamError,
    NoRespondersError,
)
from ..ordered.engine import NextAction, ReadState
from ..ordered.session import OrderedSession
from ..stream_end.driver import follow
from .driver import PushDelivery
from .engine import Heartbeat, Ownership, status_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import Msg
    from ...errors import ConnectionLostError, MissedHeartbeatError
    from ...models import ConsumerInfo
    from ...validation import Seconds
    from ..ordered.factory import ConsumerFactory


class OrderedPush(PushDelivery):
    """Fills one backlog, in exact order, from the successive push consumers of a read."""

    def __init__(
        self,
        factory: ConsumerFactory,
        *,
        on_error: Callable[[Exception], object] | None,
        raises: bool,
    ) -> None:
        self._factory = factory
        self._cursor = factory.cursor
        self._ordered = OrderedSession(factory, self, SequenceChecker(0))
        # Without limits: flow control bounds the backlog, and a dropped message would
        # be a gap.
        super().__init__(
            factory.api, "", on_error=on_error, raises=raises, lock=self._ordered.lock
        )
        self.mailbox.ackless = True
        self.mailbox.on_order = self._on_order
        self.mailbox.trail = None  # the ordered read detects gaps itself

    @property
    def closed(self) -> bool:
        """True once no more messages are taken."""
        return self.mailbox.closed

    def begin(self, timeout: float, heartbeat_timeout: float | None) -> None:
        """Listen, and create the first consumer. Blocks. Raises the server's errors."""
        deadline = deadline_after(timeout)
        self._subscribe()
        try:
            while (info := self._create(deadline)) is None:
                self.resubscribe()
                self.mailbox.take_rest()
        except BaseException:
            self.end(discard=True)
            self._factory.schedule_delete()
            raise
        self.bind(info, created=True, heartbeat_timeout=heartbeat_timeout)
        self._consumer_check = None  # the read replaces a consumer that is gone
        self._ordered.created_at = monotonic()
        self._ordered.state.try_to(ReadState.LIVE)
        # Look on the I/O thread, where the events happen.
        self.session.call_soon(self._ordered.check_sequence)

    def _create(self, deadline: float) -> ConsumerInfo | None:
        """Create the first consumer. Returns None if its first messages may be lost.

        Then its first position cannot be known, so another consumer has to begin.
        """
        try:
            info = self._factory.create_unbound(deadline)
        except ConsumerExistsError:
            # The name is unique, so we created it, but the reply was lost with the
            # connection.
            info = None
        order = self._ordered.order
        arrived = order.consumer_sequence
        if info is None or (info.delivered.consumer_seq and not arrived):
            self._factory.schedule_delete()
            return None
        self._cursor.on_created(info)
        if arrived:
            self._cursor.position = order.stream_sequence
        return info

    # One consumer ---------------------------------------------------------------------

    def resubscribe(self) -> None:
        """Stop listening to the last consumer, and listen for the next one."""
        self.consumer.try_to(Ownership.NONE)
        self.session.unsubscribe(self.mailbox.sid, deferred=True)
        self.mailbox.sid = self.session.next_sid()
        self._subscribe()

    def _subscribe(self) -> None:
        self.subject = f"{self.session.inbox}{self.mailbox.sid}"
        self._factory.deliver_subject = self.subject
        cursor = self._cursor
        self._ordered.order = self.mailbox.order = SequenceChecker(
            cursor.position, last=cursor.last_of_next()
        )
        self.open()

    def on_created(self, info: ConsumerInfo) -> None:
        """Switch to the next consumer, which may have sent messages already."""
        ordered = self._ordered
        with self._lock:
            if not ordered.state.try_to(ReadState.LIVE):
                self._factory.schedule_delete()
                return
            self.info = info
            self.consumer.try_to(Ownership.OURS)
        ordered.created_at = monotonic()
        if self._heartbeats is not None:
            self._heartbeats.resume(ordered.created_at)
        ordered.check_sequence()

    def _on_status(self, msg: Msg) -> None:
        if msg.subject != self.subject:
            return
        error = status_error(msg.status or 0, msg.status_text)
        if isinstance(error, ConsumerDeletedError | NoRespondersError):
            self._ordered.reset(error)
        else:
            super()._on_status(msg)

    def _heartbeat(self, heartbeat: Heartbeat) -> None:
        ordered, sent = self._ordered, heartbeat.consumer_sequence
        if (
            ordered.is_live
            and sent is not None
            and sent > ordered.order.consumer_sequence
        ):
            ordered.reset(ordered.gap_error())
            return
        super()._heartbeat(heartbeat)
        if ordered.is_live and self._cursor.may_stall(ordered.order.stream_sequence):
            follow(self._factory.api, self._factory.consumer_info(), self._on_info)

    def _on_info(self, info: ConsumerInfo | Error) -> None:
        """React to the info of a silent consumer, which may still have messages to send."""
        ordered = self._ordered
        if not ordered.is_live:
            return
        if isinstance(info, Error):
            self.report(info)
            return
        with self._lock:
            step = self._cursor.on_info(
                info,
                ordered.order.consumer_sequence,
                monotonic(),
                # The next heartbeat reveals messages that were sent and did not arrive.
                math.inf,
                stream_sequence=ordered.order.stream_sequence,
                waits=not len(self.mailbox),
            )
        if step is NextAction.NEXT:
            ordered.reset(None)
        elif step is NextAction.RESET:
            ordered.reset(
                JetStreamError(f"{self.name} has more messages, and does not send them")
            )

    def _on_heartbeat_missed(self, error: MissedHeartbeatError) -> None:
        if self._ordered.is_live:
            self._ordered.reset(error)

    def _on_order(self) -> None:
        self._ordered.order.take_passed_over()
        self._ordered.check_sequence()

    # The connection -------------------------------------------------------------------

    def _on_lost(self, error: ConnectionLostError) -> None:
        super()._on_lost(error)
        self._ordered.on_disconnected(error)

    def _on_connected(self) -> None:
        super()._on_connected()
        self._ordered.on_connected()

    # The end --------------------------------------------------------------------------

    def stop_delivery(self) -> None:
        self._stop()
        super().stop_delivery()

    def end(self, error: Exception | None = None, *, discard: bool = False) -> None:
        with self._lock:
            self._stop()
            super().end(error, discard=discard)

    def delete(self, timeout: Seconds | None = None) -> None:
        super().delete(timeout)
        self._factory.schedule_delete()

    def abandon(self) -> None:
        super().abandon()
        self._ordered.detach_listener()
        self._factory.schedule_delete()

    def _stop(self) -> None:
        self._ordered.state.try_to(ReadState.ENDING)
        self._ordered.cancel()
