"""Each publish, request and subscription of a client whose servers fail tells the truth."""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ...support.connection_faults import Events, _no_crash, connect  # noqa: F401 (a fixture for each test)
from ...support.processes import Child
from ...support.proxy import FaultProxy
from ...support.servers import wait_for
from ...support.threads import LONG, Thread, wait_until_blocked
from .model import SLACK
from .world import SMALL, Resolver, SmallCluster, World

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from jsync.core.server_pool import PoolServer

    from ...support.campaign import Campaign
    from ...support.servers import Cluster
    from .model import Model, Outcome

TIMEOUT = 2.0
"""Seconds for a publish or a batch."""
ACK_TIMEOUT = 3.0
"""Seconds for the ack of a publisher."""
OUTAGE = 3.5
"""Seconds of an outage: longer than both."""
BATCH = 3
"""The number of messages of a batch."""
STRANGE = [
    *(b"ok", b"", b"{", b"[]", b"null", b'{"ok":true}', b'{"seq":5}'),
    *(b'{"error":"bad"}', b'{"error":{"code":500}}', b'{"stream":"other"}'),
]
"""What another responder answers to the messages of a stream."""


def size(rng: random.Random) -> int:
    """Return the size of a message, which is now and then too large for one of the servers."""
    return 2 * SMALL if rng.random() < 0.03 else rng.choice([0, 10, 100, 2000])


# Publishes ----------------------------------------------------------------------------


def publish(world: World, name: str, rng: random.Random) -> None:
    """Publish one message after the other, each with the wait for its ack."""
    model = world.model
    js = world.connect().jetstream(timeout=TIMEOUT)
    while not world.over.wait(rng.uniform(0, 0.01)):
        number, data = model.begin(name, rng, size(rng))
        call = partial(js.publish, f"s.{name}", data)
        record(model, name, number, partial(model.call, name, TIMEOUT, call))


def record(
    model: Model, name: str, number: int, call: Callable[[], jsync.PubAck]
) -> None:
    """Publish a message, and tell the model how that ended."""
    try:
        ack = call()
    except errors.Error as error:
        model.failed(name, number, error)
    else:
        model.end(name, number, "acked", ack.seq)


def second(world: World, name: str, rng: random.Random) -> None:
    """Publish to the subjects of the other writers, without ids, and tell the model."""
    model = world.model
    with connect(world.cluster.urls, Events(), connect_timeout=LONG) as nc:
        js = nc.jetstream(timeout=TIMEOUT)
        while not world.over.wait(0.02):
            subject = rng.choice(["one", "ahead", "again", "single", "batch"])
            number, data = model.begin(name, rng, 10)
            record(model, name, number, partial(js.publish, f"s.{subject}", data))


def publish_ahead(world: World, name: str, rng: random.Random) -> None:
    """Publish ahead of the acks, with or without a second try after a loss."""
    model = world.model
    again = name != "ahead"
    nc = world.connect(reconnect_to_server=partial(choose, rng) if again else None)
    publisher = nc.jetstream().publisher(
        window=1 if name == "single" else 64,
        resend=again,
        ack_timeout=ACK_TIMEOUT,
        stall_timeout=TIMEOUT,
    )

    def told(number: int, future: jsync.PubAckFuture) -> None:
        error = future.exception()
        if error is None:
            model.end(name, number, "acked", future.result().seq)
        else:
            model.failed(name, number, error)

    while not world.over.wait(rng.choice([0, 0, 0, 0.02])):
        number, data = model.begin(name, rng, size(rng))
        msg_id = f"{name}-{number}" if again else None
        try:
            future = model.call(
                name,
                # The message waits for the window, then for the write buffer.
                TIMEOUT + 2,
                partial(publisher.publish, f"s.{name}", data, msg_id=msg_id),
            )
        except errors.Error:
            model.end(name, number, "absent")  # as the docstring promises
        else:
            future.add_done_callback(partial(told, number))
    with contextlib.suppress(errors.PublisherError):
        model.call("close", ACK_TIMEOUT, partial(publisher.close, ACK_TIMEOUT + 1))
    # The callbacks come before the end of the drain.
    model.call("drain", LONG, partial(drain, nc))


def choose(
    rng: random.Random, servers: list[PoolServer], info: jsync.ServerInfo
) -> Any:
    """Choose the next server, now and then in a way that is not allowed."""
    server = rng.choice(servers)
    return rng.choice([server, (server, 0.01), None, "that one", (server, -1)])


def drain(nc: jsync.Connection) -> None:
    with contextlib.suppress(errors.TimeoutError, errors.ConnectionError):
        nc.drain()


def publish_batches(world: World, name: str, rng: random.Random) -> None:
    model = world.model
    js = world.connect().jetstream(timeout=TIMEOUT)
    while not world.over.wait(rng.uniform(0, 0.1)):
        batch = [model.begin(name, rng, 100) for _ in range(BATCH)]
        rows = [(f"s.{name}", data) for _, data in batch]
        try:
            # A first call asks whether the stream takes batches.
            ack = model.call(name, 2 * TIMEOUT, partial(js.publish_batch, rows))
        except errors.AmbiguousCommitError:
            for number, _ in batch:
                model.end(name, number, "maybe")
        except errors.Error:
            for number, _ in batch:
                model.end(name, number, "absent")
        else:
            for number, _ in batch:
                left = BATCH - 1 - number % BATCH
                model.end(name, number, "acked", ack.seq - left)


CHILD = """
    import sys, time
    import jsync

    def say(*words):
        # One write: Ctrl-C between the parts of a line would leave half of it.
        sys.stdout.write(" ".join(map(str, words)) + "\\n")
        sys.stdout.flush()

    nc = jsync.connect(
        sys.argv[1].split(","), connect_timeout=60, reconnect_wait=0.02, ping_interval=0.5
    )
    js = nc.jetstream(timeout=2)
    try:
        for number in range(1 << 30):
            say("sent", number)
            try:
                ack = js.publish("s.child", f"{sys.argv[2]} {number} 0 ".encode())
            except jsync.errors.Error:
                say("maybe", number)
            else:
                say("acked", number, ack.seq)
            time.sleep(0.005)
    except KeyboardInterrupt:
        pass
    nc.close()
    say("closed")
"""


def publish_in_processes(world: World, name: str, rng: random.Random) -> None:
    """Have processes publish, each of which is killed or gets Ctrl-C."""
    model = world.model
    for count in itertools.count():
        writer = f"{name}-{count}"
        with Child(CHILD, ",".join(world.cluster.urls), writer, options=()) as child:
            lines: list[str] = []
            until = time.monotonic() + rng.uniform(0.5, 4)
            while time.monotonic() < until or not lines:
                if not (line := child.line()):
                    break
                lines.append(line)
            kind = rng.choice([signal.SIGINT, signal.SIGINT, signal.SIGKILL])
            child.process.send_signal(kind)
            while line := child.line():
                lines.append(line)
            code, _, problems = child.finish()
        if kind == signal.SIGINT and (code, lines[-1:]) != (0, ["closed"]):
            model.wrong(f"a process ended with {code} after Ctrl-C: {problems}")
        outcomes: dict[int, tuple[Outcome, int]] = {}
        for line in lines:
            match line.split():
                case ["acked", said, sequence]:
                    outcomes[int(said)] = "acked", int(sequence)
                case ["sent" | "maybe", said]:
                    outcomes[int(said)] = "maybe", 0
        for number, (outcome, place) in sorted(outcomes.items()):
            assert model.begin(writer, rng, 0)[0] == number
            model.end(writer, number, outcome, place)
        if world.over.is_set():
            return


# Requests, subscriptions, other clients ----------------------------------------------


def serve(world: World, name: str, rng: random.Random) -> None:
    """Answer requests, and the messages of the stream now and then, with no acks."""
    answers = itertools.cycle(STRANGE)

    def disturb(msg: jsync.Msg) -> None:
        if msg.reply is not None:
            msg.respond(next(answers))

    with connect(world.cluster.urls, Events(), connect_timeout=LONG) as nc:
        nc.subscribe("service", callback=lambda msg: msg.respond(msg.data))
        while not world.over.is_set():
            with nc.subscribe("s.>", callback=disturb):
                world.over.wait(rng.uniform(0.5, 2))
            world.over.wait(rng.uniform(0.1, 1))


def ask(world: World, name: str, rng: random.Random) -> None:
    """Ask, and get the answer to each question or one of the errors of a request."""
    nc = world.connect()

    def once() -> jsync.Msg | None:
        return nc.request("service", data, timeout=1)

    def many() -> jsync.Msg | None:
        replies = nc.request_many("service", data, timeout=1, max_messages=1)
        return next(replies, None)

    for number in itertools.count():
        if world.over.wait(rng.uniform(0, 0.02)):
            return
        data = b"%s %d" % (name.encode(), number)
        reply: jsync.Msg | None = None
        with contextlib.suppress(
            errors.TimeoutError, errors.NoRespondersError, errors.ConnectionError
        ):
            reply = world.model.call("request", 1, rng.choice([once, once, many]))
            world.model.count("request")
        if reply is not None and reply.data != data:
            world.model.wrong(f"{reply.data!r} answers {data!r}")


def listen(world: World, name: str, rng: random.Random) -> None:
    """Have subscriptions that outlive each connection, and get no message twice."""
    nc = world.connect()
    called: set[int] = set()

    def got(msg: jsync.Msg) -> None:
        number = int(msg.data)
        if number in called:
            world.model.wrong(f"{number} came twice to the callback of {name}")
        called.add(number)

    nc.subscribe(name, callback=got)
    sub = nc.subscribe(name)
    taken: set[int] = set()
    numbers = itertools.count()

    def comes_back() -> bool:
        """Whether a message comes to both subscriptions."""
        sent = next(numbers)
        with contextlib.suppress(errors.TimeoutError, errors.ConnectionError):
            nc.publish(name, b"%d" % sent)
            while sent not in taken:
                number = int(world.model.call("next", 0.3, partial(sub.next, 0.3)).data)
                if number in taken:
                    world.model.wrong(f"{number} came twice to {name}")
                taken.add(number)
            wait_for(lambda: sent in called, 5)
            world.model.count("came back")
            return True
        return False

    while not world.over.wait(rng.uniform(0, 0.1)):
        comes_back()
    try:
        wait_for(comes_back, LONG)
    except TimeoutError:
        world.model.wrong(f"the subscriptions of {name} did not outlive their servers")
    model = world.model
    twice = [Thread(model.call, "drain", LONG, partial(drain, nc)) for _ in range(2)]
    for thread in twice:
        thread.result()


# Ends ---------------------------------------------------------------------------------


def end(world: World, name: str, rng: random.Random) -> None:
    """Begin and end connections, in ways that are hard on them."""
    ways = [end_in_callback, end_beside_full_buffer, end_in_drain]
    ways += [end_of_several, end_in_outage]
    for way in itertools.cycle(rng.sample(ways, len(ways))):
        if world.over.wait(rng.uniform(0, 0.2)):
            return
        before = len(world.model.faults)
        with contextlib.suppress(errors.TimeoutError, errors.ConnectionError):
            way(world, rng)
            world.model.count(way.__name__)
        if len(world.model.faults) > before:
            return


def end_in_callback(world: World, rng: random.Random) -> None:
    """Two callbacks close or drain their own connection, and `on_error` raises."""

    def raises(error: Exception) -> None:
        raise ValueError("on_error")

    nc = world.connect(on_error=raises, drain_timeout=LONG)
    ends = [rng.choice([nc.close, nc.drain, nc.drain]) for _ in range(2)]
    done = [threading.Event() for _ in ends]

    def end(number: int, msg: jsync.Msg) -> None:
        try:
            ends[number]()
        finally:
            done[number].set()
        raise ValueError("the callback")

    for number in range(len(ends)):
        nc.subscribe("end.callback", callback=partial(end, number))
    until = time.monotonic() + SLACK
    while not any(each.wait(0.05) for each in done):
        if time.monotonic() > until:
            world.model.wrong("no callback ended its connection")
            break
        with contextlib.suppress(errors.ConnectionClosedError):
            nc.publish("end.callback", b"")
    nc.close()


def end_beside_full_buffer(world: World, rng: random.Random) -> None:
    """A connection is closed while a publish waits for room, and tells what is lost."""
    server = world.cluster.servers[0]
    with FaultProxy(
        "127.0.0.1", server.port, scheme="nats", receive_buffer=16_384
    ) as proxy:
        events = Events()
        nc = world.connect(
            [proxy.url],
            events,
            write_buffer_size=1 << 20,
            write_timeout=LONG,
            ping_interval=LONG,
        )
        proxy.deaf("client")

        def fill() -> None:
            while True:
                nc.publish("end.full", bytes(SMALL - 1))

        filling = Thread(fill)
        wait_until_blocked(filling._thread, lambda: filling.ended)
        world.model.call("close", 1, nc.close)
        error = filling.error()
        if not isinstance(error, errors.ConnectionError):
            world.model.wrong(f"a publish that waited for room raised {error!r}")
        if isinstance(error, errors.ConnectionClosedError):
            events.wait("closed")
            # A server that another actor kills takes its socket's bytes with it, and the
            # buffers of the next socket may have room for the rest.
            is_first = not events.of("disconnect")
            errors_told = map(str, events.of("error"))
            if is_first and not any("unsent" in told for told in errors_told):
                world.model.wrong("nobody was told of what a close has lost")


def end_in_drain(world: World, rng: random.Random) -> None:
    """A drain handles what has come, and no subscription begins meanwhile in silence."""
    nc = world.connect()
    entered, release = threading.Event(), threading.Event()

    def handle(msg: jsync.Msg) -> None:
        entered.set()
        release.wait(LONG)

    sub = nc.subscribe("end.drain", callback=handle)
    nc.publish("end.drain", b"")
    if entered.wait(5):
        threads = [Thread(drain, nc) for _ in range(2)]
        wait_for(lambda: not sub.is_active, LONG)
        try:
            nc.subscribe("end.other")
        except errors.ConnectionClosedError:
            pass
        else:
            world.model.wrong("a subscription began during a drain")
        release.set()
        for thread in threads:
            world.model.call("drain", 30, thread.result)
    nc.close()


def end_of_several(world: World, rng: random.Random) -> None:
    """Threads that wait for all sorts of things end with the connection."""
    nc = world.connect()
    sub = nc.subscribe("end.several")
    nc.subscribe("end.silent", callback=lambda msg: None)
    publisher = nc.jetstream().publisher(resend=True, ack_timeout=LONG)
    silent = publisher.publish("end.silent", b"", msg_id="x")
    calls: dict[str, Callable[[], object]] = {
        "next": partial(sub.next, None),
        "request": partial(nc.request, "end.silent", b"", timeout=LONG),
        "result": partial(silent.result, LONG),
        "flush": partial(publisher.flush, LONG),
    }
    threads: dict[str, Thread[object]] = {
        name: Thread(call) for name, call in calls.items()
    }
    world.over.wait(rng.uniform(0, 0.3))
    world.model.call("close", 1, nc.close)
    for name, thread in threads.items():
        error = thread.error()
        seen = name == "flush" and error is None  # by the thread with the future
        if not (
            seen or isinstance(error, errors.ConnectionError | errors.PublisherError)
        ):
            world.model.wrong(f"{name} ended with {error!r} as the connection closed")


def end_in_outage(world: World, rng: random.Random) -> None:
    """Threads that wait for a connection end as it is closed."""
    server = world.cluster.servers[0]
    with FaultProxy("127.0.0.1", server.port, scheme="nats") as proxy:
        nc = world.connect([proxy.url])
        publisher = nc.jetstream().publisher(stall_timeout=LONG)
        proxy.refuse()
        proxy.cut()
        wait_for(lambda: not nc.is_connected, LONG)
        calls: dict[str, Callable[[], object]] = {
            "request": partial(nc.request, "end.outage", b"", timeout=LONG),
            "publish": partial(publisher.publish, "end.outage", b""),
            "flush": partial(nc.flush, LONG),
        }
        threads = {name: Thread(call) for name, call in calls.items()}
        for thread in threads.values():
            thread.wait_until_blocked()
        world.model.call("close", 1, nc.close)
        for name, thread in threads.items():
            try:
                error = thread.error()
            except TimeoutError:
                world.model.wrong(f"{name} waits for a connection that is closed")
                break
            if not isinstance(error, errors.ConnectionClosedError):
                world.model.wrong(f"{name} ended with {error!r} in an outage")


# Kept messages and steering, while nothing else fails ---------------------------------


class Steered:
    """A connection with proxies of its own. What happens to it is known to the byte."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self._proxies, self._urls = world.fronted("steered")
        self._events = Events()
        self._nc = world.connect(self._urls, self._events, ping_interval=LONG)
        self._witness = connect(world.cluster.urls, Events())
        self._seen = self._witness.subscribe("kept.>")
        self._rounds = itertools.count()

    def close(self) -> None:
        self._nc.close()
        self._witness.close()
        for proxy in self._proxies:
            proxy.close()

    def __call__(self) -> None:
        if self.steer() and self.steer():
            self.keep()

    def _wait(self, words: str, condition: Callable[[], bool]) -> bool:
        try:
            wait_for(condition, SLACK)
        except TimeoutError:
            self._world.model.wrong(words)
            return False
        return True

    def steer(self) -> bool:
        """Wish for another server in the middle of a reconnect: the wish comes true."""
        for proxy in self._proxies:
            proxy.delay(0.02)
            proxy.cut()
        self._world.over.wait(self._rng.uniform(0, 0.12))
        url = self._rng.choice(self._urls[:-1])  # one that takes large messages
        self._nc.set_servers(url)
        self._nc.force_reconnect()
        granted = self._wait(
            f"{url} was wished for, and another server kept",
            lambda: self._world.is_on(self._nc, url),
        )
        for proxy in self._proxies:
            proxy.delay(0)
        return granted

    def keep(self) -> None:
        """Publish without a connection: each message arrives, or its loss is told."""
        nc, model, rng = self._nc, self._world.model, self._rng
        names = f"kept.{next(self._rounds)}"
        # Each server knows of the witness.
        if not self._wait("nothing came to the witness", partial(self._arrives, names)):
            return
        for proxy in self._proxies:
            proxy.refuse()
            proxy.cut()
        if not self._wait("a cut was not noticed", lambda: not nc.is_connected):
            return
        sizes = {f"{names}.{n}": rng.choice([0, 500, 2 * SMALL]) for n in range(20)}
        for subject, length in sizes.items():
            nc.publish(subject, bytes(length))
        number = rng.choice([0, len(self._urls) - 1])
        lost = nc.stats().reconnects
        nc.set_servers(self._urls[number])
        self._proxies[number].accept()
        if not self._wait("no reconnect", lambda: nc.stats().reconnects > lost):
            return
        nc.publish(f"{names}.end", b"")
        arrived: list[str] = []
        with contextlib.suppress(errors.TimeoutError):
            while not arrived or arrived[-1] != f"{names}.end":
                msg = self._seen.next(10)
                if msg.subject in sizes and len(msg.data) != sizes[msg.subject]:
                    model.wrong(f"{msg.subject} came with {len(msg.data)} bytes")
                if msg.subject.startswith(f"{names}.") and msg.data != b"probe":
                    arrived.append(msg.subject)
        expected = [*sizes, f"{names}.end"]
        if number:
            expected = [s for s in expected if sizes.get(s, 0) <= SMALL]
        if arrived != expected:
            model.wrong(f"of {expected} came {arrived}")
        missing = set(sizes) - set(arrived)
        # The thread of the callbacks reports them, perhaps after the last message came.
        self._wait(
            f"nobody was told that some of {sorted(missing)} were not sent",
            lambda: missing <= self._reported_subjects(),
        )
        for proxy in self._proxies:
            proxy.accept()
        nc.set_servers(self._urls)
        model.count("kept messages")

    def _reported_subjects(self) -> set[str]:
        return {
            error.subject
            for error in self._events.of("error")
            if isinstance(error, errors.MaxPayloadError)
        }

    def _arrives(self, names: str) -> bool:
        with contextlib.suppress(errors.TimeoutError, errors.ConnectionError):
            self._nc.publish(f"{names}.probe", b"probe")
            while self._seen.next(0.2).data != b"probe":
                pass
            return True
        return False


# Faults -------------------------------------------------------------------------------


class Faults:
    """What happens to the servers and proxies, each in its turn, and ends again."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        kinds = [self.kill, self.freeze, self.lame_duck, self.outage]
        kinds += [self.names, self.slow_names]
        self._turns = itertools.cycle(rng.sample(kinds, len(kinds)))

    def __call__(self) -> None:
        turn = next(self._turns)
        self._world.model.count(turn.__name__)
        for proxy in self._world.proxies:
            side: Any = self._rng.choice(["client", "server"])
            proxy.cut_after(self._rng.randrange(1, 100_000), side)
        turn(self._rng.choice(self._world.cluster.servers))
        self._world.repair()
        self._world.cluster.wait_until_ready()

    def kill(self, server: Any) -> None:
        server.kill()
        self._wait(1)
        server.start()

    def freeze(self, server: Any) -> None:
        server.pause()
        self._wait(3)
        server.resume()

    def lame_duck(self, server: Any) -> None:
        server.lame_duck()
        self._wait(1)
        server.kill()
        server.start()

    def outage(self, server: Any) -> None:
        """No server takes connections, for longer than publishes wait."""
        for proxy in self._world.proxies:
            proxy.refuse()
            proxy.cut()
        model = self._world.model
        begun = model.unfinished()
        self._world.over.wait(OUTAGE)
        try:
            wait_for(lambda: not begun & model.unfinished(), SLACK)
        except TimeoutError:
            late = sorted(begun & model.unfinished())[:5]
            model.wrong(f"{late} have no outcome until the outage ends")

    def names(self, server: Any) -> None:
        """A name does not resolve, and its server is away: the others are connected to.

        The machine may be slow, so the time without such a name is measured before.
        """
        world = self._world
        number = world.cluster.servers.index(server)
        usual = self._cut(LONG)
        if usual is None:
            world.model.wrong("connections do not come back after a cut")
            return
        world.resolver.hang(world.urls[number])
        if self._cut(SLACK + 5 * usual) is None:
            world.model.wrong("a name that does not resolve costs the other servers")
        world.resolver.release()

    def slow_names(self, server: Any) -> None:
        """Each name resolves, but later than an attempt to connect ends."""
        self._world.resolver.slow_down()
        if self._cut(SLACK) is None:
            self._world.model.wrong("connections do not come back by slow names")
        self._world.resolver.release()

    def _cut(self, seconds: float) -> float | None:
        """Cut all connections, and wait until each has come back, or was closed.

        Return how long that took, or None if it took more than these seconds.
        """
        world = self._world
        begun = time.monotonic()
        before = [(nc, nc.stats().reconnects) for nc in world.connections()]
        for proxy in world.proxies:
            proxy.cut()

        def are_back() -> bool:
            return all(nc.is_closed or nc.stats().reconnects > n for nc, n in before)

        try:
            wait_for(are_back, seconds)
        except TimeoutError:
            return None
        return time.monotonic() - begun

    def _wait(self, seconds: float) -> None:
        self._world.over.wait(self._rng.uniform(seconds / 3, seconds))


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    return resolver


@pytest.fixture
def small() -> Iterator[Cluster]:
    with SmallCluster() as cluster:
        yield cluster


def test_publishes_and_requests_tell_the_truth(
    small: Cluster, resolver: Resolver, campaign: Campaign
) -> None:
    world = World(small, resolver, campaign)
    model = world.model
    world.prepare()
    faults = Faults(world, campaign.random("faults"))
    steered = Steered(world, campaign.random("steered"))
    for work in (serve, second, ask, listen, end):
        world.start(work.__name__, work)
    for name in ("one", "two"):
        world.start(name, publish)
    for name in ("ahead", "again", "single"):
        world.start(name, publish_ahead)
    world.start("batch", publish_batches)
    world.start("child", publish_in_processes)
    try:
        for _ in campaign.rounds():
            steered()
            faults()
            if model.hanging():
                model.wrong(f"these calls hang: {model.hanging()}")
            if model.faults:
                break
    finally:
        world.repair()
        world.end()
        steered.close()
    small.wait_until_ready()
    with connect(small.urls, Events()) as nc:
        stream = nc.jetstream(timeout=10).stream("S")
        stored = [(m.sequence, m.data) for m in stream.get_messages()]
    model.judge_stream(stored)
    model.judge_batches("batch", BATCH, stored)
    for name in ("one", "two", "single"):
        model.judge_order(name)
    model.judge()
