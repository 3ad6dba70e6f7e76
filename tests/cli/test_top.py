"""Tests of `jsync top`: rates, keys, the screen, and the state of the terminal afterwards."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import ConsoleDimensions

from jsync import connect
from jsync.cli.top.engine import (
    ConsumerCount,
    Measurement,
    Mode,
    RateTracker,
    ScreenState,
    StreamCount,
    View,
    short,
    sparkline,
)
from jsync.cli.top.screen import ConnectionStatus, draw
from jsync.cli.ui.console import console
from jsync.cli.ui.keyboard import Keyboard, keys_of

from ..support.servers import wait_for
from .support import Jsync
from .terminal import LONG, Terminal
from .test_untrusted_text import EVIL, harmless

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync import JetStream
    from jsync.server import LocalServer

    from ..conftest import StartServer

BORN = datetime(2026, 11, 23, tzinfo=UTC)


def stream_count(name: str, last: int, messages: int = 5) -> StreamCount:
    return StreamCount(name, BORN, last, messages, 100 * messages, 1)


def consumer_count(stream: str, name: str, delivered: int, lag: int) -> ConsumerCount:
    return ConsumerCount(stream, name, BORN, delivered, lag, 2, 3, 4)


def measured(*measurements: Measurement) -> RateTracker:
    figures = RateTracker()
    for each in measurements:
        figures.add(each)
    return figures


# Rates --------------------------------------------------------------------------------


def test_a_rate_is_count_growth_over_elapsed_time() -> None:
    figures = measured(
        Measurement(10.0, [stream_count("A", 100)], [consumer_count("A", "c", 50, 9)]),
        Measurement(12.0, [stream_count("A", 140)], [consumer_count("A", "c", 51, 7)]),
    )
    (stream,), (consumer,) = figures.streams, figures.consumers
    assert (stream.rate, list(stream.history)) == (20.0, [20.0])
    assert (stream.lag, stream.redelivered) == (7, 3)
    assert (consumer.name, consumer.rate, consumer.lag) == ("A > c", 0.5, 7)
    first = measured(Measurement(1.0, [stream_count("A", 9)], []))
    assert first.streams[0].rate is None


def test_a_recreated_stream_begins_without_a_rate() -> None:
    again = StreamCount("A", datetime.now(UTC), 200, 1, 1, 0)
    for second in (again, stream_count("A", 50)):
        figures = measured(
            Measurement(1.0, [stream_count("A", 100)], []),
            Measurement(2.0, [second], []),
        )
        assert figures.streams[0].rate is None


def test_a_stream_that_is_gone_is_forgotten() -> None:
    figures = measured(
        Measurement(1.0, [stream_count("A", 1)], []),
        Measurement(2.0, [], []),
        Measurement(3.0, [stream_count("A", 9)], []),
    )
    assert figures.streams[0].rate is None


def test_a_sparkline_shows_any_nonzero_rate_newest_last() -> None:
    assert sparkline([0, 1, 1000], 5) == "  ▁▂█"
    assert sparkline([1, 2, 3, 4], 2) == "▇█"
    assert sparkline([0.0, 0.0], 3) == " ▁▁"
    assert sparkline([], 3) == "   "
    assert sparkline([0, 5], 2, ascii_only=True) == "_#"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.25, "0.2"),
        (7.0, "7"),
        (999, "999"),
        (1000, "1k"),
        (12_345, "12.3k"),
        (999_600, "1M"),
        (4_560_000, "4.56M"),
        (7e18, "7e+03P"),
    ],
)
def test_a_number_fits_into_its_column(number: float | None, text: str) -> None:
    assert short(number) == text
    assert len(text) <= 6


# Keys ---------------------------------------------------------------------------------


def test_bytes_of_a_terminal_are_read_as_keys() -> None:
    assert list(keys_of(b"q\t\x1b[A\x1bOB\x1b[5~\x7f/\xc3\xbc\x1b")) == [
        *("q", "tab", "up", "down", "page_up", "backspace", "/", "ü", "escape"),
    ]
    assert list(keys_of(b"\x1b[200~x\x01")) == ["x"], "others are left out"


def many() -> RateTracker:
    streams = [stream_count(f"S{number:03}", number, number) for number in range(50)]
    after = [stream_count(f"S{number:03}", 3 * number, number) for number in range(50)]
    return measured(Measurement(1.0, streams, []), Measurement(2.0, after, []))


def names(state: ScreenState, figures: RateTracker, room: int = 3) -> list[str]:
    return [row.name for row in state.rows(figures, room)[0]]


def test_rows_are_sorted_by_any_column_either_way() -> None:
    state, figures = ScreenState(View.STREAMS), many()
    assert names(state, figures) == ["S049", "S048", "S047"]
    state.press("r")
    assert names(state, figures) == ["S000", "S001", "S002"]
    state.press("s")
    assert state.sort == "messages"
    assert names(state, figures) == ["S049", "S048", "S047"]
    state.press("S")
    state.press("S")
    assert state.sort == "name"
    assert names(state, figures) == ["S000", "S001", "S002"]
    assert ScreenState(View.CONSUMERS, "lag").sort == "lag"


def test_rows_scroll_within_their_bounds() -> None:
    state, figures = ScreenState(View.STREAMS, "name"), many()
    names(state, figures)
    for key, first in (
        ("up", "S000"),
        ("down", "S001"),
        ("page_down", "S004"),
        ("end", "S047"),
        ("down", "S047"),
        ("page_up", "S044"),
        ("home", "S000"),
    ):
        state.press(key)
        assert names(state, figures)[0] == first, key


def test_a_filter_is_typed_and_taken_back() -> None:
    state, figures = ScreenState(View.STREAMS), many()
    for key in ("/", "s", "0", "4", "q", "backspace", "enter"):
        state.press(key)
    assert (state.filter, state.mode) == ("s04", Mode.BROWSING)
    assert state.rows(figures, 30)[1] == 10
    for key in ("/", "x", "escape"):
        state.press(key)
    assert state.filter == "s04"
    state.press("escape")
    assert (state.filter, state.rows(figures, 30)[1]) == ("", 50)
    state.press("q")
    assert state.mode is Mode.LEAVING


def test_tab_changes_the_view_and_pause_stops_it() -> None:
    state = ScreenState(View.STREAMS)
    state.press("tab")
    assert state.view is View.CONSUMERS
    state.press(" ")
    assert state.paused
    state.press("p")
    assert not state.paused


# The screen ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [20, 60, 80, 200])
@pytest.mark.parametrize("view", View)
def test_the_screen_has_its_size_whatever_the_names(view: View, width: int) -> None:
    long = "N" * 300
    figures = measured(
        Measurement(
            1.0,
            [stream_count(f"{long}{EVIL}{number}", 1) for number in range(99)],
            [consumer_count(long, EVIL, 7, 8) for _ in range(99)],
        )
    )
    screen = console()
    size = ConsoleDimensions(width, 24)
    for away in (None, f"away: {EVIL}"):
        facts = ConnectionStatus(f"nats://{EVIL}", 1.0, away)
        drawn = draw(ScreenState(view), figures, facts, size)
        options = screen.options.update(width=width, height=24)
        lines = screen.render_lines(drawn, options, pad=False)
        assert len(lines) == 24
        text = "\n".join("".join(part.text for part in line) for line in lines)
        assert all(len(line) <= width for line in text.splitlines())
        harmless(text.encode())


@pytest.mark.parametrize("view", View)
def test_a_narrow_screen_shows_names_and_lag(view: View) -> None:
    figures = measured(
        Measurement(
            1.0, [stream_count("ORDERS", 1)], [consumer_count("ORDERS", "slow", 7, 8)]
        )
    )
    screen = console()
    size = ConsoleDimensions(40, 8)
    drawn = draw(
        ScreenState(view), figures, ConnectionStatus("nats://a", 1.0, None), size
    )
    lines = screen.render_lines(drawn, screen.options.update(width=40, height=8))
    row = "".join(part.text for part in lines[3]).split()
    assert row[0] == "ORDERS"
    assert row[-1] == "8"


@pytest.fixture
def own(own_server: StartServer) -> LocalServer:
    return own_server()


@pytest.fixture
def filled(own: LocalServer) -> Iterator[JetStream]:
    """A server with two streams, and a consumer that lags."""
    with connect(own.url) as nc:
        js = nc.jetstream()
        for name in ("ORDERS", "PAYMENTS"):
            js.create_stream(name=name, subjects=[f"{name}.>"])
            js.create_consumer(name, durable_name="billing")
        for number in range(1234):
            nc.publish("ORDERS.new", str(number).encode())
        nc.flush()
        yield js


@pytest.mark.server
def test_streams_and_consumers_are_shown_as_they_change(
    own: LocalServer, filled: JetStream
) -> None:
    # A shell that gets COLUMNS and LINES exports them, and they do not change with a resize.
    given = {"COLUMNS": "80", "LINES": "24"}
    with Terminal(80, 24, NATS_URL=own.url, **given) as terminal:
        terminal.run("jsync", "top", "--interval", "200ms")
        shown = terminal.await_match(r"^ORDERS .* 1\.23k .* 1 +1\.23k ")
        assert "2 streams, 2 consumers" in shown
        assert "q quit" in shown.splitlines()[-1], "it fills the 24 lines"
        assert len(shown.splitlines()) == 24
        filled.publish("PAYMENTS.new", b"x")
        terminal.await_match(r"^PAYMENTS .* 1 ")
        terminal.press("Tab")
        terminal.await_match(r"^ORDERS > billing .* 1\.23k ")
        (msg,) = filled.consumer("ORDERS", "billing").fetch(1)
        terminal.await_match(r"^ORDERS > billing .* 1\.23k +1 +0")
        msg.ack()
        terminal.type("/")
        terminal.type("pay")
        terminal.await_screen("filter: pay")
        terminal.press("Enter")
        shown = terminal.await_screen("/pay: 1")
        assert "ORDERS" not in shown
        terminal.press("Escape")
        terminal.await_screen("ORDERS > billing")
        terminal.resize(132, 40)
        wide = terminal.await_match(r"\A(.*\n){39}q quit")
        assert "ORDERS > billing".ljust(40) in wide
        terminal.type("p")
        terminal.await_screen("PAUSED")
        terminal.type("q")
        terminal.await_screen("exit 0")
        assert "ORDERS > billing" not in terminal.screen, "the screen is given back"


@pytest.mark.server
def test_the_screen_reports_and_outlives_a_lost_server(
    own: LocalServer, filled: JetStream
) -> None:
    with Terminal(80, 24, NATS_URL=own.url) as terminal:
        terminal.run("jsync", "top", "--interval", "200ms")
        terminal.await_match(r"^ORDERS .* 1\.23k ")
        own.kill()
        shown = terminal.await_screen("the server is away for")
        assert "ORDERS" in shown, "the last figures stay"
        own.start()
        terminal.await_screen("2 streams, 2 consumers")
        own.kill()
        terminal.await_screen("the server is away for")
        terminal.type("q")
        assert "Traceback" not in terminal.await_screen("exit 0")
    own.start()


@pytest.mark.server
def test_two_hundred_streams_scroll(own: LocalServer, filled: JetStream) -> None:
    for number in range(198):
        filled.create_stream(
            name=f"T{number:03}", storage="memory", subjects=[f"t.{number}"]
        )
    with Terminal(80, 24, NATS_URL=own.url) as terminal:
        terminal.run("jsync", "top", "--sort", "name")
        terminal.await_screen("1-20 of 200")
        terminal.press("PageDown")
        terminal.await_screen("21-40 of 200")
        terminal.press("End")
        assert "T197" in terminal.await_screen("181-200 of 200")
        terminal.press("C-z")
        terminal.await_screen("Stopped")
        terminal.type("fg")
        terminal.press("Enter")
        terminal.await_screen("181-200 of 200")
        terminal.press("C-c")
        terminal.await_screen("Stopped")


class Watched:
    """`jsync top` on a terminal of 80 columns. The test keeps every byte of the output."""

    def __init__(self, url: str, *arguments: str) -> None:
        ours, theirs = pty.openpty()
        self.ours, self._theirs = ours, theirs
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self._parts: list[bytes] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jsync", "--server", url, "top", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self.ours, 65536)
            except OSError:
                return
            self._parts.append(part)

    @property
    def written(self) -> bytes:
        return b"".join(self._parts.copy())

    @property
    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._theirs)

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait for its end, and return the exit code."""
        try:
            return self._process.wait(LONG)
        finally:
            self._process.kill()
            os.close(self._theirs)
            self._reader.join(LONG)
            os.close(self.ours)


@pytest.mark.server
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (0, 0)]
)
def test_the_terminal_is_restored_however_it_ends(
    own: LocalServer, filled: JetStream, number: int, code: int
) -> None:
    watched = Watched(own.url, "--interval", "100ms")
    wait_for(lambda: watched.written.count(b"ORDERS") > 3, LONG)
    assert watched.settings != watched.before, "no echo of keys"
    if number:
        watched.send(number)
    else:
        os.write(watched.ours, b"q")
    wait_for(lambda: watched.written.endswith(b"\x1b[?25h\x1b[?1049l"), LONG)
    wait_for(lambda: watched.settings == watched.before, LONG)
    assert watched.end() == code
    _, entered, drawn = watched.written.partition(b"\x1b[?1049h")
    assert entered
    assert b"\x1b[2J" not in drawn, "it draws over, since clearing flickers"
    assert b"Traceback" not in drawn


# Without a screen ---------------------------------------------------------------------


@pytest.mark.server
def test_pipes_get_a_table_and_json_a_document(
    own: LocalServer, filled: JetStream
) -> None:
    jsync = Jsync(own)
    ended = jsync("top", "--interval", "100ms", "--sort", "name")
    assert (ended.code, ended.errors) == (0, "")
    assert ended.lines[0] == "name\trate\tmessages\tbytes\tconsumers\tlag\tredelivered"
    orders, payments = ended.rows
    assert (orders[0], orders[2], orders[5]) == ("ORDERS", "1234", "1234")
    assert payments[:3] == ["PAYMENTS", "0.0", "0"]
    found = jsync("top", "-c", "--interval", "100ms", "--filter", "pay", "--json").json
    assert found == {
        "consumers": [
            {
                "stream": "PAYMENTS",
                "name": "billing",
                "rate": 0.0,
                "lag": 0,
                "ack_pending": 0,
                "redelivered": 0,
                "waiting": 0,
            }
        ]
    }
    two = jsync("top", "--interval", "100ms", "--count", "2", "--json")
    assert [len(each["streams"]) for each in two.documents] == [2, 2]


@pytest.mark.server
def test_invalid_options_are_rejected(jsync: Jsync) -> None:
    assert jsync("top", "--interval", "1ms").code == 2
    ended = jsync("top", "--sort", "ack_pending")
    assert ended.code == 2
    assert "streams have no ack_pending" in ended.errors


def test_a_keyboard_without_a_terminal_leaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[int] = []
    close = os.close

    def note(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        monkeypatch.setattr(os, "close", note)
        keyboard = Keyboard()
        with pytest.raises(termios.error), keyboard:
            pass
    assert closed == [keyboard._woken, keyboard._waker]
