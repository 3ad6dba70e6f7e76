"""Tests of killed and frozen members and servers: the messages of each key stay in order.

Members are processes. They report the begin and the end of each message.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import signal
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ...servers import wait_for
from ...support.connection_faults import Events, connect
from ..support import LONG, Child

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsync

    from ...conftest import StartServer

LOG = logging.getLogger(__name__)
ROUNDS = [2, pytest.param(20, marks=pytest.mark.fault)]
PATIENT = 4 * LONG
KEYS = [f"k{number}" for number in range(16)]
ACK_WAIT = 1.5

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
            "S", "g", partitions=6, filters={"s.*": [1]}, members=["a", "b"]
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


@pytest.mark.parametrize("rounds", ROUNDS)
def test_keys_stay_in_order_while_members_are_killed(
    own_server: StartServer, rounds: int
) -> None:
    server, log, dice = own_server(), Log(), random.Random(rounds)
    with connect(server.url, Events()) as nc, contextlib.ExitStack() as stack:
        orders = Orders(nc.jetstream())
        running = {
            name: [stack.enter_context(member(server.url, name, log)) for _ in range(2)]
            for name in ("a", "b")
        }
        orders.publish()
        orders.await_done(log)
        for number in range(rounds):
            done = log.done()
            orders.publish()
            log.await_more(done + dice.randrange(40))
            name = dice.choice(["a", "b"])
            victim = running[name].pop(dice.randrange(2))
            victim.process.kill()
            if number % 2:
                # The standby of the partition is killed as well, so other members get its
                # partitions.
                running[name].pop().process.kill()
                orders.group.drop(name)
                orders.await_done(log)
                orders.group.add(name)
                running[name].append(stack.enter_context(member(server.url, name, log)))
            orders.await_done(log)
            running[name].append(stack.enter_context(member(server.url, name, log)))
        repeated = log.check(orders.count, frozen={})
    LOG.info("%d kills: %d messages, %d again", rounds, log.done(), repeated)


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.fault)])
def test_keys_stay_in_order_while_members_are_frozen(
    own_server: StartServer, rounds: int
) -> None:
    """A frozen member wakes up when its messages belong to another member, and handles none."""
    server, log, dice = own_server(), Log(), random.Random(rounds)
    frozen: dict[int, list[tuple[int, int]]] = {}
    with connect(server.url, Events()) as nc, contextlib.ExitStack() as stack:
        orders = Orders(nc.jetstream())
        running = [
            stack.enter_context(member(server.url, name, log)) for name in "aabb"
        ]
        orders.publish()
        orders.await_done(log)
        for number in range(rounds):
            done = log.done()
            orders.publish(20)
            log.await_more(done + 20)
            busy = {call.pid for call in log.calls[-20:]}
            victims = [child for child in running if child.pid in busy]
            victim = dice.choice(victims)
            begun = time.time_ns()
            os.kill(victim.pid, signal.SIGSTOP)
            try:
                if number % 2:
                    name = victim.process.args[5]  # type: ignore[index]
                    orders.group.drop(str(name))
                orders.await_done(log)
            finally:
                os.kill(victim.pid, signal.SIGCONT)
            frozen.setdefault(victim.pid, []).append((begun, time.time_ns()))
            orders.group.add("a", "b")
            orders.publish(5)
            orders.await_done(log)
        repeated = log.check(orders.count, frozen=frozen)
    LOG.info("%d freezes: %d messages, %d again", rounds, log.done(), repeated)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_keys_stay_in_order_while_the_server_is_killed(
    own_server: StartServer, rounds: int
) -> None:
    server, log, dice = own_server(), Log(), random.Random(rounds)
    with connect(server.url, Events()) as nc, contextlib.ExitStack() as stack:
        orders = Orders(nc.jetstream())
        for name in ("a", "a", "b"):
            stack.enter_context(member(server.url, name, log))
        for _ in range(rounds):
            done = log.done()
            orders.publish()
            log.await_more(done + dice.randrange(60))
            server.kill()
            server.start()
            orders.await_done(log)
        repeated = log.check(orders.count, frozen={})
    LOG.info("%d kills: %d messages, %d again", rounds, log.done(), repeated)
