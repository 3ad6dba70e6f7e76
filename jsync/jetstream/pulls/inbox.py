"""The subscription that receives only the replies to pulls, and its backlog."""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from ... import errors
from ..._fast import JetStreamMailbox, PreparedRequest, RowBuffer
from ...core.requests import request_until
from ...core.session import ConnectionState, SubscriptionEntry
from ...errors import Error
from .delivery import is_ack_of, nak_unread, take_all
from .engine import PROBE, encode_request, grace_after, has_more_pending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._fast import JetStreamMsg, Msg, PinId
    from ...core.timers import Timer
    from ...errors import ConnectionLostError, PermissionsError
    from ..api import API
    from .engine import PullRequest
    from .priority import PriorityOptions

IN_FLIGHT_TIMEOUT = 1.0
"""Seconds to wait for messages that the server sent before it saw the unsubscribe.

A consumer with acks can give them back later, so it waits for `grace_after` only.
"""
LATE_SECONDS = 10.0
"""Seconds to give back messages that come after the end of their pull."""
INITIAL_BACKOFF, MAX_BACKOFF = 0.001, 0.02
"""Seconds between two probes. The pause doubles each time, up to the second value."""


@dataclass(frozen=True, slots=True)
class DrainTimeouts:
    """The limits, in seconds, of the wait for the last messages of open pulls."""

    limit: float
    silence: float
    """The wait ends once nothing has arrived for this long."""


ACK_NONE_DRAIN = DrainTimeouts(2.0, silence=0.02)
"""For consumers without acks: messages that the server drops are lost."""
ACKED_DRAIN = DrainTimeouts(0.1, silence=0.0)
"""For consumers with acks, which redeliver dropped messages.

The wait is short because a consumer with too many pending acks does not reply.
"""


@dataclass(frozen=True, slots=True)
class PullTarget:
    """A consumer to pull from, and the client's claim in its priority group."""

    api: API
    consumer: str
    """Stream and consumer, with a dot between them."""
    acks: bool
    """False for a consumer whose ack policy is known to be `none`."""
    priority: PriorityOptions
    pin: PinId | None
    """The pin of a priority group, shared by all pulls of the same client."""
    acks_all: bool = False
    """True for a consumer whose ack policy is known to be `all`."""
    max_unacked: float = 0
    """The most messages that the server sends without an ack: `inf` without a limit, or 0 if unknown."""

    @property
    def subject(self) -> str:
        """The subject of pulls."""
        return f"{self.api.prefix}.CONSUMER.MSG.NEXT.{self.consumer}"

    def columns(self, names: Sequence[str] | None, max_rows: int = 0) -> RowBuffer:
        """Build the columns of a batch. A `max_rows` of 0 means any number of rows."""
        return RowBuffer(
            names, max_rows=max_rows, acks=self.acks, together=self.acks_all
        )


def raise_failure(mailbox: JetStreamMailbox) -> None:
    """Raise the error that has ended the mailbox, if there is one."""
    if mailbox.failure is not None:
        mailbox.next(0)


class PullInbox:
    """Receives the replies to pulls, and gives unread messages back.

    Call `open` once the owner is ready, because the callbacks run on the I/O thread.
    Without an `on_lost`, the inbox closes when the connection is lost, and without an
    `on_denied`, when the user may not pull. `on_denied` is called for a refused ack, too.
    """

    def __init__(
        self,
        target: PullTarget,
        *,
        on_status: Callable[[Msg], object],
        on_lost: Callable[[ConnectionLostError], object] | None = None,
        on_connected: Callable[[], object] | None = None,
        on_denied: Callable[[PermissionsError], object] | None = None,
        readers: int = 1,
    ) -> None:
        # Keep the connection alive while its messages are read.
        self._owner = target.api.owner
        self._session = session = target.api.session
        self.target = target
        """The consumer to pull from. The next pull goes to it."""
        self.reply = ""
        """The subject of the replies, set by `open`."""
        self._pulled_as = ""
        self._unread: deque[JetStreamMsg] = deque()
        """Messages that could not be given back to the server."""
        self._close_timer: Timer | None = (
            None  # set when abandoned with messages in flight
        )
        self.mailbox = JetStreamMailbox(session.write_buffer, 0, readers=readers)
        self.mailbox.on_status = on_status
        self.mailbox.ackless = not target.acks
        self.mailbox.pin = target.pin
        self._on_lost, self._on_connected = on_lost, on_connected
        self._on_denied = on_denied
        self._is_left = False
        """True once the subscription only gives late messages back."""

    def open(self) -> None:
        """Subscribe. The SUB is written together with the first pull."""
        self._session.write_buffer.check_process()
        sid = self.mailbox.sid = self._session.next_sid()
        self.reply = f"{self._session.inbox}{sid}"
        interest = SubscriptionEntry(
            sid,
            self.reply,
            None,
            self.mailbox,
            on_lost=self._on_lost or self.close,
            on_connected=self._on_connected,
            on_permission_error=self._on_permission_error,
        )
        self._session.subscribe(interest, piggyback=True)

    def _on_permission_error(self, error: PermissionsError) -> None:
        """End the pull if the server has refused it, because it gets no answer.

        A pull that goes on also ends if acks of the consumer are refused. Otherwise each
        message would be delivered again and again, although it was handled.
        """
        if error.subject == self.target.subject:
            (self._on_denied or self.close)(error)
        elif self._on_denied is not None and is_ack_of(
            self.target.consumer, error.subject
        ):
            self._on_denied(error)

    def resubscribe(self) -> None:
        """Subscribe again, so that only replies to future pulls are received.

        Called on the I/O thread, so that nothing can arrive in between.
        """
        self._unsubscribe()
        self.open()

    def pull(self, request: PullRequest) -> None:
        """Send a pull. Raises `ConnectionLostError` while disconnected."""
        target = self.target
        if target.priority.group:
            request = self._with_priority(request)
        self._session.write_buffer.publish(
            target.subject, encode_request(request), self.reply, request=True
        )

    def _with_priority(self, request: PullRequest) -> PullRequest:
        target = self.target
        if target.pin is not None:
            self._pulled_as = target.pin.id
        return target.priority.apply(request, self._pulled_as)

    def clear_pin_id(self) -> bool:
        """Drop the pin id that the server rejected. Returns whether the last pull had one.

        An id that has arrived since then is newer, so it is kept.
        """
        if self.target.pin is not None and self._pulled_as:
            self.target.pin.clear(self._pulled_as)
            return True
        return False

    # The end --------------------------------------------------------------------------

    def close(self, error: Exception | None = None) -> None:
        """Take no more messages. Readers get the buffered ones, then `error` or the end."""
        if not self.mailbox.closed:
            self.mailbox.close(error)
        if not self._is_left:
            self._unsubscribe()
        if self._close_timer is not None:
            self._close_timer.cancel()  # the timer would keep this object alive until then
            self._finish_close()

    def _unsubscribe(self) -> None:
        self._session.unsubscribe(self.mailbox.sid, deferred=True)

    def drain(self, is_open: Callable[[], bool]) -> None:
        """Close once everything that the server sends for open pulls has arrived.

        `is_open` returns whether a pull is unanswered. Blocks for two round trips, or while
        messages keep arriving for unanswered pulls, within the limits of `DrainTimeouts`.
        Messages that arrive later go back to the server, if the consumer has acks.
        """
        acks, grace = self.target.acks, IN_FLIGHT_TIMEOUT
        if acks:
            grace = grace_after(self._session.round_trip)
        try:
            with contextlib.suppress(Error):
                self._await_answers(is_open)
            if self.mailbox.closed:
                return
            self._session.stop_delivery(self.mailbox.sid)
            try:
                # When the PONG arrives, everything that the server sent before it has
                # arrived.
                self._session.ping(monotonic() + grace)
            except errors.TimeoutError:
                if acks:
                    self._return_late_messages()
            except Error:
                pass  # the connection is lost, and with it what was on its way
        except BaseException:  # Ctrl-C: readers must not wait for ever
            self.close()
            raise
        self._end()

    def _return_late_messages(self) -> None:
        """Give back messages that arrive from now on, for some seconds."""
        interest = self._session.interests.get(self.mailbox.sid)
        if interest is None:
            return
        self._is_left = True
        session, sid = self._session, interest.sid
        late = JetStreamMailbox(session.write_buffer, sid)
        late.pin = self.target.pin

        def give_back() -> None:
            late.on_first = give_back
            nak_unread(late, acks=True)

        def end() -> None:
            session.remove_subscription(sid)
            late.on_first = None  # break the reference cycle

        late.on_first = give_back
        interest.sink, interest.on_lost, interest.on_connected = late, None, None
        interest.on_permission_error = None
        session.io_loop.subscribe(sid, late)
        session.stop_delivery(sid)
        session.call_later(LATE_SECONDS, end)

    def _await_answers(self, is_open: Callable[[], bool]) -> None:
        """Block until the server has nothing to send for the pulls that are open.

        If the subscription ends first, the server (or one on the route to this client)
        drops messages that it has already assigned to a pull. A consumer with acks
        redelivers them to the next pull if it notices, while one without acks never does.
        """
        mailbox, target = self.mailbox, self.target
        timeouts = ACKED_DRAIN if target.acks else ACK_NONE_DRAIN
        deadline = monotonic() + timeouts.limit
        pause = INITIAL_BACKOFF
        while (
            not mailbox.closed
            and is_open()
            and self._session.state is ConnectionState.CONNECTED
            # Without a pinned client, the server might pin the probe.
            and (target.pin is None or target.pin.id)
        ):
            before = mailbox.delivered
            probe = self._with_priority(PROBE) if target.priority.group else PROBE
            answer = request_until(
                *(self._session, target.subject, encode_request(probe)),
                *(deadline - monotonic(), deadline, None),
            )
            if not has_more_pending(answer.status or 0, answer.status_text):
                silence = monotonic() - mailbox.last_arrival
                if mailbox.delivered == before and (
                    not before or silence >= timeouts.silence
                ):
                    return
            self._session.sleep(min(pause, max(0.0, deadline - monotonic())))
            pause = min(2 * pause, MAX_BACKOFF)

    def nak_unread(self) -> None:
        """Give unread messages back to the server, or keep them for `take_unread`."""
        mailbox = self.mailbox
        mailbox.on_credit = None
        self._unread += nak_unread(mailbox, acks=self.target.acks)

    def take_unread(self) -> list[JetStreamMsg]:
        """Return the messages that could not be given back, and forget them."""
        return take_all(self._unread) if self._unread else []

    def close_nowait(self) -> None:
        """Close without waiting, and give everything back, because no reader is left.

        For finalisers, which run on any thread and interrupt any code.
        """
        mailbox = self.mailbox
        if mailbox.closed:
            # Break the reference cycle here: the garbage collector may find it only
            # much later.
            mailbox.on_status = mailbox.on_credit = None
            if not len(mailbox):
                return
        self._session.call_soon(self._begin_close)

    def _begin_close(self) -> None:
        if not self.mailbox.closed:
            self._session.stop_delivery(self.mailbox.sid)
            self._close_timer = self._session.call_later(
                IN_FLIGHT_TIMEOUT, self._finish_close
            )
        self.nak_unread()

    def _finish_close(self) -> None:
        self._close_timer = None
        self._end()
        self.nak_unread()

    def _end(self) -> None:
        self.mailbox.close()
        self.mailbox.on_status = self.mailbox.on_credit = None
        if not self._is_left:
            self._detach()

    def _detach(self) -> None:
        self._session.remove_subscription(self.mailbox.sid)

    def __repr__(self) -> str:
        state = "closed" if self.mailbox.closed else "open"
        return f"<{type(self).__name__} of {self.target.consumer} {state}, {len(self.mailbox)} messages>"


class PooledInbox(PullInbox):
    """The inbox of a single pull, which takes an idle subscription of the session.

    It returns the subscription, for the next pull, once its own pull has been answered in
    full and nothing more can arrive. If the pull is left earlier, its subscription ends
    instead. Then the server cannot send the remaining messages, so none is swallowed.
    """

    def __init__(
        self, target: PullTarget, *, on_status: Callable[[Msg], object]
    ) -> None:
        super().__init__(target, on_status=on_status)
        self.mailbox.lent = True
        self.answered = False
        """True once the server has reported the end of the pull."""
        self._lease: list[
            SubscriptionEntry
        ] = []  # the thread that pops it ends it, once

    def open(
        self,
        on_lost: Callable[[ConnectionLostError], object] | None = None,
        on_permission_error: Callable[[PermissionsError], object] | None = None,
    ) -> None:
        """Take an idle subscription. By default, its end closes this inbox."""
        on_lost = on_lost or self.close
        on_permission_error = on_permission_error or self._on_permission_error
        mailbox = self.mailbox
        try:
            self._lease.append(
                self._session.acquire_inbox(mailbox, on_lost, on_permission_error)
            )
        except BaseException:  # Ctrl-C: nothing else refers to the subscription
            self._session.unsubscribe(mailbox.sid)
            raise

    def pull(self, request: PullRequest) -> None:
        # One subject for each pull, so that a late status of another pull does not
        # arrive here.
        session = self._session
        self.reply = f"{session.inbox}{self.mailbox.sid}.{session.next_sid()}"
        super().pull(request)

    def is_reply(self, msg: Msg) -> bool:
        """Return whether a status belongs to the last pull."""
        return msg.subject == self.reply

    def close_gracefully(self) -> None:
        """End the pull once everything that the server sends for it has arrived."""
        if not self.mailbox.sid:  # it was never sent
            self.mailbox.close()
            return
        self.drain(lambda: not self.is_complete)
        if self.mailbox.closed:
            self._unsubscribe()

    def abandon(self, error: Exception | None = None) -> None:
        """Close without the server's answer. Does not block.

        Messages that are still on their way are given back when they arrive.
        """
        if self.target.acks and not self.is_complete:
            self._return_late_messages()
        self.close(error)

    def _return_late_messages(self) -> None:
        try:
            self._lease.pop()
        except IndexError:
            return  # the I/O thread was faster
        super()._return_late_messages()

    def close_nowait(self) -> None:
        if self.answered or self.mailbox.full:
            self._unsubscribe()
        super().close_nowait()

    def _begin_close(self) -> None:
        super()._begin_close()
        if self.is_complete:  # completed since it was left
            self._unsubscribe()

    @property
    def is_complete(self) -> bool:
        """True if nothing more can arrive for the pull."""
        return self.answered or self.mailbox.full

    def _unsubscribe(self) -> None:
        """Return the subscription to the session, or end it with the pull, only once."""
        try:
            interest = self._lease.pop()
        except IndexError:
            return
        complete = self.answered or self.mailbox.full
        if complete and not interest.silenced:
            self._session.release_inbox(interest)
        else:
            self._session.unsubscribe(interest.sid, deferred=True)

    def _detach(self) -> None:
        try:
            interest = self._lease.pop()
        except IndexError:
            return
        self._session.remove_subscription(interest.sid)


class ReusedInbox(PooledInbox):
    """An inbox for identical pulls of one message, one after the other.

    Between two pulls the connection refers to the subscription, but not to this object.
    So an owner that is dropped can keep it and still be collected.
    """

    def __init__(
        self,
        target: PullTarget,
        request: PullRequest,
        *,
        on_status: Callable[[Msg], object],
    ) -> None:
        super().__init__(target, on_status=on_status)
        self._request = request
        self._question: PreparedRequest | None = None
        self._reply_prefix = ""

    def _prepare(self) -> PreparedRequest:
        session = self._session
        mailbox, subject = self.mailbox, self.target.subject
        self.open(mailbox.close, partial(_close_if_denied, mailbox, subject))
        self._reply_prefix = f"{session.inbox}{mailbox.sid}.{session.next_sid()}_"
        payload = encode_request(self._request)
        self._question = PreparedRequest(mailbox, subject, self._reply_prefix, payload)
        return self._question

    def pull_one(
        self, on_status: Callable[[Msg], object], deadline: float
    ) -> JetStreamMsg | None:
        """Pull, and wait for the message. Returns None at the end, or at `deadline`.

        Raises `ConnectionLostError` while disconnected, without sending anything.
        """
        question = self._question or self._prepare()
        self.reply = ""
        msg: JetStreamMsg | None = question.send(on_status, deadline)
        return msg

    def is_reply(self, msg: Msg) -> bool:
        if self.reply or self._question is None:
            return super().is_reply(msg)
        return msg.subject == f"{self._reply_prefix}{self._question.number}"


def _close_if_denied(
    mailbox: JetStreamMailbox, subject: str, error: PermissionsError
) -> None:
    """Close the mailbox if the server has refused a pull from `subject`."""
    if error.subject == subject:
        mailbox.close(error)
