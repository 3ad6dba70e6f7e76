"""Pulls by hand, as nats-py has them: `js.pull_subscribe` and its `fetch` (ADR-15)."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING

from ..errors import (
    ConfigError,
    ConsumerNotFoundError,
    Error,
    SubscriptionClosedError,
    TimeoutError as LateError,
)
from .arguments import at_least
from .pull import check_seconds

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from .._fast import JetStreamMsg
    from ..models import ConsumerInfo
    from .consumer import Consumer
    from .fetch import Batch

_ENDLESS = 30.0
"""Seconds of each pull of a fetch that has no timeout."""
_SHORTEST = 0.001
"""Seconds that a pull is for at least."""


class PullSubscription:
    """A pull consumer, and lists of messages from it, as `JetStream.pull_subscribe` gives.

    Any thread may use it. As a context manager it unsubscribes at the end. What else can
    be done with the consumer, prefetching included, is at `consumer`.
    """

    def __init__(
        self, consumer: Consumer, created: bool, timeout: float | None
    ) -> None:
        self._consumer = consumer
        self._created = created
        self._timeout = timeout
        self._closed = False
        self._delivered = 0

    @property
    def consumer(self) -> Consumer:
        """The consumer, for `messages`, `consume` and the other ways to read it."""
        return self._consumer

    @property
    def created(self) -> bool:
        """Whether the call that made this created the consumer: `unsubscribe` deletes it."""
        return self._created

    @property
    def is_active(self) -> bool:
        """Whether messages can be fetched: it has not been unsubscribed."""
        return not self._closed

    @property
    def delivered(self) -> int:
        """Messages fetched so far."""
        return self._delivered

    @property
    def pending_msgs(self) -> int:
        """Messages that have arrived and are not fetched yet: 0.

        Unlike with nats-py a fetch takes all that comes for it, or gives it back.
        """
        return 0

    @property
    def pending_bytes(self) -> int:
        """Their size: 0."""
        return 0

    def fetch(
        self,
        batch: int = 1,
        timeout: float | None = 5,
        heartbeat: float | None = None,
    ) -> list[JetStreamMsg]:
        """Pull up to `batch` messages; blocks until there is one, at most `timeout` seconds.

        What the stream has now is returned at once, even if it is fewer; only when it has
        none is there a wait, until the batch is full or the time is up. None waits as long
        as it takes for a first message. With `heartbeat` seconds, of which two have to fit
        into the timeout, a server that has gone silent is noticed earlier.

        Raises `TimeoutError` when no message came, `SubscriptionClosedError` after
        `unsubscribe`, and what `Consumer.fetch` raises, but that only when there is no
        message to be returned first. Statuses 404 and 408 are no errors (ADR-15).
        """
        at_least(1, batch, "batch")
        if timeout is not None:
            check_seconds(timeout=timeout)
            if timeout <= 0:
                raise ConfigError(f"timeout has to be above 0 seconds, not {timeout!r}")
        if self._closed:
            raise SubscriptionClosedError(f"{self!r} has been unsubscribed")
        end = None if timeout is None else monotonic() + timeout
        if batch > 1 and (there := self._take(self._consumer.fetch_nowait(batch))):
            return there
        while True:
            left = _ENDLESS if end is None else max(_SHORTEST, end - monotonic())
            pull = self._consumer.fetch(batch, timeout=left, idle_heartbeat=heartbeat)
            if msgs := self._take(pull):
                return msgs
            if self._closed:
                raise SubscriptionClosedError(f"{self!r} has been unsubscribed")
            if end is not None:
                raise LateError(f"no message within {timeout} s") from pull.error

    def _take(self, pull: Batch) -> list[JetStreamMsg]:
        msgs: list[JetStreamMsg] = []
        with pull:
            try:
                msgs.extend(pull)
            except Error:
                # The next fetch meets it again, if it is there to stay.
                if not msgs:
                    raise
        self._delivered += len(msgs)
        return msgs

    def consumer_info(self, *, timeout: float | None = None) -> ConsumerInfo:
        """Ask the server; blocks. Raises `ConsumerNotFoundError`."""
        return self._consumer.info(timeout=timeout or self._timeout)

    def unsubscribe(self) -> None:
        """Fetch no more, and delete the consumer if `pull_subscribe` created it; blocks.

        A consumer that was there before, or is gone already, is left alone. A fetch on
        another thread is not cut short. Raises what the server says against the deletion;
        a second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        if not self._created:
            return
        with contextlib.suppress(ConsumerNotFoundError):
            self._consumer.delete(timeout=self._timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.unsubscribe()
        except Error:
            if error is None:
                raise

    def __repr__(self) -> str:
        state = "active" if self.is_active else "ended"
        return (
            f"<PullSubscription of {self._consumer.name!r} in "
            f"{self._consumer.stream_name!r} {state}, {self._delivered} delivered>"
        )
