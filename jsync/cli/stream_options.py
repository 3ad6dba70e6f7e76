"""The fields of a stream as options, named as the nats command line tool names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from jsync.models import (
    ConsumerLimits,
    Placement,
    Republish,
    StreamSource,
    SubjectTransform,
)

from .completion import STREAM
from .values import DURATION, NOTE, SIZE, Number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jsync import StreamConfig

_COUNT: Final = Number(-1)
_RETENTION: Final = {"work": "workqueue", "workq": "workqueue"}


def _flag(name: str, field: str, help: str) -> Any:  # noqa: A002
    return click.option(f"--{name}/--no-{name}", field, default=None, help=help)


_ALWAYS: Final = (
    click.option(
        "--subjects",
        multiple=True,
        metavar="SUBJECT",
        help="What it stores, wildcards allowed.",
    ),
    click.option("--description", help="Words for people."),
    click.option(
        "--retention",
        type=click.Choice(["limits", "interest", "work", "workq", "workqueue"]),
        help="When messages go.",
    ),
    click.option("--max-msgs", type=_COUNT, help="Messages it may hold."),
    click.option("--max-bytes", type=SIZE, help="Bytes it may hold."),
    click.option("--max-age", type=DURATION, help="How long a message may stay."),
    click.option(
        "--max-msgs-per-subject", type=_COUNT, help="Messages of one subject."
    ),
    click.option("--max-msg-size", type=SIZE, help="Bytes of one message."),
    click.option("--max-consumers", type=_COUNT, help="Consumers it may have."),
    click.option(
        "--discard", type=click.Choice(["old", "new"]), help="What goes at a limit."
    ),
    _flag("discard-per-subject", "discard_new_per_subject", "Per subject, with new."),
    click.option(
        "--replicas",
        "num_replicas",
        type=Number(1),
        help="Servers that hold it.",
    ),
    click.option("--cluster", metavar="NAME", help="The cluster it lives in."),
    click.option(
        "--tag", "tags", multiple=True, metavar="TAG", help="Tags its servers have."
    ),
    click.option(
        "--compression", type=click.Choice(["none", "s2"]), help="Of its files."
    ),
    click.option(
        "--dupe-window",
        "duplicate_window",
        type=DURATION,
        help="How long message ids are remembered.",
    ),
    click.option("--mirror", type=STREAM, metavar="STREAM", help="Copy that stream."),
    click.option(
        "--source",
        "sources",
        type=STREAM,
        multiple=True,
        metavar="STREAM",
        help="Copy from those.",
    ),
    _flag("ack", "ack", "Acknowledge publishes."),
    _flag("allow-direct", "allow_direct", "Every replica answers gets."),
    _flag("allow-mirror-direct", "mirror_direct", "And so do mirrors."),
    _flag("allow-batch", "allow_atomic", "Allow atomic batches; 2.12."),
    _flag("allow-fast", "allow_batched", "Allow fast ingest; 2.14."),
    _flag("allow-counter", "allow_msg_counter", "Messages are counters; 2.12."),
    _flag("allow-msg-ttl", "allow_msg_ttl", "Messages may have a TTL; 2.11."),
    _flag("allow-schedules", "allow_msg_schedules", "Allow schedules; 2.12."),
    _flag("allow-rollup", "allow_rollup_hdrs", "Messages may replace others."),
    _flag("deny-delete", "deny_delete", "No message can be deleted, for good."),
    _flag("deny-purge", "deny_purge", "It cannot be purged, for good."),
    click.option(
        "--subject-del-markers-ttl",
        "subject_delete_marker_ttl",
        type=DURATION,
        help="Leave markers of what expired; 2.11.",
    ),
    click.option("--transform-source", metavar="SUBJECT", help="Store these subjects"),
    click.option("--transform-destination", metavar="SUBJECT", help="as those."),
    click.option("--republish-source", metavar="SUBJECT", help="Publish these again"),
    click.option("--republish-destination", metavar="SUBJECT", help="on those."),
    click.option(
        "--republish-headers", is_flag=True, help="Without payloads, as headers."
    ),
    click.option("--metadata", type=NOTE, multiple=True, help="A note of your own."),
)
_AT_CREATION: Final = (
    click.option(
        "--storage", type=click.Choice(["file", "memory"]), help="Where messages are."
    ),
    click.option(
        "--first-sequence",
        "first_seq",
        type=Number(1),
        help="Sequence of the first message.",
    ),
    click.option(
        "--persist-mode",
        type=click.Choice(["default", "async"]),
        help="When it is on the disk; 2.12.",
    ),
    click.option(
        "--limit-consumer-inactive",
        type=DURATION,
        help="How long its consumers may be idle.",
    ),
    click.option(
        "--limit-consumer-max-pending",
        type=Number(1),
        help="Acks its consumers may owe.",
    ),
)


def stream_options(*, creating: bool) -> Callable[..., Any]:
    """The options of `create`, or of `edit`, which cannot change all fields."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(_ALWAYS + (_AT_CREATION if creating else ())):
            command = option(command)
        return command

    return decorate


def stream_fields(given: Mapping[str, Any], before: StreamConfig) -> dict[str, Any]:
    """The fields that options stand for; what they leave out is as `before`.

    Raises `click.UsageError` for options that need one another.
    """
    fields = {name: value for name, value in given.items() if value not in (None, ())}
    subjects = fields.pop("subjects", ())
    if subjects:
        fields["subjects"] = [part for each in subjects for part in each.split(",")]
    if "retention" in fields:
        fields["retention"] = _RETENTION.get(fields["retention"], fields["retention"])
    if "ack" in fields:
        fields["no_ack"] = not fields.pop("ack")
    if "mirror" in fields:
        fields["mirror"] = StreamSource(name=fields["mirror"])
    if "sources" in fields:
        fields["sources"] = [StreamSource(name=name) for name in fields["sources"]]
    if "metadata" in fields:
        fields["metadata"] = {**(before.metadata or {}), **dict(fields["metadata"])}
    cluster, tags = fields.pop("cluster", None), fields.pop("tags", None)
    if cluster or tags:
        placement = before.placement or Placement()
        changes = {"cluster": cluster, "tags": tags and [*tags]}
        fields["placement"] = placement.replace(
            **{name: value for name, value in changes.items() if value}
        )
    if transform := _two(fields, "transform"):
        fields["subject_transform"] = SubjectTransform(
            src=transform[0], dest=transform[1]
        )
    headers_only = fields.pop("republish_headers", False)
    if republish := _two(fields, "republish"):
        fields["republish"] = Republish(
            src=republish[0], dest=republish[1], headers_only=headers_only or None
        )
    elif headers_only:
        raise click.UsageError("--republish-headers needs --republish-destination")
    limits = {
        "inactive_threshold": fields.pop("limit_consumer_inactive", None),
        "max_ack_pending": fields.pop("limit_consumer_max_pending", None),
    }
    if any(limits.values()):
        fields["consumer_limits"] = ConsumerLimits(**limits)
    return fields


def _two(fields: dict[str, Any], what: str) -> tuple[str, str] | None:
    """A pair of subjects, of which the first is all by default."""
    source = fields.pop(f"{what}_source", None)
    destination = fields.pop(f"{what}_destination", None)
    if destination is None:
        if source is not None:
            raise click.UsageError(f"--{what}-source needs --{what}-destination")
        return None
    return source or ">", destination
