"""The options of a read of an object store, checked. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import ConfigError
from .offsets import MAX_BYTES
from .options import SOURCE, invalid_option

if TYPE_CHECKING:
    from .options import Options

MAX_CONTENT: Final = 2_000_000_000
"""The most bytes of content. All columns of a row in Spark have less than 2 GiB together."""
_FOR_OBJECTS: Final = (
    *("objectStore", "pathGlobFilter", "maxObjectBytes", "failOnDataLoss"),
    *("minPartitions", "maxPartitions", "maxPartitionBytes"),
)


@dataclass(frozen=True)
class ObjectOptions:
    """The options of a read of an object store."""

    store: str
    pattern: str | None
    """Read only objects whose whole name matches, as in a shell."""
    max_object_bytes: int
    partition_bytes: int
    min_partitions: int | None
    max_partitions: int | None
    fail_on_loss: bool

    @classmethod
    def of(cls, options: Options, *, streaming: bool) -> ObjectOptions:
        """Read the options. Raises `ConfigError` if one is invalid."""
        store = options.text("objectStore")
        assert store is not None
        if streaming:
            raise ConfigError(
                "option objectStore is for a batch: read the store with spark.read, or in a "
                "pipeline with static = true"
            )
        for name in SOURCE:
            if name not in _FOR_OBJECTS and options.text(name) is not None:
                raise ConfigError(
                    f"option {name} is not for an object store: leave it out, or leave "
                    "objectStore out"
                )
        min_partitions, max_partitions = options.count_range("Partitions")
        limit = options.count("maxObjectBytes")
        if limit is not None and limit > MAX_CONTENT:
            expected = (
                f"at most {MAX_CONTENT}, because a row of Spark has less than 2 GiB"
            )
            raise invalid_option("maxObjectBytes", expected, f"{limit}")
        return cls(
            store=store,
            pattern=options.text("pathGlobFilter"),
            max_object_bytes=limit or MAX_BYTES,
            partition_bytes=options.count("maxPartitionBytes") or MAX_BYTES,
            min_partitions=min_partitions,
            max_partitions=max_partitions,
            fail_on_loss=options.flag("failOnDataLoss", True),
        )
