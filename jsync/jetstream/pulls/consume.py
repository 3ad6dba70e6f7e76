"""The handler of messages that `consume()` runs, for pull and push consumers (ADR-37)."""

from __future__ import annotations

import contextlib
import threading
import warnings
from time import monotonic
from typing import TYPE_CHECKING, Literal

from ... import errors
from ..._fast import ends_by, enter_self
from ...core.callback_reader import CallbackReader
from ...core.callbacks import as_callback_error
from ...core.drain import Drainable
from ...core.resources import NotCopyable
from ...core.sync import Latch
from ...errors import BlockingCallError, ConfigError, DrainTimeoutError, Error
from ...validation import check_seconds, format_seconds
from ..retries.engine import MAX_DELAY, Retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg
    from ...core.session import Session
    from ...models import ConsumerConfig
    from ...validation import Seconds
    from ..retries.driver import RetryHandler
    from .delivery import Delivery

OnException = Literal["continue", "nak", "term", "stop"]


def check_error_policy(
    on_exception: OnException,
    nak_delay: Seconds | None,
    retry: Retry | None,
    config: ConsumerConfig | None,
) -> float | None:
    """Check the options for failed messages, and return the delay of naks in seconds.

    Raises `ConfigError` for invalid options. Warns, at the line that calls `consume`, if
    naks without delay would use up `max_deliver`.
    """
    if retry is not None:
        if not isinstance(retry, Retry):
            raise ConfigError(f"retry has to be a jsync.Retry, not {retry!r}")
        if on_exception != "continue" or nak_delay is not None:
            raise ConfigError(
                "retry decides what happens to a failed message: leave out on_exception "
                "and nak_delay"
            )
        retry.max_deliver(config)
        return None
    if on_exception not in ("continue", "nak", "term", "stop"):
        raise ConfigError(
            f"on_exception has to be continue, nak, term or stop, not {on_exception!r}"
        )
    if nak_delay is not None:
        if on_exception != "nak":
            raise ConfigError("nak_delay needs on_exception='nak'")
        delay = check_seconds(nak_delay, "nak_delay")
        if not 0 <= delay <= MAX_DELAY:
            raise ConfigError(
                f"nak_delay has to be from 0 to {MAX_DELAY} seconds, not {nak_delay!r}"
            )
        return delay
    limit = (config.max_deliver if config is not None else None) or -1
    if on_exception == "nak" and limit > 0:
        # A `backoff` does not help: servers use it for late acks, not for naks.
        warnings.warn(
            "on_exception='nak' has no nak_delay: the server redelivers a failed message "
            f"at once and gives it up after max_deliver={limit} failures; pass nak_delay, "
            "in seconds, or retry=jsync.Retry(...)",
            RuntimeWarning,
            stacklevel=3,
        )
    return None


def _and_then(
    handler: Callable[[JetStreamMsg], object], done: Callable[[], None]
) -> Callable[[JetStreamMsg], object]:
    def handle(msg: JetStreamMsg) -> None:
        try:
            handler(msg)
        finally:
            done()

    return handle


class ConsumeContext(Drainable, NotCopyable):
    """A running handler, on the callback pool or threads. `consume` of a consumer returns it.

    The handler keeps running if you drop this object. Leaving the `with` block drains
    it, and so does a drain of the connection. If the block raised an exception, leaving
    stops it. The block also raises the error that has ended the consuming, if there is
    one.

    Example:
        ```python
        consumer = stream.create_consumer(durable_name="billing")

        def handle(msg: jsync.JetStreamMsg) -> None:
            msg.ack()

        context = consumer.consume(handle, workers=4)
        context.drain()  # handle what has come, then end
        context.wait(timeout=30)
        ```
    """

    def __init__(
        self,
        delivery: Delivery,
        handler: Callable[[JetStreamMsg], object],
        on_exception: OnException,
        session: Session,
        name: str,
        workers: int | None,
        nak_delay: float | None = None,
        retrier: RetryHandler | None = None,
        done: Callable[[], None] | None = None,
    ) -> None:
        """`done` is called after each message, whether the handler had it or not."""
        self._delivery = delivery
        if retrier is not None:
            handler = retrier.wrap(handler, delivery.in_hand)
        self._handler = handler if done is None else _and_then(handler, done)
        self._retrier = retrier
        self._session = session
        self._on_exception = on_exception
        self._nak_delay = nak_delay
        self._finished = Latch(session.write_buffer)
        self._errors: list[Exception] = []
        self._reader = CallbackReader(
            *(session, delivery.mailbox, name, workers),
            label=delivery.name,
            callback=self._handler,
            raised=self._raised,
            failed=self._failed,
            ended=self._ended,
        )
        try:
            self._reader.start()
            session.register_drainable(self)
        except BaseException:
            # No thread could be started, or Ctrl-C interrupted the start.
            delivery.stop()
            raise

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Block until the consuming has ended.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            Whether it has ended.

        Raises:
            ConsumerDeletedError: The consumer was deleted.
            ConnectionClosedError: The connection was closed.
            CallbackError: The handler raised, with `on_exception="stop"`.
            BlockingCallError: The handler itself called `wait`.

        Example:
            ```python
            import threading

            consumer = stream.create_consumer(durable_name="billing")
            running = consumer.consume(lambda msg: msg.ack())
            threading.Timer(0.2, running.stop).start()  # a signal handler, for example
            running.wait(timeout=10)
            ```
        """
        if timeout is not None:
            timeout = check_seconds(timeout, "timeout")
        if self._is_current:
            raise BlockingCallError(
                "the handler would wait for itself: return from it, or call stop()"
            )
        done = self._finished.wait(timeout)
        if done and self._errors:
            raise self._errors[0]
        return done

    @property
    def closed(self) -> bool:
        """True once the consuming has ended, including the last call of the handler."""
        return self._finished.is_set

    @property
    def error(self) -> Exception | None:
        """The error that ended the consuming, or None."""
        return self._errors[0] if self._errors else None

    def stop(self, timeout: Seconds = 30.0) -> list[JetStreamMsg]:
        """End the consuming, and give messages that wait for the handler back (nak).

        Blocks until the handler has returned on all its threads. The handler itself may
        call `stop`, which then does not wait for it. If the ack policy is known to be
        `none`, the server would not redeliver the messages, so `stop` returns them.

        Args:
            timeout: Seconds to wait. Default: 30.

        Returns:
            The unread messages of a consumer without acks. Otherwise an empty list.

        Raises:
            DrainTimeoutError: The handler has not returned in time.
        """
        timeout = check_seconds(timeout, "timeout")
        self._delivery.stop()
        self._join(timeout)
        return self._delivery.take_unread()

    def drain(self, timeout: Seconds = 30.0) -> None:
        """Request no more messages, and handle the prefetched ones.

        Blocks until the last call of the handler has returned. The handler itself may
        call `drain`, which then does not wait for it.

        Args:
            timeout: Seconds to wait. Default: 30.

        Raises:
            DrainTimeoutError: The handler has not returned in time.
        """
        timeout = check_seconds(timeout, "timeout")
        self._delivery.drain()
        self._join(timeout)

    def _stop_delivery(self) -> None:
        """Stop the server from sending, as the first step of a connection's drain.

        Takes messages that the server has already sent, for at most a second.
        """
        if self._finished.is_set:
            return
        if self._is_current and self._delivery.acks:
            # The drain does not wait for the handler that calls it, and the rest could not
            # be acknowledged afterwards.
            self._delivery.stop()
        else:
            self._delivery.drain()

    def _wait_finished(self, deadline: float, timeout: float) -> None:
        """Block until the handler has returned from the last message, as the last step.

        Messages that no handler has by `deadline` go back to the server. Raises
        `DrainTimeoutError` then.
        """
        if self._session.is_drained_by(self._reader.threads):
            return
        self._reader.end_idle()
        if self._finished.wait(max(0.0, deadline - monotonic())):
            return
        if self._delivery.acks:
            self._delivery.stop()
        raise DrainTimeoutError(
            f"the handler of {self._delivery.name} has not returned within {format_seconds(timeout)}"
        )

    @property
    def _is_current(self) -> bool:
        """True if the caller runs on a thread that is in the handler."""
        return threading.current_thread() in self._reader.threads

    def _join(self, timeout: float) -> None:
        if self._is_current:
            return
        self._reader.end_idle()
        if not self._finished.wait(timeout):
            raise DrainTimeoutError(
                f"the handler has not returned within {format_seconds(timeout)}"
            )

    def _ended(self) -> None:
        if self._delivery.mailbox.failure is not None:
            self._failed(self._delivery.mailbox.failure)
        self._finished.set()

    def _failed(self, error: BaseException) -> None:
        """Remember an error. The first one is reported."""
        if isinstance(error, Exception):
            self._errors.append(error)

    def _raised(self, msg: JetStreamMsg, error: BaseException) -> None:
        wrapped = as_callback_error(f"the handler of {msg.subject!r}", error)
        if self._retrier is not None:
            delay = self._retrier.delay_after(msg, error)
            self._delivery.report(wrapped, retry_in=delay)
            self._retrier.failed(msg, error, delay)
            return
        self._delivery.report(wrapped)
        with contextlib.suppress(Error):
            match self._on_exception:
                case "nak":
                    msg.nak(self._nak_delay)
                case "term":
                    msg.term()
                case "stop":
                    self._failed(wrapped)
                    self._delivery.stop()

    __enter__ = enter_self

    @ends_by(lambda self: self._delivery.stop())
    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            try:
                self.drain()
            except errors.TimeoutError:  # the handler finishes its messages
                raise
            except Exception:
                self._delivery.stop()
                raise
            self.wait(0)
            return
        try:
            self._delivery.stop()
            self._join(30.0)
        except errors.TimeoutError as second:
            error.add_note(str(second))

    def __repr__(self) -> str:
        state = "ended" if self.closed else "at work"
        return f"<ConsumeContext {state}, {len(self._delivery.mailbox)} pending>"
