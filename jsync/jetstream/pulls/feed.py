"""What fills the backlog of a reader: pulls, or what a server pushes."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, ClassVar, cast

from ...core.shared import RLock
from ...errors import CallbackError, Error

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMailbox, JetStreamMsg
    from ...core.session import Session
    from ...core.timers import Timer


class Rest:
    """Messages that could not be given back to the server, each for one taker."""

    def __init__(self) -> None:
        # Re-entrant: a signal handler may stop what the main thread is stopping.
        self._lock = RLock()
        self._messages: list[JetStreamMsg] = []

    def add(self, messages: list[JetStreamMsg]) -> None:
        """Keep messages."""
        with self._lock:
            self._messages += messages

    def take(self) -> list[JetStreamMsg]:
        """All that are kept, once."""
        with self._lock:
            rest, self._messages = self._messages, []
            return rest

    def __repr__(self) -> str:
        return f"<Rest, {len(self._messages)} messages>"


class Feed:
    """The errors that it reports, and the messages that nobody has read."""

    logger: ClassVar[logging.Logger]
    mailbox: JetStreamMailbox

    def __init__(
        self, session: Session, on_error: Callable[[Exception], object] | None
    ) -> None:
        self.session = session
        self._on_error = on_error or session.options.on_error
        self._watch: Timer | None = None  # watches the heartbeats

    @property
    def name(self) -> str:
        """Stream and consumer, for messages."""
        raise NotImplementedError

    @property
    def acks(self) -> bool:
        """Whether `stop` gives what is not handed over back to the server."""
        raise NotImplementedError

    def report(self, error: Exception) -> None:
        """Tell the user, and the log, of what does not end it."""
        self.session.callbacks.post(self._tell, error)

    def _tell(self, error: Exception) -> None:
        # Log on the callback thread: a log handler may be slow.
        cause = error.__cause__ if isinstance(error, CallbackError) else None
        level = logging.WARNING if cause is None else logging.ERROR
        self.logger.log(
            *(level, "%s: %s: %s", self.name, type(error).__name__, error),
            exc_info=cause,
        )
        if self._on_error is not None:
            self._on_error(error)

    def stop(self) -> None:
        """End it now, and give what is not handed over back to the server."""
        raise NotImplementedError

    def drain(self) -> None:
        """End it after what the server has sent already."""
        raise NotImplementedError

    def take_rest(self) -> list[JetStreamMsg]:
        """What `stop` could not give back, once."""
        raise NotImplementedError

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()


def give_back(mailbox: JetStreamMailbox, *, acks: bool) -> list[JetStreamMsg]:
    """Give what is not read back to the server; without `acks` it is returned."""
    rest = cast("list[JetStreamMsg]", mailbox.take_rest())
    if not acks:
        # Without acks, a delivered message is done: the server does not send it again.
        return rest
    for msg in rest:
        # Otherwise the server delivers it again after ack_wait.
        with contextlib.suppress(Error):
            msg.nak()
    return []
