"""Subscriptions: iterate, `next`, or a callback on a thread of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .._fast import Mailbox, Messages, Msg, check_subscribe_subject
from ..checks import callback as check_callback, count
from ..errors import (
    BlockingCallError,
    Error,
    SubscriptionClosedError,
)
from .backlog import Backlog
from .callbacks import wrap
from .session import Interest, Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .session import Owner


def subscribe(
    owner: Owner,
    subject: str,
    *,
    queue: str | None = None,
    callback: Callable[[Msg], object] | None = None,
    max_pending_messages: int | None = None,
    max_pending_bytes: int | None = None,
) -> Subscription:
    """Check the arguments and subscribe, as `Connection.subscribe` says."""
    check_subscribe_subject(subject, queue)
    check_callback(callback, "callback")
    for name, limit in (
        ("max_pending_messages", max_pending_messages),
        ("max_pending_bytes", max_pending_bytes),
    ):
        if limit is not None:
            count(limit, name, 1)
    session = owner.session
    # Before any lock: one that another thread held at the fork stays locked.
    session.outbox.check_process()
    options = session.options
    subscription = Subscription(
        session,
        owner,
        subject,
        queue,
        callback,
        max_pending_messages or options.max_pending_messages,
        max_pending_bytes or options.max_pending_bytes,
    )
    session.adopt(subscription)
    return subscription


class Subscription(Backlog[Msg]):
    """Messages of one subject, as `Connection.subscribe` gives it.

    Iterate over it, or call `next`; with a callback neither, since the callback's own
    thread does. It is for one reading thread at a time, while `unsubscribe` and `drain`
    may be called from any, the callback included.
    """

    def __init__(
        self,
        session: Session,
        owner: object,
        subject: str,
        queue: str | None,
        callback: Callable[[Msg], object] | None,
        max_pending_messages: int,
        max_pending_bytes: int,
    ) -> None:
        sid = session.next_sid()
        mailbox = Mailbox(
            session.outbox,
            sid,
            max_messages=max_pending_messages,
            max_bytes=max_pending_bytes,
        )
        super().__init__(session, mailbox, callback)
        self._owner = owner  # keeps the connection from being collected
        self._subject = subject
        self._queue = queue
        if callback is not None:
            # 10,000 parked threads are 2.4 s and 150 MB: begun when there is work.
            self._mailbox.on_first = self._start
        session.subscribe(Interest(sid, subject, queue, self._mailbox))

    @property
    def subject(self) -> str:
        """What it was subscribed to, wildcards and all."""
        return self._subject

    @property
    def queue(self) -> str | None:
        """The queue group, of which each message reaches one member."""
        return self._queue

    def __iter__(self) -> Messages:
        """Messages, without end until it is unsubscribed, drained or fails.

        Raises `ConnectionClosedError` when the connection closes for good and
        `PermissionsError` when the account may not subscribe here.
        """
        self._check_no_callback()
        return Messages(self._mailbox, self)

    def unsubscribe(self, after: int | None = None) -> None:
        """End it, and drop what is not read; or end it after `after` messages in all.

        Does not block. A second call does nothing.
        """
        if after is None:
            self._mailbox.close(discard=True)
            self._session.unsubscribe(self._mailbox.sid)
            if self._thread is None:
                self._finished.open()
            return
        count(after, "after", 1)
        if self._mailbox.end_after(after):
            self._session.unsubscribe(self._mailbox.sid)
        else:
            self._session.unsubscribe(self._mailbox.sid, after=after)

    def drain(self, timeout: float = 30.0) -> None:
        """Receive what the server has sent, and end; nothing is dropped.

        Blocks until the server confirms, at most `timeout` seconds, and with a callback
        until its last call has returned, unless called from the callback itself. An
        iterator or `next` then gets what is left, and the end. Raises
        `DrainTimeoutError`.
        """
        self._drain(timeout)

    def silence(self) -> None:
        """The first step of a drain: have the server send no more."""
        self._session.silence(self._mailbox.sid)

    def finish(self) -> None:
        """The second, once all has arrived: the reader ends after the backlog."""
        self._mailbox.close()
        self._session.unsubscribe(self._mailbox.sid)

    def wait_finished(self, deadline: float, timeout: float) -> None:
        """Block until the callback has handled all there is; nothing without one."""
        if self._callback is None or threading.current_thread() is self._thread:
            return
        if self._mailbox.claim_first() is not None:
            return  # no message ever came, so no thread was started
        self._wait_handled(deadline, timeout)

    def _start(self) -> None:
        self._start_as("sub", self._run, self._session.callbacks.report)

    def _run(self) -> None:
        callback = self._callback
        assert callback is not None
        self._thread = threading.current_thread()
        try:
            self._mailbox.hand_over(callback, self._raised)
        except Error as error:
            if not isinstance(error, BlockingCallError | SubscriptionClosedError):
                self._session.callbacks.report(error)
        finally:
            self._finished.open()

    def _raised(self, _: Msg, error: BaseException) -> None:
        self._session.callbacks.report(
            wrap(f"the callback of {self._subject!r}", error)
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.unsubscribe()

    def __repr__(self) -> str:
        state = "active" if self.is_active else "ended"
        queue = f" queue={self._queue!r}" if self._queue else ""
        return (
            f"<Subscription {self._subject!r}{queue} {state}, {self.pending} pending, "
            f"{self.dropped} dropped>"
        )
