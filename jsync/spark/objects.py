"""Batches of the objects of an object store, in the columns of Spark's `binaryFile`.

The driver lists the objects, and a partition has the infos of some of them. An executor reads
the bytes that were listed, or raises: an object that was replaced or deleted since has other
bytes, and a row never mixes two versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..errors import (
    BucketNotFoundError,
    ConfigError,
    LinkError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from .connection import ConnectionOptions, get_jetstream
from .object_options import ObjectOptions
from .parallel import map_parallel
from .retry import RETRY_INTERVAL, retry_until_available
from .schema import OBJECT_COLUMNS, arrow_schema, check_schema
from .stream_state import BEHIND, LossPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow
    from pyspark.sql.types import StructType

    from .. import ObjectInfo, ObjectStore
    from .options import Options

BATCH_BYTES: Final = 8 << 20
"""About as many bytes of objects are passed to Spark together."""
OPEN_BYTES: Final = 1 << 20
"""The cost of opening an object, in bytes."""


@dataclass(frozen=True)
class ListedObject:
    """An object as the driver has listed it."""

    path: str
    nuid: str
    """The id of its bytes."""
    revision: int
    """The number of its info in the store of its bytes."""
    size: int
    row: dict[str, Any]
    """The columns, but for the content."""


class ObjectStoreReader(DataSourceReader):
    """A batch with a row for each object of a store."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_schema(schema, OBJECT_COLUMNS)
        self._connection = ConnectionOptions.of(options)
        self._options = ObjectOptions.of(options, streaming=False)
        self._policy = LossPolicy(fail=self._options.fail_on_loss)
        self._schema = schema

    def _store(self) -> ObjectStore:
        """Return the store. Blocks, and waits for a server that is away."""

        def open_store() -> ObjectStore:
            return get_jetstream(self._connection).object_store(self._options.store)

        return retry_until_available(open_store, self._connection.retry_timeout)

    @property
    def _has_content(self) -> bool:
        return "content" in self._schema.names

    # On the driver --------------------------------------------------------------------

    def partitions(self) -> Sequence[InputPartition]:
        get_jetstream(self._connection)  # raises immediately for a wrong address
        store, options = self._store(), self._options

        def listing() -> list[ObjectInfo]:
            # An object that is replaced meanwhile is listed again.
            return list({info.name: info for info in store.list()}.values())

        infos = retry_until_available(listing, self._connection.retry_timeout)
        if options.pattern is not None:
            infos = [info for info in infos if fnmatchcase(info.name, options.pattern)]
        found = [
            listed
            for _, listed in map_parallel(lambda info: self._listed(store, info), infos)
            if listed is not None
        ]
        if self._has_content:
            for listed in found:
                self._check_size(listed)
        costs = [each.size + OPEN_BYTES if self._has_content else 1 for each in found]
        return [InputPartition(part) for part in plan_objects(found, costs, options)]

    def _listed(self, store: ObjectStore, info: ObjectInfo) -> ListedObject | None:
        """Follow links. Return None for a link to a store, or to an object that is gone."""
        path = info.name
        if info.link is not None:
            if info.link.name is None:
                return None

            def target() -> ObjectInfo:
                with store.open(path) as file:
                    return file.info

            try:
                info = retry_until_available(target, self._connection.retry_timeout)
            except LinkError:
                return None
            except (ObjectNotFoundError, BucketNotFoundError):
                link = f"the link {path!r} of object store {store.bucket}"
                self._lost(f"{link} leads to an object that does not exist")
                return None
        row = {
            "path": path,
            "modificationTime": info.modified,
            "length": info.size,
            "digest": info.digest,
        }
        return ListedObject(path, info.nuid, info.revision, info.size, row)

    def _check_size(self, listed: ListedObject) -> None:
        limit = self._options.max_object_bytes
        if listed.size > limit:
            raise ConfigError(
                f"object {listed.path!r} of store {self._options.store} has {listed.size} "
                f"bytes, and maxObjectBytes is {limit}: set maxObjectBytes as high as the "
                "memory of an executor allows, leave the object out with pathGlobFilter, or "
                "read without content by .schema('path string, length bigint')"
            )

    # On the executors -----------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow  # noqa: PLC0415 (only to read rows)

        schema = arrow_schema(self._schema)
        rows: list[dict[str, Any]] = []
        size = 0
        store = self._store() if self._has_content and partition.value else None
        # Without partitions, Spark passes one with the value None.
        for listed in partition.value or ():
            row = dict(listed.row)
            if store is not None:
                if rows and size + listed.size > BATCH_BYTES:
                    yield pyarrow.RecordBatch.from_pylist(rows, schema)
                    rows, size = [], 0
                try:
                    row["content"] = self._content(store, listed)
                except ObjectChangedError as error:
                    self._lost(str(error))
                    continue
                size += listed.size
            rows.append({name: row[name] for name in schema.names})
        if rows:
            yield pyarrow.RecordBatch.from_pylist(rows, schema)

    def _content(self, store: ObjectStore, listed: ListedObject) -> bytes:
        """Return the bytes that were listed. Blocks. Raises `ObjectChangedError`."""
        return retry_until_available(
            lambda: read_listed(store, listed), self._connection.retry_timeout
        )

    def _lost(self, loss: str) -> None:
        self._policy.found(f"OBJ_{self._options.store}", loss)


def read_listed(store: ObjectStore, listed: ListedObject) -> bytes:
    """Return the bytes of an object that has been listed. Blocks.

    A server may be behind the one that has listed the object, so an older info, or none, is
    read again for a while.

    Raises:
        ObjectChangedError: The object was replaced or deleted.
        ObjectReadError: The bytes cannot be read.
    """
    until = monotonic() + BEHIND
    while True:
        try:
            with store.open(listed.path) as file:
                if file.info.nuid == listed.nuid:
                    return file.read()
                is_older = file.info.revision < listed.revision
        except ObjectNotFoundError:
            is_older = not is_deleted(store, listed)
        except (BucketNotFoundError, LinkError):
            is_older = False  # a link leads elsewhere, or its target is gone
        if not is_older or monotonic() >= until:
            raise ObjectChangedError(
                f"object {listed.path!r} of store {store.bucket} was replaced or deleted "
                "after the batch had listed it: read the store again"
            )
        sleep(RETRY_INTERVAL)


def is_deleted(store: ObjectStore, listed: ListedObject) -> bool:
    """Return whether the object was deleted with the bytes that were listed. Blocks."""
    try:
        info = store.info(listed.path, include_deleted=True)
    except ObjectNotFoundError:
        return False
    return info.deleted and info.nuid == listed.nuid


def plan_objects(
    found: Sequence[ListedObject], costs: Sequence[int], options: ObjectOptions
) -> list[list[ListedObject]]:
    """Split the objects into partitions of about equal costs, in bytes, in order. Pure."""
    total = sum(costs)
    wanted = max(-(-total // options.partition_bytes), options.min_partitions or 1)
    count = min(wanted, options.max_partitions or wanted, len(found))
    parts: dict[int, list[ListedObject]] = {}
    before = 0
    for each, cost in zip(found, costs, strict=True):
        parts.setdefault(before * count // total, []).append(each)
        before += cost
    return list(parts.values())
