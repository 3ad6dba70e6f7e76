"""Read a range of a stream on an executor: each message of it, or an error.

A range ends when its last message has come, or when the stream's leader confirms that the
rest does not exist. The end of a consumer or of a direct get is no confirmation, because
the server that answers may be a follower that lags. Only if the stream has no followers
does the end of a consumer come from the leader.
"""

from __future__ import annotations

import heapq
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import pyarrow

from .. import errors
from ..errors import Error, StreamNotFoundError
from ..terminal import printable
from .columns import first_missing, stored_batch, without_header
from .offsets import describe_loss
from .range_progress import RangeProgress
from .retry import RETRY_INTERVAL, is_unavailable, retry_until_available
from .stream_state import LossPolicy, fetch_bounds, has_followers, logger, next_message

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from .. import JetStream, Stream
    from .offsets import StreamBounds
    from .source_options import ReadMode

INACTIVE_THRESHOLD: Final = 30.0
"""Seconds after which the server removes the consumer of a lost executor."""
DIRECT_ROWS: Final = 5000
DIRECT_BYTES: Final = 8 << 20
SIZE_HEADER: Final = "Nats-Msg-Size"


@dataclass(frozen=True)
class InputRange:
    """A range of a stream, both ends included."""

    stream: str
    created: str
    start: int
    end: int
    mode: ReadMode
    prefix: str = ""
    """The subjects of a bucket up to the key. Empty for a stream."""


class RangeReader:
    """Reads one range. Iterate over it only once."""

    def __init__(
        self,
        js: JetStream,
        part: InputRange,
        *,
        columns: list[str],
        subjects: tuple[str, ...],
        policy: LossPolicy,
        retry_seconds: float,
    ) -> None:
        self._js = js
        self._part = part
        self._columns = columns
        self._subjects = subjects
        self._policy = policy
        self._retry_seconds = retry_seconds
        self._progress = RangeProgress(part.start, part.end)

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        """Yield record batches of `columns`, one of which is `sequence`. Blocks.

        Raises:
            DataLossError: Messages were lost before they were read, and the policy is to
                fail.
            TimeoutError: Messages that the leader still has do not arrive.
            Error: The range cannot be read.
        """
        progress = self._progress
        try:
            stream, bounds = self._fetch_stream()
            if not self._is_there(self._part.start, bounds):
                return
            until = monotonic() + self._retry_seconds
            while not progress.is_complete():
                position = progress.position
                try:
                    yield from self._read(stream)
                    if progress.is_complete() or self._confirmed():
                        break
                except Error as error:
                    if not is_unavailable(error) or monotonic() >= until:
                        raise
                if progress.position > position:
                    until = monotonic() + self._retry_seconds
                elif monotonic() >= until:
                    raise errors.TimeoutError(
                        f"sequences {position + 1} to {progress.end} of stream "
                        f"{stream.name} do not arrive, although its leader has not "
                        f"removed them"
                    )
                sleep(RETRY_INTERVAL)
            self._report_missing(stream)
        except StreamNotFoundError:
            name = self._part.stream
            self._policy.report(name, f"stream {name} was deleted while it was read")

    def _fetch_stream(self) -> tuple[Stream, StreamBounds]:
        return fetch_bounds(self._js, self._part.stream, self._retry_seconds)

    def _read(self, stream: Stream) -> Iterator[pyarrow.RecordBatch]:
        """Yield the batches from the position on, without a retry."""
        progress = self._progress
        batches = self._direct if self._part.mode == "direct" else self._pulled
        with closing(batches(stream, progress.position + 1)) as found:
            for batch in found:
                sequences = batch.column("sequence")
                last = sequences[-1].as_py()
                has_gap = progress.has_gap(batch.num_rows, last)
                # A consumer ends with its stream. Direct gets continue in a new one.
                if has_gap or self._part.mode == "direct":
                    bounds = self._fetch_stream()[1]
                    if bounds.created != self._part.created:
                        return
                    if has_gap:
                        missing = first_missing(progress.position, sequences)
                        self._is_there(missing, bounds)
                progress.advance(batch.num_rows, last)
                yield batch

    def _pulled(self, stream: Stream, start: int) -> Generator[pyarrow.RecordBatch]:
        no_data = "data" not in self._columns
        found = stream.read_arrow(
            start,
            self._part.end,
            columns=self._columns,
            filter_subjects=self._subjects or None,
            headers_only=no_data,
            inactive_threshold=INACTIVE_THRESHOLD,
        )
        with iter(found) as reading:
            for batch in reading:
                columns = pyarrow.record_batch(batch)
                if no_data and "headers" in self._columns:
                    columns = without_header(columns, SIZE_HEADER)
                yield columns

    def _direct(self, stream: Stream, start: int) -> Generator[pyarrow.RecordBatch]:
        """Read like `_pulled`, but by direct gets: each message is an object."""
        pages = [
            stream.get_messages(subject, sequence=start, up_to_sequence=self._part.end)
            for subject in self._subjects or (">",)
        ]
        messages = heapq.merge(*pages, key=attrgetter("sequence"))
        rows, size, last = [], 0, 0
        for message in messages:
            if message.sequence == last:
                continue  # two of the subjects match it
            last = message.sequence
            rows.append(message)
            size += len(message.data)
            if len(rows) == DIRECT_ROWS or size >= DIRECT_BYTES:
                yield stored_batch(rows, self._columns)
                rows, size = [], 0
        if rows:
            yield stored_batch(rows, self._columns)

    # Missing messages -----------------------------------------------------------------

    def _is_there(self, start: int, bounds: StreamBounds) -> bool:
        """Return whether this is still the same stream. Report a loss from `start` on.

        Messages before the first sequence of the stream may have been lost.
        """
        part = self._part
        loss = describe_loss(part.created, start, part.end + 1, bounds)
        if loss is not None:
            self._policy.report(part.stream, loss)
        return bounds.created == part.created

    def _report_missing(self, stream: Stream) -> None:
        """Warn of deleted messages, unless a filter or the stream's configuration explains it."""
        each = stream.config.max_msgs_per_subject
        if self._progress.missing and not self._subjects and not (each and each > 0):
            logger.warning(
                "%d of the sequences %d to %d of stream %s are no longer stored",
                *(
                    self._progress.missing,
                    self._part.start,
                    self._part.end,
                    printable(stream.name),
                ),
            )

    def _confirmed(self) -> bool:
        """Return whether the leader confirms that the rest of the range does not exist."""
        start = self._progress.position + 1
        stream, before = self._fetch_stream()
        if before.created == self._part.created:
            found = None
            if self._part.mode == "direct" or has_followers(stream):
                found = retry_until_available(
                    lambda: next_message(stream, start, self._subjects),
                    self._retry_seconds,
                )
            _, after = self._fetch_stream()
            if not self._progress.confirmed(before, found, after):
                return False
            before = after
        self._is_there(start, before)
        return True
