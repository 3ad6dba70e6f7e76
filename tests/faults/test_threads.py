"""A campaign against one connection that 32 threads share, each with one call at a time.

Meanwhile the connection is cut, also in the middle of a frame, the server freezes or is killed,
threads and signal handlers fork, and signals interrupt the calls of the main thread. The judge wants each call to
end, in time if nothing was lost, with its own answer. What was acknowledged is stored once, where
the ack says, and in the order in which its thread published.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import jsync
from jsync import errors

from ..support.campaign import Losses
from ..support.connection_faults import Events, _no_crash, connect  # noqa: F401 (a fixture for each test)
from ..support.proxy import FaultProxy
from ..support.servers import wait_for
from ..support.threads import Thread
from ..support.windows import needs_timers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ..conftest import StartServer
    from ..support.campaign import Campaign
    from ..support.certificates import Certificates
    from ..support.proxy import Side

THREADS = 32
TIMEOUT = 5.0
LOST = errors.ConnectionLostError, errors.NoRespondersError
"""How a call may also end while the connection or the server is lost."""


class Interrupted(BaseException):
    """What the handler of a signal raises in the main thread."""


@pytest.fixture(autouse=True)
def _often_switched() -> Iterator[None]:
    """Let threads switch after every few instructions, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Caller:
    """What one thread has called, and what came of it."""

    def __init__(self, world: World, name: str) -> None:
        self.done = 0
        self.slowest = 0.0
        self.acked: dict[int, int] = {}
        """The sequences of the messages whose ack came."""
        self.published = 0
        self._world, self.name = world, name
        self._rng = world.campaign.random(name)
        self._calls = [self._request, self._publish, self._put, self._get]
        self._puts = self._revision = 0

    def run(self) -> None:
        while not self._world.over.is_set():
            self.call()

    def call(self) -> None:
        """Make one call, and check how it ends."""
        call = self._rng.choice(self._calls)
        begun = time.monotonic()
        try:
            call()
            self.done += 1
        except (*LOST, errors.TimeoutError):
            if not self._world.losses.overlap(begun):
                raise
            time.sleep(0.01)
        lasted = time.monotonic() - begun
        # A thread that no other one wakes finds its answer when its timeout ends its sleep.
        assert lasted < TIMEOUT or self._world.losses.overlap(begun), "not woken"
        self.slowest = max(self.slowest, lasted)

    def _request(self) -> None:
        question = b"%s %d" % (self.name.encode(), self._rng.getrandbits(64))
        nc = self._world.nc
        assert nc.request("echo", question, timeout=TIMEOUT).data == question

    def _publish(self) -> None:
        number = self.published
        self.published += 1
        data = b"%s %d" % (self.name.encode(), number)
        ack = self._world.js.publish("work", data, timeout=TIMEOUT)
        self.acked[number] = ack.seq

    def _put(self) -> None:
        self._puts += 1
        revision = self._world.bucket.put(self.name, b"%d" % self._puts)
        assert revision > self._revision
        self._revision = revision

    def _get(self) -> None:
        try:
            entry = self._world.bucket.get(self.name)
        except errors.KeyNotFoundError:
            assert not self._revision
            return
        assert entry.revision >= self._revision
        assert 0 < int(entry.value) <= self._puts


class World:
    """One connection, the threads that share it, and the faults."""

    def __init__(
        self,
        server: LocalServer,
        proxy: FaultProxy,
        nc: jsync.Connection,
        campaign: Campaign,
    ) -> None:
        self.campaign, self.nc = campaign, nc
        self.over = threading.Event()
        self.losses = Losses()
        self.js = nc.jetstream(timeout=TIMEOUT)
        self.js.create_stream(name="WORK", subjects=["work"], allow_direct=True)
        self.bucket = self.js.create_key_value(bucket="shared", history=1)
        self._server, self._proxy = server, proxy
        self._inside = self._forking = self._is_child = False
        self._children: list[int] = []
        self._rng = campaign.random()
        self._main = Caller(self, "main")
        self._callers = [self._main, *(Caller(self, str(n)) for n in range(THREADS))]
        self._threads = [Thread(caller.run) for caller in self._callers[1:]]

    # The faults -----------------------------------------------------------------------

    def cut(self) -> None:
        with self.losses.note():
            self._proxy.cut(self._rng.choice(("reset", "fin")))
            self._wait_until_answered()

    def cut_in_a_frame(self) -> None:
        with self.losses.note():
            side: Side = "client" if self._rng.random() < 0.5 else "server"
            before = self._proxy.connections
            self._proxy.cut_after(self._rng.randrange(1, 20_000), side)
            wait_for(lambda: self._proxy.connections > before or self._ended())
            self._wait_until_answered()

    def freeze_the_server(self) -> None:
        """Calls wait, and are answered all together."""
        self._server.pause()
        time.sleep(self._rng.uniform(0.01, 0.5))
        self._server.resume()

    def kill_the_server(self) -> None:
        with self.losses.note():
            self._server.kill()
            self._server.start()
            self._wait_until_answered()

    def fork(self) -> None:
        """The child, beside 33 callers, learns that the connection is its parent's."""
        pid = os.fork()
        if not pid:
            self._end_child(partial(self.nc.request, "echo", b"child", timeout=TIMEOUT))
        self._wait_for_child(pid)

    def fork_in_a_wait(self) -> None:
        """A signal handler forks in the middle of a call, which the child continues."""
        self._forking = True
        wait_for(lambda: bool(self._children) or self._ended())
        if self._children:
            self._wait_for_child(self._children.pop())

    def _end_child(self, call: Callable[[], object]) -> NoReturn:
        status = 1
        with contextlib.suppress(BaseException):
            try:
                call()
            except errors.ForkedProcessError:
                status = 0
        os._exit(status)

    def _wait_for_child(self, pid: int) -> None:
        statuses: list[int] = []

        def has_ended() -> bool:
            found, status = os.waitpid(pid, os.WNOHANG)
            statuses.append(status)
            return found == pid

        try:
            wait_for(has_ended)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise
        assert statuses[-1] == 0

    def _wait_until_answered(self) -> None:
        def is_answered() -> bool:
            with contextlib.suppress(errors.Error):
                self.nc.request("echo", b"again", timeout=1)
                self.js.account_info(timeout=1)
                self.bucket.put("again", b"")
                return True
            return False

        wait_for(is_answered)

    # The judge ------------------------------------------------------------------------

    def _ended(self) -> bool:
        return any(thread.ended for thread in self._threads)

    def _interrupt(self, *_: object) -> None:
        if not self._inside:
            return
        self._inside = False
        if not self._forking:
            raise Interrupted
        self._forking = False
        pid = os.fork()
        self._is_child = not pid
        self._children.append(pid)

    def _call(self) -> bool:
        """Call on the main thread. Return whether a signal has interrupted the call.

        A child that the handler has forked ends here.
        """
        status = 1
        try:
            self._inside = True
            self._main.call()
            self._inside = False
            status = 0
        except Interrupted:
            return True
        except errors.ForkedProcessError:
            status = 0
            if not self._is_child:
                raise
        finally:
            if self._is_child:
                os._exit(status)
        return False

    def call_until(self, is_over: Callable[[], bool]) -> int:
        """Call on this thread, where signals interrupt calls. Return how many they did."""
        interrupted = 0
        before = signal.signal(signal.SIGALRM, self._interrupt)
        interval = self._rng.choice((0.0005, 0.002, 0.02))
        signal.setitimer(signal.ITIMER_REAL, interval, interval)
        try:
            while not (is_over() or self._ended()):
                interrupted += self._call()
        finally:
            self._inside = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        for thread in self._threads:
            if thread.ended:
                thread.result()  # it has found something wrong
        return interrupted

    def call_beside(self, fault: Callable[[], None]) -> int:
        thread = Thread(fault)
        interrupted = self.call_until(lambda: thread.ended)
        thread.result()
        return interrupted

    def progress(self) -> Callable[[], bool]:
        """Return a function that tells whether each thread has got answers since now."""
        before = [caller.done for caller in self._callers]

        def is_over() -> bool:
            return all(
                caller.done > count + 3
                for caller, count in zip(self._callers, before, strict=True)
            )

        return is_over

    def end(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.result()
        for caller in self._callers:
            assert caller.slowest < 2 * TIMEOUT
        self._judge_stream()

    def _judge_stream(self) -> None:
        stored: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for message in self.js.stream("WORK").get_messages(timeout=TIMEOUT):
            name, _, number = message.data.decode().partition(" ")
            assert int(number) not in stored[name], "stored twice"
            stored[name][int(number)] = message.sequence
        for caller in self._callers:
            found = stored[caller.name]
            assert {
                number: found.get(number) for number in caller.acked
            } == caller.acked
            assert [*caller.acked.values()] == sorted(caller.acked.values())


def run(
    server: LocalServer, campaign: Campaign, scheme: str | None, **options: Any
) -> None:
    with (
        FaultProxy("127.0.0.1", server.port, scheme=scheme) as proxy,
        jsync.connect(server.url, reconnect_wait=0.01, **options) as service,
        connect(proxy.url, Events(), **options) as nc,
    ):
        service.subscribe("echo", callback=lambda msg: msg.respond(msg.data))
        service.flush()
        world = World(server, proxy, nc, campaign)
        faults = [
            *(world.cut, world.fork_in_a_wait, world.cut_in_a_frame, world.fork),
            *(world.freeze_the_server, world.kill_the_server),
        ]
        interrupted = 0
        for number in campaign.rounds():
            fault = faults[number % len(faults)]
            print(fault.__name__)  # noqa: T201 (pytest shows it if the test fails)
            interrupted += world.call_beside(fault)
            interrupted += world.call_until(world.progress())
        world.end()
    assert interrupted > 0


@needs_timers
def test_each_thread_gets_its_own_answer(
    own_server: StartServer, campaign: Campaign
) -> None:
    run(own_server(), campaign, None)


@needs_timers
def test_each_thread_gets_its_own_answer_over_tls(
    own_server: StartServer, certificates: Certificates, campaign: Campaign
) -> None:
    server = own_server(config=certificates.server_config())
    run(server, campaign, "tls", tls_ca=certificates.ca.cert)
