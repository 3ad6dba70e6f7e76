"""Ordered consumers: what `Stream.ordered_consumer` returns (ADR-37)."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Any, TypedDict

from ...checks import callback as check_callback, seconds
from ...core.deadline import deadline_after
from ...errors import (
    ConcurrentUseError,
    ConfigError,
    ConsumerNotFoundError,
    SubscriptionClosedError,
    TimeoutError as LateError,
)
from ...models import check_name
from ..management import consumer_info
from ..pulls.engine import consume_limits, fetch_request, idle_seconds
from ..pulls.faces import ConsumeContext, MessagesContext
from .batch import OrderedBatch, OrderedFetch
from .driver import OrderedPull
from .engine import IDLE_HEARTBEAT, RESET_ATTEMPTS, Cursor, ordered_config
from .place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from types import TracebackType
    from typing import Literal, Self

    from ..._fast import JetStreamMsg
    from ...checks import Seconds
    from ...models import ConsumerInfo, DeliverPolicy, ReplayPolicy
    from ..api import API
    from ..pulls.engine import ConsumeLimits, PullRequest


class OrderedOptions(TypedDict, total=False):
    """Where an ordered consumer starts, which messages it reads, and how.

    None is the same as leaving the option out, except for `max_reset_attempts`.
    """

    filter_subjects: str | Iterable[str] | None
    """A subject or several, wildcards allowed. Default: all."""
    deliver_policy: DeliverPolicy | None
    """Where it starts. Default: `all`, or what the next two say."""
    opt_start_seq: int | None
    """The stream sequence to start from (`by_start_sequence`)."""
    opt_start_time: datetime | None
    """The time to start from (`by_start_time`): aware."""
    replay_policy: ReplayPolicy | None
    """As fast as it goes, or at the pace of storing. Default: `instant`."""
    headers_only: bool | None
    """Send no payloads, but their size as `Nats-Msg-Size`. Default: False."""
    inactive_threshold: Seconds | None
    """Seconds without use after which the server deletes the consumer. The next read
    recreates it. Default: 30, or less if the stream's `consumer_limits` say so."""
    metadata: dict[str, str] | None
    """Your own notes on the consumer."""
    name_prefix: str | None
    """What the names of its consumers begin with; random tokens follow."""
    max_reset_attempts: int | None
    """How many attempts in a row to create a consumer may fail while connected. Pauses
    between them last up to 10 seconds. Default: 60 if left out. None: never give up."""
    timeout: Seconds | None
    """Seconds that the call may block. Default: the context's."""


def ordered_consumer(
    api: API, stream: str, options: Mapping[str, Any]
) -> OrderedConsumer:
    """What `ordered_consumer` of stream and context do."""
    unknown = set(options) - OrderedOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"ordered_consumer has no option {min(unknown)!r}")
    check_name(stream, "stream")
    prefix = options.get("name_prefix")
    if prefix is not None:
        check_name(prefix, "name_prefix")
    # Two that were given one prefix must not take each other's consumer.
    token = secrets.token_hex(8)
    cursor = Cursor(
        ordered_config(options),
        token if prefix is None else f"{prefix}_{token}",
        max_reset_attempts=options.get("max_reset_attempts", RESET_ATTEMPTS),
    )
    timeout = options.get("timeout")
    place = Place(api, stream, cursor)
    place.create(deadline_after(api.seconds(timeout)))
    return OrderedConsumer(place)


class OrderedConsumer:
    """Reads a stream in exact order, each message once, whatever happens to the server.

    It has at most one consumer on the server at a time, without acks and in memory
    (ADR-37). jsync creates another consumer when a message or heartbeats are missing, the
    connection was lost, or the consumer is gone. The new consumer continues after the
    last message that was received. Each time `on_error` is called with an
    `OrderedConsumerResetError`.

    Reading ends with an error only when it cannot continue:

    - `StreamNotFoundError`: the stream was deleted, or deleted and created again.
    - `ConnectionClosedError`: the connection was closed.
    - `OrderedConsumerResetError`: `max_reset_attempts` attempts in a row failed while
      connected.
    - `APIError` or `PermissionsError`: the server rejects the consumer, and a retry
      cannot help.

    It is one place in the stream: `messages`, `consume`, `fetch` and `next` each go on
    where the last of them was left, and one of them at a time: else they raise
    `ConcurrentUseError`.

    `fetch` and `next` keep the consumer for the next read, `messages` and `consume` delete
    it when they end. Use `with`, or call `close`, to delete it when you are done. Python
    does the same when it collects this object, and so does closing the connection.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._api = place.api
        self._lock = threading.RLock()
        self._reading: OrderedPull | OrderedFetch | None = None
        self._closed = False

    @property
    def stream_name(self) -> str:
        """The stream that it reads."""
        return self._place.stream

    @property
    def name(self) -> str | None:
        """The name of the current consumer on the server; None while there is none.

        Each consumer that follows has another name.
        """
        return self._place.cursor.name

    def info(self, *, timeout: Seconds | None = None) -> ConsumerInfo:
        """Ask the server for the current consumer; blocks.

        Args:
            timeout: Seconds that the call may block. Default: the context's.

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
        """Stop reading and delete the consumer on the server; does not block.

        Iterations that run end, and later reads raise `SubscriptionClosedError`. A delete
        that is lost with the connection leaves the consumer until its
        `inactive_threshold`. You may call this from any thread, and twice.
        """
        with self._lock:
            self._closed = True
            reading = self._reading
        if isinstance(reading, OrderedPull):
            reading.stop()
        elif reading is not None:
            reading.close()
        self._place.retire()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise SubscriptionClosedError(
                f"the ordered consumer of {self.stream_name} is closed; create another one"
            )

    # Reading --------------------------------------------------------------------------

    def next(
        self, timeout: Seconds = 5.0, *, idle_heartbeat: Seconds | None = None
    ) -> JetStreamMsg:
        """Pull one message and block until it has come, at most `timeout` seconds.

        Raises `TimeoutError` when there is none, and otherwise what `fetch` raises. In a
        loop this is one round trip for each message: prefer `messages`.
        """
        timeout = seconds(timeout, "timeout")
        batch = self.fetch(1, timeout=timeout, idle_heartbeat=idle_heartbeat)
        try:
            with batch:
                for msg in batch:
                    return msg
                self._check_open()
                raise LateError(f"no message within {timeout} s") from batch.error
        except Exception:
            raise
        except BaseException:
            batch._fetch.interrupted()  # its message was not returned
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
        """Pull up to `max_messages`, or up to `max_bytes`; give what comes as it comes.

        This works like `Consumer.fetch`. If the consumer is lost, jsync recreates it and
        continues until `timeout`. If the consumer was lost before, this call recreates it
        first, which blocks. The next read starts with the messages that you did not read.
        """
        timeout = seconds(timeout, "timeout")
        request = fetch_request(max_messages, max_bytes, timeout, idle_heartbeat)
        return self._fetch(request, timeout, on_error)

    def fetch_nowait(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> OrderedBatch:
        """Like `fetch`, but of what the stream has now: the server does not wait."""
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
        """Messages without end, prefetched, to iterate over; does not block.

        With `until_end` exactly those that the stream holds now, and then the iteration
        ends: also when there are none, and when some are deleted meanwhile. For that the
        call asks for the stream, which blocks, and may raise `StreamNotFoundError`.

        The other options are those of `Consumer.messages`, but that `idle_heartbeat` is
        5 seconds, or half of `expires` when that is less. If you stop early, the next read
        starts with the prefetched messages that you did not read.
        """
        limits = self._limits(
            max_messages=max_messages,
            max_bytes=max_bytes,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
            expires=expires,
            idle_heartbeat=idle_heartbeat,
            stop_after=stop_after,
        )
        idle_timeout = idle_seconds(idle_timeout)
        pull = self._pull(limits, on_error, until_end)
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
        """Have `handler` called with each message, on a thread of its own.

        Everything else is as with `messages`. A handler that raises is reported to
        `on_error` as `CallbackError`; its message is done (`continue`), or it ends the
        consuming (`stop`). Nothing can be given back, since there are no acks.
        """
        if on_exception not in ("continue", "stop"):
            raise ConfigError(
                "on_exception of an ordered consumer is continue or stop, not "
                f"{on_exception!r}: its messages cannot be given back"
            )
        if not callable(handler):
            raise ConfigError("handler has to be callable")
        limits = self._limits(
            max_messages=max_messages,
            max_bytes=max_bytes,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
            expires=expires,
            idle_heartbeat=idle_heartbeat,
            stop_after=stop_after,
        )
        pull = self._pull(limits, on_error, until_end)
        session = self._api.session
        name = f"{self._place.stream}-ordered"
        work = ConsumeContext(pull, handler, on_exception, session, name, 1)
        pull.begin()
        return work

    def _limits(
        self, *, expires: Seconds, idle_heartbeat: Seconds | None, **limits: int | None
    ) -> ConsumeLimits:
        if idle_heartbeat is None:
            expires = seconds(expires, "expires")
            idle_heartbeat = min(IDLE_HEARTBEAT, expires / 2)
        return consume_limits(expires=expires, idle_heartbeat=idle_heartbeat, **limits)

    def _pull(
        self,
        limits: ConsumeLimits,
        on_error: Callable[[Exception], object] | None,
        until_end: bool,
    ) -> OrderedPull:
        check_callback(on_error, "on_error")
        until = None
        if until_end:
            deadline = deadline_after(self._api.timeout)
            until = self._place.stream_info(deadline).state.last_seq
        with self._lock:
            self._claim(until)
            self._reading = pull = OrderedPull(self._place, limits, on_error)
        return pull

    def _fetch(
        self,
        request: PullRequest,
        timeout: float,
        on_error: Callable[[Exception], object] | None,
    ) -> OrderedBatch:
        check_callback(on_error, "on_error")
        with self._lock:
            self._claim(None)
            fetch = OrderedFetch(self._place, request, timeout, on_error)
            # Before it begins: one that Ctrl-C cuts short is dropped, and so given up.
            batch = OrderedBatch(fetch)
            self._reading = fetch
        fetch.begin()
        return batch

    def _claim(self, until: int | None) -> None:
        self._check_open()
        if self._reading is not None and not self._reading.release():
            raise ConcurrentUseError(
                "this ordered consumer is being read already: stop or close that, or "
                "read it to its end"
            )
        self._reading = None
        self._place.cursor.until = until

    def __repr__(self) -> str:
        state = "at rest" if self._reading is None else repr(self._reading)
        if self._closed:
            state = "closed"
        position = self._place.cursor.position
        return f"<OrderedConsumer of {self.stream_name!r} behind {position}, {state}>"
