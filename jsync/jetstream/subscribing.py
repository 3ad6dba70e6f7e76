"""The subscribe calls of `JetStream`: legacy code moves over with them (ADR-15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..checks import patience
from ..errors import ConfigError
from .push.subscribe import Reader, pull_subscribe, subscribe, subscribe_ordered
from .push.wanted import (
    MOST_PENDING,
    MOST_PENDING_BYTES,
    Call,
    a_word,
    check_call,
    ordered_wanted,
    pull_wanted,
    push_wanted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._fast import JetStreamMsg
    from ..checks import Seconds
    from ..models import ConsumerConfig
    from .api import API
    from .push.pull_subscription import PullSubscription
    from .push.subscription import PushSubscription


class Subscribing:
    """The half of `JetStream` that subscribes."""

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
        pending_msgs_limit: int = MOST_PENDING,
        pending_bytes_limit: int = MOST_PENDING_BYTES,
        deliver_policy: str | None = None,
        headers_only: bool | None = None,
        inactive_threshold: Seconds | None = None,
        *,
        callback: Callable[[JetStreamMsg], object] | None = None,
        ordered: bool = False,
        consumer: str | None = None,
        bind: bool = False,
        heartbeat_patience: Seconds | None = None,
        on_error: Callable[[Exception], object] | None = None,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PushSubscription:
        """Subscribe to a push consumer, and create it if that is what is asked for (ADR-15).

        For code that comes from nats-py, whose names and order of arguments these are, and
        for push consumers that exist; new code has `Stream.create_consumer` and its
        `messages`. Iterate over what is returned, call its `next`, or give a `callback`,
        which is called with each message on a thread of its own. `callback` is the word of
        `Connection.subscribe`, `cb` that of nats-py, since a call that moves over is to
        need no other change; giving both is an error. So are `ordered` and
        `ordered_consumer` the same. A message is acked when the callback has returned,
        unless `manual_ack`; when it raises there is no ack, and `on_error` is told.

        Which consumer:

        * none named: one is created for this subscription alone;
        * `durable`: the one of that name, created if there is none;
        * `queue`: the one that the members of the group share; without `durable` or
          `consumer` its name is the queue's;
        * `consumer`, or `durable` with `bind`: one that is there, else
          `ConsumerNotFoundError`;
        * `ordered`: none but a succession of them, for a reader that wants each message
          once and in order; the next one is made when there is a gap. Without acks.

        Without `stream` it is looked up by the subject: `StreamNotFoundError` when there
        is none, `AmbiguousSubjectError` when there are several. The consumer is created
        with the subject as its filter and with `config`, a `ConsumerConfig` or anything
        with `as_dict()`, such as nats-py's. Further keywords are fields of the
        configuration: `ack_wait=60`. Flow control is given heartbeats every 5 seconds if
        nothing is said of them. If this call created the consumer, `unsubscribe` and
        `drain` of the subscription delete it, and so does `Connection.drain`; to have it
        stay, create it with `create_consumer` first.

        One that is there has to fit, and is not changed: else `DuplicateSubscriptionError`
        when it has a subscription already (of which its server hears a moment late, most
        of all in a cluster), `DeliverGroupError`, `FilterMismatchError`,
        `PullRequiredError`, or `ConfigMismatchError` for fields that were given and are
        otherwise. If somebody else creates it in the same moment, that holds as well, and
        only a `queue` can share it. What cannot be is a `ConfigError` before anything is
        sent: a queue with heartbeats or flow control, neither subject nor stream.

        Blocks, at most `timeout` seconds for each request, by default the context's.
        `on_error` is by default the connection's; it is told, too, when nothing has come
        for `heartbeat_patience` seconds, by default three heartbeats. A reader that lags by
        more than `pending_msgs_limit` or `pending_bytes_limit` loses what comes then, and
        gets it again after the `ack_wait`; an ordered one has no limits, since flow control
        holds the server back.
        """
        called = check_call(
            callback, cb, on_error, pending_msgs_limit, pending_bytes_limit
        )
        heartbeat_patience = patience(heartbeat_patience, "heartbeat_patience")
        reader = Reader(
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
        pending_msgs_limit: int = MOST_PENDING,
        pending_bytes_limit: int = MOST_PENDING_BYTES,
        *,
        callback: Callable[[JetStreamMsg], object] | None = None,
        queue: str | None = None,
        on_error: Callable[[Exception], object] | None = None,
        timeout: Seconds | None = None,
    ) -> PushSubscription:
        """Subscribe to a push consumer that is there: `subscribe` with `consumer`.

        `config`, such as the one of its `ConsumerInfo`, is held against it; the deliver
        group in it is the `queue`. Without `consumer` it is the one that `config` names.
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
        pending_msgs_limit: int = MOST_PENDING,
        pending_bytes_limit: int = MOST_PENDING_BYTES,
        inbox_prefix: bytes | None = None,
        *,
        consumer: str | None = None,
        bind: bool = False,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PullSubscription:
        """Have messages pulled from a consumer, and create it if need be (ADR-15).

        For code that comes from nats-py; new code has `Stream.create_consumer`. Stream,
        consumer, `config` and further keywords are as with `subscribe`; there are no
        queues, since everybody may pull. Its `ack_policy` is explicit. For a `consumer`
        that cannot be asked for it goes on, and the first `fetch` shows whether it is
        there: `NoRespondersError`. Servers answer alike to who creates a durable consumer
        and to who wants the very same a moment later: within a round trip, and longer in a
        cluster, both are taken for its creator, whose `unsubscribe` deletes it. Blocks, and
        raises, as `subscribe` does; `PushRequiredError` for a push consumer.

        Pulls hold no backlog here, so that the limits say nothing; they are there for
        calls that move over. The prefix of inboxes is the connection's: `inbox_prefix` of
        `jsync.connect`.
        """
        check_call(None, None, None, pending_msgs_limit, pending_bytes_limit)
        if inbox_prefix is not None:
            raise ConfigError("inbox_prefix: give it to jsync.connect, for all inboxes")
        call = Call(subject, stream, None, durable, consumer, bind, config, fields)
        return pull_subscribe(self._api, pull_wanted(call), timeout)

    def pull_subscribe_bind(
        self,
        consumer: str | None = None,
        stream: str | None = None,
        inbox_prefix: bytes | None = None,
        pending_msgs_limit: int = MOST_PENDING,
        pending_bytes_limit: int = MOST_PENDING_BYTES,
        name: str | None = None,
        durable: str | None = None,
        *,
        timeout: Seconds | None = None,
    ) -> PullSubscription:
        """Pull from a consumer that is there: `pull_subscribe` with `consumer`.

        `name` and `durable` are older words of nats-py for `consumer`: give one.
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
