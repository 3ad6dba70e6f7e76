"""How current a watch is: the one meaning of "current".

A watch is current as of a moment if it has every change that was acknowledged before. The
leader of the stream says so, see `stream_end`: it is asked now and then where the stream ends,
and the moment is the last one at which most servers had confirmed it as their leader. Neither a
heartbeat nor a server that has nothing more to send proves anything.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from ...core.shared import RLock
from ...errors import Error
from ..stream_end.driver import follow
from ..stream_end.engine import ask_rest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.timers import Timer
    from ..ordered.driver import OrderedPull
    from ..ordered.place import Place
    from ..stream_end.engine import Rest, StreamEnd

ASK_EVERY: Final = 2.0
"""Seconds from one question to the next."""
ASK_AGAIN: Final = 0.5
"""The same while the watch lacks something, or there is no answer."""
MAX_AGE: Final = 6.0
"""The age in seconds up to which a watch counts as current.

A leader without writes hears from the other servers every second or two, so that its word is
that old.
"""
MAX_WAITING: Final = 100
"""Answers that may wait until the watch is as far."""


class Applied(NamedTuple):
    """How far the changes of a watch were applied."""

    revision: int
    """That of the last one."""
    unbroken: int
    """No sequence of the stream is missing between this one and the last."""


class Current:
    """Asks the leader how current a watch is, on the I/O thread, until it is stopped."""

    def __init__(
        self, place: Place, pull: OrderedPull, applied: Callable[[], Applied]
    ) -> None:
        self._place = place
        self._filters: Sequence[str] | None = place.cursor.filters
        self._pull = pull
        self._applied = applied
        self._begin = place.cursor.position
        self._session = place.api.session
        # Of the three below, which any thread asks for.
        self._lock = RLock()
        # Moments at which the watch will have been current, once it has a revision, and
        # if it has each sequence behind another one up to there.
        self._waiting: deque[tuple[int, int | None, float, StreamEnd]] = deque()
        self._reached: StreamEnd | None = None
        self._since = monotonic()
        self._said: tuple[StreamEnd | None, float] = place.end, self._since
        self._confirmed = True  # since the connection was made
        self._questions = 0
        self._stopped = False
        self._timer: Timer | None = None

    def begin(self, since: float) -> None:
        """The watch was current as of `since`: from now on, ask again and again."""
        self._since = since
        self._reached = self._said[0]
        self._pull.when_lost, self._pull.when_connected = self._lost, self._ask
        self._session.call_soon(self._ask)

    def stop(self) -> None:
        """Ask no more; from any thread."""
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
            # The newest first: an older answer may name a sequence that the filter leaves out.
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
        """Whether that is at most `MAX_AGE` ago, and not from before a lost connection."""
        age = monotonic() - self.since
        with self._lock:
            return self._confirmed and age <= MAX_AGE

    @property
    def said(self) -> tuple[StreamEnd | None, float]:
        """What the leader said last, and when it did, within a round trip."""
        with self._lock:
            return self._said

    @property
    def reached(self) -> StreamEnd | None:
        """The last end up to which the watch is known to have every change."""
        _ = self.since
        with self._lock:
            return self._reached

    # On the I/O thread ----------------------------------------------------------------

    def _lost(self) -> None:
        with self._lock:
            self._waiting.clear()
            self._confirmed = False

    def _ask(self) -> None:
        if self._is_over:
            return
        self._questions += 1
        question, asked_at = self._questions, monotonic()
        after = self._pull.position
        self._later(max(ASK_EVERY, self._place.api.timeout))
        follow(
            self._place.api,
            ask_rest(self._place.stream, self._filters, after),
            lambda rest: self._answered(question, asked_at, after, rest),
        )

    def _later(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._session.call_later(seconds, self._ask)

    def _answered(
        self, question: int, asked_at: float, after: int, rest: Rest | Error
    ) -> None:
        if self._is_over or question != self._questions:
            return
        if isinstance(rest, Error):
            self._later(ASK_AGAIN)
            return
        end = rest.end
        self._pull.behind(rest, after)
        moment = asked_at - end.silence
        with self._lock:
            self._said = end, (asked_at + monotonic()) / 2
            if rest.first is None:
                # Before anything has come, there is nothing to apply.
                self._wait(after if after > self._begin else 0, None, moment, end)
            else:
                # A change that is replaced before its turn comes with its replacement,
                # which may be behind this end. So none may be left out up to there.
                self._wait(end.sequence, after, moment, end)
        _ = self.since  # before the next gap
        self._later(ASK_EVERY if rest.first is None else ASK_AGAIN)

    def _wait(
        self, revision: int, after: int | None, moment: float, end: StreamEnd
    ) -> None:
        """With `revision`, and all from `after` to there, it is current as of `moment`."""
        self._waiting.append((revision, after, moment, end))
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()

    def __repr__(self) -> str:
        return f"<Current of {self._place.stream}>"
