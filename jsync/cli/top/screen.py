"""The drawing of `jsync top`: one screen of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from jsync.terminal import printable

from ..ui.formatting import format_duration, format_size
from .engine import Mode, StreamRow, View, short, sparkline

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions, RenderableType

    from .engine import ConsumerRow, RateTracker, ScreenState

_FIXED_LINES: Final = 4
"""The lines that are not rows: two of facts, the headings, and the keys."""
_NARROW: Final = 72
"""The width below which there is no room for the charts of the rates."""
_SMALL: Final = 8
"""The width of a number."""
_NAME: Final = 20
"""The minimum width of a name."""
_DISPENSABLE: Final = (
    "waiting",
    "consumers",
    "redelivered",
    "bytes",
    "messages",
    "ack_pending",
)
"""The columns that a narrow screen leaves out to fit the names, in this order."""


class _Column(NamedTuple):
    field: str
    title: str


_COLUMNS: Final = {
    View.STREAMS: (
        _Column("rate", "msg/s"),
        _Column("messages", "messages"),
        _Column("bytes", "bytes"),
        _Column("consumers", "cons"),
        _Column("lag", "lag"),
        _Column("redelivered", "redel"),
    ),
    View.CONSUMERS: (
        _Column("rate", "msg/s"),
        _Column("lag", "lag"),
        _Column("ack_pending", "unacked"),
        _Column("redelivered", "redel"),
        _Column("waiting", "pulls"),
    ),
}
_NAMES: Final = {View.STREAMS: "stream", View.CONSUMERS: "stream > consumer"}


class ConnectionStatus(NamedTuple):
    """The present state of the connection."""

    server: str
    interval: float
    away: str | None
    """The reason why there are no new figures, if any."""
    ascii_only: bool = False


def draw(
    state: ScreenState,
    rates: RateTracker | None,
    connection: ConnectionStatus,
    size: ConsoleDimensions,
) -> RenderableType:
    """Return the whole screen. `rates` is None before the first measurement."""
    height = max(size.height - _FIXED_LINES, 1)
    rows: list[StreamRow | ConsumerRow] = []
    count = 0
    if rates is not None:
        rows, count = state.rows(rates, height)
    table = _table(state, connection, rows, size.width)
    blank = [Text("")] * (height - len(rows))
    return Group(
        _head(state, connection, count),
        _summary(rates, connection),
        table,
        *blank,
        _keys(state, rows, count),
    )


def _line(*parts: str | tuple[str, str]) -> Text:
    spans = [(part, "") if isinstance(part, str) else part for part in parts]
    line = Text(no_wrap=True, overflow="ellipsis")
    for text, style in spans:
        line.append(printable(text), style)
    return line


def _head(state: ScreenState, connection: ConnectionStatus, count: int) -> Text:
    filter_text = ""
    if state.filter and state.mode is Mode.BROWSING:
        filter_text = f"  /{state.filter}: {count:,}"
    return _line(
        ("jsync top", "bold"),
        f"  {connection.server}  every {format_duration(connection.interval)}",
        (filter_text, "bold"),
        ("  PAUSED" if state.paused else "", "bold yellow"),
    )


def _summary(rates: RateTracker | None, connection: ConnectionStatus) -> Text:
    if connection.away is not None:
        return _line((connection.away, "bold red"))
    if rates is None:
        return _line("measuring")
    if rates.missing is not None:
        return _line((rates.missing, "yellow"))
    streams, consumers = rates.streams, rates.consumers
    rate = sum(row.rate or 0.0 for row in streams)
    size = sum(row.bytes for row in streams)
    lag = sum(row.lag for row in consumers)
    return _line(
        f"{len(streams):,} streams, {len(consumers):,} consumers, "
        f"{short(rate)} msg/s stored, {format_size(size)}, lag {short(lag)}"
    )


def _keys(state: ScreenState, rows: list[StreamRow | ConsumerRow], count: int) -> Text:
    if state.mode is Mode.FILTERING:
        return _line(
            ("filter: ", "bold"), state.filter, ("█", "blink"), "  Enter, Esc to leave"
        )
    other = View.CONSUMERS if state.view is View.STREAMS else View.STREAMS
    first = state.first + 1 if rows else 0
    place = f"{first}-{state.first + len(rows)} of {count:,}"
    parts: list[str | tuple[str, str]] = []
    for key, words in (
        ("q", "quit"),
        ("Tab", other.value),
        ("s", "sort"),
        ("r", "reverse"),
        ("/", "filter"),
        ("p", "resume" if state.paused else "pause"),
    ):
        parts += [(key, "bold reverse"), f" {words} "]
    return _line(*parts, f" {place}")


def _fitting_columns(state: ScreenState, width: int) -> list[_Column]:
    """Return the columns of numbers that leave room for the names."""
    columns = list(_COLUMNS[state.view])
    for field in _DISPENSABLE:
        if width - len(columns) * (_SMALL + 1) >= _NAME:
            break
        if field != state.sort:
            columns = [column for column in columns if column.field != field]
    return columns


def _table(
    state: ScreenState,
    connection: ConnectionStatus,
    rows: list[StreamRow | ConsumerRow],
    width: int,
) -> Table:
    columns = _fitting_columns(state, width)
    numbers = len(columns) * (_SMALL + 1)
    spark = 0 if width < _NARROW else max(8, (width - numbers) // 3)
    table = Table(
        box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )

    def title(field: str, words: str) -> Text:
        if state.sort != field:
            return Text(words)
        marks = "^v" if connection.ascii_only else "▲▼"
        return Text(f"{words} {marks[0 if state.upward else 1]}", "reverse")

    table.add_column(
        title("name", _NAMES[state.view]), ratio=1, no_wrap=True, overflow="ellipsis"
    )
    for field, words in columns:
        table.add_column(
            title(field, words),
            justify="right",
            width=_SMALL,
            no_wrap=True,
            overflow="ellipsis",
        )
        if field == "rate" and spark:
            table.add_column("", width=spark, no_wrap=True)
    for row in rows:
        cells = [Text(printable(row.name))]
        for field, _ in columns:
            cells.append(_cell(field, getattr(row, field)))
            if field == "rate" and spark:
                picture = sparkline(
                    row.history, spark, ascii_only=connection.ascii_only
                )
                cells.append(Text(picture, "green"))
        table.add_row(*cells)
    return table


def _cell(field: str, value: float | None) -> Text:
    match field:
        case "bytes":
            return Text(format_size(int(value or 0)))
        case "lag" if value:
            return Text(short(value), "yellow")
        case "redelivered" if value:
            return Text(short(value), "red")
        case "rate" if value:
            return Text(short(value), "green")
    return Text(short(value))
