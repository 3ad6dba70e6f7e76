"""Consumers, and the messages that are pulled from them (ADR-37)."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .. import errors
from .._fast import PinId
from ..health import CONFIRM_SECONDS
from ..hints import explain_arguments
from ..validation import (
    check_callable,
    check_count,
    check_optional_callable,
    check_seconds,
    check_str,
    format_seconds,
)
from .features import UNPIN
from .management import BaseConsumer
from .pulls.arrow import MAX_ROWS, PREFETCH_BYTES, ArrowBatches, arrow_batches
from .pulls.consume import ConsumeContext, check_error_policy
from .pulls.driver import ContinuousPull
from .pulls.engine import NANOSECONDS, consume_limits, fetch_request, idle_seconds
from .pulls.inbox import PullTarget
from .pulls.messages import MessagesContext
from .pulls.priority import NO_OPTIONS, NO_PRIORITY, check_priority_options
from .pulls.pull import Batch, Pull, ReusablePull
from .retries.driver import RetryHandler
from .retries.engine import extension_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._fast import JetStreamMsg
    from ..models import ConsumerConfig, ConsumerInfo
    from ..validation import Seconds
    from .api import API
    from .pulls.consume import OnException
    from .retries.engine import Retry


class Consumer(BaseConsumer):
    """A pull consumer. Any thread may use it.

    `create_consumer` and `consumer` of `Stream` and `JetStream` return it. Each call
    makes its own pull requests, and no two calls share a subscription.

    Example:
        ```python
        consumer = stream.create_consumer(durable_name="billing", max_deliver=5)
        for msg in consumer.fetch_nowait(100):
            print(msg.subject, msg.data)
            msg.ack()
        ```
    """

    def __init__(
        self, api: API, stream: str, name: str, info: ConsumerInfo | None = None
    ) -> None:
        super().__init__(api, stream, name, info)
        self._pins: dict[str, PinId] = {}
        self._idle: list[ReusablePull] = []  # at most one, reused by the next `next`

    def unpin(self, group: str, *, timeout: Seconds | None = None) -> None:
        """Let the server pin another client of a priority group. Blocks.

        Needs nats-server 2.11. (ADR-42)

        Args:
            group: The name of the priority group.
            timeout: Seconds to wait. Default: the context's.

        Raises:
            PriorityGroupError: The consumer has no such group.
            ConsumerNotFoundError: The consumer does not exist.
            UnsupportedFeatureError: The server is too old. Nothing is sent.
        """
        self._request("UNPIN", {"group": check_str(group, "group")}, UNPIN, timeout)

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
        """Pull one message, and block until it has come.

        Each call takes one round trip. To read many messages, prefer `fetch` or
        `messages`.

        Args:
            timeout: Seconds to wait.
            idle_heartbeat: Seconds between heartbeats of the server. See `fetch`.
            group: The priority group to pull as. See `fetch`.
            min_pending: Only while at least this number of messages wait. See `fetch`.
            min_ack_pending: Only while at least this number of acks are missing. See
                `fetch`.
            priority: The priority of this pull. See `fetch`.

        Returns:
            The message.

        Raises:
            TimeoutError: No message came in time.
            ConsumerDeletedError: The consumer was deleted.
            NoRespondersError: There is no such consumer.
            PullError: The server rejects the pull, ends it early, or has gone silent.
            ConnectionLostError: The connection broke.
            ConfigError: The arguments cannot be combined. Nothing is sent.
            UnsupportedFeatureError: The server is too old for priority groups.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            msg = consumer.next(timeout=5)
            print(msg.data)
            msg.ack()
            ```
        """
        timeout = check_seconds(timeout, "timeout")
        if idle_heartbeat is not None:
            idle_heartbeat = check_seconds(idle_heartbeat, "idle_heartbeat")
        pull: Pull | None = None
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
            target = self._pull_target(group, min_pending, min_ack_pending, priority)
            if group is None:
                pull = ReusablePull(target, request, timeout, what)
            else:  # the pin id may change between calls
                pull = Pull(target, request, timeout)
        msg = None
        try:
            msg = pull.take()
        finally:
            if msg is not None and isinstance(pull, ReusablePull) and not self._idle:
                self._idle.append(pull)
            else:
                pull.close()
        if msg is None:
            raise pull.error or errors.TimeoutError(
                f"no message within {format_seconds(timeout)}"
            )
        return msg

    def _idle_pull(
        self, timeout: float, idle_heartbeat: float | None
    ) -> ReusablePull | None:
        """Return the pull of the last `next` if its options are equal, or None."""
        try:
            pull = self._idle.pop()
        except IndexError:  # another thread was faster
            return None
        info, seconds_before, heartbeat_before = pull.key
        if (
            seconds_before == timeout
            and heartbeat_before == idle_heartbeat
            and info is self._info
        ):
            return pull
        return None

    @explain_arguments
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
        """Pull a batch of messages, and iterate over them as they come.

        The call sends the pull and does not block, except while reconnecting. Iterating
        blocks. The batch ends when it is full, or when the server ends it after
        `timeout` seconds. It may be empty.

        The errors below are raised by iterating, after the messages that have come,
        except for `ConfigError` and `UnsupportedFeatureError`. An end that is no
        failure, such as a leader change, is only in `Batch.error`.

        Priority groups need nats-server 2.11 (ADR-42). With the policy `pinned_client`,
        the server serves one client alone until that client stops pulling. That client
        is this object, so its next call stays pinned. A pull that is rejected because
        another client is pinned waits in line again.

        Args:
            max_messages: The most messages of the batch.
            max_bytes: The most bytes of the batch: subject, reply, headers and payload.
                Give `max_messages` or `max_bytes`, not both.
            timeout: Seconds until the server ends the batch.
            idle_heartbeat: Seconds between heartbeats of the server. The pull fails
                after twice this time without any. Default: 5 if `timeout` is 10 or
                longer, otherwise none.
            group: The priority group to pull as.
            min_pending: With the policy `overflow`: serve this pull only while at least
                this number of messages wait to be delivered.
            min_ack_pending: With the policy `overflow`: serve this pull only while at
                least this number of messages wait for their acks.
            priority: With the policy `prioritized`: 0 is served first, 9 last. Needs
                nats-server 2.12.

        Returns:
            The batch.

        Raises:
            ConsumerDeletedError: The consumer was deleted.
            NoRespondersError: There is no such consumer. jsync retried twice before,
                within half a second.
            PullError: The server rejects the pull, or its heartbeats are missing.
            ConnectionLostError: The connection broke.
            ConfigError: The arguments cannot be combined, or do not fit the consumer's
                `cached_info`. Nothing is sent.
            UnsupportedFeatureError: The server is too old for priority groups.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            with consumer.fetch(2, timeout=5) as batch:
                for msg in batch:
                    print(msg.data)
                    msg.ack()
            ```
        """
        request = fetch_request(max_messages, max_bytes, timeout, idle_heartbeat)
        target = self._pull_target(group, min_pending, min_ack_pending, priority)
        return Batch(Pull(target, request, request.expires / NANOSECONDS))

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
        """Pull the messages that the stream has now. The server does not wait for more.

        Otherwise the call works as `fetch` does, and raises the same errors.

        Args:
            max_messages: The most messages of the batch.
            max_bytes: The most bytes of the batch. Give `max_messages` or `max_bytes`,
                not both.
            timeout: Seconds to wait for the answer. Default: the context's.
            group: The priority group to pull as. See `fetch`.
            min_pending: Only while at least this number of messages wait. See `fetch`.
            min_ack_pending: Only while at least this number of acks are missing. See
                `fetch`.
            priority: The priority of this pull. See `fetch`.

        Returns:
            The batch.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            for msg in consumer.fetch_nowait(100):
                print(msg.data)
                msg.ack()
            ```
        """
        wait = self._api.seconds(timeout)
        request = fetch_request(max_messages, max_bytes, wait, 0.0, no_wait=True)
        target = self._pull_target(group, min_pending, min_ack_pending, priority)
        return Batch(Pull(target, request, wait))

    @explain_arguments
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
        """Iterate over messages without end, prefetched. Does not block.

        The iteration continues through reconnects, leader changes and missing
        heartbeats. It ends only if you stop it, if the consumer is deleted, or if the
        connection closes.

        Args:
            max_messages: Messages to prefetch. Default: 500.
            max_bytes: Bytes to prefetch, instead of `max_messages`.
            threshold_messages: Request more when the number of buffered messages falls
                to this value. Default: half of `max_messages`.
            threshold_bytes: Request more when the buffered bytes fall to this value.
                Default: half of `max_bytes`.
            expires: Seconds that a pull lasts. Default: 30.
            idle_heartbeat: Seconds between heartbeats of the server. Default: half of
                `expires`, at most 30.
            stop_after: End after this number of messages.
            idle_timeout: End if no message came for this number of seconds while
                connected.
            group: The priority group to pull as. See `fetch`.
            min_pending: Only while at least this number of messages wait. See `fetch`.
            min_ack_pending: Only while at least this number of acks are missing. See
                `fetch`.
            priority: The priority of the pulls. See `fetch`.
            on_error: Called with `MissedHeartbeatError`, `PullError` or
                `NoRespondersError`, on the connection's callback thread. They do not
                end the iteration, and are logged to `jsync.consume`. Default: the
                connection's `on_error`.

        Returns:
            The messages, to be used in a `with` statement.

        Raises:
            ConfigError: The arguments cannot be combined. Nothing is sent.
            ConsumerDeletedError: Raised by iterating: the consumer was deleted.
            ConnectionClosedError: The connection is closed.
            UnsupportedFeatureError: The server is too old for priority groups.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            with consumer.messages() as messages:
                for msg in messages:
                    print(msg.data)
                    msg.ack()
                    break  # a worker would continue
            ```
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
        target = self._pull_target(group, min_pending, min_ack_pending, priority)
        check_optional_callable(on_error, "on_error")
        pull = ContinuousPull(target, limits, on_error)
        messages = MessagesContext(pull, idle_timeout)
        pull.begin()
        return messages

    def arrow_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        max_rows: int = MAX_ROWS,
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
        """Iterate over Arrow record batches without end, prefetched. Does not block.

        `ArrowBatch` describes the columns and the acks. A batch may have fewer than
        `max_rows` messages if no more can come before your acks: half of the prefetched
        messages, or the consumer's `max_ack_pending`. The rest is as with `messages`,
        errors included.

        Args:
            columns: The names of the columns, in their order. Default: all.
            max_rows: Messages of a batch at most.
            max_wait: Seconds to wait for more messages after the first one of a batch.
            max_messages: Messages to prefetch, instead of `max_bytes`.
            max_bytes: Bytes to prefetch. Default: 16 MiB.
            expires: Seconds that a pull lasts. Default: 30.
            idle_heartbeat: Seconds between heartbeats of the server. Default: half of
                `expires`, at most 30.
            stop_after: End after this number of messages.
            idle_timeout: End if no message came for this number of seconds while
                connected.
            group: The priority group to pull as. See `fetch`.
            min_pending: Only while at least this number of messages wait. See `fetch`.
            min_ack_pending: Only while at least this number of acks are missing. See
                `fetch`.
            priority: The priority of the pulls. See `fetch`.
            on_error: Called with errors that do not end the iteration. See `messages`.

        Returns:
            The batches, to be used in a `with` statement.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            with consumer.arrow_batches(max_rows=1000, stop_after=3) as batches:
                for batch in batches:
                    print(len(batch), "rows")
                    batch.ack()
            ```
        """
        if max_messages is None and max_bytes is None:
            max_bytes = PREFETCH_BYTES
        limits = consume_limits(
            max_messages=max_messages,
            max_bytes=max_bytes,
            expires=expires,
            idle_heartbeat=idle_heartbeat,
            stop_after=stop_after,
        )
        target = self._pull_target(group, min_pending, min_ack_pending, priority)
        check_optional_callable(on_error, "on_error")
        return arrow_batches(
            lambda: ContinuousPull(target, limits, on_error),
            target,
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
        workers: int | None = None,
        on_exception: OnException = "continue",
        nak_delay: Seconds | None = None,
        retry: Retry | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> ConsumeContext:
        """Call a handler with each message, on the callback pool. Does not block.

        The handler acknowledges the messages. If the handler raises, `on_error` gets a
        `CallbackError`, and the traceback is logged. The rest is as with `messages`.

        The server gives a message up after `max_deliver` deliveries. With
        `on_exception="nak"` and without `nak_delay` this takes milliseconds, so jsync
        emits a `RuntimeWarning` if the consumer's `cached_info` has a `max_deliver`.

        Args:
            handler: Called with each message.
            max_messages: Messages to prefetch. Default: 500. With `retry` each thread has
                one message, and none waits, because a message that is given back at the
                end has used up an attempt.
            max_bytes: Bytes to prefetch, instead of `max_messages`.
            threshold_messages: Request more when the number of buffered messages falls
                to this value. Default: half of `max_messages`.
            threshold_bytes: Request more when the buffered bytes fall to this value.
                Default: half of `max_bytes`.
            expires: Seconds that a pull lasts. Default: 30.
            idle_heartbeat: Seconds between heartbeats of the server. Default: half of
                `expires`, at most 30.
            stop_after: End after this number of messages.
            group: The priority group to pull as. See `fetch`.
            min_pending: Only while at least this number of messages wait. See `fetch`.
            min_ack_pending: Only while at least this number of acks are missing. See
                `fetch`.
            priority: The priority of the pulls. See `fetch`.
            workers: Threads that call this handler alone, at the same time. With
                several, the order of the messages is lost. Default: none, the
                connection's callback pool calls the handler with one message at a time:
                see `callback_threads` of `jsync.connect`.
            on_exception: The fate of a message whose handler raised. `continue` sends
                no ack. `nak` has the server redeliver the message. `term` ends its
                deliveries. `stop` ends the consuming.
            nak_delay: Seconds until the redelivery, with `nak`. Default: immediately.
            retry: Deliver failed messages again with growing delays, and end them as
                dead letters. See `Retry`. `on_error` gets `RetriesExhaustedError` for each
                message that ended, and `DeadLetterError` if its dead letter could not be
                stored. Requests the configuration of a consumer without
                `cached_info`.
            on_error: Called with errors that do not end the consuming, on the
                connection's callback thread. Default: the connection's `on_error`.

        Returns:
            The running handler, to be used in a `with` statement.

        Raises:
            ConfigError: The arguments cannot be combined. Nothing is sent.
            ConnectionClosedError: The connection is closed.
            ConsumerNotFoundError: The consumer does not exist, with `retry`.
            TimeoutError: The server does not tell the consumer's configuration, with
                `retry`.
            UnsupportedFeatureError: The server is too old for priority groups.

        Example:
            ```python
            import threading

            done = threading.Event()

            def bill(msg: jsync.JetStreamMsg) -> None:
                print(msg.data)
                msg.ack()
                done.set()

            consumer = stream.create_consumer(durable_name="billing")
            with consumer.consume(bill, workers=4):
                done.wait(10)
            ```
        """
        check_callable(handler, "handler")
        if workers is not None:
            workers = check_count(workers, "workers", 1)
        check_optional_callable(on_error, "on_error")
        if retry is not None and self._info is None:
            # The `ack_wait` and `max_deliver` decide how messages are kept alive and end.
            check_error_policy(on_exception, nak_delay, retry, None)
            self.info()
        config = None if self._info is None else self._info.config
        delay = check_error_policy(on_exception, nak_delay, retry, config)
        holds = retry is not None and max_messages is None and max_bytes is None
        if holds:
            max_messages = workers or 1
            threshold_messages = max_messages - 1
        limits = consume_limits(
            max_messages=max_messages,
            max_bytes=max_bytes,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
            expires=expires,
            idle_heartbeat=idle_heartbeat,
            stop_after=stop_after,
        )
        target = self._pull_target(group, min_pending, min_ack_pending, priority)
        readers = workers or 1
        pull = ContinuousPull(target, limits, on_error, readers=readers, holds=holds)
        session = self._api.session
        retrier = None
        if retry is not None:
            retrier = RetryHandler(
                session, retry, config, self._api.timeout, pull.report
            )
        work = ConsumeContext(
            *(
                pull,
                handler,
                on_exception,
                session,
                self._name,
                workers,
                delay,
                retrier,
            ),
            done=pull.done if holds else None,
        )
        if retrier is not None:
            mailbox = pull.mailbox
            pull.keep_alive(lambda: retrier.interval)
            retrier.follow(self._api, pull.name, lambda: mailbox.closed)
        pull.begin()
        return work

    def _pull_target(
        self,
        group: str | None,
        min_pending: int | None,
        min_ack_pending: int | None,
        priority: int | None,
    ) -> PullTarget:
        """Build the target of a pull. Raises `ConfigError` and `UnsupportedFeatureError`."""
        config = None if self._info is None else self._info.config
        claimed, pin = NO_PRIORITY, None
        options = group, min_pending, min_ack_pending, priority
        if options != NO_OPTIONS or (config is not None and config.priority_groups):
            claimed = check_priority_options(*options, config)
            if claimed.group:
                self._api.require(claimed.required_features)
            if group is not None and (
                config is None or config.priority_policy == "pinned_client"
            ):
                pin = self._pins.setdefault(group, PinId())
        limit = 0 if config is None else config.max_ack_pending or 0
        return PullTarget(
            self._api,
            f"{self._stream}.{self._name}",
            acks=config is None or config.ack_policy != "none",
            priority=claimed,
            pin=pin,
            acks_all=config is not None and config.ack_policy == "all",
            max_unacked=inf if limit < 0 else limit,
        )

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} of {self.stream_name!r}>"


def fetch_available(
    consumer: Consumer,
    max_messages: int,
    *,
    timeout: float,
    idle_heartbeat: float | None,
) -> Batch:
    """Pull the messages that the stream has now, or else wait for the first one.

    The server ends the pull after the last message that it has. It refuses the pull
    immediately if messages exist, but other waiting pulls have requested them.
    """
    request = fetch_request(max_messages, None, timeout, idle_heartbeat)
    target = consumer._pull_target(None, None, None, None)
    return Batch(Pull(target, replace(request, no_wait=True), timeout))


def consume_held(
    consumer: Consumer,
    handler: Callable[[JetStreamMsg], object],
    *,
    max_messages: int,
    workers: int,
    on_error: Callable[[Exception], object],
) -> ConsumeContext:
    """Call a handler as `Consumer.consume` does, and hold at most `max_messages` messages.

    Unlike there, a message counts until its handler has returned. So if `max_messages` equals
    `workers`, no message waits, because each delivered one has a handler. Waiting messages are kept
    alive here, and `handler` has to keep its own message alive. It must not raise.
    """
    waiting = max_messages - workers
    limits = consume_limits(
        max_messages=max_messages,
        # Request more while some messages still wait, and immediately if none does.
        threshold_messages=max_messages - max(1, waiting // 2),
    )
    target = consumer._pull_target(None, None, None, None)
    pull = ContinuousPull(target, limits, on_error, readers=workers, holds=True)
    session = consumer._api.session
    work = ConsumeContext(
        *(pull, handler, "continue", session, consumer.name, workers), done=pull.done
    )
    if waiting:
        # The worker asks for the configuration regularly, and it may get shorter times.
        pull.keep_alive(
            lambda: min(CONFIRM_SECONDS, _extension_interval(consumer.config))
        )
    pull.begin()
    return work


def _extension_interval(config: ConsumerConfig | None) -> float:
    if config is None:
        return extension_interval(None, None)
    return extension_interval(config.backoff, config.ack_wait)
