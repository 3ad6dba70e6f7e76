"""Tests of watches: the existing entries, their end, and each change once and in order."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.watching import driver

from ....support.proxy import frame_filter
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder, Thread
from .support import consumers, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy, Side


pytestmark = pytest.mark.server

MANY = [f"k.{number}" for number in range(5000)]
"""More keys than a watch prefetches."""


def brief(entries: Any) -> list[tuple[str, bytes, str]]:
    return [(entry.key, entry.value, entry.operation) for entry in entries]


@pytest.fixture
def filled(bucket: jsync.KeyValue) -> jsync.KeyValue:
    """A bucket with the keys a (revisions 1, 2), b (3, deleted), c (purged) and d.x (4)."""
    bucket.put("a", b"1")
    bucket.put("a", b"2")
    bucket.put("b", b"3")
    bucket.delete("b")
    bucket.put("c", b"0")
    bucket.purge("c")
    bucket.put("d.x", b"4")
    return bucket


# Entries ------------------------------------------------------------------------------


def test_a_watch_gives_last_entries_and_then_changes(
    filled: jsync.KeyValue,
) -> None:
    with filled.watch() as watch:
        assert brief(watch.initial()) == [
            ("a", b"2", "PUT"),
            ("b", b"", "DEL"),
            ("c", b"", "PURGE"),
            ("d.x", b"4", "PUT"),
        ]
        assert watch.initial_done
        filled.put("a", b"5")
        filled.delete("d.x")
        filled.purge("a")
        assert brief(islice(watch, 3)) == [
            ("a", b"5", "PUT"),
            ("d.x", b"", "DEL"),
            ("a", b"", "PURGE"),
        ]
        assert list(watch.initial()) == []


@pytest.mark.parametrize(
    ("filters", "keys"),
    [
        (("a",), ["a"]),
        (("d.*",), ["d.x"]),
        (("d.>", "a"), ["a", "d.x"]),
        ((">",), ["a", "b", "c", "d.x"]),
        (("none",), []),
    ],
)
def test_a_watch_gives_the_keys_that_match_alone(
    filled: jsync.KeyValue, filters: tuple[str, ...], keys: list[str]
) -> None:
    with filled.watch(*filters) as watch:
        assert [entry.key for entry in watch.initial()] == keys
        for key in ("a", "b", "c", "d.x", "e"):
            filled.put(key)
        expected = [key for key in ("a", "b", "c", "d.x", "e") if key in keys]
        if filters == (">",):
            expected.append("e")
        assert [entry.key for entry in islice(watch, len(expected))] == expected


@pytest.mark.parametrize(
    ("options", "initial"),
    [
        ({"include_history": True}, ["1", "2", "3", "DEL", "PURGE", "4"]),
        ({"ignore_deletes": True}, ["2", "4"]),
        ({"headers_only": True}, ["", "DEL", "PURGE", ""]),
        ({"updates_only": True}, []),
        ({"revision": 4}, ["DEL", "PURGE", "4"]),
        ({"include_history": True, "ignore_deletes": True}, ["1", "2", "3", "4"]),
    ],
    ids=str,
)
def test_options_choose_the_initial_entries_of_a_watch(
    filled: jsync.KeyValue, options: dict[str, Any], initial: list[str]
) -> None:
    with filled.watch(**options) as watch:
        found = [
            entry.value.decode() if entry.operation == "PUT" else entry.operation
            for entry in watch.initial()
        ]
        assert found == initial
        assert watch.initial_done
        revision = filled.put("z", b"9")
        assert watch.next().revision == revision


def test_starts_that_contradict_are_refused(bucket: jsync.KeyValue) -> None:
    with pytest.raises(errors.ConfigError, match="exclude each other"):
        bucket.watch(include_history=True, updates_only=True)
    with pytest.raises(errors.ConfigError, match="at least 1"):
        bucket.watch(revision=0)
    with pytest.raises(errors.ConfigError, match="callable"):
        bucket.watch(callback="print")  # type: ignore[arg-type]


def test_a_bucket_created_again_hides_no_changes(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    seen = [bucket.put("a", b"%d" % number) for number in range(9)][-1]
    with bucket.watch(revision=seen + 1) as watch:
        assert list(watch.initial()) == []
    js.delete_key_value(bucket.bucket)
    again = js.create_key_value(bucket=bucket.bucket)
    again.put("a", b"new")
    with pytest.raises(errors.WrongRevisionError, match="is at revision 1") as raised:
        again.watch(revision=seen + 1)
    assert raised.value.revision == 1
    wait_for(lambda: consumers(js, again) == [])


@pytest.mark.parametrize(
    "name", ["include_history", "updates_only", "headers_only", "ignore_deletes"]
)
@pytest.mark.parametrize("bad", ["no", 1, None])
def test_switches_of_a_watch_are_true_or_false(
    bucket: jsync.KeyValue, name: str, bad: Any
) -> None:
    with pytest.raises(errors.ConfigError, match=f"{name} has to be True or False"):
        bucket.watch(**{name: bad})


def test_entries_of_a_watch_equal_those_of_get(filled: jsync.KeyValue) -> None:
    with filled.watch("a") as watch:
        assert watch.next() == filled.get("a")


def test_many_keys_take_few_round_trips(
    nc: jsync.Connection,
    bucket: jsync.KeyValue,
    far_bucket: jsync.KeyValue,
    proxy: FaultProxy,
) -> None:
    fill(nc, bucket, MANY)
    pulls: list[bytes] = []

    def record(frame: bytes, to: Side) -> bool:
        if to == "server" and b".MSG.NEXT." in frame:
            pulls.append(frame)
        return True

    proxy.rewrite(frame_filter(record))
    assert len(list(far_bucket.keys())) == len(MANY)
    assert len(pulls) <= 8


def test_next_waits_for_a_change_until_its_timeout(bucket: jsync.KeyValue) -> None:
    with bucket.watch() as watch:
        with pytest.raises(errors.TimeoutError, match="no change"):
            watch.next(0.05)
        waiting = Thread(watch.next, LONG)
        waiting.wait_until_blocked()
        revision = bucket.put("a")
        assert waiting.result().revision == revision


# The end of the initial entries -------------------------------------------------------


def test_an_empty_bucket_reports_the_end_at_once(
    bucket: jsync.KeyValue,
) -> None:
    with bucket.watch() as watch:
        assert watch.initial_done
        assert watch.wait_initial(0)
        assert list(watch.initial()) == []


def test_the_end_comes_with_the_last_initial_entry(
    filled: jsync.KeyValue,
) -> None:
    with filled.watch() as watch:
        done = []
        for entry in watch:
            done.append((entry.key, watch.initial_done))
            if watch.initial_done:
                break
        assert done == [("a", False), ("b", False), ("c", False), ("d.x", True)]


@pytest.mark.parametrize("subject", [None, "k.4999"])
def test_the_end_comes_though_entries_are_removed_before(
    nc: jsync.Connection,
    js: jsync.JetStream,
    bucket: jsync.KeyValue,
    subject: str | None,
) -> None:
    fill(nc, bucket, MANY)
    removed = None if subject is None else f"$KV.{bucket.bucket}.{subject}"
    with bucket.watch() as watch:
        found = [watch.next().key]
        js.stream(f"KV_{bucket.bucket}").purge(subject=removed)
        found += [entry.key for entry in watch.initial()]
        assert watch.initial_done
        assert found == MANY[: len(found)]
        assert len(found) < len(MANY) if subject is None else len(found) == 4999
        revision = bucket.put("new")
        assert watch.next(LONG).revision == revision


def test_the_end_comes_though_everything_is_replaced_before(
    nc: jsync.Connection, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    fill(nc, bucket, MANY)
    with bucket.watch(on_error=Recorder()) as watch:
        watch.next()
        js.stream(f"KV_{bucket.bucket}").purge()
        revision = bucket.put("new")
        assert [entry.revision for entry in watch.initial()][-1] == revision
        assert watch.initial_done


def test_another_thread_learns_of_an_end_without_entry(
    nc: jsync.Connection, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    fill(nc, bucket, MANY)
    with bucket.watch() as watch:
        watch.next()
        js.stream(f"KV_{bucket.bucket}").purge()
        reading = Thread(lambda: [entry.key for entry in watch])
        assert watch.wait_initial(LONG)
        watch.stop()
        assert reading.result()


def test_the_end_comes_while_others_keep_writing(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    kv = js.create_key_value(bucket=unique, storage="memory")  # one value per key
    fill(nc, kv, MANY)
    written: dict[str, int] = {}
    times: Counter[str] = Counter()
    stop = threading.Event()

    def write() -> None:
        rng = random.Random(1)
        while not stop.is_set():
            key = rng.choice(MANY)
            written[key] = kv.put(key)
            times[key] += 1

    writing = Thread(write)
    seen: dict[str, int] = {}
    with kv.watch(headers_only=True) as watch:
        wait_for(lambda: len(written) > 10)
        before = dict(written)
        for entry in watch.initial():
            assert entry.revision > seen.get(entry.key, 0)
            seen[entry.key] = entry.revision
        stop.set()
        writing.result()
        # The server passes over an entry that was replaced before its turn. So it passes over
        # one that is replaced again before the turn of the first replacement.
        late = set(MANY) - set(seen)
        assert all(times[key] > 1 for key in late)
        while not late <= seen.keys():
            entry = watch.next(SOON)
            seen[entry.key] = entry.revision
    assert set(seen) == set(MANY)
    assert all(seen[key] >= revision for key, revision in before.items())
    js.delete_key_value(unique)


def test_keys_that_others_replace_are_in_every_list(
    server: LocalServer, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    """The server counts an entry too few while it is replaced."""
    keys = [f"k.{number}" for number in range(50)]
    for key in keys:
        bucket.put(key)
    stop = threading.Event()

    def write(kv: jsync.KeyValue) -> None:
        rng = random.Random(1)
        while not stop.is_set():
            kv.put(rng.choice(keys))
            time.sleep(rng.random() * 0.002)

    with jsync.connect(server.url) as other:
        writing = Thread(write, other.jetstream().key_value(bucket.bucket))
        for _ in range(300):
            assert sorted(bucket.keys()) == sorted(keys)
        stop.set()
        writing.result()


def test_a_key_put_again_is_listed_once(
    nc: jsync.Connection, bucket: jsync.KeyValue
) -> None:
    fill(nc, bucket, MANY)
    listing = bucket.keys()
    found = [next(listing)]
    for key in (found[0], MANY[-1], "new"):
        bucket.put(key)
    found += listing
    assert sorted(key for key in found if key != "new") == sorted(MANY)
    assert found.count("new") <= 1


def test_a_list_ends_despite_a_flood_of_changes(
    server: LocalServer, js: jsync.JetStream, unique: str
) -> None:
    """The end runs ahead of the reading: each key is replaced again before its turn."""
    kv = js.create_key_value(bucket=unique, storage="memory")
    keys = [f"k.{number}" for number in range(20)]
    stop = threading.Event()

    def write() -> None:
        with jsync.connect(server.url) as other, other.jetstream().publisher() as flood:
            while not stop.is_set():
                for key in keys:
                    flood.publish(f"$KV.{unique}.{key}", b"x")

    writing = Thread(write)
    wait_for(lambda: len(list(kv.keys())) == len(keys))
    for _ in range(3):
        assert sorted(kv.keys()) == sorted(keys)
        with kv.watch() as watch:
            assert {entry.key for entry in watch.initial()} == set(keys)
    stop.set()
    writing.result()
    js.delete_key_value(unique)


@pytest.mark.parametrize("markers", [1, 3])
def test_the_last_value_before_markers_tells_the_end(
    bucket: jsync.KeyValue, markers: int
) -> None:
    for key in ("a", "b", *(f"gone.{number}" for number in range(markers))):
        bucket.put(key)
    for number in range(markers):
        bucket.delete(f"gone.{number}")
    with bucket.watch(ignore_deletes=True) as watch:
        found = []
        while not watch.initial_done:
            found.append(watch.next(SOON).key)
        assert found == ["a", "b"]
    with bucket.watch(ignore_deletes=True) as watch:
        done = []
        for entry in watch:
            done.append((entry.key, watch.initial_done))
            if watch.initial_done:
                break
        assert done == [("a", False), ("b", True)]
        assert bucket.put("c") == watch.next(SOON).revision


def test_values_behind_markers_are_all_handed_over(bucket: jsync.KeyValue) -> None:
    for key in ("a", "b", "c"):
        bucket.put(key)
    bucket.delete("a")
    bucket.put("d")
    with bucket.watch(ignore_deletes=True) as watch:
        assert watch.next(SOON).key == "b"
        assert watch.revision == 2
        assert not watch.initial_done
        assert [entry.key for entry in watch.initial()] == ["c", "d"]
        assert watch.initial_done


def test_a_timeout_that_is_over_lists_nothing(filled: jsync.KeyValue) -> None:
    with pytest.raises(errors.TimeoutError):
        list(filled.keys(timeout=-1))
    with pytest.raises(errors.TimeoutError):
        filled.history("a", timeout=-1)
    with pytest.raises(errors.TimeoutError):
        filled.watch(timeout=0)


def test_a_reconnect_never_reports_the_end_too_early(
    nc: jsync.Connection,
    proxy: FaultProxy,
    bucket: jsync.KeyValue,
    far_bucket: jsync.KeyValue,
) -> None:
    fill(nc, bucket, MANY)
    with far_bucket.watch() as watch:
        found = [watch.next().key for _ in range(10)]
        proxy.cut()
        bucket.put("new")
        for entry in watch.initial():
            found.append(entry.key)
            assert watch.initial_done == (entry.key == "new")
        assert found == [*MANY, "new"]


# A callback ---------------------------------------------------------------------------


def test_a_callback_gets_entries_while_wait_initial_waits(
    filled: jsync.KeyValue,
) -> None:
    told = Recorder()
    with filled.watch(callback=told) as watch:
        assert watch.wait_initial(SOON)
        assert watch.initial_done
        assert [told.get().key for _ in range(4)] == ["a", "b", "c", "d.x"]
        revision = filled.put("e")
        assert told.get().revision == revision
        assert told.waiting == 0
    assert watch.wait(0)


@pytest.mark.parametrize("ignored", [True, False])
def test_a_callback_is_told_the_initial_entries_ended(
    bucket: jsync.KeyValue, ignored: bool
) -> None:
    bucket.put("a")
    bucket.delete("a")
    told = Recorder()
    with bucket.watch(callback=told, ignore_deletes=ignored) as watch:
        assert watch.wait_initial(SOON)
        assert told.waiting == (not ignored)


def test_a_watch_reports_callback_errors_and_continues(
    bucket: jsync.KeyValue,
) -> None:
    got, told = Recorder(), Recorder()

    def callback(entry: jsync.Entry) -> None:
        got(entry.key)
        if entry.key == "bad":
            raise ValueError(entry.key)

    with bucket.watch(callback=callback, on_error=told):
        for key in ("a", "bad", "b"):
            bucket.put(key)
        assert [got.get() for _ in range(3)] == ["a", "bad", "b"]
        error = told.get()
    assert isinstance(error, errors.CallbackError)
    assert isinstance(error.__cause__, ValueError)


# The end ------------------------------------------------------------------------------


def by_stop(watch: jsync.Watch) -> None:
    watch.stop()
    watch.stop()


def by_leaving(watch: jsync.Watch) -> None:
    with watch:
        pass


@pytest.mark.parametrize("end", [by_stop, by_leaving])
@pytest.mark.parametrize("with_callback", [True, False])
def test_nothing_stays_on_the_server_after_the_end(
    js: jsync.JetStream,
    filled: jsync.KeyValue,
    end: Callable[[jsync.Watch], None],
    with_callback: bool,
) -> None:
    watch = filled.watch(callback=Recorder() if with_callback else None)
    assert len(consumers(js, filled)) == 1
    end(watch)
    assert watch.closed
    wait_for(lambda: not consumers(js, filled))


def test_a_dropped_watch_leaves_no_consumer(
    js: jsync.JetStream, filled: jsync.KeyValue
) -> None:
    watch = filled.watch()
    watch.next()
    del watch
    gc.collect()
    wait_for(lambda: not consumers(js, filled))


def test_reads_leave_nothing_on_the_server(
    js: jsync.JetStream, filled: jsync.KeyValue
) -> None:
    list(filled.keys())
    next(iter(filled.keys()))
    filled.history("a")
    filled.purge_deletes()
    with filled.live():
        pass
    wait_for(lambda: not consumers(js, filled))


def test_stop_from_another_thread_ends_the_iteration(bucket: jsync.KeyValue) -> None:
    watch = bucket.watch()
    reading: Thread[list[jsync.Entry]] = Thread(lambda: list(watch))
    reading.wait_until_blocked()
    watch.stop()
    assert reading.result() == []
    with pytest.raises(errors.SubscriptionClosedError):
        watch.next()
    assert watch.wait_initial(0)


def test_stop_in_the_callback_ends_the_watch(bucket: jsync.KeyValue) -> None:
    watches: list[jsync.Watch] = []
    began = threading.Event()

    def callback(entry: jsync.Entry) -> None:
        began.wait(SOON)
        watches[0].stop()

    watches.append(bucket.watch(callback=callback))
    began.set()
    bucket.put("a")
    assert watches[0].wait(SOON)


def test_stop_waits_only_briefly_for_a_callback(bucket: jsync.KeyValue) -> None:
    inside, leave = threading.Event(), threading.Event()

    def callback(entry: jsync.Entry) -> None:
        inside.set()
        leave.wait(LONG)

    watch = bucket.watch(callback=callback)
    bucket.put("a")
    assert inside.wait(SOON)
    with pytest.raises(errors.DrainTimeoutError):
        watch.stop(timeout=0.1)
    leave.set()
    assert watch.wait(SOON)


def test_stop_does_not_hang_while_disconnected(
    proxy: FaultProxy, far: jsync.Connection, far_bucket: jsync.KeyValue
) -> None:
    told = Recorder()
    quiet, loud = far_bucket.watch(), far_bucket.watch(callback=told)
    proxy.refuse()
    proxy.cut()
    wait_for(lambda: far.state is not jsync.ConnectionState.CONNECTED)
    Thread(quiet.stop).result()
    Thread(loud.stop).result()
    assert quiet.closed
    assert loud.wait(SOON)
    proxy.accept()


def test_a_bucket_that_is_deleted_ends_its_watch(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    told = Recorder()
    loud, quiet = bucket.watch(callback=Recorder(), on_error=told), bucket.watch()
    js.delete_key_value(bucket.bucket)
    with pytest.raises(errors.BucketNotFoundError):
        quiet.next(LONG)
    with pytest.raises(errors.BucketNotFoundError):
        loud.wait(LONG)


def test_leaving_the_connection_block_handles_all_received_entries(
    server: Any, nc: jsync.Connection, bucket: jsync.KeyValue
) -> None:
    keys = [f"k.{number}" for number in range(100)]
    fill(nc, bucket, keys)
    handled: list[str] = []

    def callback(entry: jsync.Entry) -> None:
        time.sleep(0.002)
        handled.append(entry.key)

    with jsync.connect(server.url) as other:
        loud = other.jetstream().key_value(bucket.bucket).watch(callback=callback)
        quiet = other.jetstream().key_value(bucket.bucket).watch()
        wait_for(lambda: len(handled) + len(loud._changes._mailbox) >= 99)
    assert sorted(handled) == sorted(keys)
    assert loud.wait(0)
    with pytest.raises(errors.ConnectionClosedError):
        list(quiet)


def test_a_stuck_callback_bounds_its_connections_drain(
    server: Any, bucket: jsync.KeyValue
) -> None:
    inside, leave = threading.Event(), threading.Event()

    def callback(entry: jsync.Entry) -> None:
        inside.set()
        leave.wait(LONG)

    other = jsync.connect(server.url)
    watch = other.jetstream().key_value(bucket.bucket).watch(callback=callback)
    try:
        bucket.put("a")
        assert inside.wait(SOON)
        with pytest.raises(errors.DrainTimeoutError, match="watch"):
            other.drain(timeout=0.2)
        assert other.is_closed
    finally:
        leave.set()
    assert watch.wait(SOON)


def test_a_callback_draining_the_connection_is_not_awaited(
    server: Any, bucket: jsync.KeyValue
) -> None:
    other = jsync.connect(server.url, drain_timeout=LONG)
    drain = other.drain
    watch = other.jetstream().key_value(bucket.bucket).watch(callback=lambda _: drain())
    bucket.put("a")
    assert watch.wait(SOON)
    assert other.is_closed


def test_a_connection_that_is_closed_ends_its_watch(
    server: Any, bucket: jsync.KeyValue
) -> None:
    with jsync.connect(server.url) as other:
        watch = other.jetstream().key_value(bucket.bucket).watch()
        loud = other.jetstream().key_value(bucket.bucket).watch(callback=Recorder())
        other.close()
    with pytest.raises(errors.ConnectionClosedError):
        next(watch)
    with pytest.raises(errors.ConnectionClosedError):
        watch.next()
    with pytest.raises(errors.ConnectionClosedError):
        loud.wait(SOON)


# Losses -------------------------------------------------------------------------------


def test_a_deleted_consumer_is_replaced_without_any_loss(
    nc: jsync.Connection, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    fill(nc, bucket, MANY)
    with bucket.watch(on_error=Recorder()) as watch:
        found = []
        for number, entry in enumerate(watch.initial()):
            found.append(entry.revision)
            if number in (5, 2000):
                for name in consumers(js, bucket):
                    js.delete_consumer(f"KV_{bucket.bucket}", name)
        assert found == list(range(1, 5001))
        assert bucket.put("a") == watch.next(LONG).revision


@pytest.mark.parametrize("names", [True, False])
def test_initial_entries_of_silent_servers_end_in_time(
    proxy: FaultProxy,
    nc: jsync.Connection,
    bucket: jsync.KeyValue,
    far_bucket: jsync.KeyValue,
    monkeypatch: pytest.MonkeyPatch,
    names: bool,
) -> None:
    """The reader pulls some entries, and the server sends the next ones never."""
    monkeypatch.setattr(driver, "MAX_SILENCE", 0.5)
    fill(nc, bucket, MANY)
    with far_bucket.watch() as watch:
        found: Iterator[object] = far_bucket.keys() if names else watch.initial()
        next(found)
        proxy.deaf("server")
        with pytest.raises(errors.TimeoutError, match="no server has sent the rest"):
            list(found)
        proxy.hear("server")
    assert len(list(far_bucket.keys())) == len(MANY)
