"""Core subscriptions, read by iteration, `next`, or a callback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._fast import (
    Mailbox,
    MessageIterator,
    Msg,
    check_subscribe_subject,
    ends_by,
)
from ..errors import BlockingCallError, Error, SubscriptionClosedError
from ..validation import check_count, check_optional_callable, check_workers
from .base_subscription import BaseSubscription
from .session import Session, SubscriptionEntry

if TYPE_CHECKING:
    from collections.abc import Callable

    from .session import HasSession


def subscribe(
    owner: HasSession,
    subject: str,
    *,
    queue: str | None = None,
    callback: Callable[[Msg], object] | None = None,
    max_pending_messages: int | None = None,
    max_pending_bytes: int | None = None,
    workers: int | None = None,
) -> Subscription:
    """Check the arguments and subscribe, as `Connection.subscribe` says."""
    check_subscribe_subject(subject, queue)
    check_optional_callable(callback, "callback")
    check_workers(workers, callback)
    for name, limit in (
        ("max_pending_messages", max_pending_messages),
        ("max_pending_bytes", max_pending_bytes),
    ):
        if limit is not None:
            check_count(limit, name, 1)
    session = owner._session
    # Check for a fork before taking any lock: a lock that another thread held at the fork
    # stays locked.
    session.write_buffer.check_process()
    session.check_not_draining()
    options = session.options
    subscription = Subscription(
        session,
        owner,
        subject,
        queue,
        callback,
        max_pending_messages or options.max_pending_messages,
        max_pending_bytes or options.max_pending_bytes,
        workers,
    )
    try:
        session.subscribe(subscription.interest)
        session.register_drainable(subscription)
    except BaseException:  # Ctrl-C, or a drain that has just begun
        subscription.unsubscribe()
        raise
    return subscription


class Subscription(BaseSubscription[Msg]):
    """The messages of a subject. `Connection.subscribe` returns it.

    Iterate over it, or call `next`, from one thread at a time. If you gave a callback,
    do neither: the callback gets the messages, on a thread of jsync. You may call
    `unsubscribe` and `drain` from any thread, and from the callback.

    Example:
        ```python
        with nc.subscribe("events.>") as sub:
            nc.publish("events.started", b"now")
            msg = sub.next(timeout=5)
            print(msg.subject, msg.data)
        ```
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
        workers: int | None,
    ) -> None:
        sid = session.next_sid()
        mailbox = Mailbox(
            session.write_buffer,
            sid,
            max_messages=max_pending_messages,
            max_bytes=max_pending_bytes,
            readers=workers or 1,
        )
        super().__init__(session, mailbox, callback, workers)
        self._owner = owner  # keeps the connection alive
        self._subject = subject
        self._queue = queue
        if callback is not None:
            # Threads of `workers` start at the first message: 10,000 idle ones take 2.4 s
            # and 150 MB.
            self._mailbox.on_first = self._start
        self.interest = SubscriptionEntry(sid, subject, queue, self._mailbox)

    @property
    def subject(self) -> str:
        """The subject of the subscription, with its wildcards."""
        return self._subject

    @property
    def queue(self) -> str | None:
        """The name of the queue group. Each message reaches one member."""
        return self._queue

    def __iter__(self) -> MessageIterator:
        """Return an iterator of the messages, which ends after `unsubscribe` or `drain`.

        It raises `ConnectionClosedError` when the connection is closed permanently, and
        `PermissionsError` if the account may not subscribe to the subject.
        """
        self._check_no_callback()
        return MessageIterator(self._mailbox, self)

    def unsubscribe(self, after: int | None = None) -> None:
        """End the subscription. Does not block, and a second call does nothing.

        Args:
            after: End after this number of messages in all, and keep the buffered ones.
                Default: end now, and drop the messages that you have not read.
        """
        if after is None:
            self._mailbox.close(discard=True)
            self._session.unsubscribe(self._mailbox.sid)
            if self._reader is None:
                self._finished.set()
            return
        check_count(after, "after", 1)
        if self._mailbox.end_after(after):
            self._session.unsubscribe(self._mailbox.sid)
        else:
            self._session.unsubscribe(self._mailbox.sid, after=after)

    def drain(self, timeout: float = 30.0) -> None:
        """End the subscription without losing a message that the server has sent.

        Blocks until the server confirms the end, and with a callback until its last
        call has returned. The callback itself may call `drain`, which then does not
        wait for it. An iterator or `next` gets the remaining messages, and then the
        end.

        Args:
            timeout: Seconds to wait. Default: 30.

        Raises:
            DrainTimeoutError: The drain did not end in time.
        """
        self._drain(timeout)

    def _stop_delivery(self) -> None:
        """Tell the server to send no more. This is the first step of a drain."""
        self._session.stop_delivery(self._mailbox.sid)

    def _end_reader(self) -> None:
        """End the reader after the buffered messages, once all messages have arrived."""
        self._mailbox.close()
        self._session.unsubscribe(self._mailbox.sid)

    def _wait_finished(self, deadline: float, timeout: float) -> None:
        """Block until the callback, if there is one, has handled all messages."""
        if self._callback is None or self._session.is_drained_by(self._threads):
            return
        if self._mailbox.claim_first() is not None:
            self._finished.set()  # no message came, so nothing was started
            return
        self._wait_for_callback(deadline, timeout)

    def _start(self) -> None:
        assert self._callback is not None
        self._start_reader(
            "sub",
            label=repr(self._subject),
            callback=self._callback,
            failed=self._failed,
            ended=self._finished.set,
            report=self._session.callbacks.report,
        )

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, Error) and not isinstance(
            error, BlockingCallError | SubscriptionClosedError
        ):
            self._session.callbacks.report(error)

    @ends_by(unsubscribe)
    def __exit__(self, *_: object) -> None:
        self.unsubscribe()

    def __repr__(self) -> str:
        state = "active" if self.is_active else "ended"
        queue = f" queue={self._queue!r}" if self._queue else ""
        return (
            f"<Subscription {self._subject!r}{queue} {state}, {self.pending} pending, "
            f"{self.dropped} dropped>"
        )
