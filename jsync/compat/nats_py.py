"""The subscribe calls of nats-py on `JetStream`, for existing code (ADR-15).

New code uses `Stream.create_consumer`, and reads from the consumer that it returns.
"""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from .. import errors
from .._fast import safe_finalizer
from ..checks import check_heartbeat_patience, check_int, seconds
from ..core.deadline import deadline_after
from ..core.resources import NotCopyable, UnsubscribeOnExit
from ..core.session import ConnectionState
from ..core.sync import Latch
from ..errors import (
    APIError,
    ConfigError,
    ConsumerExistsError,
    DrainTimeoutError,
    Error,
    PermissionsError,
    SubscriptionClosedError,
)
from ..jetstream import management
from ..jetstream.consumer import Consumer, fetch_available
from ..jetstream.pulls.engine import fetch_request
from ..jetstream.push.engine import Ownership
from ..jetstream.push.ownership import OwnConsumer
from ..jetstream.push.subscribe import (
    DeliveryOptions,
    find_consumer,
    find_stream,
    subscribe,
    subscribe_ordered,
)
from ..jetstream.push.wanted import (
    MAX_PENDING,
    MAX_PENDING_BYTES,
    Call,
    a_word,
    can_be_made_within,
    check_call,
    check_existing,
    ordered_wanted,
    pull_wanted,
    push_wanted,
    warn_of_deletion,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._fast import JetStreamMsg
    from ..checks import Seconds
    from ..jetstream.api import API
    from ..jetstream.pulls.pull import Batch
    from ..jetstream.push.subscription import PushSubscription
    from ..jetstream.push.wanted import Wanted
    from ..models import ConsumerConfig, ConsumerInfo

_MAX_PULL_SECONDS = 30.0
"""The longest pull in seconds. A longer fetch sends several pulls."""
_MIN_PULL_SECONDS = 0.001
"""The shortest pull in seconds."""


class Subscribing:
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
        consumer: str | None = None,
        bind: bool = False,
        keep: bool | None = None,
        heartbeat_patience: Seconds | None = None,
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
            callback: Called with each message, on a thread of its own.
            ordered: Read in exact order.
            consumer: The name of an existing consumer.
            bind: The `durable` consumer must exist.
            keep: Whether a durable consumer that this call creates stays on the server
                after the end of the subscription. Default: it does not.
            heartbeat_patience: Seconds without any message until `on_error` gets a
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
        """
        called = check_call(
            callback, cb, on_error, pending_msgs_limit, pending_bytes_limit
        )
        heartbeat_patience = check_heartbeat_patience(
            heartbeat_patience, "heartbeat_patience"
        )
        reader = DeliveryOptions(
            called,
            manual_ack,
            on_error,
            pending_msgs_limit,
            pending_bytes_limit,
            heartbeat_patience,
        )
        call = Call(
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
            wanted = ordered_wanted(call)
            return subscribe_ordered(self._api, wanted, reader, timeout)
        return subscribe(self._api, push_wanted(call), reader, timeout)

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
            callback: Called with each message, on a thread of its own.
            queue: The name of the queue group.
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
        """
        check_call(None, None, None, pending_msgs_limit, pending_bytes_limit)
        if inbox_prefix is not None:
            raise ConfigError("inbox_prefix: give it to jsync.connect, for all inboxes")
        call = Call(
            subject, stream, None, durable, consumer, bind, config, fields, keep
        )
        return _pull_subscribe(self._api, pull_wanted(call), timeout)

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
        """
        given = {"consumer": consumer, "name": name, "durable": durable}
        names = {word for what, value in given.items() if (word := a_word(what, value))}
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


def _pull_subscribe(
    api: API, wanted: Wanted, timeout: Seconds | None
) -> PullSubscription:
    api.session.check_not_draining()
    stream = find_stream(api, wanted, timeout)
    name = wanted.name or ""
    created = False
    try:
        info = find_consumer(api, stream, wanted, timeout)
    except (APIError, errors.TimeoutError, PermissionsError):
        if not wanted.bound:
            raise
        # If only pull requests are allowed or imported, the info request has no answer.
        unknown = Consumer(api, stream, name)
        return PullSubscription(api, unknown, created=False, timeout=timeout)
    if info is None:
        warn_of_deletion(wanted)
        begun = monotonic()
        try:
            info = management.put_consumer(
                api, stream, "create", wanted.config, {}, timeout
            )
            created = can_be_made_within(monotonic() - begun, info)
        except ConsumerExistsError:
            info = management.consumer_info(api, stream, name, timeout)
    if not created:
        check_existing(wanted, info)
    consumer = Consumer(api, stream, info.name, info)
    owned = created and not wanted.keep
    return PullSubscription(api, consumer, created=owned, timeout=timeout)


class PullSubscription(UnsubscribeOnExit, NotCopyable):
    """A pull consumer that returns lists of messages.

    `JetStream.pull_subscribe` returns it. Any thread may use it. Leaving the `with`
    block unsubscribes. `consumer` has all other ways to read.
    """

    def __init__(
        self, api: API, consumer: Consumer, *, created: bool, timeout: Seconds | None
    ) -> None:
        self._api = api
        self._session = api.session
        self._consumer = consumer
        self._own = OwnConsumer()
        self._own.turn(Ownership.OURS if created else Ownership.THEIRS)
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
        return self._own.ownership is Ownership.OURS

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

        A fetch takes all messages that come for it, or gives them back.
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
        """
        check_int(batch, "batch", 1)
        if timeout is not None:
            timeout = seconds(timeout, "timeout")
        if heartbeat is not None:
            heartbeat = seconds(heartbeat, "heartbeat")
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
                raise errors.TimeoutError(f"no message within {timeout} s")
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
        timeout = seconds(timeout, "timeout")
        deadline = deadline_after(timeout)
        self.silence()
        self.wait_finished(deadline, timeout)

    def silence(self) -> None:
        """Begin no more fetches, as the first step of a drain."""
        self._closed = True

    def finish(self) -> None:
        """Do nothing in the second step of a drain, because there is no backlog."""

    def wait_finished(self, deadline: float, timeout: float) -> None:
        """Block until no fetch is running, then delete the consumer."""
        for under_way in list(self._fetches):
            if not under_way.wait(max(0.0, deadline - monotonic())):
                raise DrainTimeoutError(
                    f"{self!r} still had a fetch under way after {timeout} s"
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
        if own is not None and own.ownership is Ownership.OURS:
            own.left(self._api, self._consumer.cached_info)

    def __repr__(self) -> str:
        state = "active" if self.is_active else "ended"
        return (
            f"<PullSubscription of {self._consumer.name!r} in "
            f"{self._consumer.stream_name!r} {state}, {self._delivered} delivered>"
        )
