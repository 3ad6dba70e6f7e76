"""A consumer that is there, held against what a subscription wants of it (ADR-15).

"Push Consumer active information and queue group binding".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import (
    ConfigMismatchError,
    DeliverGroupFeatureError,
    DuplicateSubscriptionError,
    FilterMismatchError,
    NoDeliverGroupError,
    OtherDeliverGroupError,
    PullRequiredError,
    PushRequiredError,
    QueueRequiredError,
)

if TYPE_CHECKING:
    from ...models import ConsumerInfo
    from .wanted import Wanted


def check_existing(wanted: Wanted, info: ConsumerInfo, *, raced: bool = False) -> None:
    """Raise the `SubscribeError` of what does not fit.

    `raced` says that somebody has created it since it was looked up.
    """
    if wanted.push:
        check_push(info)
        _check_group(wanted, info)
        if wanted.queue is None:
            # Who has just created it is subscribed, even if its server says not yet.
            check_free(info, raced)
    else:
        check_pull(info)
    _check_filter(wanted, info)
    _check_config(wanted, info)


def can_be_made_within(seconds: float, info: ConsumerInfo) -> bool:
    """Whether a creation that took so long can be the one that made this consumer.

    To create what is there already, alike in all, is answered as if it had been created.
    Of several servers the clocks differ.
    """
    if info.ts is None or info.created is None or info.cluster is not None:
        return True
    return (info.ts - info.created).total_seconds() <= seconds


def check_push(info: ConsumerInfo) -> None:
    if not info.config.deliver_subject:
        raise PullRequiredError(
            f"{_consumer(info)} is a pull consumer: use pull_subscribe, or its messages()"
        )


def check_pull(info: ConsumerInfo) -> None:
    if info.config.deliver_subject:
        raise PushRequiredError(
            f"{_consumer(info)} is a push consumer: use subscribe to read from it"
        )


def check_free(info: ConsumerInfo, taken: bool = False) -> None:
    if info.push_bound or taken:
        raise DuplicateSubscriptionError(
            f"{_consumer(info)} has a subscription already: a second one would be a "
            "duplicate. To share the messages create it with a queue"
        )


def _check_group(wanted: Wanted, info: ConsumerInfo) -> None:
    group = info.config.deliver_group
    if wanted.queue is None:
        if group:
            raise QueueRequiredError(
                f"{_consumer(info)} was created for queue group {group!r}: subscribe with "
                f"queue={group!r}"
            )
        return
    if not group:
        raise NoDeliverGroupError(
            f"{_consumer(info)} was created without a deliver group: queue "
            f"{wanted.queue!r} cannot share it"
        )
    if group != wanted.queue:
        raise OtherDeliverGroupError(
            f"{_consumer(info)} was created for queue group {group!r}, not {wanted.queue!r}"
        )
    for what, there in (
        ("flow control", info.config.flow_control),
        ("heartbeats", info.config.idle_heartbeat),
    ):
        if there:
            raise DeliverGroupFeatureError(
                f"{_consumer(info)} has {what}, which are not supported over queues: each "
                f"would reach a random member of {group!r}"
            )


def _check_filter(wanted: Wanted, info: ConsumerInfo) -> None:
    config = info.config
    filters = config.filter_subjects or [config.filter_subject or ""]
    # Several of them are compared as any other field of the configuration.
    if wanted.subject is None or filters == [""] or wanted.config.filter_subjects:
        return
    if filters != [wanted.subject]:
        raise FilterMismatchError(
            f"{_consumer(info)} is for {', '.join(map(repr, filters))}, not for "
            f"{wanted.subject!r}"
        )


def _check_config(wanted: Wanted, info: ConsumerInfo) -> None:
    asked = wanted.asked - {"filter_subject"}
    differences = {
        name: values
        for name, values in wanted.config.differences(info.config).items()
        if name in asked
    }
    if differences:
        listed = "; ".join(
            f"{name}: {mine!r} was asked for, it has {theirs!r}"
            for name, (mine, theirs) in differences.items()
        )
        raise ConfigMismatchError(
            f"{_consumer(info)} is set up otherwise, and was not changed: {listed}",
            differences=differences,
        )


def _consumer(info: ConsumerInfo) -> str:
    return f"consumer {info.name!r} of stream {info.stream_name!r}"
