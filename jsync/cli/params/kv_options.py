"""The fields of a bucket as options, named as the nats command line tool names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from jsync.models import StreamSource

from ..decorators import with_options
from .completion import BUCKET
from .stream_options import (
    METADATA,
    PLACEMENT,
    REPUBLISH,
    domain_of,
    settle_placement,
    settle_republish,
)
from .values import DURATION, SIZE, Number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jsync import KeyValueConfig

_STORAGE: Final = {"f": "file", "m": "memory"}

_ALWAYS: Final = (
    click.option("--description", help="A description."),
    click.option(
        "--history",
        type=Number(1, 64),
        help="The number of revisions to keep for each key.",
    ),
    click.option("--ttl", type=DURATION, help="The age at which revisions expire."),
    click.option(
        "--marker-ttl",
        "limit_marker_ttl",
        type=DURATION,
        help="Let single keys expire, and keep their delete markers for this time (2.11).",
    ),
    click.option(
        "--replicas", type=Number(1), help="The number of replicas of the bucket."
    ),
    click.option("--max-value-size", type=SIZE, help="The maximum size of one value."),
    click.option(
        "--max-bucket-size",
        "max_bytes",
        type=SIZE,
        help="The maximum size of the bucket.",
    ),
    click.option(
        "--compress/--no-compress",
        "compression",
        default=None,
        help="Compress the files of the bucket.",
    ),
    *PLACEMENT,
    *REPUBLISH,
    click.option(
        "--source",
        "sources",
        type=BUCKET,
        multiple=True,
        metavar="BUCKET",
        help="Copy the keys of this bucket. Can be repeated.",
    ),
    METADATA,
)
_AT_CREATION: Final = (
    click.option(
        "--storage",
        type=click.Choice(["file", "memory", "f", "m"]),
        help="Store values in files or in memory.",
    ),
    click.option(
        "--mirror",
        type=BUCKET,
        metavar="BUCKET",
        help="Be a read-only mirror of this bucket.",
    ),
    click.option(
        "--mirror-domain",
        metavar="NAME",
        help="The JetStream domain of the mirrored bucket.",
    ),
)


bucket_options: Final = with_options(*_ALWAYS)
new_bucket_options: Final = with_options(*_ALWAYS, *_AT_CREATION)


def bucket_fields(given: Mapping[str, Any], before: KeyValueConfig) -> dict[str, Any]:
    """Return the fields that options set.

    `before` has the other fields. Raises `click.UsageError` if an option needs another one.
    """
    fields = {name: value for name, value in given.items() if value not in (None, ())}
    if "storage" in fields:
        fields["storage"] = _STORAGE.get(fields["storage"], fields["storage"])
    if "metadata" in fields:
        fields["metadata"] = {**(before.metadata or {}), **dict(fields["metadata"])}
    if "sources" in fields:
        fields["sources"] = [StreamSource(name=name) for name in fields["sources"]]
    settle_placement(fields, before.placement)
    settle_republish(fields)
    external = domain_of(fields.pop("mirror_domain", None))
    if "mirror" in fields:
        fields["mirror"] = StreamSource(name=fields["mirror"], external=external)
    elif external is not None:
        raise click.UsageError("--mirror-domain needs --mirror")
    return fields
