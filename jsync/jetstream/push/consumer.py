"""Push consumers, and the messages that they send (ADR-37)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError
from ...models import ConsumerConfig
from ...validation import (
    check_callable,
    check_heartbeat_timeout,
    check_int,
    check_optional_callable,
)
from .. import management
from ..management import BaseConsumer
from ..pulls.consume import ConsumeContext, check_error_policy
from ..retries.driver import RetryHandler
from .binding import check_not_bound, check_push
from .driver import PushDelivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg
    from ...validation import Seconds
    from ..api import API
    from ..management import Action
    from ..pulls.consume import OnException
    from ..retries.engine import Retry


class PushConsumer(BaseConsumer):
    """A push consumer. Any thread may use it.

    `push_consumer` and `create_push_consumer` of `Stream` and `JetStream` return it.
    The server sends the messages to the `deliver_subject` of the configuration, as soon
    as a client is subscribed there.

    Example:
        ```python
        consumer = stream.create_push_consumer(deliver_subject=nc.new_inbox())

        def handle(msg: jsync.JetStreamMsg) -> None:
            msg.ack()

        with consumer.consume(handle):
            pass  # your program works here
        ```
    """

    def consume(
        self,
        handler: Callable[[JetStreamMsg], object],
        *,
        max_pending_messages: int | None = None,
        max_pending_bytes: int | None = None,
        heartbeat_timeout: Seconds | None = None,
        workers: int | None = None,
        on_exception: OnException = "continue",
        nak_delay: Seconds | None = None,
        retry: Retry | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> ConsumeContext:
        """Call a handler with each message, on the callback pool.

        The call blocks while it looks up the consumer. The handler
        acknowledges the messages. If the handler raises, `on_error` gets a
        `CallbackError`. The consumer stays on the server at the end, and `stop` gives
        back the messages that were not handled.

        `on_error` also gets warnings that do not end the consuming:
        `MissedHeartbeatError`, `MessageGapError`, `PushError` and `NoRespondersError`.
        (ADR-15)

        Args:
            handler: Called with each message.
            max_pending_messages: Messages to buffer. More messages are dropped and
                reported to the connection's `on_error` as `SlowConsumerError`, except
                for a consumer with `flow_control`. Default: the value given to
                `connect`.
            max_pending_bytes: Bytes to buffer. Default: the value given to `connect`.
            heartbeat_timeout: Seconds without any message until
                `MissedHeartbeatError`. Default: three times the `idle_heartbeat` of the
                consumer.
            workers: Threads that call this handler alone, at the same time. With
                several, the order of the messages is lost. Default: none, the
                connection's callback pool calls the handler with one message at a time:
                see `callback_threads` of `jsync.connect`.
            on_exception: The fate of a message whose handler raised: `continue`, `nak`,
                `term` or `stop`, as with `Consumer.consume`.
            nak_delay: Seconds until the redelivery, with `nak`. Default: immediately.
            retry: Deliver failed messages again with growing delays, and end them as
                dead letters. See `Retry`. `on_error` gets `RetriesExhaustedError` for each
                message that ended, and `DeadLetterError` if its dead letter could not be
                stored. The server sends `max_ack_pending` messages ahead, and counts an
                attempt for each of them if your program dies. Give the consumer a
                `max_ack_pending` of `workers`, or you get a `RuntimeWarning`.
            on_error: Called on the connection's callback thread. Default: the
                connection's `on_error`.

        Returns:
            The running handler, to be used in a `with` statement.

        Raises:
            ConsumerNotFoundError: The consumer does not exist.
            PullRequiredError: It is a pull consumer now.
            DuplicateSubscriptionError: Another client is subscribed already, and the consumer
                has no `deliver_group`. The members of a group share the messages.

        Example:
            ```python
            import threading

            done = threading.Event()

            def audit(msg: jsync.JetStreamMsg) -> None:
                print(msg.data)
                msg.ack()
                done.set()

            consumer = js.create_push_consumer(
                "ORDERS", durable_name="audit", deliver_subject="audit.orders"
            )
            with consumer.consume(audit):
                done.wait(10)
            ```
        """
        config = None if self._info is None else self._info.config
        delay = check_error_policy(on_exception, nak_delay, retry, config)
        check_callable(handler, "handler")
        check_optional_callable(on_error, "on_error")
        if workers is not None:
            check_int(workers, "workers", 1)
        for name, limit in (
            ("max_pending_messages", max_pending_messages),
            ("max_pending_bytes", max_pending_bytes),
        ):
            if limit is not None:
                check_int(limit, name, 1)
        heartbeat_timeout = check_heartbeat_timeout(
            heartbeat_timeout, "heartbeat_timeout"
        )
        info = self.info()
        check_push(info)
        if retry is not None:
            _warn_of_attempts(retry, info.config, workers or 1)
        if not info.config.deliver_group:
            check_not_bound(info)
        session = self._api.session
        delivery = PushDelivery(
            self._api,
            info.config.deliver_subject or "",
            queue=info.config.deliver_group,
            on_error=on_error,
            max_messages=max_pending_messages or session.options.max_pending_messages,
            max_bytes=max_pending_bytes or session.options.max_pending_bytes,
            readers=workers or 1,
        )
        delivery.bind(info, created=False, heartbeat_timeout=heartbeat_timeout)
        delivery.open()
        retrier = None
        if retry is not None:
            report = delivery.report
            retrier = RetryHandler(
                session, retry, info.config, self._api.timeout, report
            )
            delivery.keep_alive(lambda: retrier.interval)
            mailbox = delivery.mailbox
            retrier.follow(self._api, delivery.name, lambda: mailbox.closed)
        return ConsumeContext(
            delivery, handler, on_exception, session, self.name, workers, delay, retrier
        )

    def __repr__(self) -> str:
        return f"<PushConsumer {self.name!r} of {self.stream_name!r}>"


def _warn_of_attempts(retry: Retry, config: ConsumerConfig, workers: int) -> None:
    """Warn if attempts may be counted for messages that no handler has had."""
    ahead = config.max_ack_pending or 0
    if retry.attempts is None or 0 < ahead <= workers:
        return
    warnings.warn(
        f"the server sends a push consumer messages ahead (max_ack_pending={ahead}), and "
        "counts an attempt for each of them if the program dies; set max_ack_pending of the "
        f"consumer to {workers}, or use a pull consumer, which waits for a free thread",
        RuntimeWarning,
        stacklevel=3,
    )


def push_consumer(
    api: API, stream: str, name: str, timeout: Seconds | None
) -> PushConsumer:
    info = management.consumer_info(api, stream, name, timeout)
    check_push(info)
    return PushConsumer(api, info.stream_name, info.name, info)


def put_push_consumer(
    api: API,
    stream: str,
    action: Action,
    config: object | None,
    fields: dict[str, Any],
    timeout: Seconds | None,
) -> PushConsumer:
    """Create or update a push consumer, by `action`."""
    whole = action != "update" or config is not None
    if whole and not ConsumerConfig.from_any(config, fields).deliver_subject:
        raise ConfigError(
            "deliver_subject: a push consumer has to have one; without one it is a pull "
            "consumer, and create_consumer makes it"
        )
    info = management.upsert_consumer(api, stream, action, config, fields, timeout)
    check_push(info)
    return PushConsumer(api, info.stream_name, info.name, info)
