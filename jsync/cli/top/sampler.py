"""A thread that requests the counts of streams and consumers repeatedly."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Final

from jsync import errors

from ..ui.errors import format_error
from .engine import ConsumerCount, Measurement, StreamCount

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsync

_MAX_PARALLEL: Final = 8
"""The number of streams whose consumers are requested at the same time."""
_END: Final = 2.0
"""The seconds to wait for the thread, once its connection is closed."""


def measure(js: jsync.JetStream, helpers: ThreadPoolExecutor) -> Measurement:
    """Request the counts of all streams and consumers. Blocks.

    It takes one request for 256 streams, and one for each stream with consumers.
    """
    streams: list[StreamCount] = []
    missing: list[str] = []
    at = monotonic()
    try:
        for stream in js.streams():
            info = stream.cached_info
            streams.append(
                StreamCount(
                    stream.name,
                    info.created,
                    info.state.last_seq,
                    info.state.messages,
                    info.state.bytes,
                    info.state.consumer_count,
                )
            )
    except errors.IncompleteListError as error:
        missing.append(format_error(error))
    at = (at + monotonic()) / 2

    def of(stream: str) -> list[ConsumerCount]:
        return _consumers(js, stream, missing)

    busy = [stream.name for stream in streams if stream.consumers]
    found = list(helpers.map(of, busy))
    consumers = [consumer for group in found for consumer in group]
    return Measurement(at, streams, consumers, missing[0] if missing else None)


def _consumers(
    js: jsync.JetStream, stream: str, missing: list[str]
) -> list[ConsumerCount]:
    found: list[ConsumerCount] = []
    try:
        for consumer in js.consumers(stream):
            info = consumer.cached_info
            found.append(
                ConsumerCount(
                    stream,
                    info.name,
                    info.created,
                    info.delivered.consumer_seq,
                    info.num_pending,
                    info.num_ack_pending,
                    info.num_redelivered,
                    info.num_waiting,
                )
            )
    except errors.StreamNotFoundError:
        return []  # deleted in the meantime
    except errors.IncompleteListError as error:
        missing.append(format_error(error))
    return found


class Sampler:
    """A thread that measures every `interval` seconds, and then calls `wake`.

    The next measurement begins an interval after the last began, or once that has
    ended.
    """

    def __init__(
        self, js: jsync.JetStream, interval: float, wake: Callable[[], object]
    ) -> None:
        self.results: SimpleQueue[Measurement | Exception] = SimpleQueue()
        """Each measurement, or the error if it failed."""
        self._js, self._interval, self._wake = js, interval, wake
        self._ended = threading.Event()
        self._allowed = threading.Event()
        self._allowed.set()
        self._helpers = ThreadPoolExecutor(
            _MAX_PARALLEL, thread_name_prefix="jsync top"
        )
        self._thread = threading.Thread(target=self._run, name="jsync top", daemon=True)
        self._thread.start()

    def pause(self, paused: bool) -> None:
        """Send no requests while paused."""
        if paused:
            self._allowed.clear()
        else:
            self._allowed.set()

    def end(self) -> None:
        """Send no more requests, and wait for those in flight.

        Close the connection before, because that ends them.
        """
        self._ended.set()
        self._allowed.set()
        self._thread.join(_END)
        self._helpers.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        while not self._ended.is_set():
            begin = monotonic()
            result: Measurement | Exception
            try:
                result = measure(self._js, self._helpers)
            except Exception as error:  # noqa: BLE001 - shown to the person who looks
                result = error
            if self._ended.is_set():
                return
            self.results.put(result)
            self._wake()
            self._ended.wait(max(0.0, begin + self._interval - monotonic()))
            self._allowed.wait()
