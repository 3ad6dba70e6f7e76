"""The subscription of a pull consumer: what `JetStream.pull_subscribe` returns (ADR-15)."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from ... import errors
from ..._fast import safe_finalizer
from ...core.clock import deadline_after
from ...core.drain import Drainable
from ...core.resources import NotCopyable, UnsubscribeOnExit
from ...core.session import ConnectionState
from ...core.sync import Latch
from ...errors import DrainTimeoutError, Error, SubscriptionClosedError
from ...validation import check_int, check_seconds, format_seconds
from ..consumer import fetch_available
from ..pulls.engine import fetch_request
from ..push.engine import Ownership
from ..push.ownership import ConsumerOwnership

if TYPE_CHECKING:
    from ..._fast import JetStreamMsg
    from ...models import ConsumerInfo
    from ...validation import Seconds
    from ..api import API
    from ..consumer import Consumer
    from ..pulls.pull import Batch

_MAX_PULL_SECONDS = 30.0
"""The longest pull in seconds. A longer fetch sends several pulls."""
_MIN_PULL_SECONDS = 0.001
"""The shortest pull in seconds."""


class PullSubscription(UnsubscribeOnExit, Drainable, NotCopyable):
    """A pull consumer that returns lists of messages.

    `JetStream.pull_subscribe` returns it. Any thread may use it. Leaving the `with`
    block unsubscribes. `consumer` has all other ways to read.

    Example:
        ```python
        with js.pull_subscribe("orders.new", durable="billing", keep=True) as sub:
            for msg in sub.fetch(2, timeout=1):
                msg.ack()
        ```
    """

    def __init__(
        self, api: API, consumer: Consumer, *, created: bool, timeout: Seconds | None
    ) -> None:
        self._api = api
        self._session = api.session
        self._consumer = consumer
        self._own = ConsumerOwnership()
        self._own.try_to(Ownership.OURS if created else Ownership.THEIRS)
        self._timeout = timeout
        self._closed = False
        self._delivered = 0
        # Fetches that run. Each latch is set at the end of its fetch.
        self._fetches: set[Latch] = set()
        api.session.register_drainable(self)

    @property
    def consumer(self) -> Consumer:
        """The consumer, for `messages`, `consume` and the other ways to read it."""
        return self._consumer

    @property
    def created(self) -> bool:
        """True if this subscription created the consumer, and will delete it."""
        return self._own.current is Ownership.OURS

    @property
    def is_active(self) -> bool:
        """True if you can fetch messages, because you have not unsubscribed."""
        return not self._closed

    @property
    def delivered(self) -> int:
        """Messages fetched so far."""
        return self._delivered

    @property
    def pending_msgs(self) -> int:
        """Messages that have arrived and are not fetched yet: always 0.

        A fetch takes all messages that come for it, or returns them to the server.
        """
        return 0

    @property
    def pending_bytes(self) -> int:
        """The bytes of these messages: always 0."""
        return 0

    def fetch(
        self,
        batch: int = 1,
        timeout: Seconds | None = 5,
        heartbeat: Seconds | None = None,
    ) -> list[JetStreamMsg]:
        """Pull messages. Blocks until there is at least one.

        If the stream has messages now, the call returns them immediately, even if they
        are fewer than `batch`. Otherwise it waits for the first message, as nats-py does.

        Args:
            batch: The most messages to return.
            timeout: Seconds to wait. None: no limit for the first message.
            heartbeat: Seconds between heartbeats of the server, at most half of
                `timeout`. They show early that a server has gone silent.

        Returns:
            The messages.

        Raises:
            TimeoutError: No message came in time.
            SubscriptionClosedError: You have unsubscribed.
            ConsumerDeletedError: The consumer was deleted, and there is no message.
            NoRespondersError: There is no such consumer.
            PullError: The server rejects the pull, and there is no message.
            ConnectionLostError: The connection broke, and there is no message.

        Example:
            ```python
            subscription = js.pull_subscribe("orders.*", durable="billing", keep=True)
            for msg in subscription.fetch(3, timeout=5):
                msg.ack()
            ```
        """
        check_int(batch, "batch", 1)
        if timeout is not None:
            timeout = check_seconds(timeout, "timeout")
        if heartbeat is not None:
            heartbeat = check_seconds(heartbeat, "heartbeat")
        longest = _MAX_PULL_SECONDS if timeout is None else timeout
        fetch_request(batch, None, longest, heartbeat)  # validates the arguments
        under_way = Latch(self._session.write_buffer)
        self._fetches.add(under_way)
        try:
            return self._fetch(batch, timeout, heartbeat)
        finally:
            self._fetches.discard(under_way)
            under_way.set()

    def _fetch(
        self, batch: int, timeout: float | None, heartbeat: float | None
    ) -> list[JetStreamMsg]:
        self._check_active()
        end = monotonic() + (inf if timeout is None else timeout)
        refused = False
        while True:
            begin = monotonic()
            left = max(_MIN_PULL_SECONDS, min(end - begin, _MAX_PULL_SECONDS))
            # The remaining time may be too short to notice a missing heartbeat.
            beat = 0.0 if heartbeat is not None and heartbeat * 2 > left else heartbeat
            if refused:  # the server has messages, but other pulls wait for them
                pull = self._consumer.fetch(1, timeout=left, idle_heartbeat=beat)
            else:
                pull = fetch_available(
                    self._consumer, batch, timeout=left, idle_heartbeat=beat
                )
            if msgs := self._take(pull):
                return msgs
            if pull.error is not None:
                raise errors.TimeoutError(f"no message: {pull.error}") from pull.error
            now = monotonic()
            if now >= end:
                raise errors.TimeoutError(
                    f"no message within {format_seconds(timeout)}"
                )
            refused = not refused and now < begin + left
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
                # If the error persists, the next fetch raises it.
                if not msgs:
                    raise
        self._delivered += len(msgs)
        return msgs

    def consumer_info(self, *, timeout: Seconds | None = None) -> ConsumerInfo:
        """Get the configuration and the state of the consumer from the server. Blocks.

        Args:
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The info.

        Raises:
            ConsumerNotFoundError: The consumer does not exist.

        Example:
            ```python
            subscription = js.pull_subscribe("orders.*", durable="billing", keep=True)
            print(subscription.consumer_info().num_pending)
            ```
        """
        return self._consumer.info(
            timeout=self._timeout if timeout is None else timeout
        )

    def unsubscribe(self) -> None:
        """End fetching, and delete the consumer if `pull_subscribe` created it.

        Blocks. A consumer that existed before stays, and a missing one is no error. A
        fetch on another thread is not waited for, but ends with its consumer. A second
        call does nothing, unless the deletion failed.

        Raises:
            APIError: The server rejects the deletion.

        Example:
            ```python
            subscription = js.pull_subscribe("orders.*", durable="billing", keep=True)
            subscription.unsubscribe()  # with keep=True, the consumer stays
            ```
        """
        self._session.write_buffer.check_process()
        self._closed = True
        self._delete()

    def drain(self, timeout: Seconds = 30.0) -> None:
        """Unsubscribe, once the running fetches have their messages.

        Blocks. A failure to delete the consumer goes to `on_error`. `Connection.drain`
        does the same.

        Args:
            timeout: Seconds to wait. Default: 30.

        Raises:
            DrainTimeoutError: A fetch has not ended in time.
        """
        self._session.write_buffer.check_process()
        timeout = check_seconds(timeout, "timeout")
        deadline = deadline_after(timeout)
        self._stop_delivery()
        self._wait_finished(deadline, timeout)

    def _stop_delivery(self) -> None:
        """Begin no more fetches, as the first step of a drain."""
        self._closed = True

    def _wait_finished(self, deadline: float, timeout: float) -> None:
        """Block until no fetch is running, then delete the consumer."""
        for under_way in list(self._fetches):
            if not under_way.wait(max(0.0, deadline - monotonic())):
                raise DrainTimeoutError(
                    f"{self!r} still had a fetch under way after {format_seconds(timeout)}"
                )
        if self._session.state is ConnectionState.CLOSED:
            return
        try:
            self._delete()
        except Error as error:
            self._session.callbacks.report(error)

    def _delete(self) -> None:
        self._own.delete(lambda: self._consumer.delete(timeout=self._timeout))

    @safe_finalizer
    def __del__(self) -> None:
        own = getattr(self, "_own", None)
        # None if Ctrl-C interrupted __init__. The info of our own consumer is cached.
        if own is not None and own.current is Ownership.OURS:
            own.delete_on_drain(self._api, self._consumer.cached_info)

    def __repr__(self) -> str:
        state = "active" if self.is_active else "ended"
        return (
            f"<PullSubscription of {self._consumer.name!r} in "
            f"{self._consumer.stream_name!r} {state}, {self._delivered} delivered>"
        )
