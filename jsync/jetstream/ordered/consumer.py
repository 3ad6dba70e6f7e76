"""Ordered consumers: what `Stream.ordered_consumer` returns (ADR-37)."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, TypedDict

from ... import errors
from ...core.clock import deadline_after
from ...core.resources import CloseOnExit
from ...core.sync import ForkSafeRLock
from ...errors import (
    ConcurrentUseError,
    ConfigError,
    ConsumerNotFoundError,
    SubscriptionClosedError,
)
from ...models import check_name
from ...validation import (
    check_callable,
    check_optional_callable,
    check_seconds,
    format_seconds,
)
from ..management import consumer_info
from ..pulls.consume import ConsumeContext
from ..pulls.engine import consume_limits, fetch_request, idle_seconds
from ..pulls.messages import MessagesContext
from ..stream_end.driver import stream_end
from .batch import OrderedBatch, OrderedFetch
from .driver import OrderedPull
from .engine import IDLE_HEARTBEAT, RESET_ATTEMPTS, Cursor, ordered_config
from .factory import ConsumerFactory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from typing import Literal

    from ..._fast import JetStreamMsg
    from ...models import ConsumerInfo, DeliverPolicy, ReplayPolicy
    from ...validation import Seconds
    from ..api import API
    from ..pulls.engine import PullRequest


class OrderedOptions(TypedDict, total=False):
    """The options of an ordered consumer: its start, its messages, its behaviour.

    None is the same as leaving the option out, except for `max_reset_attempts`.

    Example:
        ```python
        options: jsync.OrderedOptions = {"deliver_policy": "last"}
        with stream.ordered_consumer(**options) as reader:
            print(reader.next().data)
        ```
    """

    filter_subjects: str | Iterable[str] | None
    """A subject or several, wildcards allowed. Default: all."""
    deliver_policy: DeliverPolicy | None
    """The first message to read. Default: `all`, or as the next two options say."""
    opt_start_seq: int | None
    """The stream sequence to start from (`by_start_sequence`)."""
    opt_start_time: datetime | None
    """The time to start from (`by_start_time`): aware."""
    replay_policy: ReplayPolicy | None
    """The pace: `instant`, or `original` as the messages were stored. Default:
    `instant`."""
    headers_only: bool | None
    """Deliver no payloads, only their size as `Nats-Msg-Size`. Default: False."""
    inactive_threshold: Seconds | None
    """Seconds without use after which the server deletes the consumer. The next read
    recreates it. Default: 30, or less if the stream's `consumer_limits` say so."""
    metadata: dict[str, str] | None
    """Your own notes on the consumer."""
    name_prefix: str | None
    """The prefix of the names of its consumers. Random tokens follow."""
    max_reset_attempts: int | None
    """The attempts in a row to create a consumer that may fail while connected. Pauses
    between them last up to 10 seconds. Default: 60 if left out. None: never give up."""
    timeout: Seconds | None
    """Seconds that the call may block. Default: the context's."""


def ordered_consumer(
    api: API, stream: str, options: Mapping[str, Any]
) -> OrderedConsumer:
    """Check the options, and create an ordered consumer for stream or context."""
    unknown = set(options) - OrderedOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"ordered_consumer has no option {min(unknown)!r}")
    check_name(stream, "stream")
    prefix = options.get("name_prefix")
    if prefix is not None:
        check_name(prefix, "name_prefix")
    # Two readers with the same prefix must not share a consumer.
    token = secrets.token_hex(8)
    cursor = Cursor(
        ordered_config(options),
        token if prefix is None else f"{prefix}_{token}",
        max_reset_attempts=options.get("max_reset_attempts", RESET_ATTEMPTS),
    )
    timeout = options.get("timeout")
    factory = ConsumerFactory(api, stream, cursor)
    factory.create(deadline_after(api.seconds(timeout)))
    return OrderedConsumer(factory)


class OrderedConsumer(CloseOnExit):
    """A reader of a stream in exact order, each message once, whatever happens.

    It has at most one consumer on the server at a time, without acks and in memory.
    jsync creates another consumer when a message or heartbeats are missing, the
    connection was lost, or the consumer is gone. The new consumer continues after the
    last message that was received. Each time `on_error` is called with an
    `OrderedConsumerResetError`. (ADR-37)

    The object is one place in the stream: `messages`, `consume`, `fetch` and `next`
    each continue where the previous read ended. Only one of them may run at a time.

    `fetch` and `next` keep the consumer for the next read, `messages` and `consume`
    delete it when they end. Use `with`, or call `close`, to delete it when you are
    done. Python does the same when it collects this object, and so does closing the
    connection.

    Raises:
        StreamNotFoundError: Raised by reading: the stream was deleted, or deleted and
            created again.
        ConnectionClosedError: Raised by reading: the connection was closed.
        OrderedConsumerResetError: Raised by reading: `max_reset_attempts` attempts in a
            row failed while connected.
        APIError: Raised by reading: the server rejects the consumer, and a retry cannot
            help.
        PermissionsError: The same.
        ConcurrentUseError: Another read of this object is running.

    Example:
        ```python
        with stream.ordered_consumer(filter_subjects=["orders.new"]) as reader:
            for msg in reader.messages(until_end=True):
                print(msg.metadata.stream_sequence, msg.data)
        ```
    """

    def __init__(self, factory: ConsumerFactory) -> None:
        self._factory = factory
        self._api = factory.api
        self._lock = ForkSafeRLock()
        self._reading: OrderedPull | OrderedFetch | None = None
        self._closed = False

    @property
    def stream_name(self) -> str:
        """The name of the stream."""
        return self._factory.stream

    @property
    def name(self) -> str | None:
        """The name of the current consumer on the server. None while there is none.

        Each consumer that follows has another name.
        """
        return self._factory.cursor.name

    def info(self, *, timeout: Seconds | None = None) -> ConsumerInfo:
        """Get the info of the current consumer from the server. Blocks.

        Args:
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The configuration and the state of the consumer.

        Raises:
            ConsumerNotFoundError: There is no consumer now. The next read creates one.
            SubscriptionClosedError: The ordered consumer is closed.
        """
        self._check_open()
        name = self.name
        if name is None:
            raise ConsumerNotFoundError(
                f"no consumer in {self.stream_name} now; the next read creates one",
                code=404,
                err_code=10014,
            )
        return consumer_info(self._api, self.stream_name, name, timeout)

    # The end --------------------------------------------------------------------------

    def close(self) -> None:
        """Stop reading and delete the consumer on the server. Does not block.

        Running iterations end, and later reads raise `SubscriptionClosedError`. If the
        connection is lost, the server deletes the consumer after its
        `inactive_threshold`. You may call this from any thread, and twice.
        """
        with self._lock:
            self._closed = True
            reading = self._reading
        if isinstance(reading, OrderedPull):
            reading.stop()
        elif reading is not None:
            reading.close()
        self._factory.schedule_delete()

    def _check_open(self) -> None:
        if self._closed:
            raise SubscriptionClosedError(
                f"the ordered consumer of {self.stream_name} is closed; create another one"
            )

    # Reading --------------------------------------------------------------------------

    def next(
        self, timeout: Seconds = 5.0, *, idle_heartbeat: Seconds | None = None
    ) -> JetStreamMsg:
        """Pull one message, and block until it has come.

        Each call takes one round trip. To read many messages, prefer `messages`.

        Args:
            timeout: Seconds to wait.
            idle_heartbeat: Seconds between heartbeats of the server. See `fetch`.

        Returns:
            The message.

        Raises:
            TimeoutError: No message came in time.
            ConcurrentUseError: Another read of this object is running.
            SubscriptionClosedError: The ordered consumer is closed.

        Example:
            ```python
            with stream.ordered_consumer() as reader:
                print(reader.next(timeout=5).data)
            ```
        """
        timeout = check_seconds(timeout, "timeout")
        batch = self.fetch(1, timeout=timeout, idle_heartbeat=idle_heartbeat)
        try:
            with batch:
                for msg in batch:
                    return msg
                self._check_open()
                raise errors.TimeoutError(
                    f"no message within {format_seconds(timeout)}"
                ) from batch.error
        except Exception:
            raise
        except BaseException:
            batch._fetch.on_interrupt()  # the message was not returned
            raise

    def fetch(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        timeout: Seconds = 5.0,
        idle_heartbeat: Seconds | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> OrderedBatch:
        """Pull a batch of messages in exact order, and iterate over them as they come.

        If the consumer is lost, jsync recreates it and continues until `timeout`. If it
        was lost before the call, the call blocks while it recreates the consumer. The
        next read starts with the messages that you did not read.

        Args:
            max_messages: The most messages of the batch.
            max_bytes: The most bytes of the batch. Give `max_messages` or `max_bytes`,
                not both.
            timeout: Seconds until the batch ends.
            idle_heartbeat: Seconds between heartbeats of the server. Default: 5 if
                `timeout` is 10 or longer, otherwise none.
            on_error: Called with errors that do not end the batch, on the connection's
                callback thread. Default: the connection's `on_error`.

        Returns:
            The batch.

        Raises:
            ConfigError: The arguments cannot be combined. Nothing is sent.
            ConcurrentUseError: Another read of this object is running.
            SubscriptionClosedError: The ordered consumer is closed.

        Example:
            ```python
            with stream.ordered_consumer() as reader, reader.fetch(3, timeout=5) as batch:
                for msg in batch:
                    print(msg.data)
            ```
        """
        timeout = check_seconds(timeout, "timeout")
        request = fetch_request(max_messages, max_bytes, timeout, idle_heartbeat)
        return self._fetch(request, timeout, on_error)

    def fetch_nowait(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> OrderedBatch:
        """Pull the messages that the stream has now. The server does not wait for more.

        Otherwise the call works as `fetch` does, and raises the same errors.

        Args:
            max_messages: The most messages of the batch.
            max_bytes: The most bytes of the batch. Give `max_messages` or `max_bytes`,
                not both.
            on_error: Called with errors that do not end the batch. See `fetch`.

        Returns:
            The batch.

        Example:
            ```python
            with stream.ordered_consumer() as reader:
                print(len(list(reader.fetch_nowait(1000))))
            ```
        """
        timeout = self._api.timeout
        request = fetch_request(max_messages, max_bytes, timeout, 0.0, no_wait=True)
        return self._fetch(request, timeout, on_error)

    def messages(
        self,
        *,
        until_end: bool = False,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        expires: Seconds = 30.0,
        idle_heartbeat: Seconds | None = None,
        stop_after: int | None = None,
        idle_timeout: Seconds | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> MessagesContext:
        """Iterate over messages, prefetched and in exact order. Does not block.

        If you stop early, the next read starts with the prefetched messages that you
        did not read.

        Args:
            until_end: Read the messages that the stream holds now, and then end. The
                call blocks while it looks up the stream.
            max_messages: Messages to prefetch. Default: 500.
            max_bytes: Bytes to prefetch, instead of `max_messages`.
            threshold_messages: Request more when the number of buffered messages falls
                to this value. Default: half of `max_messages`.
            threshold_bytes: Request more when the buffered bytes fall to this value.
                Default: half of `max_bytes`.
            expires: Seconds that a pull lasts. Default: 30.
            idle_heartbeat: Seconds between heartbeats of the server. Default: 5, or
                half of `expires` if that is less.
            stop_after: End after this number of messages.
            idle_timeout: End if no message came for this number of seconds while
                connected.
            on_error: Called with errors that do not end the iteration, on the
                connection's callback thread. Default: the connection's `on_error`.

        Returns:
            The messages, to be used in a `with` statement.

        Raises:
            StreamNotFoundError: With `until_end`: the stream does not exist.
            ConfigError: The arguments cannot be combined. Nothing is sent.
            ConcurrentUseError: Another read of this object is running.
            SubscriptionClosedError: The ordered consumer is closed.

        Example:
            ```python
            with stream.ordered_consumer() as reader, reader.messages() as messages:
                for msg in messages:
                    print(msg.data)
                    break  # or continue forever
            ```
        """
        idle_timeout = idle_seconds(idle_timeout)
        pull = self._pull(
            *(on_error, until_end, expires, idle_heartbeat),
            max_messages=max_messages,
            max_bytes=max_bytes,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
            stop_after=stop_after,
        )
        messages = MessagesContext(pull, idle_timeout)
        pull.begin()
        return messages

    def consume(
        self,
        handler: Callable[[JetStreamMsg], object],
        *,
        until_end: bool = False,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        expires: Seconds = 30.0,
        idle_heartbeat: Seconds | None = None,
        stop_after: int | None = None,
        on_exception: Literal["continue", "stop"] = "continue",
        on_error: Callable[[Exception], object] | None = None,
    ) -> ConsumeContext:
        """Call a handler with each message in exact order, on the callback pool.

        If the handler raises, `on_error` gets a `CallbackError`. A message cannot be
        given back, since there are no acks. The rest is as with `messages`, errors
        included.

        Args:
            handler: Called with each message, one at a time.
            until_end: Read the messages that the stream holds now, and then end. The
                call blocks while it looks up the stream.
            max_messages: Messages to prefetch. Default: 500.
            max_bytes: Bytes to prefetch, instead of `max_messages`.
            threshold_messages: Request more when the number of buffered messages falls
                to this value. Default: half of `max_messages`.
            threshold_bytes: Request more when the buffered bytes fall to this value.
                Default: half of `max_bytes`.
            expires: Seconds that a pull lasts. Default: 30.
            idle_heartbeat: Seconds between heartbeats of the server. Default: 5, or
                half of `expires` if that is less.
            stop_after: End after this number of messages.
            on_exception: After an exception of the handler, `continue` with the next
                message, or `stop`.
            on_error: Called with errors that do not end the consuming, on the
                connection's callback thread. Default: the connection's `on_error`.

        Returns:
            The running handler, to be used in a `with` statement.
        """
        if on_exception not in ("continue", "stop"):
            raise ConfigError(
                "on_exception of an ordered consumer is continue or stop, not "
                f"{on_exception!r}: its messages cannot be given back"
            )
        check_callable(handler, "handler")
        pull = self._pull(
            *(on_error, until_end, expires, idle_heartbeat),
            max_messages=max_messages,
            max_bytes=max_bytes,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
            stop_after=stop_after,
        )
        session = self._api.session
        name = f"{self._factory.stream}-ordered"
        work = ConsumeContext(pull, handler, on_exception, session, name, None)
        pull.begin()
        return work

    def _pull(
        self,
        on_error: Callable[[Exception], object] | None,
        until_end: bool,
        expires: Seconds,
        idle_heartbeat: Seconds | None,
        **options: int | None,
    ) -> OrderedPull:
        if idle_heartbeat is None:
            expires = check_seconds(expires, "expires")
            idle_heartbeat = min(IDLE_HEARTBEAT, expires / 2)
        limits = consume_limits(
            expires=expires, idle_heartbeat=idle_heartbeat, **options
        )
        check_optional_callable(on_error, "on_error")
        until = None
        if until_end:
            deadline = deadline_after(self._api.timeout)
            until = stream_end(self._api, self._factory.stream, deadline).sequence
        with self._lock:
            self._claim(until)
            self._reading = pull = OrderedPull(self._factory, limits, on_error)
        return pull

    def _fetch(
        self,
        request: PullRequest,
        timeout: float,
        on_error: Callable[[Exception], object] | None,
    ) -> OrderedBatch:
        check_optional_callable(on_error, "on_error")
        with self._lock:
            self._claim(None)
            fetch = OrderedFetch(self._factory, request, timeout, on_error)
            # Assign before the read begins, so that a read interrupted by Ctrl-C is
            # dropped with its batch, and thereby given up.
            batch = OrderedBatch(fetch)
            self._reading = fetch
        fetch.begin()
        return batch

    def _claim(self, until: int | None) -> None:
        self._check_open()
        if self._reading is not None and not self._reading.release():
            raise ConcurrentUseError(
                "this ordered consumer is already being read: stop or close that read, or "
                "finish it"
            )
        self._reading = None
        self._factory.cursor.until = until

    def __repr__(self) -> str:
        state = "at rest" if self._reading is None else repr(self._reading)
        if self._closed:
            state = "closed"
        position = self._factory.cursor.position
        return f"<OrderedConsumer of {self.stream_name!r} after {position}, {state}>"
