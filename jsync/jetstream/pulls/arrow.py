"""Messages as columns, for whatever takes Arrow: without an object for each.

The extension appends what comes to columns, straight from the wire. Statuses,
heartbeats, order and reconnects are those of the pulls that bring it.
"""

from __future__ import annotations

import secrets
from time import monotonic
from typing import TYPE_CHECKING

from ..._fast import Columns, arrow_schema, arrow_stream
from ...checks import seconds, whole
from ...core.deadline import deadline_after
from ...core.single import Single
from ...errors import ConfigError, SubscriptionClosedError, TimeoutError as LateError
from ..ordered.driver import OrderedPull
from ..ordered.engine import Cursor, ordered_config
from ..ordered.place import Place
from .engine import LONGEST_EXPIRY, UNLIMITED, consume_limits, idle_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from ..._fast import ArrowBatch, Mailbox
    from ...checks import Seconds
    from ...models import ConsumerConfig
    from ..api import API
    from .driver import ContinuousPull
    from .fetch import SinglePull
    from .inbox import Source

AHEAD_BYTES = 16 << 20
"""What is asked for ahead when nothing is said of it."""
MOST_ROWS = 10_000
READ_ROWS = 50_000
FOREVER = float("inf")


def _columns(
    source: Source, names: Sequence[str] | None, most_rows: int = 0
) -> Columns:
    return Columns(
        names, most_rows=most_rows, acks=source.acks, together=source.acks_all
    )


def _fail(mailbox: Mailbox) -> None:
    """Raise what has ended it, if that was an error."""
    if mailbox.failure is not None:
        mailbox.next(0)


# One pull -----------------------------------------------------------------------------


def fetched(
    pull: SinglePull, source: Source, columns: Sequence[str] | None
) -> ArrowBatch:
    """Wait until the pull has ended; all that it has brought."""
    mailbox = pull.inbox.mailbox
    mailbox.use_columns(_columns(source, columns))
    while not mailbox.closed:
        until = pull.deadline
        if pull.silence:
            until = min(until, mailbox.last_arrival + pull.silence)
        if mailbox.await_rows(UNLIMITED, UNLIMITED, until) or mailbox.closed:
            continue
        # What came in the meantime, a heartbeat perhaps, has put it off.
        if monotonic() >= pull.deadline or (
            pull.silence and monotonic() >= mailbox.last_arrival + pull.silence
        ):
            pull.waited()
    if not len(mailbox):
        _fail(mailbox)
    return mailbox.take_rows(whole=True)


# The continuous pull ------------------------------------------------------------------


class ArrowBatches(Single):
    """Record batches without end, prefetched: what `Consumer.arrow_batches` returns.

    Iterate, or call `next`; from one thread. Leaving the `with` block stops it, and so
    does dropping it, as soon as Python notices.
    """

    def __init__(
        self,
        pull: ContinuousPull,
        columns: Columns,
        fill: tuple[int, int],
        max_wait: float,
        idle_timeout: float | None,
    ) -> None:
        # Apart, so that what the connection knows of it does not keep this alive.
        self._pull = pull
        self._fill = fill
        self._max_wait = max_wait
        self._idle_timeout = idle_timeout or FOREVER
        pull.mailbox.use_columns(columns)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ArrowBatch:
        """The next batch, of one message or more; blocks until it is there.

        Raises `ConsumerDeletedError` or `ConnectionClosedError`, after all that had come.
        """
        batch = self._take(FOREVER)
        if batch is None:
            _fail(self._pull.mailbox)
            raise StopIteration
        return batch

    def next(self, timeout: float | None = 5.0) -> ArrowBatch:
        """Block until the next batch is there, at most `timeout` seconds.

        Then with what has come; None waits for ever. Raises `TimeoutError` when nothing
        has, `SubscriptionClosedError` after the end, and what iterating raises.
        """
        batch = self._take(FOREVER if timeout is None else deadline_after(timeout))
        if batch is None:
            _fail(self._pull.mailbox)
            raise SubscriptionClosedError("no more batches: it has ended")
        return batch

    def _take(self, deadline: float) -> ArrowBatch | None:
        mailbox = self._pull.mailbox
        while self._await_first(mailbox, deadline):
            mailbox.await_rows(*self._fill, min(deadline, monotonic() + self._max_wait))
            batch = mailbox.take_rows()
            if len(batch):
                return batch
        return None

    def _await_first(self, mailbox: Mailbox, deadline: float) -> bool:
        """Wait for a message; False at the end."""
        begun = monotonic()
        while not len(mailbox):
            until = min(deadline, begun + self._idle_timeout)
            if mailbox.closed:
                return False
            if mailbox.await_rows(1, 1, until) or mailbox.closed:
                continue
            if monotonic() >= deadline:
                raise LateError("no message within the timeout")
            if monotonic() >= until:
                # While disconnected nothing can come: that says nothing of the stream.
                if self._pull.was_connected_for(self._idle_timeout):
                    self._pull.drain()
                begun = monotonic()
        return True

    @property
    def pending(self) -> int:
        """Messages that have come and are not handed over yet."""
        return len(self._pull.mailbox)

    @property
    def closed(self) -> bool:
        """Whether no more messages will come."""
        return self._pull.mailbox.closed

    def stop(self) -> list[ArrowBatch]:
        """End it; what was prefetched is given back to the server (nak).

        Of a consumer whose ack policy is known to be `none` it is returned, since the
        server will not send it again; also when leaving the `with` block has stopped it
        before. Blocks for a round trip, a second at most. May be called from any thread,
        twice.
        """
        self._pull.stop()
        return self._pull.take_rest()  # type: ignore[return-value]

    def drain(self) -> None:
        """Pull no more; it ends after what has been prefetched.

        Blocks for a round trip, a second at most. May be called from any thread, twice.
        """
        self._pull.drain()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pull.stop()

    def __del__(self) -> None:
        pull = getattr(self, "_pull", None)
        if pull is not None:  # else Ctrl-C came as it was made
            pull.abandon()

    def __repr__(self) -> str:
        state = "ended" if self.closed else "open"
        return f"<ArrowBatches {state}, {self.pending} messages pending>"


def arrow_batches(
    pull: Callable[[], ContinuousPull],
    source: Source,
    config: ConsumerConfig | None,
    *,
    columns: Sequence[str] | None,
    max_rows: int,
    max_wait: Seconds,
    max_messages: int | None,
    max_bytes: int | None,
    idle_timeout: Seconds | None,
) -> ArrowBatches:
    """What `Consumer.arrow_batches` does, but for the pull."""
    max_rows = whole(max_rows, "max_rows", 1)
    max_wait = seconds(max_wait, "max_wait")
    if not 0 <= max_wait <= LONGEST_EXPIRY:
        raise ConfigError(f"max_wait has to be 0 seconds or more, not {max_wait!r}")
    idle_timeout = idle_seconds(idle_timeout)
    rows, size = max_rows, UNLIMITED
    # More than so much does not come before what is here is handed over.
    if max_bytes is not None:
        size = max(1, max_bytes // 2)
    if max_messages is not None:
        rows = min(rows, max(1, max_messages // 2))
    outstanding = None if config is None else config.max_ack_pending
    if outstanding is not None and outstanding > 0 and source.acks:
        rows = min(rows, outstanding)
    shape = _columns(source, columns, max_rows)
    return ArrowBatches(pull(), shape, (rows, size), max_wait, idle_timeout)


# A range of a stream ------------------------------------------------------------------


class ArrowRange:
    """A range of a stream as Arrow: what `Stream.read_arrow` returns.

    Nothing is read before it is asked for: each iteration, and each `__arrow_c_stream__`,
    reads the range anew, batch after batch, and holds no more than what is on its way.
    Any thread may use it.
    """

    def __init__(
        self,
        api: API,
        stream: str,
        start: int,
        end: int,
        *,
        columns: Sequence[str] | None,
        filter_subjects: str | Iterable[str] | None,
        headers_only: bool,
        max_rows: int,
        max_bytes: int,
        inactive_threshold: float | None,
        timeout: float | None,
    ) -> None:
        self._api = api
        self._stream = stream
        self._names = columns
        self._max_rows = whole(max_rows, "max_rows", 1)
        self._limits = consume_limits(max_bytes=max_bytes, idle_heartbeat=5.0)
        self._config = ordered_config(
            {
                "opt_start_seq": start,
                "filter_subjects": filter_subjects,
                "headers_only": headers_only or None,
                "inactive_threshold": inactive_threshold,
            }
        )
        self._timeout = api.timeout if timeout is None else timeout
        deadline_after(self._timeout)
        self._columns()  # raises for columns that there are not
        self.start = start
        """The first sequence that may be in it."""
        self.end = end
        """The last one."""

    def _columns(self) -> Columns:
        return Columns(self._names, most_rows=self._max_rows)

    def __iter__(self) -> ArrowReading:
        """Read it, batch after batch."""
        return ArrowReading(self._begin if self.start <= self.end else None)

    def _begin(self) -> _RangePull:
        cursor = Cursor(self._config, secrets.token_hex(8))
        cursor.until = self.end
        place = Place(self._api, self._stream, cursor)
        place.create(deadline_after(self._timeout))
        pull = _RangePull(place, self._limits, None)
        pull.mailbox.use_columns(self._columns())
        pull.fill = self._max_rows, self._limits.max_bytes // 2
        pull.begin()
        return pull

    def __arrow_c_schema__(self) -> object:
        """Its schema, as a capsule; see `ArrowBatch`."""
        return arrow_schema(self._columns())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A stream of its record batches, as a capsule; `requested_schema` is ignored."""
        return arrow_stream(self._columns(), iter(self))

    def __repr__(self) -> str:
        return f"<ArrowRange of {self._stream}, {self.start} to {self.end}>"


class _RangePull(OrderedPull):
    """Reads a range for one reader, who goes on nowhere when it stops early."""

    fill = (1, 1)

    def stop(self) -> None:
        self.mailbox.close(discard=True)
        super().stop()


class ArrowReading(Single):
    """One reading of a range: an iterator of `ArrowBatch`, for one thread at a time.

    Leaving it early through `with`, `close`, or by dropping it, gives its consumer back.
    """

    def __init__(self, begin: Callable[[], _RangePull] | None) -> None:
        self._begin = begin  # until it has begun
        self._pull: _RangePull | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ArrowBatch:
        """The next batch; blocks.

        Raises `StreamNotFoundError`, `ConnectionClosedError`, and what else ends an
        `OrderedConsumer`.
        """
        if self._begin is not None:
            begin, self._begin = self._begin, None
            self._pull = begin()
        pull = self._pull
        while pull is not None:
            mailbox = pull.mailbox
            mailbox.await_rows(*pull.fill, FOREVER)
            if len(mailbox):
                batch = mailbox.take_rows()
                if len(batch):
                    return batch
            elif mailbox.closed:
                _fail(mailbox)
                break
        raise StopIteration

    def close(self) -> None:
        """Read no more; does not block, and a second call does nothing."""
        self._begin = None
        if self._pull is not None:
            self._pull.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        pull = getattr(self, "_pull", None)
        if pull is not None:
            pull.abandon()

    def __repr__(self) -> str:
        return f"<ArrowReading {self._pull or 'at rest'!r}>"
