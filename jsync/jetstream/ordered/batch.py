"""One fetch of an ordered consumer, as `OrderedConsumer.fetch` returns it (ADR-37)."""

from __future__ import annotations

from enum import Enum
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from ... import errors
from ..._fast import JetStreamMsg, MessageIterator, safe_finalizer
from ...core.resources import CloseOnExit, NotCopyable
from ...core.state import StateMachine
from ...core.sync import ForkSafeRLock
from ...errors import (
    BlockingCallError,
    ConcurrentUseError,
    ConnectionClosedError,
    Error,
    ForkedProcessError,
    JetStreamError,
    JetStreamNotEnabledError,
    PermissionsError,
    PullError,
)
from ..pulls.engine import MIN_GRACE, grace_after
from ..pulls.pull import MIN_PULL_SECONDS, Pull
from ..replies import ONE_REPLY
from ..stream_end.driver import stream_pending
from ..stream_end.engine import pending_steps
from .engine import NextAction

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ..pulls.engine import PullRequest
    from ..pulls.inbox import PooledInbox
    from .factory import ConsumerFactory

POLL_SECONDS = 0.05
"""Seconds to wait before the next pull from a server that is behind the leader."""


class OrderedFetchPull(Pull):
    """A pull that takes messages only in their order, and ends where the order stops."""

    retries = 0  # create another consumer instead

    def __init__(
        self, factory: ConsumerFactory, request: PullRequest, timeout: float
    ) -> None:
        self.order = factory.sequence_checker()
        self._before = self.order.consumer_sequence
        self.passed_over = self.passed_over_bytes = 0
        super().__init__(factory.pull_target(), request, timeout)

    @property
    def grace(self) -> float:
        # The next read begins with late messages.
        return grace_after(self.target.api.session.round_trip)

    def _create_inbox(self) -> PooledInbox:
        inbox = super()._create_inbox()
        inbox.mailbox.order = self.order
        inbox.mailbox.on_order = self._on_order
        return inbox

    def _on_wait_timeout(self) -> None:
        super()._on_wait_timeout()
        late = isinstance(self.error, errors.TimeoutError)
        if late and self.order.consumer_sequence == self._before + 1:
            self.error = errors.TimeoutError(
                f"{self.error} and has sent one message: if this is always so, {ONE_REPLY}"
            )

    def _on_order(self) -> None:
        messages, size = self.order.take_passed_over()
        self.passed_over += messages
        self.passed_over_bytes += size
        request, mailbox = self._request, self.inbox.mailbox
        # Filtered messages count toward the requested number.
        if self.order.stopped is not None:
            self._end()
        elif request.max_bytes:
            mailbox.end_after_bytes(max(0, request.max_bytes - self.passed_over_bytes))
        else:
            mailbox.end_after(request.batch - self.passed_over)


class FetchState(Enum):
    """The progress of a fetch."""

    OPEN = "it is read"
    ABANDONED = "no reader is left, and the cursor is still to be moved"
    ENDED = "the next read may begin"


FETCH_TRANSITIONS: Final = {
    FetchState.OPEN: {FetchState.ABANDONED, FetchState.ENDED},
    FetchState.ABANDONED: {FetchState.ENDED},
    FetchState.ENDED: set[FetchState](),
}
"""The next states of each state. Only one of several threads that close a fetch ends it."""


class OrderedFetch:
    """The pulls of one fetch, with another pull after each lost consumer.

    One thread reads, but any thread may close it. The next reader closes it, too, and so
    waits until its position is saved.
    """

    def __init__(
        self,
        factory: ConsumerFactory,
        request: PullRequest,
        timeout: float,
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        self._factory = factory
        self._request = request
        self._deadline = monotonic() + timeout
        self._on_error = on_error
        self._pull: OrderedFetchPull | None = None
        self._messages: MessageIterator | None = None
        self._start = factory.cursor.position
        self._latest: JetStreamMsg | None = None  # the message that is returned next
        self._returned: JetStreamMsg | None = None  # the message that was returned last
        self._taken = self._taken_bytes = 0
        self._end: int | None = None  # the stream's end, if the pull does not wait
        # Held to change the state, and at the end until its position is saved.
        # Re-entrant, since a finalizer or a signal handler may close it in the middle.
        self._lock = ForkSafeRLock()
        self._state = StateMachine(FetchState.OPEN, FETCH_TRANSITIONS, self._lock)
        self.error: Exception | None = None

    def begin(self) -> None:
        """Send the pull. Blocks only if a consumer must be created first."""
        try:
            self._send(self._request)
        except BaseException:
            self._state.try_to(FetchState.ENDED)
            raise

    def _send(self, request: PullRequest) -> None:
        factory = self._factory
        if factory.is_expired:
            factory.schedule_delete()
        factory.delete_if_stalled(self._deadline)
        if factory.cursor.name is None:
            # A short while is left for the server to report why there is none.
            deadline = max(self._deadline, monotonic() + MIN_GRACE)
            factory.create_with_retry(deadline, self._report)
            if self._is_over():  # another thread has closed it
                factory.schedule_delete()
                return
        left = self._deadline - monotonic()
        request = request.with_expiry(max(MIN_PULL_SECONDS, left))
        factory.used_at = monotonic()
        self._pull = pull = OrderedFetchPull(
            self._factory, request, max(MIN_PULL_SECONDS, left)
        )
        pull.begin()
        self._messages = MessageIterator(
            pull.inbox.mailbox, pull, pull.deadline, pull.heartbeat_timeout
        )

    def take(self) -> JetStreamMsg | None:
        """Return the next message, or None at the end. Raises errors that end the fetch."""
        while not self._is_over():
            pull, messages = self._pull, self._messages
            if pull is None or messages is None:
                return None
            try:
                msg = cast("JetStreamMsg", next(messages))
            except StopIteration:
                pass
            except (BlockingCallError, ConcurrentUseError, ForkedProcessError):
                raise  # the call is at fault, whether or not the pull has ended
            except Error:
                if not pull.inbox.mailbox.closed:
                    raise
            else:
                self._latest = msg
                self._taken += 1
                self._taken_bytes += msg.size
                return msg
            if self._is_over():  # another thread has closed it
                return None
            try:
                self._continue(pull)
            except Exception as error:
                self._state.try_to(FetchState.ENDED)
                self.error = error
                raise
        return None

    def _is_over(self) -> bool:
        return self._state.current is FetchState.ENDED

    def _continue(self, pull: OrderedFetchPull) -> None:
        """End with a pull that has ended and was read, or send another one."""
        self._record_use(pull)
        pull.close()
        cursor, order = self._factory.cursor, pull.order
        error = pull.inbox.mailbox.failure or pull.error
        lost = error is not None
        with self._lock:
            if self._is_over():  # another thread closed it and saved the position
                return
            last = cursor.last()
            cursor.advance(order.stream_sequence, order.consumer_sequence)
            if order.stopped is not None:
                lost = True
                if cursor.on_stopped(order.stopped, last) is NextAction.RESET:
                    error = JetStreamError(
                        f"a message is missing after stream sequence {cursor.position}"
                    )
        if isinstance(error, PullError) and error.status and error is not pull.error:
            # The server refused the pull, and not just for lack of room for another one.
            if not self._taken:
                raise error
            error, lost = None, False
        rest = self._request.remaining(self._taken, self._taken_bytes)
        self._factory.last_pull_empty = rest is not None
        if isinstance(error, ConnectionClosedError | PermissionsError):
            raise error
        if lost:
            self._factory.schedule_delete()
        lags = False
        if rest is not None and self._request.no_wait and not lost and error is None:
            lags = self._is_behind()
        if rest is None or not (lost or pull.passed_over or lags):
            self._state.try_to(FetchState.ENDED)
        elif self._deadline - monotonic() < MIN_PULL_SECONDS or isinstance(
            error, errors.TimeoutError
        ):
            if error is None and self._request.no_wait:
                stream = self._factory.stream
                error = errors.TimeoutError(
                    f"not all messages of stream {stream} came in time"
                )
            self.error = error
            self._state.try_to(FetchState.ENDED)
        else:
            if error is not None:
                session = self._factory.api.session
                if session.closing:  # this deletes the consumer
                    raise session.closed_error()
                self._report(self._factory.reset_error(error))
            self._send(rest)

    def _is_behind(self) -> bool:
        """Return whether the consumer's server lacks messages that the leader has. Blocks.

        If so, either waits a moment for that server or gives the consumer up.
        """
        factory = self._factory
        if factory.end is not None and not factory.end.is_replicated:
            return False  # the only server is the leader
        cursor = factory.cursor
        try:
            pending = stream_pending(
                factory.api,
                lambda: pending_steps(
                    factory.stream, cursor.filters, cursor.position, self._end
                ),
                max(self._deadline, monotonic() + MIN_GRACE),
            )
        except (PermissionsError, JetStreamNotEnabledError):
            return False  # this client may not query the leader
        if self._end is None:
            self._end = pending.end.sequence
        match cursor.on_pending(pending, cursor.position, monotonic()):
            case NextAction.END:
                return False
            case NextAction.RESET:
                factory.schedule_delete()
            case _:
                factory.api.session.sleep(POLL_SECONDS)
        return True

    def _record_use(self, pull: OrderedFetchPull) -> None:
        """Note when the server last used the consumer.

        A slow reader may end the pull long after its last message has arrived.
        """
        self._factory.record_arrival(pull.inbox.mailbox.last_arrival)

    def _report(self, error: Exception) -> None:
        self._factory.api.session.callbacks.report_to(self._on_error, error)

    # The end --------------------------------------------------------------------------

    def close(self) -> None:
        """End the fetch. The next read begins with the unread messages."""
        with self._lock:
            if not self._state.try_to(FetchState.ENDED):
                return
            try:
                self._close()
            except BaseException:
                # Ctrl-C: the messages taken from the mailbox are lost, so read them again.
                self._rewind_to(self._latest)
                raise

    def _close(self) -> None:
        if self._pull is None:
            return
        self._record_use(self._pull)
        mailbox = self._pull.inbox.mailbox
        complete = mailbox.closed and mailbox.failure is None
        self._pull.inbox.close()
        rest = mailbox.take_rest()
        cursor, order = self._factory.cursor, self._pull.order
        cursor.advance(order.stream_sequence, order.consumer_sequence)
        if rest:
            first = cast("JetStreamMsg", rest[0]).metadata.stream_sequence
            cursor.rewind(first - 1)
        if rest or not complete or order.stopped is not None:
            self._factory.schedule_delete()

    def mark_delivered(self) -> None:
        """Note that the user has the message that was returned last."""
        self._returned = self._latest

    def on_interrupt(self) -> None:
        """Close after Ctrl-C, and read a message again that was taken since `mark_delivered`."""
        self.close()
        self._rewind_to(self._returned)

    def _rewind_to(self, last: JetStreamMsg | None) -> None:
        """Let the next read begin after `last`, the last message that the user has."""
        start = self._start if last is None else last.metadata.stream_sequence
        self._factory.cursor.seek(start)
        self._factory.schedule_delete()

    def abandon(self) -> None:
        """Close without waiting. For finalisers."""
        if not self._state.try_to(FetchState.ABANDONED):
            return
        pull = self._pull
        if pull is not None and pull.inbox.is_complete and not len(pull.inbox.mailbox):
            self.close()  # every message was read, so this does not wait
        else:
            self._factory.schedule_delete()
            self._factory.api.session.call_soon(self.close)

    def release(self) -> bool:
        """Return whether the fetch is over. Then the next read continues at the cursor."""
        with self._lock:
            abandoned = self._state.current is FetchState.ABANDONED
            if self._pull is None:
                if abandoned:
                    self._state.try_to(FetchState.ENDED)
                return self._is_over()
            mailbox = self._pull.inbox.mailbox
            if abandoned or (mailbox.closed and not len(mailbox)):
                self.close()
            return self._is_over()

    @property
    def pending(self) -> int:
        return 0 if self._pull is None else len(self._pull.inbox.mailbox)

    def __repr__(self) -> str:
        return f"<OrderedFetch {self._state.current.name.lower()}>"


class OrderedBatch(CloseOnExit, NotCopyable):
    """The messages of one fetch, in exact order. Iterate over it once, from one thread.

    Read the batch to its end, or leave it through `with` or `close`. The next read of
    the consumer starts with the messages that you did not read.

    Example:
        ```python
        with stream.ordered_consumer() as reader, reader.fetch(2) as batch:
            for msg in batch:
                print(msg.data)
        ```
    """

    def __init__(self, fetch: OrderedFetch) -> None:
        # A separate object: the consumer refers to it, and must not keep this one
        # alive.
        self._fetch = fetch

    @property
    def error(self) -> Exception | None:
        """Why the batch ended before it was full. None if messages ran out."""
        return self._fetch.error

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> JetStreamMsg:
        """Return the next message. Raises the errors of `Batch` if no new consumer helps.

        Ctrl-C ends the batch. The next read continues after the last message returned.
        """
        self._fetch.mark_delivered()
        try:
            msg = self._fetch.take()
            if msg is None:
                raise StopIteration
            return msg
        except Exception:
            raise
        except BaseException:
            self._fetch.on_interrupt()
            raise

    def close(self) -> None:
        """Leave the batch. Does not block, and a second call does nothing."""
        self._fetch.close()

    @safe_finalizer
    def __del__(self) -> None:
        fetch = getattr(self, "_fetch", None)
        if fetch is not None:  # None if Ctrl-C interrupted __init__
            fetch.abandon()

    def __repr__(self) -> str:
        return f"<OrderedBatch {self._fetch!r}, {self._fetch.pending} pending>"
