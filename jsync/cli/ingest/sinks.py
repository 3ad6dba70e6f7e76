"""Ways into a stream: a fast ingest, or a publisher where there is none.

Both keep the order of the rows, and know how many of them are stored: all up to one.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Protocol

from jsync.errors import Error

if TYPE_CHECKING:
    import jsync


class Sink(Protocol):
    """Where rows go to. One thread at a time."""

    name: str

    def add(self, subject: str, data: bytes, msg_id: str | None) -> None:
        """Send one; blocks while too much is under way. Raises for what was refused."""

    @property
    def stored(self) -> int:
        """How many are known to be stored, without one missing before them."""

    def close(self) -> None:
        """Block until all is stored; raises for what is not."""

    def abandon(self) -> None:
        """End it without waiting; does not raise."""


class IngestSink:
    """By fast ingest."""

    name = "fast ingest"

    def __init__(self, js: jsync.JetStream) -> None:
        self._ingest = js.fast_ingest(outstanding=4)
        self._add = self._ingest.add

    def add(self, subject: str, data: bytes, msg_id: str | None) -> None:
        self._add(subject, data, msg_id=msg_id)

    @property
    def stored(self) -> int:
        return self._ingest.acked

    def close(self) -> None:
        self._ingest.close()

    def abandon(self) -> None:
        with contextlib.suppress(Error):
            self._ingest.abandon()


class PublisherSink:
    """By a publisher: each message with its ack."""

    name = "publisher"

    def __init__(self, js: jsync.JetStream, *, resend: bool) -> None:
        # Without ids, sending again after a lost connection would store duplicates.
        self._publisher = js.publisher(resend=resend)
        self._publish = self._publisher.publish
        self._waiting: deque[jsync.PubAckFuture] = deque()
        self._stored = 0

    def add(self, subject: str, data: bytes, msg_id: str | None) -> None:
        self._waiting.append(self._publish(subject, data, msg_id=msg_id))
        if len(self._waiting) % 256 == 0:
            self._settle()

    def _settle(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].done():
            waiting[0].result()
            waiting.popleft()
            self._stored += 1

    @property
    def stored(self) -> int:
        with contextlib.suppress(Error):
            self._settle()
        return self._stored

    def close(self) -> None:
        try:
            with contextlib.suppress(Error):  # each future has its own error
                self._publisher.flush()
            self._settle()
        finally:
            self.abandon()

    def abandon(self) -> None:
        with contextlib.suppress(Error):
            self._publisher.close(0)
