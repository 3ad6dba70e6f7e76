"""Tests of reads to the end of replicated streams: servers that are behind end none of them."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pyarrow
import pytest

import jsync
from jsync import errors

from ..matrix.lines import binary_of
from ..support.connection_faults import Events, connect
from ..support.servers import Cluster, wait_for
from ..support.threads import LONG, Recorder, Thread
from .test_ordered import host, with_retries

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync.server import LocalServer

    from ..support.routed_cluster import RoutedCluster

pytestmark = pytest.mark.cluster

KEYS = 300


def follower(cluster: Cluster, stream: str) -> LocalServer:
    """Return a server that leads neither the stream nor JetStream."""
    leaders = cluster.stream_leader(stream), cluster.meta_leader()
    return next(server for server in cluster.servers if server not in leaders)


# Each reads everything to the end, and returns the numbers of the values.


def by_messages(stream: jsync.Stream, bucket: jsync.KeyValue) -> list[int]:
    with stream.ordered_consumer().messages(until_end=True) as messages:
        return [int(msg.data[:8]) for msg in messages]


def by_filter(stream: jsync.Stream, bucket: jsync.KeyValue) -> list[int]:
    """The end is behind the last message that matches."""
    consumer = stream.ordered_consumer(filter_subjects=f"$KV.{bucket.bucket}.k.>")
    with consumer.messages(until_end=True) as messages:
        return [int(msg.data[:8]) for msg in messages]


def by_fetch(stream: jsync.Stream, bucket: jsync.KeyValue) -> list[int]:
    found: list[int] = []
    with stream.ordered_consumer() as consumer:
        while True:
            with consumer.fetch_nowait(100) as batch:
                some = [int(msg.data[:8]) for msg in batch]
                assert batch.error is None
            found += some
            if not some:
                return found


def by_arrow(stream: jsync.Stream, bucket: jsync.KeyValue) -> list[int]:
    table = pyarrow.table(stream.read_arrow(columns=["data"]))
    return [int(data[:8]) for data in table["data"].to_pylist()]


def by_get_messages(stream: jsync.Stream, bucket: jsync.KeyValue) -> list[int]:
    return [int(message.data[:8]) for message in stream.get_messages()]


def by_last_messages(stream: jsync.Stream, bucket: jsync.KeyValue) -> list[int]:
    return [int(m.data[:8]) for m in stream.get_last_messages(f"$KV.{bucket.bucket}.>")]


def by_watch(stream: jsync.Stream, bucket: jsync.KeyValue) -> list[int]:
    with bucket.watch() as watch:
        return [int(entry.value[:8]) for entry in watch.initial()]


def by_all_revisions(stream: jsync.Stream, bucket: jsync.KeyValue) -> list[int]:
    with bucket.watch(include_history=True) as watch:
        return [int(entry.value[:8]) for entry in watch.initial()]


def by_keys(stream: jsync.Stream, bucket: jsync.KeyValue) -> list[int]:
    return [int(key.split(".")[1]) for key in list(bucket.keys())]


def by_live(stream: jsync.Stream, bucket: jsync.KeyValue) -> list[int]:
    with bucket.live() as view:
        return [int(value[:8]) for value in view.values()]


READS: tuple[Callable[[jsync.Stream, jsync.KeyValue], list[int]], ...] = (
    *(by_messages, by_filter, by_fetch, by_arrow, by_get_messages, by_last_messages),
    *(by_watch, by_all_revisions, by_keys, by_live),
)


def test_a_follower_that_is_behind_shortens_no_read(
    routed: RoutedCluster, unique: str
) -> None:
    stream = f"KV_{unique}"
    with connect(routed.urls, Events()) as nc:
        js = nc.jetstream(timeout=10)
        with_retries(lambda: js.create_key_value(bucket=unique, replicas=3))
        late = follower(routed, stream)
        group = js.stream(stream).cached_info.cluster
        assert group is not None
        assert group.raft_group is not None
        awake = next(server for server in routed.servers if server is not late)
        with (
            connect(awake.url, Events()) as writer,
            connect(awake.url, Events()) as other,
            connect(late.url, Events()) as behind,
        ):
            parts = [
                (
                    near.jetstream(timeout=30).stream(stream),
                    near.jetstream(timeout=30).key_value(unique),
                )
                for near in (other, behind)
            ]
            begun = time.monotonic()
            with routed.behind(late, group.raft_group):
                with writer.jetstream(timeout=10).publisher() as publisher:
                    for number in range(KEYS):
                        publisher.publish(f"$KV.{unique}.k.{number}", b"%08d" % number)
                reading = [
                    (read, Thread(read, *parts[number % 2]))
                    for number in range(4)
                    for read in READS
                ]
                time.sleep(max(0.0, 3.0 - (time.monotonic() - begun)))
            for read, thread in reading:
                assert thread.result() == list(range(KEYS)), read.__name__
        with_retries(lambda: delete_bucket(js, unique))


def test_a_lagging_follower_hides_no_last_change(
    routed: RoutedCluster, unique: str
) -> None:
    stream = f"KV_{unique}"
    with connect(routed.urls, Events()) as nc:
        js = nc.jetstream(timeout=10)
        bucket = with_retries(lambda: js.create_key_value(bucket=unique, replicas=3))
        acked = [bucket.put("k", b"")]
        numbers = [bucket.put("n.0", b"")]
        late = follower(routed, stream)
        group = js.stream(stream).cached_info.cluster
        assert group is not None
        assert group.raft_group is not None
        filters = f"$KV.{unique}.n.>"
        over = threading.Event()

        def write() -> None:
            with connect(routed.stream_leader(stream).url, Events()) as writer:
                target = writer.jetstream(timeout=10).key_value(unique)
                while not over.is_set():
                    acked.append(target.put("k", b""))
                    numbers.append(target.put(f"n.{len(numbers)}", b""))

        def read() -> None:
            with connect(routed.urls, Events()) as reader:
                source = reader.jetstream(timeout=10).key_value(unique)
                while not over.is_set():
                    before = acked[-1]
                    assert source.history("k")[-1].revision >= before

        def fetch() -> None:
            with connect(routed.urls, Events()) as reader:
                source = reader.jetstream(timeout=0.2).bind_stream(stream)
                while not over.is_set():
                    before = numbers[-1]
                    with (
                        contextlib.suppress(errors.TimeoutError),
                        source.ordered_consumer(filter_subjects=filters) as consumer,
                        consumer.fetch_nowait(10_000) as batch,
                    ):
                        last = [msg.metadata.stream_sequence for msg in batch]
                        assert batch.error is not None or last[-1] >= before

        with routed.behind(late, group.raft_group):
            threads = [Thread(write), Thread(fetch), *(Thread(read) for _ in range(4))]
            over.wait(2.5)
            over.set()
        for thread in threads:
            thread.result()
        with_retries(lambda: delete_bucket(js, unique))


def test_a_cut_off_live_copy_is_not_current(routed: RoutedCluster, unique: str) -> None:
    stream = f"KV_{unique}"
    with connect(routed.urls, Events()) as nc:
        js = nc.jetstream(timeout=10)
        bucket = with_retries(lambda: js.create_key_value(bucket=unique, replicas=3))
        bucket.put("a", b"0")
        cut = follower(routed, stream)
        awake = [server.url for server in routed.servers if server is not cut]
        with connect(awake, Events()) as writer, connect(cut.url, Events()) as reader:
            source = writer.jetstream(timeout=5).key_value(unique)
            target = reader.jetstream(timeout=5).key_value(unique)
            view = hosted_by(cut, target, stream, routed)
            with view:
                wait_for(lambda: view.is_current)
                acked: list[tuple[float, int]] = []
                missing: list[float] = []
                with routed.cut_off(cut):
                    until = time.monotonic() + 7.5
                    while time.monotonic() < until:
                        with contextlib.suppress(errors.Error):
                            revision = source.put("a", b"%d" % len(acked), timeout=1)
                            acked.append((time.monotonic(), revision))
                        now, age = time.monotonic(), view.age
                        missing = [at for at, seq in acked if seq > view.revision]
                        assert age >= now - min(missing, default=now) - 0.1
                        time.sleep(0.05)
                    assert missing, "the copy was not cut off"
                    assert not view.is_current
                view.wait_for(acked[-1][1], LONG)
                wait_for(lambda: view.is_current)
                assert view["a"] == source.get("a").value
        with_retries(lambda: delete_bucket(js, unique))


def delete_bucket(js: jsync.JetStream, bucket: str) -> None:
    """Delete a bucket, which is gone already if the first reply was lost."""
    with contextlib.suppress(errors.BucketNotFoundError):
        js.delete_key_value(bucket)


def hosted_by(
    server: LocalServer, bucket: jsync.KeyValue, stream: str, cluster: Cluster
) -> jsync.LiveView:
    """Return a live copy whose consumer is on that server."""
    while True:
        view = bucket.live(on_error=Recorder())
        if host(cluster, stream) is server:
            return view
        view.stop()
        wait_for(lambda: not consumers(cluster, stream))


def consumers(cluster: Cluster, stream: str) -> list[str]:
    with connect(cluster.urls, Events()) as nc:
        return list(nc.jetstream().consumer_names(stream))


@pytest.mark.bulk
def test_an_old_cluster_is_read_to_its_end() -> None:
    with (
        Cluster(binary=binary_of("2.10")) as cluster,
        jsync.connect(cluster.urls) as nc,
    ):
        js = nc.jetstream(timeout=10)
        made: list[jsync.KeyValue] = []

        def create() -> bool:
            # After their start, servers of 2.10 take some peers for offline.
            with contextlib.suppress(errors.Error):
                made.append(js.create_key_value(bucket="B", replicas=3))
            return bool(made)

        wait_for(create, 60)
        (kv,) = made
        for number in range(5):
            kv.put(f"k{number}", b"v")
        wait_for(lambda: cluster.stream_leader("KV_B") is not None)
        assert sorted(kv.keys()) == [f"k{number}" for number in range(5)]
        with js.ordered_consumer("KV_B").messages(until_end=True) as messages:
            assert len(list(messages)) == 5
        with kv.watch() as watch:
            assert len(list(watch.initial())) == 5
