"""Tests that locks and elections have one holder at a time, even with killed servers."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.core import state
from jsync.core.clock import boottime
from jsync.core.sync import Latch
from jsync.jetstream.keyvalue import election as election_module, lock as lock_module
from jsync.jetstream.keyvalue.lock import LockState

from ....support.connection_faults import Events, connect
from ....support.processes import Child
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder, Thread
from ...core.test_interrupted import interrupted_before

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ....conftest import StartServer

pytestmark = pytest.mark.server


@pytest.fixture
def locks(js: jsync.JetStream, unique: str) -> Iterator[jsync.KeyValue]:
    """A bucket whose keys can expire."""
    yield js.create_key_value(bucket=unique, limit_marker_ttl=60, storage="memory")
    with contextlib.suppress(errors.BucketNotFoundError):
        js.delete_key_value(unique)


def test_a_lock_has_one_holder_at_a_time(locks: jsync.KeyValue) -> None:
    with locks.lock("a", ttl=30) as lock:
        assert lock.held
        assert 0 < lock.remaining <= 30
        assert not locks.lock("a", ttl=30).acquire(0)
        with locks.lock("b", ttl=30) as other:
            assert other.token > lock.token
        with pytest.raises(errors.ConcurrentUseError):
            lock.acquire(0)
    assert (lock.held, lock.remaining) == (False, 0)
    with pytest.raises(errors.LockNotHeldError):
        _ = lock.token
    lock.release()
    assert lock.acquire(0)
    lock.release()


def test_a_release_gives_the_next_a_higher_token(
    locks: jsync.KeyValue,
) -> None:
    first, second = locks.lock("a", ttl=30), locks.lock("a", ttl=30)
    assert first.acquire()
    token = first.token
    waiting = Thread(second.acquire, LONG)
    waiting.wait_until_blocked()
    first.release()
    assert waiting.result()
    assert second.token > token
    second.release()


def test_of_many_threads_one_is_inside(locks: jsync.KeyValue) -> None:
    inside: list[int] = []
    most: list[int] = []
    tokens: list[int] = []

    def work() -> None:
        for _ in range(5):
            with locks.lock("a", ttl=30, timeout=LONG) as lock:
                inside.append(1)
                most.append(len(inside))
                tokens.append(lock.token)
                inside.pop()

    for thread in [Thread(work) for _ in range(4)]:
        assert thread.error() is None
    assert set(most) == {1}
    assert tokens == sorted(set(tokens))


def test_a_lock_waits_no_longer_than_its_timeout(locks: jsync.KeyValue) -> None:
    with (
        locks.lock("a", ttl=30),
        pytest.raises(errors.TimeoutError, match="not free"),
        locks.lock("a", ttl=30, timeout=0.1),
    ):
        raise AssertionError


def test_the_end_of_a_wait_is_no_error(server: LocalServer, unique: str) -> None:
    reported = Recorder()
    with jsync.connect(server.url, on_error=reported) as nc:
        js = nc.jetstream()
        locks = js.create_key_value(bucket=unique, limit_marker_ttl=60)
        with locks.lock("a", ttl=30):
            assert not locks.lock("a", ttl=30).acquire(0.1)
        js.delete_key_value(unique)
    assert reported.waiting == 0


def test_a_lock_outlives_its_ttl_by_renewals(locks: jsync.KeyValue) -> None:
    with locks.lock("a", ttl=4) as lock:
        began, token = boottime(), lock.token
        wait_for(lambda: boottime() > began + 6)
        assert lock.held
        assert lock.token == token
        assert locks.get("a").revision > token


def test_a_vanished_holder_is_replaced_after_its_ttl(
    server: LocalServer, locks: jsync.KeyValue
) -> None:
    script = """
        import os, sys, jsync
        nc = jsync.connect(sys.argv[1])
        lock = nc.jetstream().key_value(sys.argv[2]).lock("a", ttl=2)
        lock.acquire()
        print(lock.token, flush=True)
        sys.stdin.readline()
        os._exit(0)
    """
    with Child(script, server.url, locks.bucket) as child:
        token = int(child.line())
        child.send_line()
        child.finish()
    with locks.lock("a", ttl=2, timeout=LONG) as lock:
        assert lock.token > token


def test_a_stopped_holder_sees_its_lock_is_lost(
    server: LocalServer, locks: jsync.KeyValue
) -> None:
    script = """
        import sys, jsync
        from jsync.core.clock import boottime
        told = []
        nc = jsync.connect(sys.argv[1])
        lock = nc.jetstream().key_value(sys.argv[2]).lock(
            "a", ttl=2, on_lost=lambda error: told.append(type(error).__name__)
        )
        lock.acquire()
        print(lock.token, flush=True)
        last, moment = 0.0, boottime()
        while lock.held:  # it may be stopped behind this look
            last, moment = moment, boottime()
        while not told:
            pass
        print(last, told[0], lock.held, flush=True)
    """
    with Child(script, server.url, locks.bucket) as child:
        token = int(child.line())
        os.kill(child.pid, signal.SIGSTOP)
        lock = locks.lock("a", ttl=2)
        assert lock.acquire(LONG)
        got = boottime()
        os.kill(child.pid, signal.SIGCONT)
        last, told, held = child.line().split()
        assert float(last) < got  # the last time that the holder saw its lock
        assert (told, held) == ("LockLostError", "False")
        assert lock.held
        assert lock.token > token
        lock.release()


@pytest.mark.slow
def test_a_lock_survives_only_short_server_outages(
    own_server: StartServer,
) -> None:
    server, told, events = own_server(), Recorder(), Events()
    with connect(server.url, events) as nc:
        js = nc.jetstream(timeout=3.0)
        kv = js.create_key_value(bucket="L", limit_marker_ttl=60)
        lock = kv.lock("a", ttl=10, on_lost=told)
        assert lock.acquire(SOON)
        token = lock.token
        for number in range(1, 4):
            server.kill()
            server.start()
            events.wait("reconnect", number)
            revision = kv.get("a", timeout=LONG).revision
            wait_for(functools.partial(renewed, kv, revision))
        assert lock.token == token
        server.kill()
        assert isinstance(told.get(), errors.LockLostError)
        assert not lock.held
        with pytest.raises(errors.LockLostError):
            _ = lock.token
        server.start()
        lock.release()
        with kv.lock("a", ttl=5, timeout=LONG) as other:
            assert other.token > token


def renewed(kv: jsync.KeyValue, revision: int) -> bool:
    with contextlib.suppress(errors.Error):
        return kv.get("a").revision > revision
    return False


def test_a_block_raises_when_its_lock_is_taken(
    locks: jsync.KeyValue,
) -> None:
    told = Recorder()
    with (  # noqa: PT012 (the block's end raises)
        pytest.raises(errors.LockLostError, match="stop the work"),
        locks.lock("a", ttl=3, on_lost=told) as lock,
    ):
        locks.put("a", b"somebody else's")
        assert isinstance(told.get(), errors.LockLostError)
        assert not lock.held
    assert locks.get("a").value == b"somebody else's"


def test_a_lock_needs_a_bucket_with_expiring_keys(bucket: jsync.KeyValue) -> None:
    with pytest.raises(errors.MessageTTLDisabledError):
        bucket.lock("a", ttl=5).acquire()
    with pytest.raises(errors.ConfigError, match="ttl of a lock"):
        bucket.lock("a", ttl=1)
    with pytest.raises(errors.InvalidKeyError):
        bucket.lock("a b")


@pytest.mark.parametrize(
    ("config", "ttl", "words"),
    [
        ({"history": 5, "limit_marker_ttl": 20}, 3, "limit_marker_ttl of 20 s"),
        ({"ttl": 4, "limit_marker_ttl": 20}, 5, "expire after 4 s"),
    ],
)
def test_a_ttl_the_server_would_change_is_refused(
    js: jsync.JetStream, unique: str, config: dict[str, Any], ttl: int, words: str
) -> None:
    kv = js.create_key_value(bucket=unique, storage="memory", **config)
    for call in (kv.lock, kv.elect, kv.create):
        with pytest.raises(errors.ConfigError, match=words):
            call("a", ttl=ttl)
    assert kv.status().values == 0
    allowed = 20 if "history" in config else 4
    with kv.lock("a", ttl=allowed, timeout=0):
        kv.create("b", ttl=allowed)
        kv.create("c", ttl="never")
    # This is why: the server stores another time to live.
    if "history" in config:
        ack = js.publish(f"$KV.{unique}.d", ttl=ttl)
        stored = js.stream(f"KV_{unique}").get_message(ack.seq)
        assert stored.headers is not None
        assert stored.headers["Nats-TTL"] == "20"
    js.delete_key_value(unique)


def test_waiting_without_jetstream_is_reported_and_can_end(
    own_server: StartServer,
) -> None:
    server, events, elected = own_server(), Events(), Recorder()
    with connect(server.url, events) as nc:
        kv = nc.jetstream().create_key_value(bucket="L", limit_marker_ttl=60)
        kv.put("a", b"another holder")
        server.kill()
        without = own_server(jetstream=False, port=server.port)
        events.wait("reconnect")
        lock = kv.lock("a", ttl=30)
        acquiring = Thread(lock.acquire)
        with kv.elect("a", ttl=30, on_elected=elected) as election:
            for number in (1, 2):  # of the lock and of the election, once each
                error = events.wait("error", number)
                assert isinstance(error, errors.JetStreamNotEnabledError)
            assert not election.is_leader
            lock.cancel()
            assert acquiring.result() is False
            with pytest.raises(errors.TimeoutError) as caught, kv.lock("a", timeout=0):
                raise AssertionError
            assert isinstance(caught.value.__cause__, errors.JetStreamNotEnabledError)
            without.kill()
            server.start()
            wait_for(functools.partial(purged, kv, "a"), LONG)
            assert elected.get() == election.token


def purged(kv: jsync.KeyValue, key: str) -> bool:
    with contextlib.suppress(errors.Error):
        return kv.purge(key) > 0
    return False


@pytest.mark.parametrize("timeout", [0.05, 0.5])
def test_silent_servers_delay_no_acquire_beyond_its_timeout(
    own_server: StartServer, timeout: float
) -> None:
    server = own_server()
    with jsync.connect(server.url) as nc:
        nc.jetstream().create_key_value(bucket="L", limit_marker_ttl=600)
        kv = nc.jetstream(timeout=600).key_value("L")
        lock = kv.lock("a", ttl=600)
        with kv.lock("b", ttl=600):
            pass  # the bucket is known from here on
        server.pause()
        acquiring = Thread(lock.acquire, timeout)
        assert acquiring.result() is False
        server.resume()
        # The server stores the create now, and it is removed.
        stored = nc.jetstream().key_value("L").watch("a", include_history=True)
        while stored.next(SOON).operation != "PURGE":
            pass
        with kv.lock("a", ttl=600) as next_holder:
            assert next_holder.held


def test_release_and_close_leave_no_thread(locks: jsync.KeyValue) -> None:
    before = threading.active_count()
    lock = locks.lock("a", ttl=30)
    assert lock.acquire(SOON)
    assert threading.active_count() == before + 1
    lock.release()
    wait_for(lambda: threading.active_count() == before)


def test_a_close_ends_a_held_locks_thread(
    server: LocalServer, locks: jsync.KeyValue
) -> None:
    lost = Recorder()
    with jsync.connect(server.url) as other:
        lock = (
            other.jetstream().key_value(locks.bucket).lock("a", ttl=600, on_lost=lost)
        )
        assert lock.acquire(SOON)
    # The next renewal would be due after 200 seconds.
    assert isinstance(lost.get(), errors.LockLostError)
    assert not lock.held
    lock.release()


@pytest.mark.parametrize(
    "place", ["first latch", "second latch", "held", "thread", "begun thread", "free"]
)
def test_ctrl_c_while_acquiring_leaves_the_lock_free(
    locks: jsync.KeyValue, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    before = threading.active_count()
    lock, other = locks.lock("a", ttl=30), locks.lock("a", ttl=30)
    holder = locks.lock("a", ttl=30)
    if place == "free":
        assert holder.acquire(0)
    with monkeypatch.context() as patch:
        interrupt_at(place, lock, patch)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(0)
    holder.release()
    assert not lock.held
    assert other.acquire(0)
    other.release()
    assert lock.acquire(0)
    lock.release()
    wait_for(lambda: threading.active_count() == before)


def interrupt_at(place: str, lock: jsync.Lock, patch: pytest.MonkeyPatch) -> None:
    """Have Ctrl-C come at that place of `acquire`."""
    turn, start = lock._state.try_to, threading.Thread.start
    latches = itertools.count(1)
    wanted = 2 if place == "second latch" else 1

    def latch(write_buffer: Any) -> Latch:
        if next(latches) == wanted:
            raise KeyboardInterrupt
        return Latch(write_buffer)

    def turned(state: LockState) -> bool:
        if state is (LockState.HELD if place == "held" else LockState.FREE):
            patch.undo()
            raise KeyboardInterrupt
        return turn(state)

    def started(thread: threading.Thread) -> None:
        if place == "begun thread":
            start(thread)
        raise KeyboardInterrupt

    if "latch" in place:
        patch.setattr(lock_module, "Latch", latch)
    elif "thread" in place:
        patch.setattr(threading.Thread, "start", started)
    else:
        patch.setattr(lock._state, "try_to", turned)


@pytest.mark.parametrize("how", ["release", "with"])
def test_ctrl_c_during_a_release_frees_the_lock(
    locks: jsync.KeyValue, how: str
) -> None:
    before = threading.active_count()
    lock, other = locks.lock("a", ttl=300), locks.lock("a", ttl=300)
    files = {str(lock_module.__file__), str(state.__file__)}

    def leave() -> None:
        if how == "release":
            lock.release()
        else:
            lock.__exit__(None, None, None)

    # Python does not protect the first instruction of a function.
    for instruction in itertools.count(3):
        assert lock.acquire(SOON)
        interrupted = interrupted_before(instruction, files, leave)
        if how == "release":
            lock.release()
        assert other.acquire(SOON), instruction
        assert not lock.held
        other.release()
        if not interrupted:
            break
    assert instruction > 50
    wait_for(lambda: threading.active_count() == before)


# Elections ----------------------------------------------------------------------------


def test_one_candidate_leads_and_another_one_follows(locks: jsync.KeyValue) -> None:
    elected, lost = Recorder(), Recorder()
    with (
        locks.elect("a", ttl=30) as first,
        locks.elect("a", ttl=30, on_elected=elected, on_lost=lost) as second,
    ):
        assert first.is_leader
        assert not second.is_leader
        token = first.token
        with pytest.raises(errors.LockNotHeldError):
            _ = second.token
        first.stop()
        first.stop()
        assert [first.is_leader] == [False]
        assert elected.get() > token
        assert [second.is_leader] == [True]
        assert lost.waiting == 0
    assert lost.get() is None
    assert [second.is_leader] == [False]


def test_a_leader_that_lost_is_a_candidate_again(locks: jsync.KeyValue) -> None:
    elected, lost = Recorder(), Recorder()
    with locks.elect("a", ttl=3, on_elected=elected, on_lost=lost) as election:
        token = elected.get()
        locks.delete("a")
        assert lost.get() is None
        assert elected.get() > token
        assert election.is_leader
    assert lost.get() is None
    assert lost.waiting == 0


def test_a_candidate_that_waits_can_be_stopped(locks: jsync.KeyValue) -> None:
    with locks.lock("a", ttl=30) as lock:
        election = locks.elect("a", ttl=30)
        Thread(election.stop).result()
        waiting = locks.lock("a", ttl=30)
        acquiring = Thread(waiting.acquire)
        acquiring.wait_until_blocked()
        waiting.cancel()
        assert acquiring.result() is False
        assert lock.held


def test_ctrl_c_at_the_start_ends_the_candidacy(
    locks: jsync.KeyValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threading.active_count()
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.endswith("-election"):
            raise KeyboardInterrupt

    for _ in range(10):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", started)
            with pytest.raises(KeyboardInterrupt):
                locks.elect("a", ttl=300)
        wait_for(lambda: threading.active_count() == before, SOON)
        lock = locks.lock("a", ttl=300)
        assert lock.acquire(SOON)
        lock.release()


def test_a_cancelled_lock_says_so(locks: jsync.KeyValue) -> None:
    with locks.lock("a", ttl=30):
        waiting = locks.lock("a", ttl=30)
        waiting.cancel()
        with (
            pytest.raises(errors.TimeoutError, match="the wait was cancelled"),
            waiting,
        ):
            pass


def test_a_drain_gives_leadership_up_after_the_callbacks(
    server: LocalServer, locks: jsync.KeyValue, unique: str
) -> None:
    begun, go, lost, led = threading.Event(), threading.Event(), Recorder(), Recorder()

    def handle(msg: jsync.Msg) -> None:
        begun.set()
        assert go.wait(LONG)
        led(election.is_leader)

    waiting = locks.lock("a", ttl=30)
    with jsync.connect(server.url) as nc:
        bucket = nc.jetstream().key_value(locks.bucket)
        election = bucket.elect("a", ttl=30, on_lost=lost)
        nc.subscribe(f"{unique}.work", callback=handle)
        nc.publish(f"{unique}.work")
        assert begun.wait(SOON)
        draining = Thread(nc.drain)
        draining.wait_until_blocked()
        assert not waiting.acquire(0)
        go.set()
        draining.result()
    assert led.get()
    assert lost.get() is None
    assert waiting.acquire(0)
    waiting.release()


def test_a_callback_that_drains_gives_its_leadership_up(
    server: LocalServer, locks: jsync.KeyValue
) -> None:
    nc = jsync.connect(server.url)
    lost, drained = Recorder(), Recorder()

    def drain(_: int) -> None:
        nc.drain()
        drained()

    bucket = nc.jetstream().key_value(locks.bucket)
    bucket.elect("a", ttl=30, on_elected=drain, on_lost=lost)
    drained.get()
    assert lost.get() is None
    with locks.lock("a", ttl=30, timeout=0):
        pass


class Stopping:
    """A callback that stops its election, and records when `stop` has returned."""

    def __init__(self) -> None:
        self.returned = Recorder()
        self.made = threading.Event()
        self.election: jsync.Election | None = None

    def __call__(self, *_: object) -> None:
        assert self.made.wait(SOON)
        assert self.election is not None
        self.election.stop(LONG)
        self.returned("returned")

    def of(self, election: jsync.Election) -> jsync.Election:
        self.election = election
        self.made.set()
        return election


def test_on_elected_may_stop_its_election(locks: jsync.KeyValue) -> None:
    stop, lost = Stopping(), Recorder()
    election = stop.of(locks.elect("a", ttl=30, on_elected=stop, on_lost=lost))
    assert stop.returned.get() == "returned"
    assert lost.get() is None
    election.stop()
    assert not election.is_leader
    with locks.lock("a", ttl=30, timeout=0):
        pass


def test_on_lost_may_stop_an_already_stopped_election(
    locks: jsync.KeyValue,
) -> None:
    stop, elected = Stopping(), Recorder()
    election = stop.of(locks.elect("a", ttl=30, on_elected=elected, on_lost=stop))
    elected.get()  # one that is stopped before it leads loses nothing
    election.stop()
    assert stop.returned.get() == "returned"
    with locks.lock("a", ttl=30, timeout=0):
        pass


def test_on_lost_may_stop_elections_during_on_elected(
    locks: jsync.KeyValue,
) -> None:
    stop, elected, leave = Stopping(), Recorder(), threading.Event()

    def work(token: int) -> None:
        elected(token)
        leave.wait(LONG)

    election = stop.of(locks.elect("a", ttl=3, on_elected=work, on_lost=stop))
    elected.get()
    locks.delete("a")
    assert stop.returned.get() == "returned"
    leave.set()
    election.stop()
    assert elected.waiting == 0


@pytest.mark.parametrize(
    "timeout",
    ["1", float("nan"), True, [], 10**400],
    ids=["text", "NaN", "bool", "list", "huge"],
)
def test_an_election_outlives_a_stop_with_bad_timeout(
    locks: jsync.KeyValue, timeout: Any
) -> None:
    election = locks.elect("a", ttl=30)
    with pytest.raises(errors.ConfigError, match="timeout"):
        election.stop(timeout)
    assert not locks.lock("a", ttl=30).acquire(0)
    assert election.is_leader
    election.stop(timedelta(seconds=LONG))
    assert not election.is_leader


def test_a_candidate_without_a_bucket_reports_it_once(
    js: jsync.JetStream,
    server: LocalServer,
    locks: jsync.KeyValue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(election_module, "ERROR_BACKOFF", 0.05)
    told, elected = Recorder(), Recorder()
    locks.put("a", b"another leader")
    with jsync.connect(server.url, on_error=told) as other:
        bucket = other.jetstream().key_value(locks.bucket)
        with bucket.elect("a", ttl=5, on_elected=elected):
            js.delete_key_value(locks.bucket)
            # Its watch and the next create tell it. Then it is known.
            seen = {type(told.get()) for _ in range(2)}
            assert errors.BucketNotFoundError in seen
            threading.Event().wait(0.5)
            assert told.waiting == 0
            js.create_key_value(bucket=locks.bucket, limit_marker_ttl=60)
            elected.get()


def test_a_connection_that_is_closed_ends_its_elections(
    server: LocalServer, locks: jsync.KeyValue
) -> None:
    lost = Recorder()
    with jsync.connect(server.url, on_error=Recorder()) as other:
        bucket = other.jetstream().key_value(locks.bucket)
        leader = bucket.elect("a", ttl=5, on_lost=lost)
        candidate = bucket.elect("a", ttl=5)
    assert lost.get() is None
    leader.stop()
    candidate.stop()
    assert not leader.is_leader


def test_a_bucket_where_nothing_expires_has_no_elections(
    bucket: jsync.KeyValue,
) -> None:
    with pytest.raises(errors.MessageTTLDisabledError):
        bucket.elect("a", ttl=5)
    with pytest.raises(errors.ConfigError, match="callable"):
        bucket.elect("a", on_lost="print")  # type: ignore[arg-type]


def test_a_lagging_servers_old_marker_loses_no_lock(
    js: jsync.JetStream, locks: jsync.KeyValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"k{number}" for number in range(6)]
    for key in keys:
        with locks.lock(key):
            pass  # leaves a marker
    stream = f"KV_{locks.bucket}"
    # A full mirror answers gets as a server that is behind.
    js.create_stream(
        name=f"{stream}-far",
        mirror={"name": stream},
        max_msgs=len(keys),
        discard="new",
        allow_direct=True,
        mirror_direct=True,
        allow_msg_ttl=True,
    )
    wait_for(lambda: js.stream(f"{stream}-far").info().state.messages == len(keys))
    looks, lost = Recorder(), Recorder()
    real = lock_module.Lock._check_holder

    def look(lock: jsync.Lock, lease: Any) -> None:
        real(lock, lease)
        looks(lock.key)

    monkeypatch.setattr(lock_module.Lock, "_check_holder", look)
    held = [locks.lock(key, ttl=2, on_lost=lost) for key in keys]
    for lock in held:
        assert lock.acquire(SOON)
        renew = lock._renew

        def without_an_answer(
            owner: bytes,
            last: int,
            timeout: float,
            lock: Any = lock,
            renew: Any = renew,
        ) -> int:
            renew(owner, last, timeout)
            lock._renew = renew
            raise errors.TimeoutError("no answer")

        lock._renew = without_an_answer
    wait_for(lambda: looks.waiting == len(keys))
    assert all(lock.held for lock in held)
    for lock in held:
        lock.release()
    assert lost.waiting == 0
    js.delete_stream(f"{stream}-far")


@pytest.mark.parametrize("timeout", ["1", float("nan"), True, []])
def test_a_bad_timeout_leaves_the_lock_free(
    js: jsync.JetStream, unique: str, timeout: Any
) -> None:
    kv = js.create_key_value(bucket=unique, storage="memory", limit_marker_ttl=2)
    with pytest.raises(errors.ConfigError, match="timeout"):
        kv.lock("a", ttl=2, timeout=timeout)
    lock = kv.lock("a", ttl=2, timeout=timedelta(seconds=30))
    with pytest.raises(errors.ConfigError, match="timeout"):
        lock.acquire(timeout)
    with lock:
        assert not kv.lock("a", ttl=2).acquire(timedelta(0))
    js.delete_key_value(unique)
