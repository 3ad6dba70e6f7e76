"""The base class of pulls and push subscriptions, which fill a reader's backlog."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, cast

from ..._fast import parse_ack_subject
from ...errors import CallbackError, Error, NotJetStreamMessageError
from ..retries.engine import user_traceback

if TYPE_CHECKING:
    import logging
    from collections import deque
    from collections.abc import Callable

    from ..._fast import JetStreamMailbox, JetStreamMsg
    from ...core.session import Session
    from ...core.timers import Timer


class Delivery(ABC):
    """Reports the errors of a backlog, and takes care of its unread messages."""

    logger: ClassVar[logging.Logger]
    mailbox: JetStreamMailbox

    def __init__(
        self, session: Session, on_error: Callable[[Exception], object] | None
    ) -> None:
        self.session = session
        self._on_error = on_error or session.options.on_error
        self._watch: Timer | None = None  # watches the heartbeats
        self.in_hand: dict[JetStreamMsg, None] = {}
        """The messages that handlers have, for `keep_alive`. Each operation of a dict is atomic."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Stream and consumer, for error messages."""

    @property
    @abstractmethod
    def acks(self) -> bool:
        """True if `stop` gives unread messages back to the server."""

    def report(self, error: Exception, *, retry_in: float | None = None) -> None:
        """Report to the user and the log an error that does not end the delivery.

        If a handler failed, its traceback is logged, unless another attempt follows in
        `retry_in` seconds.
        """
        self.session.callbacks.submit(self._notify, error, retry_in)

    def _notify(self, error: Exception, retry_in: float | None) -> None:
        # Log on the callback thread: a log handler may be slow.
        kind = type(error).__name__
        cause = error.__cause__ if isinstance(error, CallbackError) else None
        if retry_in is not None:
            words = "%s: %s: %s; the next attempt follows in %g s"
            self.logger.warning(words, self.name, kind, error, retry_in)
        elif cause is None:
            self.logger.warning("%s: %s: %s", self.name, kind, error)
        else:
            self.logger.error(
                *("%s: %s: %s", self.name, kind, error),
                exc_info=(type(cause), cause, user_traceback(cause)),
            )
        if self._on_error is not None:
            self._on_error(error)

    def keep_alive(self, interval: Callable[[], float]) -> None:
        """Request more time from the server every `interval` seconds, for all messages here.

        These are the waiting messages and the ones in `in_hand`. Otherwise the server would
        redeliver a message that waits longer than `ack_wait`, although no handler has had it.
        """

        def extend() -> None:  # on the I/O thread
            held = [*self.mailbox.waiting(), *self.in_hand.copy()]
            for msg in held:
                with contextlib.suppress(Error):  # it has just been acknowledged
                    msg.in_progress()
            if held or not self.mailbox.closed:
                self.session.call_later(interval(), extend)

        self.session.call_later(interval(), extend)

    @abstractmethod
    def stop(self) -> None:
        """End the delivery now, and give unread messages back to the server."""

    @abstractmethod
    def drain(self) -> None:
        """End the delivery after the messages that the server has already sent."""

    @abstractmethod
    def take_unread(self) -> list[JetStreamMsg]:
        """Return the messages that `stop` could not give back, and forget them."""

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()


def is_ack_of(consumer: str, subject: str) -> bool:
    """Return whether the subject is that of an ack of `consumer`, a stream and a name."""
    try:
        metadata = parse_ack_subject(subject)
    except NotJetStreamMessageError:
        return False
    return f"{metadata.stream}.{metadata.consumer}" == consumer


def nak_unread(mailbox: JetStreamMailbox, *, acks: bool) -> list[JetStreamMsg]:
    """Give unread messages back to the server, or return them if there are no `acks`."""
    rest = cast("list[JetStreamMsg]", mailbox.take_rest())
    if not acks:
        # Without acks, a delivered message is done: the server does not send it again.
        return rest
    for msg in rest:
        # Otherwise the server delivers it again after ack_wait.
        with contextlib.suppress(Error):
            msg.nak()
    return []


def take_all(messages: deque[JetStreamMsg]) -> list[JetStreamMsg]:
    """Empty a deque. Each message goes to one of several threads that empty it."""
    taken: list[JetStreamMsg] = []
    with contextlib.suppress(IndexError):
        while True:
            taken.append(messages.popleft())
    return taken
