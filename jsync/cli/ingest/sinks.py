"""Ways into a stream: a fast ingest, or a publisher where there is none.

Both keep the order of the rows, and know how many of them are stored: all up to one.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from jsync.errors import Error

if TYPE_CHECKING:
    import jsync


_WINDOW: Final = 4000
"""Rows behind the first one without an ack. Fewer than `stored.WINDOW`."""


class Sink(Protocol):
    """Where rows go to. One thread at a time."""

    name: str

    def add(self, subject: str, data: bytes, msg_id: str | None) -> None:
        """Send one; blocks while too much is under way. Raises for what was refused."""

    @property
    def stored(self) -> int:
        """How many are known to be stored, without one missing before them."""

    def flush(self) -> None:
        """Block until what was added is stored, or later rows can no longer pass it.

        Raises for what is not stored.
        """

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

    def flush(self) -> None:
        """Do nothing: the stream stores no row behind one that it rejects."""

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
        self._publisher = js.publisher(window=_WINDOW, resend=resend)
        self._publish = self._publisher.publish
        self._waiting: deque[jsync.PubAckFuture] = deque()
        self._stored = 0

    def add(self, subject: str, data: bytes, msg_id: str | None) -> None:
        if self._publisher.failed or len(self._waiting) >= _WINDOW:
            self._settle()
            # One row may wait for its ack while thousands behind it get theirs.
            while len(self._waiting) >= _WINDOW:
                self._settle_first()
        self._waiting.append(self._publish(subject, data, msg_id=msg_id))

    def _settle(self) -> None:
        """Count the rows up to the first one without an ack; raises for a rejected one."""
        while self._waiting and self._waiting[0].done():
            self._settle_first()

    def _settle_first(self) -> None:
        self._waiting[0].result()
        self._waiting.popleft()
        self._stored += 1

    @property
    def stored(self) -> int:
        with contextlib.suppress(Error):
            self._settle()
        return self._stored

    def flush(self) -> None:
        while self._waiting:
            self._settle_first()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        with contextlib.suppress(Error):
            self._publisher.close(0)
