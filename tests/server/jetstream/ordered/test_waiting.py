"""Tests of waiting for a message in order when there is none or no server."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ....support.processes import Child, run_child
from .support import fill

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


def test_next_times_out_while_the_server_is_away(
    stream: jsync.Stream, far_stream: jsync.Stream, proxy: FaultProxy
) -> None:
    consumer = far_stream.ordered_consumer()
    proxy.refuse()
    proxy.cut()
    for _ in range(3):
        with pytest.raises(errors.TimeoutError):
            consumer.next(0.2)
    proxy.accept()


WAITS = {
    "iterating": "for msg in messages: pass",
    "messages": "messages.next(60)",
    "consume": "consumer.consume(print).wait(60)",
    "fetch": "list(consumer.fetch(5, timeout=60))",
    "next": "consumer.next(60)",
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("away", [False, True], ids=["idle", "away"])
def test_ctrl_c_ends_the_wait_and_nothing_else(
    own_server: StartServer, wait: str, away: bool
) -> None:
    server = own_server()
    script = f"""
        import logging, sys, jsync
        logging.disable()
        nc = jsync.connect(sys.argv[1], reconnect_wait=0.05)
        js = nc.jetstream()
        consumer = js.create_stream(name="S", subjects=["S"]).ordered_consumer()
        if {wait in ("iterating", "messages")}:
            messages = consumer.messages()
        js.publish("S", b"0")
        if {wait in ("iterating", "messages")}:
            print(messages.next().data.decode(), flush=True)
        else:
            print(consumer.next().data.decode(), flush=True)
        sys.stdin.readline()
        for _ in range({1 if wait == "consume" else 2}):
            try:
                print("waiting", flush=True)
                {WAITS[wait]}
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        sys.stdin.readline()
        if {wait in ("iterating", "messages")}:
            messages.stop()
        js.publish("S", b"1", timeout=20)
        if {wait != "consume"}:
            print(consumer.next(20).data.decode(), flush=True)
        nc.close()
    """
    with Child(script, server.url) as child:
        assert child.line() == "0"
        if away:
            server.kill()
        child.send_line()
        for _ in range(1 if wait == "consume" else 2):
            assert child.line() == "waiting"
            child.process.send_signal(signal.SIGINT)
            assert child.line() == "interrupted"
        if away:
            server.start()
        child.send_line()
        if wait != "consume":
            assert child.line() == "1"
        code, _, errors_ = child.finish()
        assert (code, errors_) == (0, "")


@pytest.mark.parametrize("read", ["next", "fetch"])
def test_ctrl_c_neither_loses_nor_repeats_a_message(
    nc: jsync.Connection, server: LocalServer, stream: jsync.Stream, read: str
) -> None:
    fill(nc, stream, 20_000)
    script = """
        import gc, logging, os, random, signal, sys, threading, time
        import jsync
        logging.disable()
        # Ctrl-C may meet a finaliser of garbage first, and Python prints that.
        gc.disable()
        got = []
        with jsync.connect(sys.argv[1]) as nc:
            consumer = nc.jetstream().ordered_consumer(sys.argv[2])

            def interrupt():
                for _ in range(100):
                    time.sleep(random.uniform(0.001, 0.02))
                    os.kill(os.getpid(), signal.SIGINT)

            def read():
                # Ctrl-C cannot come between the return of a message and these appends.
                if sys.argv[3] == "next":
                    got.append(consumer.next(10))
                else:
                    got.extend(consumer.fetch(20, timeout=10))

            def raise_while_reading(*_):
                if reading:
                    raise KeyboardInterrupt

            reading = False
            signal.signal(signal.SIGINT, raise_while_reading)
            thread = threading.Thread(target=interrupt)
            thread.start()
            # Two signals may become one, so their number tells nothing.
            while thread.is_alive() and len(got) < 19_000:
                try:
                    reading = True
                    read()
                    reading = False
                except KeyboardInterrupt:
                    reading = False
            thread.join()
        numbers = [int(msg.data) for msg in got]
        print(numbers == list(range(len(got))), len(got) > 0)
    """
    assert run_child(script, server.url, stream.name, read) == "True True\n"
