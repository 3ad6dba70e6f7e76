"""Messages as Arrow columns, without a Python object for each message.

The extension appends messages to columns straight from the wire. Statuses, heartbeats,
order and reconnects are handled by the pulls that bring the messages.
"""

from __future__ import annotations

import contextlib
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from ... import errors
from ..._fast import ArrowBatch, TimedArrowIterator
from ...core.clock import deadline_after
from ...errors import ConfigError
from ...validation import check_int, check_seconds
from .engine import MAX_EXPIRY, UNLIMITED, idle_seconds
from .inbox import raise_failure
from .messages import PrefetchIterator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._fast import JetStreamMailbox, RowBuffer
    from ...models import ConsumerConfig
    from ...validation import Seconds
    from .driver import ContinuousPull
    from .inbox import PullTarget

PREFETCH_BYTES = 16 << 20
"""The bytes to prefetch by default."""
MAX_ROWS = 10_000


class ArrowBatches(PrefetchIterator[ArrowBatch], TimedArrowIterator):
    """Record batches without end, prefetched. `Consumer.arrow_batches` returns it.

    Iterate over it, or call `next`, from one thread. Leaving the `with` block stops it,
    and so does dropping it, once Python collects it. The iteration raises an error after
    all batches that had come.

    Raises:
        ConsumerDeletedError: The consumer was deleted.
        ConnectionClosedError: The connection was closed.

    Example:
        ```python
        consumer = stream.create_consumer(durable_name="billing", ack_policy="none")
        with consumer.arrow_batches(columns=["subject", "data"]) as batches:
            batch = batches.next(timeout=5)
            print(batch.num_rows)
        ```
    """

    def __init__(
        self,
        pull: ContinuousPull,
        columns: RowBuffer,
        fill: tuple[int, int],
        max_wait: float,
        idle_timeout: float | None,
    ) -> None:
        super().__init__(pull, idle_timeout)
        self._fill_to = fill
        self._max_wait = max_wait
        pull.mailbox.use_columns(columns)
        pull.begin()

    def _fill(self, timeout: Seconds | None) -> None:
        """Wait for the next batch and take it. At the end there is none to take."""
        deadline = inf if timeout is None else deadline_after(timeout)
        mailbox = self._pull.mailbox
        while self._await_first(mailbox, deadline):
            mailbox.await_rows(
                *self._fill_to, min(deadline, monotonic() + self._max_wait)
            )
            if self._take(mailbox):
                return
        raise_failure(mailbox)

    def _await_first(self, mailbox: JetStreamMailbox, deadline: float) -> bool:
        """Wait for a message. Returns False at the end."""
        started_at = monotonic()
        while not len(mailbox):
            until = min(deadline, started_at + (self._idle_timeout or inf))
            if mailbox.closed:
                return False
            if mailbox.await_rows(1, 1, until) or mailbox.closed:
                continue
            if monotonic() >= deadline:
                raise errors.TimeoutError("no message within the timeout")
            if monotonic() >= until:
                self._on_wait_timeout()
                started_at = monotonic()
        return True

    @property
    def pending(self) -> int:
        """Messages that have come and are not handed over yet."""
        return super().pending + sum(map(len, self._taken))

    def stop(self) -> list[ArrowBatch]:
        """End the iteration, and give prefetched batches back to the server (nak).

        Blocks for a round trip, at most a second. If the ack policy is known to be `none`,
        the server would not redeliver the messages, so `stop` returns them, even after the
        `with` block. You may call it from any thread, and twice.

        Returns:
            The unread batches of a consumer without acks. Otherwise an empty list.
        """
        rest = super().stop()
        with contextlib.suppress(IndexError):
            # Ctrl-C came before this batch was handed over.
            batch = self._taken.pop()
            if self._pull.mailbox.ackless:
                rest.insert(0, batch)
            else:
                batch.nak()
        return rest

    def __exit__(self, *_: object) -> None:
        if self._pull.mailbox.ackless:
            # `stop` handles the remaining messages.
            super().__exit__()
        else:
            self.stop()


def arrow_batches(
    pull: Callable[[], ContinuousPull],
    target: PullTarget,
    config: ConsumerConfig | None,
    *,
    columns: Sequence[str] | None,
    max_rows: int,
    max_wait: Seconds,
    max_messages: int | None,
    max_bytes: int | None,
    idle_timeout: Seconds | None,
) -> ArrowBatches:
    """Check the options of `Consumer.arrow_batches`, then start `pull` and return batches."""
    max_rows = check_int(max_rows, "max_rows", 1)
    max_wait = check_seconds(max_wait, "max_wait")
    if not 0 <= max_wait <= MAX_EXPIRY:
        raise ConfigError(f"max_wait has to be 0 seconds or more, not {max_wait!r}")
    idle_timeout = idle_seconds(idle_timeout)
    rows, size = max_rows, UNLIMITED
    # At most this many bytes arrive before the batch is handed over.
    if max_bytes is not None:
        size = max(1, max_bytes // 2)
    if max_messages is not None:
        rows = min(rows, max(1, max_messages // 2))
    outstanding = None if config is None else config.max_ack_pending
    if outstanding is not None and outstanding > 0 and target.acks:
        rows = min(rows, outstanding)
    shape = target.columns(columns, max_rows)
    return ArrowBatches(pull(), shape, (rows, size), max_wait, idle_timeout)
