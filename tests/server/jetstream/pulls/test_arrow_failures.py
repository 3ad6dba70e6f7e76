"""Tests of pyarrow, polars and DuckDB when reading a stream fails or is interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import polars
import pyarrow as pa
import pytest

import jsync
from jsync import errors

from ....support.connection_faults import Events, connect
from ....support.processes import Child, run_child
from ....support.proxy import Frames
from ....support.threads import Thread
from .support import fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy

    Read = Callable[[jsync.ArrowRange], list[int]]

pytestmark = pytest.mark.server


def by_pyarrow(orders: jsync.ArrowRange) -> list[int]:
    column: list[int] = pa.table(orders)["sequence"].to_pylist()
    return column


def by_polars(orders: jsync.ArrowRange) -> list[int]:
    return polars.DataFrame(orders)["sequence"].to_list()


def by_duckdb(orders: jsync.ArrowRange) -> list[int]:
    found = duckdb.sql("SELECT sequence FROM orders")
    assert found is not None
    return [sequence for (sequence,) in found.fetchall()]


every_library = pytest.mark.parametrize(
    ("read", "kind"),
    [(by_pyarrow, OSError), (by_polars, Exception), (by_duckdb, duckdb.Error)],
    ids=["pyarrow", "polars", "duckdb"],
)


@every_library
def test_reads_on_a_closed_connection_raise_its_error(
    nc: jsync.Connection,
    stream: jsync.Stream,
    proxy: FaultProxy,
    read: Read,
    kind: type[Exception],
) -> None:
    fill(nc, stream, 5000)
    with jsync.connect(proxy.url, allow_reconnect=False) as far:
        orders = far.jetstream().stream(stream.name).read_arrow(columns=["sequence"])
        proxy.cut_after(100_000, "client")
        with pytest.raises(kind, match="ConnectionClosedError"):
            read(orders)


def test_pyarrows_error_has_the_reading_error_as_cause(
    nc: jsync.Connection, stream: jsync.Stream, proxy: FaultProxy
) -> None:
    fill(nc, stream, 5000)
    with jsync.connect(proxy.url, allow_reconnect=False) as far:
        orders = far.jetstream().stream(stream.name).read_arrow()
        proxy.cut_after(100_000, "client")
        with pytest.raises(OSError, match="the connection is closed") as caught:
            pa.table(orders)
    assert isinstance(caught.value.__cause__, errors.ConnectionClosedError)


def test_an_unrelated_error_gets_no_cause_from_reading(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 1)
    orders = stream.read_arrow()
    stream.delete()

    def work() -> None:
        reader = pa.RecordBatchReader.from_stream(orders)
        with pytest.raises(OSError, match="StreamNotFoundError"):
            reader.read_all()
        raise ValueError("of the user's own")

    with pytest.raises(ValueError, match="own") as caught:
        work()
    assert caught.value.__cause__ is None


@every_library
def test_rows_come_once_and_in_order_despite_cuts(
    nc: jsync.Connection,
    stream: jsync.Stream,
    proxy: FaultProxy,
    read: Read,
    kind: type[Exception],
) -> None:
    fill(nc, stream, 5000)
    with connect(proxy.url, Events()) as far:
        orders = far.jetstream().stream(stream.name).read_arrow(max_rows=500)
        proxy.cut_after(100_000, "client")
        assert read(orders) == list(range(1, 5001))
    assert proxy.connections > 1


@every_library
def test_rows_come_once_and_in_order_despite_kills(
    own_server: StartServer, read: Read, kind: type[Exception]
) -> None:
    server = own_server()
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="ROWS", subjects=["rows"])
        with js.publisher() as publisher:
            publisher.publish_many("rows", [b"x" * 200] * 100_000)
        orders = stream.read_arrow(max_rows=1000, max_bytes=1 << 20)
        reading = Thread(read, orders)
        for _ in range(3):
            server.kill()
            server.start()
        assert reading.result() == list(range(1, 100_001))


# Ctrl-C -------------------------------------------------------------------------------

INTERRUPTED = """
    import gc, os, random, signal, sys, threading, time
    import jsync, polars, pyarrow
    # Ctrl-C may meet a finaliser of garbage first, and Python prints that.
    gc.disable()
    library = {"pyarrow": pyarrow.table, "polars": polars.DataFrame}[sys.argv[3]]
    interrupted = 0
    with jsync.connect(sys.argv[1]) as nc:
        stream = nc.jetstream().stream(sys.argv[2])
        # The first read imports modules, and Python prints the Ctrl-C that meets an import.
        library(stream.read_arrow(max_rows=100))
        for _ in range(30):
            pause = random.uniform(0, 0.02)
            timer = threading.Timer(pause, os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                try:
                    library(stream.read_arrow(max_rows=100))
                except Exception as error:
                    print(type(error).__name__, flush=True)
                timer.join()
                time.sleep(1)
            except KeyboardInterrupt:
                interrupted += 1
                timer.join()
    print(interrupted)
"""

ASKED_TO_END = """
    import signal, sys
    # The first table imports pandas, and Python warns of the file of a module that the signal
    # leaves open.
    import jsync, pandas, pyarrow

    def end(*_):
        print("asked once", flush=True)
        sys.exit(7)

    nc = jsync.connect(sys.argv[1])
    signal.signal(signal.SIGINT, end)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        orders = nc.jetstream().stream(sys.argv[2]).read_arrow()
        print("reading", flush=True)
        pyarrow.table(orders)
    except Exception as error:
        print(repr(error))
"""


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_ctrl_c_during_a_read_raises_keyboard_interrupt(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream, library: str
) -> None:
    fill(nc, stream, 20_000)
    *raised, interrupted = run_child(
        INTERRUPTED, server.url, stream.name, library
    ).split()
    assert int(interrupted) == 30
    # Polars reports the error before it drops the stream.
    assert set(raised) <= ({"ComputeError"} if library == "polars" else set())


def test_a_signal_handler_is_called_once_and_exits(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream, proxy: FaultProxy
) -> None:
    fill(nc, stream, 10)
    proxy.rewrite(Frames(lambda frame: b"CONSUMER.MSG.NEXT" not in frame))
    with Child(ASKED_TO_END, proxy.url, stream.name) as child:
        assert child.line() == "ready"
        child.send_line()
        assert child.line() == "reading"
        child.process.send_signal(2)
        code, output, told = child.finish()
    assert (code, output, told) == (7, "asked once\n", "")


UNREAD = """
    import sys
    import jsync
    nc = jsync.connect(sys.argv[1])
    reading = iter(nc.jetstream().stream(sys.argv[2]).read_arrow(max_rows=10))
    next(reading)
    while not reading._pull.mailbox.closed:
        reading._pull.mailbox.await_rows(1 << 30, 1 << 30, 0.0)
    assert len(reading._pull.mailbox)
"""


def test_an_interpreter_ends_despite_unread_rows(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 2000)
    run_child(UNREAD, server.url, stream.name)
