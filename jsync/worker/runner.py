"""Calls of handlers: their acks, retries, time limits and counts."""

from __future__ import annotations

import contextlib
import logging
import threading
from bisect import bisect_left
from time import monotonic
from typing import TYPE_CHECKING, Final

from ..errors import Error, HandlerTimeoutError
from ..jetstream.retries.engine import format_error, user_traceback
from ..validation import format_seconds
from .metrics import BUCKETS, HandlerMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._fast import JetStreamMsg
    from ..jetstream.retries.driver import Outcome, RetryHandler
    from .routes import Route

logger = logging.getLogger("jsync.worker")

_FIRST_BUCKET: Final = BUCKETS[0]


class ThreadState:
    """The call of one thread. The thread that removes its message from `in_flight` answers it.

    The removal of a key from a dict is atomic, and much cheaper than a lock. The counts of
    the calls are here because the attributes of a thread's state are the quickest to change.
    """

    __slots__ = (
        *("failed", "in_flight", "late", "progress", "redelivered", "seconds", "total"),
    )

    def __init__(self) -> None:
        self.in_flight: dict[JetStreamMsg, float] = {}
        """The message that is being handled, and when its call began."""
        self.progress: tuple[JetStreamMsg | None, float] = (None, 0.0)
        """The message of the last request for more time, and the time of that request."""
        self.late: JetStreamMsg | None = None
        """The last message of a group whose call took too long."""
        self.seconds = HandlerMetrics().seconds
        self.total = 0.0
        self.failed = 0
        self.redelivered = 0

    @property
    def metrics(self) -> HandlerMetrics:
        """The counts of this thread."""
        return HandlerMetrics(
            seconds=self.seconds,
            total_seconds=self.total,
            failed=self.failed,
            redelivered=self.redelivered,
        )

    def check_deadline(
        self, now: float, limit: float | None, interval: float, *, keeps: bool
    ) -> JetStreamMsg | None:
        """Return the message of a call that takes longer than `limit`, but only once.

        The caller may retry or end the message, unless the call `keeps` it. For other calls, this
        requests more time from the server every `interval` seconds. Only the thread of the clock
        calls this.
        """
        for msg, started_at in list(self.in_flight.items()):
            if limit is not None and now - started_at >= limit and msg is not self.late:
                if not keeps:
                    return None if self.in_flight.pop(msg, None) is None else msg
                self.late = msg
                return msg
            last, requested_at = self.progress
            if now - (requested_at if last is msg else started_at) >= interval:
                self.progress = msg, now
                # If the call has just ended, the server ignores this.
                with contextlib.suppress(Error):
                    msg.in_progress()
        return None


class HandlerRunner:
    """The handler of a route, as `consume` calls it on its threads."""

    def __init__(
        self, route: Route, interval: float, report: Callable[[Exception], object]
    ) -> None:
        self.route = route
        self.retrier: RetryHandler
        self._call = route.call
        self._report = report
        self._local = threading.local()
        self._threads: list[ThreadState] = []
        self._lock = threading.Lock()
        self._outcomes = HandlerMetrics()  # counted by threads other than the handler's
        self.interval = interval
        """Seconds after which more time is requested."""
        self.gets_its_subjects = True
        """False if another program has given the consumer other subjects."""

    def _add_thread(self) -> ThreadState:
        state = self._local.state = current.state = ThreadState()
        with self._lock:
            self._threads.append(state)
        return state

    def handle(self, msg: JetStreamMsg) -> None:
        """Handle a message, and acknowledge or retry it."""
        try:
            state: ThreadState = self._local.state
        except AttributeError:
            state = self._add_thread()
        hand = state.in_flight
        if msg.is_redelivered:
            state.redelivered += 1
            if self.retrier.is_exhausted(msg):
                self._handle_failure(msg)
                return
        error: BaseException | None = None
        hand[msg] = started_at = monotonic()
        try:
            self._call(msg)
        except BaseException as raised:  # noqa: BLE001 (SystemExit is a failure as well)
            error = raised
        seconds = monotonic() - started_at
        state.seconds[
            0 if seconds <= _FIRST_BUCKET else bisect_left(BUCKETS, seconds)
        ] += 1
        state.total += seconds
        try:
            del hand[msg]
        except KeyError:
            return  # the clock has already ended the message
        if error is None:
            try:  # noqa: SIM105 (`suppress` would cost as much as all the rest)
                msg.ack()
            except Error:
                pass  # the server delivers it again after ack_wait
            return
        state.failed += 1
        self._handle_failure(msg, error)

    def _handle_failure(
        self, msg: JetStreamMsg, error: BaseException | None = None
    ) -> None:
        """End a message, or give it back after a failure. The logs name the message."""
        current.failed = msg
        try:
            if error is None:
                self.retrier.exhausted(msg)
                return
            delay = self.retrier.delay_after(msg, error)
            self._log(msg, error, delay)
            self.retrier.failed(msg, error, delay)
        finally:
            current.failed = None

    def _log(
        self, msg: JetStreamMsg, error: BaseException, delay: float | None
    ) -> None:
        """Log a failure, with its traceback if no other attempt follows."""
        attempts, number = self.route.retry.attempts, msg.metadata.num_delivered
        of = "" if attempts is None else f" of {attempts}"
        words = "%s failed at attempt %d%s: %s"
        about = (self.route.name, number, of, format_error(error))
        if delay is None:
            trace = (type(error), error, user_traceback(error))
            logger.error(words, *about, exc_info=trace)
        else:
            logger.warning(f"{words}; the next one follows in %g s", *about, delay)  # noqa: G004

    def check(self, now: float) -> None:
        """Check for calls that take long. Runs on the worker's clock thread."""
        with self._lock:
            threads = list(self._threads)
        limit = self.route.time_limit
        # Otherwise another member of the group could get the message of a running call, and
        # two members would handle one key at the same time.
        keeps = self.route.group is not None
        for state in threads:
            msg = state.check_deadline(now, limit, self.interval, keeps=keeps)
            if msg is None:
                continue
            assert limit is not None
            what = "message and its thread" if keeps else "thread"
            error = HandlerTimeoutError(
                f"{self.route.name} took longer than its time_limit of {format_seconds(limit)}; it keeps "
                f"its {what} until it returns"
            )
            with self._lock:
                self._outcomes.timeouts += 1
                self._outcomes.failed += not keeps
            self._report(error)
            if keeps:
                continue
            # Use a thread: a dead letter may take as long as a request, and other calls
            # need the clock.
            threading.Thread(
                target=self._handle_failure,
                args=(msg, error),
                name="jsync-worker-late",
                daemon=True,
            ).start()

    def record_outcome(self, outcome: Outcome) -> None:
        """Count the outcome of a failed message."""
        with self._lock:
            match outcome:
                case "retried":
                    self._outcomes.retried += 1
                case "dead":
                    self._outcomes.dead += 1
                case "dropped":
                    self._outcomes.dropped += 1
                case "kept":
                    self._outcomes.kept += 1

    @property
    def is_current(self) -> bool:
        """True if the caller runs on one of the threads of the handler."""
        return hasattr(self._local, "state")

    @property
    def in_flight(self) -> int:
        """The number of messages that are being handled."""
        return sum(len(state.in_flight) for state in list(self._threads))

    def has(self, sequence: int) -> bool:
        """Return whether a handler has the message of a stream sequence. For any thread."""
        return any(
            msg.metadata.stream_sequence == sequence
            for state in list(self._threads)
            for msg in list(state.in_flight)
        )

    def metrics(self) -> HandlerMetrics:
        """Return the counts so far."""
        with self._lock:
            parts = [self._outcomes, *(state.metrics for state in self._threads)]
            total = HandlerMetrics.sum(parts)
        total.in_hand = self.in_flight
        return total


class _ThreadLocals(threading.local):
    state: ThreadState | None = None
    failed: JetStreamMsg | None = None
    """The message that this thread returns to the server, or ends, after its call."""


current = _ThreadLocals()
"""The work of this thread, for the logs."""


def current_message() -> JetStreamMsg | None:
    """Return the message that this thread handles, returns to the server, or ends."""
    if current.failed is not None or current.state is None:
        return current.failed
    return next(iter([*current.state.in_flight]), None)
