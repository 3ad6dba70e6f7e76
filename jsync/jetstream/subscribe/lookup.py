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
from .options import can_be_made_within, check_existing, warn_of_deletion
from .pull_subscription import PullSubscription
from .subscription import PushSubscription

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg
    from ...checks import Seconds
    from ...models import ConsumerInfo
    from ..api import API
    from .options import Wanted


class DeliveryOptions(NamedTuple):
    """The options of a subscription's reader: callbacks, acks, limits and patience."""

    callback: Callable[[JetStreamMsg], object] | None
    manual_ack: bool
    on_error: Callable[[Exception], object] | None
    max_pending_messages: int
    max_pending_bytes: int
    heartbeat_patience: float | None


def subscribe(
    api: API, wanted: Wanted, reader: DeliveryOptions, timeout: Seconds | None
) -> PushSubscription:
    api.session.check_not_draining()
    stream = find_stream(api, wanted, timeout)
    info = find_consumer(api, stream, wanted, timeout)
    if info is None:
        warn_of_deletion(wanted)
        return _create_and_subscribe(api, stream, wanted, reader, timeout)
    check_existing(wanted, info)
    deliver = info.config.deliver_subject or ""
    sub = _open(api, deliver, f"{stream}.{info.name}", wanted, reader, timeout)
    try:
        sub.bind(info, created=False, heartbeat_patience=reader.heartbeat_patience)
    except BaseException:  # Ctrl-C, or a drain that has just begun
        sub.abandon()
        raise
    return sub


def subscribe_ordered(
    api: API, wanted: Wanted, reader: DeliveryOptions, timeout: Seconds | None
) -> PushSubscription:
    return PushSubscription.open_ordered(
        api,
        find_stream(api, wanted, timeout),
        wanted.config,
        callback=reader.callback,
        on_error=reader.on_error,
        timeout=timeout,
        heartbeat_patience=reader.heartbeat_patience,
    )


def pull_subscribe(
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


def find_stream(api: API, wanted: Wanted, timeout: Seconds | None) -> str:
    """Return the given stream, or look up the one that stores the subject. Blocks."""
    if wanted.stream is not None:
        return wanted.stream
    return management.stream_name_by_subject(api, wanted.subject or "", timeout)


def find_consumer(
    api: API, stream: str, wanted: Wanted, timeout: Seconds | None
) -> ConsumerInfo | None:
    """Look up the consumer. Returns None if it must be created."""
    if wanted.name is None:
        return None
    try:
        return management.consumer_info(api, stream, wanted.name, timeout)
    except ConsumerNotFoundError:
        if wanted.bound:
            raise
        return None


def _create_and_subscribe(
    api: API,
    stream: str,
    wanted: Wanted,
    reader: DeliveryOptions,
    timeout: Seconds | None,
) -> PushSubscription:
    config = wanted.config
    if wanted.name is None:
        config = config.replace(name=secrets.token_hex(8))
    deliver = config.deliver_subject or _inbox(api)
    # Subscribe first: only then does the server see that a consumer is already in use.
    name = f"{stream}.{wanted.name or config.name}"
    sub = _open(api, deliver, name, wanted, reader, timeout)
    try:
        config = config.replace(deliver_subject=deliver)
        created = True
        try:
            info = management.put_consumer(api, stream, "create", config, {}, timeout)
        except ConsumerExistsError:
            if wanted.name is None:  # a generated name is unique
                raise
            # Another client has created it since the look-up.
            created = False
            info = management.consumer_info(api, stream, wanted.name, timeout)
            check_existing(wanted, info, raced=True)
            sub.rebind(info.config.deliver_subject or "", queue=wanted.queue)
        owned = created and not wanted.keep
        sub.bind(info, created=owned, heartbeat_patience=reader.heartbeat_patience)
    except BaseException:
        sub.abandon()
        raise
    return sub


def _open(
    api: API,
    subject: str,
    name: str,
    wanted: Wanted,
    reader: DeliveryOptions,
    timeout: Seconds | None,
) -> PushSubscription:
    return PushSubscription.open(
        api,
        subject,
        queue=wanted.queue,
        callback=reader.callback,
        manual_ack=reader.manual_ack,
        on_error=reader.on_error,
        max_pending_messages=reader.max_pending_messages,
        max_pending_bytes=reader.max_pending_bytes,
        timeout=timeout,
        name=name,
    )


def _inbox(api: API) -> str:
    prefix = api.session.options.inbox_prefix
    return f"{prefix}.{secrets.token_hex(11)}"
