"""The congestion window of a continuous pull, in bytes as in TCP.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

from typing import Final

MAX_WINDOW: Final = 32 << 20
"""Half of the bytes (`max_pending`) after which a server, by default, disconnects a client."""
MIN_WINDOW: Final = 64 << 10
MAX_SAMPLE: Final = 1000
"""The messages whose size tells how large the next ones are."""


class CongestionWindow:
    """The bytes that may be on their way from the server.

    A server disconnects a client when more than `max_pending` bytes wait for it, as happens
    to large messages on a slow line. It sends no reason. So the window is halved when the
    connection is lost, and grows again while messages arrive.
    """

    def __init__(self) -> None:
        self.size = MAX_WINDOW
        self._messages = self._bytes = 0
        self._guessed = False
        self._arrived = 0  # bytes since the window has grown

    def limit(self, messages: int) -> int:
        """Return how many of `messages` may be on their way."""
        if messages * self._bytes <= self.size * self._messages:
            return messages
        return max(1, self.size * self._messages // self._bytes)

    def on_delivered(self, messages: int, size: int) -> None:
        """Learn the size of messages, at least one, and grow after each full window."""
        if self._guessed:
            self._messages = self._bytes = 0
            self._guessed = False
        elif self._messages > MAX_SAMPLE:
            self._messages //= 2
            self._bytes //= 2
        self._messages += messages
        self._bytes += size
        self._arrived += size
        if self._arrived >= self.size:
            self._arrived = 0
            self.size = min(self.size + MIN_WINDOW, MAX_WINDOW)

    def on_lost(self, messages: int) -> None:
        """Halve the window, because `messages` that were requested did not arrive."""
        if not self._messages:
            # Nothing has ever arrived: the next pull is for one message, which tells the size.
            self._messages, self._bytes = 1, self.size
            self._guessed = True
        if self._guessed:
            return
        missing = messages * self._bytes // self._messages
        self.size = max(min(self.size, missing) // 2, MIN_WINDOW)
        self._arrived = 0
