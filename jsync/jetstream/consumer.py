"""Consumers, and the messages that are pulled from them (ADR-37)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._fast import Pin
from ..checks import callback as check_callback, count, seconds
from ..errors import ConfigError, TimeoutError as LateError
from . import management
from .managed import ManagedConsumer
from .pulls.arrow import AHEAD_BYTES, MOST_ROWS, ArrowBatches, arrow_batches
from .pulls.driver import ContinuousPull
from .pulls.engine import consume_limits, fetch_request, idle_seconds
from .pulls.faces import (
    ConsumeContext,
    MessagesContext,
    check_exception,
)
from .pulls.fetch import Batch, PullOfOne, SinglePull
from .pulls.inbox import Source
from .pulls.priority import claim

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._fast import JetStreamMsg
    from ..checks import Seconds
    from ..models import (
        ConsumerInfo,
    )
    from .api import API
    from .pulls.faces import OnException


class Consumer(ManagedConsumer):
    """A pull consumer, as `create_consumer` and `consumer` of streams and `JetStream` give.

    Any thread may use it. Each call has a pull of its own, and its subscription to itself.
    """

    def __init__(
        self, api: API, stream: str, name: str, info: ConsumerInfo | None = None
    ) -> None:
        super().__init__(api, stream, name, info)
        self._pins: dict[str, Pin] = {}
        self._idle: list[PullOfOne] = []  # of the last `next`, one at most

    def unpin(self, group: str, *, timeout: Seconds | None = None) -> None:
        """Have another client of a priority group pinned; blocks.

        Raises `PriorityGroupError` for a group that it does not have. Needs nats-server
        2.11.
        """
        management.unpin_consumer(self._api, self._stream, self._name, group, timeout)

    # Pulling --------------------------------------------------------------------------

    def next(
        self,
        timeout: Seconds = 5.0,
        *,
        idle_heartbeat: Seconds | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
    ) -> JetStreamMsg:
        """Pull one message and block until it has come, at most `timeout` seconds.

        Raises `TimeoutError` when there is none, and otherwise what `fetch` raises or
        leaves in `Batch.error`. In a loop this is one round trip for each message: prefer
        `fetch`. The other options are those of `fetch`.
        """
        timeout = seconds(timeout, "timeout")
        if idle_heartbeat is not None:
            idle_heartbeat = seconds(idle_heartbeat, "idle_heartbeat")
        pull: SinglePull | None = None
        if (
            self._idle
            and group is None
            and min_pending is None
            and min_ack_pending is None
            and priority is None
        ):
            pull = self._idle_pull(timeout, idle_heartbeat)
        if pull is None:
            what = self._info, timeout, idle_heartbeat
            request = fetch_request(1, None, timeout, idle_heartbeat)
            source = self._source(group, min_pending, min_ack_pending, priority)
            if group is None:
                pull = PullOfOne(source, request, timeout, what)
            else:  # its pin id may be another each time
                pull = SinglePull(source, request, timeout)
        msg = None
        try:
            msg = pull.take()
        finally:
            if msg is not None and isinstance(pull, PullOfOne) and not self._idle:
                self._idle.append(pull)
            else:
                pull.leave()
        if msg is None:
            raise pull.error or LateError(f"no message within {timeout} s")
        return msg

    def _idle_pull(
        self, timeout: float, idle_heartbeat: float | None
    ) -> PullOfOne | None:
        """The pull of the last `next`, if it asks for the same."""
        try:
            pull = self._idle.pop()
        except IndexError:  # another thread was quicker
            return None
        info, *waits = pull.what
        if waits == [timeout, idle_heartbeat] and info is self._info:
            return pull
        return None

    def fetch(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        timeout: Seconds = 5.0,
        idle_heartbeat: Seconds | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
    ) -> Batch:
        """Pull up to `max_messages`, or up to `max_bytes`; give what comes as it comes.

        The pull is sent at the call, which does not block but while reconnecting. The
        batch ends when it is full or the server ends it after `timeout` seconds, perhaps
        empty. `max_bytes` counts as the server does: subject, reply, headers, payload.
        While the server is silent for twice `idle_heartbeat` seconds (by default 5 when
        `timeout` is 10 or longer, else none) the pull is given up.

        A consumer with priority groups (ADR-42, nats-server 2.11) is pulled from as a
        member of `group`. By its policy: `overflow` serves this pull only while at least
        `min_pending` messages wait to be delivered, or `min_ack_pending` for their acks;
        `prioritized` (2.12) serves pulls of `priority` 0 first, 9 last; `pinned_client`
        serves one client alone until that stops pulling. That client is this object: what
        it is known by is kept here, so that its next call goes on with it, and a pull
        refused because another is pinned by now waits in the line again.

        While iterating raises, after the messages that have come: `ConsumerDeletedError`,
        `PullError` when the server refuses the pull or its heartbeats stay away,
        `NoRespondersError` when there is no such consumer, which has been looked for twice
        again by then, within half a second, and `ConnectionLostError`. An end
        for which nobody is to blame, as a leader change, is in `Batch.error` alone.
        Raises `ConfigError` before anything is sent, also for what the consumer's
        configuration, as of `cached_info`, excludes, and `UnsupportedFeatureError` when
        the server is too old for priority groups.
        """
        timeout = seconds(timeout, "timeout")
        request = fetch_request(max_messages, max_bytes, timeout, idle_heartbeat)
        source = self._source(group, min_pending, min_ack_pending, priority)
        return Batch(SinglePull(source, request, timeout))

    def fetch_nowait(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        timeout: Seconds | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
    ) -> Batch:
        """Like `fetch`, but of what the stream has now: the server does not wait.

        Its answer is waited for at most `timeout` seconds, by default the context's.
        """
        wait = self._api.seconds(timeout)
        request = fetch_request(max_messages, max_bytes, wait, 0.0, no_wait=True)
        source = self._source(group, min_pending, min_ack_pending, priority)
        return Batch(SinglePull(source, request, wait))

    def messages(
        self,
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        expires: Seconds = 30.0,
        idle_heartbeat: Seconds | None = None,
        stop_after: int | None = None,
        idle_timeout: Seconds | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> MessagesContext:
        """Messages without end, prefetched, to iterate over; does not block.

        Up to `max_messages` (500 by default) or `max_bytes` are asked for ahead, and
        more when `threshold_messages` or `threshold_bytes` (half of it) are left. A pull
        lasts `expires` seconds; `idle_heartbeat` seconds (half of that, at most 30) is
        how often the server says that it is there. After `stop_after` messages it ends,
        and so it does, while connected, when the iteration has waited `idle_timeout`
        seconds for a message in vain. For priority groups see `fetch`.

        It goes on through reconnects, leader changes and lost heartbeats, and ends only
        when it is stopped, the consumer is deleted, or the connection closes. Warnings
        go to the log (`jsync.consume`) and to `on_error`, by default the connection's, on
        the callback thread: `MissedHeartbeatError`, `PullError`, `NoRespondersError`.
        """
        idle_timeout = idle_seconds(idle_timeout)
        limits = consume_limits(
            max_messages=max_messages,
            max_bytes=max_bytes,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
            expires=expires,
            idle_heartbeat=idle_heartbeat,
            stop_after=stop_after,
        )
        source = self._source(group, min_pending, min_ack_pending, priority)
        check_callback(on_error, "on_error")
        return MessagesContext(ContinuousPull(source, limits, on_error), idle_timeout)

    def arrow_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        max_rows: int = MOST_ROWS,
        max_wait: Seconds = 0.1,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        expires: Seconds = 30.0,
        idle_heartbeat: Seconds | None = None,
        stop_after: int | None = None,
        idle_timeout: Seconds | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> ArrowBatches:
        """Messages without end as Arrow record batches, prefetched; does not block.

        Without an object for each message: see `ArrowBatch` for the columns, of which
        `columns` names those that are wanted, in that order, and for the acks. A batch has
        `max_rows` messages, or those that have come within `max_wait` seconds behind its
        first one; also less than `max_rows` when no more can come before it is handed over:
        half of what is asked for ahead, or the consumer's `max_ack_pending`.

        Ahead is asked for `max_messages` or `max_bytes`, 16 MiB by default. Everything
        else is as with `messages`.
        """
        if max_messages is None and max_bytes is None:
            max_bytes = AHEAD_BYTES
        limits = consume_limits(
            max_messages=max_messages,
            max_bytes=max_bytes,
            expires=expires,
            idle_heartbeat=idle_heartbeat,
            stop_after=stop_after,
        )
        source = self._source(group, min_pending, min_ack_pending, priority)
        check_callback(on_error, "on_error")
        return arrow_batches(
            lambda: ContinuousPull(source, limits, on_error),
            source,
            None if self._info is None else self._info.config,
            columns=columns,
            max_rows=max_rows,
            max_wait=max_wait,
            max_messages=max_messages,
            max_bytes=max_bytes,
            idle_timeout=idle_timeout,
        )

    def consume(
        self,
        handler: Callable[[JetStreamMsg], object],
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        expires: Seconds = 30.0,
        idle_heartbeat: Seconds | None = None,
        stop_after: int | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
        workers: int = 1,
        on_exception: OnException = "continue",
        nak_delay: Seconds | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> ConsumeContext:
        """Have `handler` called with each message, on a thread of its own.

        With several `workers` it is called on so many threads, at the same time, and the
        order of the messages is kept no longer. Everything else is as with `messages`. A
        handler that raises is reported to `on_error` as `CallbackError`, and logged with
        its traceback. `on_exception` says what happens to its message:

        - `continue`: the message gets no ack.
        - `nak`: the server redelivers it, at once or after `nak_delay` seconds.
        - `term`: the server does not deliver it again.
        - `stop`: consuming ends.

        The server gives a message up after `max_deliver` failures. With `nak` and without
        `nak_delay` this takes milliseconds, so jsync emits a `RuntimeWarning` if the
        consumer's `cached_info` has a `max_deliver`.
        """
        config = None if self._info is None else self._info.config
        delay = check_exception(on_exception, nak_delay, config)
        if not callable(handler):
            raise ConfigError("handler has to be callable")
        workers = count(workers, "workers", 1)
        limits = consume_limits(
            max_messages=max_messages,
            max_bytes=max_bytes,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
            expires=expires,
            idle_heartbeat=idle_heartbeat,
            stop_after=stop_after,
        )
        source = self._source(group, min_pending, min_ack_pending, priority)
        check_callback(on_error, "on_error")
        pull = ContinuousPull(source, limits, on_error, readers=workers)
        session = self._api.session
        return ConsumeContext(
            pull, handler, on_exception, session, self.name, workers, delay
        )

    def _source(
        self,
        group: str | None,
        min_pending: int | None,
        min_ack_pending: int | None,
        priority: int | None,
    ) -> Source:
        """What a pull has to know; raises `ConfigError` and `UnsupportedFeatureError`."""
        config = None if self._info is None else self._info.config
        claimed = claim(group, min_pending, min_ack_pending, priority, config)
        self._api.require(claimed.needs)
        pin = None
        if group is not None and (
            config is None or config.priority_policy == "pinned_client"
        ):
            pin = self._pins.setdefault(group, Pin())
        return Source(
            self._api,
            f"{self._stream}.{self._name}",
            acks=config is None or config.ack_policy != "none",
            claim=claimed,
            pin=pin,
            acks_all=config is not None and config.ack_policy == "all",
            max_ack_pending=0 if config is None else config.max_ack_pending or 0,
        )

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} of {self.stream_name!r}>"
