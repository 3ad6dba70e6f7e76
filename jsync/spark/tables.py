"""Batches of the last message of each subject, and of the values of a bucket.

The driver gets the subjects from the leader, and splits them into partitions of equal size. An
executor requests the last messages of its subjects, which may be newer than the batch. So a
subject that is written all the time has a row, too. A read by sequences could miss it, because
a stream may drop each message before it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .. import errors
from ..errors import MessageNotFoundError, StreamNotFoundError, UnsupportedFeatureError
from ..subjects import has_wildcard
from .buckets import bucket_prefix, operation_of
from .offsets import OffsetRange, packed
from .parallel import map_parallel
from .schema import arrow_schema
from .source import SourceScan
from .stream_state import fetch_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow
    from pyspark.sql.types import StructType

    from .. import StoredMessage, Stream
    from .options import Options

MIN_PAGE: Final = 16
"""The fewest subjects of a request, however large the messages are."""
MAX_PAGE: Final = 1024
"""The most subjects of a request, which is a limit of the server."""
PAGE_BYTES: Final = 8 << 20
"""About as many bytes of messages are requested together."""


@dataclass(frozen=True)
class SubjectsToRead:
    """Subjects of a stream, whose last messages are to be read."""

    stream: str
    created: str
    subjects: Sequence[str]
    page: int
    """The number of subjects in a request."""
    prefix: str
    """The subjects of a bucket up to the key. Empty for a stream."""


class TableReader(DataSourceReader):
    """A batch with a row for each subject of the streams, or for each key of a bucket."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._source = SourceScan(options, schema, streaming=False)

    # On the driver --------------------------------------------------------------------

    def partitions(self) -> Sequence[InputPartition]:
        source = self._source
        source.jetstream()
        found = dict(map_parallel(self._listed, source.streams()))
        # Split the list of subjects as if each were a message of a stream.
        ranges = {
            name: OffsetRange(listed.created, 1, 1 + len(listed.subjects))
            for name, listed in found.items()
        }

        def part(
            name: str, offset_range: OffsetRange, start: int, end: int
        ) -> SubjectsToRead:
            listed = found[name]
            some = listed.subjects[start - 1 : end]
            return SubjectsToRead(
                name, offset_range.created, some, listed.page, listed.prefix
            )

        return [InputPartition(parts) for parts in packed(source.planned(ranges), part)]

    def _listed(self, name: str) -> SubjectsToRead:
        """Return all subjects of a stream, or those of the keys with a value. Blocks."""
        source, js = self._source, self._source.jetstream()
        stream, bounds = fetch_bounds(js, name, source.retry_seconds)
        source.add_bounds(bounds)
        prefix, bucket = "", source.options.bucket
        if bucket is None:
            subjects = source.retry(lambda: self._subjects(stream))
        else:
            prefix = bucket_prefix(stream.config)
            subjects = source.retry(
                lambda: [
                    prefix + key
                    for key in js.key_value(bucket).keys(*source.options.keys)
                ]
            )
        page = PAGE_BYTES // max(1, int(bounds.message_bytes))
        page = min(MAX_PAGE, max(MIN_PAGE, page))
        return SubjectsToRead(name, bounds.created, subjects, page, prefix)

    def _subjects(self, stream: Stream) -> list[str]:
        """Return the subjects that the stream has at its end, as its leader reports it."""
        end = stream.leader_info().state.last_seq
        found: dict[str, int] = {}
        for subject in self._source.subjects or (">",):
            state = stream.info(subjects_filter=subject).state
            if state.last_seq < end:
                raise errors.TimeoutError(
                    f"a server has answered that is behind the leader of {stream.name}"
                )
            found |= state.subjects or {}
        return list(found)

    # On the executors -----------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        # Without partitions, Spark passes one with the value None.
        for part in partition.value or ():
            yield from self._read(part)

    def _read(self, part: SubjectsToRead) -> Iterator[pyarrow.RecordBatch]:
        from .columns import (  # noqa: PLC0415
            conform,
            entries,
            message_columns,
            stored_batch,
        )

        source, name = self._source, part.stream
        js = source.retry(source.jetstream)
        schema = arrow_schema(source.schema)
        columns = [name for name in schema.names if name != "stream"]
        if part.prefix:
            columns = message_columns(schema.names)
        try:
            stream, bounds = fetch_bounds(js, name, source.retry_seconds)
            if bounds.created != part.created:
                source.policy.report(
                    name, f"stream {name} was recreated during the read"
                )
                return
            for first in range(0, len(part.subjects), part.page):
                some = part.subjects[first : first + part.page]
                messages = source.retry(partial(last_messages, stream, some))
                if part.prefix:
                    messages = [m for m in messages if operation_of(m.headers) == "PUT"]
                if not messages:
                    continue
                batch = stored_batch(
                    messages, list(dict.fromkeys([*columns, "sequence"]))
                )
                if part.prefix:
                    batch = entries(batch, part.prefix, schema.names)
                yield conform(batch, name, schema)
        except StreamNotFoundError:
            source.policy.report(name, f"stream {name} was deleted while it was read")


def last_messages(stream: Stream, subjects: Sequence[str]) -> list[StoredMessage]:
    """Return the last message of each of at most 1024 subjects that still has one. Blocks.

    Args:
        stream: The stream, with its info.
        subjects: Stored subjects. A token may be `*` or `>`, which stands for itself.
    """
    found = [_last_by_scan(stream, one) for one in subjects if has_wildcard(one)]
    others = [one for one in subjects if not has_wildcard(one)]
    if others and stream.cached_info.config.allow_direct:
        try:
            return [*filter(None, found), *stream.get_last_messages(others)]
        except UnsupportedFeatureError:
            pass  # nats-server before 2.11
    for subject in others:
        try:
            found.append(stream.get_message(last_by_subject=subject, direct=False))
        except MessageNotFoundError:
            continue
    return [message for message in found if message is not None]


def _last_by_scan(stream: Stream, subject: str) -> StoredMessage | None:
    """Return the last message of a subject that a server would take for a pattern. Blocks."""
    found, sequence = None, 1
    end = stream.cached_info.state.last_seq
    while found is None or sequence <= end:
        try:
            message = stream.get_message(
                sequence=sequence, next_by_subject=subject, direct=False
            )
        except MessageNotFoundError:
            break
        if message.subject == subject:
            found = message
        sequence = message.sequence + 1
    return found
