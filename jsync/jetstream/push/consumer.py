"""Push consumers, and the messages that they send (ADR-37)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...checks import callback as check_callback, patience, whole
from ...errors import ConfigError
from ...models import ConsumerConfig
from .. import management
from ..managed import ManagedConsumer
from ..pulls.faces import ConsumeContext, check_exception
from .driver import PushDelivery
from .existing import check_free, check_push

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg
    from ...checks import Seconds
    from ..api import API
    from ..management import Action
    from ..pulls.faces import OnException


class PushConsumer(ManagedConsumer):
    """A push consumer, as `push_consumer` and `create_push_consumer` of a stream give it.

    Any thread may use it. The server sends its messages to the `deliver_subject` of its
    configuration, as soon as somebody listens there.
    """

    def consume(
        self,
        handler: Callable[[JetStreamMsg], object],
        *,
        max_pending_messages: int | None = None,
        max_pending_bytes: int | None = None,
        heartbeat_patience: Seconds | None = None,
        workers: int = 1,
        on_exception: OnException = "continue",
        nak_delay: Seconds | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> ConsumeContext:
        """Have `handler` called with each message, on a thread of its own.

        Asks for the consumer first, which blocks: raises `ConsumerNotFoundError`,
        `PullRequiredError` when it is a pull consumer by now, and
        `DuplicateSubscriptionError` when somebody listens already and it has no
        `deliver_group`; the members of a group share its messages. It is left on the
        server at the end, `stop` gives back what has not been handled.

        As with `Consumer.consume` nothing is acknowledged for the handler, what it raises
        is reported to `on_error` as `CallbackError`, and `on_exception` with `nak_delay`
        says what becomes of its message; with several `workers` it is called on so many threads. Its backlog
        drops what comes beyond `max_pending_messages` and `max_pending_bytes`, by default
        those of the connection, which is reported as `SlowConsumerError` to the
        connection's `on_error`: a consumer with `flow_control` does not come to that.

        `on_error`, by default the connection's, gets warnings after which it goes on:
        `MissedHeartbeatError` after `heartbeat_patience` seconds in which nothing came, by
        default three times the `idle_heartbeat` of the consumer; `MessageGapError`;
        `PushError` and `NoRespondersError` for what the server reports (ADR-15).
        """
        delay = check_exception(
            on_exception, nak_delay, None if self._info is None else self._info.config
        )
        if not callable(handler):
            raise ConfigError("handler has to be callable")
        check_callback(on_error, "on_error")
        whole(workers, "workers", 1)
        for name, limit in (
            ("max_pending_messages", max_pending_messages),
            ("max_pending_bytes", max_pending_bytes),
        ):
            if limit is not None:
                whole(limit, name, 1)
        heartbeat_patience = patience(heartbeat_patience, "heartbeat_patience")
        info = self.info()
        check_push(info)
        if not info.config.deliver_group:
            check_free(info)
        session = self._api.session
        delivery = PushDelivery(
            self._api,
            info.config.deliver_subject or "",
            queue=info.config.deliver_group,
            on_error=on_error,
            max_messages=max_pending_messages or session.options.max_pending_messages,
            max_bytes=max_pending_bytes or session.options.max_pending_bytes,
            readers=workers,
        )
        delivery.bind(info, created=False, patience=heartbeat_patience)
        delivery.open()
        return ConsumeContext(
            delivery, handler, on_exception, session, self.name, workers, delay
        )

    def __repr__(self) -> str:
        return f"<PushConsumer {self.name!r} of {self.stream_name!r}>"


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
    """What the calls do that create and update."""
    whole = action != "update" or config is not None
    if whole and not ConsumerConfig.of(config, fields).deliver_subject:
        raise ConfigError(
            "deliver_subject: a push consumer has to have one; without one it is a pull "
            "consumer, and create_consumer makes it"
        )
    info = management.put_consumer(api, stream, action, config, fields, timeout)
    check_push(info)
    return PushConsumer(api, info.stream_name, info.name, info)
