"""Pulls by hand, as nats-py has them: `js.pull_subscribe` and its `fetch` (ADR-15)."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from ...checks import seconds, whole
from ...core.deadline import deadline_after
from ...core.gate import Gate
from ...core.session import ConnectionState
from ...core.single import Single
from ...errors import (
    ConnectionClosedError,
    ConsumerNotFoundError,
    DrainTimeoutError,
    Error,
    StreamNotFoundError,
    SubscriptionClosedError,
    TimeoutError as LateError,
)
from ..pulls.engine import fetch_request

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from ..._fast import JetStreamMsg
    from ...checks import Seconds
    from ...models import ConsumerInfo
    from ..api import API
    from ..consumer import Consumer
    from ..pulls.fetch import Batch

_LONGEST = 30.0
"""Seconds of each pull of a fetch that waits longer."""
_SHORTEST = 0.001
"""Seconds that a pull is for at least."""


class PullSubscription(Single):
    """A pull consumer, and lists of messages from it, as `JetStream.pull_subscribe` gives.

    Any thread may use it. As a context manager it unsubscribes at the end. What else can
    be done with the consumer, prefetching included, is at `consumer`.
    """

    def __init__(
        self, api: API, consumer: Consumer, *, created: bool, timeout: Seconds | None
    ) -> None:
        self._session = api.session
        self._consumer = consumer
        self._created = created
        self._timeout = timeout
        self._closed = False
        self._delivered = 0
        self._fetches: set[Gate] = set()  # under way, each open at its end
        api.session.adopt(self)

    @property
    def consumer(self) -> Consumer:
        """The consumer, for `messages`, `consume` and the other ways to read it."""
        return self._consumer

    @property
    def created(self) -> bool:
        """Whether the consumer is to go with this: it was created for it."""
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
        timeout: Seconds | None = 5,
        heartbeat: Seconds | None = None,
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
        whole(batch, "batch", 1)
        if timeout is not None:
            timeout = seconds(timeout, "timeout")
        if heartbeat is not None:
            heartbeat = seconds(heartbeat, "heartbeat")
        longest = _LONGEST if timeout is None else timeout
        fetch_request(batch, None, longest, heartbeat)  # for what it refuses
        under_way = Gate(self._session.outbox)
        self._fetches.add(under_way)
        try:
            return self._fetch(batch, timeout, heartbeat)
        finally:
            self._fetches.discard(under_way)
            under_way.open()

    def _fetch(
        self, batch: int, timeout: float | None, heartbeat: float | None
    ) -> list[JetStreamMsg]:
        self._check_active()
        end = monotonic() + (inf if timeout is None else timeout)
        left = min(end - monotonic(), _LONGEST)
        if batch > 1:
            pull = self._consumer.fetch_nowait(batch, timeout=left)
            if msgs := self._take(pull):
                return msgs
        while True:
            left = max(_SHORTEST, min(end - monotonic(), _LONGEST))
            # What is left of the time may be too short for any to be missed.
            beat = 0.0 if heartbeat is not None and heartbeat * 2 > left else heartbeat
            pull = self._consumer.fetch(batch, timeout=left, idle_heartbeat=beat)
            if msgs := self._take(pull):
                return msgs
            if pull.error is not None:
                raise LateError(f"no message: {pull.error}") from pull.error
            if monotonic() >= end:
                raise LateError(f"no message within {timeout} s")
            self._check_active()

    def _check_active(self) -> None:
        if self._closed:
            raise SubscriptionClosedError(f"{self!r}: it has been unsubscribed")

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

    def consumer_info(self, *, timeout: Seconds | None = None) -> ConsumerInfo:
        """Ask the server; blocks. Raises `ConsumerNotFoundError`."""
        return self._consumer.info(timeout=timeout or self._timeout)

    def unsubscribe(self) -> None:
        """Fetch no more, and delete the consumer if `pull_subscribe` created it; blocks.

        One that was there before is left alone, and one that is gone already is no error.
        A fetch on another thread is not waited for, but ends with its consumer. Raises what
        the server says against the deletion; a second call does nothing, unless it has
        failed.
        """
        self._session.outbox.check_process()
        self._closed = True
        self._delete(self._timeout)

    def drain(self, timeout: Seconds = 30.0) -> None:
        """`unsubscribe`, once the fetches that are under way have their messages.

        Blocks for them at most `timeout` seconds, then raises `DrainTimeoutError`. A
        failure to delete the consumer goes to `on_error`. `Connection.drain` does it too.
        """
        self._session.outbox.check_process()
        timeout = seconds(timeout, "timeout")
        deadline = deadline_after(timeout)
        self.silence()
        self.wait_finished(deadline, timeout)

    def silence(self) -> None:
        """The first step of a drain: begin no more fetches."""
        self._closed = True

    def finish(self) -> None:
        """The second: nothing, since there is no backlog."""

    def wait_finished(self, deadline: float, timeout: float) -> None:
        """Block until no fetch is under way; then delete the consumer."""
        for under_way in list(self._fetches):
            if not under_way.wait(max(0.0, deadline - monotonic())):
                raise DrainTimeoutError(
                    f"{self!r} still had a fetch under way after {timeout} s"
                )
        if self._session.state is ConnectionState.CLOSED:
            return
        try:
            self._delete(self._timeout)
        except Error as error:
            self._session.callbacks.report(error)

    def _delete(self, timeout: Seconds | None) -> None:
        mine, self._created = self._created, False
        if not mine:
            return
        try:
            self._consumer.delete(timeout=timeout)
        except (ConsumerNotFoundError, StreamNotFoundError):
            pass
        except BaseException:
            self._created = True  # it may be tried again
            raise

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
        except ConnectionClosedError:
            pass
        except Error as second:
            if error is None:
                raise
            error.add_note(str(second))

    def __repr__(self) -> str:
        state = "active" if self.is_active else "ended"
        return (
            f"<PullSubscription of {self._consumer.name!r} in "
            f"{self._consumer.stream_name!r} {state}, {self._delivered} delivered>"
        )
