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

from ..proxy import FaultProxy
from ..servers import wait_for
from .celery_tasks import ACK_WAIT, make_app

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ..conftest import StartServer
    from ..proxy import Side
    from .campaign import Campaign

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
START_SECONDS = 60
SETTLE_SECONDS = 60
"""Within this time after the last fault each task has run."""
SHUTDOWN_SECONDS = 90
"""A process of a pool waits half a minute for its parent to have read its last results."""
PRODUCERS = 2
OUTAGE = ACK_WAIT / 6
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
        wait_for(
            lambda: all(" ready." in worker.text for worker in self.workers),
            START_SECONDS,
        )

    # Producers ------------------------------------------------------------------------

    def begin(self) -> None:
        for producer in self._producers:
            producer.start()

    def stop_producing(self) -> None:
        self._over.set()
        for producer in self._producers:
            producer.join(SETTLE_SECONDS)
            assert not producer.is_alive(), "a call of a task hangs"

    def _produce(self, number: int) -> None:
        chosen = self.campaign.random(f"producer {number}")
        count = 0
        while not self._over.is_set():
            count += 1
            try:
                self._call(chosen, f"{number}-{count}")
            except Exception as error:  # noqa: BLE001 (the judge looks at it)
                self.strange.append(error)
                break
            self._over.wait(chosen.uniform(0.0, 0.05))
        self.app.backend.close()  # each thread has its own

    def _call(self, chosen: random.Random, name: str) -> None:
        kind = chosen.choice(["task"] * 8 + ["chain", "chord"])
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
                value, parts = names, [run.clone((each,)) for each in names]
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

    def missing(self) -> list[str]:
        """The tasks that have to run and have not."""
        ran = self.counts()
        return [
            task.name
            for task in self.tasks
            if task.certain
            and not ran[task.name]
            and (task.queue != "victim" or task.began > self.victims)
        ]

    def is_settled(self) -> bool:
        return not self.missing() and self.stored() == 0

    def stored(self) -> int:
        """Messages that the queues have."""
        with jsync.connect(self.broker.url) as nc:
            js = nc.jetstream()
            names = [name for name in js.stream_names() if name.startswith("shop-")]
            return sum(js.stream(name).cached_info.state.messages for name in names)

    def judge(self, *, once: bool) -> None:
        print(f"{len(self.tasks)} tasks, {self.faults}")  # noqa: T201
        assert not self.strange, f"a call raised {self.strange[0]!r}"
        with contextlib.suppress(TimeoutError):
            wait_for(self.is_settled, SETTLE_SECONDS)
        assert self.missing() == [], f"tasks that never ran; {self.stored()} are stored"
        assert self.stored() == 0, "tasks are stuck in their queues"
        for result, value in self.results:
            # The result itself has the backend of the thread that made the call.
            found = self.app.AsyncResult(result.id).get(timeout=SETTLE_SECONDS)
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
        fault = chosen.choice(["cut", "cut after", "refuse", "freeze", "delay"])
        world.faults[fault] += 1
        match fault:
            case "cut":
                world.proxy.cut(chosen.choice(["reset", "fin"]))
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


def test_no_task_is_lost_when_processes_are_killed(
    world: World,
) -> None:
    """Another client deletes a queue now and then, and workers are told to end."""
    chosen = world.campaign.random("faults")
    world.early = "run"
    world.begin()
    for _ in world.campaign.rounds():
        time.sleep(chosen.uniform(0.1, 1.0))
        fault = chosen.choice(
            ["cut", "outage", "broker", "worker", "child", "shutdown", "queue"]
        )
        world.faults[fault] += 1
        place = chosen.randrange(len(POOLS))
        match fault:
            case "cut":
                world.proxy.cut(chosen.choice(["reset", "fin"]))
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
            case "queue":
                world.delete_victim()
    world.stop_producing()
    world.judge(once=False)
