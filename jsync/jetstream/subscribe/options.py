"""The options of a subscribe call, and the check of an existing consumer (ADR-15). Pure.

The options are merged, and rejected if they are invalid, before the first request. An
existing consumer is compared with them by the rules of "Push Consumer active information
and queue group binding".
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...errors import (
    ConfigError,
    ConfigMismatchError,
    DeliverGroupFeatureError,
    FilterMismatchError,
    NoDeliverGroupError,
    OtherDeliverGroupError,
    QueueRequiredError,
)
from ...models import ConsumerConfig, check_filter, check_name
from ...models.model import fields_of
from ...validation import check_bool, check_int, check_optional_callable
from ..push.binding import check_not_bound, check_pull, check_push, describe_consumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...models import ConsumerInfo

HEARTBEAT_SECONDS: Final = 5.0
"""The default interval of the heartbeats that flow control needs."""

MAX_PENDING: Final = 512 * 1024
"""The most messages that a subscription buffers, as in nats-py."""
MAX_PENDING_BYTES: Final = 256 << 20
"""The most bytes that a subscription buffers, as in nats-py."""

_PULL_ONLY: Final = (
    "max_waiting",
    "max_batch",
    "max_expires",
    "max_bytes",
    "priority_groups",
    "priority_policy",
    "priority_timeout",
)
_PUSH_ONLY: Final = (
    "deliver_subject",
    "deliver_group",
    "flow_control",
    "idle_heartbeat",
    "rate_limit_bps",
)
_ORDERED_VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    "ack_policy": ("none",),
    "ack_wait": (),
    "backoff": (),
    "deliver_subject": (),
    "max_ack_pending": (),
    "max_deliver": (1,),
    "mem_storage": (True,),
    "num_replicas": (1,),
    "rate_limit_bps": (),
    "sample_freq": (),
    "pause_until": (),
}
"""Options that an ordered consumer sets itself, and the only values a caller may give."""


@dataclass(frozen=True, slots=True)
class SubscribeArgs:
    """The arguments of a subscribe call."""

    subject: str | None = None
    stream: str | None = None
    queue: str | None = None
    durable: str | None = None
    consumer: str | None = None
    bind: bool = False
    config: object | None = None
    """A `ConsumerConfig`, a mapping, or something with `as_dict()`."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the configuration, given as keywords. None counts as not given."""
    keep: bool | None = None


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A valid subscription, which is possible unless an existing consumer does not fit."""

    push: bool
    subject: str | None
    stream: str | None
    name: str | None
    """The consumer to look up. None creates one for this subscription alone."""
    bound: bool
    """True if the consumer must exist, so that none is created."""
    queue: str | None
    config: ConsumerConfig
    """The configuration to create the consumer with."""
    requested: frozenset[str]
    """The fields of `config` that the caller gave, which an existing consumer must match."""
    keep: bool | None = None
    """True if a created consumer outlasts the subscription. None if not given."""


def check_arguments(
    callback: Callable[..., object] | None,
    cb: Callable[..., object] | None,
    on_error: Callable[..., object] | None,
    max_pending_messages: int,
    max_pending_bytes: int,
) -> Callable[..., object] | None:
    """Check the options, and return the callback. Raises `ConfigError`."""
    if callback is not None and cb is not None:
        raise ConfigError("callback and cb are the same thing: give one")
    chosen = cb if callback is None else callback
    for what, function in (("callback", chosen), ("on_error", on_error)):
        check_optional_callable(function, what)
    check_int(max_pending_messages, "pending_msgs_limit", 1)
    check_int(max_pending_bytes, "pending_bytes_limit", 1)
    return chosen


def resolve_push(args: SubscribeArgs) -> SubscribeRequest:
    """Check the options of a push subscription. Raises `ConfigError`."""
    given, requested = _merge_config(args)
    queue = _exclusive("queue", args.queue, "deliver_group", given.deliver_group)
    if queue is not None:
        check_filter(queue, "queue")
        for name in ("idle_heartbeat", "flow_control"):
            if getattr(given, name):
                raise ConfigError(
                    f"{name}: not with queue {queue!r}: each of these messages would "
                    "reach a random member of the group"
                )
    _reject_fields(given, _PULL_ONLY, "it is for pull consumers: use pull_subscribe")
    if given.flow_control and not given.idle_heartbeat:
        # Servers require both: a heartbeat reveals a lost flow control message.
        given = given.replace(idle_heartbeat=HEARTBEAT_SECONDS)
    if given.deliver_group != queue:
        given = given.replace(deliver_group=queue)
    return _resolve(args, given, requested, push=True, queue=queue)


def resolve_pull(args: SubscribeArgs) -> SubscribeRequest:
    """Check the options of a pull subscription. Raises `ConfigError`."""
    given, requested = _merge_config(args)
    if given.ack_policy != "explicit":
        raise ConfigError(
            f"ack_policy: {given.ack_policy!r} is not for pull subscriptions (ADR-15): use "
            "explicit, or js.create_consumer and its fetch"
        )
    _reject_fields(given, _PUSH_ONLY, "it is for push consumers: use subscribe")
    return _resolve(args, given, requested, push=False)


def resolve_ordered(args: SubscribeArgs) -> SubscribeRequest:
    """Check the options of an ordered subscription. Raises `ConfigError`."""
    given, requested = _merge_config(args)
    names = {
        "queue": args.queue or given.deliver_group,
        "durable": args.durable or given.durable_name,
        "consumer": args.consumer,
        "bind": args.bind,
        "keep": args.keep,
    }
    for what, value in names.items():
        if value:
            raise ConfigError(
                f"{what}: not with an ordered consumer, which makes consumers of its own, "
                "for one reader"
            )
    for name, allowed in _ORDERED_VALUES.items():
        value = getattr(given, name)
        if name == "ack_policy" and args.config is not None and value == "explicit":
            continue  # the default of the configuration
        if name in requested and value and value not in allowed:
            raise ConfigError(
                f"{name}: not {value!r} with an ordered consumer, which sets it itself"
            )
    _reject_fields(given, _PULL_ONLY, "it is for pull consumers")
    ordered = given.replace(ack_policy="none")
    return _resolve(args, ordered, requested, push=True)


def _resolve(
    args: SubscribeArgs,
    given: ConsumerConfig,
    requested: frozenset[str],
    *,
    push: bool,
    queue: str | None = None,
) -> SubscribeRequest:
    subject = _exclusive(
        "subject", args.subject, "filter_subject", given.filter_subject
    )
    if subject is not None:
        check_filter(subject, "subject")
    if (stream := optional_str("stream", args.stream)) is not None:
        check_name(stream, "stream")
    elif subject is None:
        raise ConfigError("neither subject nor stream: give one to find the stream by")
    _check_start_position(given)
    consumer = optional_str("consumer", args.consumer)
    if consumer is not None and optional_str("durable", args.durable) is not None:
        raise ConfigError(
            "consumer and durable exclude each other: consumer names an existing one, "
            "durable creates it if it is missing"
        )
    bound = consumer is not None or args.bind
    durable = _exclusive("durable", args.durable, "durable_name", given.durable_name)
    in_config = durable or given.name
    name = _exclusive("consumer", consumer, "durable_name or name", in_config)
    if bound and name is None:
        raise ConfigError("bind: to which one? Give consumer or durable too")
    if durable is not None:
        requested |= {"durable_name"}
    if name is None and queue is not None:
        # Otherwise each member would get its own consumer and all messages (ADR-15).
        check_name(queue, "queue, which names the consumer when durable does not")
        name = durable = queue
    elif name is not None:
        check_name(name, "consumer" if consumer else "durable")
    keep = None if args.keep is None else check_bool(args.keep, "keep")
    if keep and name is None:
        raise ConfigError("keep: only for a consumer with a name: give durable too")
    if not given.filter_subjects:
        given = given.replace(filter_subject=subject)
    if given.name not in (None, durable or given.name):
        raise ConfigError(f"durable {durable!r} is not name {given.name!r}")
    if given.durable_name != durable:
        given = given.replace(durable_name=durable)
    return SubscribeRequest(
        push=push,
        subject=subject,
        stream=stream,
        name=name,
        bound=bound,
        queue=queue,
        config=given,
        requested=requested,
        keep=keep,
    )


def _merge_config(args: SubscribeArgs) -> tuple[ConsumerConfig, frozenset[str]]:
    """Merge configuration and keywords. Returns the result and the given fields."""
    given = {
        name: value
        for name, value in args.fields.items()
        # In nats-py, `flow_control=False` means that the option is not set.
        if value is not None and not (name == "flow_control" and value is False)
    }
    keywords = ConsumerConfig.from_any(None, given)
    whole = ConsumerConfig.from_any(args.config, {})
    requested = _given_fields(whole, args.config)
    for name in given:
        ours, theirs = getattr(keywords, name), getattr(whole, name)
        if name in requested and ours != theirs:
            raise ConfigError(
                f"{name}: {theirs!r} in config, {ours!r} as a keyword: give one"
            )
    merged = whole.updated({name: getattr(keywords, name) for name in given})
    return merged, requested | frozenset(given)


def _given_fields(whole: ConsumerConfig, config: object | None) -> frozenset[str]:
    """Return the fields that a configuration sets."""
    if config is None:
        return frozenset()
    given = {
        name
        for name, known in fields_of(ConsumerConfig).items()
        if not known.is_blank(getattr(whole, name))
    }
    if isinstance(config, ConsumerConfig):
        return frozenset(given)
    if isinstance(config, Mapping):
        return frozenset(given & set(config))
    # nats-py's configurations always contain these defaults.
    unsaid: dict[str, Any] = {"deliver_policy": "all", "replay_policy": "instant"}
    return frozenset(
        name
        for name in given
        if (value := getattr(whole, name)) and value != unsaid.get(name)
    )


def _exclusive(
    what: str, value: str | None, other: str, in_config: str | None
) -> str | None:
    """Return a value that can be given in two places. "" counts as not given."""
    value, in_config = optional_str(what, value), in_config or None
    if value is not None and in_config not in (None, value):
        raise ConfigError(
            f"{what}: {value!r}, but {other} is {in_config!r} in config: give one"
        )
    return in_config if value is None else value


def optional_str(what: str, value: object) -> str | None:
    """Return a string, or None if it is not given. Raises `ConfigError`."""
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ConfigError(f"{what}: a string, not {type(value).__name__}")
    return value


def _reject_fields(given: ConsumerConfig, names: tuple[str, ...], why: str) -> None:
    for name in names:
        value = getattr(given, name)
        if value and value != "none":
            raise ConfigError(f"{name}: {why}")


def _check_start_position(given: ConsumerConfig) -> None:
    for name, policy in (
        ("opt_start_seq", "by_start_sequence"),
        ("opt_start_time", "by_start_time"),
    ):
        value = getattr(given, name)
        if value and given.deliver_policy != policy:
            raise ConfigError(f"{name}: only with deliver_policy={policy!r}")
        if not value and given.deliver_policy == policy:
            raise ConfigError(f"deliver_policy {policy!r}: from where? Give {name} too")


def warn_of_deletion(request: SubscribeRequest) -> None:
    """Warn that a durable consumer, about to be created, is deleted with its subscription.

    The stack level assumes two calls between this one and the program.
    """
    if request.keep is None and request.config.durable_name is not None:
        warnings.warn(
            f"this call creates the durable consumer {request.name!r}, so the end of the "
            "subscription deletes it: pass keep=True to keep it, or keep=False",
            RuntimeWarning,
            stacklevel=4,
        )


# Existing consumers -------------------------------------------------------------------


def check_existing(
    request: SubscribeRequest, info: ConsumerInfo, *, raced: bool = False
) -> None:
    """Raise a `SubscribeError` if the consumer does not fit.

    With `raced`, another client has created it since it was looked up.
    """
    if request.push:
        check_push(info)
        _check_group(request, info)
        if request.queue is None:
            # We created this consumer, so we are subscribed even if the server does not
            # list us yet.
            check_not_bound(info, raced)
    else:
        check_pull(info)
    _check_filter(request, info)
    _check_config(request, info)


def created_within(seconds: float, info: ConsumerInfo) -> bool:
    """Return whether a creation that took so long can have made this consumer.

    The server also reports success if an identical consumer already exists. In a cluster
    the answer is always yes, because the clocks of its servers differ.
    """
    if info.ts is None or info.created is None or info.cluster is not None:
        return True
    return (info.ts - info.created).total_seconds() <= seconds


def _check_group(request: SubscribeRequest, info: ConsumerInfo) -> None:
    group = info.config.deliver_group
    if request.queue is None:
        if group:
            raise QueueRequiredError(
                f"{describe_consumer(info)} was created for queue group {group!r}: subscribe with "
                f"queue={group!r}"
            )
        return
    if not group:
        raise NoDeliverGroupError(
            f"{describe_consumer(info)} was created without a deliver group: queue "
            f"{request.queue!r} cannot share it"
        )
    if group != request.queue:
        raise OtherDeliverGroupError(
            f"{describe_consumer(info)} was created for queue group {group!r}, not {request.queue!r}"
        )
    for what, existing in (
        ("flow control", info.config.flow_control),
        ("heartbeats", info.config.idle_heartbeat),
    ):
        if existing:
            raise DeliverGroupFeatureError(
                f"{describe_consumer(info)} has {what}, which are not supported over queues: each "
                f"would reach a random member of {group!r}"
            )


def _check_filter(request: SubscribeRequest, info: ConsumerInfo) -> None:
    config = info.config
    filters = config.filter_subjects or [config.filter_subject or ""]
    # Several filters are compared like any other field.
    if request.subject is None or filters == [""] or request.config.filter_subjects:
        return
    if filters != [request.subject]:
        raise FilterMismatchError(
            f"{describe_consumer(info)} is for {', '.join(map(repr, filters))}, not for "
            f"{request.subject!r}"
        )


def _check_config(request: SubscribeRequest, info: ConsumerInfo) -> None:
    requested = request.requested - {"filter_subject"}
    differences = {
        name: values
        for name, values in request.config.differences(info.config).items()
        if name in requested
    }
    if differences:
        listed = "; ".join(
            f"{name}: you gave {mine!r}, it has {theirs!r}"
            for name, (mine, theirs) in differences.items()
        )
        raise ConfigMismatchError(
            f"{describe_consumer(info)} has another configuration, and was not changed: {listed}",
            differences=differences,
        )
