"""The buffered messages and the reader of a core or push subscription."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from .._fast import Msg, enter_self
from ..errors import ConfigError, DrainTimeoutError
from ..validation import check_seconds, format_seconds
from .callback_reader import CallbackReader
from .callbacks import as_callback_error
from .clock import deadline_after
from .drain import Drainable
from .resources import NotCopyable
from .sync import Latch

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection
    from typing import Any

    from .._fast import Mailbox
    from ..validation import Seconds
    from .session import Session

Message = TypeVar("Message", bound=Msg)


class BaseSubscription(Drainable, NotCopyable, Generic[Message]):
    """A mailbox with a reader: an iterator, `next`, or a callback.

    Subclasses define how it is drained and unsubscribed.
    """

    def __init__(
        self,
        session: Session,
        mailbox: Mailbox,
        callback: Callable[[Message], object] | None,
        workers: int | None,
    ) -> None:
        self._session = session
        self._mailbox = mailbox
        self._callback = callback
        self._workers = workers
        self._finished = Latch(session.write_buffer)
        self._reader: CallbackReader | None = None
        """The reader that calls the callback, once a message has come."""

    @property
    def pending(self) -> int:
        """Messages that have arrived and are not read yet."""
        return len(self._mailbox)

    @property
    def pending_bytes(self) -> int:
        """The bytes of these messages: subject, reply, headers and payload."""
        return self._mailbox.bytes

    @property
    def delivered(self) -> int:
        """Messages that have arrived so far, dropped ones included."""
        return self._mailbox.delivered

    @property
    def dropped(self) -> int:
        """Messages dropped because the backlog was at its limit."""
        return self._mailbox.dropped

    @property
    def is_active(self) -> bool:
        """True while messages may still arrive."""
        return not self._mailbox.closed

    def next(self, timeout: Seconds | None = 5.0) -> Message:
        """Block until the next message has come.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            The message.

        Raises:
            TimeoutError: No message came in time.
            SubscriptionClosedError: The subscription has ended, and no message is left.
            ConnectionClosedError: The connection is closed.
            PermissionsError: You may not subscribe to the subject.

        Example:
            ```python
            with nc.subscribe("news.*") as news:
                nc.publish("news.sport", b"1:0")
                print(news.next(timeout=5).data)
            ```
        """
        self._check_no_callback()
        return next_message(self._mailbox, timeout)  # type: ignore[return-value]

    def _check_no_callback(self) -> None:
        if self._callback is not None:
            raise ConfigError(
                "the callback reads this subscription: do not iterate over it too"
            )

    # The callback ---------------------------------------------------------------------

    def _start_reader(
        self,
        name: str,
        *,
        label: str,
        callback: Callable[[Any], object],
        failed: Callable[[BaseException], object],
        ended: Callable[[], object],
        report: Callable[[Exception], object],
    ) -> None:
        """Call `callback` with each message from now on, and `report` its exceptions."""
        what = f"the callback of {label}"
        self._reader = CallbackReader(
            *(self._session, self._mailbox, f"{name}-{self._mailbox.sid}"),
            self._workers,
            label=label,
            callback=callback,
            raised=lambda _, error: report(as_callback_error(what, error)),
            failed=failed,
            ended=ended,
        )
        self._reader.start_or_retry(report)

    @property
    def _threads(self) -> Collection[threading.Thread]:
        """The threads that may be in the callback now."""
        return () if self._reader is None else self._reader.threads

    # The end --------------------------------------------------------------------------

    def _drain(self, timeout: Seconds) -> None:
        self._session.write_buffer.check_process()
        timeout = check_seconds(timeout, "timeout")
        deadline = deadline_after(timeout)
        if self.is_active:
            self._stop_delivery()
            try:
                self._session.ping(deadline)
            except TimeoutError as error:
                raise DrainTimeoutError(
                    f"{self!r} was not drained within {format_seconds(timeout)}"
                ) from error
            finally:
                self._end_reader()
        self._wait_finished(deadline, timeout)

    def _wait_for_callback(self, deadline: float, timeout: float) -> None:
        if self._reader is not None:
            self._reader.end_idle()
        if not self._finished.wait(max(0.0, deadline - monotonic())):
            raise DrainTimeoutError(
                f"the callback of {self!r} had {self.pending} messages left after "
                f"{format_seconds(timeout)}"
            )

    __enter__ = enter_self


def next_message(mailbox: Mailbox, timeout: Seconds | None) -> Msg:
    """Block until the next message of `mailbox` has come, at most `timeout` seconds.

    Raises the errors of `Mailbox.next`, and refuses an invalid timeout even if a message
    is there.

    After Ctrl-C the message is still the next one, provided that the caller returns it
    without another call: Ctrl-C may come at any call, even at a `cast`.
    """
    # In the common case, this test saves the call of `seconds`.
    if timeout is not None and (type(timeout) is not float or timeout != timeout):
        timeout = check_seconds(timeout, "timeout")
    taken: list[Msg] = []
    try:
        mailbox.next_into(taken, timeout)
        return taken[0]
    except Exception:
        raise
    except BaseException:
        mailbox.put_back(taken)
        raise
