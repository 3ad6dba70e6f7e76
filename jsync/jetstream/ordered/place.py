"""Where an ordered consumer is, and the consumers that are made there."""

from __future__ import annotations

import contextlib
import math
from time import monotonic
from typing import TYPE_CHECKING

from ..._fast import Mailbox, Order, encode_publish, finaliser
from ...errors import (
    Error,
    JetStreamUnavailableError,
    OrderedConsumerResetError,
    PermissionsError,
    TimeoutError as LateError,
)
from ...models import ConsumerInfo, StreamInfo
from ..api import answered
from ..pulls.inbox import Source
from ..pulls.priority import Claim
from ..steps import Ask
from ..stream_end.driver import until_answered
from ..stream_end.engine import end_in
from .engine import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..api import API
    from ..steps import Steps
    from ..stream_end.engine import StreamEnd
    from .engine import Cursor


class Place:
    """A stream, and where an ordered consumer is in it."""

    def __init__(self, api: API, stream: str, cursor: Cursor) -> None:
        self.api = api
        self.stream = stream
        self.cursor = cursor
        self.needs_end = False
        """Whether a consumer is only made once the leader has said where the stream ends."""
        self.end: StreamEnd | None = None
        """The end of the stream before its consumer was made. None: not permitted to ask."""
        self.deliver_subject: str | None = None
        """Where the next consumer sends to; None: it is pulled from."""
        self.used_at = monotonic()
        """When its consumer was last made or pulled from."""
        self.was_silent = False
        """Whether its consumer had nothing for the last pull, as far as was seen."""
        # Commands that delete our consumers, which may exist on the server.
        self._deletions: list[bytes] = []

    def source(self) -> Source:
        """The consumer that goes on from here."""
        name = self.cursor.name or self.cursor.prefix
        return Source(self.api, f"{self.stream}.{name}", False, Claim(), None)

    def creation(self) -> Steps[ConsumerInfo]:
        """The requests that make the next consumer; returns it, see `advance`.

        The cursor is not told that it has begun.
        """
        self.retire()
        self.end = None
        try:
            reply = yield Ask(f"STREAM.INFO.{self.stream}")
        except PermissionsError:
            # An account without permission for the stream's info may still read the
            # stream.
            if self.cursor.needs_snapshot:
                raise
        else:
            info = StreamInfo.from_wire(reply)
            self.cursor.same(info)
            try:
                self.end = end_in(info)
            except JetStreamUnavailableError:
                if self.needs_end or self.cursor.needs_snapshot:
                    raise
            else:
                self.cursor.seen(self.end)
        session = self.api.session
        config = self.cursor.next_config()
        if self.deliver_subject is not None:
            config = config.replace(deliver_subject=self.deliver_subject)
        elif config.inactive_threshold is None:
            config = config.replace(inactive_threshold=self.cursor.inactive_threshold)
        deletion = self._deletion(config.name or "")
        session.keep_last_word(deletion)
        self._deletions.append(deletion)
        payload = {
            "stream_name": self.stream,
            "config": config.to_request(),
            "action": "create",
        }
        subject = f"CONSUMER.CREATE.{self.stream}.{config.name}"
        reply = yield Ask(subject, payload, config.newer_than())
        return ConsumerInfo.from_wire(reply)

    def create(self, deadline: float) -> None:
        """Have the next consumer made; blocks. Raises what the server says against it."""
        try:
            self.cursor.began(self.make(deadline))
            self.used_at = monotonic()
        except BaseException:
            self.retire()  # the server may have created it
            raise

    def make(self, deadline: float) -> ConsumerInfo:
        """The same, but the cursor is not told that it has begun.

        Waits for a leader of the stream where the end of it has to be known.
        """
        return until_answered(self.api, self.creation, deadline)

    def retire_if_stuck(self, deadline: float) -> None:
        """Have the consumer deleted if it does not send what it has; blocks to ask."""
        cursor, name = self.cursor, self.cursor.name
        if name is None or not (self.was_silent and cursor.may_stall(0)):
            return
        with contextlib.suppress(Error):  # the pull then reports the fault
            info = answered(self.api, self.consumer_info(), deadline)
            step = cursor.checked(info, cursor.consumer_sequence, monotonic(), math.inf)
            if step is not Step.WAIT:
                self.retire()

    def create_again(
        self, deadline: float, report: Callable[[Exception], object]
    ) -> None:
        """The same, as often as it takes until `deadline`; then `TimeoutError`."""
        self.retire()
        while True:
            try:
                self.create(deadline)
                return
            except Error as error:
                if monotonic() >= deadline:  # the connection may only be down
                    raise LateError(f"no consumer in time: {error}") from error
                pause = self.cursor.failed(error)
                report(error)
                self._wait(min(pause, deadline - monotonic()))

    def consumer_info(self) -> Steps[ConsumerInfo]:
        """The request for the info of its consumer."""
        reply = yield Ask(f"CONSUMER.INFO.{self.stream}.{self.cursor.name}")
        return ConsumerInfo.from_wire(reply)

    def _wait(self, seconds: float) -> None:
        """Wait; less long when the connection is lost or closed meanwhile."""
        session = self.api.session
        nothing = Mailbox(session.outbox, 0)
        token = session.replies.add(nothing)
        try:
            nothing.get(max(0.0, seconds))
        finally:
            session.replies.discard(token)

    def order(self) -> Order:
        """The order in which the messages of the consumer have to come."""
        span = self.cursor.range()
        return Order(
            span.after,
            last=span.last,
            to_end=span.to_end,
            consumer_sequence=span.consumer_sequence,
        )

    def note_arrival(self, at: float) -> None:
        """Note when the last message of a pull came.

        The server counts the disuse from the pull, not from its messages. A pull that
        waits for longer than `inactive_threshold` keeps the consumer until it ends.
        """
        if at - self.used_at >= self.cursor.inactive_threshold:
            self.used_at = at

    @property
    def is_disused(self) -> bool:
        """Whether the server may have deleted the consumer since nobody used it."""
        return monotonic() - self.used_at >= self.cursor.inactive_threshold

    def check_open(self) -> None:
        """Raise when the connection is being closed, and deletes the consumer by that."""
        session = self.api.session
        if session.closing:
            raise session.closed_error()

    def lost(self, reason: Exception) -> OrderedConsumerResetError:
        """The warning that the consumer is lost, and another one is being made."""
        error = OrderedConsumerResetError(
            f"lost the ordered consumer of {self.stream} after stream sequence "
            f"{self.cursor.position}: {reason}; creating another one"
        )
        error.__cause__ = reason
        return error

    def retire(self) -> None:
        """Have the consumer deleted, and those of which nobody knows whether they are.

        Without waiting for it: a finaliser may do so, on any thread.
        """
        self.cursor.name = None
        last_words = self.api.session.last_words
        for deletion in list(self._deletions):
            # Deletions that are no longer among the last words have been written.
            if deletion not in last_words or self._write(deletion):
                self._forget(deletion)

    def deleted(self) -> None:
        """Take note that its consumers have been deleted by somebody else."""
        for deletion in list(self._deletions):
            self._forget(deletion)

    def delete(self, name: str) -> None:
        """Have one deleted, without waiting for it."""
        self._write(self._deletion(name))

    def _deletion(self, name: str) -> bytes:
        return encode_publish(f"{self.api.prefix}.CONSUMER.DELETE.{self.stream}.{name}")

    def _write(self, deletion: bytes) -> bool:
        """Whether it was written; False when not connected."""
        with contextlib.suppress(Error):
            return self.api.session.outbox.command(deletion)
        return False

    def _forget(self, deletion: bytes) -> None:
        self.api.session.last_words.discard(deletion)
        with contextlib.suppress(ValueError):  # another thread was faster
            self._deletions.remove(deletion)

    @finaliser
    def __del__(self) -> None:
        # Nobody reads any more. Without a connection we cannot delete the consumer, so
        # the server removes it after its inactive_threshold.
        if getattr(self, "_deletions", None):  # None if Ctrl-C interrupted __init__
            self.retire()
            self.deleted()

    def __repr__(self) -> str:
        return f"<Place in {self.stream}, {self.cursor!r}>"
