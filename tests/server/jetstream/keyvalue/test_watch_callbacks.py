"""Tests of watches with callbacks and of live views, which share the pools of a connection."""

from __future__ import annotations

import _thread
import collections
import threading
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ....support.connection_faults import Events
from ....support.processes import Child
from ....support.servers import threads_since, wait_for
from ....support.threads import LONG, SOON, Recorder, Thread
from .support import consumers, fill

if TYPE_CHECKING:
    from jsync.server import LocalServer

pytestmark = [pytest.mark.server, pytest.mark.quick]

KEYS = [f"k.{number}" for number in range(100)]


class Gate:
    """A callback that blocks until it is opened."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()
        self.calls = 0

    def __call__(self, entry: object) -> None:
        self.calls += 1
        self.begun.set()
        assert self.opened.wait(LONG)


# Threads ------------------------------------------------------------------------------


def test_a_hundred_watches_share_two_threads(
    narrow: jsync.Connection, nc: jsync.Connection, bucket: jsync.KeyValue
) -> None:
    got: dict[str, list[bytes]] = collections.defaultdict(list)
    busy = {key: threading.Lock() for key in KEYS}
    before = set(threading.enumerate())

    def handle(entry: jsync.Entry) -> None:
        assert busy[entry.key].acquire(blocking=False)  # never two at a time
        got[entry.key].append(entry.value)
        if len(got[entry.key]) % 2 == 0:
            nc.flush()  # another thread runs meanwhile
        busy[entry.key].release()

    own = narrow.jetstream().key_value(bucket.bucket)
    watches = [own.watch(key, updates_only=True, callback=handle) for key in KEYS]
    views = [own.live(key) for key in KEYS]
    for number in range(5):
        for key in KEYS:
            nc.publish(f"$KV.{bucket.bucket}.{key}", b"%d" % number)
    nc.flush()
    last = [b"%d" % number for number in range(5)]
    wait_for(lambda: all(got[key] == last for key in KEYS))
    wait_for(lambda: all(v.get(k) == b"4" for k, v in zip(KEYS, views, strict=True)))
    assert len(threads_since(before)) <= 4
    assert all(view.is_current for view in views)
    for reading in (*watches, *views):
        reading.stop()
    assert all(watch.wait(SOON) for watch in watches)


def test_a_blocked_callback_delays_no_other_watch(
    narrow: jsync.Connection, bucket: jsync.KeyValue
) -> None:
    own = narrow.jetstream().key_value(bucket.bucket)
    slow, got = Gate(), Recorder()
    blocked = own.watch("slow", callback=slow)
    fast = own.watch("fast", callback=got)
    for _ in range(3):
        bucket.put("slow")
    assert slow.begun.wait(SOON)
    for number in range(20):
        revision = bucket.put("fast", b"%d" % number)
        assert got.get().revision == revision
    assert slow.calls == 1
    slow.opened.set()
    wait_for(lambda: slow.calls == 3)
    blocked.stop()
    fast.stop()


def test_an_exhausted_pool_is_named_after_its_watch(
    server: LocalServer, bucket: jsync.KeyValue
) -> None:
    slow, got, reported = Gate(), Recorder(), Recorder()
    with jsync.connect(server.url, callback_threads=1, on_error=reported) as nc:
        own = nc.jetstream().key_value(bucket.bucket)
        watches = [own.watch("slow", callback=slow), own.watch("other", callback=got)]
        bucket.put("slow")
        assert slow.begun.wait(SOON)
        bucket.put("other")
        error = reported.get()
        assert isinstance(error, errors.CallbackPoolExhaustedError)
        assert f"the watch of {bucket.bucket!r}" in str(error)
        slow.opened.set()
        assert got.get().key == "other"
        assert not any(watch.closed for watch in watches)


def test_an_exhausted_pool_delays_no_stop(
    server: LocalServer, bucket: jsync.KeyValue
) -> None:
    slow, got = Gate(), Recorder()
    with jsync.connect(server.url, callback_threads=1) as nc:
        own = nc.jetstream().key_value(bucket.bucket)
        watch = own.watch("slow", callback=slow)
        other = own.watch("other", callback=got)
        bucket.put("slow")
        assert slow.begun.wait(SOON)
        bucket.put("other")
        nc.flush()
        other.stop(SOON)
        slow.opened.set()
        assert other.wait(SOON)
        assert got.waiting == 0
        assert not watch.closed


def test_a_live_view_serves_a_callback_that_waits(
    server: LocalServer, bucket: jsync.KeyValue, unique: str
) -> None:
    """All threads of the pool are in callbacks, which wait for copies of the bucket."""
    with jsync.connect(server.url, callback_threads=1) as nc:
        own = nc.jetstream().key_value(bucket.bucket)
        copy = own.live()

        def answer(msg: jsync.Msg) -> None:
            copy.wait_for(own.put("a", msg.data), SOON)
            with own.live("a") as another:
                msg.respond(copy["a"] + another["a"])

        nc.subscribe(unique, callback=answer)
        assert nc.request(unique, b"1", timeout=LONG).data == b"11"


def test_thread_shortage_delays_a_watch_only(
    narrow: jsync.Connection,
    events: Events,
    bucket: jsync.KeyValue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, failed = narrow._session.thread_factory, Recorder()
    start = threads.start

    def start_later(name: str, run):  # type: ignore[no-untyped-def]
        if failed.waiting < 3:
            failed(name)
            raise RuntimeError("can't start new thread")
        return start(name, run)

    monkeypatch.setattr(threads, "start", start_later)
    monkeypatch.setattr("jsync.core.session.NO_THREAD_SECONDS", 0.05)
    bucket.put("a")
    got = Recorder()
    own = narrow.jetstream().key_value(bucket.bucket)
    with own.watch(callback=got) as watch:
        assert watch.wait_initial(SOON)
        assert got.get().key == "a"
    assert failed.waiting == 3


# The initial entries ------------------------------------------------------------------


def test_a_callback_learns_of_an_end_without_entry(
    nc: jsync.Connection, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    fill(nc, bucket, [f"k.{number}" for number in range(5000)])
    first = Gate()
    with bucket.watch(callback=first) as watch:
        assert first.begun.wait(SOON)
        js.stream(f"KV_{bucket.bucket}").purge()
        first.opened.set()
        assert watch.wait_initial(LONG)
        revision = bucket.put("new")
        wait_for(lambda: watch.revision == revision)
        assert first.calls < 5000


# The end ------------------------------------------------------------------------------


def test_a_deleted_bucket_ends_all_its_watches(
    narrow: jsync.Connection, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    own = narrow.jetstream().key_value(bucket.bucket)
    watches = [
        own.watch(key, callback=Recorder(), on_error=Recorder()) for key in KEYS[:20]
    ]
    views = [own.live(key, on_error=Recorder()) for key in KEYS[:20]]
    js.delete_key_value(bucket.bucket)
    for watch in watches:
        with pytest.raises(errors.BucketNotFoundError):
            watch.wait(LONG)
    for view in views:
        with pytest.raises(errors.BucketNotFoundError):
            view.wait_for(1000, LONG)


def test_a_closed_connection_ends_watches_and_threads(
    server: LocalServer, bucket: jsync.KeyValue
) -> None:
    before = set(threading.enumerate())
    events = Events()
    nc = jsync.connect(server.url, callback_threads=2, **events.callbacks)
    own = nc.jetstream().key_value(bucket.bucket)
    watches = [own.watch(key, callback=Recorder()) for key in KEYS[:20]]
    views = [own.live(key) for key in KEYS[:20]]
    nc.close()
    for watch in watches:
        with pytest.raises(errors.ConnectionClosedError):
            watch.wait(SOON)
    for view in views:
        with pytest.raises(errors.ConnectionClosedError):
            view.wait_for(1000, SOON)
    wait_for(lambda: not threads_since(before))
    assert events.of("error") == []


def test_a_drain_in_a_callback_awaits_other_watches(
    server: LocalServer, bucket: jsync.KeyValue
) -> None:
    nc = jsync.connect(server.url, drain_timeout=LONG)
    own = nc.jetstream().key_value(bucket.bucket)
    slow, ended = Gate(), threading.Event()

    def drain(entry: jsync.Entry) -> None:
        nc.drain()
        ended.set()

    other = own.watch("slow", callback=slow)
    bucket.put("slow")
    assert slow.begun.wait(SOON)
    watch = own.watch("drains", callback=drain)
    bucket.put("drains")
    wait_for(lambda: watch.closed)
    assert not ended.is_set()
    slow.opened.set()
    assert ended.wait(SOON)
    assert other.wait(SOON)
    assert watch.wait(SOON)


def test_a_callback_may_stop_other_watches(
    narrow: jsync.Connection, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    own = narrow.jetstream().key_value(bucket.bucket)
    others = [own.watch(key, callback=Recorder()) for key in KEYS[:5]]
    stopped = threading.Event()

    def stop(entry: jsync.Entry) -> None:
        for watch in (*others, mine[0]):
            watch.stop()
        stopped.set()

    mine = [own.watch("a", updates_only=True, callback=stop)]
    bucket.put("a")
    assert stopped.wait(SOON)
    assert all(watch.wait(SOON) for watch in (*others, *mine))
    wait_for(lambda: not consumers(js, bucket))


def test_a_forking_callback_leaves_the_parent_at_work(
    server: LocalServer, bucket: jsync.KeyValue
) -> None:
    script = """
        import os, sys, threading
        import jsync

        url, name = sys.argv[1:]
        nc = jsync.connect(url)
        bucket = nc.jetstream().key_value(name)
        got, codes = [], []

        def handle(entry):
            pid = os.fork()
            if pid == 0:
                return  # into the pool, which belongs to the parent
            codes.append(os.waitpid(pid, 0)[1])
            got.append(entry.value)

        with bucket.live() as copy, bucket.watch(callback=handle) as watch:
            for number in range(20):
                copy.wait_for(bucket.put("a", b"%d" % number))
            while len(got) < 20:
                threading.Event().wait(0.01)
        print(got == [b"%d" % number for number in range(20)], set(codes))
        nc.close()
    """
    with Child(script, server.url, bucket.bucket) as child:
        code, output, _ = child.finish()
    assert code == 0
    assert output.strip() == "True {0}"


# In a patched process the timer is a greenlet of the main thread, and gets the interrupt itself.
@pytest.mark.threads_only
def test_ctrl_c_in_stop_leaves_watches_at_work(bucket: jsync.KeyValue) -> None:
    slow, got = Gate(), Recorder()
    watch, other = bucket.watch("slow", callback=slow), bucket.watch("b", callback=got)
    bucket.put("slow")
    assert slow.begun.wait(SOON)
    interrupt = threading.Timer(0.2, _thread.interrupt_main)
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        watch.stop(LONG)
    interrupt.join(SOON)
    bucket.put("b")
    assert got.get().key == "b"
    slow.opened.set()
    watch.stop(LONG)
    assert watch.wait(SOON)
    other.stop()


def test_watches_that_come_and_go_leave_nothing(
    narrow: jsync.Connection, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    own = narrow.jetstream().key_value(bucket.bucket)

    def open_and_stop() -> None:
        for number in range(20):
            got = Recorder()
            with own.watch("a", callback=got), own.live("a") as view:
                revision = bucket.put("a", b"%d" % number)
                while got.get().revision < revision:
                    pass
                view.wait_for(revision, SOON)

    work = [Thread(open_and_stop) for _ in range(3)]
    for thread in work:
        thread.result()
    wait_for(lambda: not consumers(js, bucket))
    wait_for(lambda: len(narrow._session.interests) == 1)  # that of requests
