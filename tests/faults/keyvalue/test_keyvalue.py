"""Campaigns of buckets on three servers: checked changes, watches, live copies, locks, elections.

The world has writers of jsync and nats-py on the same keys, a replica that is behind, frozen or
cut off, leaders that change and die, and connections that are cut or go deaf.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.connection_faults import Events, connect
from ...support.lagging import lag
from ...support.proxy import FaultProxy, frame_filter
from ...support.servers import wait_for
from ...support.threads import Recorder, Thread
from .holders import LONG, TTL, Terms
from .model import Stored, Term, judge_key, judge_seen, judge_terms
from .writers import NatsPy, Round, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random
    from typing import Self

    from ...conftest import StartServer
    from ...support.campaign import Campaign
    from ...support.proxy import Side
    from ...support.servers import Cluster

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]


class World:
    """Three servers, proxies in front of two of them, and what may happen to them."""

    def __init__(self, cluster: Cluster, stream: str, rng: Random) -> None:
        self.cluster, self._stream, self._rng = cluster, stream, rng
        self.proxies = [FaultProxy("127.0.0.1", s.port) for s in cluster.servers[1:]]
        self._faults: list[Callable[[], object]] = [
            *(self._step_down, self._kill, self._kill_leader, self._freeze),
            *(self._freeze_leader, self._cut, self._deafen),
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self.proxies:
            proxy.close()
        self.heal()

    def client(self, number: int) -> jsync.Connection:
        """Connect to one server, and to the others if it goes: the last one by proxies."""
        urls = [server.url for server in self.cluster.servers]
        urls[1:] = [proxy.url for proxy in self.proxies]
        first = urls.pop(number % 3)
        return connect([first, *urls], Events(), randomize=False, on_error=Recorder())

    def hurt(self) -> str:
        """Have something happen, and return its name."""
        fault = self._rng.choice(self._faults)
        with contextlib.suppress(TimeoutError, errors.Error, OSError):
            fault()
        return getattr(fault, "__name__", "")

    def heal(self) -> None:
        """Wait until all servers run and are current."""
        for server in self.cluster.servers:
            if server.is_running:
                server.resume()
        self.cluster.start()
        self.cluster.wait_until_ready()

    def _leader(self) -> int:
        return self.cluster.servers.index(
            self.cluster.stream_leader(self._stream, timeout=5)
        )

    def _step_down(self) -> None:
        with self.client(0) as nc:
            nc.jetstream(timeout=3).stream(self._stream).leader_step_down()

    def _kill(self) -> None:
        server = self._rng.choice(self.cluster.servers)
        server.kill()
        time.sleep(self._rng.uniform(0, 1))
        server.start()

    def _kill_leader(self) -> None:
        server = self.cluster.servers[self._leader()]
        server.kill()
        time.sleep(self._rng.uniform(0, 1))
        server.start()

    def _freeze(self, server: int | None = None) -> None:
        """A replica that is frozen is behind when it wakes up."""
        if server is None:
            server = (self._leader() + self._rng.randrange(1, 3)) % 3
        frozen = self.cluster.servers[server]
        frozen.pause()
        time.sleep(self._rng.uniform(0.5, 3))
        frozen.resume()

    def _freeze_leader(self) -> None:
        self._freeze(self._leader())

    def _cut(self) -> None:
        for proxy in self.proxies:
            proxy.cut_after(self._rng.randrange(1, 20_000), "client")
            proxy.cut_after(self._rng.randrange(1, 20_000), "server")

    def _deafen(self) -> None:
        proxy = self._rng.choice(self.proxies)
        proxy.deaf()
        time.sleep(self._rng.uniform(0.5, 2))
        proxy.hear()


@pytest.fixture
def js(cluster: Cluster) -> Iterator[jsync.JetStream]:
    cluster.start()
    with connect([s.url for s in cluster.servers], Events()) as nc:
        yield nc.jetstream(timeout=10.0)


def stored_in(js: jsync.JetStream, bucket: str) -> dict[str, list[Stored]]:
    """Return what the leader holds of each key, read message by message."""
    stream = js.stream(f"KV_{bucket}")
    state = stream.info().state
    found: dict[str, list[Stored]] = {}
    for sequence in range(state.first_seq, state.last_seq + 1):
        with contextlib.suppress(errors.MessageNotFoundError):
            message = stream.get_message(sequence, direct=False)
            headers = message.headers
            operation = (headers and headers.get("KV-Operation")) or "PUT"
            key = message.subject.removeprefix(f"$KV.{bucket}.")
            stored = Stored(sequence, operation, message.data)
            found.setdefault(key, []).append(stored)
    return found


class Seen:
    """What a watch has given, by key."""

    def __init__(self) -> None:
        self.by_key: dict[str, list[Stored]] = {}
        self.revision = 0

    def __call__(self, entry: jsync.Entry) -> None:
        stored = Stored(entry.revision, entry.operation, entry.value)
        self.by_key.setdefault(entry.key, []).append(stored)
        self.revision = entry.revision


def test_checked_changes_are_one_history_that_all_see(
    cluster: Cluster, js: jsync.JetStream, unique: str, campaign: Campaign
) -> None:
    js.create_key_value(bucket=unique, replicas=3, history=64)
    with contextlib.ExitStack() as stack:
        world = stack.enter_context(
            World(cluster, f"KV_{unique}", campaign.random("world"))
        )
        clients = [stack.enter_context(world.client(number)) for number in range(3)]
        # Without a drain: the world may just have cut them.
        for nc in clients:
            stack.callback(nc.close)
        kvs = [nc.jetstream().key_value(unique) for nc in clients]
        nats_py = NatsPy([s.url for s in cluster.servers], unique)
        for number in campaign.rounds():
            run_round(world, js, kvs, nats_py, number, campaign)
    js.delete_key_value(unique)


def run_round(
    world: World,
    js: jsync.JetStream,
    kvs: list[jsync.KeyValue],
    nats_py: NatsPy,
    number: int,
    campaign: Campaign,
) -> None:
    now = Round(number)
    filters = f"k.{number}.>", f"p.{number}.>"
    seen = [Seen() for _ in kvs]
    with contextlib.ExitStack() as stack:
        views = [
            stack.enter_context(kv.live(*filters, on_error=Recorder(), timeout=LONG))
            for kv in kvs
        ]
        for kv, each in zip(kvs, seen, strict=True):
            watch = kv.watch(
                *filters,
                include_history=True,
                callback=each,
                on_error=Recorder(),
                timeout=LONG,
            )
            stack.enter_context(watch)
        threads = [
            Thread(write, kv, now, campaign.random((number, name)), f"jsync {name}")
            for name, kv in enumerate(kvs)
        ]
        with nats_py.writing(now, campaign.random((number, "nats-py"))):
            wait_for(lambda: now.done >= 30, LONG)
            hurts = []
            for _ in range(2):
                count = now.done
                hurts.append(world.hurt())
                wait_for(lambda count=count: now.done > count + 10, LONG)  # type: ignore[misc]
        print(f"round {number}: {hurts}, {now.done} changes")  # noqa: T201
        world.heal()
        for thread in threads:
            wait_for(lambda thread=thread: thread.ended, LONG)  # type: ignore[misc]
            thread.result()
        held = settled(js, kvs[0].bucket)
        held = {key: found for key, found in held.items() if key in now.calls}
        last = max(found[-1].revision for found in held.values())
        for view in views:
            view.wait_for(last, LONG)
        for each in seen:
            wait_for(lambda each=each: each.revision >= last, LONG)  # type: ignore[misc]
    values = {
        key: found[-1] for key, found in held.items() if found[-1].operation == "PUT"
    }
    for key, calls in now.calls.items():
        whole = key.startswith("k.")
        stored = held.get(key, [])
        judge_key(calls, stored, whole=whole)
        for each in seen:
            judge_seen(each.by_key.get(key, []), stored, whole=whole)
    for view, kv in zip(views, kvs, strict=True):
        assert {k: (e.revision, e.value) for k, e in view.entries().items()} == {
            key: (each.revision, each.value) for key, each in values.items()
        }
        assert set(kv.keys(*filters)) == values.keys()
        found = kv.get_many(values)
        assert {k: e.revision for k, e in found.items()} == {
            key: each.revision for key, each in values.items()
        }


def settled(js: jsync.JetStream, bucket: str) -> dict[str, list[Stored]]:
    """Return what the bucket holds once nothing changes: a late request may still be stored."""
    before: dict[str, list[Stored]] = {}
    while True:
        with contextlib.suppress(errors.TimeoutError, errors.ConnectionLostError):
            found = stored_in(js, bucket)
            if found == before:
                return found
            before = found
        time.sleep(0.2)


# Locks and elections ------------------------------------------------------------------


class FrozenHolder:
    """A process that holds the lock now and then, and can be frozen while it does."""

    def __init__(self, url: str, bucket: str, seed: str) -> None:
        self.terms: list[Term] = []
        self._holds = threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.keyvalue.holders", url, bucket, seed],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = Thread(self._read)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                if line == "holds\n":
                    self._holds.set()
                elif line.endswith("\n"):
                    token, first, last = line.split()
                    self.terms.append(Term(int(token), float(first), float(last)))

    def freeze(self, seconds: float) -> None:
        """Freeze it in the middle of its work, until others may have the lock."""
        self._holds.clear()
        if self._holds.wait(LONG):
            os.kill(self._process.pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        wait_for(lambda: self._reader.ended)
        self._reader.result()


def test_one_holder_and_one_leader_at_a_time(
    cluster: Cluster, js: jsync.JetStream, unique: str, campaign: Campaign
) -> None:
    """Holders are frozen, or cut off from the servers, for longer than they may hold the lock."""
    js.create_key_value(bucket=unique, replicas=3, limit_marker_ttl=60)
    # Here every key expires early, so that no lock of a longer time to live is safe.
    js.create_key_value(bucket=f"{unique}X", replicas=3, ttl=1, limit_marker_ttl=60)
    holders, leaders, expiring = Terms(), Terms(), Terms()
    rng = campaign.random("faults")
    with contextlib.ExitStack() as stack:
        world = stack.enter_context(
            World(cluster, f"KV_{unique}", campaign.random("world"))
        )
        threads = []
        lines = [
            [
                stack.enter_context(FaultProxy("127.0.0.1", s.port))
                for s in cluster.servers
            ]
            for _ in range(3)
        ]
        for number, proxies in enumerate(lines):
            urls = [proxy.url for proxy in proxies]
            nc = stack.enter_context(connect(urls, Events(), on_error=Recorder()))
            stack.callback(nc.close)
            kv = nc.jetstream(timeout=2).key_value(unique)
            for work in (holders.hold, leaders.lead):
                chosen = campaign.random((number, work.__name__))
                threads.append(Thread(work, kv, chosen, number))
            short = nc.jetstream(timeout=2).key_value(f"{unique}X")
            chosen = campaign.random((number, "expiring"))
            threads.append(Thread(expiring.hold, short, chosen, number, 30))
        frozen = FrozenHolder(cluster.servers[0].url, unique, campaign.seed)
        stack.callback(frozen.end)

        def cut_off_the_holder() -> None:
            """It believes that it holds the lock, and cannot renew it."""
            proxies = lines[holders.holder or 0]
            for proxy in proxies:
                proxy.deaf()
            time.sleep(rng.uniform(TTL, 2 * TTL))
            for proxy in proxies:
                proxy.hear()

        def freeze_a_holder() -> None:
            frozen.freeze(rng.uniform(TTL, 2 * TTL))

        faults = [cut_off_the_holder, freeze_a_holder, world.hurt]
        for number in campaign.rounds():
            fault = faults[number % len(faults)]
            hurt = fault() or fault.__name__
            for terms in (holders, leaders):
                count = len(terms.all)
                wait_for(lambda t=terms, c=count: len(t.all) > c + 1, LONG)  # type: ignore[misc]
            print(f"round {number}: {hurt}, {len(holders.all)}, {len(leaders.all)}")  # noqa: T201
        world.heal()
        for terms in (holders, leaders, expiring):
            terms.over.set()
        for thread in threads:
            wait_for(lambda thread=thread: thread.ended, LONG)  # type: ignore[misc]
            thread.result()
        frozen.end()
    holders.all += frozen.terms
    for terms in (holders, leaders):
        assert len(terms.all) > 2
        judge_terms(terms.all)
    judge_terms(expiring.all)
    for bucket in (unique, f"{unique}X"):
        js.delete_key_value(bucket)


class Renewals:
    """A hook that loses every second answer to a renewal of a lock."""

    def __init__(self) -> None:
        self.lost = 0
        self.passed = 0

    def __call__(self, frame: bytes, to: Side) -> bool:
        if to != "client" or b'"stream":"KV_' not in frame or b'"error"' in frame:
            return True
        if self.lost > self.passed:
            self.passed += 1
            return True
        self.lost += 1
        return False


def test_a_lock_outlives_lost_answers(
    own_server: StartServer, unique: str, campaign: Campaign
) -> None:
    """A server that is behind has the marker of a former holder."""
    server = own_server()
    with contextlib.ExitStack() as stack:
        js = stack.enter_context(connect(server.url, Events())).jetstream()
        kv = js.create_key_value(bucket=unique, limit_marker_ttl=60)
        names = [f"lock.{number}" for number in range(6)]
        for name in names:
            with kv.lock(name, ttl=TTL):
                pass
        lag(js, unique)
        lost = Recorder()
        locks, losses = [], []
        for name in names:
            proxy = stack.enter_context(FaultProxy("127.0.0.1", server.port))
            nc = stack.enter_context(connect(proxy.url, Events()))
            lock = nc.jetstream().key_value(unique).lock(name, ttl=6, on_lost=lost)
            assert lock.acquire(LONG)
            stack.callback(lock.release)
            locks.append(lock)
            losses.append(Renewals())
            proxy.rewrite(frame_filter(losses[-1]))
            stack.callback(proxy.rewrite, None)
        tokens = [lock.token for lock in locks]
        for _ in campaign.rounds():
            counts = [each.passed for each in losses]
            wait_for(
                lambda counts=counts: all(  # type: ignore[misc]
                    each.passed > count or not lock.held
                    for each, count, lock in zip(losses, counts, locks, strict=True)
                ),
                LONG,
            )
            assert [lock.token for lock in locks] == tokens
        assert not lost.waiting
