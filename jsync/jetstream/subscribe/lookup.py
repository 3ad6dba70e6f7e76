"""Making a subscription: find the stream, then look up or create the consumer (ADR-15).

`options` checks the options and whether an existing consumer fits. `subscription` and
`pull_subscription` deliver the messages.
"""

from __future__ import annotations

import secrets
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from ... import errors
from ...errors import (
    APIError,
    ConsumerExistsError,
    ConsumerNotFoundError,
    PermissionsError,
)
from .. import management
from ..consumer import Consumer
from .options import check_existing, created_within, warn_of_deletion
from .pull_subscription import PullSubscription
from .subscription import bind, close_unbound, open_ordered, open_subscription, rebind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg
    from ...models import ConsumerInfo
    from ...validation import Seconds
    from ..api import API
    from .options import SubscribeRequest
    from .subscription import PushSubscription


class DeliveryOptions(NamedTuple):
    """The options of a subscription's reader: callbacks, acks, limits and patience."""

    callback: Callable[[JetStreamMsg], object] | None
    manual_ack: bool
    on_error: Callable[[Exception], object] | None
    max_pending_messages: int
    max_pending_bytes: int
    heartbeat_timeout: float | None
    workers: int | None


def subscribe(
    api: API,
    request: SubscribeRequest,
    options: DeliveryOptions,
    timeout: Seconds | None,
) -> PushSubscription:
    api.session.check_not_draining()
    stream = find_stream(api, request, timeout)
    info = find_consumer(api, stream, request, timeout)
    if info is None:
        warn_of_deletion(request)
        return _create_and_subscribe(api, stream, request, options, timeout)
    check_existing(request, info)
    deliver = info.config.deliver_subject or ""
    sub = _open_subscription(
        api, deliver, f"{stream}.{info.name}", request, options, timeout
    )
    try:
        bind(sub, info, created=False, heartbeat_timeout=options.heartbeat_timeout)
    except BaseException:  # Ctrl-C, or a drain that has just begun
        close_unbound(sub)
        raise
    return sub


def subscribe_ordered(
    api: API,
    request: SubscribeRequest,
    options: DeliveryOptions,
    timeout: Seconds | None,
) -> PushSubscription:
    return open_ordered(
        api,
        find_stream(api, request, timeout),
        request.config,
        callback=options.callback,
        workers=options.workers,
        on_error=options.on_error,
        timeout=timeout,
        heartbeat_timeout=options.heartbeat_timeout,
    )


def pull_subscribe(
    api: API, request: SubscribeRequest, timeout: Seconds | None
) -> PullSubscription:
    api.session.check_not_draining()
    stream = find_stream(api, request, timeout)
    name = request.name or ""
    created = False
    try:
        info = find_consumer(api, stream, request, timeout)
    except (APIError, errors.TimeoutError, PermissionsError):
        if not request.bound:
            raise
        # If only pull requests are allowed or imported, the info request has no answer.
        unknown = Consumer(api, stream, name)
        return PullSubscription(api, unknown, created=False, timeout=timeout)
    if info is None:
        warn_of_deletion(request)
        started_at = monotonic()
        try:
            info = management.upsert_consumer(
                api, stream, "create", request.config, {}, timeout
            )
            created = created_within(monotonic() - started_at, info)
        except ConsumerExistsError:
            info = management.consumer_info(api, stream, name, timeout)
    if not created:
        check_existing(request, info)
    consumer = Consumer(api, stream, info.name, info)
    owned = created and not request.keep
    return PullSubscription(api, consumer, created=owned, timeout=timeout)


def find_stream(api: API, request: SubscribeRequest, timeout: Seconds | None) -> str:
    """Return the given stream, or look up the one that stores the subject. Blocks."""
    if request.stream is not None:
        return request.stream
    return management.stream_name_by_subject(api, request.subject or "", timeout)


def find_consumer(
    api: API, stream: str, request: SubscribeRequest, timeout: Seconds | None
) -> ConsumerInfo | None:
    """Look up the consumer. Returns None if it must be created."""
    if request.name is None:
        return None
    try:
        return management.consumer_info(api, stream, request.name, timeout)
    except ConsumerNotFoundError:
        if request.bound:
            raise
        return None


def _create_and_subscribe(
    api: API,
    stream: str,
    request: SubscribeRequest,
    options: DeliveryOptions,
    timeout: Seconds | None,
) -> PushSubscription:
    config = request.config
    if request.name is None:
        config = config.replace(name=secrets.token_hex(8))
    deliver = config.deliver_subject or _new_inbox(api)
    # Subscribe first: only then does the server see that a consumer is already in use.
    name = f"{stream}.{request.name or config.name}"
    sub = _open_subscription(api, deliver, name, request, options, timeout)
    try:
        config = config.replace(deliver_subject=deliver)
        created = True
        try:
            info = management.upsert_consumer(
                api, stream, "create", config, {}, timeout
            )
        except ConsumerExistsError:
            if request.name is None:  # a generated name is unique
                raise
            # Another client has created it since the look-up.
            created = False
            info = management.consumer_info(api, stream, request.name, timeout)
            check_existing(request, info, raced=True)
            rebind(sub, info.config.deliver_subject or "", queue=request.queue)
        owned = created and not request.keep
        bind(sub, info, created=owned, heartbeat_timeout=options.heartbeat_timeout)
    except BaseException:
        close_unbound(sub)
        raise
    return sub


def _open_subscription(
    api: API,
    subject: str,
    name: str,
    request: SubscribeRequest,
    options: DeliveryOptions,
    timeout: Seconds | None,
) -> PushSubscription:
    return open_subscription(
        api,
        subject,
        queue=request.queue,
        callback=options.callback,
        workers=options.workers,
        manual_ack=options.manual_ack,
        on_error=options.on_error,
        max_pending_messages=options.max_pending_messages,
        max_pending_bytes=options.max_pending_bytes,
        timeout=timeout,
        name=name,
    )


def _new_inbox(api: API) -> str:
    prefix = api.session.options.inbox_prefix
    return f"{prefix}.{secrets.token_hex(11)}"
