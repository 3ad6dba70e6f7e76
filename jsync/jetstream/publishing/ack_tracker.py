"""The acks, failures and retries of a publisher's messages.

The session refers to `AckTracker`, never to the `Publisher` or the `Connection`. A
publisher that you drop can therefore be collected while its messages still get their acks.
"""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from ..._fast import AckWindow
from ...core.session import NO_THREAD_SECONDS, ConnectionState, SubscriptionEntry
from ...errors import (
    Error,
    FailedMessage,
    PublisherClosedError,
    PublisherError,
    WriteTimeoutError,
)
from ...models import PubAck
from .backoff import backoff_delay
from .publish import no_stream, read_ack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from ..._fast import PubAckFuture
    from ...core.session import Session
    from ...core.timers import Timer

    OnError: TypeAlias = Callable[[PubAckFuture, Exception], object]

RESEND_AFTER = 2.0
"""Seconds without an answer after which a publisher with `resend` sends a message again."""
ACK_CHECK_INTERVAL = 1.0
"""Seconds between two checks whether a dropped publisher has all of its acks."""


class AckTracker:
    """The window of a publisher, with the timers, retries and callbacks that it needs."""

    def __init__(
        self,
        session: Session,
        *,
        window: int,
        window_bytes: int,
        ack_timeout: float,
        stall_timeout: float,
        resend: bool,
        retry_attempts: int,
        retry_wait: float,
        on_error: OnError | None,
    ) -> None:
        self._session = session
        self._on_error = on_error
        self._ack_timeout = ack_timeout
        self._timer: Timer | None = None
        self._retry_timer: Timer | None = None
        self._resend_timer: Timer | None = None
        self._detached = False
        self._sid = session.next_sid()
        prefix = f"{session.inbox}{self._sid}."
        self.window = AckWindow(
            session.write_buffer,
            prefix,
            window,
            window_bytes,
            ack_timeout,
            stall_timeout,
            resend=resend,
            pub_ack=PubAck,
            read_ack=read_ack,
            no_stream=no_stream,
            backoff=backoff_delay,
            retry_attempts=retry_attempts,
            retry_wait=retry_wait,
        )
        self.window.watched = on_error is not None
        self.window.on_done = self._on_done
        self.window.on_timer = self._start_timer
        self.window.on_refused = self._schedule_retry
        session.write_buffer.check_process()
        session.subscribe(
            SubscriptionEntry(
                self._sid,
                f"{prefix}*",
                None,
                self.window,
                on_lost=self.window.lost,
                on_connected=self._on_connected,
                on_permission_error=lambda error: self.window.deny(
                    error.subject, error
                ),
                on_closed=self._on_closed,
            ),
            piggyback=True,
        )

    def __repr__(self) -> str:
        return f"<AckTracker {self.window!r}>"

    def close(self) -> None:
        self._session.write_buffer.check_process()
        self._session.unsubscribe(self._sid, deferred=True)
        self.window.close(
            PublisherClosedError(
                "the publisher was closed before the ack came: the message may have "
                "been stored"
            ),
            PublisherClosedError("the publisher is closed: the message was not sent"),
        )
        for timer in (self._timer, self._retry_timer, self._resend_timer):
            if timer is not None:
                timer.cancel()

    def failures(self) -> PublisherError | None:
        futures, more = self.window.take_failures()
        if not futures and not more:
            return None
        failures = [
            FailedMessage(future.subject, future.data, future.headers, error)
            for future in futures
            if (error := future.exception()) is not None
        ]
        count = len(failures) + more
        text = "1 message was" if count == 1 else f"{count} messages were"
        text += " not acknowledged"
        if failures:
            text += f"{'; the first' if count > 1 else ''}: {failures[0].error}"
        error = PublisherError(text, failures=failures, count=count)
        error.__cause__ = failures[0].error if failures else None
        return error

    def raise_failures(self) -> None:
        error = self.failures()
        if error is not None:
            raise error

    def detach(self) -> None:
        """End automatically after the last ack, because the publisher was dropped.

        A finaliser calls this, so it neither blocks nor raises.
        """
        self._detached = True  # first: from here on `_on_closed` reports
        if self._session.state is ConnectionState.CLOSED:
            self._report()
        else:
            self._session.call_soon(self._wait_for_acks)

    def _wait_for_acks(self) -> None:
        if self.window.pending:
            self._session.call_later(ACK_CHECK_INTERVAL, self._wait_for_acks)
            return
        self.close()
        self._report()

    def _on_closed(self, error: Exception) -> None:
        self.window.close(error)
        if self._detached:
            self._report()

    def _report(self) -> None:
        """Report failures to the connection, since the publisher is gone."""
        error = self.failures()
        if error is not None:
            self._session.callbacks.report(error)

    # Calls of the window --------------------------------------------------------------

    def _on_done(self) -> None:
        if not self._session.callbacks.submit_unbounded(self._run_callbacks):
            self._run_callbacks()

    def _run_callbacks(self) -> None:
        """Run the callbacks of finished messages.

        Runs on the connection's callback thread, or on the caller's if that one has ended.
        """
        interrupt: KeyboardInterrupt | None = None
        for what, call in self._calls():
            try:
                call()
            except KeyboardInterrupt as error:  # still run the other callbacks
                interrupt = error
            except BaseException as error:  # noqa: BLE001 (SystemExit would end the thread)
                self._session.callbacks.report_exception(what, error)
        if interrupt is not None:
            raise interrupt

    def _calls(self) -> Iterator[tuple[str, Callable[[], object]]]:
        for future, callbacks, error in self.window.take_done():
            if error is not None and self._on_error is not None:
                yield "on_error", partial(self._on_error, future, error)
            for callback in callbacks:
                yield "a callback of a publish", partial(callback, future)

    def _start_timer(self) -> None:
        self._call_later(self._ack_timeout)

    def _call_later(self, seconds: float) -> None:
        if self.window.resend:
            seconds = min(seconds, RESEND_AFTER)
        # An outage may last longer than the ack timeout.
        self._timer = self._session.call_later(seconds, self._expire, offline=True)

    def _expire(self) -> None:
        due = self.window.expire()
        if due is not None:
            self._call_later(due - monotonic())
            if self.window.resend and self.window.resend_due(RESEND_AFTER):
                self._start_resending()

    def _on_connected(self) -> None:
        if self.window.connected():
            self._start_resending()

    def _schedule_retry(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        seconds = self.window.retry_in()
        if seconds is not None:
            self._retry_timer = self._session.call_later(seconds, self._retry)

    def _retry(self) -> None:
        if self.window.retry():
            self._start_resending()
        self._schedule_retry()

    def _start_resending(self) -> None:
        # Use a thread: the write buffer may fill up, and the I/O thread must not block.
        name = f"{self._session.name}-publisher-{self._sid}"
        if self._resend_timer is not None:
            self._resend_timer.cancel()
        try:
            self._session.thread_factory.start(name, self._resend)
        except RuntimeError:  # no thread could be started now
            self._resend_timer = self._session.call_later(
                NO_THREAD_SECONDS, self._start_resending
            )

    def _resend(self) -> None:
        while True:
            try:
                return self.window.resend_now()
            except WriteTimeoutError:  # retried until `ack_timeout`
                continue
            except Error:  # closed: every waiting future has its error
                return None
