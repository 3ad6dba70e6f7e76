"""The fields of a consumer as options, named as the nats command line tool names them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from jsync.models import ConsumerConfig

from ..decorators import with_options
from . import values
from .config_options import config_option
from .values import Number

if TYPE_CHECKING:
    from collections.abc import Mapping

_option = partial(config_option, ConsumerConfig)
_ALWAYS: Final = (
    _option("description", "A description."),
    _option(
        "filter",
        "Subjects to deliver, wildcards allowed, with commas between them. Can be repeated.",
        field="filter_subjects",
        metavar="SUBJECT",
    ),
    _option(
        "wait",
        "The time to wait for an ack before a message is redelivered.",
        field="ack_wait",
    ),
    _option(
        "backoff",
        "The times to wait for an ack before each redelivery, such as 1s,10s,1m.",
    ),
    _option("max-deliver", "The maximum number of deliveries of one message."),
    _option(
        "max-pending",
        "The maximum number of unacknowledged messages.",
        field="max_ack_pending",
    ),
    _option(
        "max-pull-batch",
        "The maximum number of messages that one pull can request.",
        field="max_batch",
        type=Number(0),
    ),
    _option(
        "max-pull-expire",
        "The maximum time that one pull can wait.",
        field="max_expires",
    ),
    _option(
        "max-pull-bytes",
        "The maximum number of bytes that one pull can request.",
        field="max_bytes",
    ),
    _option("inactive-threshold", "Delete the consumer after this time without use."),
    _option("headers-only", "Deliver messages without their payloads."),
    click.option(
        "--sample",
        type=Number(0, 100),
        help="The percentage of acks that the server reports as events.",
    ),
    _option(
        "replicas",
        "The number of replicas of the consumer's state.",
        field="num_replicas",
        type=Number(0),
    ),
    _option(
        "target",
        "The subject to push to. Default: a pull consumer.",
        field="deliver_subject",
        metavar="SUBJECT",
    ),
    _option(
        "metadata", "A name and a value to store in the metadata. Can be repeated."
    ),
)
_AT_CREATION: Final = (
    click.option(
        "--ephemeral",
        is_flag=True,
        help="Delete the consumer when it is no longer used.",
    ),
    # Accepted because scripts for the nats command pass it.
    click.option("--pull", is_flag=True, hidden=True),
    _option(
        "ack",
        "How messages are acknowledged. Default: explicit, each message.",
        field="ack_policy",
    ),
    click.option(
        "--deliver",
        metavar="WHERE",
        help="The first message: all, new, last, subject, a sequence, or a duration ago.",
    ),
    _option(
        "replay",
        "Deliver immediately, or at the pace at which messages were stored.",
        field="replay_policy",
    ),
    _option("max-waiting", "The maximum number of pulls that wait.", type=Number(1)),
    _option(
        "memory",
        "Store the state of the consumer in memory.",
        field="mem_storage",
        is_flag=True,
    ),
    _option(
        "deliver-group",
        "The queue group that receives the messages. Needs --target.",
        metavar="GROUP",
    ),
    _option(
        "flow-control",
        "Stop sending while the client is slow. Needs --target.",
        is_flag=True,
    ),
    _option(
        "heartbeat",
        "The time between heartbeats while there are no messages. Needs --target.",
        field="idle_heartbeat",
    ),
    _option(
        "bps",
        "The maximum rate of delivery in bits a second. Needs --target.",
        field="rate_limit_bps",
    ),
    _option(
        "pause",
        "Create the consumer paused until this time (2.11).",
        field="pause_until",
    ),
    click.option(
        "--pinned-groups",
        "pinned_client",
        metavar="GROUP",
        help="A priority group in which one client at a time gets the messages (2.11).",
    ),
    _option(
        "pinned-ttl",
        "The silence after which the client of --pinned-groups is replaced.",
        field="priority_timeout",
    ),
    click.option(
        "--overflow-groups",
        "overflow",
        metavar="GROUP",
        help="A priority group whose members pull beyond a limit of pending messages (2.11).",
    ),
    click.option(
        "--prioritized-groups",
        "prioritized",
        metavar="GROUP",
        help="A priority group whose members have priorities (2.12).",
    ),
)
_PRIORITIES: Final = ("pinned_client", "overflow", "prioritized")


consumer_options: Final = with_options(*_ALWAYS)
new_consumer_options: Final = with_options(*_ALWAYS, *_AT_CREATION)


def consumer_fields(given: Mapping[str, Any], before: ConsumerConfig) -> dict[str, Any]:
    """Return the fields that the options set.

    `before` has the metadata that new entries are added to. Raises `click.UsageError`
    for mutually exclusive options.
    """
    fields = {name: value for name, value in given.items() if value not in (None, ())}
    for name in ("pull", "ephemeral"):
        fields.pop(name, None)
    filters = [
        part for text in fields.pop("filter_subjects", ()) for part in text.split(",")
    ]
    if len(filters) == 1:  # servers before 2.10 have this field, too
        fields["filter_subject"] = filters[0]
    elif filters:
        fields["filter_subjects"] = filters
    if "metadata" in fields:
        fields["metadata"] = {**(before.metadata or {}), **dict(fields["metadata"])}
    if "sample" in fields:
        fields["sample_freq"] = str(fields.pop("sample"))
    if "deliver" in fields:
        fields |= start_of(fields.pop("deliver"))
    groups = {name: fields.pop(name) for name in _PRIORITIES if name in fields}
    if len(groups) > 1:
        raise click.UsageError(
            "a consumer has priority groups of one kind: give one of the options"
        )
    for policy, names in groups.items():
        fields["priority_policy"] = policy
        fields["priority_groups"] = names.split(",")
    return fields


def start_of(where: str) -> dict[str, Any]:
    """Return the fields for the value of `--deliver`.

    Raises `click.UsageError` if the value is not valid.
    """
    if where in ("all", "new", "last"):
        return {"deliver_policy": where}
    if where in ("subject", "last_per_subject"):
        return {"deliver_policy": "last_per_subject"}
    if where.isdecimal():
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": int(where)}
    try:
        since = datetime.now(UTC) - timedelta(seconds=values.seconds(where))
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"--deliver cannot be {where}: give all, new, last, subject, a sequence, "
            "or a duration"
        ) from None
    return {"deliver_policy": "by_start_time", "opt_start_time": since}
