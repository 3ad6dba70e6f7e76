"""The subscribe calls of ADR-15, with the names and the order of arguments of nats-py.

New code uses `Stream.create_consumer`, and reads from the consumer that it returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ConfigError
from ...hints import reject_keywords
from ...validation import check_heartbeat_timeout, check_workers
from .lookup import DeliveryOptions, pull_subscribe, subscribe, subscribe_ordered
from .options import (
    MAX_PENDING,
    MAX_PENDING_BYTES,
    SubscribeArgs,
    check_arguments,
    optional_str,
    resolve_ordered,
    resolve_pull,
    resolve_push,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg
    from ...models import ConsumerConfig
    from ...validation import Seconds
    from ..api import API
    from .pull_subscription import PullSubscription
    from .subscription import PushSubscription


class SubscribeManager:
    """The subscribe calls of `JetStream`, as a base class."""

    _api: API

    def subscribe(
        self,
        subject: str | None = None,
        queue: str | None = None,
        cb: Callable[[JetStreamMsg], object] | None = None,
        durable: str | None = None,
        stream: str | None = None,
        config: ConsumerConfig | object | None = None,
        manual_ack: bool = False,
        ordered_consumer: bool = False,
        idle_heartbeat: Seconds | None = None,
        flow_control: bool = False,
        pending_msgs_limit: int = MAX_PENDING,
        pending_bytes_limit: int = MAX_PENDING_BYTES,
        deliver_policy: str | None = None,
        headers_only: bool | None = None,
        inactive_threshold: Seconds | None = None,
        *,
        callback: Callable[[JetStreamMsg], object] | None = None,
        ordered: bool = False,
        workers: int | None = None,
        consumer: str | None = None,
        bind: bool = False,
        keep: bool | None = None,
        heartbeat_timeout: Seconds | None = None,
        on_error: Callable[[Exception], object] | None = None,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PushSubscription:
        """Subscribe to a push consumer, and create the consumer if needed.

        This is the call of nats-py, with its names and its order of arguments. In new
        code, use `Stream.create_consumer` and `Consumer.messages`. Iterate over the
        subscription, call its `next`, or give a `callback`. A message is acknowledged
        when the callback has returned, unless you set `manual_ack`. If the callback
        raises, there is no ack, and `on_error` gets the exception.

        Which consumer you get:

        - without a name: a new one, for this subscription alone.
        - `durable`: the consumer of that name, created if it does not exist.
        - `queue`: the consumer that the members of the group share. Without `durable`
          or `consumer` it has the name of the queue.
        - `consumer`, or `durable` with `bind`: an existing one.
        - `ordered`: a reader that gets each message once and in order, without acks.
          jsync creates another consumer after each gap.

        A new consumer has the subject as its filter. With flow control and without
        heartbeats it gets heartbeats every 5 seconds. If this call created the
        consumer, `unsubscribe`, `drain` and `Connection.drain` delete it, unless you
        pass `keep=True`. The creation of a durable consumer without `keep` therefore
        emits a `RuntimeWarning`.

        An existing consumer must match, and is never changed. The call blocks. (ADR-15)

        Args:
            subject: The subject to subscribe to.
            queue: The name of a queue group. Each message reaches one member.
            cb: The same as `callback`, by the name of nats-py.
            durable: The name of a durable consumer.
            stream: The name of the stream. Default: the stream that stores the subject.
            config: A `ConsumerConfig`, or an object with `as_dict()`, such as
                nats-py's.
            manual_ack: Leave the acks to the callback.
            ordered_consumer: The same as `ordered`, by the name of nats-py.
            idle_heartbeat: Seconds between heartbeats of the server.
            flow_control: Let the server wait for slow readers.
            pending_msgs_limit: Messages to buffer. More messages are dropped, and
                redelivered after the `ack_wait`. An ordered reader has no limit.
            pending_bytes_limit: Bytes to buffer.
            deliver_policy: The first message to deliver.
            headers_only: Deliver no payloads.
            inactive_threshold: Seconds without a subscriber until the server deletes
                the consumer.
            callback: Called with each message, one at a time, on the connection's
                callback pool: see `callback_threads` of `jsync.connect`.
            ordered: Read in exact order.
            workers: Threads that call this callback alone, instead of the pool. With
                several, the order of the messages is lost, so `ordered` allows one.
            consumer: The name of an existing consumer.
            bind: The `durable` consumer must exist.
            keep: Whether a durable consumer that this call creates stays on the server
                after the end of the subscription. Default: it does not.
            heartbeat_timeout: Seconds without any message until `on_error` gets a
                `MissedHeartbeatError`. Default: three heartbeats.
            on_error: Called on the connection's callback thread. Default: the
                connection's `on_error`.
            timeout: Seconds to wait for each request. Default: the context's.
            **fields: Further fields of `ConsumerConfig`: `ack_wait=60`.

        Returns:
            The subscription, to be used in a `with` statement.

        Raises:
            StreamNotFoundError: No stream stores the subject.
            AmbiguousSubjectError: Several streams store the subject.
            ConsumerNotFoundError: The consumer to bind to does not exist.
            DuplicateSubscriptionError: The consumer has a subscriber already. The
                server may notice this a moment late, above all in a cluster.
            DeliverGroupError: The consumer has another queue group.
            FilterMismatchError: The consumer has another filter.
            PullRequiredError: It is a pull consumer.
            ConfigMismatchError: The consumer has other values in fields that you gave.
            ConfigError: The arguments cannot be combined. Nothing is sent.

        Example:
            ```python
            subscription = js.subscribe("orders.*", durable="audit", keep=True)
            msg = subscription.next_msg(timeout=5)
            print(msg.data)
            msg.ack()
            ```
        """
        reject_keywords("SubscribeManager.subscribe", fields)
        called = check_arguments(
            callback, cb, on_error, pending_msgs_limit, pending_bytes_limit
        )
        heartbeat_timeout = check_heartbeat_timeout(
            heartbeat_timeout, "heartbeat_timeout"
        )
        check_workers(workers, called)
        options = DeliveryOptions(
            called,
            manual_ack,
            on_error,
            pending_msgs_limit,
            pending_bytes_limit,
            heartbeat_timeout,
            workers,
        )
        args = SubscribeArgs(
            subject,
            stream,
            queue,
            durable,
            consumer,
            bind,
            config,
            {
                "idle_heartbeat": idle_heartbeat,
                "flow_control": flow_control or None,
                "deliver_policy": deliver_policy,
                "headers_only": headers_only,
                "inactive_threshold": inactive_threshold,
                **fields,
            },
            keep,
        )
        if ordered or ordered_consumer:
            if workers is not None and workers > 1:
                raise ConfigError("ordered reads have one thread: leave out workers")
            request = resolve_ordered(args)
            return subscribe_ordered(self._api, request, options, timeout)
        return subscribe(self._api, resolve_push(args), options, timeout)

    def subscribe_bind(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        consumer: str | None = None,
        cb: Callable[[JetStreamMsg], object] | None = None,
        manual_ack: bool = False,
        ordered_consumer: bool = False,
        pending_msgs_limit: int = MAX_PENDING,
        pending_bytes_limit: int = MAX_PENDING_BYTES,
        *,
        callback: Callable[[JetStreamMsg], object] | None = None,
        queue: str | None = None,
        workers: int | None = None,
        on_error: Callable[[Exception], object] | None = None,
        timeout: Seconds | None = None,
    ) -> PushSubscription:
        """Subscribe to an existing push consumer: `subscribe` with `consumer`.

        Blocks and raises as `subscribe` does.

        Args:
            stream: The name of the stream.
            config: The configuration to compare with the consumer's, for instance of
                its `ConsumerInfo`. Its deliver group is the `queue`.
            consumer: The name of the consumer. Default: the name in `config`.
            cb: The same as `callback`, by the name of nats-py.
            manual_ack: Leave the acks to the callback.
            ordered_consumer: Read in exact order.
            pending_msgs_limit: Messages to buffer.
            pending_bytes_limit: Bytes to buffer.
            callback: Called with each message, one at a time, on the connection's
                callback pool: see `callback_threads` of `jsync.connect`.
            queue: The name of the queue group.
            workers: Threads that call this callback alone, instead of the pool.
            on_error: Called on the connection's callback thread. Default: the
                connection's `on_error`.
            timeout: Seconds to wait for each request. Default: the context's.

        Returns:
            The subscription, to be used in a `with` statement.
        """
        return self.subscribe(
            stream=stream,
            config=config,
            consumer=consumer,
            bind=True,
            queue=queue,
            cb=cb,
            callback=callback,
            workers=workers,
            manual_ack=manual_ack,
            ordered_consumer=ordered_consumer,
            pending_msgs_limit=pending_msgs_limit,
            pending_bytes_limit=pending_bytes_limit,
            on_error=on_error,
            timeout=timeout,
        )

    def pull_subscribe(
        self,
        subject: str | None = None,
        durable: str | None = None,
        stream: str | None = None,
        config: ConsumerConfig | object | None = None,
        pending_msgs_limit: int = MAX_PENDING,
        pending_bytes_limit: int = MAX_PENDING_BYTES,
        inbox_prefix: bytes | None = None,
        *,
        consumer: str | None = None,
        bind: bool = False,
        keep: bool | None = None,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PullSubscription:
        """Pull messages from a consumer, which is created if it does not exist.

        This is the call of nats-py. In new code, use `Stream.create_consumer`. A new
        consumer has the ack policy `explicit`. If the `consumer` cannot be looked up,
        the call continues, and the first `fetch` raises `NoRespondersError` if there is
        none. If this call created the consumer, `unsubscribe`, `drain` and
        `Connection.drain` delete it, unless you pass `keep=True`. The creation of a
        durable consumer without `keep` therefore emits a `RuntimeWarning`.

        If two programs create the same durable consumer at almost the same moment, both
        count as its creator, and the `unsubscribe` of each deletes it. (ADR-15)

        Args:
            subject: The subject, which becomes the filter of a new consumer.
            durable: The name of a durable consumer.
            stream: The name of the stream. Default: the stream that stores the subject.
            config: A `ConsumerConfig`, or an object with `as_dict()`, such as
                nats-py's.
            pending_msgs_limit: Has no effect, since nothing is buffered.
            pending_bytes_limit: Has no effect.
            inbox_prefix: Has no effect: give `inbox_prefix` to `jsync.connect`.
            consumer: The name of an existing consumer.
            bind: The `durable` consumer must exist.
            keep: Whether a durable consumer that this call creates stays on the server
                after the end of the subscription. Default: it does not.
            timeout: Seconds to wait for each request. Default: the context's.
            **fields: Further fields of `ConsumerConfig`: `ack_wait=60`.

        Returns:
            The subscription, to be used in a `with` statement.

        Raises:
            PushRequiredError: It is a push consumer.
            StreamNotFoundError: No stream stores the subject.
            AmbiguousSubjectError: Several streams store the subject.
            ConsumerNotFoundError: The consumer to bind to does not exist.
            FilterMismatchError: The consumer has another filter.
            ConfigMismatchError: The consumer has other values in fields that you gave.
            ConfigError: The arguments cannot be combined. Nothing is sent.

        Example:
            ```python
            subscription = js.pull_subscribe("orders.*", durable="billing", keep=True)
            for msg in subscription.fetch(3, timeout=5):
                msg.ack()
            ```
        """
        check_arguments(None, None, None, pending_msgs_limit, pending_bytes_limit)
        if inbox_prefix is not None:
            raise ConfigError("inbox_prefix: give it to jsync.connect, for all inboxes")
        args = SubscribeArgs(
            subject, stream, None, durable, consumer, bind, config, fields, keep
        )
        return pull_subscribe(self._api, resolve_pull(args), timeout)

    def pull_subscribe_bind(
        self,
        consumer: str | None = None,
        stream: str | None = None,
        inbox_prefix: bytes | None = None,
        pending_msgs_limit: int = MAX_PENDING,
        pending_bytes_limit: int = MAX_PENDING_BYTES,
        name: str | None = None,
        durable: str | None = None,
        *,
        timeout: Seconds | None = None,
    ) -> PullSubscription:
        """Pull messages from an existing consumer: `pull_subscribe` with `consumer`.

        Args:
            consumer: The name of the consumer.
            stream: The name of the stream.
            inbox_prefix: Has no effect: give `inbox_prefix` to `jsync.connect`.
            pending_msgs_limit: Has no effect, since nothing is buffered.
            pending_bytes_limit: Has no effect.
            name: The same as `consumer`, by an older name of nats-py.
            durable: The same as `consumer`, by an older name of nats-py.
            timeout: Seconds to wait for each request. Default: the context's.

        Returns:
            The subscription, to be used in a `with` statement.

        Example:
            ```python
            stream.create_consumer(durable_name="billing")
            subscription = js.pull_subscribe_bind("billing", "ORDERS")
            for msg in subscription.fetch(3, timeout=5):
                msg.ack()
            ```
        """
        given = {"consumer": consumer, "name": name, "durable": durable}
        names = {
            word for what, value in given.items() if (word := optional_str(what, value))
        }
        if len(names) != 1:
            raise ConfigError(f"consumer: one name, not {len(names)}")
        return self.pull_subscribe(
            stream=stream,
            consumer=names.pop(),
            inbox_prefix=inbox_prefix,
            pending_msgs_limit=pending_msgs_limit,
            pending_bytes_limit=pending_bytes_limit,
            timeout=timeout,
        )
