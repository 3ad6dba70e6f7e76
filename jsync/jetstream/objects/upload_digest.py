"""The digest of a put, computed on another thread while the chunks are sent."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING

from ..._fast import HandoffQueue, safe_finalizer

if TYPE_CHECKING:
    from ...core.callbacks import ThreadFactory
    from ...core.requests import Data

INLINE_CHUNKS = 8
"""The number of chunks that starts the thread. For fewer it costs more than it saves."""
MAX_QUEUED = 32
"""The most chunks that may wait in the queue of the thread."""


class UploadDigest:
    """A SHA-256 of chunks, computed on a separate thread if there are many of them.

    The queues are implemented in C, so Ctrl-C cannot leave a lock behind.
    """

    _waiting: HandoffQueue[Data | None] | None = None
    """Set on the class, so that `__del__` finds it if Ctrl-C has interrupted `__init__`."""

    def __init__(self, spawner: ThreadFactory, name: str) -> None:
        self._spawner = spawner
        self._name = name
        self._hash = hashlib.sha256()
        self._chunks = 0
        self._slots: HandoffQueue[None] = HandoffQueue()
        self._done: HandoffQueue[bytes] = HandoffQueue()

    def update(self, chunk: Data) -> None:
        """Add a chunk. Blocks while `MAX_QUEUED` chunks wait to be hashed."""
        self._chunks += 1
        if self._waiting is None and self._chunks == INLINE_CHUNKS:
            # No thread could be started: hash on this thread.
            with contextlib.suppress(RuntimeError):
                self._start()
        if self._waiting is None:
            self._hash.update(chunk)
            return
        self._slots.get()
        self._waiting.put(chunk)

    def _start(self) -> None:
        waiting: HandoffQueue[Data | None] = HandoffQueue()
        # Local names, so that the thread keeps no reference to this object.
        digest, slots, done = self._hash, self._slots, self._done

        def work() -> None:
            while (chunk := waiting.get()) is not None:
                digest.update(chunk)
                slots.put(None)
            done.put(digest.digest())

        for _ in range(MAX_QUEUED):
            slots.put(None)
        self._spawner.start_native(self._name, work)
        self._waiting = waiting

    def digest(self) -> bytes:
        """Wait for the digest of all added chunks, and return it. May be called only once."""
        if self._waiting is None:
            return self._hash.digest()
        self.stop()
        return self._done.get()

    def stop(self) -> None:
        """End the thread, without waiting for it."""
        if self._waiting is not None:
            self._waiting.put(None)

    @safe_finalizer
    def __del__(self) -> None:
        self.stop()
