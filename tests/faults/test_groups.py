"""A campaign against consumer groups: the messages of each key stay in order, and none is stuck.

Members are processes. They report the begin and the end of each message. They join, leave, freeze
and die, the server dies, two operators change the group, and one deletes another group of the stream
and is cut off in the middle. A server that is behind answers half of all direct gets in the bucket
of the configurations.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

import jsync
from jsync import errors

from ..support.connection_faults import Events, connect
from ..support.lagging import lag
from ..support.processes import Child
from ..support.proxy import FaultProxy, frame_filter
from ..support.servers import wait_for
from ..support.threads import LONG, Thread

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ..conftest import StartServer
    from ..support.campaign import Campaign

LOG = logging.getLogger(__name__)
PARTITIONS = 6
PATIENT = 4 * LONG
KEYS = [f"k{number}" for number in range(16)]
ACK_WAIT = 1.5
STEPS = (b"$KV.", b"STREAM.DELETE.", b"stream_delete_response")
"""What the messages of a deletion have in them, and of the answer to its last step."""

MEMBER = """
    import sys, time, jsync
    url, name, ack_wait = sys.argv[1:]
    with jsync.connect(url, reconnect_wait=0.02, reconnect_jitter=0.0) as nc:
        group = nc.jetstream().consumer_group("S", "g")
        with group.join(name, ack_wait=float(ack_wait)) as member:
            print("joined", flush=True)
            for msg in member:
                begun = time.time_ns()
                print(begun, msg.subject, int(msg.data), flush=True)
                time.sleep(0.002)
                print(begun, msg.subject, int(msg.data), time.time_ns(), flush=True)
                msg.ack()
"""


class Handled(NamedTuple):
    """One call of a handler, by the clock that all processes share. 0 means it has not ended."""

    begun: int
    ended: int
    key: str
    number: int
    pid: int


class Log:
    """The calls of all handlers so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[tuple[int, int], Handled] = {}

    def add(self, pid: int, line: str) -> None:
        words = line.split()
        if len(words) < 3 or not line.endswith("\n"):
            return  # the process was killed while it wrote this line
        begun, key, number, *ended = words
        call = Handled(int(begun), int(*ended or ["0"]), key, int(number), pid)
        with self._lock:
            self._calls[pid, call.begun] = call

    @property
    def calls(self) -> list[Handled]:
        with self._lock:
            return sorted(self._calls.values())

    def done(self) -> int:
        """The number of messages that were handled completely."""
        return len({(call.key, call.number) for call in self.calls if call.ended})

    def _woke_up(self, call: Handled, frozen: dict[int, list[tuple[int, int]]]) -> bool:
        """Return whether a process may have had the message when it was frozen.

        It may have been frozen before it noted the begin of the call.
        """
        return any(of <= call.begun <= of + 10**9 for _, of in frozen.get(call.pid, ()))

    def newest(self) -> int:
        """Return the process of the last call."""
        return self.calls[-1].pid

    def await_more(self, than: int) -> None:
        """Block until more messages than that were handled."""
        wait_for(lambda: self.done() > than, PATIENT)

    def check(self, count: int, *, frozen: dict[int, list[tuple[int, int]]]) -> int:
        """Check the messages of each key: none lost, in order, and one at a time.

        Args:
            count: The number of messages.
            frozen: The times in which a process was frozen. A call during such a time ends late,
            which cannot be prevented.

        Returns:
            The number of repeated calls.
        """
        repeated = 0
        calls = self.calls
        for key in KEYS:
            own = [call for call in calls if call.key == f"s.{key}"]
            numbers = [call.number for call in own]
            assert list(dict.fromkeys(numbers)) == list(range(count)), (key, numbers)
            repeated += len(numbers) - count
            known = [call for call in own if not self._woke_up(call, frozen)]
            for before, after in itertools.pairwise(known):
                assert before.number <= after.number, (before, after)
            whole = [
                call
                for call in own
                if call.ended
                and not any(
                    call.begun <= of and call.ended >= of
                    for of, _ in frozen.get(call.pid, ())
                )
            ]
            for before, after in itertools.pairwise(whole):
                assert before.ended <= after.begun, (before, after)
        return repeated


@contextlib.contextmanager
def member(url: str, name: str, log: Log) -> Iterator[Child]:
    """A process of a member that has joined. The log gets its calls."""
    with Child(MEMBER, url, name, ACK_WAIT, patience=20 * LONG) as child:
        joined = threading.Event()

        def read() -> None:
            assert child.process.stdout is not None
            for line in child.process.stdout:
                joined.set()
                log.add(child.pid, line)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            assert joined.wait(PATIENT)
            yield child
        finally:
            child.process.kill()
            reader.join()


class Orders:
    """A stream with a group of 6 partitions, and the messages published so far."""

    def __init__(self, js: jsync.JetStream) -> None:
        js.create_stream(name="S", subjects=["s.*"])
        self.group = js.create_consumer_group(
            "S", "g", partitions=PARTITIONS, filters={"s.*": [1]}, members=["a", "b"]
        )
        self._js = js
        self.count = 0

    def publish(self, numbers: int = 10) -> None:
        with self._js.publisher() as publisher:
            for _ in range(numbers):
                for key in KEYS:
                    publisher.publish(f"s.{key}", b"%d" % self.count)
                self.count += 1

    def await_done(self, log: Log) -> None:
        wait_for(lambda: log.done() == self.count * len(KEYS), PATIENT)


class World:
    """Two instances of each of two members, and the faults."""

    def __init__(
        self,
        server: LocalServer,
        js: jsync.JetStream,
        rng: random.Random,
        stack: contextlib.ExitStack,
    ) -> None:
        self.server, self.js, self.rng = server, js, rng
        self.orders, self.log = Orders(js), Log()
        self.group = self.orders.group
        self.other = js.consumer_group("S", "g")
        """The group as another operator has it."""
        self.frozen: dict[int, list[tuple[int, int]]] = {}
        self._stack = stack
        self._stopped: list[jsync.GroupMember] = []
        """Kept, because the garbage collector would end them."""
        js.create_consumer_group("S", "other", partitions=2, filters={"s.*": [1]})
        js.delete_consumer_group("S", "other")
        lag(js, "elastic-consumer-groups")
        self.running = {name: [self._begun(name) for _ in "12"] for name in "ab"}

    def _begun(self, name: str) -> Child:
        return self._stack.enter_context(member(self.server.url, name, self.log))

    def publish(self) -> None:
        """Publish, and return while the messages are handled."""
        done = self.log.done()
        self.orders.publish()
        self.log.await_more(done + self.rng.randrange(60))

    def await_done(self) -> None:
        self.orders.await_done(self.log)

    # The faults -----------------------------------------------------------------------

    def kill_an_instance(self) -> None:
        name = self.rng.choice("ab")
        self.running[name].pop(self.rng.randrange(2)).process.kill()
        self.await_done()
        self.running[name].append(self._begun(name))

    def kill_a_member(self) -> None:
        """Its standby as well, so that the other member gets its partitions."""
        name = self.rng.choice("ab")
        while self.running[name]:
            self.running[name].pop().process.kill()
        self.group.delete_members(name)
        self.await_done()
        self.group.add_members(name)
        self.running[name] = [self._begun(name) for _ in "12"]

    def freeze_an_instance(self) -> None:
        """It wakes up when its message belongs to another one, and handles no further one."""
        name = self.rng.choice("ab")
        victim = self.rng.choice(self.running[name])
        begun = time.time_ns()
        os.kill(victim.pid, signal.SIGSTOP)
        try:
            if self.rng.random() < 0.5:
                self.other.delete_members(name)
            self.await_done()
        finally:
            woke = time.time_ns()
            os.kill(victim.pid, signal.SIGCONT)
        self.frozen.setdefault(victim.pid, []).append((begun, woke))
        self.group.add_members("a", "b")

    def freeze_an_idle_instance(self) -> None:
        """It wakes up with a message in its socket that belongs to another one by then."""
        self.await_done()
        pid = self.log.newest()
        name = next(n for n in "ab" if pid in [each.pid for each in self.running[n]])
        os.kill(pid, signal.SIGSTOP)
        try:
            self.orders.publish(2)
            if self.rng.random() < 0.5:  # the other member gets its partitions
                self.other.delete_members(name)
            self.await_done()
        finally:
            os.kill(pid, signal.SIGCONT)
        self.group.add_members("a", "b")

    def kill_the_server(self) -> None:
        self.server.kill()
        self.server.start()
        self.await_done()

    def add_too_many(self) -> None:
        """Their names come first, so they would take all partitions."""
        names = [f"A{number}" for number in range(PARTITIONS)]
        with pytest.raises(errors.ConfigError, match="more members"):
            self.other.add_members(*names)

    def delete_another_group(self) -> None:
        """Each step is lost once. The operator repeats the deletion, and nothing is left."""
        for step in STEPS:
            self.js.create_consumer_group(
                "S", "other", partitions=2, filters={"s.*": [1]}, members=["a"]
            )
            with (
                FaultProxy("127.0.0.1", self.server.port) as proxy,
                jsync.connect(proxy.url) as nc,
            ):
                passing = frame_filter(lambda frame, _, lost=step: lost not in frame)  # type: ignore[misc]
                proxy.rewrite(passing)
                with contextlib.suppress(errors.Error):
                    nc.jetstream(timeout=0.3).delete_consumer_group("S", "other")
            with contextlib.suppress(errors.ConsumerGroupNotFoundError):
                self.js.delete_consumer_group("S", "other")
            assert "S-other" not in self.js.stream_names()

    def create_another_group(self) -> None:
        """Two operators create it, at a server that knows its last deletion only."""
        for _ in range(4):
            for _ in "12":
                self.js.create_consumer_group(
                    "S", "other", partitions=2, filters={"s.*": [1]}, members=["a"]
                )
            assert "S-other" in self.js.stream_names()
            group = self.js.consumer_group("S", "other")
            assert group.add_members("b") == ("a", "b")
            assert group.delete_members("b") == ("a",)
        self.js.delete_consumer_group("S", "other")
        with pytest.raises(errors.ConsumerGroupNotFoundError):
            self.js.delete_consumer_group("S", "other")

    def change_the_partitions(self) -> None:
        """Two operators at the same time."""
        numbers = [*range(PARTITIONS)]
        self.rng.shuffle(numbers)
        mapped = Thread(self.other.set_mappings, {"a": numbers[:2], "b": numbers[2:]})
        with contextlib.suppress(errors.ConfigError):  # it may have mappings already
            self.group.add_members("b")
        mapped.result()
        self.await_done()
        self.group.set_mappings({})
        self.other.add_members("a", "b")

    def end_a_reader(self) -> None:
        """A thread gets a message and ends, and another one stops the member."""
        name = self.rng.choice("ab")
        instance = self.group.join(name, ack_wait=ACK_WAIT)
        self._stopped.append(instance)
        for each in self.running[name]:
            os.kill(each.pid, signal.SIGSTOP)
        begun = time.time_ns()
        try:
            self.orders.publish(1)  # each member has some of the keys
            assert Thread(instance.next, PATIENT).result() is not None
            instance.stop()
        finally:
            for each in self.running[name]:
                woke = time.time_ns()
                os.kill(each.pid, signal.SIGCONT)
                self.frozen.setdefault(each.pid, []).append((begun, woke))


def test_keys_stay_in_order_through_all_faults(
    own_server: StartServer, campaign: Campaign
) -> None:
    server, rng = own_server(), campaign.random()
    with connect(server.url, Events()) as nc, contextlib.ExitStack() as stack:
        world = World(server, nc.jetstream(), rng, stack)
        faults: list[Callable[[], None]] = [
            *(world.kill_an_instance, world.kill_a_member, world.freeze_an_instance),
            *(world.kill_the_server, world.change_the_partitions),
            world.freeze_an_idle_instance,
        ]
        # These take little time, and few rounds fit into a short campaign.
        short = [
            *(world.add_too_many, world.create_another_group),
            *(world.delete_another_group, world.end_a_reader),
        ]
        rng.shuffle(faults)
        world.publish()
        world.await_done()
        for number in campaign.rounds():
            rng.shuffle(short)
            for fault in [*short, faults[number % len(faults)]]:
                world.publish()
                print(fault.__name__)  # noqa: T201 (pytest shows it if the test fails)
                fault()
                world.await_done()
        repeated = world.log.check(world.orders.count, frozen=world.frozen)
    LOG.info("%d messages, %d again", world.log.done(), repeated)
