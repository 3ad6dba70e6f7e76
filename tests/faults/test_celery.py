"""Celery with real workers, while connections, the broker and the workers break.

The judge knows each task whose call returned. It compares them with the runs that the tasks
have noted, and with their results.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from celery import chain, chord
from kombu import pools
from kombu.exceptions import OperationalError

import jsync
from jsync.errors import StreamNotFoundError
from jsync.integrations.kombu.bindings import Binding

from ..support.proxy import FaultProxy
from ..support.servers import wait_for
from .celery_tasks import ACK_WAIT, QUEUES, make_app

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ..conftest import StartServer
    from ..support.campaign import Campaign
    from ..support.proxy import Side

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
START_SECONDS = 120
STALL_SECONDS = 60
"""Within this time a task runs or a message leaves its queue, until none is left."""
SETTLE_SECONDS = 300
"""Within this time after the last fault each task has run."""
MAX_BACKLOG = 200
"""The tasks that wait at most, so that a slow machine can run them in time."""
SHUTDOWN_SECONDS = 90
"""A process of a pool waits half a minute for its parent to have read its last results."""
PRODUCERS = 2
OUTAGE = ACK_WAIT / 6
PREFETCH = 8
"""The tasks that both workers hold at most: two processes with twice as many tasks each."""
STEPS: list[tuple[Side, bytes]] = [
    ("server", b"+ACK"),
    ("server", b"$KV.shop-results."),
    ("server", b"CONSUMER.MSG.NEXT.shop-"),
    ("client", b'"stream":"shop-'),
    ("client", b'"stream":"KV_shop-results"'),
]
"""Text of what is sent in a step, and where to: an ack, a result, a pull, the answers to publishes."""
POOLS = ("prefork", "threads")


class Task:
    """A task whose call returned, or may have been sent."""

    def __init__(self, name: str, queue: str, began: float, *, certain: bool) -> None:
        self.name = name
        self.queue = queue
        self.began = began
        self.certain = certain


class Worker:
    """A worker of Celery, and the processes of its pool."""

    def __init__(self, pool: str, url: str, runs: Path, log: Path) -> None:
        self.pool = pool
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-m",
                        "celery",
                        "-A",
                        "tests.faults.celery_tasks",
                    ),
                    *("worker", "-P", pool, "-c", "2", "-n", f"{pool}@here"),
                    *("-l", "INFO", "--without-gossip", "--without-mingle"),
                ],
                cwd=ROOT,
                env=os.environ | {"CAMPAIGN_URL": url, "CAMPAIGN_RUNS": str(runs)},
                start_new_session=True,
                stdout=out,
                stderr=out,
            )

    @property
    def text(self) -> str:
        return self.log.read_text()

    def check(self) -> None:
        """Fail if the worker has ended, although nobody told it to."""
        code = self._process.poll()
        assert code is None, f"the worker with {self.pool} ended by itself with {code}"

    def kill(self) -> None:
        """SIGKILL for all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(SHUTDOWN_SECONDS)

    def kill_child(self, chosen: random.Random) -> None:
        """SIGKILL for a process of the pool."""
        pid = self._process.pid
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if children:
                os.kill(int(chosen.choice(children)), signal.SIGKILL)

    def shut_down(self) -> None:
        """A warm shutdown. It is bounded, also while the broker is away."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(SHUTDOWN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR1)  # Celery logs its stacks
            time.sleep(2)
            raise
        finally:
            self.kill()


class World:
    """A broker, a proxy on the way to it, workers and producers."""

    def __init__(
        self, broker: LocalServer, proxy: FaultProxy, campaign: Campaign, path: Path
    ) -> None:
        self.broker = broker
        self.proxy = proxy
        self.campaign = campaign
        self.runs = path / "runs"
        self.runs.touch()
        self.path = path
        url = proxy.url.replace("nats://", "jetstream://") + "/shop"
        self.url = url
        self.app = make_app(url)
        # Two threads that use these for the first time may make two of each, and then
        # nobody closes the connection of one.
        assert self.app.producer_pool is not None
        assert self.app.backend is not None
        self.declare_otherwise()
        self.workers = [self.start(pool) for pool in POOLS]
        self.tasks: list[Task] = []
        self.results: list[tuple[Any, object]] = []
        self.early = "run_early"
        """A task that is acknowledged before it runs: kills would lose it."""
        self.strange: list[Exception] = []
        self.faults: Counter[str] = Counter()
        self.victims = 0.0
        """When the queue `victim` was last deleted."""
        self._over = threading.Event()
        self._producers = [
            threading.Thread(target=self._produce, args=(number,))
            for number in range(PRODUCERS)
        ]

    def start(self, pool: str) -> Worker:
        return Worker(pool, self.url, self.runs, self.path / f"{pool}.log")

    def shut_down(self, place: int, chosen: random.Random) -> None:
        """End a worker, perhaps during an outage, and start another one."""
        back = threading.Timer(chosen.uniform(0, ACK_WAIT), self.proxy.accept)
        if chosen.random() < 0.7:
            self.proxy.refuse()
            self.proxy.cut()
            back.start()
        try:
            self.workers[place].shut_down()
        finally:
            back.cancel()
            self.proxy.accept()
        self.workers[place] = self.start(POOLS[place])

    def declare_otherwise(self) -> None:
        """An older program has declared an exchange with another type."""
        with jsync.connect(self.broker.url) as nc:
            bucket = nc.jetstream().create_key_value(bucket="shop-bindings")
            for queue, key in (("", ""), ("routed", "work.#")):
                old = Binding("work", "direct", key, queue)
                bucket.put(old.key, json.dumps(old).encode())

    def cut_at(self, chosen: random.Random) -> None:
        """Lose what is sent in a step, and all connections with it."""
        to, text = chosen.choice(STEPS)
        done = threading.Event()

        def hook(data: bytes, side: Side) -> bytes:
            if side != to or text not in data or done.is_set():
                return data
            done.set()
            self.proxy.cut()
            return b""

        self.proxy.rewrite(hook)
        done.wait(OUTAGE)
        self.proxy.rewrite(None)

    def check_prefetch(self) -> None:
        """Another worker gets what these may not hold, while they are busy."""
        gate = self.path / "gate"
        names = [f"prefetch-{number}" for number in range(PREFETCH + 4)]
        for number, name in enumerate(names):
            queue = QUEUES[number % 3].name
            more = {"routing_key": "work.to.do"} if queue == "routed" else {}
            self.app.send_task("hold", (name, str(gate)), queue=queue, **more)

        def begun() -> int:
            return len(set(names) & set(self.counts()))

        wait_for(lambda: begun() == PREFETCH / 2, STALL_SECONDS)
        free: list[jsync.JetStreamMsg] = []
        with jsync.connect(self.broker.url) as nc:
            js = nc.jetstream()
            streams = [js.stream(f"shop-{each.name}") for each in QUEUES[:3]]
            consumers = [each for stream in streams for each in stream.consumers()]

            def are_free() -> bool:
                for consumer in consumers:
                    free.extend(consumer.fetch_nowait(1))
                return len(free) >= 4

            with contextlib.suppress(TimeoutError):
                wait_for(are_free, STALL_SECONDS)
            for msg in free:
                msg.nak()
        assert len(free) >= 4, "the workers hold more than they may"
        gate.touch()
        wait_for(lambda: begun() == len(names), STALL_SECONDS)

    def delete_victim(self) -> None:
        """Another client deletes a queue, with its tasks and its bindings."""
        with jsync.connect(self.broker.url) as nc:
            js = nc.jetstream()
            bindings = js.key_value("shop-bindings")
            for key in list(bindings.keys()):
                if json.loads(bindings.get(key).value)[-1] == "victim":
                    bindings.delete(key)
            with contextlib.suppress(StreamNotFoundError):
                js.delete_stream("shop-victim")
        self.victims = time.monotonic()

    def wait_until_ready(self) -> None:
        def are_ready() -> bool:
            self.check_workers()
            return all(" ready." in worker.text for worker in self.workers)

        wait_for(are_ready, START_SECONDS)

    def check_workers(self) -> None:
        for worker in self.workers:
            worker.check()

    # Producers ------------------------------------------------------------------------

    def begin(self) -> None:
        for producer in self._producers:
            producer.start()

    def stop_producing(self) -> None:
        self._over.set()
        for producer in self._producers:
            producer.join(STALL_SECONDS)
            assert not producer.is_alive(), "a call of a task hangs"

    def _produce(self, number: int) -> None:
        chosen = self.campaign.random(f"producer {number}")
        count = 0
        while not self._over.is_set():
            count += 1
            while len(self.missing()) > MAX_BACKLOG and not self._over.wait(0.5):
                pass
            try:
                self._call(chosen, f"{number}-{count}")
            except Exception as error:  # noqa: BLE001 (the judge looks at it)
                self.strange.append(error)
                break
            self._over.wait(chosen.uniform(0.0, 0.05))
        self.app.backend.close()

    def _call(self, chosen: random.Random, name: str) -> None:
        kind = chosen.choice(["task"] * 7 + ["chain", "chord", "chord"])
        queue = "plain"
        began = time.monotonic()
        names = [name] if kind == "task" else [f"{name}.{part}" for part in range(3)]
        run = self.app.signature("run")
        value: object
        try:
            if kind == "task":
                queue = chosen.choice(["plain", "ranked", "routed", "victim"])
                result, value = self._send(chosen, queue, name), name
            elif kind == "chain":
                steps = [run.clone((each,)).set(immutable=True) for each in names]
                result, value = chain(*steps).apply_async(), names[-1]
            else:
                value, parts = names, [run.clone((each, 0.1)) for each in names]
                names = [*names, f"{name}.body"]
                result = chord(parts)(self.app.signature("total", (f"{name}.body",)))
        except OperationalError:
            self.tasks += [Task(each, queue, began, certain=False) for each in names]
            return
        self.tasks += [Task(each, queue, began, certain=True) for each in names]
        if queue != "victim":
            self.results.append((result, value))

    def _send(self, chosen: random.Random, queue: str, name: str) -> Any:
        options: dict[str, Any] = {"queue": queue}
        if queue == "ranked":
            options["priority"] = chosen.randrange(4)
        if queue == "routed":
            options["routing_key"] = "work.to.do"
        if queue == "victim" and chosen.random() < 0.5:
            options["routing_key"] = "victim.of.another"
        if chosen.random() < 0.2:
            options["countdown"] = chosen.uniform(0.1, 1.0)
        seconds = chosen.choice([0.0, 0.0, 0.0, 0.05, 0.3])
        task = chosen.choice(["run", "run", self.early])
        return self.app.send_task(task, (name, seconds), **options)

    # The judge ------------------------------------------------------------------------

    def counts(self) -> Counter[str]:
        return Counter(self.runs.read_text().splitlines())

    def missing(self) -> list[Task]:
        """The tasks that have to run and have not."""
        ran = self.counts()
        return [
            task
            for task in self.tasks
            if task.certain
            and not ran[task.name]
            and (task.queue != "victim" or task.began > self.victims)
        ]

    def is_settled(self) -> bool:
        return not self.missing() and self.stored() == 0

    def settle(self) -> None:
        """Wait for as long as tasks run, or leave their queues."""
        end = time.monotonic() + SETTLE_SECONDS
        before, stalls = (-1, -1), end
        while not self.is_settled() and time.monotonic() < min(end, stalls):
            self.check_workers()
            now = self.runs.stat().st_size, self.stored()
            if now != before:
                before, stalls = now, time.monotonic() + STALL_SECONDS
            time.sleep(0.2)

    def stored(self) -> int:
        """Messages that the queues have."""
        with jsync.connect(self.broker.url) as nc:
            js = nc.jetstream()
            names = [name for name in js.stream_names() if name.startswith("shop-")]
            return sum(js.stream(name).cached_info.state.messages for name in names)

    def judge(self, *, once: bool) -> None:
        print(f"{len(self.tasks)} tasks, {self.faults}")  # noqa: T201
        assert not self.strange, f"a call raised {self.strange[0]!r}"
        self.settle()
        missing, stored = self.missing(), self.stored()
        some = [
            f"{task.name} for {task.queue}, {task.began - self.victims:+.2f} s"
            for task in missing[:20]
        ]
        assert not missing, (
            f"{len(missing)} tasks never ran, {stored} messages are stored; sent after "
            f"the last deletion of a queue: {some}"
        )
        assert stored == 0, f"{stored} messages are stuck in their queues"
        for result, value in self.results:
            # The result itself has the backend of the thread that made the call.
            found = self.app.AsyncResult(result.id).get(timeout=STALL_SECONDS)
            assert found == value
        if once:
            twice = {name: count for name, count in self.counts().items() if count > 1}
            assert not twice, "tasks ran more than once, though nobody was killed"


@pytest.fixture
def world(
    own_server: StartServer, campaign: Campaign, tmp_path: Path
) -> Iterator[World]:
    broker = own_server()
    with FaultProxy("127.0.0.1", broker.port) as proxy:
        world = World(broker, proxy, campaign, tmp_path)
        try:
            world.wait_until_ready()
            yield world
        finally:
            for worker in world.workers:
                worker.kill()
                print(worker.text[-10_000:])  # noqa: T201 (if the test fails)
            world.app.backend.close()
            pools.reset()
            world.app.close()


def test_each_task_runs_once_while_connections_break(world: World) -> None:
    chosen = world.campaign.random("faults")
    world.begin()
    for _ in world.campaign.rounds():
        time.sleep(chosen.uniform(0.05, 0.6))
        fault = chosen.choice(
            ["cut", "cut after", "step", "step", "refuse", "freeze", "delay"]
        )
        world.faults[fault] += 1
        match fault:
            case "cut":
                world.proxy.cut(chosen.choice(["reset", "fin"]))
            case "step":
                world.cut_at(chosen)
            case "cut after":
                side: Side = "client" if chosen.random() < 0.5 else "server"
                world.proxy.cut_after(chosen.randrange(20_000), side)
            case "refuse":
                world.proxy.refuse()
                world.proxy.cut()
                time.sleep(chosen.uniform(0, OUTAGE))
                world.proxy.accept()
            case "freeze":
                world.broker.pause()
                time.sleep(chosen.uniform(0, OUTAGE))
                world.broker.resume()
            case "delay":
                world.proxy.delay(chosen.uniform(0, 0.1))
                time.sleep(chosen.uniform(0, 0.5))
                world.proxy.delay(0)
    world.stop_producing()
    world.judge(once=True)
    world.check_prefetch()


def test_no_task_is_lost_when_processes_are_killed(
    world: World,
) -> None:
    """Another client deletes a queue now and then, and workers are told to end."""
    chosen = world.campaign.random("faults")
    world.early = "run"
    world.begin()
    for _ in world.campaign.rounds():
        time.sleep(chosen.uniform(0.1, 1.0))
        if chosen.random() < 0.5:  # this takes little time
            world.faults["queue"] += 1
            world.delete_victim()
        fault = chosen.choice(
            ["cut", "step", "outage", "broker", "worker", "child", "shutdown"]
        )
        world.faults[fault] += 1
        place = chosen.randrange(len(POOLS))
        world.check_workers()
        match fault:
            case "cut":
                world.proxy.cut(chosen.choice(["reset", "fin"]))
            case "step":
                world.cut_at(chosen)
            case "outage":
                world.proxy.refuse()
                world.proxy.cut()
                time.sleep(chosen.uniform(0, 2 * ACK_WAIT / 3))
                world.proxy.accept()
            case "broker":
                world.broker.kill()
                time.sleep(chosen.uniform(0, 1))
                world.broker.start()
            case "worker":
                world.workers[place].kill()
                world.workers[place] = world.start(POOLS[place])
            case "child":
                world.workers[place].kill_child(chosen)
            case "shutdown":
                world.shut_down(place, chosen)
    world.delete_victim()
    time.sleep(2)  # its tasks come again
    world.stop_producing()
    world.judge(once=False)
