"""The fields of a stream as options, named as the nats command line tool names them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from jsync.models import (
    ConsumerLimits,
    External,
    Placement,
    Republish,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)

from ..decorators import with_options
from .completion import STREAM
from .config_options import config_option
from .values import DURATION, Number

if TYPE_CHECKING:
    from collections.abc import Mapping

_option = partial(config_option, StreamConfig)
_RETENTION: Final = {"work": "workqueue", "workq": "workqueue"}

PLACEMENT: Final = (
    config_option(
        Placement,
        "cluster",
        "The cluster that stores the replicas.",
        metavar="NAME",
    ),
    click.option(
        *("--tag", "--tags", "tags"),
        multiple=True,
        metavar="TAG",
        help="A tag that the servers of the replicas must have. Can be repeated.",
    ),
)
REPUBLISH: Final = (
    click.option(
        "--republish-source",
        metavar="SUBJECT",
        help="Publish stored messages of these subjects again. Default: all.",
    ),
    click.option(
        "--republish-destination",
        metavar="SUBJECT",
        help="The subject on which messages are published again.",
    ),
    click.option(
        "--republish-headers",
        is_flag=True,
        help="Publish messages again without their payloads.",
    ),
)
METADATA: Final = _option(
    "metadata", "A name and a value to store in the metadata. Can be repeated."
)
_ALWAYS: Final = (
    _option(
        "subjects",
        "Subjects to store, wildcards allowed, with commas between them. Can be repeated.",
        metavar="SUBJECT",
    ),
    _option("description", "A description."),
    _option(
        "retention",
        "Remove messages at limits, without interested consumers, or once processed.",
        type=click.Choice(["limits", "interest", "work", "workq", "workqueue"]),
    ),
    _option("max-msgs", "The maximum number of messages."),
    _option("max-bytes", "The maximum size of the stream."),
    _option("max-age", "The age at which messages expire."),
    _option("max-msgs-per-subject", "The maximum number of messages of one subject."),
    _option("max-msg-size", "The maximum size of one message."),
    _option("max-consumers", "The maximum number of consumers."),
    _option("discard", "At a limit, drop old messages, or reject new ones."),
    _option(
        "discard-per-subject",
        "With --discard new, also reject messages beyond --max-msgs-per-subject.",
        field="discard_new_per_subject",
    ),
    _option(
        "replicas",
        "The number of replicas of the stream.",
        field="num_replicas",
        type=Number(1),
    ),
    *PLACEMENT,
    _option("compression", "The compression of the stream's files."),
    _option(
        "dupe-window",
        "The time to remember message ids for deduplication.",
        field="duplicate_window",
    ),
    click.option(
        "--mirror",
        type=STREAM,
        metavar="STREAM",
        help="Be a read-only copy of this stream.",
    ),
    click.option(
        "--source",
        "sources",
        type=STREAM,
        multiple=True,
        metavar="STREAM",
        help="Copy the messages of this stream. Can be repeated.",
    ),
    click.option(
        "--source-domain",
        metavar="DOMAIN",
        help="The JetStream domain of the streams of --source or --mirror, such as hub.",
    ),
    click.option(
        "--ack/--no-ack", default=None, help="Acknowledge each publish to the stream."
    ),
    _option(
        "allow-direct",
        "Let every replica answer reads of single messages (direct get).",
    ),
    _option(
        "allow-mirror-direct",
        "Let mirrors of the stream answer reads of single messages.",
        field="mirror_direct",
    ),
    _option("allow-batch", "Allow atomic batches (2.12).", field="allow_atomic"),
    _option("allow-fast", "Allow fast ingest (2.14).", field="allow_batched"),
    _option(
        "allow-counter",
        "Make each subject a counter (2.12).",
        field="allow_msg_counter",
    ),
    _option("allow-msg-ttl", "Allow messages with a TTL (2.11)."),
    _option("allow-schedules", "Allow schedules (2.12).", field="allow_msg_schedules"),
    _option(
        "allow-rollup",
        "Allow a message to replace all earlier ones of its subject.",
        field="allow_rollup_hdrs",
    ),
    _option("deny-delete", "Forbid deleting messages, permanently."),
    _option("deny-purge", "Forbid purging, permanently."),
    _option(
        "subject-del-markers-ttl",
        "Keep a delete marker for this time when a subject's last message expires (2.11).",
        field="subject_delete_marker_ttl",
    ),
    click.option(
        "--transform-source",
        metavar="SUBJECT",
        help="Rename these subjects before messages are stored. Default: all.",
    ),
    click.option(
        "--transform-destination",
        metavar="SUBJECT",
        help="The new subjects, such as archive.>.",
    ),
    *REPUBLISH,
    METADATA,
)
_AT_CREATION: Final = (
    _option("storage", "Store messages in files or in memory."),
    _option(
        "first-sequence",
        "The sequence number of the first message.",
        field="first_seq",
        type=Number(1),
    ),
    _option(
        "persist-mode",
        "Acknowledge after the write to disk, or before it with async (2.12).",
    ),
    click.option(
        "--limit-consumer-inactive",
        type=DURATION,
        help="The time without use after which consumers are deleted.",
    ),
    click.option(
        "--limit-consumer-max-pending",
        type=Number(1),
        help="The maximum number of unacknowledged messages of a consumer.",
    ),
)


stream_options: Final = with_options(*_ALWAYS)
new_stream_options: Final = with_options(*_ALWAYS, *_AT_CREATION)


def stream_fields(given: Mapping[str, Any], before: StreamConfig) -> dict[str, Any]:
    """Return the fields that the options set.

    `before` has the metadata and the placement that the options change. Raises
    `click.UsageError` if an option needs another one.
    """
    fields = {name: value for name, value in given.items() if value not in (None, ())}
    subjects = fields.pop("subjects", ())
    if subjects:
        fields["subjects"] = [part for text in subjects for part in text.split(",")]
    if "retention" in fields:
        fields["retention"] = _RETENTION.get(fields["retention"], fields["retention"])
    if "ack" in fields:
        fields["no_ack"] = not fields.pop("ack")
    external = domain_of(fields.pop("source_domain", None))
    if "mirror" in fields:
        fields["mirror"] = StreamSource(name=fields["mirror"], external=external)
    if "sources" in fields:
        fields["sources"] = [
            StreamSource(name=name, external=external) for name in fields["sources"]
        ]
    if external is not None and fields.keys().isdisjoint(("mirror", "sources")):
        raise click.UsageError("--source-domain needs --source or --mirror")
    if "metadata" in fields:
        fields["metadata"] = {**(before.metadata or {}), **dict(fields["metadata"])}
    merge_placement(fields, before.placement)
    if transform := _two(fields, "transform"):
        fields["subject_transform"] = SubjectTransform(
            src=transform[0], dest=transform[1]
        )
    merge_republish(fields)
    limits = {
        "inactive_threshold": fields.pop("limit_consumer_inactive", None),
        "max_ack_pending": fields.pop("limit_consumer_max_pending", None),
    }
    if any(limits.values()):
        fields["consumer_limits"] = ConsumerLimits(**limits)
    return fields


def domain_of(name: str | None) -> External | None:
    """Return the API of a JetStream domain, or None for the own one.

    Raises `click.UsageError` if a domain cannot have this name.
    """
    if name is None:
        return None
    if not name or any(c in ".*>" or c.isspace() for c in name):
        raise click.UsageError(
            f"{name!r} is not a JetStream domain: a name without dots, * and >, as in "
            "the configuration of the leaf node"
        )
    return External(api=f"$JS.{name}.API")


def merge_placement(fields: dict[str, Any], before: Placement | None) -> None:
    """Replace `cluster` and `tags` by a `placement`.

    A value that is not given is taken from `before`.
    """
    cluster, tags = fields.pop("cluster", None), fields.pop("tags", None)
    if cluster or tags:
        changes = {"cluster": cluster, "tags": tags and [*tags]}
        fields["placement"] = (before or Placement()).replace(
            **{name: value for name, value in changes.items() if value}
        )


def merge_republish(fields: dict[str, Any]) -> None:
    """Replace the options of republishing by a `republish`.

    Raises `click.UsageError` if the destination is missing.
    """
    headers_only = fields.pop("republish_headers", False)
    if republish := _two(fields, "republish"):
        fields["republish"] = Republish(
            src=republish[0], dest=republish[1], headers_only=headers_only or None
        )
    elif headers_only:
        raise click.UsageError("--republish-headers needs --republish-destination")


def _two(fields: dict[str, Any], what: str) -> tuple[str, str] | None:
    """Return the source and the destination of `what`, or None if neither is given.

    The default source is all subjects.
    """
    source = fields.pop(f"{what}_source", None)
    destination = fields.pop(f"{what}_destination", None)
    if destination is None:
        if source is not None:
            raise click.UsageError(f"--{what}-source needs --{what}-destination")
        return None
    return source or ">", destination
