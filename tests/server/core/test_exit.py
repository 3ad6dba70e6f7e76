"""Tests of the end of the interpreter, of a connection, and of the cost of the import."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.processes import Child, run_child
from ...support.servers import wait_for
from ...support.threads import LONG, Recorder, Thread

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ...conftest import StartServer

pytestmark = pytest.mark.server

# The end of the interpreter -----------------------------------------------------------


def test_a_forgotten_close_ends_cleanly_with_messages_delivered(
    server: LocalServer, unique: str
) -> None:
    script = """
        import sys
        import jsync
        nc = jsync.connect(sys.argv[1])
        for i in range(20_000):
            nc.publish(sys.argv[2], b"%d" % i)
    """
    with jsync.connect(server.url) as reader:
        sub = reader.subscribe(unique)
        reader.flush()
        assert run_child(script, server.url, unique) == ""
        assert [int(sub.next().data) for _ in range(20_000)] == list(range(20_000))


def test_many_forgotten_connections_in_use_end_cleanly(
    server: LocalServer, unique: str
) -> None:
    script = """
        import sys, threading, time
        import jsync
        url, subject = sys.argv[1:]
        connections = [jsync.connect(url, on_closed=print) for _ in range(3)]
        nc = connections[0]
        nc.subscribe(subject, callback=lambda msg: None)
        busy = []

        def forever(call):
            def run():
                while True:
                    busy.append(1)
                    call()
            threading.Thread(target=run, daemon=True).start()

        other = nc.subscribe(subject)
        forever(lambda: nc.publish(subject, b"x" * 1000))
        forever(lambda: nc.request("nobody.there", timeout=0.01))
        forever(lambda: nc.flush())
        forever(lambda: other.next())
        forever(lambda: connections[1].subscribe(subject).next(timeout=None))
        forever(lambda: list(connections[2].subscribe(subject)))
        while len(busy) < 200:
            time.sleep(0.001)
    """
    # Errors in the daemon threads are not tested here. They would print tracebacks.
    script = script.replace(
        "call()\n",
        "\n                    try: call()\n                    except Exception: pass\n",
    )
    for _ in range(3):
        with Child(script, server.url, unique) as child:
            code, _, complaints = child.finish()
        assert code == 0
        # It may complain that it had more bytes than it could send in a second, or than the
        # server confirmed in that time, and that a thread did not keep up with its messages.
        usual = ("bytes unsent", "has not confirmed", "SlowConsumerError")
        for line in complaints.splitlines():
            assert any(words in line for words in usual), line


@pytest.mark.parametrize(
    ("last_line", "expected"), [("sys.exit(3)", 3), ("raise LookupError", 1)]
)
def test_the_exit_code_is_the_scripts_own(
    server: LocalServer, last_line: str, expected: int
) -> None:
    script = f"""
        import sys
        import jsync
        nc = jsync.connect(sys.argv[1])
        nc.subscribe("a", callback=print)
        {last_line}
    """
    with Child(script, server.url) as child:
        code, _, complaints = child.finish()
    assert code == expected
    assert ("LookupError" in complaints) == (expected == 1)
    assert complaints.count("Traceback") <= 1


def test_a_stuck_server_does_not_delay_the_exit(
    own_server: StartServer,
) -> None:
    server = own_server()
    script = """
        import os, signal, sys
        import jsync
        nc = jsync.connect(sys.argv[1])
        os.kill(int(sys.argv[2]), signal.SIGSTOP)
        for i in range(100):
            nc.publish("a", b"x" * 10_000)
    """
    with Child(script, server.url, server.pid) as child:
        assert child.finish()[0] == 0


def test_a_forgotten_connection_that_still_reconnects_ends_cleanly(
    own_server: StartServer,
) -> None:
    server = own_server()
    script = """
        import os, signal, sys, time
        import jsync
        nc = jsync.connect(sys.argv[1])
        os.kill(int(sys.argv[2]), signal.SIGKILL)
        while nc.is_connected:
            time.sleep(0.001)
    """
    assert run_child(script, server.url, server.pid) == ""


# The end of a connection --------------------------------------------------------------


def test_a_collected_connection_warns_and_is_closed(
    server: LocalServer, unique: str
) -> None:
    closed = Recorder()

    def forget() -> None:
        nc = jsync.connect(server.url, on_closed=closed)
        sub = nc.subscribe(unique)
        nc.publish(unique)
        sub.next()

    def collect() -> None:
        forget()
        gc.collect()

    with pytest.warns(ResourceWarning, match="never closed"):
        collect()
    assert closed.get() is None


@pytest.mark.parametrize("what", ["fetch", "messages", "ordered"])
def test_pulls_do_not_keep_a_forgotten_connection_alive(
    server: LocalServer, unique: str, what: str
) -> None:
    closed = Recorder()

    def forget() -> None:
        js = jsync.connect(server.url, on_closed=closed).jetstream()
        stream = js.create_stream(name=unique, subjects=[unique], storage="memory")
        match what:
            case "fetch":
                iter(stream.create_consumer().fetch(10))
            case "messages":
                iter(stream.create_consumer().messages())
            case _:
                iter(stream.ordered_consumer().messages())

    def is_closed() -> bool:
        gc.collect()
        return closed.waiting > 0

    forget()
    with pytest.warns(ResourceWarning, match="never closed"):
        wait_for(is_closed)
    assert closed.get() is None
    with jsync.connect(server.url) as nc:
        nc.jetstream().delete_stream(unique)


def test_a_subscription_keeps_its_connection(server: LocalServer, unique: str) -> None:
    closed = Recorder()

    def subscribe() -> jsync.Subscription:
        return jsync.connect(server.url, on_closed=closed).subscribe(unique)

    sub = subscribe()
    gc.collect()
    with jsync.connect(server.url) as nc:
        sub_ready = Thread(sub.next)
        sub_ready.wait_until_blocked()
        nc.publish(unique, b"still connected")
        assert sub_ready.result().data == b"still connected"
    del sub_ready
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del sub
        gc.collect()
    assert closed.get() is None


def test_a_closed_connection_is_collected_without_a_warning(
    server: LocalServer,
) -> None:
    jsync.connect(server.url).close()
    with jsync.connect(server.url):
        pass
    gc.collect()


def test_descriptors_and_threads_do_not_grow_with_connections(
    server: LocalServer, unique: str
) -> None:
    def use() -> None:
        with jsync.connect(server.url, on_connect=lambda: None) as nc:
            nc.subscribe(unique, callback=lambda msg: msg.respond(b""))
            nc.request(unique)

    use()
    wait_for(
        lambda: not [t for t in threading.enumerate() if t.name.startswith("jsync-")]
    )
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        use()
        with pytest.raises(errors.ConnectionError):
            jsync.connect("nats://127.0.0.1:1", connect_timeout=LONG)
    wait_for(lambda: len(os.listdir("/dev/fd")) <= before)
    wait_for(
        lambda: not [t for t in threading.enumerate() if t.name.startswith("jsync-")]
    )


# The import ---------------------------------------------------------------------------


def test_the_import_starts_nothing_and_loads_nothing_large() -> None:
    script = """
        import os, sys, threading
        before = set(os.listdir("/dev/fd"))
        import jsync
        import jsync.errors
        assert set(os.listdir("/dev/fd")) == before
        assert threading.active_count() == 1
        unwanted = {"asyncio", "pyspark", "pyarrow", "nats", "nkeys", "typer", "rich",
                    "cryptography", "multiprocessing", "concurrent.futures", "urllib.request"}
        print(sorted(unwanted & set(sys.modules)))
    """
    assert run_child(script).strip() == "[]"
