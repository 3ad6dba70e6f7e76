"""The fields of a bucket as options, named as the nats command line tool names them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from jsync import KeyValueConfig
from jsync.models import StreamSource

from ..decorators import with_options
from .completion import BUCKET
from .config_options import config_option
from .stream_options import (
    METADATA,
    PLACEMENT,
    REPUBLISH,
    domain_of,
    merge_placement,
    merge_republish,
)
from .values import Number

if TYPE_CHECKING:
    from collections.abc import Mapping

_option = partial(config_option, KeyValueConfig)
_STORAGE: Final = {"f": "file", "m": "memory"}

_ALWAYS: Final = (
    _option("description", "A description."),
    _option("history", "The number of revisions to keep for each key."),
    _option("ttl", "The age at which revisions expire."),
    _option(
        "marker-ttl",
        "Let single keys expire, and keep their delete markers for this time (2.11).",
        field="limit_marker_ttl",
    ),
    _option("replicas", "The number of replicas of the bucket.", type=Number(1)),
    _option("max-value-size", "The maximum size of one value."),
    _option("max-bucket-size", "The maximum size of the bucket.", field="max_bytes"),
    _option("compress", "Compress the files of the bucket.", field="compression"),
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
    _option(
        "storage",
        "Store values in files or in memory.",
        type=click.Choice(["file", "memory", "f", "m"]),
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
    merge_placement(fields, before.placement)
    merge_republish(fields)
    external = domain_of(fields.pop("mirror_domain", None))
    if "mirror" in fields:
        fields["mirror"] = StreamSource(name=fields["mirror"], external=external)
    elif external is not None:
        raise click.UsageError("--mirror-domain needs --mirror")
    return fields
