"""Tests of several threads that use one connection."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.proxy import FaultProxy
from ...support.servers import monitor, wait_for
from ...support.threads import LONG, SOON, Recorder, Thread
from ...support.windows import needs_timers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

pytestmark = pytest.mark.server

THREADS = 8


@pytest.fixture(autouse=True)
def _often_switched() -> Iterator[None]:
    """Let threads switch after every few instructions, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def all_at_once(*calls: Callable[[], object]) -> list[Thread[object]]:
    """Run each call on a thread. All start at the same time."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> object:
        barrier.wait(SOON)
        return call()

    return [Thread(run, call) for call in calls]


def test_threads_publishing_through_one_connection_keep_their_order(
    nc: jsync.Connection, unique: str
) -> None:
    each = 5000
    sub = nc.subscribe(f"{unique}.*")

    def publish(number: int) -> None:
        subject = f"{unique}.{number}"
        for i in range(each):
            # The calling thread sends some of these messages, and the I/O thread sends the others.
            nc.publish(subject, b"%d " % i + b"x" * random.choice((0, 10, 2000)))

    threads = all_at_once(*(lambda n=n: publish(n) for n in range(THREADS)))
    seen = Counter[str]()
    for _ in range(THREADS * each):
        msg = sub.next()
        assert int(msg.data.partition(b" ")[0]) == seen[msg.subject]
        seen[msg.subject] += 1
    for thread in threads:
        thread.result()
    nc.flush()
    assert nc.stats().out_messages == nc.stats().in_messages == THREADS * each


def test_threads_do_everything_at_once_on_one_connection(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    nc.subscribe(f"{unique}.echo", callback=lambda msg: msg.respond(msg.data))
    until = time.monotonic() + 1.5

    def publish_and_read(number: int) -> None:
        subject = f"{unique}.{number}"
        with nc.subscribe(subject) as sub:
            i = 0
            while time.monotonic() < until:
                i += 1
                nc.publish(subject, b"%d" % i, headers={"N": str(i)})
                assert sub.next(timeout=SOON).data == b"%d" % i

    def ask(number: int) -> None:
        i = 0
        while time.monotonic() < until:
            i += 1
            question = b"%d %d" % (number, i)
            assert nc.request(f"{unique}.echo", question, timeout=SOON).data == question

    def ask_many(number: int) -> None:
        while time.monotonic() < until:
            replies = nc.request_many(f"{unique}.echo", timeout=SOON, max_messages=1)
            assert len(list(replies)) == 1

    def come_and_go(number: int) -> None:
        while time.monotonic() < until:
            sub = nc.subscribe(f"{unique}.{number}", callback=lambda msg: None)
            nc.publish(f"{unique}.{number}")
            sub.drain(timeout=SOON) if random.random() < 0.5 else sub.unsubscribe()

    def ask_nobody(number: int) -> None:
        while time.monotonic() < until:
            with pytest.raises(errors.NoRespondersError):
                nc.request(f"{unique}.nobody", timeout=SOON)

    def look(number: int) -> None:
        while time.monotonic() < until:
            nc.flush(timeout=SOON)
            assert nc.rtt(timeout=SOON) > 0
            assert nc.is_connected
            assert nc.stats().reconnects == 0
            repr(nc)

    jobs = [
        publish_and_read,
        publish_and_read,
        ask,
        ask_many,
        come_and_go,
        ask_nobody,
        look,
    ]
    threads = all_at_once(*(lambda n=n, job=job: job(n) for n, job in enumerate(jobs)))
    for thread in threads:
        thread.result()
    nc.flush()
    page = monitor(server, f"connz?cid={nc.client_id}&subs=1")["connections"][0]
    # The service and the inbox for replies remain.
    assert page["subscriptions"] == 2


def test_threads_in_every_call_survive_a_close(
    server: LocalServer, unique: str
) -> None:
    for _ in range(15):
        nc = jsync.connect(server.url)
        nc.subscribe(f"{unique}.echo", callback=lambda msg: msg.respond(msg.data))

        def publish(nc: jsync.Connection = nc) -> None:
            while True:
                nc.publish(unique, b"x" * 100)

        def read(nc: jsync.Connection = nc) -> None:
            for _ in nc.subscribe(unique):
                pass

        def ask(nc: jsync.Connection = nc) -> None:
            while True:
                nc.request(f"{unique}.echo", timeout=LONG)

        def ask_many(nc: jsync.Connection = nc) -> None:
            while True:
                list(nc.request_many(f"{unique}.echo", timeout=LONG, max_messages=1))

        def flush(nc: jsync.Connection = nc) -> None:
            while True:
                nc.flush(timeout=LONG)

        def come_and_go(nc: jsync.Connection = nc) -> None:
            while True:
                nc.subscribe(f"{unique}.*").unsubscribe()

        def wait(nc: jsync.Connection = nc) -> None:
            nc.subscribe(f"{unique}.silent").next(timeout=None)

        using = all_at_once(publish, read, ask, ask_many, flush, come_and_go, wait)
        nc.flush()
        closing = all_at_once(nc.close, nc.close, nc.close)
        for thread in closing:
            thread.result()
        for thread in using:
            assert isinstance(thread.error(), errors.ConnectionClosedError)


def test_threads_share_a_connection_that_drains(
    server: LocalServer, unique: str
) -> None:
    # Messages published before the drain must arrive.
    with jsync.connect(server.url) as reader:
        sub = reader.subscribe(unique)
        reader.flush()
        for _ in range(5):
            nc = jsync.connect(server.url)
            taken = [0] * 4

            def publish(
                number: int, nc: jsync.Connection = nc, taken: list[int] = taken
            ) -> None:
                while True:
                    nc.publish(unique, b"x")
                    taken[number] += 1
                    if taken[number] > 20_000:  # or the reader would have to drop some
                        time.sleep(0.001)

            threads = all_at_once(*(lambda n=n: publish(n) for n in range(4)))

            def all_publish(taken: list[int] = taken) -> bool:
                return min(taken) > 100

            wait_for(all_publish)
            begun = sum(taken)
            nc.drain()
            for thread in threads:
                assert isinstance(thread.error(), errors.ConnectionClosedError)
            for _ in range(begun):
                sub.next()
            reader.flush()
            while sub.pending:
                sub.next()


def test_the_first_requests_of_many_threads_at_once(
    server: LocalServer, unique: str
) -> None:
    with jsync.connect(server.url) as service:
        service.subscribe(unique, callback=lambda msg: msg.respond(msg.data))
        service.flush()
        for _ in range(10):
            with jsync.connect(server.url) as nc:
                questions = [b"%d" % i for i in range(THREADS)]
                threads = all_at_once(
                    *(lambda q=q, nc=nc: nc.request(unique, q).data for q in questions)
                )
                assert [thread.result() for thread in threads] == questions


@needs_timers
def test_an_interrupted_request_delays_no_thread(
    server: LocalServer, unique: str
) -> None:
    class Interrupted(BaseException):
        pass

    inside = False

    def interrupt(*_: object) -> None:
        nonlocal inside
        if inside:
            inside = False
            raise Interrupted

    def request_often(name: int) -> None:
        for i in range(1000):
            question = b"%d %d" % (name, i)
            assert nc.request(unique, question, timeout=LONG).data == question

    interrupted = 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with jsync.connect(server.url) as service, jsync.connect(server.url) as nc:
            service.subscribe(unique, callback=lambda msg: msg.respond(msg.data))
            service.flush()
            threads = [Thread(request_often, name) for name in range(2 * THREADS)]
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            while any(not thread.ended for thread in threads):
                try:
                    inside = True
                    assert nc.request(unique, b"main", timeout=LONG).data == b"main"
                    inside = False
                except Interrupted:
                    interrupted += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            for thread in threads:
                thread.result()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 0


def test_many_threads_get_their_answers_despite_cuts(
    server: LocalServer, unique: str
) -> None:
    """A request that was cut off raises. The others get the answers to their questions."""
    outcomes: Counter[str] = Counter()
    stopped = threading.Event()

    def request_often(name: int) -> None:
        i = 0
        while not stopped.is_set():
            i += 1
            question = b"%d %d" % (name, i)
            try:
                assert nc.request(unique, question, timeout=LONG).data == question
                outcomes["answered"] += 1
            except errors.ConnectionLostError:
                outcomes["cut"] += 1

    def answered_more_than(count: int) -> bool:
        return outcomes["answered"] > count

    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        jsync.connect(server.url) as service,
        jsync.connect(proxy.url, reconnect_wait=0.01) as nc,
    ):
        service.subscribe(unique, callback=lambda msg: msg.respond(msg.data))
        service.flush()
        threads = [Thread(request_often, name) for name in range(4 * THREADS)]
        for _ in range(10):
            proxy.cut()
            # More than were on their way, so a new connection answers.
            wait_for(partial(answered_more_than, outcomes["answered"] + 200))
        stopped.set()
        for thread in threads:
            thread.result()
    assert outcomes["cut"] > 0


def test_one_thread_at_a_time_reads_a_subscription(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique)
    refused = Recorder()

    def read() -> list[int]:
        seen: list[int] = []
        while len(seen) < 2000:
            try:
                msg = sub.next(timeout=0.05)
            except errors.ConcurrentUseError:
                refused()
            except errors.TimeoutError:
                if all_here.is_set():
                    break
            else:
                seen.append(int(msg.data))
        return seen

    all_here = threading.Event()
    threads = all_at_once(*[read] * 4)
    for i in range(2000):
        nc.publish(unique, b"%d" % i)
    nc.flush()
    all_here.set()
    seen: list[int] = []
    for thread in threads:
        part = thread.result()
        assert isinstance(part, list)
        assert part == sorted(part)
        seen += part
    # No message is lost and none comes twice, even if some readers were rejected.
    assert sorted(seen) == list(range(2000))


def test_threads_connect_and_close_at_once(server: LocalServer, unique: str) -> None:
    def live() -> None:
        for _ in range(5):
            with jsync.connect(server.url) as nc:
                with nc.subscribe(unique) as sub:
                    nc.publish(unique)
                    sub.next()

    for thread in all_at_once(*[live] * THREADS):
        thread.result()


def test_several_threads_unsubscribe_and_drain_one_subscription(
    nc: jsync.Connection, unique: str
) -> None:
    for _ in range(30):
        handled = Recorder()
        sub = nc.subscribe(unique, callback=handled)
        nc.publish(unique)
        for thread in all_at_once(
            sub.unsubscribe, sub.drain, sub.unsubscribe, sub.drain
        ):
            thread.result()
        assert not sub.is_active
