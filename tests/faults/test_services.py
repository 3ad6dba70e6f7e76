"""A campaign against services: callers, floods, handlers that fail in each way, kills, cuts, drains.

Two instances run in the test, and one in a process that is killed or frozen. The judge compares
each answer with its request. A request may stay unanswered only while a server, a connection or a
process is lost. It also compares the statistics of an instance with its answers, and looks for
threads that ended instances and answered pings have left.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import jsync
from jsync import errors

from ..support.campaign import Losses
from ..support.connection_faults import Events, connect
from ..support.proxy import FaultProxy
from ..support.servers import wait_for
from ..support.threads import Thread
from .service_host import FAILING, begin

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from jsync.server import LocalServer

    from ..conftest import StartServer
    from ..support.campaign import Campaign

ROOT = Path(__file__).parents[2]
AWAY = errors.ConnectionLostError, errors.NoRespondersError
"""How a call may also end while no instance is connected."""
TIMEOUT = 5.0
CALLERS = 6
FLOOD = 3 * 25
"""More requests than may wait in each of three instances, and fewer than are dropped."""
MAX_THREADS = 100
"""The objects of ended threads that the garbage collector may not have reached."""
KINDS = (
    *(["ok"] * 6),
    *("raise", "broken", "fail", "error", "twice", "large", "largest", "later", "slow"),
)


def is_right(kind: str, data: bytes, text: str) -> bool:
    """Return whether a request may have that answer."""
    name = {
        "raise": "LookupError",
        "broken": "BrokenError",
        "large": "MaxPayloadError",
        "largest": "MaxPayloadError",
    }.get(kind)
    if name is not None:  # the exposed text may follow
        return text.partition(": ")[2].partition(":")[0] == name
    return text == {
        "fail": "409: refused",
        "error": f"404: {data.decode()}",
        "twice": f"404: {data.decode()}",
    }.get(kind, f"200: {data[::-1].decode()}")


def is_rejection(answer: str) -> bool:
    """Return whether an instance that was stopping, or had too many requests, has refused one."""
    return answer.startswith(("503: stopping", "503: overloaded"))


def text_of(msg: jsync.Msg) -> str:
    headers = msg.headers or jsync.Headers()
    code = headers.get("Nats-Service-Error-Code")
    if code is None:
        return f"200: {msg.data.decode()}"
    return f"{code}: {headers.get('Nats-Service-Error')}"


class Caller:
    """A thread that calls the service again and again, and checks each answer."""

    def __init__(
        self,
        nc: jsync.Connection,
        rng: Random,
        over: threading.Event,
        losses: Losses,
    ) -> None:
        self.done = 0
        self.slowest = 0.0
        self._nc, self._rng, self._over = nc, rng, over
        self._losses = losses
        self.thread = Thread(self._run)

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            kind = self._rng.choice(KINDS)
            data = f"{kind} {id(self)} {number}".encode()
            begun = time.monotonic()
            try:
                self._check(kind, data)
            except AWAY:
                time.sleep(0.01)
            except errors.TimeoutError:
                assert self._losses.overlap(begun), f"no answer to {kind}"
            else:
                self.done += 1
            self.slowest = max(self.slowest, time.monotonic() - begun)

    def _check(self, kind: str, data: bytes) -> None:
        if kind == "twice":
            answers = self._nc.request_many("work", data, timeout=TIMEOUT, stall=0.05)
            texts = [text_of(answer) for answer in answers]
            assert len(texts) < 2, texts
        else:
            try:
                msg = self._nc.services.call("work", data, timeout=TIMEOUT)
                texts = [text_of(msg)]
            except errors.ServiceError as error:
                texts = [str(error)]
        for text in texts:
            assert is_right(kind, data, text) or is_rejection(text), (kind, text)


def count_ended_threads() -> int:
    """Return how many objects of ended threads are in memory, also those of other tests."""
    gc.collect()
    return sum(
        isinstance(each, threading.Thread) and not each.is_alive()
        for each in gc.get_objects()
    )


class World:
    """Instances of the service, their callers, and the faults."""

    def __init__(
        self,
        server: LocalServer,
        proxy: FaultProxy,
        stack: contextlib.ExitStack,
        campaign: Campaign,
    ) -> None:
        self._ended_threads = count_ended_threads()
        self._server, self._proxy, self._stack = server, proxy, stack
        self._rng = campaign.random()
        self.over = threading.Event()
        self.losses = Losses()
        self._host = stack.enter_context(connect(proxy.url, Events()))
        self.nc = stack.enter_context(connect(server.url, Events()))
        self._numbers = itertools.count()
        self.ended: list[jsync.Service] = []
        self._handled: dict[str, list[str]] = {}
        """The kinds of the requests that each instance of this process has handled."""
        self.instances = [self._begin() for _ in "12"]
        self._process = self._start_process()
        stack.callback(lambda: self._kill(self._process))
        self.callers = [
            Caller(self.nc, campaign.random(number), self.over, self.losses)
            for number in range(CALLERS)
        ]
        self.pinger = Thread(self._ping)
        stack.callback(self.over.set)

    def _begin(self) -> jsync.Service:
        exposed, handled = next(self._numbers) % 2 == 0, list[str]()
        service = self._stack.enter_context(
            begin(self._host, handled=handled, exposed=exposed, on_done=self._on_done)
        )
        self._handled[service.id] = handled
        return service

    def _on_done(self, service: jsync.Service) -> None:
        with contextlib.suppress(errors.BlockingCallError):
            service.wait(TIMEOUT)
            return  # it has waited for itself
        self.ended.append(service)

    def _start_process(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.service_host", self._server.url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def _kill(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()

    def _ping(self) -> None:
        while not self.over.wait(0.01):
            with contextlib.suppress(errors.TimeoutError, *AWAY):
                self.nc.request("$SRV.PING.work", timeout=TIMEOUT)

    # The faults -----------------------------------------------------------------------

    def kill_the_server(self) -> None:
        with self.losses.note():
            self._server.kill()
            self._server.start()
            self._wait_until_connected()

    def cut_the_host(self) -> None:
        with self.losses.note():
            self._proxy.cut()
            self._wait_until_connected()

    def _wait_until_connected(self) -> None:
        def is_connected() -> bool:
            with contextlib.suppress(errors.Error):
                for nc in (self._host, self.nc):
                    nc.flush(1)
                return len(list(self.nc.services.ping("work", timeout=0.5))) == 3
            return False

        wait_for(is_connected)

    def kill_the_process(self) -> None:
        with self.losses.note():
            self._kill(self._process)
        self._process = self._start_process()

    def freeze_the_process(self) -> None:
        """Requests wait in it, and are answered when it continues."""
        os.kill(self._process.pid, signal.SIGSTOP)
        time.sleep(self._rng.uniform(0.1, 1.0))
        os.kill(self._process.pid, signal.SIGCONT)

    def replace_an_instance(self) -> None:
        """Drain one, perhaps with less time than its handlers need."""
        old = self.instances.pop(0)
        self.instances.append(self._begin())
        with contextlib.suppress(errors.DrainTimeoutError):
            old.stop(timeout=self._rng.choice((TIMEOUT, 0.02)))
        wait_for(lambda: old in self.ended)
        self._judge_statistics(old)

    def replace_in_a_flood(self) -> None:
        """The requests that wait in an instance that is stopped are refused."""
        flood = Thread(self.flood)
        self.replace_an_instance()
        flood.result()

    def flood(self) -> None:
        """Send more requests than may wait. Each gets one answer."""
        inbox = self.nc.new_inbox()
        begun = time.monotonic()
        sent = [f"slow flood {number}".encode() for number in range(FLOOD)]
        with self.nc.subscribe(f"{inbox}.*") as answers:
            for number, data in enumerate(sent):
                self.nc.publish("work", data, reply=f"{inbox}.{number}")
            missing = {*range(FLOOD)}
            while missing:
                try:
                    msg = answers.next(TIMEOUT)
                except errors.TimeoutError:
                    assert self.losses.overlap(begun), f"no answers: {len(missing)}"
                    break
                number = int(msg.subject.rpartition(".")[2])
                assert number in missing, f"a second answer: {text_of(msg)}"
                missing.remove(number)
                text = text_of(msg)
                data = sent[number]
                assert is_right("slow", data, text) or is_rejection(text), text

    # The judge ------------------------------------------------------------------------

    def wait_for_answers(self) -> None:
        """Wait until each caller has got some answers, or has found a wrong one."""
        before = [caller.done for caller in self.callers]
        wait_for(
            lambda: all(
                caller.done > count + 5 or caller.thread.ended
                for caller, count in zip(self.callers, before, strict=True)
            )
        )
        for caller in self.callers:
            if caller.thread.ended:
                caller.thread.result()

    def end(self) -> None:
        self.over.set()
        for caller in self.callers:
            caller.thread.result()
            assert caller.slowest < 2 * TIMEOUT
        self.pinger.result()
        # Each running instance answers.
        wait_for(lambda: len(list(self.nc.services.ping("work", timeout=0.5))) == 3)
        for service in self.instances:
            service.stop(timeout=TIMEOUT)
            wait_for(lambda service=service: service in self.ended)  # type: ignore[misc]
            self._judge_statistics(service)
        assert count_ended_threads() - self._ended_threads < MAX_THREADS

    def _judge_statistics(self, service: jsync.Service) -> None:
        """Each failure and each rejection is one error."""
        (stats,) = service.stats().endpoints
        handled = self._handled[service.id]
        failed = sum(kind in FAILING for kind in handled)
        assert stats.num_errors == failed + stats.num_requests - len(handled)


def test_calls_end_in_an_answer_or_typed_error(
    own_server: StartServer, campaign: Campaign
) -> None:
    server = own_server()
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        contextlib.ExitStack() as stack,
    ):
        world = World(server, proxy, stack, campaign)
        faults: list[Callable[[], None]] = [
            *(world.flood, world.replace_an_instance, world.replace_in_a_flood),
            *(world.freeze_the_process, world.kill_the_process),
            *(world.cut_the_host, world.kill_the_server),
        ]
        for number in campaign.rounds():
            world.wait_for_answers()
            fault = faults[number % len(faults)]
            print(fault.__name__)  # noqa: T201 (pytest shows it if the test fails)
            fault()
        world.wait_for_answers()
        world.end()
