"""Tests of the callback pool: order, blocked callbacks, its bound, and its end."""

from __future__ import annotations

import _thread
import collections
import threading
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.core import callback_pool

from ...support.processes import Child
from ...support.servers import wait_for
from ...support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ...support.connection_faults import Events

pytestmark = [pytest.mark.server, pytest.mark.quick]


def threads_of(nc: jsync.Connection) -> set[threading.Thread]:
    begin = f"{nc._session.name}-pool-"
    return {t for t in threading.enumerate() if t.name.startswith(begin)}


class Gate:
    """A callback that blocks until it is opened, and counts."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.inside = 0
        self.done = 0
        self._lock = threading.Lock()

    def __call__(self, msg: object) -> None:
        with self._lock:
            self.inside += 1
        assert self.opened.wait(LONG)
        with self._lock:
            self.inside -= 1
            self.done += 1


# Order --------------------------------------------------------------------------------


@pytest.mark.parametrize("callback_threads", [1, 3, 64])
def test_messages_of_500_subscriptions_stay_in_order(
    server: LocalServer, nc: jsync.Connection, unique: str, callback_threads: int
) -> None:
    got: dict[int, list[int]] = collections.defaultdict(list)
    busy = [threading.Lock() for _ in range(500)]
    left = threading.Semaphore(0)

    def reader(number: int) -> None:
        def handle(msg: jsync.Msg) -> None:
            assert busy[number].acquire(blocking=False)  # never two at a time
            got[number].append(int(msg.data))
            if len(got[number]) % 7 == 0:
                publisher.flush()  # another thread runs meanwhile
            busy[number].release()
            left.release()

        reading.subscribe(f"{unique}.{number}", callback=handle)

    with (
        jsync.connect(server.url, callback_threads=callback_threads) as reading,
        jsync.connect(server.url) as publisher,
    ):
        for number in range(500):
            reader(number)
        reading.flush()
        for value in range(20):
            for number in range(500):
                nc.publish(f"{unique}.{number}", b"%d" % value)
        for _ in range(20 * 500):
            assert left.acquire(timeout=LONG)
        assert len(threads_of(reading)) <= callback_threads
    assert all(got[number] == list(range(20)) for number in range(500))


def test_a_busy_subscription_lets_others_have_turns(
    server: LocalServer, unique: str
) -> None:
    order: list[str] = []
    begun, gate = threading.Event(), threading.Event()

    def busy(msg: jsync.Msg) -> None:
        begun.set()
        assert gate.wait(LONG)
        order.append("busy")

    done = Recorder()
    with jsync.connect(server.url, callback_threads=1) as nc:
        nc.subscribe(f"{unique}.busy", callback=busy)
        nc.subscribe(f"{unique}.other", callback=lambda msg: order.append("other"))
        nc.subscribe(f"{unique}.end", callback=done)
        for _ in range(1000):
            nc.publish(f"{unique}.busy")
        assert begun.wait(LONG)
        nc.publish(f"{unique}.other")
        nc.publish(f"{unique}.end")
        nc.flush()
        gate.set()
        done.get()
        wait_for(lambda: len(order) == 1001)
    assert order.index("other") < 500


# Blocked callbacks --------------------------------------------------------------------


def test_a_blocked_callback_delays_only_itself(
    nc: jsync.Connection, unique: str
) -> None:
    slow, got = Gate(), Recorder()
    blocked = nc.subscribe(f"{unique}.slow", callback=slow)
    nc.subscribe(f"{unique}.fast", callback=got)
    for _ in range(3):
        nc.publish(f"{unique}.slow")
    wait_for(lambda: slow.inside == 1)
    for number in range(100):
        nc.publish(f"{unique}.fast", b"%d" % number)
    assert [got.get().data for _ in range(100)] == [b"%d" % n for n in range(100)]
    assert (slow.inside, slow.done) == (1, 0)
    assert blocked.pending == 2
    slow.opened.set()
    wait_for(lambda: slow.done == 3)


def test_callbacks_wait_for_callbacks_below_the_bound(
    server: LocalServer, unique: str
) -> None:
    answers = Recorder()

    def relay(msg: jsync.Msg) -> None:
        answers(nc.request(f"{unique}.inner", msg.data, timeout=LONG).data)

    with jsync.connect(server.url, callback_threads=33) as nc:
        nc.subscribe(f"{unique}.inner", callback=lambda msg: msg.respond(msg.data))
        for number in range(32):
            nc.subscribe(f"{unique}.outer.{number}", callback=relay)
        for number in range(32):
            nc.publish(f"{unique}.outer.{number}", b"%d" % number)
        got = {answers.get() for _ in range(32)}
    assert got == {b"%d" % number for number in range(32)}


def test_a_chain_of_callbacks_uses_every_thread(
    server: LocalServer, unique: str
) -> None:
    with jsync.connect(server.url, callback_threads=20) as nc:

        def relay(msg: jsync.Msg) -> None:
            depth = int(msg.data)
            if depth:
                further = nc.request(
                    f"{unique}.{depth - 1}", b"%d" % (depth - 1), timeout=LONG
                )
                msg.respond(further.data)
            else:
                msg.respond(b"%d" % len(threads_of(nc)))

        for depth in range(20):
            nc.subscribe(f"{unique}.{depth}", callback=relay)
        assert nc.request(f"{unique}.19", b"19", timeout=LONG).data == b"20"


def test_an_exhausted_pool_is_reported_once(
    narrow: jsync.Connection, events: Events, unique: str
) -> None:
    slow, got = Gate(), Recorder()
    for number in range(2):
        narrow.subscribe(f"{unique}.slow.{number}", callback=slow)
        narrow.publish(f"{unique}.slow.{number}")
    wait_for(lambda: slow.inside == 2)
    narrow.subscribe(f"{unique}.waits", callback=got)
    narrow.publish(f"{unique}.waits")
    wait_for(lambda: len(events.of("error")) > 0)
    (error,) = events.of("error")
    assert isinstance(error, errors.CallbackPoolExhaustedError)
    assert (error.threads, error.waiting) == (2, 1)
    assert f"'{unique}.waits' has waited for" in str(error)
    assert "callback_threads" in str(error)
    assert "workers" in str(error)
    assert narrow.last_error is error
    assert got.waiting == 0
    slow.opened.set()
    got.get()
    assert len(events.of("error")) == 1
    assert len(threads_of(narrow)) <= 2


def test_callbacks_that_wait_above_the_bound_time_out(
    narrow: jsync.Connection, events: Events, unique: str
) -> None:
    """Two callbacks hold both threads, and wait for a third one."""
    outcomes = Recorder()

    def relay(msg: jsync.Msg) -> None:
        try:
            outcomes(narrow.request(f"{unique}.inner", timeout=3.0))
        except errors.TimeoutError as error:
            outcomes(error)

    narrow.subscribe(f"{unique}.inner", callback=lambda msg: msg.respond(b""))
    narrow.flush()
    for number in range(2):
        narrow.subscribe(f"{unique}.outer.{number}", callback=relay)
    both = threading.Barrier(2)
    for number in range(2):
        narrow.subscribe(
            f"{unique}.meet.{number}", callback=lambda msg: both.wait(LONG)
        )
        narrow.publish(f"{unique}.meet.{number}")  # both threads exist from here on
    for number in range(2):
        narrow.publish(f"{unique}.outer.{number}")
    first, second = outcomes.get(), outcomes.get()
    assert isinstance(first, errors.TimeoutError)
    assert isinstance(second, (errors.TimeoutError, jsync.Msg))
    assert [type(e) for e in events.of("error")] == [errors.CallbackPoolExhaustedError]


# Threads ------------------------------------------------------------------------------


def test_10_000_subscriptions_have_few_threads(
    nc: jsync.Connection, server: LocalServer, unique: str
) -> None:
    left = threading.Semaphore(0)
    with jsync.connect(server.url, callback_threads=8) as reading:
        for number in range(10_000):
            reading.subscribe(f"{unique}.{number}", callback=lambda _: left.release())
        reading.flush(LONG)
        most = 0
        for _ in range(2):
            for number in range(10_000):
                nc.publish(f"{unique}.{number}")
            for number in range(10_000):
                assert left.acquire(timeout=LONG)
                if number % 100 == 0:
                    most = max(most, len(threads_of(reading)))
        assert 1 <= most <= 8


def test_idle_threads_leave_and_return(
    nc: jsync.Connection, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback_pool, "IDLE_SECONDS", 0.05)
    got = Recorder()
    nc.subscribe(unique, callback=got)
    for number in range(3):
        nc.publish(unique, b"%d" % number)
        assert got.get().data == b"%d" % number
        wait_for(lambda: not threads_of(nc))
    assert nc._session.callback_pool.threads == 0


def test_workers_are_threads_of_one_subscription(
    narrow: jsync.Connection, unique: str
) -> None:
    slow, got = Gate(), Recorder()
    sub = narrow.subscribe(unique, callback=slow, workers=4)
    narrow.subscribe(f"{unique}.other", callback=got)
    for _ in range(6):
        narrow.publish(unique)
    narrow.publish(f"{unique}.other")
    got.get()
    wait_for(lambda: slow.inside == 4)
    assert len(threads_of(narrow)) <= 2
    names = {t.name for t in threading.enumerate()}
    own = f"{narrow._session.name}-sub-{sub._mailbox.sid}-"
    assert {f"{own}{number}" for number in range(1, 5)} <= names
    slow.opened.set()
    sub.drain(LONG)
    assert slow.done == 6


def test_one_worker_keeps_the_order_and_its_thread(
    nc: jsync.Connection, unique: str
) -> None:
    threads: set[threading.Thread] = set()
    seen: list[int] = []

    def handle(msg: jsync.Msg) -> None:
        threads.add(threading.current_thread())
        seen.append(int(msg.data))

    sub = nc.subscribe(unique, callback=handle, workers=1)
    for number in range(100):
        nc.publish(unique, b"%d" % number)
        if number % 10 == 0:
            nc.flush()
    sub.drain(LONG)
    assert seen == list(range(100))
    assert len(threads) == 1


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"])
def test_workers_must_be_a_number_of_threads(
    nc: jsync.Connection, unique: str, workers: object
) -> None:
    with pytest.raises(errors.ConfigError, match="workers"):
        nc.subscribe(unique, callback=print, workers=workers)  # type: ignore[arg-type]
    assert nc.stats().subscriptions == 0


def test_workers_need_a_callback(nc: jsync.Connection, unique: str) -> None:
    with pytest.raises(errors.ConfigError, match="pass callback as well"):
        nc.subscribe(unique, workers=2)
    assert nc.stats().subscriptions == 0


@pytest.mark.parametrize("bound", [0, -1, 2.5, None])
def test_the_bound_must_be_a_number(server: LocalServer, bound: object) -> None:
    with pytest.raises(errors.ConfigError, match="callback_threads"):
        jsync.connect(server.url, callback_threads=bound)  # type: ignore[arg-type]


# Ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["drain", "unsubscribe"])
def test_an_end_waits_for_its_own_callback_only(
    nc: jsync.Connection, unique: str, how: str
) -> None:
    slow, handled = Gate(), Recorder()
    nc.subscribe(f"{unique}.slow", callback=slow)
    sub = nc.subscribe(f"{unique}.sub", callback=handled)
    nc.publish(f"{unique}.slow")
    wait_for(lambda: slow.inside == 1)
    for _ in range(50):
        nc.publish(f"{unique}.sub")
    if how == "drain":
        sub.drain(LONG)
        assert handled.waiting == 50
    else:
        sub.unsubscribe()
        sub.drain(LONG)
    assert sub._mailbox.task is None
    slow.opened.set()


def test_a_drain_in_a_callback_awaits_other_callbacks(
    nc: jsync.Connection, unique: str
) -> None:
    """It runs on a thread that had the other subscription before."""
    done = Recorder()
    handled: list[int] = []

    def other(msg: jsync.Msg) -> None:
        handled.append(int(msg.data))

    sub = nc.subscribe(f"{unique}.other", callback=other)

    def drain(msg: jsync.Msg) -> None:
        for number in range(1, 100):
            nc.publish(f"{unique}.other", b"%d" % number)
        sub.drain(LONG)
        done(list(handled))

    nc.subscribe(f"{unique}.drain", callback=drain)
    nc.publish(f"{unique}.other", b"0")
    wait_for(lambda: handled == [0])
    nc.publish(f"{unique}.drain")
    assert done.get() == list(range(100))


@pytest.mark.parametrize("where", ["beside", "inside"])
@pytest.mark.parametrize(
    "how",
    [
        *("consumer.stop", "consumer.drain", "ordered.stop", "ordered.drain"),
        *("subscription.drain", "push.drain"),
    ],
)
def test_a_busy_pool_delays_no_end_without_messages(
    server: LocalServer,
    stream: jsync.Stream,
    js: jsync.JetStream,
    unique: str,
    how: str,
    where: str,
) -> None:
    """In a callback, or beside it: all threads of the pool are busy with other callbacks."""
    got, gate, ended = Recorder(), Gate(), Recorder()
    with jsync.connect(server.url, callback_threads=1) as nc:
        own = nc.jetstream()
        kind, _, end = how.partition(".")
        match kind:
            case "consumer":
                part: Any = own.create_consumer(stream.name).consume(got)
            case "ordered":
                part = own.ordered_consumer(stream.name).consume(got)
            case "push":
                part = own.subscribe(f"{stream.name}.>", callback=got)
            case _:
                part = nc.subscribe(f"{stream.name}.>", callback=got)
        nc.flush()
        js.publish(f"{stream.name}.a")
        got.get()

        def run(msg: object) -> None:
            if where == "beside":
                gate(msg)
            else:
                ended(getattr(part, end)(LONG))

        nc.subscribe(unique, callback=run)
        nc.publish(unique)
        if where == "beside":
            wait_for(lambda: gate.inside == 1)
            Thread(getattr(part, end), LONG).result()
            gate.opened.set()
        else:
            ended.get()
        js.publish(f"{stream.name}.a")
        assert got.waiting == 0


def test_closing_makes_the_calls_for_waiting_messages(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    """As many as the pool has not begun, beside a callback that stays blocked."""
    slow, handled = Gate(), Recorder()
    reading = jsync.connect(server.url, callback_threads=2)
    subs = [reading.subscribe(f"{unique}.slow", callback=slow)]
    nc.flush()
    for number in range(20):
        subject = f"{unique}.{number}"
        subs.append(reading.subscribe(subject, callback=handled))
    reading.flush()
    nc.publish(f"{unique}.slow")
    wait_for(lambda: slow.inside == 1)
    for number in range(20):
        nc.publish(f"{unique}.{number}", b"%d" % number)
    nc.flush()
    reading.flush()
    reading.close()
    got = {int(handled.get().data) for _ in range(20)}
    assert got == set(range(20))
    slow.opened.set()
    wait_for(lambda: not threads_of(reading))
    assert all(sub._mailbox.task is None for sub in subs)


def test_a_closed_connection_leaves_no_threads(
    server: LocalServer, unique: str
) -> None:
    with jsync.connect(server.url) as nc:
        got = Recorder()
        for number in range(50):
            nc.subscribe(f"{unique}.{number}", callback=got)
            nc.publish(f"{unique}.{number}")
        for _ in range(50):
            got.get()
        assert threads_of(nc)
    wait_for(lambda: not threads_of(nc))


def test_callbacks_of_a_child_have_a_new_pool(server: LocalServer, unique: str) -> None:
    script = """
        import os, signal, sys, threading
        import jsync

        url, subject = sys.argv[1:]
        nc = jsync.connect(url)
        begun, forked = threading.Event(), threading.Event()

        def handle(msg):
            begun.set()
            forked.wait()
            if msg.reply:
                msg.respond(b"parent")

        nc.subscribe(subject, callback=handle)
        nc.publish(subject)
        begun.wait()
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            with jsync.connect(url) as mine:
                mine.subscribe(subject + ".child", callback=lambda m: m.respond(b"child"))
                print(mine.request(subject + ".child").data, flush=True)
            os._exit(0)
        forked.set()
        assert os.waitpid(pid, 0)[1] == 0
        print(nc.request(subject).data)
        nc.close()
    """
    with Child(script, server.url, unique) as child:
        code, output, complaints = child.finish()
    assert (code, complaints) == (0, "")
    assert output.split() == ["b'child'", "b'parent'"]


def test_a_callback_that_forks_ends_in_the_child(
    server: LocalServer, unique: str
) -> None:
    script = """
        import os, sys
        import jsync

        url, subject = sys.argv[1:]
        nc = jsync.connect(url)

        def handle(msg):
            pid = os.fork()
            if pid == 0:
                return  # into the pool, which belongs to the parent
            msg.respond(b"%d" % os.waitpid(pid, 0)[1])

        nc.subscribe(subject, callback=handle)
        print(nc.request(subject, timeout=60).data)
        print(nc.request(subject, timeout=60).data)
        nc.close()
    """
    with Child(script, server.url, unique) as child:
        code, output, _ = child.finish()
    assert code == 0
    assert output.split() == ["b'0'", "b'0'"]


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_a_raising_callback_costs_the_pool_no_thread(
    server: LocalServer, unique: str, kind: type[BaseException]
) -> None:
    reported = Recorder()

    def handle(msg: jsync.Msg) -> None:
        raise kind("out of the callback")

    with jsync.connect(server.url, callback_threads=1, on_error=reported) as nc:
        for number in range(20):
            nc.subscribe(f"{unique}.{number}", callback=handle)
            nc.publish(f"{unique}.{number}")
        for _ in range(20):
            error = reported.get()
            assert isinstance(error, errors.CallbackError)
            assert isinstance(error.__cause__, kind)
        answered = Recorder()
        nc.subscribe(f"{unique}.last", callback=answered)
        nc.publish(f"{unique}.last")
        answered.get()
        assert len(threads_of(nc)) == 1


def test_the_exit_ends_a_pool_at_work(server: LocalServer, unique: str) -> None:
    script = """
        import sys, time
        import jsync

        url, subject = sys.argv[1:]
        nc = jsync.connect(url)
        for number in range(100):
            nc.subscribe(f"{subject}.{number}", callback=lambda msg: time.sleep(0.001))
        for _ in range(50):
            for number in range(100):
                nc.publish(f"{subject}.{number}")
        nc.flush()
        print("done")
    """
    with Child(script, server.url, unique) as child:
        code, output, complaints = child.finish()
    assert (code, output.strip(), complaints) == (0, "done", "")


# In a patched process the timer is a greenlet of the main thread, and gets the interrupt itself.
@pytest.mark.threads_only
def test_ctrl_c_leaves_the_pool_at_work(nc: jsync.Connection, unique: str) -> None:
    """Ctrl-C while the main thread waits for a callback."""
    slow = Gate()
    sub = nc.subscribe(unique, callback=slow)
    nc.publish(unique)
    wait_for(lambda: slow.inside == 1)
    interrupt = threading.Timer(0.2, _thread.interrupt_main)
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        sub.drain(LONG)
    interrupt.join(SOON)
    slow.opened.set()
    sub.drain(LONG)
    assert slow.done == 1
    again = Recorder()
    nc.subscribe(unique, callback=again)
    nc.publish(unique)
    again.get()


# JetStream ----------------------------------------------------------------------------


def test_consumers_and_pushes_share_the_pool(
    narrow: jsync.Connection, stream: jsync.Stream, js: jsync.JetStream
) -> None:
    own = narrow.jetstream()
    got = {number: Recorder() for number in range(4)}

    def keep(number: int):  # type: ignore[no-untyped-def]
        def handle(msg: jsync.JetStreamMsg) -> None:
            msg.ack()
            got[number](msg.data)

        return handle

    consumers = [own.stream(stream.name).create_consumer() for _ in range(2)]
    works = [c.consume(keep(n)) for n, c in enumerate(consumers)]
    ordered = own.ordered_consumer(stream.name).consume(keep(2))
    sub = own.subscribe(f"{stream.name}.>", callback=keep(3), manual_ack=True)
    for number in range(100):
        js.publish(f"{stream.name}.a", b"%d" % number)
    for recorder in got.values():
        assert [recorder.get() for _ in range(100)] == [b"%d" % n for n in range(100)]
    assert 1 <= len(threads_of(narrow)) <= 2
    begin = f"{narrow._session.name}-{consumers[0].name}"
    assert not [t for t in threading.enumerate() if t.name.startswith(begin)]
    sub.drain(LONG)
    ordered.stop(LONG)
    for work in works:
        work.stop(LONG)
        assert work.wait(LONG)


def test_a_handler_may_stop_its_own_consuming(
    nc: jsync.Connection, stream: jsync.Stream, js: jsync.JetStream
) -> None:
    for number in range(10):
        js.publish(f"{stream.name}.a", b"%d" % number)
    handled: list[bytes] = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        handled.append(msg.data)
        msg.ack()
        if len(handled) == 3:
            work.stop()
            with pytest.raises(errors.BlockingCallError):
                work.wait()

    work = stream.create_consumer().consume(handle)
    assert work.wait(LONG)
    assert handled == [b"0", b"1", b"2"]
    assert work.closed
    assert Thread(work.wait, 1.0).result()
