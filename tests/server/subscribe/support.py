"""What the tests of push subscriptions share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsync.jetstream.push_subscription import PushSubscription

if TYPE_CHECKING:
    import jsync


def subscribe(
    js: jsync.JetStream,
    stream: jsync.Stream,
    *,
    callback: Any = None,
    manual_ack: bool = False,
    on_error: Any = None,
    limits: tuple[int, int] = (1 << 20, 1 << 30),
    patience: float | None = None,
    queue: str | None = None,
    **config: Any,
) -> PushSubscription:
    """A subscription with a consumer made for it, whose configuration is `config`."""
    inbox = f"{js._api.connection.session.inbox}t{id(config):x}"
    sub = PushSubscription.open(
        js._api,
        inbox,
        queue=queue,
        callback=callback,
        manual_ack=manual_ack,
        on_error=on_error,
        max_pending_messages=limits[0],
        max_pending_bytes=limits[1],
    )
    consumer = stream.create_consumer(
        deliver_subject=inbox, deliver_group=queue, **config
    )
    sub.bind(consumer.cached_info, created=True, heartbeat_patience=patience)
    return sub
