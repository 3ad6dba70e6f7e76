"""An object as a binary file to read, for `ObjectStore.open`."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING

from ...core.monkey import lock_for_waits
from ...errors import (
    ConfigError,
    DigestMismatchError,
    ObjectIncompleteError,
    ObjectReadError,
)
from .binary_file import BinaryFile
from .chunk_reader import ChunkReader
from .engine import digest_text, known_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

    from .engine import ObjectInfo
    from .repository import ObjectRepository

READ_AHEAD = 256 << 10
"""Bytes to request if the wanted number is not known."""


class ObjectReader(BinaryFile):
    """An object as a binary file to read. Any thread may use it, one at a time.

    jsync requests at most 8 MiB ahead of you. `seek` sends nothing: the next `read` requests
    the chunk that you want.

    If you read all chunks in order, jsync checks their number, their size and their digest
    before it gives you the last one. If you seek, it cannot check the digest. `is_verified`
    tells you whether it did.

    Example:
        ```python
        store.put("today.csv", b"id,total")
        with store.open("today.csv") as file:
            print(file.read())
        ```
    """

    def __init__(
        self,
        objects: ObjectRepository,
        info: ObjectInfo,
        timeout: float,
        ahead: int | None,
    ) -> None:
        super().__init__()
        self._info = info
        self._ahead = READ_AHEAD if ahead is None else ahead
        self._chunks = ChunkReader(objects, info, timeout)
        self._lock = lock_for_waits()
        self._start_check()
        self._failure: ObjectReadError | None = None
        self._position = 0
        self._chunk = memoryview(b"")
        self._regular = True  # whether all chunks seen so far have the same size
        self._start = 0  # the offset of this chunk in the object
        self._size = self._chunk_size()

    @property
    def info(self) -> ObjectInfo:
        """The info of the object at the moment when you opened it."""
        return self._info

    @property
    def name(self) -> str:
        """The name of the object."""
        return self._info.name

    @property
    def mode(self) -> str:
        """`rb`."""
        return "rb"

    @property
    def is_verified(self) -> bool:
        """True if all bytes were read in order and match the stored digest."""
        return self._is_verified

    # Reading --------------------------------------------------------------------------

    def readable(self) -> bool:
        """True."""
        self._check_open()
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Read bytes.

        Args:
            size: The number of bytes. None or less than 0 reads all the rest.

        Returns:
            The bytes. They are fewer than `size` only at the end of the object.

        Raises:
            DigestMismatchError: The bytes are not those that were put.
            ObjectIncompleteError: Chunks are missing in the store.
            ObjectReadError: The object has more bytes than its info states.
            ObjectChangedError: Another client replaced or deleted the object.
            TimeoutError: The server sent nothing in time.
        """
        with self._lock:
            self._check_open()
            left = self._left()
            count = left if size is None or size < 0 else min(size, left)
            buffer = io.BytesIO()
            while count:
                part = self._take(count)
                if len(part) == count and not buffer.tell():
                    return bytes(part)
                buffer.write(part)
                count -= len(part)
            return buffer.getvalue()

    def iter_chunks(self) -> Iterator[memoryview]:
        """Iterate over the rest of the object, chunk by chunk, without a copy.

        You may keep the parts.

        Returns:
            An iterator over the parts.

        Raises:
            ObjectReadError: The rest of the object cannot be read.
            TimeoutError: The server sent nothing in time.
        """
        while True:
            with self._lock:
                self._check_open()
                left = self._left()
                if not left:
                    return
                part = self._take(left)
            yield part

    def read1(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes, with at most one question to the server.

        Args:
            size: The most bytes to read. Less than 0 sets no limit.

        Returns:
            The bytes. They are empty at the end of the object.

        Raises:
            ObjectReadError: The rest of the object cannot be read.
            TimeoutError: The server sent nothing in time.
        """
        with self._lock:
            self._check_open()
            left = self._left()
            if not left or not size:
                return b""
            return bytes(self._take(left if size < 0 else min(size, left), READ_AHEAD))

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into a buffer until the buffer is full or the object ends.

        Args:
            buffer: The buffer to fill.

        Returns:
            The number of bytes read.

        Raises:
            ObjectReadError: The rest of the object cannot be read.
            TimeoutError: The server sent nothing in time.
        """
        with self._lock:
            self._check_open()
            target = memoryview(buffer).cast("B")
            filled, size = 0, len(target)
            while filled < size and self._left():
                part = self._take(size - filled)
                target[filled : filled + len(part)] = part
                filled += len(part)
            return filled

    def readinto1(self, buffer: WriteableBuffer, /) -> int:
        """Read into a buffer, with at most one question to the server.

        Args:
            buffer: The buffer to fill.

        Returns:
            The number of bytes read. It is 0 at the end of the object.

        Raises:
            ObjectReadError: The rest of the object cannot be read.
            TimeoutError: The server sent nothing in time.
        """
        with self._lock:
            self._check_open()
            target = memoryview(buffer).cast("B")
            if not len(target) or not self._left():
                return 0
            part = self._take(len(target), READ_AHEAD)
            target[: len(part)] = part
            return len(part)

    def peek(self, size: int = 0, /) -> bytes:
        """Get the next bytes without moving the position.

        Args:
            size: The number of bytes to request, if no chunk is at hand.

        Returns:
            The rest of the current chunk. It is empty at the end of the object.

        Raises:
            ObjectReadError: The rest of the object cannot be read.
            TimeoutError: The server sent nothing in time.
        """
        with self._lock:
            self._check_open()
            if not self._left():
                return b""
            at = self._fill(max(size, 1))
            return bytes(self._chunk[at:])

    def _left(self) -> int:
        """Return the number of bytes after the position. An empty object is checked first."""
        if self._failure is not None:
            raise self._failure
        if not self._info.size and not self._is_checked:
            self._check_rest()
        return max(0, self._info.size - self._position)

    def _take(self, count: int, ahead: int | None = None) -> memoryview:
        """Read at most `count` of the next bytes, and move the position."""
        at = self._fill(count if ahead is None else ahead)
        part = self._chunk[at : at + count]
        self._position += len(part)
        return part

    def _fill(self, count: int) -> int:
        """Fetch the chunk of the position. Return the offset of the position in it."""
        at = self._position - self._start
        while not 0 <= at < len(self._chunk):
            self._seek_chunk(at)
            self._next_chunk(count)
            at = self._position - self._start
        return at

    def _seek_chunk(self, at: int) -> None:
        """Choose the next chunk: the one of the position, or one before it to read on from."""
        size = self._size
        if size is not None:
            index = self._position // size
            self._chunks.seek(index)
            self._start = index * size
        elif at < 0 or not self._chunks.index:
            self._chunks.seek(0)
            self._start = 0
        else:
            self._start += len(self._chunk)
        self._chunk = memoryview(b"")

    def _next_chunk(self, count: int) -> None:
        info, chunks = self._info, self._chunks
        index = chunks.index
        if index >= info.chunks:
            raise self._failed(self._wrong_size("fewer"))
        known = self._size or 0
        data = chunks.next_chunk(max(self._ahead, count + known, 2 * known))
        if self._size is not None and len(data) != min(
            self._size, info.size - index * self._size
        ):
            # Some chunks do not have the size that the info of the object states.
            self._size, self._regular = None, False
            chunks.seek(0)
            return
        if self._size is None and not index and self._regular:
            self._size = self._chunk_size(len(data))
        if index == self._hashed:
            self._check(data)
            if self._hashed_bytes == info.size:
                self._check_rest()
        self._chunk = memoryview(data)

    def _chunk_size(self, first: int | None = None) -> int | None:
        """Return the size of each chunk but the last. None: sizes may differ."""
        info = self._info
        size = info.size if info.chunks == 1 else first or info.chunk_size
        if not size or -(-info.size // size) != info.chunks:
            return None
        return size

    # Checking -------------------------------------------------------------------------

    def _start_check(self) -> None:
        self._hash = hashlib.sha256()
        self._hashed = 0  # the number of hashed chunks
        self._hashed_bytes = 0
        self._is_checked = False
        self._is_verified = False

    def _check(self, data: bytes) -> None:
        """Count and hash the first chunk that was not hashed before."""
        self._hash.update(data)
        self._hashed += 1
        self._hashed_bytes += len(data)
        size, is_last = self._info.size, self._hashed == self._info.chunks
        if self._hashed_bytes > size:
            raise self._failed(self._wrong_size("more"))
        if is_last and self._hashed_bytes < size:
            raise self._failed(self._wrong_size("fewer"))

    def _check_rest(self) -> None:
        """Check the object once all bytes were read.

        No chunk with bytes may follow, and the digest must match.
        """
        while self._hashed < self._info.chunks:
            self._check(self._chunks.next_chunk(READ_AHEAD))
        expected = known_digest(self._info.digest)
        if expected is None and not self._info.chunks and not self._chunks.is_empty():
            raise self._failed(self._wrong_size("more"))
        actual = self._hash.digest()
        if expected is not None and expected != actual:
            raise self._failed(
                DigestMismatchError(
                    "the bytes are not those that were put: "
                    f"{self._info.name!r} in store {self._info.bucket!r} has the digest "
                    f"{self._info.digest!r:.100}, these have {digest_text(actual)}; do not "
                    "use them",
                    expected=self._info.digest or "",
                    actual=digest_text(actual),
                )
            )
        self._is_checked = True
        self._is_verified = expected is not None

    def _wrong_size(self, word: str) -> ObjectReadError:
        kind = ObjectIncompleteError if word == "fewer" else ObjectReadError
        return kind(
            f"its chunks have {word} bytes than the {self._info.size} that its info states: "
            f"{self._info.name!r} in store {self._info.bucket!r}; put the object again"
        )

    def _failed(self, error: ObjectReadError) -> ObjectReadError:
        """Record the error, so that further reads raise it, too, until a `seek`."""
        self._failure = error
        self._start_check()
        self._chunks.close()
        self._chunks.seek(0)
        return error

    # The position ---------------------------------------------------------------------

    def seekable(self) -> bool:
        """True."""
        self._check_open()
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the position. Nothing is sent.

        Args:
            offset: The number of bytes to move by.
            whence: 0 counts from the beginning, 1 from the position, 2 from the end.

        Returns:
            The new position, in bytes from the beginning.

        Raises:
            ConfigError: `whence` is another number, or the position is less than 0.
        """
        with self._lock:
            self._check_open()
            bases = {
                io.SEEK_SET: 0,
                io.SEEK_CUR: self._position,
                io.SEEK_END: self._info.size,
            }
            if whence not in bases:
                raise ConfigError(f"whence has to be 0, 1 or 2, not {whence!r}")
            position = bases[whence] + offset
            if position < 0:
                raise ConfigError(f"cannot seek to {position}, before the first byte")
            self._position = position
            self._failure = None
            return position

    def tell(self) -> int:
        """Get the position: the number of the byte that comes next."""
        self._check_open()
        return self._position

    # The end --------------------------------------------------------------------------

    def close(self) -> None:
        """Stop reading. You may call this twice."""
        chunks = getattr(self, "_chunks", None)
        if chunks is not None and not self.closed:
            with self._lock:
                chunks.close()
                self._chunk = memoryview(b"")
        super().close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"at {self._position}"
        return f"<ObjectReader of {self._info.name!r}, {state}>"
