"""Tests of replicated buckets while replicas are behind, leaders change and servers die."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors
from jsync.jetstream.keyvalue import lock as lock_module
from jsync.jetstream.watching import driver as watching

from ..server.jetstream.keyvalue.support import Writers, await_agreement
from ..support.connection_faults import Events, connect
from ..support.servers import wait_for
from ..support.threads import Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..support.servers import Cluster

pytestmark = pytest.mark.cluster

LONG = 120.0
LOG = logging.getLogger(__name__)


@pytest.fixture
def js(whole: Cluster) -> Iterator[jsync.JetStream]:
    with connect(whole.urls, Events()) as nc:
        yield nc.jetstream(timeout=10.0)


@pytest.fixture
def bucket(js: jsync.JetStream, unique: str) -> Iterator[jsync.KeyValue]:
    made: list[jsync.KeyValue] = []

    def is_made() -> bool:
        # A server that was frozen and leads now may count another one as offline for a while.
        with contextlib.suppress(errors.NoSuitablePeersError):
            made.append(
                js.create_key_value(
                    bucket=unique, replicas=3, history=5, limit_marker_ttl=30
                )
            )
        return bool(made)

    wait_for(is_made)
    yield made[0]
    with contextlib.suppress(errors.Error):
        js.delete_key_value(unique)


def test_initial_entries_hold_the_earlier_puts(bucket: jsync.KeyValue) -> None:
    # The consumer can be on a replica that does not have the value yet.
    for number in range(60):
        revision = bucket.put(f"k.{number}")
        with bucket.watch(f"k.{number}", on_error=Recorder()) as watch:
            assert [entry.revision for entry in watch.initial()] == [revision]
        assert bucket.history(f"k.{number}")[-1].revision == revision


def test_a_key_can_be_recreated_right_after_deletion(bucket: jsync.KeyValue) -> None:
    for _ in range(30):
        revision = bucket.create("k", b"x")
        with pytest.raises(errors.KeyExistsError) as caught:
            bucket.create("k", b"y")
        assert caught.value.revision == revision
        assert bucket.delete("k", last=revision) == revision + 1


@pytest.mark.slow
def test_revisions_come_once_and_locks_survive_dying_leaders(
    whole: Cluster, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    stop = threading.Event()

    def write() -> int:
        last, number = 0, 0
        while not stop.is_set():
            number += 1
            with contextlib.suppress(errors.Error):
                last = bucket.put(f"k.{number % 50}", b"x", timeout=3)
            stop.wait(0.002)
        return last

    seen: list[int] = []
    tokens: list[int] = []
    writing = Thread(write)
    with (
        bucket.watch(
            callback=lambda entry: seen.append(entry.revision), on_error=Recorder()
        ) as watch,
        bucket.live(on_error=Recorder(), timeout=LONG) as view,
    ):
        for _ in range(2):
            count = len(seen)
            wait_for(lambda count=count: len(seen) > count + 50, LONG)  # type: ignore[misc]
            leader = whole.stream_leader(f"KV_{bucket.bucket}")
            with bucket.lock("lock", ttl=30, timeout=LONG) as lock:
                tokens.append(lock.token)
                leader.kill()
                wait_for(lambda count=count: len(seen) > count + 100, LONG)  # type: ignore[misc]
                assert lock.held
            leader.start()
            whole.wait_until_ready()
        stop.set()
        last = writing.result()
        view.wait_for(last, LONG)
        wait_for(lambda: watch.revision >= view.revision, LONG)
        keys = set(bucket.keys())
        assert keys == set(view)
        assert {key: bucket.get(key).revision for key in keys} == {
            key: entry.revision for key, entry in view.entries().items()
        }
    assert seen == sorted(set(seen))
    assert tokens == sorted(set(tokens))


@pytest.mark.slow
def test_acquire_waits_while_the_cluster_has_no_quorum(
    whole: Cluster,
    bucket: jsync.KeyValue,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[object] = []
    real = jsync.Lock._try

    def counted(lock: jsync.Lock) -> object:
        tries.append(lock)
        return real(lock)

    monkeypatch.setattr(jsync.Lock, "_try", counted)
    monkeypatch.setattr(lock_module, "RETRY_INTERVAL", 0.5)
    bucket.put("lock", b"another holder")
    with connect([whole.servers[0].url], Events()) as nc:
        js = nc.jetstream(timeout=2.0)
        lock = js.key_value(unique).lock("lock", ttl=30)
        waiting = Thread(lock.acquire)
        wait_for(lambda: bool(tries), LONG)
        for server in whole.servers[1:]:
            server.kill()
        wait_for(lambda: waiting.ended or is_unavailable(js), LONG)
        count = len(tries)
        wait_for(lambda: waiting.ended or len(tries) > count + 3, LONG)
        assert not waiting.ended
        whole.start()
        whole.wait_until_ready()
        wait_for(lambda: deleted(bucket, "lock"), LONG)
        wait_for(lambda: waiting.ended, LONG)
        assert waiting.result() is True
        lock.release()


def is_unavailable(js: jsync.JetStream) -> bool:
    try:
        js.account_info()
    except errors.JetStreamUnavailableError:
        return True
    except errors.Error:
        pass
    return False


def deleted(bucket: jsync.KeyValue, key: str) -> bool:
    with contextlib.suppress(errors.Error):
        return bucket.delete(key) > 0
    return False


@pytest.mark.parametrize("changes", [3, pytest.param(12, marks=pytest.mark.fault)])
def test_watches_and_copies_match_after_each_leader_change(
    whole: Cluster, js: jsync.JetStream, unique: str, changes: int
) -> None:
    kv = js.create_key_value(bucket=unique, replicas=3, history=64)
    seen: list[int] = []
    with (
        kv.watch(
            "k.>",
            include_history=True,
            callback=lambda entry: seen.append(entry.revision),
            on_error=Recorder(),
        ),
        kv.live(on_error=Recorder(), timeout=LONG) as view,
        Writers([kv, kv]) as writers,
    ):
        for number in range(changes):
            count = writers.done
            wait_for(lambda count=count: writers.done > count + 100, LONG)  # type: ignore[misc]
            leader = whole.stream_leader(f"KV_{unique}")
            if number % 3 == 2:
                leader.kill()
            else:
                js._api.request(f"STREAM.LEADER.STEPDOWN.KV_{unique}")
            wait_for(lambda count=count: writers.done > count + 200, LONG)  # type: ignore[misc]
            leader.start()
            whole.wait_until_ready()
            writers.pause()
            revisions = await_agreement(kv, [seen], [view])
            LOG.info(
                "change %d: %d revisions, %d keys, %d writes failed so far",
                *(number + 1, revisions, len(view), writers.failed),
            )
            writers.resume()
    js.delete_key_value(unique)


def test_a_copy_without_keys_is_complete_without_waiting(
    bucket: jsync.KeyValue,
) -> None:
    bucket.put("a", b"1")
    for _ in range(10):  # most of the consumers are on followers
        opened = Thread(lambda: bucket.live("absent.>", timeout=600))
        wait_for(lambda opened=opened: opened.ended)  # type: ignore[misc]
        with opened.result() as view:
            assert dict(view) == {}
        with bucket.watch("absent.>", callback=Recorder()) as watch:
            wait_for(lambda watch=watch: watch.initial_done)  # type: ignore[misc]


def test_a_watch_without_leader_delays_no_callbacks(
    whole: Cluster,
    bucket: jsync.KeyValue,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watch needs the leader for the end of its initial entries, and gets no answer."""
    monkeypatch.setattr(watching, "INFO_TIMEOUT", LONG)
    for number in range(100):
        bucket.put(f"k.{number}")
    leader = whole.stream_leader(f"KV_{bucket.bucket}")
    rest = [server for server in whole.servers if server is not leader]
    opened, seen, got = threading.Event(), Recorder(), Recorder()

    def on_entry(entry: jsync.Entry) -> None:
        assert opened.wait(LONG)
        seen(entry)

    with jsync.connect(rest[0].url, callback_threads=1, allow_reconnect=False) as nc:
        js = nc.jetstream(timeout=10)
        nc.subscribe(f"{unique}.other", callback=got)
        watch = js.key_value(bucket.bucket).watch(callback=on_entry)
        wait_for(lambda: watch._changes.pending >= 99)
        try:
            leader.pause()
            rest[1].pause()
            opened.set()
            for _ in range(100):
                seen.get()
            for number in range(20):
                nc.publish(f"{unique}.other", b"%d" % number)
                assert got.get().data == b"%d" % number
        finally:
            leader.resume()
            rest[1].resume()
        whole.wait_until_ready()
        assert watch.wait_initial(LONG)
        watch.stop()
