"""Greenlets of gevent that share connections, in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ...support.optional_libraries import needs_gevent
from ...support.processes import Child, run_child
from ...support.threads import LONG, SOON

if TYPE_CHECKING:
    from jsync.server import LocalServer

pytestmark = [pytest.mark.quick, needs_gevent]

ROOT = Path(__file__).parents[3]
PATCHED = """
    from gevent import monkey
    monkey.patch_all()
"""
PROGRAM = """
    import gc, os, sys, threading, time
    import gevent
    import jsync
    from jsync import errors
    from gevent.pool import Group

    url, name = sys.argv[1:3]
    nc = jsync.connect(url)
    js = nc.jetstream()

    class Ticks:
        # A greenlet that counts how often it ran.
        def __init__(self):
            self.count = 0
            self.greenlet = gevent.spawn(self.run)

        def run(self):
            while True:
                self.count += 1
                gevent.sleep(0.001)

    def until(condition):
        with gevent.Timeout(20):
            while not condition():
                gevent.sleep(0.001)
"""


ANSWER = """
    nc.subscribe(name + ".echo", callback=lambda msg: msg.respond(msg.data))
"""


def joined(*parts: str) -> str:
    return "".join([textwrap.dedent(part) for part in parts])


def run_patched(script: str, server: LocalServer, name: str) -> str:
    return run_child(joined(PATCHED, PROGRAM, script), server.url, name)


def run_signalled(script: str, number: int, server: LocalServer, name: str) -> str:
    """Send the signal `number` to the script when it prints that it is waiting."""
    with Child(joined(PATCHED, PROGRAM, script), server.url, name) as child:
        assert child.line() == "waiting"
        child.process.send_signal(number)
        code, output, errors = child.finish()
    assert code == 0, errors
    return output


def test_a_thousand_greenlets_publish_on_one_connection(
    server: LocalServer, unique: str
) -> None:
    script = """
        js.create_stream(name=name, subjects=[name + ".>"], storage="memory")
        acks = []
        def publish(i):
            for _ in range(3):
                acks.append(js.publish(f"{name}.{i}", b"x").seq)
        gevent.joinall([gevent.spawn(publish, i) for i in range(1000)], raise_error=True)
        assert sorted(acks) == list(range(1, 3001)), len(acks)
        if os.path.isdir("/proc/self/task"):  # on Linux
            # One thread beside the main one: no greenlet has a thread.
            assert len(os.listdir("/proc/self/task")) <= 3
        js.delete_stream(name)
        nc.close()
    """
    run_patched(script, server, unique)


@pytest.mark.parametrize("patched", [PATCHED, ""], ids=["patched", "unpatched"])
def test_a_waiting_greenlet_lets_the_others_run(
    server: LocalServer, unique: str, patched: str
) -> None:
    script = """
        sub = nc.subscribe(name)
        ticks = Ticks()
        reader = gevent.spawn(sub.next, 20)
        until(lambda: ticks.count > 20)
        assert not reader.dead
        before = ticks.count
        nc.publish(name, b"hello")
        assert reader.get(timeout=20).data == b"hello"
        try:
            sub.next(timeout=0.1)
        except errors.TimeoutError:
            print("late")
        assert ticks.count > before
        nc.close()
    """
    assert run_child(joined(patched, PROGRAM, script), server.url, unique) == "late\n"


def test_a_program_without_gevent_does_not_need_it(server: LocalServer) -> None:
    script = """
        import sys
        sys.modules["gevent"] = None  # as where it is not installed
        import jsync
        for _ in range(3):
            with jsync.connect(sys.argv[1]) as nc:
                nc.flush()
        print([name for name in sys.modules if name.startswith("gevent.")])
    """
    assert run_child(script, server.url) == "[]\n"


def test_a_half_imported_gevent_hinders_no_connection(server: LocalServer) -> None:
    script = """
        import sys, types
        import jsync
        for name in ("gevent", "gevent.hub", "gevent._hub_local", "gevent.monkey"):
            sys.modules[name] = types.ModuleType(name)  # as while another thread imports it
        with jsync.connect(sys.argv[1]) as nc:
            nc.flush()
    """
    run_child(script, server.url)


def test_an_import_of_gevent_loses_no_wake_up() -> None:
    races = ROOT / "tests/unit/fast/test_thread_races.py"
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "gevent.hub"),
            *("-p", "no:cacheprovider", "--timeout", str(SOON), str(races)),
        ],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert ended.returncode == 0, ended.stdout[-1000:]


def test_jsync_may_be_imported_before_the_patching(
    server: LocalServer, unique: str
) -> None:
    script = """
        replies = Group().map(lambda i: nc.request(name + ".echo", b"%d" % i, timeout=20).data, range(50))
        assert replies == [b"%d" % i for i in range(50)]
        ticks = Ticks()
        reader = gevent.spawn(nc.subscribe(name).next, 20)
        until(lambda: ticks.count > 20)
        nc.publish(name, b"hello")
        assert reader.get(timeout=20).data == b"hello"
        nc.close()
    """
    program = joined("import jsync.server", PATCHED, PROGRAM, ANSWER, script)
    run_child(program, server.url, unique)


def test_a_hubs_first_wait_loses_no_wakeup(server: LocalServer, unique: str) -> None:
    script = """
        from jsync._fast import HandoffQueue

        class Loop(gevent.config.loop):
            # Has an item come while the first wait makes its watcher.
            def io(self, *args):
                items.put("item")
                return super().io(*args)

        items = HandoffQueue()
        gevent.config.loop = Loop
        def get():
            gevent.get_hub()
            with gevent.Timeout(20):
                print(items.get())
        thread = threading.Thread(target=get)
        thread.start()
        thread.join()
        nc.close()
    """
    assert run_child(joined(PROGRAM, script), server.url, unique) == "item\n"


def test_timeouts_and_kills_end_waits_cleanly(server: LocalServer, unique: str) -> None:
    script = """
        sub = nc.subscribe(name)
        for _ in range(20):
            try:
                with gevent.Timeout(0.005):
                    sub.next(timeout=20)
            except gevent.Timeout:
                pass
        readers = [gevent.spawn(sub.next, 20) for _ in range(1)]
        gevent.sleep(0.01)
        readers[0].kill()
        assert isinstance(readers[0].value, gevent.GreenletExit)
        # No message went to those that have left.
        for i in range(10):
            nc.publish(name, b"%d" % i)
        assert [sub.next(timeout=20).data for _ in range(10)] == [b"%d" % i for i in range(10)]

        # Of many requests some are killed while their answers come. The others get theirs.
        nc.subscribe(name + ".echo", callback=lambda msg: msg.respond(msg.data))
        def request(i):
            return nc.request(name + ".echo", b"%d" % i, timeout=20).data
        for _ in range(10):
            asking = [gevent.spawn(request, i) for i in range(100)]
            gevent.sleep(0)
            for greenlet in asking[::3]:
                greenlet.kill(block=False)
            gevent.joinall(asking, timeout=20)
            for i, greenlet in enumerate(asking):
                assert greenlet.value == b"%d" % i or i % 3 == 0, (i, greenlet.value)
        nc.close()
    """
    run_patched(script, server, unique)


def test_timeouts_in_jetstream_calls_leave_them_usable(
    server: LocalServer, unique: str
) -> None:
    script = """
        from gevent.event import Event

        def cut(call):
            try:
                with gevent.Timeout(0.05):
                    call()
            except gevent.Timeout:
                return True

        stream = js.create_stream(name=name, subjects=[name + ".>"], storage="memory")
        bucket = js.create_key_value(bucket=name, storage="memory", limit_marker_ttl=60)
        consumer = stream.create_consumer(durable_name="d")
        assert cut(lambda: list(consumer.fetch(2, timeout=20)))
        js.publish(name + ".a", b"1")
        (msg,) = consumer.fetch(1, timeout=20)
        msg.ack_sync()

        held, other = bucket.lock("l"), bucket.lock("l")
        assert held.acquire(20)
        assert cut(other.acquire)
        held.release()
        assert other.acquire(20)
        other.release()

        gate, begun = Event(), Event()
        def wait(item):
            begun.set()
            gate.wait(20)
        consuming = consumer.consume(wait)
        js.publish(name + ".a", b"2")
        assert begun.wait(20)
        assert cut(consuming.stop)
        gate.set()
        consuming.stop()
        assert consuming.wait(20)

        gate, begun = Event(), Event()
        with bucket.watch("x") as quiet, bucket.watch("x", callback=wait) as loud:
            assert cut(lambda: quiet.next(20))
            revision = bucket.put("x", b"1")
            assert quiet.next(20).revision == revision
            assert begun.wait(20)
            assert cut(loud.stop)
            gate.set()
            loud.stop()
            assert loud.wait(20)

        gate, begun = Event(), Event()
        sub = nc.subscribe(name, callback=wait)
        nc.publish(name)
        assert begun.wait(20)
        assert cut(nc.drain)
        gate.set()
        nc.close()
        assert nc.is_closed
    """
    run_patched(script, server, unique)


def test_a_close_wakes_all_waiting_greenlets(server: LocalServer, unique: str) -> None:
    script = """
        def wait(i):
            try:
                nc.subscribe(f"{name}.{i}").next(timeout=20)
            except errors.ConnectionClosedError:
                return "closed"
        waiting = [gevent.spawn(wait, i) for i in range(100)]
        gevent.sleep(0.05)
        gevent.spawn(nc.close)
        gevent.joinall(waiting, timeout=20)
        assert [one.value for one in waiting] == ["closed"] * 100
    """
    run_patched(script, server, unique)


def test_a_busy_hub_gets_one_greenlet_per_message(
    server: LocalServer, unique: str
) -> None:
    script = """
        from gevent import monkey
        native_sleep = monkey.get_original("time", "sleep")
        got = []
        nc.subscribe(name, callback=lambda msg: got.append(msg.data))
        nc.flush()
        nc.publish(name, b"a")
        native_sleep(0.3)  # no greenlet runs meanwhile
        assert nc._session.callback_pool.threads <= 1, nc._session.callback_pool
        until(lambda: got)
        nc.close()
    """
    run_patched(script, server, unique)


def test_callbacks_run_in_greenlets_of_the_main_thread(
    server: LocalServer, unique: str
) -> None:
    script = """
        import _thread
        native = monkey.get_original("_thread", "get_ident")
        lock = threading.Lock()  # of gevent, which greenlets of one thread share
        seen = []
        def note(what):
            with lock:
                time.sleep(0.001)  # of gevent
                seen.append((what, native() == main))
        main = native()
        nc.subscribe(name + ".c", callback=lambda msg: note("subscription"))
        events = jsync.connect(url, on_closed=lambda error: note("event"))
        js.create_stream(name=name, subjects=[name + ".s"], storage="memory")
        with js.publisher() as publisher:
            future = publisher.publish(name + ".s", b"x")
            future.add_done_callback(lambda future: note("future"))
        with nc.service(name, "1.0.0") as service:
            service.endpoint(name)(lambda request: note("service") or b"done")
            assert nc.request(name, b"", timeout=20).data == b"done"
            nc.publish(name + ".c", b"")
            events.close()
            until(lambda: len(seen) == 4)
        assert sorted(seen) == [
            ("event", True), ("future", True), ("service", True), ("subscription", True)
        ], seen
        js.delete_stream(name)
        nc.close()
    """
    run_patched(script, server, unique)


def test_greenlets_share_key_values_and_publishers(
    server: LocalServer, unique: str
) -> None:
    script = """
        kv = js.create_key_value(bucket=name)
        watched = []
        def watch():
            with kv.watch() as updates:
                for entry in updates:
                    watched.append(entry.key)
                    if len(watched) == 200:
                        return
        watching = gevent.spawn(watch)
        def put(i):
            kv.put(f"k{i}", b"%d" % i)
            return kv.get(f"k{i}").value
        assert Group().map(put, range(200)) == [b"%d" % i for i in range(200)]
        watching.get(timeout=20)
        assert sorted(watched) == sorted(f"k{i}" for i in range(200))
        js.delete_key_value(name)

        js.create_stream(name=name, subjects=[name], storage="memory")
        with js.publisher(window=50) as publisher:
            def publish(i):
                for _ in range(20):
                    publisher.publish(name, b"x" * 100)
            gevent.joinall([gevent.spawn(publish, i) for i in range(100)], raise_error=True)
        assert js.stream(name).info().state.messages == 2000
        js.delete_stream(name)
        nc.close()
    """
    run_patched(script, server, unique)


def test_a_forked_child_leaves_the_parents_greenlets_alone(
    server: LocalServer, unique: str
) -> None:
    script = """
        sub = nc.subscribe(name)
        nc.subscribe(name + ".echo", callback=lambda msg: msg.respond(msg.data))
        nc.flush()
        reader = gevent.spawn(sub.next, 20)
        gevent.sleep(0.01)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            try:
                nc.publish(name, b"")
            except errors.ForkedProcessError:
                with jsync.connect(url) as other:
                    # Both processes watch the descriptor that wakes greenlets of the parent.
                    for i in range(200):
                        other.request(name + ".echo", b"x", timeout=20)
                os.write(write, b"connected")
            os._exit(0)
        os.close(write)
        for i in range(200):
            assert nc.request(name + ".echo", b"%d" % i, timeout=20).data == b"%d" % i
        nc.publish(name, b"parent")
        assert reader.get(timeout=20).data == b"parent"
        assert os.waitpid(child, 0)[1] == 0
        print(os.read(read, 100).decode())
        nc.close()
    """
    assert run_patched(script, server, unique) == "connected\n"


def test_ctrl_c_ends_a_waiting_main_greenlet(server: LocalServer, unique: str) -> None:
    script = """
        sub = nc.subscribe(name)
        other = gevent.spawn(nc.subscribe(name + ".other").next, 20)
        gevent.sleep(0.01)
        try:
            print("waiting", flush=True)
            sub.next(timeout=60)
        except KeyboardInterrupt:
            print("interrupted")
        nc.publish(name, b"1")
        nc.publish(name + ".other", b"2")
        print(sub.next(timeout=20).data, other.get(timeout=20).data)
        nc.close()
    """
    output = run_signalled(script, signal.SIGINT, server, unique)
    assert output == "interrupted\nb'1' b'2'\n"


def test_a_signal_handler_may_close_while_greenlets_wait(
    server: LocalServer, unique: str
) -> None:
    script = """
        import signal
        signal.signal(signal.SIGTERM, lambda *_: nc.close())
        waiting = [gevent.spawn(nc.subscribe(f"{name}.{i}").next, 60) for i in range(10)]
        gevent.sleep(0.01)
        print("waiting", flush=True)
        gevent.joinall(waiting, timeout=60)
        print({type(one.exception).__name__ for one in waiting})
    """
    output = run_signalled(script, signal.SIGTERM, server, unique)
    assert output == "{'ConnectionClosedError'}\n"


def test_a_forgotten_close_of_greenlets_loses_nothing(
    server: LocalServer, unique: str
) -> None:
    script = """
        js.create_stream(name=name, subjects=[name], storage="memory")
        for i in range(1000):
            nc.publish(name, b"x" * 1000)
    """
    run_patched(script, server, unique)
    script = """
        print(js.stream(name).info().state.messages)
        js.delete_stream(name)
        nc.close()
    """
    assert run_patched(script, server, unique) == "1000\n"


def test_greenlets_share_one_connection_of_the_process(
    server: LocalServer, unique: str
) -> None:
    script = """
        get = lambda i: jsync.shared_connection(url, name=name)
        assert len({id(connection) for connection in Group().map(get, range(50))}) == 1
        from jsync.core.session import _open_sessions
        assert len(_open_sessions) == 2, _open_sessions
        get(0).close()
        nc.close()
    """
    run_patched(script, server, unique)


def test_a_hub_that_ends_leaves_no_descriptors(
    server: LocalServer, unique: str
) -> None:
    script = """
        from gevent.hub import get_hub

        nc.subscribe(name + ".echo", callback=lambda msg: msg.respond(msg.data))
        ended = []
        def run():
            try:
                gevent.spawn(nc.request, name + ".echo", b"x", timeout=20).get()
            finally:
                get_hub().destroy(True)
                ended.append(1)
        def run_threads(count):
            before = len(ended)
            for i in range(count):
                monkey.get_original("_thread", "start_new_thread")(run, ())
                until(lambda: len(ended) == before + i + 1)
            gc.collect()
            return len(os.listdir("/dev/fd"))
        before = run_threads(2)
        assert run_threads(20) <= before + 2, os.listdir("/dev/fd")
        nc.close()
    """
    run_patched(script, server, unique)


def test_log_handlers_of_threads_leave_no_descriptors(
    server: LocalServer, unique: str
) -> None:
    script = """
        import logging

        native = monkey.get_original("_thread", "get_ident")
        threads = set()
        class Handler(logging.Handler):
            def emit(self, record):
                threads.add(native())
                gevent.sleep(0.001)  # makes a hub for the thread
        logger = logging.getLogger("jsync.connection")
        logger.addHandler(Handler())
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        def lose_connections(count):
            for _ in range(count):
                other = jsync.connect(url)
                other.force_reconnect()
                until(lambda: other.stats().reconnects == 1)
                other.close()
            gc.collect()
            return len(os.listdir("/dev/fd"))
        before = lose_connections(2)
        assert lose_connections(10) <= before + 2, os.listdir("/dev/fd")
        assert threads - {native()}
        nc.close()
    """
    run_patched(script, server, unique)
