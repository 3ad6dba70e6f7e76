"""The checks of a consumer before a client binds to it (ADR-15). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import DuplicateSubscriptionError, PullRequiredError, PushRequiredError

if TYPE_CHECKING:
    from ...models import ConsumerInfo


def check_push(info: ConsumerInfo) -> None:
    if not info.config.deliver_subject:
        raise PullRequiredError(
            f"{describe_consumer(info)} is a pull consumer: use pull_subscribe, or its messages()"
        )


def check_pull(info: ConsumerInfo) -> None:
    if info.config.deliver_subject:
        raise PushRequiredError(
            f"{describe_consumer(info)} is a push consumer: use subscribe to read from it"
        )


def check_not_bound(info: ConsumerInfo, taken: bool = False) -> None:
    if info.push_bound or taken:
        raise DuplicateSubscriptionError(
            f"{describe_consumer(info)} has a subscription already: a second one would be a "
            "duplicate. To share the messages create it with a queue"
        )


def describe_consumer(info: ConsumerInfo) -> str:
    return f"consumer {info.name!r} of stream {info.stream_name!r}"
