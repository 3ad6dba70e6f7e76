"""An object as a binary file to write, for `ObjectStore.open`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._fast import safe_finalizer
from .binary_file import BinaryFile

if TYPE_CHECKING:
    from typing import Self

    from _typeshed import ReadableBuffer

    from .engine import ObjectInfo
    from .upload import Upload


class ObjectWriter(BinaryFile):
    """An object as a binary file to write. Use it from one thread.

    `close` makes the bytes the object. Only then can anybody read them, and a former
    object of that name is removed. Leaving the `with` block does the same. If the block
    raises, or you forget the file, nothing is stored, and the chunks are removed.

    Example:
        ```python
        with store.open("today.csv", "wb") as file:
            file.write(b"id,total")  # the object is there after the block
        ```
    """

    def __init__(self, upload: Upload, name: str) -> None:
        super().__init__()
        self._upload = upload
        self._name = name
        self._info: ObjectInfo | None = None

    @property
    def name(self) -> str:
        """The name of the object."""
        return self._name

    @property
    def mode(self) -> str:
        """`wb` or `xb`."""
        return "xb" if self._upload.exclusive else "wb"

    @property
    def chunk_size(self) -> int:
        """Bytes of each message."""
        return self._upload.chunk_size

    @property
    def info(self) -> ObjectInfo | None:
        """The info of the object after `close`. None before."""
        return self._info

    def writable(self) -> bool:
        """True."""
        self._check_open()
        return True

    def tell(self) -> int:
        """Get the number of bytes written."""
        self._check_open()
        return self._upload.written

    def write(self, data: ReadableBuffer, /) -> int:
        """Write bytes. Blocks while 12 MiB or 4096 chunks wait for their acks.

        If it raises, the put has failed. Nothing is stored, and the file is closed.

        Args:
            data: The bytes.

        Returns:
            The number of bytes, which is always all of them.

        Raises:
            StreamStoreError: The store is full.
            StreamSealedError: The store is sealed.
            StallTimeoutError: The server stored nothing for 30 seconds.
            ConnectionLostError: The connection broke.
        """
        self._check_open()
        try:
            return self._upload.write(data)
        except BaseException as error:
            self._abort(error)
            raise

    def close(self) -> None:
        """Wait until all bytes are stored, and make them the object. Blocks.

        A second call does nothing.

        Raises:
            AmbiguousPutError: No answer came. The object may be stored.
            ObjectExistsError: In mode `xb`, another program has put an object of that
                name. It stays.
            APIError: The server rejects the object. Nothing is stored.
        """
        if self.closed:
            return
        try:
            self._info = self._upload.finish()
        except BaseException as error:
            self._abort(error)
            raise
        super().close()

    def discard(self) -> None:
        """Abandon the put. Nothing is stored, and the chunks are removed. Blocks."""
        if not self.closed:
            self._abort(None)

    def _abort(self, error: BaseException | None) -> None:
        # Close first: after this line the file can no longer become an object.
        super().close()
        self._upload.abort(error)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.close()
        elif not self.closed:
            self._abort(error)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    @safe_finalizer
    def __del__(self) -> None:
        upload = getattr(self, "_upload", None)
        if upload is not None and not self.closed:
            super().close()
            upload.abort_nowait()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.tell()} bytes so far"
        return f"<ObjectWriter of {self._name!r}, {state}>"
