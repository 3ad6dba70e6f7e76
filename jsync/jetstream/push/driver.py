"""The delivery of a push consumer's messages and statuses (ADR-15).

It consists of the NATS subscription, its backlog, and the handling of statuses. Statuses
are handled on the I/O thread as they arrive. Only flow control waits until its place among
the messages is reached, and is then answered by the thread that reads them.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final

from ..._fast import GapTracker, JetStreamMailbox, encode_publish
from ...core.session import ConnectionState, SubscriptionEntry
from ...core.sync import ForkSafeRLock
from ...errors import ConsumerDeletedError, Error, MissedHeartbeatError
from ...validation import format_seconds
from .. import management
from ..pulls.consumer_check import ConsumerCheck
from ..pulls.delivery import Delivery, is_ack_of, nak_unread, take_all
from ..pulls.engine import HeartbeatMonitor
from ..pulls.inbox import IN_FLIGHT_TIMEOUT
from .engine import (
    HEARTBEATS_MISSED,
    FlowControl,
    Heartbeat,
    Ownership,
    gap_error,
    status_error,
)
from .ownership import ConsumerOwnership

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg, Msg
    from ...errors import ConnectionLostError, PermissionsError
    from ...models import ConsumerInfo
    from ...validation import Seconds
    from ..api import API

SILENCE_SECONDS: Final = 30.0
"""Seconds without a message until we check that a consumer without heartbeats still exists. The
server does not notify a subscriber when the consumer is deleted."""

NO_ACKS = ("none", "flow_control")
"""Ack policies of consumers that expect no acks of messages."""


class PushDelivery(Delivery):
    """Receives what a push consumer sends. `open` it, then `bind` it to the consumer.

    With `raises`, reading raises a status that is an error, at its place among the
    messages. Otherwise `on_error` gets it immediately.
    """

    logger = logging.getLogger("jsync.subscribe")

    def __init__(
        self,
        api: API,
        deliver_subject: str,
        *,
        queue: str | None = None,
        on_error: Callable[[Exception], object] | None = None,
        max_messages: int = 0,
        max_bytes: int = 0,
        readers: int = 1,
        raises: bool = False,
        lock: ForkSafeRLock | None = None,
    ) -> None:
        self.api = api
        session = api.session
        super().__init__(session, on_error)
        session.write_buffer.check_process()
        self.subject = deliver_subject
        self.queue = queue
        self.info: ConsumerInfo | None = None
        self.expected: str | None = None
        """Stream and consumer, while the server has not confirmed them yet."""
        self._raises = raises
        # Re-entrant, like the session's lock. No call blocks while we hold it.
        self._lock = lock or ForkSafeRLock()
        self.consumer = ConsumerOwnership(self._lock)
        self._flow = FlowControl()
        self._unread: deque[JetStreamMsg] = deque()
        self._heartbeats: HeartbeatMonitor | None = None
        self._consumer_check: ConsumerCheck | None = None
        """Checks that the consumer exists. None if a lost consumer is replaced instead."""
        self.mailbox = JetStreamMailbox(
            session.write_buffer,
            session.next_sid(),
            max_messages=max_messages,
            max_bytes=max_bytes,
            readers=readers,
        )
        self.mailbox.on_status = self._on_status
        self.mailbox.on_control = self._on_control
        self.mailbox.on_order = self._on_gap
        # In a queue group, missing messages went to other members.
        self.mailbox.trail = None if queue else GapTracker()

    @property
    def name(self) -> str:
        """Stream and consumer, for error messages, or the subject until they are known."""
        if self.info is None:
            return self.expected or repr(self.subject)
        return f"{self.info.stream_name}.{self.info.name}"

    @property
    def acks(self) -> bool:
        """True if the messages are acknowledged."""
        return self.info is None or self.info.config.ack_policy not in NO_ACKS

    def __repr__(self) -> str:
        state = "ended" if self.mailbox.closed else "open"
        return f"<PushDelivery of {self.name} {state}>"

    # The beginning --------------------------------------------------------------------

    def open(self) -> None:
        """Subscribe. Messages are buffered until `bind`."""
        interest = SubscriptionEntry(
            self.mailbox.sid,
            self.subject,
            self.queue,
            self.mailbox,
            on_lost=self._on_lost,
            on_connected=self._on_connected,
            on_permission_error=self._on_permission_error,
            describe=lambda: f"of the consumer {self.name}",
        )
        self.session.subscribe(interest)

    def rebind(self, deliver_subject: str, queue: str | None) -> None:
        """Listen there instead, and drop earlier messages, which are another consumer's."""
        self.session.unsubscribe(self.mailbox.sid)
        self.mailbox.take_rest()
        self.mailbox.sid = self.session.next_sid()
        self.mailbox.trail = None if queue else GapTracker()
        self.subject, self.queue = deliver_subject, queue
        self.open()

    def bind(
        self,
        info: ConsumerInfo,
        *,
        created: bool,
        heartbeat_timeout: float | None = None,
    ) -> None:
        """Bind to the consumer, with a heartbeat alarm after `heartbeat_timeout` seconds."""
        config = info.config
        self.info = info
        self.consumer.try_to(Ownership.OURS if created else Ownership.THEIRS)
        if not self.acks:
            self.mailbox.need_no_acks()
        trail = self.mailbox.trail
        if trail is not None and trail.start(
            info.delivered.consumer_seq, info.delivered.stream_seq
        ):
            self._on_gap()
        if config.idle_heartbeat:
            interval = config.idle_heartbeat
            self._heartbeats = HeartbeatMonitor(
                interval, monotonic(), heartbeat_timeout or HEARTBEATS_MISSED * interval
            )
        self._consumer_check = ConsumerCheck(
            self.api, self.name, self.end, self._replaced_by
        )
        self._watch_arrivals()

    def _replaced_by(self, info: ConsumerInfo) -> str | None:
        """Return why a consumer of this name sends us nothing, or None if it does."""
        subject, queue = info.config.deliver_subject, info.config.deliver_group
        if not subject:
            return "is a pull consumer now"
        if subject != self.subject:
            return f"sends its messages to {subject!r} now, not to {self.subject!r}"
        if (queue or None) != self.queue:
            return f"sends its messages to the queue group {queue!r} now, not to {self.queue!r}"
        return None

    def _on_permission_error(self, error: PermissionsError) -> None:
        """End the delivery if the server refuses acks or the replies of flow control.

        Otherwise every message would be delivered again, or no further one.
        """
        if is_ack_of(self.name, error.subject) or error.subject.startswith(
            f"$JS.FC.{self.name}."
        ):
            self.end(error)

    # Gaps -----------------------------------------------------------------------------

    def _on_gap(self) -> None:
        trail = self.mailbox.trail
        for gap in () if trail is None else trail.take_gaps():
            self.report(gap_error(self.name, gap))

    # Statuses -------------------------------------------------------------------------

    def _on_status(self, msg: Msg) -> None:
        status = msg.status or 0
        if status == 100:
            self._heartbeat(Heartbeat.of(msg.headers))
            return
        error = status_error(status, msg.status_text)
        if isinstance(error, ConsumerDeletedError):
            self.end(error)
        elif error is not None and self._raises:
            self.mailbox.put(msg)
        elif error is not None:
            self.report(error)

    def _heartbeat(self, heartbeat: Heartbeat) -> None:
        trail = self.mailbox.trail
        if (
            trail is not None
            and heartbeat.consumer_sequence is not None
            and trail.on_heartbeat(
                heartbeat.consumer_sequence, heartbeat.stream_sequence or 0
            )
        ):
            self._on_gap()
        subject = heartbeat.stalled
        if subject is not None:
            with self._lock:
                due = self._flow.stalled(subject, waits=self.mailbox.holds_control)
            if due:
                self._answer(subject)

    def _on_control(self, msg: Msg) -> None:
        """Handle a status at its place among the messages, on the reading thread."""
        if msg.status == 100:
            subject = msg.reply
            if subject is not None:
                with self._lock:
                    due = self._flow.reached(subject)
                if due:
                    self._answer(subject)
            return
        error = status_error(msg.status or 0, msg.status_text)
        if error is not None:
            if self._raises:
                raise error
            self.report(error)

    def _answer(self, subject: str) -> None:
        """Publish an empty message to `subject`. Few bytes may exceed the write buffer."""
        try:
            if self.session.write_buffer.command(encode_publish(subject)):
                return
        except Error as error:
            self.report(error)
        with self._lock:
            self._flow.lost()

    # Heartbeats and reconnects, on the I/O thread -------------------------------------

    def _watch_arrivals(self) -> None:
        watch = self._heartbeats
        self._unwatch()
        if watch is not None:
            seconds = watch.next_check_in(self.mailbox.last_arrival, monotonic())
            self._watch = self.session.call_later(seconds, self._check_heartbeat)
        elif self._consumer_check is not None:
            self._watch = self.session.call_later(SILENCE_SECONDS, self._check_silence)

    def _check_silence(self) -> None:
        if self.mailbox.closed or self._consumer_check is None:
            return
        if monotonic() - self.mailbox.last_arrival >= SILENCE_SECONDS:
            self._consumer_check.check()
        self._watch_arrivals()

    def _check_heartbeat(self) -> None:
        watch = self._heartbeats
        if watch is None or self.mailbox.closed:
            return
        if watch.is_late(self.mailbox.last_arrival, monotonic()):
            self._on_heartbeat_missed(
                MissedHeartbeatError(
                    f"no message or heartbeat from consumer {self.name} for "
                    f"{format_seconds(watch.timeout)}"
                )
            )
        self._watch_arrivals()

    def _on_heartbeat_missed(self, error: MissedHeartbeatError) -> None:
        self.report(error)
        if self._consumer_check is not None:
            self._consumer_check.check()

    def _on_lost(self, error: ConnectionLostError) -> None:
        with self._lock:
            self._flow.lost()
        if self._consumer_check is not None:
            self._consumer_check.reset()
        if self._heartbeats is not None:
            self._heartbeats.pause()
        self._unwatch()

    def _on_connected(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.resume(monotonic())
        self._watch_arrivals()
        if self._consumer_check is not None:
            # No request goes to a push consumer, so no 503 reveals that it is gone.
            self._consumer_check.check()

    # The end --------------------------------------------------------------------------

    def end(self, error: Exception | None = None, *, discard: bool = False) -> None:
        """Take no more. The reader gets what is buffered, then `error` or the end."""
        if not self.mailbox.closed or discard:
            self.mailbox.close(error, discard=discard)
        if self._consumer_check is not None:
            self._consumer_check.stop()
        self.session.unsubscribe(self.mailbox.sid)
        self._unwatch()

    def stop_delivery(self) -> None:
        """Stop the server from sending. Messages that it has already sent still arrive."""
        self.session.stop_delivery(self.mailbox.sid)

    def drain(self) -> None:
        """End after the messages already sent, which are awaited for at most a second."""
        if self.mailbox.closed:
            return
        self.stop_delivery()
        with contextlib.suppress(Error):
            self.session.ping(monotonic() + IN_FLIGHT_TIMEOUT)
        self.end()

    def stop(self) -> None:
        """End the delivery now, and give unread messages back to the server."""
        self.drain()
        self._unread += nak_unread(self.mailbox, acks=self.acks)

    def take_unread(self) -> list[JetStreamMsg]:
        return take_all(self._unread)

    def abandon(self) -> None:
        """End without waiting, because no reader is left. For finalisers."""
        self.consumer.delete_on_drain(self.api, self.info)
        if self._consumer_check is not None:
            self._consumer_check.close_nowait()
        mailbox = self.mailbox
        if mailbox.closed:
            # Break the reference cycle here: the garbage collector may find it only
            # much later.
            mailbox.on_status = mailbox.on_control = None
            mailbox.on_order = mailbox.on_end = None
            return
        self.session.call_soon(lambda: self.end(discard=True))

    def delete(self, timeout: Seconds | None = None) -> None:
        """Delete the consumer if it was created for this subscription. Blocks.

        A consumer that is already gone is no error.
        """
        info = self.info
        if info is not None:
            names = info.stream_name, info.name
            self.consumer.delete(
                lambda: management.delete_consumer(self.api, *names, timeout)
            )

    def delete_or_report(self) -> None:
        """Call `delete` at the end of a drain. A failure goes to `on_error`."""
        if self.session.state is ConnectionState.CLOSED:
            return
        try:
            self.delete()
        except Error as error:
            self.report(error)
