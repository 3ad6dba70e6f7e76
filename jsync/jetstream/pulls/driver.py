"""The continuous pull behind `messages()` and `consume()` (ADR-37).

Pulls overlap: the reading thread sends the next one when half of the requested messages
have been handed over. Statuses, heartbeats and reconnects act on the I/O thread as they
arrive, however long the user's code takes.
"""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING

from ...core.session import ConnectionState
from ...core.sync import ForkSafeRLock
from ...errors import (
    ConnectionClosedError,
    ConnectionLostError,
    Error,
    MissedHeartbeatError,
    NoRespondersError,
)
from ...validation import format_seconds
from .consumer_check import ConsumerCheck
from .delivery import Delivery
from .engine import UNLIMITED, HeartbeatMonitor, PullEngine
from .inbox import PullInbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg, Msg
    from ...core.timers import Timer
    from .engine import ConsumeLimits, PullRequest
    from .inbox import PullTarget


class ContinuousPull(Delivery):
    """The pulls and the heartbeat watch behind `messages()` and `consume()`."""

    logger = logging.getLogger("jsync.consume")
    adapts_silently = False
    """True if the user did not choose how much a pull requests."""

    def __init__(
        self,
        target: PullTarget,
        limits: ConsumeLimits,
        on_error: Callable[[Exception], object] | None,
        *,
        readers: int = 1,
        lock: ForkSafeRLock | None = None,
        holds: bool = False,
    ) -> None:
        """With `holds`, a message counts as pending until `done` is called for it."""
        super().__init__(target.api.session, on_error)
        self._limits = limits
        self._holds = holds
        self._held = self._done = 0
        """With `holds`: messages that readers have, and messages done since the last count."""
        # The engine's lock. Re-entrant, like the session's. No call blocks while we
        # hold it.
        self._lock = lock or ForkSafeRLock()
        self._engine = PullEngine(limits, limits_first_pull=self.adapts_silently)
        self._retrying: Timer | None = None
        self._stopped = False
        self._refilling = False
        """True while the main thread refills, or after Ctrl-C has interrupted it there."""
        self._connected = monotonic()
        self._heartbeats = HeartbeatMonitor(limits.idle_heartbeat, self._connected)
        self._consumer_check: ConsumerCheck | None = None  # made for the first check
        self._inbox = PullInbox(
            target,
            on_status=self._on_status,
            on_lost=self._on_lost,
            on_connected=self._on_connected,
            on_denied=self.end,
            readers=readers,
        )
        self.mailbox = self._inbox.mailbox
        self.mailbox.on_credit = self._refill
        # At most this many messages are with the user or in flight.
        self.mailbox.holds_acks = 2 * limits.max_messages <= target.max_unacked
        if limits.stop_after:
            self.mailbox.end_after(limits.stop_after)

    def begin(self) -> None:
        """Begin to pull. Called once there is an object that gets the messages."""
        try:
            self._inbox.open()
            self._refill()
            self._watch_heartbeats()
        except BaseException:  # Ctrl-C: the caller may have nothing to stop
            self.close_nowait()
            raise

    def __repr__(self) -> str:
        state = "ended" if self.mailbox.closed else "open"
        return f"<ContinuousPull of {self.name} {state}, {self._engine!r}>"

    @property
    def name(self) -> str:
        """Stream and consumer, for error messages."""
        return self._inbox.target.consumer

    @property
    def acks(self) -> bool:
        return self._inbox.target.acks

    def was_connected_for(self, seconds: float) -> bool:
        """Return whether the connection has lasted this long without a break."""
        return (
            self.session.state is ConnectionState.CONNECTED
            and monotonic() - self._connected >= seconds
        )

    # Pulling --------------------------------------------------------------------------

    def _refill(self) -> None:
        """Pull again if it is time. Runs on the reading thread or the I/O thread."""
        # Ctrl-C can raise between any two instructions, but only on the main thread.
        interruptible = threading.current_thread() is threading.main_thread()
        # No loop here: on Python 3.14, a `with` does not release its lock when Ctrl-C raises
        # at the jump backward of a loop.
        with self._lock:
            if interruptible:
                again, self._refilling = self._refilling, True
            else:
                again = False
            requests = self._next_requests(again)
        for request in requests:
            self._publish(request)
        if interruptible:
            self._refilling = False

    def _next_requests(self, recount: bool) -> list[PullRequest]:
        """Return the pulls that are due. Called with the lock held.

        Args:
            recount: Ctrl-C interrupted the last refill. We do not know what was counted or
                sent, so count again. If the pull was sent after all, more messages arrive
                than we expect, and none is lost.
        """
        requests: list[PullRequest] = []
        if recount:
            self._engine.reset(*self._update_counts())
        while True:
            buffered = self._update_counts()
            if self._stopped or self.mailbox.closed or self._is_paused():
                self.mailbox.give_credit(UNLIMITED, UNLIMITED)
                return requests
            request = self._engine.next_request(*buffered)
            if request is not None:
                requests.append(request)
            credit = (UNLIMITED, UNLIMITED) if self._holds else self._engine.credit()
            # The reader may already have used its new credit.
            if self.mailbox.give_credit(*credit):
                return requests

    def _is_paused(self) -> bool:
        """Return whether no pull may be sent now."""
        return self._retrying is not None

    def _update_counts(self) -> tuple[int, int]:
        """Count what the reader has taken. Returns the buffered messages and bytes."""
        taken, buffered = self.mailbox.take_counts()
        if self._holds:
            done, self._done = self._done, 0
            self._held += taken[0] - done
            taken, buffered = (done, 0), (buffered[0] + self._held, buffered[1])
        if taken[0]:
            self._engine.on_delivered(*taken)
        return buffered

    def done(self) -> None:
        """Count a message as done, so that another one may come. Used with `holds`."""
        with self._lock:
            self._done += 1
            left = self._engine.pending_messages - self._done
            due = left <= self._limits.threshold_messages
        if due:
            self._refill()

    def _is_open(self) -> bool:
        """Return whether the server still owes messages or a status for a pull."""
        with self._lock:
            return self._engine.is_open(*self._update_counts())

    def _publish(self, request: PullRequest) -> None:
        # While disconnected this fails, and the reconnect starts again. A full write
        # buffer is reported to the user as a warning, and the heartbeat watch pulls
        # again.
        try:
            self._inbox.pull(request)
        except (ConnectionLostError, ConnectionClosedError):
            pass
        except Error as error:
            self.report(error)

    def _on_status(self, msg: Msg) -> None:
        headers = msg.headers
        left = None
        if headers is not None and "Nats-Pending-Messages" in headers:
            left = (
                _number(headers["Nats-Pending-Messages"]),
                _number(headers.get("Nats-Pending-Bytes", "0")),
            )
        if msg.status == 423:
            self._inbox.clear_pin_id()
        with self._lock:
            buffered = self._update_counts()
            reaction = self._engine.on_status(
                msg.status or 0, msg.status_text, left=left, buffered=buffered
            )
            if reaction.retry_in:
                self._retry_in(reaction.retry_in)
        if reaction.report is not None and not (
            reaction.adapted and self.adapts_silently
        ):
            self.report(reaction.report)
        if isinstance(reaction.report, NoRespondersError):
            self._check_consumer()
        if reaction.end is not None:
            self.end(reaction.end)
        else:
            self._refill()

    def _retry_in(self, seconds: float) -> None:
        """Pull again in `seconds`, unless a retry is already due earlier."""
        before = self._retrying
        if before is not None:
            if before.when <= monotonic() + seconds:
                return
            before.cancel()
        self._retrying = self.session.call_later(seconds, self._retry)

    def _cancel_retry(self) -> None:
        with self._lock:
            if self._retrying is not None:
                self._retrying.cancel()
            self._retrying = None

    def _retry(self) -> None:
        with self._lock:
            self._retrying = None
        self._refill()

    # Heartbeats and reconnects, on the I/O thread -------------------------------------

    def _watch_heartbeats(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        seconds = self._heartbeats.next_check_in(self.mailbox.last_arrival, monotonic())
        self._watch = self.session.call_later(seconds, self._check_heartbeat)

    def _check_heartbeat(self) -> None:
        if self._stopped or self.mailbox.closed:
            return
        late = self._heartbeats.is_late(self.mailbox.last_arrival, monotonic())
        # Without an open pull, for example with a full buffer, the server sends
        # nothing.
        if late and self._is_open():
            self._on_heartbeat_missed(
                MissedHeartbeatError(
                    f"no message or heartbeat from consumer {self.name} for "
                    f"{format_seconds(self._heartbeats.timeout)}: pulling again"
                )
            )
        else:
            self._refill()  # sends the pull that could not be published before
        self._watch_heartbeats()

    def _on_heartbeat_missed(self, error: MissedHeartbeatError) -> None:
        self.report(error)
        self._check_consumer()
        self._restart()

    def _check_consumer(self) -> None:
        with self._lock:
            if self._stopped:
                return
            if self._consumer_check is None:
                self._consumer_check = ConsumerCheck(
                    self._inbox.target.api, self.name, self.end
                )
        self._consumer_check.check()

    def _on_lost(self, error: ConnectionLostError) -> None:
        with self._lock:
            self._engine.on_lost(*self._update_counts())
        if self._consumer_check is not None:
            self._consumer_check.reset()
        self._heartbeats.pause()
        self._unwatch()

    def _on_connected(self) -> None:
        self._connected = monotonic()
        self._heartbeats.resume(self._connected)
        self._restart()
        self._watch_heartbeats()

    def _restart(self) -> None:
        with self._lock:
            self._engine.reset(*self._update_counts())
            self._cancel_retry()
        self._refill()

    # The end --------------------------------------------------------------------------

    def end(self, error: Exception | None = None) -> None:
        """End the pull. The reader gets what is buffered, then `error` or the end."""
        self._stop_requests()
        self._unwatch()
        self._inbox.close(error)

    def stop(self) -> None:
        """End the pull now, and give unread messages back to the server."""
        self.drain()
        self._inbox.nak_unread()

    def take_unread(self) -> list[JetStreamMsg]:
        return self._inbox.take_unread()

    def drain(self) -> None:
        """Pull no more, and end after the messages that the server has already sent."""
        self._stop_requests()
        self._inbox.drain(self._is_open)
        self._unwatch()

    def _stop_requests(self) -> None:
        with self._lock:  # so that no other thread creates the check now
            self._stopped = True
        if self._consumer_check is not None:
            self._consumer_check.stop()

    def close_nowait(self) -> None:
        """Stop without waiting. For finalisers."""
        self._stopped = True
        if self._consumer_check is not None:
            self._consumer_check.close_nowait()
        self._unwatch()
        self._inbox.close_nowait()


def _number(text: str) -> int:
    # A count has at most 18 digits.
    is_count = text.isascii() and text.isdigit() and len(text) <= 18
    return int(text) if is_count else 0
