"""The subscription of a push consumer: what `JetStream.subscribe` returns (ADR-15)."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, cast

from ..._fast import JetStreamMsg, MessageIterator, safe_finalizer
from ...core.base_subscription import BaseSubscription
from ...core.resources import UnsubscribeOnExit
from ...errors import (
    BlockingCallError,
    ConfigError,
    ConnectionClosedError,
    Error,
    SubscriptionClosedError,
)
from .. import management
from ..ordered.engine import RESET_ATTEMPTS, Cursor, ordered_push_config
from ..ordered.factory import ConsumerFactory
from ..push.driver import PushDelivery
from ..push.ordered import OrderedPush

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...models import ConsumerConfig, ConsumerInfo
    from ...validation import Seconds
    from ..api import API


class PushSubscription(UnsubscribeOnExit, BaseSubscription[JetStreamMsg]):
    """The messages of a push consumer. `JetStream.subscribe` returns it.

    Iterate over it, or call `next`, from one thread at a time. If you gave a callback,
    do neither: the callback gets the messages, on a thread of jsync. You may call
    `unsubscribe` and `drain` from any thread, and from the callback. Leaving the `with`
    block unsubscribes.

    You never get a status of the server as a message. Flow control is answered when you
    have read the messages before it. `on_error` gets these warnings, which do not end
    the subscription:

    - `MissedHeartbeatError`: nothing has come for three heartbeats while connected.
    - `MessageGapError`: messages were lost on their way, without a queue group.
    - `PushError` and `NoRespondersError`: the server reports a problem. Without a
      callback, reading raises them, each once.
    - `CallbackError`: your callback raised.

    If the buffer is full, new messages are dropped, and the connection's `on_error`
    gets a `SlowConsumerError`.

    Raises:
        ConsumerDeletedError: Raised by reading: the server has deleted the consumer.
        ConnectionClosedError: Raised by reading: the connection was closed.

    Example:
        ```python
        with js.subscribe("orders.new") as sub:
            msg = sub.next(timeout=5)
            msg.ack()
        ```
    """

    def __init__(
        self,
        delivery: PushDelivery,
        callback: Callable[[JetStreamMsg], object] | None,
        *,
        manual_ack: bool,
        timeout: Seconds | None,
        workers: int | None = None,
    ) -> None:
        # A separate object: the connection refers to it, and must not keep this one
        # alive.
        self._delivery = delivery
        super().__init__(delivery.session, delivery.mailbox, callback, workers)
        self._manual_ack = manual_ack
        self._timeout = timeout
        self._deletes = False  # the consumer is deleted after the last message

    # The beginning --------------------------------------------------------------------

    def _begin(self) -> None:
        if self._callback is None:
            return
        # Threads of `workers` start at the first message: 10,000 idle ones take 2.4 s and
        # 150 MB.
        self._mailbox.on_first = self._start
        if len(self._mailbox) or self._delivery.mailbox.holds_control:
            first = self._mailbox.claim_first()
            if first is not None:
                self._start()

    # Properties -----------------------------------------------------------------------

    @property
    def subject(self) -> str:
        """The subject that the consumer sends to."""
        return self._delivery.subject

    @property
    def queue(self) -> str | None:
        """The name of the queue group. Each message reaches one member."""
        return self._delivery.queue

    @property
    def stream_name(self) -> str:
        """The name of the stream."""
        return self._bound.stream_name

    @property
    def consumer_name(self) -> str:
        """The name of the consumer on the server, which changes for ordered ones."""
        return self._bound.name

    @property
    def pending_msgs(self) -> int:
        """Alias of `pending`, by the name of nats-py."""
        return len(self._mailbox)

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
            subscription = js.subscribe("orders.*", durable="audit", keep=True)
            print(subscription.consumer_info().name)
            ```
        """
        info = self._bound
        return management.consumer_info(
            self._delivery.api, info.stream_name, info.name, self._seconds(timeout)
        )

    def _seconds(self, timeout: Seconds | None) -> Seconds | None:
        return self._timeout if timeout is None else timeout

    @property
    def _bound(self) -> ConsumerInfo:
        info = self._delivery.info
        assert info is not None
        return info

    # Reading --------------------------------------------------------------------------

    def __iter__(self) -> Iterator[JetStreamMsg]:
        """Iterate over the messages until the subscription is unsubscribed, drained or fails.

        `ConsumerDeletedError`, `ConnectionClosedError` and `PermissionsError` end it, and
        are raised after the messages that had come. The server's `PushError` and
        `NoRespondersError` are raised at their place among the messages. After these,
        iterate again to continue.
        """
        self._check_no_callback()
        return cast("Iterator[JetStreamMsg]", MessageIterator(self._mailbox, self))

    @property
    def messages(self) -> Iterator[JetStreamMsg]:
        """Alias of iterating over the subscription, by the name of nats-py."""
        return iter(self)

    def next_msg(self, timeout: Seconds | None = 1.0) -> JetStreamMsg:
        """Alias of `next`, by the name of nats-py and with its timeout.

        Args:
            timeout: Seconds to wait. Default: 1.

        Returns:
            The message.

        Raises:
            TimeoutError: No message came in time.
            SubscriptionClosedError: The subscription has ended, and no message is left.

        Example:
            ```python
            subscription = js.subscribe("orders.*", durable="audit", keep=True)
            msg = subscription.next_msg(timeout=5)
            msg.ack()
            ```
        """
        return self.next(timeout)

    # The callback ---------------------------------------------------------------------

    def _start(self) -> None:
        assert self._callback is not None
        acks = self._delivery.acks and not self._manual_ack
        self._start_reader(
            "push",
            label=self._delivery.name,
            callback=self._call_and_ack if acks else self._callback,
            failed=self._failed,
            ended=self._ended,
            report=self._delivery.report,
        )

    def _ended(self) -> None:
        if self._mailbox.failure is not None:
            self._failed(self._mailbox.failure)
        try:
            if self._deletes:
                self._delivery.delete_or_report()
        finally:
            self._delivery.abandon()  # the delivery has no reader any more
            self._finished.set()

    def _call_and_ack(self, msg: JetStreamMsg) -> None:
        assert self._callback is not None
        self._callback(msg)
        try:
            msg.ack()
        except ConnectionClosedError:
            pass  # the server delivers it again
        except Error as error:
            self._delivery.report(error)

    def _failed(self, error: BaseException) -> None:
        quiet = BlockingCallError | SubscriptionClosedError | ConnectionClosedError
        if isinstance(error, Error) and not isinstance(error, quiet):
            self._delivery.report(error)

    # The end --------------------------------------------------------------------------

    def unsubscribe(self, limit: int = 0, *, timeout: Seconds | None = None) -> None:
        """End the subscription. A second call does nothing, unless the deletion failed.

        If this subscription created the consumer, the consumer is deleted, which
        blocks. A consumer that existed before, or that another member of the queue
        group created, stays. The server redelivers dropped messages of such a consumer
        after its `ack_wait`.

        Args:
            limit: End after this number of messages in all. The consumer is deleted
                after the last of them, and a failure goes to `on_error`. Default: end
                now, and drop the messages that you have not read.
            timeout: Seconds to wait. Default: the context's.

        Raises:
            APIError: The server rejects the deletion.

        Example:
            ```python
            subscription = js.subscribe("orders.*", durable="audit", keep=True)
            subscription.unsubscribe()  # with keep=True, the consumer stays
            ```
        """
        self._session.write_buffer.check_process()
        if limit < 0:
            raise ConfigError(f"limit has to be at least 0, not {limit!r}")
        if limit:
            # Do not tell the server the limit: it would count its status messages as
            # well.
            self._delete_at_end()
            if self._mailbox.end_after(limit):
                self._delivery.end()
            return
        self._delivery.end(discard=True)
        if self._reader is None:
            self._finished.set()
        self._delivery.delete(self._seconds(timeout))

    def drain(self, timeout: Seconds = 30.0) -> None:
        """End the subscription without losing a message that the server has sent.

        Blocks until the server confirms the end, and with a callback until its last
        call has returned. The callback itself may call `drain`, which then does not
        wait for it. An iterator or `next` gets the remaining messages, and then the
        end. After that, a consumer that was created for this subscription is deleted,
        and a failure goes to `on_error`.

        Args:
            timeout: Seconds to wait. Default: 30.

        Raises:
            DrainTimeoutError: The drain did not end in time.
        """
        self._drain(timeout)

    def _stop_delivery(self) -> None:
        """Stop the server from sending, as the first step of a drain."""
        self._delivery.stop_delivery()

    def _end_reader(self) -> None:
        """End the reader after its backlog, as the second step, once all has arrived."""
        if len(self._mailbox) or self._callback is not None:
            self._delete_at_end()
        self._delivery.end()

    def _delete_at_end(self) -> None:
        self._deletes = True
        if self._callback is None:
            self._delivery.mailbox.on_end = self._delivery.delete_or_report

    def _wait_finished(self, deadline: float, timeout: float) -> None:
        """Block until the callback has handled all messages, then delete the consumer."""
        if self._callback is None:
            if not len(self._mailbox):
                self._delivery.delete_or_report()
            return
        if self._session.is_drained_by(self._threads):
            return
        if self._mailbox.claim_first() is not None:
            self._delivery.delete_or_report()  # no message came, so nothing was started
            self._finished.set()
            return
        self._wait_for_callback(deadline, timeout)

    @safe_finalizer
    def __del__(self) -> None:
        # Without a callback no reader is left. With one the subscription continues.
        if getattr(self, "_callback", self) is None:
            self._delivery.abandon()

    def __repr__(self) -> str:
        state = "active" if self.is_active else "ended"
        queue = f" queue={self.queue!r}" if self.queue else ""
        return (
            f"<PushSubscription of {self._delivery.name}{queue} {state}, "
            f"{self.pending} pending, {self.dropped} dropped>"
        )


def open_subscription(
    api: API,
    deliver_subject: str,
    *,
    queue: str | None = None,
    callback: Callable[[JetStreamMsg], object] | None = None,
    workers: int | None = None,
    manual_ack: bool = False,
    on_error: Callable[[Exception], object] | None = None,
    max_pending_messages: int | None = None,
    max_pending_bytes: int | None = None,
    timeout: Seconds | None = None,
    name: str | None = None,
) -> PushSubscription:
    """Subscribe to `deliver_subject`, but hand nothing over before `bind`.

    The server gets the subscription before any request that is sent after this call.
    """
    options = api.session.options
    delivery = PushDelivery(
        api,
        deliver_subject,
        queue=queue,
        on_error=on_error,
        max_messages=max_pending_messages or options.max_pending_messages,
        max_bytes=max_pending_bytes or options.max_pending_bytes,
        readers=workers or 1,
        raises=callback is None,
    )
    delivery.expected = name
    sub = PushSubscription(
        delivery, callback, manual_ack=manual_ack, timeout=timeout, workers=workers
    )
    delivery.open()
    return sub


def open_ordered(
    api: API,
    stream: str,
    config: ConsumerConfig,
    *,
    callback: Callable[[JetStreamMsg], object] | None = None,
    workers: int | None = None,
    on_error: Callable[[Exception], object] | None = None,
    timeout: Seconds | None = None,
    heartbeat_timeout: float | None = None,
    max_reset_attempts: int | None = RESET_ATTEMPTS,
) -> PushSubscription:
    """Read `stream` in exact order, with the start and filters of `config`. Blocks.

    This adds the options that make a consumer an ordered one. No `bind` follows.
    """
    token = secrets.token_hex(8)
    prefix = token if config.name is None else f"{config.name}_{token}"
    cursor = Cursor(
        ordered_push_config(config), prefix, max_reset_attempts=max_reset_attempts
    )
    delivery = OrderedPush(
        ConsumerFactory(api, stream, cursor), on_error=on_error, raises=callback is None
    )
    sub = PushSubscription(
        delivery, callback, manual_ack=True, timeout=timeout, workers=workers
    )
    delivery.begin(api.seconds(timeout), heartbeat_timeout)
    sub._begin()
    try:
        api.session.register_drainable(sub)
    except BaseException:  # Ctrl-C, or a drain that has just begun
        sub.unsubscribe()
        raise
    return sub


def rebind(
    sub: PushSubscription, deliver_subject: str, queue: str | None = None
) -> None:
    """Subscribe to another subject instead, before `bind`."""
    sub._delivery.rebind(deliver_subject, queue)


def bind(
    sub: PushSubscription,
    info: ConsumerInfo,
    *,
    created: bool,
    heartbeat_timeout: float | None = None,
) -> None:
    """Bind to the consumer, and hand its messages over from now on.

    A consumer that was `created` for this subscription is deleted with it. The heartbeat
    alarm comes after `heartbeat_timeout` seconds, by default three heartbeats.
    """
    sub._delivery.bind(info, created=created, heartbeat_timeout=heartbeat_timeout)
    sub._begin()
    sub._session.register_drainable(sub)


def close_unbound(sub: PushSubscription) -> None:
    """End the subscription without deleting a consumer, because binding failed."""
    sub._delivery.end(discard=True)
    sub._finished.set()
