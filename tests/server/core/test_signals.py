"""Tests of Ctrl-C, signal handlers and finalisers during blocking calls."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.connections import black_hole
from ...support.processes import Child, run_child
from ...support.threads import SOON, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.proxy import FaultProxy

pytestmark = pytest.mark.server

# Ctrl-C -------------------------------------------------------------------------------


INTERRUPTED = """
    import os, signal, sys, threading, time
    import jsync
    from tests.support.threads import wait_until_blocked

    url, hole, how, *names = sys.argv[1:]

    def interrupt_when_blocked():
        wait_until_blocked(threading.main_thread(), progress=lambda: progress)
        sent.append(time.monotonic())
        if how != "other-thread":
            os.kill(os.getpid(), signal.SIGINT)
        else:  # Python's handler runs on the main thread, which the kernel does not wake
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    def pause():
        print("pause", flush=True)
        sys.stdin.readline()

    def resume():
        print("resume", flush=True)
        sys.stdin.readline()

    def consumer():
        js = nc.jetstream()
        stream = js.create_stream(name=name, subjects=[name], storage="memory")
        return stream.create_consumer(durable_name="c")

    def publish():
        global progress
        while True:
            nc.publish("full", b"x" * 50_000)
            progress += 1

    def drain_with_a_stuck_callback():
        nc.subscribe("stuck", callback=lambda msg: released.wait(60))
        nc.publish("stuck")
        nc.drain(timeout=30)

    def busy_worker():
        consumer()
        app = jsync.Worker(stream=name)
        handling = threading.Event()

        @app.handle(name, consumer="w")
        def handle(msg: jsync.JetStreamMsg):
            handling.set()
            released.wait(60)

        running = app.start(nc)
        nc.jetstream().publish(name, b"")
        handling.wait()
        return running

    def bucket():
        return nc.jetstream().create_key_value(bucket=name, limit_marker_ttl=60)

    def wait_for_a_lock():
        locks = bucket()
        with locks.lock("key"):
            locks.lock("key").acquire()

    calls = {
        "events": lambda: [nc.events().next() for _ in range(9)],
        "service-wait": lambda: nc.service("mine", "1.0.0").wait(),
        "next": lambda: nc.subscribe("silent").next(timeout=30),
        "next-for-ever": lambda: nc.subscribe("silent").next(timeout=None),
        "iteration": lambda: list(nc.subscribe("silent")),
        "request": lambda: nc.request("mute", timeout=30),
        "request_many": lambda: list(nc.request_many("mute", timeout=30)),
        "flush": lambda: nc.flush(timeout=30),
        "rtt": lambda: nc.rtt(timeout=30),
        "drain": lambda: nc.drain(timeout=30),
        "drain-callback": drain_with_a_stuck_callback,
        "subscription-drain": lambda: mute.drain(timeout=30),
        "close": lambda: nc.close(),
        "publish": publish,
        "connect": lambda: jsync.connect(hole, connect_timeout=30),
        "fetch": lambda: list(consumer().fetch(9, timeout=30)),
        "messages": lambda: list(consumer().messages()),
        "consume-wait": lambda: consumer().consume(print).wait(),
        "worker-wait": lambda: busy_worker().wait(),
        "worker-stop": lambda: busy_worker().stop(60),
        "watch": lambda: list(bucket().watch()),
        "lock": wait_for_a_lock,
    }
    # Libraries such as polars replace Python's handler by one of that kind.
    signal.siginterrupt(signal.SIGINT, how != "restarting-handler")
    for name in names:
        progress, sent, released = 0, [], threading.Event()
        nc = jsync.connect(url, write_buffer_size=1 << 18, write_timeout=30)
        mute = nc.subscribe("mute")
        nc.flush()
        if name in ("flush", "rtt", "drain", "subscription-drain", "close", "publish"):
            pause()
        threading.Thread(target=interrupt_when_blocked, daemon=True).start()
        print(name, end=" ", flush=True)
        try:
            calls[name]()
            print("returned", flush=True)
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - sent[0], flush=True)
        released.set()
        resume()
        if name.startswith("drain"):
            print("closed" if nc.is_closed else "left open")
            nc = jsync.connect(url)
        if name == "close":
            nc.close()
            print("closed" if nc.is_closed else "left open")
            nc = jsync.connect(url)
        nc.subscribe("echo", callback=lambda msg: msg.respond(msg.data))
        print(nc.request("echo", b"usable").data.decode(), flush=True)
        nc.close()
"""


BLOCKING_CALLS = [
    *("next", "next-for-ever", "iteration", "request", "request_many"),
    *("flush", "rtt", "drain", "drain-callback", "subscription-drain"),
    *("close", "publish", "connect", "events", "service-wait"),
    *("fetch", "messages", "consume-wait", "worker-wait", "worker-stop"),
    *("watch", "lock"),
]


@pytest.mark.parametrize("how", ["process", "other-thread", "restarting-handler"])
def test_ctrl_c_ends_calls_and_leaves_clients_usable(
    own_server: StartServer, how: str
) -> None:
    server = own_server()
    output = []
    with black_hole() as hole:
        with Child(INTERRUPTED, server.url, hole, how, *BLOCKING_CALLS) as child:
            while line := child.line():
                if line == "pause":
                    server.pause()
                    child.send_line()
                elif line == "resume":
                    server.resume()
                    child.send_line()
                else:
                    output.append(line)
            code, _, complaints = child.finish()
    assert (code, complaints) == (0, ""), output
    for name in BLOCKING_CALLS:
        called, word, seconds = output.pop(0).split()
        assert (called, word) == (name, "interrupted")
        # This takes 200 ms on a quiet machine. The call itself would take longer.
        assert float(seconds) < SOON
        if name in ("drain", "drain-callback", "close"):
            assert output.pop(0) == "closed", name
        assert output.pop(0) == "usable", name
    assert output == []


def test_ctrl_c_ends_a_with_block_without_draining(
    server: LocalServer, unique: str
) -> None:
    script = """
        import os, signal, sys, threading, time
        import jsync
        released = threading.Event()
        try:
            with jsync.connect(sys.argv[1], drain_timeout=30) as nc:
                nc.subscribe(sys.argv[2], callback=lambda msg: released.wait(60))
                nc.publish(sys.argv[2])
                nc.flush()
                begin = time.monotonic()
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(30)
        except KeyboardInterrupt:
            print("quick" if time.monotonic() - begin < 10 else "slow", nc.is_closed)
            released.set()
    """
    assert run_child(script, server.url, unique).strip() == "quick True"


# Signal handlers and finalisers -------------------------------------------------------


@pytest.mark.parametrize("call", ["publish", "flush", "request", "subscribe"])
def test_a_signal_handler_may_publish_inside_any_call(
    server: LocalServer, unique: str, call: str
) -> None:
    script = """
        import signal, sys, time
        import jsync
        url, subject, call = sys.argv[1:]
        handled = 0
        def handler(*args):
            global handled
            handled += 1
            nc.publish(subject, b"%d" % handled)
        with jsync.connect(url) as nc:
            nc.subscribe("echo." + subject, callback=lambda msg: msg.respond(b""))
            mine = nc.subscribe(subject)
            signal.signal(signal.SIGTERM, handler)
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            until = time.monotonic() + 0.6
            while time.monotonic() < until:
                if call == "publish":
                    nc.publish("other." + subject, b"x" * 100)
                elif call == "flush":
                    nc.flush()
                elif call == "request":
                    nc.request("echo." + subject)
                else:
                    nc.subscribe("other." + subject).unsubscribe()
            signal.raise_signal(signal.SIGTERM)
            signal.setitimer(signal.ITIMER_REAL, 0)
            nc.flush()
            numbers = {int(mine.next().data) for _ in range(handled)}
            assert numbers == set(range(1, handled + 1))
            print("handled" if handled > 10 else handled)
    """
    assert run_child(script, server.url, unique, call).strip() == "handled"


@pytest.mark.parametrize("ending", ["close", "drain"])
def test_signal_handlers_may_end_connections_inside_any_call(
    server: LocalServer, unique: str, ending: str
) -> None:
    script = """
        import signal, sys, time
        import jsync
        from jsync import errors
        url, subject, ending = sys.argv[1:]
        def handler(*args):
            getattr(nc, ending)()
        signal.signal(signal.SIGALRM, handler)
        for i in range(16):
            nc = jsync.connect(url)
            signal.setitimer(signal.ITIMER_REAL, 0.002 + i % 8 * 0.0003)
            try:
                while True:
                    nc.flush()
                    nc.subscribe(subject).unsubscribe()
                    nc.publish(subject)
            except errors.ConnectionClosedError:
                pass
            assert nc.is_closed
        print("ended")
    """
    assert run_child(script, server.url, unique, ending).strip() == "ended"


def test_a_finaliser_may_publish_inside_publish(
    server: LocalServer, unique: str
) -> None:
    script = """
        import gc, sys
        import jsync
        url, subject = sys.argv[1:]
        finalised = 0
        class Garbage:
            def __init__(self):
                self.me = self
            def __del__(self):
                global finalised
                finalised += 1
                nc.publish(subject, b"from a finaliser")
        gc.set_threshold(1, 1, 1)
        with jsync.connect(url) as nc:
            sub = nc.subscribe(subject)
            for i in range(3000):
                Garbage()
                nc.publish("other." + subject, b"x", headers={"A": ["b", "c"]})
            gc.collect()
            nc.flush()
            assert finalised > 100
            for _ in range(finalised):
                sub.next()
            print("published")
            gc.set_threshold(700, 10, 10)
    """
    assert run_child(script, server.url, unique).strip() == "published"


class OnIOThread(logging.Handler):
    """Calls a function on the I/O thread, which logs the loss of a connection."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__(logging.INFO)
        self.function = function
        self.result: Future[object] = Future()

    def emit(self, record: logging.LogRecord) -> None:
        if threading.current_thread().name.endswith("-io") and not self.result.done():
            try:
                self.result.set_result(self.function())
            except BaseException as error:  # noqa: BLE001 - the test wants to see it
                self.result.set_exception(error)

    def __enter__(self) -> Self:
        logger = logging.getLogger("jsync.connection")
        self._level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        return self

    def __exit__(self, *args: object) -> None:
        logger = logging.getLogger("jsync.connection")
        logger.removeHandler(self)
        logger.setLevel(self._level)


def test_user_code_cannot_block_the_io_thread(proxy: FaultProxy, unique: str) -> None:
    # Log handlers and finalisers can run user code on the I/O thread.
    def try_to_block() -> list[str]:
        nc.publish(unique, b"published there")
        refused = []
        for call in (nc.flush, nc.rtt, silent.next, lambda: nc.request(unique)):
            try:
                call()
            except errors.BlockingCallError as error:
                refused.append(type(error).__name__)
        return refused

    with (
        OnIOThread(try_to_block) as handler,
        jsync.connect(proxy.url, reconnect_wait=0.01) as nc,
    ):
        sub, silent = nc.subscribe(unique), nc.subscribe(f"{unique}.silent")
        proxy.cut()
        assert handler.result.result(SOON) == ["BlockingCallError"] * 4
        assert sub.next().data == b"published there"
        assert nc.is_connected


# Masks --------------------------------------------------------------------------------


def blocked_signals() -> set[signal.Signals | int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, []))


def test_signals_are_blocked_in_the_io_thread(proxy: FaultProxy) -> None:
    with (
        OnIOThread(blocked_signals) as handler,
        jsync.connect(proxy.url, reconnect_wait=0.01),
    ):
        proxy.cut()
        blocked = handler.result.result(SOON)
    assert isinstance(blocked, set)
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD} <= blocked


def test_signals_are_not_blocked_where_callbacks_run(
    own_server: StartServer, unique: str
) -> None:
    server = own_server()
    masks = Recorder()

    def report(*args: object) -> None:
        masks(blocked_signals())

    def delay(number: int) -> float:
        report()
        return 0.01

    def token() -> str:
        report()
        return "token"

    ours = blocked_signals()
    with jsync.connect(
        server.url, reconnect_delay=delay, on_reconnect=report, token=token
    ) as nc:
        assert masks.get() == ours
        nc.subscribe(unique, callback=report)
        nc.publish(unique)
        assert masks.get() == ours
        server.restart()
        for _ in range(3):  # delay, token and on_reconnect
            assert masks.get() == ours
        nc.subscribe(f"{unique}.later", callback=report)
        nc.publish(f"{unique}.later")
        assert masks.get() == ours


def test_processes_started_by_callbacks_have_no_blocked_signals(
    server: LocalServer, unique: str
) -> None:
    script = "import signal; print(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    output = Recorder()

    def handle(msg: jsync.Msg) -> None:
        command = [sys.executable, "-c", script]
        output(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )

    with jsync.connect(server.url) as nc:
        nc.subscribe(unique, callback=handle)
        nc.publish(unique)
        assert output.get().strip() == str(len(blocked_signals()))
