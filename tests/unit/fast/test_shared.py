"""Tests of threads that use the same Python objects: see docs/locks.md.

Most of these tests can fail only on a Python without a GIL. The threads therefore meet more often
there. `JSYNC_ROUNDS` sets the number of rounds.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields
from functools import partial
from inspect import signature
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import jsync
from jsync._fast import Sink, WriteBuffer, safe_finalizer
from jsync.core.callbacks import CallbackExecutor, ThreadFactory
from jsync.core.events import BackgroundError, Closed, ConnectionEvents
from jsync.core.io_thread import IOThread
from jsync.core.options import Options
from jsync.core.session import MAX_IDLE_INBOXES, Session, SubscriptionEntry
from jsync.core.sync import AtomicCounter, ForkSafeRLock, Latch, WeakCollection
from jsync.errors import (
    ConcurrentUseError,
    ConnectionClosedError,
    PermissionsError,
)
from jsync.jetstream.atomic.driver import AtomicDriver
from jsync.jetstream.atomic.stream_lookup import StreamLookup
from jsync.jetstream.groups.member_loop import AckExtender, Membership
from jsync.jetstream.keyvalue.election import Election
from jsync.jetstream.keyvalue.live_view import LiveView
from jsync.jetstream.keyvalue.lock import Lock
from jsync.jetstream.ordered.batch import FetchState, OrderedFetch
from jsync.jetstream.ordered.engine import ReadState
from jsync.jetstream.ordered.session import OrderedSession
from jsync.jetstream.pulls.delivery import take_all
from jsync.jetstream.push.engine import Ownership
from jsync.jetstream.push.ownership import ConsumerOwnership

from ...support.windows import needs_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

PARALLEL = not getattr(sys, "_is_gil_enabled", lambda: True)()
ROUNDS = int(os.environ.get("JSYNC_ROUNDS", "1000" if PARALLEL else "300"))
MANY = 20_000 if PARALLEL else 2_000
LONG = 60.0


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """With a GIL, make threads switch as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_ctrl_c_in_a_finaliser_reaches_the_caller() -> None:
    calls: list[str] = []

    class Dropped:
        @safe_finalizer
        def __del__(self) -> None:
            calls.append("begun")
            if len(calls) == 1:
                signal.raise_signal(signal.SIGINT)
            calls.append("done")

    def drop() -> None:
        dropped = Dropped()
        del dropped
        len(calls)  # Python looks for signals at calls

    with pytest.raises(KeyboardInterrupt):
        drop()
    assert calls == ["begun", "begun", "done"]


def test_ctrl_c_leaves_no_lock_locked() -> None:
    lock, interrupts = ForkSafeRLock(), 0
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        while interrupts < 500:
            try:
                # Python may lose a signal that comes while another thread asks for the GIL.
                signal.setitimer(signal.ITIMER_REAL, 0.0003, 5)
                while True:
                    with lock:
                        interrupts += 0
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
                interrupts += 1
            with ThreadPoolExecutor(1) as other:
                assert other.submit(lock.acquire, blocking=False).result()
                other.submit(lock.release).result()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@needs_fork
def test_a_lock_held_elsewhere_is_free_after_forking() -> None:
    lock, own, held, go = (
        ForkSafeRLock(),
        ForkSafeRLock(),
        threading.Event(),
        threading.Event(),
    )

    def hold() -> None:
        with lock:
            held.set()
            go.wait(LONG)

    with ThreadPoolExecutor(1) as pool, own:
        pool.submit(hold)
        assert held.wait(LONG)
        pid = os.fork()
        if pid == 0:
            free = lock.acquire(timeout=LONG / 10)
            os._exit(0 if free and own._is_owned() else 1)  # type: ignore[attr-defined]
        _, status = os.waitpid(pid, 0)
        go.set()
    assert status == 0


def meet(rounds: int, *calls: Callable[[int], object]) -> list[list[Any]]:
    """Run each call on a thread, all starting each round together.

    Return the results of each call.
    """
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[int], object]) -> list[Any]:
        results = []
        try:
            for number in range(rounds):
                barrier.wait(LONG)
                results.append(call(number))
        except BaseException:
            barrier.abort()
            raise
        return results

    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(run, call) for call in calls]
        failures = [f.exception(LONG * 10) for f in futures]
        for failure in failures:
            if failure and not isinstance(failure, threading.BrokenBarrierError):
                raise failure
        return [future.result() for future in futures]


def stub(**members: object) -> Any:
    return cast("Any", SimpleNamespace(**members))


def write_buffer() -> WriteBuffer:
    return WriteBuffer(limit=1 << 20, hold_limit=1 << 20)


# The connection -------------------------------------------------------------------------


def test_no_two_threads_get_one_number() -> None:
    numbers = AtomicCounter()

    def many(_: int) -> list[int]:
        return [numbers.next() for _ in range(MANY)]

    got = [each for [one] in meet(1, *[many] * 4) for each in one]
    assert len(set(got)) == len(got)


def test_objects_collected_elsewhere_do_not_disturb_an_iteration() -> None:
    living: WeakCollection[Latch] = WeakCollection()
    box = write_buffer()
    kept = Latch(box)
    living.add(kept)

    def come_and_go(_: int) -> None:
        for _ in range(20):
            living.add(Latch(box))

    def look(_: int) -> None:
        for _ in range(20):
            assert kept in living.all()

    meet(ROUNDS // 10, come_and_go, look, come_and_go, look)
    gc.collect()
    assert living.all() == [kept]


def test_every_thread_waiting_for_a_latch_is_woken() -> None:
    box = write_buffer()
    latches = [Latch(box) for _ in range(ROUNDS)]

    def wait(number: int) -> bool:
        return latches[number].wait(LONG)

    _, *waits = meet(ROUNDS, lambda number: latches[number].set(), wait, wait)
    assert all(map(all, waits))


def idle_session() -> Session:
    """A session whose I/O thread never starts."""
    values = {
        name: p.default for name, p in signature(jsync.connect).parameters.items()
    }
    values["servers"] = "nats://127.0.0.1:1"
    given = {field.name: values[field.name] for field in fields(Options)}
    return Session(Options(**given), lambda _: stub(is_current=False))


def test_kept_subscriptions_stay_within_their_limit() -> None:
    session = idle_session()

    def give_back(number: int) -> None:
        for _ in range(MAX_IDLE_INBOXES):
            session.release_inbox(
                SubscriptionEntry(session.next_sid(), "s", None, Sink())
            )

    meet(ROUNDS // 10, *[give_back] * 4)
    assert len(session.idle_inboxes) == MAX_IDLE_INBOXES


def test_a_subscription_returned_during_a_rejection_is_harmless() -> None:
    session = idle_session()
    refused = PermissionsError("no", operation="publish", subject="s")
    looks_at = Session.on_permission_error.__code__
    last, lines = 0, 1

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code is not looks_at:
            return None
        if event == "line":
            lines += 1
            if lines == last:
                session.release_inbox(entry)
        return trace

    while last <= lines:  # return it before each line in turn, as another thread may
        last, lines = last + 1, 0
        entry = SubscriptionEntry(
            *(session.next_sid(), "s", None, Sink()), on_permission_error=repr
        )
        session.interests = {entry.sid: entry}
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            session.on_permission_error(refused)
        finally:
            sys.settrace(before)
    assert last > 2


def test_giving_up_a_wait_does_not_disturb_wakers() -> None:
    session = idle_session()

    def wait(_: int) -> None:
        for _ in range(5):
            try:
                session.sleep(0)
                session.wait_connected(0)
            except TimeoutError:
                pass

    def wake(_: int) -> None:
        # `connected` does the same with the waiting calls, but needs a server.
        with session.lock:
            waiting = list(session._waiting)
            session._waiting.clear()
        for waiter in waiting:
            waiter.set(None)

    meet(ROUNDS // 10, wake, wait, wait)
    assert not session._waiting
    assert not session._sleeping


def test_a_new_subscription_hears_of_no_past_reconnect() -> None:
    """The I/O thread may be slow after it has woken `connect()`, or a call that waited."""
    session = idle_session()
    told: list[str] = []

    def subscribe(name: str) -> SubscriptionEntry:
        sid = session.next_sid()
        interest = SubscriptionEntry(
            sid, name, None, Sink(), on_connected=lambda: told.append(name)
        )
        session.subscribe(interest)
        return interest

    subscribe("before")
    dropped = subscribe("dropped")

    class Waiting:
        def set(self, _: None) -> None:
            subscribe("made")
            session.unsubscribe(dropped.sid)

    session._waiting.add(cast("Any", Waiting()))
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        server = stub(url="nats://127.0.0.1:1")
        session.on_connected(server, stub(fd=near.fileno(), direct=True, records=None))
        session.io_loop.close()
    assert told == ["before"]


def test_the_servers_that_were_set_last_are_taken() -> None:
    taken: list[int] = []
    io = object.__new__(IOThread)
    session = idle_session()
    IOThread.__init__(io, session)
    io.pool = stub(replace=taken.append)

    def set_servers(number: int) -> None:
        io.set_servers(cast("Any", number))

    meet(ROUNDS, set_servers, lambda _: io._apply_new_servers())
    io._apply_new_servers()
    assert taken[-1] == ROUNDS - 1


def test_each_event_has_one_reader_unlike_the_end() -> None:
    events = ConnectionEvents(None, lambda: None)
    errors = [RuntimeError(str(number)) for number in range(MANY)]

    def tell(_: int) -> list[Exception]:
        for error in errors:
            events._put(BackgroundError(error=error))
        events._put(Closed(error=None))
        return []

    def read(_: int) -> list[Exception]:
        got: list[Exception] = []
        while True:
            try:
                event = events.next(LONG)
            except ConnectionClosedError:
                return got
            if isinstance(event, BackgroundError):
                got.append(event.error)

    _, *readers = meet(1, tell, read, read)
    got = [error for [one] in readers for error in one]
    assert len(got) == len(set(map(id, got)))
    assert {*map(str, got)} <= {*map(str, errors)}


def test_callbacks_have_one_thread() -> None:
    class Counting(ThreadFactory):
        started = 0

        def start(self, name: str, run: Callable[[], object]) -> threading.Thread:
            Counting.started += 1
            return super().start(name, run)

    calls = []
    for _ in range(20):
        Counting.started = 0
        done = threading.Event()
        callbacks = CallbackExecutor("x", Counting(), None)
        meet(1, *[lambda _: callbacks.submit_unbounded(lambda: calls.append(1))] * 4)  # noqa: B023
        callbacks.submit_unbounded(done.set)
        assert done.wait(LONG)
        callbacks.close()
        assert Counting.started == 1
    assert len(calls) == 80


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("late", [False, True])
def test_callbacks_survive_a_failed_start_of_their_thread(
    error: type[BaseException], *, late: bool
) -> None:
    """No thread can be had for a while, or Ctrl-C comes as one is started.

    Args:
        error: What the first start raises.
        late: Whether the thread runs all the same.
    """

    class Failing(ThreadFactory):
        starts = 0

        def start(self, name: str, run: Callable[[], object]) -> threading.Thread:
            self.starts += 1
            if self.starts > 1:
                return super().start(name, run)
            if late:
                super().start(name, run)
            raise error

    factory = Failing()
    callbacks = CallbackExecutor("x", factory, None)
    calls: list[tuple[int, int]] = []
    done = threading.Event()

    def note(number: int) -> None:
        calls.append((number, threading.get_ident()))

    with suppress(KeyboardInterrupt):
        callbacks.submit_unbounded(partial(note, 0))
    for number in range(1, 100):
        callbacks.submit_unbounded(partial(note, number))
    callbacks.submit_unbounded(done.set)
    assert done.wait(LONG)
    callbacks.close()
    assert [number for number, _ in calls] == list(range(100))
    assert len({thread for _, thread in calls}) == 1


def test_callbacks_without_a_thread_run_at_the_end() -> None:
    class Failing(ThreadFactory):
        fails = True

        def start(self, name: str, run: Callable[[], object]) -> threading.Thread:
            if self.fails:
                raise RuntimeError("no more threads")
            return super().start(name, run)

    factory = Failing()
    callbacks = CallbackExecutor("x", factory, None)
    done = threading.Event()
    callbacks.submit_unbounded(done.set)
    factory.fails = False
    callbacks.close()
    assert done.wait(LONG)


# Pulls and pushes -----------------------------------------------------------------------


def test_an_unreturned_message_is_taken_only_once() -> None:
    rest: deque[Any] = deque()

    def stop(number: int) -> list[Any]:
        rest.append((number, threading.get_ident()))
        return list(take_all(rest))

    results = meet(ROUNDS, *[stop] * 3)
    got = [msg for each in results for some in each for msg in some]
    assert len(got) == len(set(got)) == 3 * ROUNDS


def test_a_consumer_is_deleted_once() -> None:
    deletions: list[int] = []
    own = [ConsumerOwnership() for _ in range(ROUNDS)]
    for one in own:
        one.try_to(Ownership.OURS)

    def delete(number: int) -> None:
        own[number].delete(lambda: deletions.append(number))

    meet(ROUNDS, *[delete] * 3)
    assert sorted(deletions) == list(range(ROUNDS))


def test_a_fetch_ends_once_from_any_thread() -> None:
    class Fetch(OrderedFetch):
        closings = 0

        def _close(self) -> None:
            self.closings += 1

    factory = stub(cursor=stub(position=0), schedule_delete=lambda: None, api=stub())
    fetches = [Fetch(factory, cast("Any", None), 1.0, None) for _ in range(ROUNDS)]
    meet(
        ROUNDS,
        lambda number: fetches[number].close(),
        lambda number: fetches[number].close(),
    )
    assert {fetch.closings for fetch in fetches} == {1}
    assert {fetch._state.current for fetch in fetches} == {FetchState.ENDED}


def test_a_read_is_cancelled_by_any_thread() -> None:
    asked = stub(set_callback=lambda _: True, cancel=lambda: None)
    factory = stub(cursor=None, api=stub(session=None), delete_nowait=lambda _: None)
    reads = [
        OrderedSession(factory, cast("Any", stub()), cast("Any", None))
        for _ in range(ROUNDS)
    ]
    for read in reads:
        read._creating, read._request = "name", asked

    def over(number: int) -> list[str]:
        """Do what `_step` does with a reply at the end. Only one thread may delete that name."""
        deleted: list[str] = []
        reads[number].factory = stub(delete_nowait=deleted.append)
        reads[number].state.try_to(ReadState.ENDING)
        reads[number]._step(cast("Any", {}))
        return deleted

    def cancel(number: int) -> None:
        reads[number].cancel()

    meet(ROUNDS, over, cancel)
    assert not any(read._creating for read in reads)


# Atomic batches -------------------------------------------------------------------------


def test_any_thread_may_forget_the_first_answer() -> None:
    gone: list[int] = []
    session = stub(reply_mux=stub(discard=gone.append), last_error=None)
    driver = AtomicDriver(
        stub(session=session), cast("Any", None), stub(id="x"), ack_first=True
    )

    def expect(number: int) -> None:
        # As the driver does:
        driver._drop_first_ack()
        with driver._state_lock:
            driver._first = number, cast("Any", None)

    barrier: list[Callable[[int], object]] = [
        lambda _: driver._drop_first_ack(),
        lambda _: driver._drop_first_ack(),
    ]
    meet(ROUNDS, expect, *barrier)
    driver._drop_first_ack()
    assert len(gone) == len(set(gone)) == ROUNDS


def test_the_place_in_a_stream_never_goes_back() -> None:
    lookup = StreamLookup(stub(session=stub(reconnects=0)))

    def note(shift: int) -> Callable[[int], object]:
        return lambda number: lookup.record_sequence("S", 2 * number + shift)

    meet(ROUNDS, note(0), note(1), note(0))
    assert lookup.min_sequences() == {"S": 2 * ROUNDS - 1}


# Key-value ------------------------------------------------------------------------------


class Still:
    """The changes of a bucket, in which only the test makes changes."""

    def __init__(self) -> None:
        self.write_buffer = write_buffer()
        self.revision = 0
        self.closed = False
        self.initial_done = True
        self.max_age = None
        self.poll_interval = LONG
        self.internal_pool = None
        self.entries = SimpleNamespace(reads_ttl=False, revision=0)
        self.error = None
        self.handed_over = Latch(self.write_buffer)
        self.finished = Latch(self.write_buffer)
        self.handed_over.set()

    def start(self, *_: object, **__: object) -> None: ...
    def freshness(self, *_: object) -> None: ...


def test_every_thread_waiting_for_a_revision_wakes() -> None:
    live: LiveView[bytes] = LiveView(cast("Any", Still()), "B", str, 1.0)
    meet(
        ROUNDS,
        lambda number: live._on_revision(number + 1),
        lambda number: live.wait_for(number + 1, LONG),
        lambda number: live.wait_for(number + 1, LONG),
    )
    assert not live._waiting


class Keys:
    """A bucket whose only key is free or taken."""

    bucket = "B"

    def __init__(self) -> None:
        self.revision = 0

    def create(self, key: str, value: bytes, *, ttl: int) -> int:
        self.revision += 1
        return self.revision

    def purge(self, key: str, *, last: int, ttl: int | None = None) -> int:
        return 0


def test_two_threads_do_not_get_one_lock_object() -> None:
    session = stub(
        write_buffer=write_buffer(),
        name="x",
        thread_factory=ThreadFactory(),
        sleep=lambda seconds, until: until.wait(seconds),
    )
    keys = cast("Any", Keys())
    locks = [
        Lock(keys, session, "k", 30, lambda *_: 1, None, None)
        for _ in range(ROUNDS // 10)
    ]

    def acquire(number: int) -> bool:
        try:
            return locks[number].acquire(0)
        except ConcurrentUseError:
            return False

    results = meet(len(locks), acquire, acquire)
    assert [a + b for a, b in zip(*results, strict=True)] == [1] * len(locks)
    meet(len(locks), lambda n: locks[n].release(), lambda n: locks[n].release())
    assert not any(lock.held for lock in locks)


def test_a_candidate_stopped_while_winning_stops_leading() -> None:
    box = write_buffer()
    session = stub(
        write_buffer=box,
        name="x",
        thread_factory=ThreadFactory(),
        callbacks=stub(report=lambda _: None),
        add_drain_callback=lambda *_: None,
        remove_drain_callback=lambda _: None,
    )
    for _ in range(max(100, ROUNDS // 100)):
        wins = Latch(box)

        def acquire(timeout: float | None = None) -> bool:
            return timeout is None and wins.wait(LONG)  # noqa: B023

        lock = stub(
            held=True, token=1, acquire=acquire, release=lambda: None, cancel=wins.set
        )
        election = Election(session, lambda _: lock, None, None)  # noqa: B023
        meet(1, lambda _: wins.set(), lambda _: election.stop(LONG))  # noqa: B023
        assert election._finished.is_set


# Groups ---------------------------------------------------------------------------------


def test_a_message_in_hand_has_one_timer() -> None:
    timers: list[Callable[[], object]] = []

    def call_later(_: float, call: Callable[[], object]) -> object:
        timers.append(call)
        return call

    in_hand = AckExtender(stub(call_later=call_later), 30.0)
    msg = cast("Any", stub(is_acked=False, in_progress=lambda: None))
    in_hand.start(msg)

    def tick(_: int) -> None:
        timers.pop(0)()

    def next_one(_: int) -> None:
        in_hand.stop()
        in_hand.start(msg)

    meet(ROUNDS, tick, next_one)
    assert len(timers) == 1


def test_a_stop_from_any_thread_ends_member_waits() -> None:
    box = write_buffer()
    members: list[Membership] = []
    for _ in range(ROUNDS):
        member = object.__new__(Membership)
        member._flags = ForkSafeRLock()
        member._woken, member._pull = Latch(box), None
        member._stopping = False
        members.append(member)

    def read(number: int) -> bool:
        """Do what `take` does while the member has no partitions."""
        member = members[number]
        with member._flags:
            member._woken = Latch(box)
        with member._flags:
            stopping = member._stopping
        return stopping or member._woken.wait(LONG)

    results = meet(ROUNDS, lambda number: members[number].stop(), read)
    assert all(results[1])


def test_a_finaliser_does_nothing_once_python_is_ending() -> None:
    program = """if True:
        import os, sys
        from jsync._fast import safe_finalizer

        class Told:
            def __init__(self, name):
                self.name = name

            @safe_finalizer
            def __del__(self, write=os.write):
                write(1, self.name)

        Told(b"dropped ")
        sys.kept = Told(b"kept to the end")  # the last module to be emptied
    """
    ended = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, timeout=120
    )
    assert (ended.stdout, ended.stderr) == (b"dropped ", b"")
