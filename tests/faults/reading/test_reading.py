"""Everything that is read to an end is complete, while servers fail and others write."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

from jsync import errors
from jsync.jetstream.watching.freshness import MAX_AGE
from jsync.server import LocalServer

from ...cluster.test_ordered import with_retries
from ...support.connection_faults import Events, connect
from ...support.routed_cluster import RoutedCluster
from ...support.threads import LONG, Recorder, Thread
from .model import Model

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    import jsync

    from ...support.campaign import Campaign
    from ...support.servers import Cluster

KEPT = [f"kept.{number}" for number in range(60)]


class World:
    """The clients of one campaign: writers, readers, and watchers of live copies."""

    def __init__(self, urls: list[str], replicas: int, campaign: Campaign) -> None:
        self.urls = urls
        self.replicas = replicas
        self.campaign = campaign
        self.model = Model(KEPT)
        self.over = threading.Event()
        self.own: dict[str, set[int]] = {}
        """What readers have stored to read it, by its subject."""
        self._threads: list[Thread[None]] = []

    def prepare(self, js: jsync.JetStream) -> None:
        with_retries(
            lambda: js.create_key_value(bucket="B", replicas=self.replicas, history=1)
        )
        with_retries(
            lambda: js.create_stream(
                name="LOG",
                subjects=["log.>"],
                num_replicas=self.replicas,
                allow_direct=True,
            )
        )
        # A mirror answers direct gets of the log, too, and has only some of its messages.
        mirror = {"name": "LOG", "filter_subject": "log.a"}
        with_retries(
            lambda: js.create_stream(name="PART", mirror=mirror, mirror_direct=True)
        )
        bucket = with_retries(partial(js.key_value, "B"))
        for key in KEPT:
            revision = with_retries(partial(bucket.put, key))
            self.model.put(key, revision)

    def start(self, name: str, work: Callable[[World, random.Random], None]) -> None:
        rng = self.campaign.random(f"{name}-{len(self._threads)}")
        self._threads.append(Thread(self._run, name, work, rng))

    def _run(
        self,
        name: str,
        work: Callable[[World, random.Random], None],
        rng: random.Random,
    ) -> None:
        try:
            work(self, rng)
        except BaseException as error:
            self.model.wrong(f"{name} ended: {error!r}")
            raise

    def stop(self) -> None:
        self.over.set()
        for thread in self._threads:
            try:
                error = thread._future.exception(LONG)
            except TimeoutError:
                self.model.wrong("a read did not end")
            else:
                if error is not None:
                    raise error

    def judge(self) -> None:
        print(self.model.counts)  # noqa: T201 (pytest shows it if the test fails)
        assert not self.model.faults, "\n".join(self.model.faults[:20])


# Writers ------------------------------------------------------------------------------


def put_keys(world: World, rng: random.Random) -> None:
    """Replace keys that always have a value, one of them most of the time."""
    with connect(world.urls, Events()) as nc:
        bucket = with_retries(partial(nc.jetstream(timeout=2).key_value, "B"))
        while not world.over.is_set():
            key = KEPT[0] if rng.random() < 0.3 else rng.choice(KEPT)
            with contextlib.suppress(errors.Error):
                world.model.put(key, bucket.put(key, b"x"))
            # Bursts, and time for the readers.
            world.over.wait(rng.choice([0, 0, 0.005, 0.05]))


def change_keys(world: World, rng: random.Random) -> None:
    """Put, delete and purge keys that come and go."""
    with connect(world.urls, Events()) as nc:
        bucket = with_retries(partial(nc.jetstream(timeout=2).key_value, "B"))
        for number in itertools.count():
            if world.over.is_set():
                return
            key = f"gone.{rng.randrange(20)}"
            change = rng.choice([bucket.put, bucket.put, bucket.delete, bucket.purge])
            with contextlib.suppress(errors.Error):
                change(key)
            world.over.wait(0.001 if number % 50 else 0.2)


def write_log(world: World, rng: random.Random) -> None:
    with connect(world.urls, Events()) as nc:
        js = nc.jetstream(timeout=2)
        for number in itertools.count():
            if world.over.is_set():
                return
            with contextlib.suppress(errors.Error):
                ack = js.publish(f"log.{'ab'[number % 3 == 0]}", b"x", timeout=2)
                world.model.logged(ack.seq)
            if rng.random() < 0.05:
                with contextlib.suppress(errors.Error):
                    # The last messages too: a read may wait for one that is gone.
                    share = 1 - rng.random() ** 4
                    sequence = world.model.deleting(min(share, 0.999))
                    if sequence is not None:
                        js.bind_stream("LOG").delete_message(sequence, timeout=2)
            world.over.wait(0.002 if number % 100 else 0.5)


# Readers ------------------------------------------------------------------------------


def sequences(messages: Any) -> list[int]:
    return [msg.metadata.stream_sequence for msg in messages]


def read_log(js: jsync.JetStream, world: World, rng: random.Random) -> None:
    stream = js.bind_stream("LOG")
    before = world.model.stored()
    way = rng.choice(["messages", "filtered", "arrow", "get", "last", "nowait"])
    read: list[int] = []
    if way == "messages":
        consumer = stream.ordered_consumer()
        with consumer, consumer.messages(until_end=True) as messages:
            read = sequences(messages)
    elif way == "filtered":
        consumer = stream.ordered_consumer(filter_subjects=["log.a", "log.b"])
        with consumer, consumer.messages(until_end=True, max_messages=7) as messages:
            read = sequences(messages)
    elif way == "arrow":
        table = pyarrow.table(stream.read_arrow(columns=["sequence"]))
        read = table["sequence"].to_pylist()
    elif way == "get":
        read = [message.sequence for message in stream.get_messages(batch=100)]
    elif way == "last":
        # Both subjects have a message. A replica may give an older one than the last.
        subjects = rng.choice([["log.*"], ["log.a", "log.b"]])
        found = sorted(m.subject for m in stream.get_last_messages(subjects))
        if len(before) > 100 and found != ["log.a", "log.b"]:
            world.model.wrong(f"last messages of {found} only")
        world.model.count("last")
        return
    else:
        with stream.ordered_consumer() as consumer:
            while True:
                with consumer.fetch_nowait(500) as batch:
                    some = sequences(batch)
                    if batch.error is not None:
                        raise batch.error
                read += some
                if len(some) < 500:
                    break
    world.model.judge_log(way, before, read)
    world.model.count(way)


def read_own_log(js: jsync.JetStream, world: World, rng: random.Random) -> None:
    """Read a subject of this thread, to which it has published a moment ago."""
    subject = f"log.own.{threading.get_ident()}"
    if rng.random() < 0.5:
        subject = f"log.own.{rng.getrandbits(64)}"
    stored = world.own.setdefault(subject, set())
    for _ in range(rng.randint(1, 3)):
        stored.add(js.publish(subject, b"x", timeout=2).seq)
    stream = js.bind_stream("LOG")
    way = rng.choice(["messages", "arrow", "get", "nowait"])
    if way == "messages":
        consumer = stream.ordered_consumer(filter_subjects=subject)
        with consumer, consumer.messages(until_end=True) as messages:
            read = sequences(messages)
    elif way == "arrow":
        batches = stream.read_arrow(columns=["sequence"], filter_subjects=subject)
        read = pyarrow.table(batches)["sequence"].to_pylist()
    elif way == "get":
        read = [message.sequence for message in stream.get_messages(subject)]
    else:
        with (
            stream.ordered_consumer(filter_subjects=subject) as consumer,
            consumer.fetch_nowait(len(stored) + 9) as batch,
        ):
            read = sequences(batch)
            if batch.error is not None:
                raise batch.error
    world.model.judge_log(f"own {way}", stored, read)
    world.model.count(f"own {way}")


def read_own_keys(js: jsync.JetStream, world: World, rng: random.Random) -> None:
    """Read keys that were put a moment ago, of which one was deleted behind the others."""
    bucket = js.key_value("B")
    prefix = f"own.{rng.getrandbits(64)}"
    stored = {
        key: bucket.put(key, b"x") for key in (f"{prefix}.{number}" for number in "abc")
    }
    for _ in range(rng.randrange(3)):
        stored[f"{prefix}.b"] = bucket.put(f"{prefix}.b", b"x")
    bucket.delete(f"{prefix}.c")
    deleted = stored.pop(f"{prefix}.c")
    read: dict[str, int]
    way = rng.choice(["keys", "history", "values", "live", "next"])
    if way == "keys":
        read = {key: stored.get(key, 0) for key in bucket.keys(f"{prefix}.>")}
    elif way == "history":
        stored = {f"{prefix}.b": stored[f"{prefix}.b"]}
        read = {entry.key: entry.revision for entry in bucket.history(f"{prefix}.b")}
    elif way == "live":
        with bucket.live(f"{prefix}.>", timeout=30, on_error=Recorder()) as view:
            read = {key: entry.revision for key, entry in view.entries().items()}
    else:
        options: dict[str, Any] = {"on_error": Recorder(), "ignore_deletes": True}
        with bucket.watch(f"{prefix}.>", **options) as watch:
            read = {}
            while way == "next" and not watch.initial_done:
                try:
                    entry = watch.next(LONG)
                except errors.TimeoutError:
                    world.model.wrong("own next: the initial entries do not end")
                    return
                read[entry.key] = entry.revision
            read |= {entry.key: entry.revision for entry in watch.initial()}
    if way != "live":
        # A replica that is behind gives a value, and later the marker, which is left out.
        read.pop(f"{prefix}.c", None)
    if read != stored:
        world.model.wrong(f"own {way}: {read}, not {stored}, {deleted} deleted")
    world.model.count(f"own {way}")
    js.bind_stream("KV_B").purge(subject=f"$KV.B.{prefix}.>")


def read_bucket(js: jsync.JetStream, world: World, rng: random.Random) -> None:
    bucket = js.key_value("B")
    before = world.model.now()
    way = rng.choice(["keys", "some keys", "watch", "values", "all", "live", "history"])
    judge = partial(world.model.judge_entries, way, before)
    if way == "keys":
        world.model.judge_keys(way, list(bucket.keys()))
    elif way == "some keys":
        world.model.judge_keys(way, list(bucket.keys("kept.>")))
    elif way == "live":
        with bucket.live(timeout=30, on_error=Recorder()) as view:
            held = {key: entry.revision for key, entry in view.entries().items()}
        world.model.judge_revisions(way, before, held)
    elif way == "history":
        key = rng.choice(KEPT)
        found = [(entry.key, entry.revision) for entry in bucket.history(key)]
        world.model.judge_entries(way, {key: before[key]}, found)
    else:
        options: dict[str, Any] = {"on_error": Recorder()}
        if way == "values":
            options["ignore_deletes"] = True
        if way == "all":
            options["include_history"] = True
        with bucket.watch(**options) as watch:
            entries = [(entry.key, entry.revision) for entry in watch.initial()]
            assert watch.initial_done
            if way == "all":
                # What is replaced meanwhile follows: then the watch goes on without gap.
                while any(dict(entries).get(k, 0) < r for k, r in before.items()):
                    entry = watch.next(LONG)
                    entries.append((entry.key, entry.revision))
        judge(entries)
    world.model.count(way)


READS = (read_log, read_bucket, read_own_log, read_own_log, read_own_keys)


def read(urls: list[str]) -> Callable[[World, random.Random], None]:
    """Return a reader that is connected to these servers."""

    def work(world: World, rng: random.Random) -> None:
        while not world.over.is_set():
            with (
                contextlib.suppress(errors.Error),
                connect(urls, Events(), connect_timeout=2) as nc,
            ):
                js = nc.jetstream(timeout=rng.choice([2, 5]))
                for _ in range(10):
                    if world.over.is_set():
                        return
                    once = rng.choice(READS)
                    begun = time.monotonic()
                    try:
                        once(js, world, rng)
                    except (errors.Error, OSError) as error:  # pyarrow raises OSError
                        # It has ended, and has said that it is not complete.
                        world.model.count(type(error).__name__)
                        world.over.wait(0.05)
                    if time.monotonic() - begun > LONG:
                        world.model.wrong(f"{once.__name__} took long")

    return work


def watch_copies(urls: list[str]) -> Callable[[World, random.Random], None]:
    """Return a watcher of a live copy, connected to these servers."""

    def work(world: World, rng: random.Random) -> None:
        while not world.over.is_set():
            with (
                contextlib.suppress(errors.Error),
                connect(urls, Events(), connect_timeout=2) as nc,
                nc.jetstream(timeout=2)
                .key_value("B")
                .live(on_error=Recorder()) as view,
            ):
                until = time.monotonic() + 5 + 10 * rng.random()
                while time.monotonic() < until and not world.over.is_set():
                    world.model.judge_live(urls[0], view, MAX_AGE)
                    world.model.count("current" if view.is_current else "not current")
                    world.over.wait(0.01)

    return work


# Faults -------------------------------------------------------------------------------


def stream_leader(cluster: Cluster, stream: str) -> LocalServer | None:
    with contextlib.suppress(TimeoutError, OSError):
        return cluster.stream_leader(stream, timeout=5)
    return None


def step_down(urls: list[str], stream: str) -> None:
    with contextlib.suppress(errors.Error), connect(urls, Events()) as nc:
        nc.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", timeout=1)


def raft_group(urls: list[str], stream: str) -> str:
    with connect(urls, Events()) as nc:
        reply = json.loads(nc.request(f"$JS.API.STREAM.INFO.{stream}", timeout=2).data)
    return str(reply["cluster"]["raft_group"])


FAULTS = ["behind", "behind", "freeze", "freeze leader", "cut", "cut leader", "leader"]


def one_fault(
    fault: str, cluster: RoutedCluster, rng: random.Random, over: threading.Event
) -> None:
    streams = rng.sample(["KV_B", "LOG"], 2)
    leaders = [stream_leader(cluster, stream) for stream in streams]
    victim = rng.choice([s for s in cluster.servers if s not in leaders])
    if "leader" in fault:
        victim = leaders[0] or victim
    if fault == "behind":
        with contextlib.suppress(errors.Error):
            groups = [raft_group(cluster.urls, stream) for stream in streams]
            with cluster.behind(victim, *groups):
                over.wait(rng.uniform(1.0, 3.0))
    elif fault == "freeze":
        victim.pause()
        over.wait(rng.uniform(0.2, 3.0))
        victim.resume()
    elif fault == "freeze leader":
        victim.pause()
        over.wait(rng.choice([0.5, 3.0, 8.0]))
        victim.resume()
    elif fault.startswith("cut"):
        with cluster.cut_off(victim):
            over.wait(rng.choice([1.0, 8.0]))
    else:
        step_down(cluster.urls, streams[0])


@pytest.fixture
def routed() -> Iterator[RoutedCluster]:
    with RoutedCluster() as cluster:
        yield cluster


def test_reads_to_the_end_are_complete_beside_writers(campaign: Campaign) -> None:
    with LocalServer() as server:
        world = World([server.url], 1, campaign)
        with connect(server.url, Events()) as nc:
            world.prepare(nc.jetstream())
        for writer in (put_keys, put_keys, change_keys, write_log):
            world.start("writer", writer)
        for _ in range(3):
            world.start("reader", read([server.url]))
        world.start("watcher", watch_copies([server.url]))
        for _ in campaign.rounds():
            world.over.wait(0.2)
        world.stop()
        world.judge()


def test_cluster_reads_to_the_end_are_complete(
    routed: RoutedCluster, campaign: Campaign
) -> None:
    world = World(routed.urls, 3, campaign)
    with connect(routed.urls, Events()) as nc:
        world.prepare(nc.jetstream(timeout=5))
    for writer in (put_keys, put_keys, change_keys, write_log):
        world.start("writer", writer)
    for urls in ([url] for url in routed.urls):
        world.start("reader", read(urls))
        world.start("watcher", watch_copies(urls))
    world.start("reader", read(routed.urls))
    rng = campaign.random("faults")
    faults: list[str] = []
    try:
        for _ in campaign.rounds():
            # Each fault comes, before one comes again.
            faults = faults or rng.sample(FAULTS, len(FAULTS))
            fault = faults.pop()
            one_fault(fault, routed, rng, world.over)
            world.model.count(fault)
            world.over.wait(rng.uniform(0.1, 1.0))
    finally:
        for server in routed.servers:
            server.resume()
    world.stop()
    world.judge()
