"""The digest of what is put, computed beside the sending."""

from __future__ import annotations

import contextlib
import hashlib
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ..._fast import finaliser

if TYPE_CHECKING:
    from ...core.callbacks import Spawner
    from ...core.requests import Data

INLINE = 8
"""Chunks that are hashed at once: a thread for fewer would cost more than it saves."""
AHEAD = 32
"""Chunks that may wait to be hashed."""


class Hashing:
    """A SHA-256 of chunks, on a thread of its own once there are many of them.

    The queues are those of C, so that Ctrl-C leaves no lock behind.
    """

    _waiting: SimpleQueue[Data | None] | None = None
    """Of the class, so that `__del__` finds it where Ctrl-C cut `__init__` short."""

    def __init__(self, spawner: Spawner, name: str) -> None:
        self._spawner = spawner
        self._name = name
        self._hash = hashlib.sha256()
        self._chunks = 0
        self._room: SimpleQueue[None] = SimpleQueue()
        self._done: SimpleQueue[bytes] = SimpleQueue()

    def update(self, chunk: Data) -> None:
        """Add a chunk; blocks while too many wait."""
        self._chunks += 1
        if self._waiting is None and self._chunks == INLINE:
            # No thread could be started: hash on this thread.
            with contextlib.suppress(RuntimeError):
                self._start()
        if self._waiting is None:
            self._hash.update(chunk)
            return
        self._room.get()
        self._waiting.put(chunk)

    def _start(self) -> None:
        waiting: SimpleQueue[Data | None] = SimpleQueue()
        # Local names, so that the thread keeps no reference to this object.
        digest, room, done = self._hash, self._room, self._done

        def work() -> None:
            while (chunk := waiting.get()) is not None:
                digest.update(chunk)
                room.put(None)
            done.put(digest.digest())

        for _ in range(AHEAD):
            room.put(None)
        self._spawner.start(self._name, work)
        self._waiting = waiting

    def digest(self) -> bytes:
        """The digest of all that was added; blocks until it is known. Once."""
        if self._waiting is None:
            return self._hash.digest()
        self.stop()
        return self._done.get()

    def stop(self) -> None:
        """End the thread, without waiting for it."""
        if self._waiting is not None:
            self._waiting.put(None)

    @finaliser
    def __del__(self) -> None:
        self.stop()
