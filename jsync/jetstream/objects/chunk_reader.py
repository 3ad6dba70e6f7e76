"""The chunks of an object, in order from any chunk on. `ObjectReader` reads through them."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from ...errors import (
    DirectGetNotAllowedError,
    MessageNotFoundError,
    ObjectChangedError,
    ObjectIncompleteError,
    PermissionsError,
    UnsupportedFeatureError,
)
from ..features import PENDING_BEHIND
from ..ordered.consumer import ordered_consumer
from ..stored.engine import SubjectReader
from ..stored.get import get_message, get_messages
from .chunk_index import ChunkIndex

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, TypeAlias

    from .engine import ObjectInfo
    from .repository import ObjectRepository

WINDOW_BYTES = 8 << 20
"""The most bytes of one request, and so the most that are in flight or buffered here."""
LAG_SECONDS = 0.05
"""Seconds until a replica that lacks a chunk is queried again."""
MAX_REQUESTS = 200
"""The most requests for one chunk. Fewer find it even among 2^64 messages."""


class Chunk(NamedTuple):
    """A chunk as the server sends it."""

    sequence: int
    following: int
    """The number of chunks of the object that follow."""
    data: bytes
    own: bool = True
    """True if it comes from the stream of the store, False if from a mirror."""


Chunks: TypeAlias = "Generator[Chunk, None, None]"


class _GrowingPages(SubjectReader):
    """Pages of chunks, each twice as large as the one before."""

    def request(self) -> dict[str, Any]:
        request = super().request()
        self._max_bytes = min(2 * self._max_bytes, WINDOW_BYTES)
        return request


class ChunkReader:
    """The chunks of one object. One thread at a time uses it."""

    def __init__(
        self, objects: ObjectRepository, info: ObjectInfo, timeout: float
    ) -> None:
        self._objects = objects
        self._info = info
        self._seconds = timeout
        self._subject = objects.layout.chunk_subject(info.nuid)
        self._chunk_index = ChunkIndex(
            info.chunks, info.revision, trusted=not objects.layout.replicated
        )
        self._stream: Chunks | None = None
        self._direct = True
        self._deadline: float | None = None
        self.index = 0
        """The number of the next chunk, from 0."""

    def seek(self, index: int) -> None:
        """Make another chunk the next one, without a request."""
        if index != self.index:
            self.close()
            self.index = index

    def next_chunk(self, ahead: int) -> bytes:
        """Wait for the next chunk and return its bytes.

        Args:
            ahead: The size in bytes of the first page, if a new request is needed.
        """
        try:
            while True:
                chunk = self._find(ahead) if self._stream is None else self._follow()
                if chunk is not None:
                    self.index += 1
                    self._deadline = None
                    return chunk.data
                self._wait_for_it()
        except BaseException:
            self.close()
            raise

    def _follow(self) -> Chunk | None:
        """Read the chunk after the last one. None if it is missing."""
        assert self._stream is not None
        chunk = next(self._stream, None)
        if chunk is None:
            return None
        place = self._chunk_index.observe_next(*chunk[:2], own=chunk.own)
        return None if place is None else chunk

    def _find(self, ahead: int) -> Chunk | None:
        """Search the stream for the next chunk. None if it is missing."""
        places, index = self._chunk_index, self.index
        places.start(index)
        for _ in range(MAX_REQUESTS):
            probe = places.next_probe(index)
            stream, chunk = self._open(probe, ahead)
            if chunk is None:
                if places.observe_none(probe):
                    continue
                return None
            found = places.observe(probe, *chunk[:2], index, own=chunk.own)
            if found is None:
                stream.close()
                return None
            if not places.should_scan(found, index):
                stream.close()
                continue
            self._stream = stream
            rest: Chunk | None = chunk
            while rest is not None and found < index:
                rest = self._follow()
                found += 1
            return rest
        return None

    def _open(self, sequence: int, ahead: int) -> tuple[Chunks, Chunk | None]:
        """Start to read chunks at a sequence. Return the reader and the first chunk."""
        objects = self._objects
        if self._info.chunks == 1 and self._info.digest is not None:
            stream = self._only()
            return stream, next(stream, None)
        if self._direct and objects.direct_pages:
            try:
                objects.api.require(PENDING_BEHIND)
                stream = self._pages(sequence, ahead)
                return stream, next(stream, None)
            except (
                UnsupportedFeatureError,
                DirectGetNotAllowedError,
                PermissionsError,
            ):
                objects.direct_pages = False  # from now on a consumer reads
        stream = self._ordered(sequence)
        return stream, next(stream, None)

    def _only(self) -> Chunks:
        """Yield the only chunk of an object, by a get of one message, which is quickest."""
        layout = self._objects.layout
        with contextlib.suppress(MessageNotFoundError):
            message = get_message(
                *(self._objects.api, layout.stream),
                last_by_subject=self._subject,
                direct=layout.direct,
                timeout=self._seconds,
            )
            yield Chunk(message.sequence, 0, message.data)

    def _pages(self, sequence: int, ahead: int) -> Chunks:
        pages = _GrowingPages(
            self._subject, sequence=sequence, max_bytes=min(ahead, WINDOW_BYTES)
        )
        layout = self._objects.layout
        for message in get_messages(
            self._objects.api, layout.stream, pages, self._seconds
        ):
            own = pages.answered_by == layout.stream
            yield Chunk(message.sequence, pages.pending, message.data, own)

    def _ordered(self, sequence: int) -> Chunks:
        options = {
            "filter_subjects": self._subject,
            "opt_start_seq": sequence,
            "timeout": self._seconds,
        }
        window = max(WINDOW_BYTES, 2 * (self._info.chunk_size or 0))
        consumer = ordered_consumer(
            self._objects.api, self._objects.layout.stream, options
        )
        with consumer, consumer.messages(until_end=True, max_bytes=window) as messages:
            for msg in messages:
                metadata = msg.metadata
                yield Chunk(metadata.stream_sequence, metadata.num_pending, msg.data)

    def _wait_for_it(self) -> None:
        """Wait for a missing chunk that a replica may have soon, or raise why it is missing.

        After an answer by direct get, a consumer is tried first.
        """
        self.close()
        objects, name = self._objects, self._info.name
        current = objects.last(name, self._seconds)
        if current is None or current.nuid != self._info.nuid or current.deleted:
            raise ObjectChangedError(
                f"object was replaced or deleted while it was read: {name!r} in store "
                f"{objects.layout.bucket!r}; open it again"
            )
        if current.renamed_to is not None and self.is_empty():
            # A former name, left by a rename: the object itself was replaced or deleted.
            raise objects.layout.object_not_found_error(name, deleted=False)
        if self._direct and objects.direct_pages:
            self._direct = False  # the answer may be from an older server
            return
        if self._deadline is None:
            self._deadline = monotonic() + self._seconds
        if not objects.layout.replicated or monotonic() >= self._deadline:
            raise ObjectIncompleteError(
                f"chunk {self.index + 1} of {self._info.chunks} is missing, or the store "
                f"has more chunks: {name!r} in store {objects.layout.bucket!r}; put the "
                "object again"
            )
        objects.api.session.sleep(LAG_SECONDS)

    def is_empty(self) -> bool:
        """Check with the leader whether the object has no chunks at all. Blocks."""
        counts, _ = self._objects.count_chunks(self._subject, self._seconds)
        return not counts

    def close(self) -> None:
        """Close the current reader, if any. The next chunk needs a new request."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
