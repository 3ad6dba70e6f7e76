"""`jsync top`: streams and consumers by rate, lag and redeliveries, live."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from queue import Empty
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import click

from jsync import errors

from ..groups import ExampleCommand
from ..params.values import DURATION, Number
from ..ui.errors import ExitCode, format_error
from ..ui.formatting import format_duration
from ..ui.output import is_terminal, write_json, write_line, write_table
from .engine import COLUMNS, Mode, RateTracker, ScreenState, View

if TYPE_CHECKING:
    from types import FrameType

    import jsync

    from ..params.settings import Settings
    from .engine import ConsumerRow, Measurement, StreamRow
    from .screen import ConnectionStatus

_SORTS = list(dict.fromkeys(name for view in View for name in COLUMNS[view]))
_REFRESH_INTERVAL = 1.0
"""The seconds between two drawings without events: the age of an error grows."""


@click.command(cls=ExampleCommand, example="jsync top --consumers --sort lag")
@click.option(
    "--consumers", "-c", is_flag=True, help="Begin with consumers, not with streams."
)
@click.option(
    "--sort",
    type=click.Choice(_SORTS),
    default="rate",
    help="The column to sort by. Default: rate.",
)
@click.option(
    "--filter",
    "filter_text",
    metavar="TEXT",
    help="Only streams and consumers whose name contains this text.",
)
@click.option(
    "--interval",
    "-i",
    type=DURATION,
    default=1.0,
    help="The time between two measurements. Default: 1s.",
)
@click.option(
    "--count",
    type=Number(1),
    default=1,
    help="The number of tables in a pipe, or of documents with --json.",
)
@click.pass_obj
def top(
    settings: Settings,
    consumers: bool,
    sort: str,
    filter_text: str | None,
    interval: float,
    count: int,
) -> ExitCode | None:
    """Show the rate and lag of streams and consumers, live.

    Keys: q quits, Tab switches between streams and consumers, s sorts by the next column
    and S by the one before, r reverses, / filters, p pauses, and the arrows scroll. The
    lag of a stream is the largest of its consumers. In a pipe, and with --json, the
    command measures for one --interval and writes the figures.

    A measurement is one request for 256 streams, and one for each stream that has
    consumers.
    """
    if interval < 0.1:
        raise click.UsageError("--interval has to be 100ms or more")
    view = View.CONSUMERS if consumers else View.STREAMS
    if sort not in COLUMNS[view]:
        known = ", ".join(COLUMNS[view])
        raise click.UsageError(f"--sort: {view.value} have no {sort}, but {known}")
    state = ScreenState(view, sort, filter_text or "")
    if settings.json or not (is_terminal() and sys.stdin.isatty()):
        _write(settings, state, interval, count)
        return None
    if sys.platform == "win32":
        raise errors.UnsupportedPlatformError(
            "jsync top cannot draw its screen on Windows; use --json, or write to a pipe"
        )
    return _TopApp(settings, state, interval).run()


def _write(settings: Settings, state: ScreenState, interval: float, count: int) -> None:
    """Write the figures of `count` intervals, without a screen."""
    from .sampler import measure

    rates = RateTracker()
    with settings.connect() as nc, ThreadPoolExecutor(1) as helper:
        js = settings.jetstream(nc)
        for number in range(count + 1):
            started_at = monotonic()
            rates.add(measure(js, helper))
            if number:
                _write_rates(settings, state, rates, single=count == 1)
            if number < count:
                sleep(max(0.0, started_at + interval - monotonic()))
    if rates.missing is not None:
        raise errors.IncompleteListError(rates.missing)


def _write_rates(
    settings: Settings, state: ScreenState, rates: RateTracker, *, single: bool
) -> None:
    rows, _ = state.rows(rates, sys.maxsize)
    if not settings.json:
        columns = COLUMNS[state.view]
        cells = [[_plain(getattr(row, name)) for name in columns] for row in rows]
        write_table([name.replace("_", " ") for name in columns], cells)
        return
    document = {state.view.value: [_document(row) for row in rows]}
    if single:
        write_json(document)
    else:
        write_line(document)


def _plain(value: object) -> object:
    return round(value, 1) if isinstance(value, float) else value


def _document(row: StreamRow | ConsumerRow) -> dict[str, Any]:
    fields = row._asdict()
    del fields["history"]
    if "ack_pending" in fields:
        stream, _, name = fields.pop("name").partition(" > ")
        fields = {"stream": stream, "name": name, **fields}
    return fields


class _TopApp:
    """The screen, the keyboard, the signals and the sampling thread, put together."""

    def __init__(self, settings: Settings, state: ScreenState, interval: float) -> None:
        self._settings, self._state, self._interval = settings, state, interval
        self._rates: RateTracker | None = None
        self._failed: tuple[float, str] | None = None
        """The time since which measurements fail, and the reason."""
        self._signals: list[int] = []

    def run(self) -> ExitCode:
        """Run until a key or a signal ends it, and return the exit code.

        Blocks.
        """
        from rich.live import Live

        from ..ui.console import console
        from ..ui.keyboard import Keyboard
        from .sampler import Sampler

        screen = console()
        if screen.is_dumb_terminal:
            raise click.ClickException(
                "this terminal cannot show a screen (TERM is dumb): use `jsync top | cat`"
            )
        ascii_only = screen.options.ascii_only
        with (
            Keyboard() as keyboard,
            self._settings.connect(
                on_error=self._ignore_error,
                on_disconnect=lambda error: keyboard.wake(),
                on_reconnect=keyboard.wake,
            ) as nc,
        ):
            js = self._settings.jetstream(nc)
            # Raises for an account without JetStream, before the screen opens.
            js.account_info()
            live = Live(
                console=screen,
                screen=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            with _Signals(self._signals, keyboard.wake):
                sampler = Sampler(js, self._interval, keyboard.wake)
                try:
                    with live:
                        while True:
                            self._take(sampler, nc)
                            # COLUMNS and LINES do not change when the window does.
                            screen.size = os.get_terminal_size(sys.stdout.fileno())
                            live.update(self._draw(screen.size, nc, ascii_only))
                            live.refresh()
                            for key in keyboard.wait(_REFRESH_INTERVAL):
                                self._state.press(key)
                            sampler.pause(self._state.paused)
                            if self._state.mode is Mode.LEAVING:
                                return ExitCode.DONE
                            if signal.SIGTSTP in self._signals:
                                self._suspend(live, keyboard)
                            if self._signals:
                                return ExitCode.INTERRUPTED
                except EOFError:
                    return ExitCode.INTERRUPTED
                finally:
                    nc.close()  # requests in flight fail immediately
                    sampler.end()

    def _ignore_error(self, error: Exception) -> None:
        """Ignore connection errors, because the screen shows missing figures."""

    def _take(self, sampler: Any, nc: jsync.Connection) -> None:
        """Take all measurements that are ready.

        Raises the last error once the connection is closed.
        """
        while True:
            try:
                result: Measurement | Exception = sampler.results.get_nowait()
            except Empty:
                break
            if isinstance(result, Exception):
                since = self._failed[0] if self._failed else monotonic()
                self._failed = (since, format_error(result))
            else:
                self._failed = None
                if not self._state.paused:
                    self._rates = self._rates or RateTracker()
                    self._rates.add(result)
        if nc.is_closed:
            raise nc.last_error or errors.ConnectionClosedError("connection closed")
        if not nc.is_connected and self._failed is None:
            error = nc.last_error
            self._failed = (
                monotonic(),
                format_error(error) if error else "no connection",
            )

    def _draw(self, size: Any, nc: jsync.Connection, ascii_only: bool) -> Any:
        from .screen import draw

        return draw(
            self._state, self._rates, self._connection_status(nc, ascii_only), size
        )

    def _connection_status(
        self, nc: jsync.Connection, ascii_only: bool
    ) -> ConnectionStatus:
        from .screen import ConnectionStatus

        info = nc.server_info
        url = nc.connected_url or ",".join(nc.servers)
        away = None
        if self._failed is not None:
            since, why = self._failed
            age = format_duration(float(int(monotonic() - since)))
            what = "no figures" if nc.is_connected else "the server is away"
            away = f"{what} for {age}, trying again: {why}"
        # The name of a server defaults to its id, which tells the reader nothing.
        name = "" if info.server_name == info.server_id else f"{info.server_name} "
        server = f"{url}  {name}{info.version}"
        return ConnectionStatus(server, self._interval, away, ascii_only)

    def _suspend(self, live: Any, keyboard: Any) -> None:
        """Restore the terminal, and stop the process until the shell continues it."""
        self._signals.remove(signal.SIGTSTP)
        live.stop()
        keyboard.restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        keyboard.enter_cbreak_mode()
        live.start()


class _Signals:
    """Signal handlers for the time of a `with` statement.

    SIGINT, SIGTERM and SIGTSTP are appended to a list, and SIGWINCH causes a redraw. A
    SIGINT or SIGTERM that arrives again raises `KeyboardInterrupt`, wherever the
    process is.
    """

    def __init__(self, come: list[int], wake: Any) -> None:
        self._come, self._wake = come, wake
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP):
            self._before[number] = signal.signal(number, self._on_signal)
        self._before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, self._resized)

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number in self._come and number != signal.SIGTSTP:
            raise KeyboardInterrupt
        self._come.append(number)
        self._wake()

    def _resized(self, number: int, frame: FrameType | None) -> None:
        self._wake()
