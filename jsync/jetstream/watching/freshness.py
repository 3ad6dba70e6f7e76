"""The one definition of how current a watch is.

A watch is current as of a moment if it has every change that was acknowledged before. Only the
leader of the stream can confirm that, see `stream_end`. It is queried every few seconds for the
end of the stream, and the moment is the last one at which most servers had confirmed it as
their leader. Neither a heartbeat nor a server that has nothing more to send proves anything.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from ...core.sync import ForkSafeRLock
from ...errors import Error
from ..stream_end.driver import follow
from ..stream_end.engine import pending_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.timers import Timer
    from ..ordered.driver import OrderedPull
    from ..ordered.factory import ConsumerFactory
    from ..stream_end.engine import PendingMessages, StreamEnd

REQUEST_INTERVAL: Final = 2.0
"""Seconds from one request to the next."""
RETRY_INTERVAL: Final = 0.5
"""Seconds to the next request while the watch lacks a change, or after no answer."""
MAX_AGE: Final = 6.0
"""The age in seconds up to which a watch counts as current.

A leader without writes hears from the other servers only every second or two, so its answers
confirm a moment that is that old.
"""
MAX_WAITING: Final = 100
"""The most answers that wait until the watch has reached their end."""


class Applied(NamedTuple):
    """The progress of a watch: the changes that were applied."""

    revision: int
    """The revision of the last applied change."""
    unbroken: int
    """A sequence after which no sequence of the stream is missing, up to `revision`."""


class Freshness:
    """Checks with the leader how current a watch is, on the I/O thread, until it is stopped."""

    def __init__(
        self,
        factory: ConsumerFactory,
        pull: OrderedPull,
        applied: Callable[[], Applied],
    ) -> None:
        self._factory = factory
        self._filters: Sequence[str] | None = factory.cursor.filters
        self._pull = pull
        self._applied = applied
        self._begin = factory.cursor.position
        self._session = factory.api.session
        # Guards the attributes down to `_confirmed`, which any thread may read.
        self._lock = ForkSafeRLock()
        # Moments that count once the watch has reached a revision, see `_wait`: the
        # revision, a sequence or None, the moment, and the end of the stream.
        self._waiting: deque[tuple[int, int | None, float, StreamEnd]] = deque()
        self._reached: StreamEnd | None = None
        self._since = monotonic()
        self._leader_end: tuple[StreamEnd | None, float] = factory.end, self._since
        self._confirmed = True  # since the connection was made
        self._requests = 0
        self._stopped = False
        self._timer: Timer | None = None

    def begin(self, since: float) -> None:
        """Begin to query the leader at intervals. The watch was current as of `since`."""
        self._since = since
        self._reached = self._leader_end[0]
        self._pull.when_lost, self._pull.when_connected = (
            self._on_lost,
            self._send_request,
        )
        self._session.call_soon(self._send_request)

    def stop(self) -> None:
        """Stop querying the leader. Any thread may call this."""
        self._stopped = True
        timer = self._timer
        if timer is not None:
            timer.cancel()

    @property
    def _is_over(self) -> bool:
        return self._stopped or self._pull.closed

    @property
    def since(self) -> float:
        """The last moment as of which the watch is known to be current."""
        revision, unbroken = self._applied()
        with self._lock:
            # Begin with the newest answer, because an older one may name a sequence that
            # the filter leaves out.
            for number in range(len(self._waiting), 0, -1):
                needed, after, moment, end = self._waiting[number - 1]
                if needed <= revision and (after is None or unbroken <= after):
                    self._since = max(self._since, moment)
                    self._reached = end
                    self._confirmed = True
                    for _ in range(number):
                        self._waiting.popleft()
                    break
            return self._since

    @property
    def is_confirmed(self) -> bool:
        """True if `since` is at most `MAX_AGE` ago, and the connection was not lost later."""
        age = monotonic() - self.since
        with self._lock:
            return self._confirmed and age <= MAX_AGE

    @property
    def leader_end(self) -> tuple[StreamEnd | None, float]:
        """The last answer of the leader, and its time, exact to a round trip."""
        with self._lock:
            return self._leader_end

    @property
    def reached(self) -> StreamEnd | None:
        """The last end up to which the watch is known to have every change."""
        _ = self.since
        with self._lock:
            return self._reached

    # On the I/O thread ----------------------------------------------------------------

    def _on_lost(self) -> None:
        with self._lock:
            self._waiting.clear()
            self._confirmed = False

    def _send_request(self) -> None:
        if self._is_over:
            return
        self._requests += 1
        number, requested_at = self._requests, monotonic()
        after = self._pull.position
        self._schedule_request(max(REQUEST_INTERVAL, self._factory.api.timeout))
        follow(
            self._factory.api,
            pending_steps(self._factory.stream, self._filters, after),
            lambda pending: self._on_reply(number, requested_at, after, pending),
        )

    def _schedule_request(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._session.call_later(seconds, self._send_request)

    def _on_reply(
        self,
        number: int,
        requested_at: float,
        after: int,
        pending: PendingMessages | Error,
    ) -> None:
        if self._is_over or number != self._requests:
            return
        if isinstance(pending, Error):
            self._schedule_request(RETRY_INTERVAL)
            return
        end = pending.end
        self._pull.leave_if_behind(pending, after)
        moment = requested_at - end.silence
        with self._lock:
            self._leader_end = end, (requested_at + monotonic()) / 2
            if pending.first is None:
                # Before anything has come, there is nothing to apply.
                self._wait(after if after > self._begin else 0, None, moment, end)
            else:
                # A change that is replaced before it is read comes as its replacement,
                # which may be after this end. So the watch needs every sequence up to it.
                self._wait(end.sequence, after, moment, end)
        _ = self.since  # before the next gap
        self._schedule_request(
            REQUEST_INTERVAL if pending.first is None else RETRY_INTERVAL
        )

    def _wait(
        self, revision: int, after: int | None, moment: float, end: StreamEnd
    ) -> None:
        """Count the watch as current as of `moment` once it has reached `revision`.

        If `after` is set, it must also have every sequence from there to `revision`.
        """
        self._waiting.append((revision, after, moment, end))
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()

    def __repr__(self) -> str:
        return f"<Freshness of {self._factory.stream}>"
