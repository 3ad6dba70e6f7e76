"""Wakes the thread that drains events, or the event loop of Celery."""

from __future__ import annotations

import os
import queue as queues
import threading


class SelfPipe:
    """Wakes the thread that waits, or the event loop that watches `fileno`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._woken = False
        self._tokens: queues.SimpleQueue[None] = queues.SimpleQueue()
        self._pipe: tuple[int, int] | None = None
        self._closed = False

    def wake(self) -> None:
        """Wake the thread or the event loop. A second ring before `clear` does nothing."""
        with self._lock:
            if self._woken:
                return
            self._woken = True
            self._tokens.put(None)
            if self._pipe is not None:
                os.write(self._pipe[1], b"!")

    def wait(self, timeout: float | None) -> bool:
        """Wait for a ring. Return False if none came in time."""
        try:
            self._tokens.get(timeout=timeout)
        except queues.Empty:
            return False
        self.clear()
        return True

    def clear(self) -> None:
        """Clear the ring, so that the next one wakes again."""
        with self._lock:
            self._woken = False
            while not self._tokens.empty():
                self._tokens.get_nowait()
            if self._pipe is not None:
                try:
                    os.read(self._pipe[0], 4096)
                except BlockingIOError:
                    return

    def fileno(self) -> int:
        """Return a descriptor that can be read after each ring. -1 after `close`."""
        with self._lock:
            if self._closed:
                return -1
            if self._pipe is None:
                self._pipe = os.pipe()
                for end in self._pipe:
                    os.set_blocking(end, False)
                if self._woken:
                    os.write(self._pipe[1], b"!")
            return self._pipe[0]

    def close(self) -> None:
        """Close the descriptor."""
        with self._lock:
            pipe, self._pipe, self._closed = self._pipe, None, True
        for end in pipe or ():
            os.close(end)
