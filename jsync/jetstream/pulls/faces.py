"""The two faces of the continuous pull: `messages()` and `consume()` (ADR-37)."""

from __future__ import annotations

import contextlib
import threading
import warnings
from typing import TYPE_CHECKING, Literal, Protocol, cast

from ..._fast import JetStreamMsg, Messages
from ...checks import seconds
from ...core.backlog import next_of
from ...core.callbacks import wrap
from ...core.gate import Gate
from ...core.single import Single
from ...errors import (
    BlockingCallError,
    ConfigError,
    DrainTimeoutError,
    Error,
    TimeoutError as LateError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from ..._fast import Mailbox
    from ...checks import Seconds
    from ...core.session import Session
    from ...models import ConsumerConfig
    from .driver import ContinuousPull

LONGEST_DELAY = 1_000_000_000
"""Seconds: less than servers count in nanoseconds."""

OnException = Literal["continue", "nak", "term", "stop"]


class Feed(Protocol):
    """What fills the backlog of a `ConsumeContext`: pulls, or what a server pushes."""

    mailbox: Mailbox

    def report(self, error: Exception) -> None:
        """Tell the user of what does not end it."""

    def drain(self) -> None:
        """End after what the server has sent already."""

    def stop(self) -> None:
        """End now, and give the rest back to the server."""

    def take_rest(self) -> list[JetStreamMsg]:
        """What `stop` could not give back, once."""


def check_exception(
    on_exception: OnException, nak_delay: Seconds | None, config: ConsumerConfig | None
) -> float | None:
    """The delay of the naks in seconds; raises `ConfigError`.

    Warns, at the line that calls `consume`, when naks without delay use up `max_deliver`.
    """
    if on_exception not in ("continue", "nak", "term", "stop"):
        raise ConfigError(
            f"on_exception is continue, nak, term or stop, not {on_exception!r}"
        )
    if nak_delay is not None:
        if on_exception != "nak":
            raise ConfigError("nak_delay goes with on_exception='nak' only")
        delay = seconds(nak_delay, "nak_delay")
        if not 0 <= delay <= LONGEST_DELAY:
            raise ConfigError(
                f"nak_delay has to be from 0 to {LONGEST_DELAY} seconds, not {nak_delay!r}"
            )
        return delay
    limit = (config.max_deliver if config is not None else None) or -1
    if on_exception == "nak" and limit > 0:
        # A `backoff` does not help: servers use it when an ack is late, not for a nak.
        warnings.warn(
            "on_exception='nak' has no nak_delay: the server redelivers a failed message "
            f"at once and gives it up after max_deliver={limit} failures; pass nak_delay, "
            "in seconds",
            RuntimeWarning,
            stacklevel=3,
        )
    return None


class MessagesContext(Single):
    """Messages without end, prefetched: what `Consumer.messages` returns.

    Iterate, or call `next`; from one thread. Leaving the `with` block stops it, and so
    does dropping it, as soon as Python notices.
    """

    def __init__(self, pull: ContinuousPull, idle_timeout: float | None = None) -> None:
        # Apart, so that what the connection knows of it does not keep this alive.
        self._pull = pull
        self._idle_timeout = idle_timeout or 0.0

    def __iter__(self) -> Iterator[JetStreamMsg]:
        """Messages as they come, until it is stopped or drained, or fails.

        With an `idle_timeout` it is drained, and so ends, when a wait for a message has
        lasted that long. Raises `ConsumerDeletedError` or `ConnectionClosedError`, after
        the messages that had come. All else goes to `on_error` while the iteration goes
        on.
        """
        messages = Messages(self._pull.mailbox, self, idle=self._idle_timeout)
        return cast("Iterator[JetStreamMsg]", messages)

    def waited(self) -> None:
        """Called by the iteration when `idle_timeout` has passed."""
        # While disconnected nothing can come: that says nothing of the stream.
        if self._pull.was_connected_for(self._idle_timeout):
            self._pull.drain()

    def next(self, timeout: Seconds | None = 5.0) -> JetStreamMsg:
        """Block until the next message has come, at most `timeout` seconds.

        None waits for ever. Raises `TimeoutError`, `SubscriptionClosedError` after the
        end, and what iterating raises.
        """
        return next_of(self._pull.mailbox, timeout)  # type: ignore[return-value]

    @property
    def pending(self) -> int:
        """Messages that have come and are not read yet."""
        return len(self._pull.mailbox)

    @property
    def closed(self) -> bool:
        """Whether no more messages will come."""
        return self._pull.mailbox.closed

    def stop(self) -> list[JetStreamMsg]:
        """End the iteration; what was prefetched is given back to the server (nak).

        Of a consumer whose ack policy is known to be `none` it is returned, since the
        server will not send it again; also when leaving the `with` block has stopped it
        before. Blocks for two round trips; while messages are coming until those that
        were pulled have come, 0.1 s at most, or two where they would be lost. May be
        called from any thread, twice.
        """
        self._pull.stop()
        return self._pull.take_rest()

    def drain(self) -> None:
        """Pull no more; the iteration ends after what has been prefetched.

        Blocks as `stop` does. May be called from any thread, twice.
        """
        self._pull.drain()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pull.stop()

    def __del__(self) -> None:
        pull = getattr(self, "_pull", None)
        if pull is not None:  # else Ctrl-C came as it was made
            pull.abandon()

    def __repr__(self) -> str:
        state = "ended" if self.closed else "open"
        return f"<MessagesContext {state}, {self.pending} pending>"


class ConsumeContext(Single):
    """A handler at work, on one thread or several: what `consume` of a consumer returns.

    It goes on when this is dropped. Leaving the `with` block drains it, or stops it when
    the body raised, and raises what ended it.
    """

    def __init__(
        self,
        feed: Feed,
        handler: Callable[[JetStreamMsg], object],
        on_exception: OnException,
        session: Session,
        name: str,
        workers: int,
        nak_delay: float | None = None,
    ) -> None:
        self._feed = feed
        self._handler = handler
        self._on_exception = on_exception
        self._nak_delay = nak_delay
        self._finished = Gate(session.outbox)
        self._error: Exception | None = None
        self._workers: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._at_work = workers
        try:
            for number in range(1, workers + 1):
                session.spawner.start(f"{session.name}-{name}-{number}", self._work)
        except BaseException:  # no more threads, or Ctrl-C came as one was begun
            feed.stop()
            raise

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Block until it has ended, at most `timeout` seconds; whether it has.

        Raises what ended it: `ConsumerDeletedError`, `ConnectionClosedError`, or with
        `on_exception="stop"` the `CallbackError` of the handler. `BlockingCallError` when
        its own handler waits for it.
        """
        if timeout is not None:
            timeout = seconds(timeout, "timeout")
        if threading.current_thread() in self._workers:
            raise BlockingCallError(
                "its own handler would wait for itself: return from it, or call stop()"
            )
        done = self._finished.wait(timeout)
        if done and self._error is not None:
            raise self._error
        return done

    @property
    def closed(self) -> bool:
        """Whether it has ended, the last call of the handler included."""
        return self._finished.is_open

    @property
    def error(self) -> Exception | None:
        """What ended it, when that was not asked for."""
        return self._error

    def stop(self, timeout: Seconds = 30.0) -> list[JetStreamMsg]:
        """End it; what the handler has not been given goes back to the server (nak).

        Of a consumer whose ack policy is known to be `none` it is returned, since the
        server will not send it again. Blocks until the handler has returned, on all its
        threads, at most `timeout` seconds, unless called from the handler itself. Raises
        `DrainTimeoutError`.
        """
        timeout = seconds(timeout, "timeout")
        self._feed.stop()
        self._join(timeout)
        return self._feed.take_rest()

    def drain(self, timeout: Seconds = 30.0) -> None:
        """Pull no more, and have what has been prefetched handled.

        Blocks until the last call of the handler has returned, at most `timeout` seconds,
        unless called from the handler itself. Raises `DrainTimeoutError`.
        """
        timeout = seconds(timeout, "timeout")
        self._feed.drain()
        self._join(timeout)

    def _join(self, timeout: float) -> None:
        if threading.current_thread() in self._workers:
            return
        if not self._finished.wait(timeout):
            raise DrainTimeoutError(f"the handler has not returned within {timeout} s")

    def _work(self) -> None:
        """The life of a worker: they all take from the one backlog."""
        self._workers.add(threading.current_thread())
        mailbox = self._feed.mailbox
        try:
            mailbox.hand_over(self._handler, self._raised)
            self._error = self._error or mailbox.failure
        except Error as error:
            self._error = self._error or error
        finally:
            with self._lock:
                self._at_work -= 1
            if not self._at_work:
                self._finished.open()

    def _raised(self, msg: JetStreamMsg, error: BaseException) -> None:
        wrapped = wrap(f"the handler of {msg.subject!r}", error)
        self._feed.report(wrapped)
        with contextlib.suppress(Error):
            match self._on_exception:
                case "nak":
                    msg.nak(self._nak_delay)
                case "term":
                    msg.term()
                case "stop":
                    self._error = self._error or wrapped
                    self._feed.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            try:
                self.drain()
            except LateError:  # it goes on with what it has
                raise
            except BaseException:  # Ctrl-C: nobody could end it any more
                self._feed.stop()
                raise
            self.wait(0)
            return
        try:
            self._feed.stop()
            self._join(30.0)
        except LateError as second:
            error.add_note(str(second))

    def __repr__(self) -> str:
        state = "ended" if self.closed else "at work"
        return f"<ConsumeContext {state}, {len(self._feed.mailbox)} pending>"
