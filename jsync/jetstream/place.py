"""Where an ordered consumer is, and the consumers that are made there."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING

from .._fast import Mailbox, Order, encode_publish
from ..errors import (
    ConnectionLostError,
    Error,
    PermissionsError,
    TimeoutError as LateError,
)
from ..models import ConsumerInfo, StreamInfo
from .inbox import Source
from .priority import Claim
from .versions import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .api import API
    from .ordered import Cursor
    from .versions import Needs


class Place:
    """A stream, and where an ordered consumer is in it."""

    def __init__(self, api: API, stream: str, cursor: Cursor) -> None:
        self.api = api
        self.stream = stream
        self.cursor = cursor
        self.deliver_subject: str | None = None
        """Where the next consumer sends to; None: it is pulled from."""
        self._names: list[str] = []  # of consumers that may be there on the server

    def source(self) -> Source:
        """The consumer that goes on from here."""
        name = self.cursor.name or self.cursor.prefix
        return Source(self.api, f"{self.stream}.{name}", False, Claim(), None)

    def creation(self) -> tuple[str, dict[str, Any], Needs]:
        """The request for the next consumer: subject, payload, what servers it needs."""
        config = self.cursor.next_config()
        if self.deliver_subject is not None:
            config = config.replace(deliver_subject=self.deliver_subject)
        self._names.append(config.name or "")
        payload = {
            "stream_name": self.stream,
            "config": config.to_request(),
            "action": "create",
        }
        subject = f"CONSUMER.CREATE.{self.stream}.{config.name}"
        return subject, payload, config.newer_than()

    def create(self, deadline: float) -> None:
        """Have the next consumer made; blocks. Raises what the server says against it."""
        self.cursor.began(self.make(deadline))

    def make(self, deadline: float) -> ConsumerInfo:
        """The same, but the cursor is not told that it has begun."""
        try:
            info = self.stream_info(deadline)
        except PermissionsError:
            # Who may not look at the stream may still read it.
            if self.cursor.needs_snapshot:
                raise
        else:
            self.cursor.seen(info)
        subject, payload, needs = self.creation()
        reply = self._request(subject, payload, deadline, needs)
        return ConsumerInfo.from_wire(reply)

    def stream_info(self, deadline: float) -> StreamInfo:
        """Ask for the stream; blocks."""
        reply = self._request(f"STREAM.INFO.{self.stream}", None, deadline)
        return StreamInfo.from_wire(reply)

    def create_again(
        self, deadline: float, report: Callable[[Exception], object]
    ) -> None:
        """The same, as often as it takes until `deadline`; then `TimeoutError`."""
        while True:
            self.retire()
            try:
                self.create(deadline)
                return
            except Error as error:
                if monotonic() >= deadline:  # perhaps the connection is merely down
                    raise LateError(f"no consumer in time: {error}") from error
                pause = self.cursor.failed(error)
                report(error)
                self._wait(min(pause, deadline - monotonic()))

    def _request(
        self,
        subject: str,
        payload: Mapping[str, Any] | None,
        deadline: float,
        needs: Needs = NOTHING,
    ) -> dict[str, Any]:
        while True:
            left = deadline - monotonic()
            seconds = max(0.001, min(self.api.timeout, left))
            try:
                return self.api.request(subject, payload, needs=needs, timeout=seconds)
            except ConnectionLostError:
                # To ask twice does no harm: of one name and kind there is one consumer.
                if left <= 0:
                    raise

    def _wait(self, seconds: float) -> None:
        """Wait; less long when the connection is lost or closed meanwhile."""
        session = self.api.connection.session
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

    def retire(self) -> None:
        """Have the consumer deleted, and those of which nobody knows whether they are.

        Without waiting for it, since they go by themselves too.
        """
        self.cursor.name = None
        while self._names and self.delete(self._names[-1]):
            self._names.pop()

    def delete(self, name: str) -> bool:
        """Have one deleted, without waiting for it; False when not connected."""
        subject = f"{self.api.prefix}.CONSUMER.DELETE.{self.stream}.{name}"
        with contextlib.suppress(Error):
            return self.api.connection.session.outbox.command(encode_publish(subject))
        return False

    def __repr__(self) -> str:
        return f"<Place in {self.stream}, {self.cursor!r}>"
