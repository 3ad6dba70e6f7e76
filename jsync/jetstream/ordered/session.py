"""One read of an ordered consumer through its successive consumers (ADR-37).

Each begins after the last message that arrived from its predecessor. The next one is made
on the I/O thread, where requests are sent and answered without waiting, so that a slow or
waiting reader does not delay it.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from ...core.state import StateMachine
from ...core.sync import ForkSafeRLock
from ...errors import ConnectionClosedError, ConnectionLostError, Error, JetStreamError
from ...models import ConsumerInfo
from ..api import CallbackRequest
from ..steps import APIRequest, send_next
from .engine import TRANSITIONS, NextAction, ReadState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import SequenceChecker
    from ...core.timers import Timer
    from ..steps import ReplyOrError, Steps
    from .factory import ConsumerFactory


class SessionListener(Protocol):
    """The owner of the messages of a read. It is called on the I/O thread."""

    @property
    def closed(self) -> bool:
        """True once no more messages are taken."""

    def resubscribe(self) -> None:
        """Take nothing more from the last consumer. Called with the lock held."""

    def on_created(self, info: ConsumerInfo) -> None:
        """Read from the next consumer, which has been made."""

    def end(self, error: Exception | None = None) -> None:
        """End the read, because all is read or because of `error`."""

    def report(self, error: Exception) -> None:
        """Report to the user an error that does not end the read."""


class _NullListener:
    """The reader of a read that is over."""

    closed = True

    def resubscribe(self) -> None: ...
    def on_created(self, info: ConsumerInfo) -> None: ...
    def end(self, error: Exception | None = None) -> None: ...
    def report(self, error: Exception) -> None: ...


_NULL_LISTENER: Final = _NullListener()


class OrderedSession:
    """The successive consumers at a `ConsumerFactory`, and the progress of the read.

    The reader uses the same `lock`. It is held to change the state and to move the cursor.
    It is re-entrant, like the session's, and no call blocks while it is held.
    """

    def __init__(
        self, factory: ConsumerFactory, reader: SessionListener, order: SequenceChecker
    ) -> None:
        self.factory = factory
        self.cursor = factory.cursor
        self.lock = ForkSafeRLock()
        self.state = StateMachine(ReadState.NEW, TRANSITIONS, self.lock)
        self.order = order
        """The order of the current consumer, or of the last one."""
        self.created_at = 0.0
        """The time at which that consumer was made."""
        self._listener = reader
        self._session = factory.api.session
        # A lost connection that was not reported yet.
        self._connection_error: Exception | None = None
        self._steps: Steps[ConsumerInfo] | None = None
        self._creating = ""  # the consumer that is being created
        self._request: CallbackRequest | None = None
        self._timer: Timer | None = None

    @property
    def is_live(self) -> bool:
        """True while a consumer is being read."""
        return self.state.current is ReadState.LIVE

    @property
    def is_ended(self) -> bool:
        """True if no other consumer will be made."""
        return self.state.current in (ReadState.ENDING, ReadState.ENDED)

    def save_progress(self) -> bool:
        """Report arrivals to the cursor, with the lock held. Returns whether it moved."""
        order = self.order
        return self.cursor.advance(order.stream_sequence, order.consumer_sequence)

    def gap_error(self) -> JetStreamError:
        """Return the reason for a reset when the order has a gap."""
        return JetStreamError(
            f"a message of consumer {self.factory.stream}.{self.cursor.name} is missing "
            f"after stream sequence {self.order.stream_sequence}"
        )

    # The next consumer ----------------------------------------------------------------

    def start_next_consumer(self, pause: float = 0.0) -> None:
        """Make the next consumer after `pause` seconds, or end if all is read."""
        if self.cursor.at_end:
            self._listener.end()
        elif self.state.try_to(ReadState.BETWEEN):
            self.call_later(pause, self._create)

    def reset(self, reason: Exception | None, *, at_once: bool = False) -> None:
        """Give up the consumer. Another one continues after the last message that came."""
        with self.lock:
            if self._session.closing or self._listener.closed:
                return
            if not self.state.try_to(ReadState.BETWEEN):
                return
            progress = self.save_progress()
            self.factory.schedule_delete()
            self.cancel()
            self._listener.resubscribe()
        if reason is not None and not self.cursor.at_end:
            self._listener.report(self.factory.reset_error(reason))
        pause = 0.0
        if reason is not None and not at_once:
            lived = monotonic() - self.created_at
            try:
                pause = self.cursor.reset(progress=progress, lived=lived)
            except Error as final:
                self._listener.end(final)
                return
        self.start_next_consumer(pause)

    def check_sequence(self) -> None:
        """Continue with another consumer, or end, if the order has stopped."""
        with self.lock:
            order = self.order
            if order.stopped is None or not self.is_live:
                return
            last = self.cursor.last()
            missing = self.gap_error()
            self.save_progress()
            step = self.cursor.on_stopped(order.stopped, last)
        if step is NextAction.END:
            self._listener.end()
        else:
            self.reset(missing if step is NextAction.RESET else None)

    def on_disconnected(self, error: ConnectionLostError) -> None:
        """Note that the connection is lost. `on_connected` continues the read."""
        with self.lock:
            if self.is_live:  # otherwise a reset has already reported it
                self._connection_error = error
                self.state.try_to(ReadState.BETWEEN)
            self.cancel()

    def on_connected(self) -> None:
        """Continue the read with another consumer after a reconnect."""
        with self.lock:
            loss, self._connection_error = self._connection_error, None
            if self.state.current is ReadState.NEW:
                return
        self.reset(loss, at_once=True)

    def cancel(self) -> None:
        """Stop making a consumer. If one is made nevertheless, it is deleted."""
        with self.lock:
            factory, name, request = self.factory, self._creating, self._request
            # A server may process the later deletion before the creation.
            if (
                name
                and request is not None
                and request.set_callback(lambda _: factory.delete_nowait(name))
            ):
                self._creating = ""
            elif request is not None:
                request.cancel()
            if self._timer is not None:
                self._timer.cancel()

    def detach_listener(self) -> None:
        """Forget the reader, which refers to this. Takes no lock, for finalisers."""
        self._listener = _NULL_LISTENER

    # Requests and pauses --------------------------------------------------------------

    def _send_request(
        self, ask: APIRequest, then: Callable[[ReplyOrError], object]
    ) -> None:
        """Send a request for the next consumer. Once cancelled, it does not call `then`."""
        try:
            self._request = CallbackRequest(
                self.factory.api, ask.subject, ask.payload, then
            )
        except (ConnectionLostError, ConnectionClosedError):
            pass  # the reconnect starts again, or the close ends it
        except Error as error:
            self._on_request_failed(error)

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call later, unless cancelled. `cancel` affects only the latest such call."""
        if seconds > 0:
            self._timer = self._session.call_later(seconds, call)
        else:
            call()

    def _create(self) -> None:
        with self.lock:
            if not self.state.try_to(ReadState.BETWEEN):
                return
            self._steps = self.factory.create_steps()
        self._advance(None)

    def _advance(self, answer: ReplyOrError | None) -> None:
        """Send the next request for the consumer after the answer to the previous one."""
        match self._step(answer):
            case ConsumerInfo() as info:
                self._listener.on_created(info)
            case Error() as error:
                self._on_request_failed(error)
            case APIRequest() as ask:
                self._send_request(ask, self._advance)

    def _step(
        self, answer: ReplyOrError | None
    ) -> APIRequest | ConsumerInfo | Error | None:
        """Return the next request, or the outcome, or None if no consumer is wanted."""
        with self.lock:
            name, self._creating = self._creating, ""
            if self.is_ended or self._steps is None:
                if name:
                    self.factory.delete_nowait(name)
                return None
            try:
                ask = send_next(self._steps, answer)
            except StopIteration as done:
                info: ConsumerInfo = done.value
                self.cursor.on_created(info)
                return info
            except Error as error:
                return error
            if ask.payload is not None:
                self._creating = ask.payload["config"]["name"]
            return ask

    def _on_request_failed(self, error: Error) -> None:
        if self.is_ended:
            return
        try:
            pause = self.cursor.on_request_failed(error)
        except Error as final:
            self._listener.end(final)
            return
        self._listener.report(error)
        self.call_later(pause, self._create)

    def __repr__(self) -> str:
        return f"<OrderedSession of {self.factory.stream}: {self.state.current.value}>"
