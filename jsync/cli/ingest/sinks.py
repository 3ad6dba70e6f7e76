"""Ways into a stream: fast ingest, or a publisher if the stream does not support it.

Both keep the order of the rows, and count the rows that are stored without a gap.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from jsync.errors import Error

if TYPE_CHECKING:
    import jsync


_WINDOW: Final = 4000
"""The maximum number of rows after the first one without an ack.

It is smaller than `stored.WINDOW`.
"""


class Sink(Protocol):
    """The destination of rows. Only one thread at a time may use it."""

    name: str

    def add(self, subject: str, data: bytes, msg_id: str | None) -> None:
        """Send one row.

        Blocks while too many are in flight. Raises the error of a rejected one.
        """

    @property
    def stored(self) -> int:
        """The number of rows that are known to be stored, without a gap."""

    def flush(self) -> None:
        """Block until the added rows are stored, or no later row can overtake them.

        Raises the error of a row that is not stored.
        """

    def close(self) -> None:
        """Block until all rows are stored. Raises the error of one that is not."""

    def abandon(self) -> None:
        """End without waiting, and without an error."""


class IngestSink:
    """A sink that uses fast ingest."""

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
        """Do nothing, because the stream stores no row after one that it rejects."""

    def close(self) -> None:
        self._ingest.close()

    def abandon(self) -> None:
        with contextlib.suppress(Error):
            self._ingest.abandon()


class PublisherSink:
    """A sink that uses a publisher, with one ack per message."""

    name = "publisher"

    def __init__(self, js: jsync.JetStream, *, resend: bool) -> None:
        # Without ids, sending again after a lost connection would store duplicates.
        self._publisher = js.publisher(window=_WINDOW, resend=resend)
        self._publish = self._publisher.publish
        self._waiting: deque[jsync.PubAckFuture] = deque()
        self._stored = 0

    def add(self, subject: str, data: bytes, msg_id: str | None) -> None:
        if self._publisher.failed or len(self._waiting) >= _WINDOW:
            self._collect_acks()
            # One row may wait for its ack while thousands after it have theirs.
            while len(self._waiting) >= _WINDOW:
                self._await_first_ack()
        self._waiting.append(self._publish(subject, data, msg_id=msg_id))

    def _collect_acks(self) -> None:
        """Count the rows up to the first one without an ack.

        Raises the error of a rejected row.
        """
        while self._waiting and self._waiting[0].done():
            self._await_first_ack()

    def _await_first_ack(self) -> None:
        self._waiting[0].result()
        self._waiting.popleft()
        self._stored += 1

    @property
    def stored(self) -> int:
        with contextlib.suppress(Error):
            self._collect_acks()
        return self._stored

    def flush(self) -> None:
        while self._waiting:
            self._await_first_ack()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        with contextlib.suppress(Error):
            self._publisher.close(0)
