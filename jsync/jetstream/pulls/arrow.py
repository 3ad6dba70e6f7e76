"""Messages as columns, for whatever takes Arrow: without an object for each.

The extension appends what comes to columns, straight from the wire. Statuses,
heartbeats, order and reconnects are those of the pulls that bring it.
"""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from ...checks import seconds, whole
from ...core.deadline import deadline_after
from ...core.single import Single
from ...errors import ConfigError, SubscriptionClosedError, TimeoutError as LateError
from .engine import LONGEST_EXPIRY, UNLIMITED, idle_seconds
from .inbox import raise_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from ..._fast import ArrowBatch, Columns, Mailbox
    from ...checks import Seconds
    from ...models import ConsumerConfig
    from .driver import ContinuousPull
    from .inbox import Source

AHEAD_BYTES = 16 << 20
"""What is asked for ahead when nothing is said of it."""
MOST_ROWS = 10_000


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
        self._idle_timeout = idle_timeout or inf
        pull.mailbox.use_columns(columns)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ArrowBatch:
        """The next batch, of one message or more; blocks until it is there.

        Raises `ConsumerDeletedError` or `ConnectionClosedError`, after all that had come.
        """
        batch = self._take(inf)
        if batch is None:
            raise_failure(self._pull.mailbox)
            raise StopIteration
        return batch

    def next(self, timeout: Seconds | None = 5.0) -> ArrowBatch:
        """Block until the next batch is there, at most `timeout` seconds.

        Then with what has come; None waits for ever. Raises `TimeoutError` when nothing
        has, `SubscriptionClosedError` after the end, and what iterating raises.
        """
        batch = self._take(inf if timeout is None else deadline_after(timeout))
        if batch is None:
            raise_failure(self._pull.mailbox)
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
    shape = source.columns(columns, max_rows)
    return ArrowBatches(pull(), shape, (rows, size), max_wait, idle_timeout)
