"""Rates from measurements, and the state of the screen that keys change: pure."""

from __future__ import annotations

import enum
from collections import deque
from itertools import islice
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ...core.state import StateMachine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

HISTORY: Final = 240
"""The number of rates that are kept of each stream and consumer."""


class StreamCount(NamedTuple):
    """The counts of a stream at one moment."""

    name: str
    created: datetime | None
    last_seq: int
    messages: int
    bytes: int
    consumers: int


class ConsumerCount(NamedTuple):
    """The counts of a consumer at one moment."""

    stream: str
    name: str
    created: datetime | None
    delivered: int
    """The messages delivered since the consumer was created, including redeliveries."""
    pending: int
    """The messages that are not delivered yet."""
    ack_pending: int
    redelivered: int
    waiting: int
    """The waiting pull requests."""


class Measurement(NamedTuple):
    """The counts of an account at one moment."""

    at: float
    """The time of a monotonic clock, in seconds."""
    streams: Sequence[StreamCount]
    consumers: Sequence[ConsumerCount]
    missing: str | None = None
    """The error, if some streams or consumers did not answer."""


class StreamRow(NamedTuple):
    """A stream as a row of the screen."""

    name: str
    rate: float | None
    """The messages stored per second, or None before the second measurement."""
    history: Sequence[float]
    messages: int
    bytes: int
    consumers: int
    lag: int
    """The messages that the slowest consumer has not received yet."""
    redelivered: int


class ConsumerRow(NamedTuple):
    """A consumer as a row of the screen."""

    name: str
    """`STREAM > CONSUMER`."""
    rate: float | None
    """The messages delivered per second, or None before the second measurement."""
    history: Sequence[float]
    lag: int
    """The messages that are not delivered yet."""
    ack_pending: int
    redelivered: int
    waiting: int


class RateTracker:
    """Rows with rates, computed from successive measurements."""

    def __init__(self) -> None:
        self.streams: list[StreamRow] = []
        self.consumers: list[ConsumerRow] = []
        self.missing: str | None = None
        self._trails: dict[tuple[str, ...], _CounterHistory] = {}

    def add(self, measured: Measurement) -> None:
        """Add the next measurement."""
        before, self._trails = self._trails, {}
        self.missing = measured.missing
        lags: dict[str, int] = {}
        redelivered: dict[str, int] = {}
        self.consumers = []
        for consumer in measured.consumers:
            key = (consumer.stream, consumer.name)
            trail = self._follow(
                before, key, consumer.created, measured.at, consumer.delivered
            )
            self.consumers.append(
                ConsumerRow(
                    f"{consumer.stream} > {consumer.name}",
                    trail.rate,
                    trail.rates,
                    consumer.pending,
                    consumer.ack_pending,
                    consumer.redelivered,
                    consumer.waiting,
                )
            )
            of = consumer.stream
            lags[of] = max(lags.get(of, 0), consumer.pending)
            redelivered[of] = redelivered.get(of, 0) + consumer.redelivered
        self.streams = []
        for stream in measured.streams:
            trail = self._follow(
                before, (stream.name,), stream.created, measured.at, stream.last_seq
            )
            self.streams.append(
                StreamRow(
                    stream.name,
                    trail.rate,
                    trail.rates,
                    stream.messages,
                    stream.bytes,
                    stream.consumers,
                    lags.get(stream.name, 0),
                    redelivered.get(stream.name, 0),
                )
            )

    def _follow(
        self,
        before: dict[tuple[str, ...], _CounterHistory],
        key: tuple[str, ...],
        created: datetime | None,
        at: float,
        count: int,
    ) -> _CounterHistory:
        trail = before.get(key)
        # If a stream or consumer was recreated, its counts start at 0 again.
        if trail is None or trail.created != created or count < trail.count:
            trail = _CounterHistory(created)
        trail.add(at, count)
        self._trails[key] = trail
        return trail


class _CounterHistory:
    """The values of a count over time, and its rates."""

    def __init__(self, created: datetime | None) -> None:
        self.created = created
        self.count = 0
        self.rate: float | None = None
        self._rates: deque[float] = deque(maxlen=HISTORY)
        self._at: float | None = None

    @property
    def rates(self) -> Sequence[float]:
        return tuple(self._rates)

    def add(self, at: float, count: int) -> None:
        if self._at is not None and at > self._at:
            self.rate = (count - self.count) / (at - self._at)
            self._rates.append(self.rate)
        self.count, self._at = count, at


# The state that keys change ------------------------------------------------------------


class View(enum.Enum):
    """The kind of rows that the screen shows."""

    STREAMS = "streams"
    CONSUMERS = "consumers"


class Mode(enum.Enum):
    """The mode of the keyboard."""

    BROWSING = "browsing"
    FILTERING = "filtering"
    """Keys edit the filter, until Enter or Escape."""
    LEAVING = "leaving"


_TRANSITIONS: Final = {
    Mode.BROWSING: {Mode.FILTERING, Mode.LEAVING},
    Mode.FILTERING: {Mode.BROWSING},
    Mode.LEAVING: set[Mode](),
}

COLUMNS: Final = {
    View.STREAMS: (
        *("name", "rate", "messages", "bytes", "consumers"),
        *("lag", "redelivered"),
    ),
    View.CONSUMERS: ("name", "rate", "lag", "ack_pending", "redelivered", "waiting"),
}
"""The fields by which rows can be sorted."""


class ScreenState:
    """The choices of the user. Only one thread presses keys and reads rows."""

    def __init__(self, view: View, sort: str = "rate", filter_text: str = "") -> None:
        self.view = view
        self.filter = filter_text
        self.paused = False
        self._mode = StateMachine(Mode.BROWSING, _TRANSITIONS)
        self.first = 0
        """The index of the row at the top of the screen."""
        self._page = 1
        self._count = 0
        self._filter_before = filter_text
        self._sorts = dict.fromkeys(View, "rate")
        if sort in COLUMNS[view]:
            self._sorts[view] = sort
        self._upward: set[View] = set()
        if self.sort == "name":
            self._upward.add(view)

    @property
    def mode(self) -> Mode:
        """The mode of the keyboard."""
        return self._mode.current

    @property
    def sort(self) -> str:
        """The column by which the rows are sorted."""
        return self._sorts[self.view]

    @property
    def upward(self) -> bool:
        """True if the smallest value is at the top."""
        return self.view in self._upward

    def rows(
        self, rates: RateTracker, height: int
    ) -> tuple[list[StreamRow | ConsumerRow], int]:
        """Return the rows that fit into `room` lines, and the number of matches."""
        every: Iterable[StreamRow | ConsumerRow]
        every = rates.streams if self.view is View.STREAMS else rates.consumers
        found = [consumer for consumer in every if self._matches(consumer.name)]
        found.sort(key=attrgetter("name"))
        if self.sort == "name":
            found.sort(key=attrgetter("name"), reverse=not self.upward)
        else:
            value = attrgetter(self.sort)
            found.sort(
                key=lambda row: -1.0 if value(row) is None else value(row),
                reverse=not self.upward,
            )
        self._page, self._count = max(height, 1), len(found)
        self._scroll(0)
        return list(islice(found, self.first, self.first + height)), len(found)

    def press(self, key: str) -> None:
        """Handle a key: a character, or the name of another key."""
        if self.mode is Mode.FILTERING:
            self._edit(key)
        elif self.mode is Mode.BROWSING:
            self._browse(key)

    def _browse(self, key: str) -> None:
        match key:
            case "q" | "Q":
                self._mode.to(Mode.LEAVING)
            case "tab" | "backtab":
                streams = self.view is View.CONSUMERS
                self.view = View.STREAMS if streams else View.CONSUMERS
                self.first = 0
            case "s" | "right" | ">":
                self._sort_by(1)
            case "S" | "left" | "<":
                self._sort_by(-1)
            case "r":
                self._upward ^= {self.view}
            case "p" | " ":
                self.paused = not self.paused
            case "/":
                self._filter_before = self.filter
                self._mode.to(Mode.FILTERING)
            case "escape":
                self.filter = ""
            case "up" | "k":
                self._scroll(-1)
            case "down" | "j":
                self._scroll(1)
            case "page_up":
                self._scroll(-self._page)
            case "page_down":
                self._scroll(self._page)
            case "home":
                self.first = 0
            case "end":
                self._scroll(self._count)

    def _edit(self, key: str) -> None:
        match key:
            case "enter":
                self._mode.to(Mode.BROWSING)
            case "escape":
                self.filter = self._filter_before
                self._mode.to(Mode.BROWSING)
            case "backspace":
                self.filter = self.filter[:-1]
            case _ if len(key) == 1 and key.isprintable():
                self.filter += key
        self.first = 0

    def _sort_by(self, step: int) -> None:
        columns = COLUMNS[self.view]
        at = (columns.index(self.sort) + step) % len(columns)
        self._sorts[self.view] = columns[at]
        self._upward.discard(self.view)
        if columns[at] == "name":
            self._upward.add(self.view)

    def _scroll(self, step: int) -> None:
        last = max(0, self._count - self._page)
        self.first = min(max(0, self.first + step), last)

    def _matches(self, name: str) -> bool:
        return self.filter.casefold() in name.casefold()


# Numbers in little room ----------------------------------------------------------------

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_ASCII: Final = "_.:-=+*#"


def sparkline(rates: Sequence[float], width: int, *, ascii_only: bool = False) -> str:
    """Return a chart of the last rates, `width` characters wide, the newest last."""
    levels = _ASCII if ascii_only else _BLOCKS
    shown = rates[max(0, len(rates) - width) :]
    peak = max(shown, default=0.0)
    if peak <= 0:
        return (levels[0] * len(shown)).rjust(width)
    top = len(levels) - 1
    # Draw at least the lowest bar for any rate above 0.
    drawn = (levels[min(top, ceil(rate / peak * top))] for rate in shown)
    return "".join(drawn).rjust(width)


def short(number: float | None) -> str:
    """Return a number in at most six characters: `999`, `12.3k`, `-` for None."""
    if number is None:
        return "-"
    if 0 < number < 9.95:
        return f"{number:.1f}".removesuffix(".0")
    for unit in ("", "k", "M", "G", "T"):
        if number < 999.5:
            return f"{number:.0f}" if not unit else f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}P"
