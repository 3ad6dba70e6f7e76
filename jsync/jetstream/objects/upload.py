"""A put in progress: its chunks are sent within a window, then its info makes it an object."""

from __future__ import annotations

import contextlib
from collections import deque
from enum import Enum
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from ... import errors
from ..._fast import encode_publish
from ...core.state import StateMachine
from ...errors import AmbiguousPutError, ChunkOrderError, Error, ObjectIncompleteError
from .engine import CHUNK_SIZE, digest_text
from .rename import object_exists
from .rename_marks import claim
from .repository import VERIFY_AFTER
from .upload_digest import UploadDigest

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

    from ..._fast import PubAckFuture
    from ...core.requests import Data
    from .engine import ObjectInfo
    from .repository import ObjectRepository


class UploadState(Enum):
    """The state of a put, which only changes to the next one."""

    UPLOADING = "nothing refers to its chunks"
    COMMITTING = "its info was sent, and may be stored"
    STORED = "it is an object"
    ROLLED_BACK = "somebody has removed chunks of it, so the former object is back"


TRANSITIONS: Final = {
    UploadState.UPLOADING: {UploadState.COMMITTING},
    UploadState.COMMITTING: {UploadState.STORED},
    UploadState.STORED: {UploadState.ROLLED_BACK},
    UploadState.ROLLED_BACK: set[UploadState](),
}


class Upload:
    """One put. One thread uses it. Until `finish` returns there is no object."""

    def __init__(
        self,
        objects: ObjectRepository,
        info: ObjectInfo,
        timeout: float,
        progress: Callable[[int], object] | None,
        *,
        exclusive: bool = False,
    ) -> None:
        self._objects = objects
        self.exclusive = exclusive
        """True if the put may not replace an object."""
        self._info = info
        self._timeout = timeout
        self._progress = progress
        self._publish = objects.publisher.publish
        self._subject = objects.layout.chunks + info.nuid
        self.chunk_size = info.chunk_size or CHUNK_SIZE
        self._rest = bytearray()
        session = objects.api.session
        self._digest = UploadDigest(
            session.thread_factory, f"{session.name}-object-digest"
        )
        self._waiting: deque[PubAckFuture] = deque()
        self._state = StateMachine(UploadState.UPLOADING, TRANSITIONS)
        self._stored = 0  # the sequence of the last stored chunk
        self._chunks = 0
        self._started_at = monotonic()
        self._size = 0

    @property
    def written(self) -> int:
        """The number of bytes that were written."""
        return self._size + len(self._rest)

    def write(self, data: ReadableBuffer) -> int:
        """Send the bytes that fill chunks, and keep the rest."""
        view = memoryview(data).cast("B")
        size, at = self.chunk_size, 0
        if self._rest:
            at = size - len(self._rest)
            self._rest += view[:at]
            if len(self._rest) < size:
                return len(view)
            self._send(bytes(self._rest))
            self._rest = bytearray()
        while len(view) - at >= size:
            chunk = view[at : at + size]
            # Copy data that the caller could change before the ack arrives.
            self._send(chunk if isinstance(data, bytes) else bytes(chunk))
            at += size
        self._rest += view[at:]
        return len(view)

    def _send(self, chunk: Data) -> None:
        """Send a chunk, once there is room in the window."""
        self._waiting.append(self._publish(self._subject, chunk))
        self._chunks += 1
        self._digest.update(chunk)
        self._size += len(chunk)
        if self._waiting[0].done():
            self._take_acks(len(self._waiting))
        if self._progress is not None:
            self._progress(self._size)

    def _take_acks(self, pending: int, timeout: float | None = None) -> None:
        """Take the acks of chunks that have come, and wait until at most `pending` are missing.

        With a timeout, each of them has to come within that time after the one before.
        """
        waiting = self._waiting
        while waiting and (len(waiting) > pending or waiting[0].done()):
            sequence = waiting[0].result(timeout).seq
            waiting.popleft()
            if sequence <= self._stored:
                raise ChunkOrderError(
                    f"chunks of {self._info.name!r} were stored in another order; put it "
                    "again"
                )
            self._stored = sequence

    def finish(self) -> ObjectInfo:
        """Send the rest, wait until all chunks are stored, and make them the object."""
        if self._rest:
            self._send(bytes(self._rest))
            self._rest = bytearray()
        objects, timeout = self._objects, self._timeout
        name = self._info.name
        # On a slow line, a request would wait behind many chunks for longer than `timeout`.
        self._take_acks(1, timeout)
        # Request the info while the last ack is pending. If the answer is stale, the server
        # rejects the new info, and `claim` asks the leader.
        current = objects.last_from_any_replica(name, timeout)
        is_plain = current is None or not (current.renamed_to or current.renamed_from)
        if self.exclusive and current is not None and not current.deleted:
            is_plain = False  # it may be deleted by now
        self._take_acks(0)
        info = msgspec.structs.replace(
            self._info,
            size=self._size,
            chunks=self._chunks,
            digest=digest_text(self._digest.digest()),
        )

        known = [current] if is_plain else []
        deadline = monotonic() + timeout

        def make() -> tuple[ObjectInfo, int]:
            nonlocal current
            if known:
                current = known.pop()
            else:
                current = claim(objects, name, timeout, deadline)
            if current is None:
                return info, 0
            if self.exclusive and not current.deleted:
                raise object_exists(objects, name)
            token = current.subject_token
            return msgspec.structs.replace(info, subject_token=token), current.revision

        self._state.to(UploadState.COMMITTING)
        stored = objects.compare_and_set(make, timeout)
        self._state.to(UploadState.STORED)
        if monotonic() - self._started_at > VERIFY_AFTER:
            self._verify_chunks(stored, current)
        if current is not None:
            objects.purge_chunks(current, timeout)
        return stored

    def _verify_chunks(self, stored: ObjectInfo, former: ObjectInfo | None) -> None:
        """Verify that all chunks are stored, since a check may have removed them as remains.

        If some are missing, put the former object back and raise `ObjectIncompleteError`.
        """
        objects, timeout = self._objects, self._timeout
        try:
            if objects.has_chunks(stored, timeout):
                return
            objects.roll_back(stored, former, timeout)
        except Error as error:
            raise AmbiguousPutError(
                f"{stored.name!r} is stored in store {stored.bucket!r}, but perhaps not with "
                f"all of its chunks: {error}; get it, or put it again"
            ) from error
        self._state.to(UploadState.ROLLED_BACK)
        raise ObjectIncompleteError(
            f"chunks of {stored.name!r} were removed from store {stored.bucket!r} before the "
            "put was complete, by a check with a shorter older_than or by the ttl of the "
            "store; the former object is back. Put the object again"
        )

    def abort(self, error: BaseException | None) -> None:
        """Remove the sent chunks, because the put has failed by `error`, or was discarded."""
        self._digest.stop()
        certain = isinstance(error, Error) and not isinstance(error, AmbiguousPutError)
        if self._state.current is UploadState.COMMITTING and not certain:
            return  # the chunks may belong to an object
        if self._state.current is UploadState.STORED or not self._chunks:
            return
        objects = self._objects
        if isinstance(error, errors.TimeoutError):
            # The server would answer neither the wait for pending chunks nor the purge.
            self._remove_later()
            error.add_note(
                f"its chunks are removed from store {objects.layout.bucket!r} once the server "
                "answers; otherwise ObjectStore.check() removes them"
            )
            return
        try:
            # Wait for pending chunks, which would otherwise be stored after the purge.
            deadline = monotonic() + self._timeout
            while self._waiting and monotonic() < deadline:
                with contextlib.suppress(Error):
                    self._waiting[0].exception(max(0.0, deadline - monotonic()))
                    self._waiting.popleft()
            objects.remove_chunks(self._info.nuid, self._timeout)
        except Error as failure:
            if error is None:
                raise
            error.add_note(
                f"its chunks are left in store {objects.layout.bucket!r} ({failure}): "
                "ObjectStore.check() removes them"
            )

    def abort_nowait(self) -> None:
        """Request the removal of the sent chunks without waiting. For use in a finaliser."""
        if self._state.current is UploadState.UPLOADING and self._chunks:
            self._remove_later()

    def _remove_later(self) -> None:
        """Request the removal of the sent chunks once they are acknowledged, or lost."""
        layout, api = self._objects.layout, self._objects.api
        write_buffer = api.session.write_buffer
        purge = encode_publish(
            f"{api.prefix}.STREAM.PURGE.{layout.stream}",
            msgspec.json.encode({"filter": self._subject}),
        )

        def remove(_: object = None) -> None:
            with contextlib.suppress(Error):
                write_buffer.command(purge)

        if self._waiting:
            self._waiting[-1].add_done_callback(remove)
        else:
            remove()
