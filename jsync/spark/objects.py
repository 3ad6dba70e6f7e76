"""Batches of the objects of an object store, in the columns of Spark's `binaryFile`.

The driver lists the objects, and a partition has some of them. An executor opens each object,
and makes the whole row of the info that it opens and of the bytes of that info. A row therefore
never mixes two versions, also if the object has been replaced since the driver listed it. As
with Spark's `binaryFile`, the row is then of the newer version, and an object that has been
deleted is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..errors import (
    BucketNotFoundError,
    ConfigError,
    LinkError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from .buckets import OBJECT_PREFIX
from .connection import ConnectionOptions, get_jetstream
from .object_options import ObjectOptions
from .parallel import map_parallel
from .retry import RETRY_INTERVAL, retry_until_available
from .schema import OBJECT_COLUMNS, arrow_schema, check_schema
from .stream_state import CATCH_UP_SECONDS, LossPolicy, get_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow
    from pyspark.sql.types import StructType

    from .. import ObjectInfo, ObjectStore
    from .options import Options

    T = TypeVar("T")

BATCH_BYTES: Final = 8 << 20
"""About as many bytes of objects are passed to Spark together."""
OPEN_BYTES: Final = 1 << 20
"""The cost of opening an object, in bytes."""
MIN_READS: Final = 3
"""An object that is replaced during its reads is read so many times, however long they take."""


class StoredInfo(NamedTuple):
    """The place of an info: the store, the name of the object, and the info's number there."""

    bucket: str
    name: str
    revision: int

    @classmethod
    def of(cls, info: ObjectInfo) -> StoredInfo:
        return cls(info.bucket, info.name, info.revision)


@dataclass(frozen=True)
class ListedObject:
    """An object as the driver has listed it."""

    stored: StoredInfo
    """Its info, or the info of the object that a link leads to."""
    link: StoredInfo | None
    """The info of the link, if it is one."""
    row: dict[str, Any]
    """The columns, but for the content."""

    @property
    def path(self) -> str:
        return str(self.row["path"])


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

        return self._retry(open_store)

    @property
    def _has_content(self) -> bool:
        return "content" in self._schema.names

    # On the driver --------------------------------------------------------------------

    def partitions(self) -> Sequence[InputPartition]:
        get_jetstream(self._connection)  # raises immediately for a wrong address
        store, options = self._store(), self._options
        infos = self._retry(lambda: list(store.list()))
        if options.pattern is not None:
            infos = [info for info in infos if fnmatchcase(info.name, options.pattern)]
        found = [
            listed
            for _, listed in map_parallel(lambda info: self._listed(store, info), infos)
            if listed is not None
        ]
        if self._has_content:
            for listed in found:
                self._check_size(listed.path, listed.row["length"])
        costs = [
            (listed.row["length"] + OPEN_BYTES) if self._has_content else 1
            for listed in found
        ]
        return [InputPartition(part) for part in plan_objects(found, costs, options)]

    def _listed(self, store: ObjectStore, info: ObjectInfo) -> ListedObject | None:
        """Follow links. Return None for a link to a store, or to an object that is gone."""
        path, link = info.name, None
        if info.link is not None:
            if info.link.name is None:
                return None
            link = StoredInfo.of(info)

            def target() -> ObjectInfo:
                with store.open(path) as file:
                    return file.info

            try:
                info = self._retry(target)
            except LinkError:
                return None
            except (ObjectNotFoundError, BucketNotFoundError):
                named = f"the link {path!r} of object store {store.bucket}"
                self._lost(f"{named} leads to an object that does not exist")
                return None
        return ListedObject(StoredInfo.of(info), link, row_of(path, info))

    def _check_size(self, path: str, size: int) -> None:
        limit = self._options.max_object_bytes
        if size > limit:
            raise ConfigError(
                f"object {path!r} of store {self._options.store} has {size} "
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
            row = listed.row
            if store is not None:
                try:
                    row = self._row_with_content(store, listed)
                except ObjectChangedError as error:
                    self._lost(str(error))
                    continue
                if rows and size + row["length"] > BATCH_BYTES:
                    yield pyarrow.RecordBatch.from_pylist(rows, schema)
                    rows, size = [], 0
                size += row["length"]
            rows.append({name: row[name] for name in schema.names})
        if rows:
            yield pyarrow.RecordBatch.from_pylist(rows, schema)

    def _row_with_content(
        self, store: ObjectStore, listed: ListedObject
    ) -> dict[str, Any]:
        """Return the row of an object as it is now. Blocks.

        An object that is replaced during the read is read again. So is an older info than the
        listed one, or none, because a server may be behind for a while.

        Raises:
            ConfigError: A newer version is above the limit.
            ObjectChangedError: The object was deleted, or every read failed.
            ObjectReadError: The bytes cannot be read.
        """
        until = monotonic() + CATCH_UP_SECONDS
        attempt = 0
        while True:
            attempt += 1
            reason, final = "was deleted", False
            try:
                row = self._retry(lambda: self._read_row(store, listed))
                if row is not None:
                    return row
                reason = "is not there yet on the server"
            except ObjectChangedError:
                reason = f"was replaced during {attempt} reads"
            except ObjectNotFoundError:
                final = self._retry(lambda: self._has_passed(listed))
            except BucketNotFoundError:
                final = True
            except LinkError:
                reason, final = "is a link that was changed", True
            if final or (attempt >= MIN_READS and monotonic() >= until):
                raise ObjectChangedError(
                    f"object {listed.path!r} of store {store.bucket} {reason} after the "
                    "batch had listed it: read the store again"
                )
            sleep(RETRY_INTERVAL)

    def _read_row(
        self, store: ObjectStore, listed: ListedObject
    ) -> dict[str, Any] | None:
        """Read an object. Blocks. Return None if its info is older than the listed one."""
        with store.open(listed.path) as file:
            found = StoredInfo.of(file.info)
            if found[:2] != listed.stored[:2]:
                raise LinkError(f"link {listed.path!r} leads elsewhere")
            if found.revision < listed.stored.revision:
                return None
            self._check_size(listed.path, file.info.size)
            return {**row_of(listed.path, file.info), "content": file.read()}

    def _has_passed(self, listed: ListedObject) -> bool:
        """Return whether the leaders have all that the driver has listed. Blocks.

        An object that they lack was then deleted, has expired, or was renamed.
        """
        js = get_jetstream(self._connection)
        for stored in (listed.stored, listed.link or listed.stored):
            try:
                stream = get_stream(js, OBJECT_PREFIX + stored.bucket)
            except BucketNotFoundError:
                return True
            if stream.cached_info.state.last_seq < stored.revision:
                return False
        return True

    def _retry(self, ask: Callable[[], T]) -> T:
        return retry_until_available(ask, self._connection.retry_timeout)

    def _lost(self, loss: str) -> None:
        self._policy.report(f"OBJ_{self._options.store}", loss)


def row_of(path: str, info: ObjectInfo) -> dict[str, Any]:
    """Return the columns of an object, but for its content. Pure."""
    return {
        "path": path,
        "modificationTime": info.modified,
        "length": info.size,
        "digest": info.digest,
    }


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
