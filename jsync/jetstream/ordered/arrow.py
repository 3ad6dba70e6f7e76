"""A range of a stream as columns in exact order, as `Stream.read_arrow` returns it."""

from __future__ import annotations

import secrets
from time import monotonic
from typing import TYPE_CHECKING

from ..._fast import (
    ArrowIterator,
    RowBuffer,
    arrow_schema,
    arrow_stream,
    safe_finalizer,
)
from ...core.clock import deadline_after
from ...core.resources import CloseOnExit, NotCopyable
from ...validation import check_int
from ..pulls.engine import consume_limits
from ..pulls.inbox import raise_failure
from .driver import OrderedPull
from .engine import Cursor, ordered_config
from .factory import ConsumerFactory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ...models import StreamInfo
    from ...validation import Seconds
    from ..api import API

READ_ROWS = 50_000
FILL_SECONDS = 0.2
"""Seconds to wait for a full batch, until it is checked whether one can come."""


class ArrowRange:
    """A range of a stream as Arrow columns. `Stream.read_arrow` returns it.

    Nothing is read in advance. Each iteration, and each call of `__arrow_c_stream__`,
    reads the whole range, batch after batch, and keeps only the batches on their way in
    memory. Any thread may use it.

    Example:
        ```python
        import pyarrow as pa

        table = pa.table(stream.read_arrow(columns=["sequence", "subject", "data"]))
        print(table.num_rows)
        ```
    """

    def __init__(
        self,
        api: API,
        stream: StreamInfo,
        start: int,
        end: int,
        *,
        columns: Sequence[str] | None,
        filter_subjects: str | Iterable[str] | None,
        headers_only: bool,
        max_rows: int,
        max_bytes: int,
        inactive_threshold: Seconds | None,
        timeout: Seconds | None,
    ) -> None:
        self._api = api
        self._info = stream
        self._stream = stream.config.name or ""
        self._names = columns
        self._max_rows = check_int(max_rows, "max_rows", 1)
        self._limits = consume_limits(max_bytes=max_bytes, idle_heartbeat=5.0)
        self._config = ordered_config(
            {
                "opt_start_seq": start,
                "filter_subjects": filter_subjects,
                "headers_only": headers_only or None,
                "inactive_threshold": inactive_threshold,
            }
        )
        self._timeout = api.seconds(timeout)
        deadline_after(self._timeout)
        self._columns()  # raises for unknown columns
        self.start = start
        """The first sequence that may be in it."""
        self.end = end
        """The last one."""

    def _columns(self) -> RowBuffer:
        return RowBuffer(self._names, max_rows=self._max_rows)

    def __iter__(self) -> ArrowReading:
        """Read it, batch after batch."""
        return ArrowReading(self._begin if self.start <= self.end else None)

    def _begin(self) -> _RangePull:
        cursor = Cursor(self._config, secrets.token_hex(8))
        cursor.until = self.end
        # A stream of this name that is created later is another one.
        cursor.check_stream(self._info)
        factory = ConsumerFactory(self._api, self._stream, cursor)
        factory.create(deadline_after(self._timeout))
        pull = _RangePull(factory, self._limits, None)
        pull.mailbox.use_columns(self._columns())
        pull.fill = self._max_rows, self._limits.max_bytes // 2
        pull.begin()
        return pull

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule. See `ArrowBatch`."""
        return arrow_schema(self._columns())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the record batches as a capsule. `requested_schema` is ignored."""
        return arrow_stream(self._columns(), iter(self))

    def __repr__(self) -> str:
        return f"<ArrowRange of {self._stream}, {self.start} to {self.end}>"


class _RangePull(OrderedPull):
    """Reads a range for one reader. After an early stop, no other read continues it."""

    fill = (1, 1)

    @property
    def awaited(self) -> tuple[int, int]:
        """The rows and bytes to wait for, one if the server allows only small pulls."""
        return self.fill if self._engine.by_bytes else (1, 1)

    def stop(self) -> None:
        self.mailbox.close(discard=True)
        super().stop()


class ArrowReading(CloseOnExit, NotCopyable, ArrowIterator):
    """One reading of a range: an iterator of `ArrowBatch`, for one thread at a time.

    Leaving it early through `with`, `close`, or by dropping it, gives its consumer back.
    Iterating raises `StreamNotFoundError`, `ConnectionClosedError`, and what else ends an
    `OrderedConsumer`.
    """

    def __init__(self, begin: Callable[[], _RangePull] | None) -> None:
        self._begin = begin  # None after the read has begun
        self._pull: _RangePull | None = None

    def _fill(self, _: None) -> None:
        """Wait for the next batch and take it. At the end there is none to take."""
        if self._begin is not None:
            # Clear it only now, so that a read can begin again after Ctrl-C.
            self._pull = self._begin()
            self._begin = None
        pull = self._pull
        while pull is not None:
            mailbox = pull.mailbox
            until = monotonic() + FILL_SECONDS
            if not mailbox.await_rows(*pull.awaited, until) and not mailbox.closed:
                continue
            if len(mailbox):
                if self._take(mailbox):
                    return
            elif mailbox.closed:
                raise_failure(mailbox)
                return

    def close(self) -> None:
        """Stop reading. Does not block, and a second call does nothing."""
        self._begin = None
        self._taken.clear()
        if self._pull is not None:
            self._pull.stop()

    @safe_finalizer
    def __del__(self) -> None:
        pull = getattr(self, "_pull", None)
        if pull is not None:
            pull.close_nowait()

    def __repr__(self) -> str:
        return f"<ArrowReading {self._pull or 'at rest'!r}>"
