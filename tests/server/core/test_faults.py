"""A random campaign with all kinds of faults, in which the invariants must hold.

`JSYNC_FAULT_SECONDS` makes it longer than its 10 seconds. `JSYNC_FAULT_SEED` repeats one.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import random
import threading
import time
import zlib
from array import array
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ...support.campaign import SECONDS, SEED, seeded
from ...support.connection_faults import (
    Events,
    _no_crash,  # noqa: F401 (a fixture of every test here)
    connect,
    open_files,
    resident_bytes,
)
from ...support.proxy import FaultProxy
from ...support.servers import wait_for
from ...support.threads import Thread

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsync
    from jsync.connection import Connection
    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.proxy import Ending, Side, Sides

pytestmark = [pytest.mark.server, pytest.mark.fault]

logger = logging.getLogger("jsync.tests.faults")


SLACK = 30.0
"""The seconds after its timeout in which a call may return on a busy machine."""
WRITE_TIMEOUT = 0.3
PATIENT = 'write_deadline: "5s"\nmax_pending: 256MB\nping_interval: "2s"\n'
OPTIONS: dict[str, Any] = {
    "reconnect_wait": 0.01,
    "connect_timeout": 1.0,
    "ping_interval": 0.3,
    "write_timeout": WRITE_TIMEOUT,
    "write_buffer_size": 1 << 20,
    "reconnect_buffer_size": 1 << 20,
    "max_pending_bytes": 4 << 20,
    "ignore_auth_error_abort": True,
}


class Numbers:
    """A set of numbers in one byte each, so that the test does not add to the measured memory."""

    def __init__(self) -> None:
        self._marks = bytearray()

    def __len__(self) -> int:
        return self._marks.count(1)

    def __contains__(self, number: int) -> bool:
        return number < len(self._marks) and self._marks[number] == 1

    def __and__(self, other: Numbers) -> list[int]:
        both = zip(self._marks, other._marks, strict=False)
        return [number for number, marks in enumerate(both) if all(marks)]

    def add(self, number: int) -> None:
        if number >= len(self._marks):
            self._marks.extend(bytes(number + 1000 - len(self._marks)))
        self._marks[number] = 1


class Watch:
    """The calls in progress, with their threads, start times and time limits."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[str, float]] = {}
        self.counts: Counter[str] = Counter()
        self.longest: Counter[str] = Counter()

    def call(
        self,
        name: str,
        timeout: float,
        function: Callable[[], Any],
        *allowed: type[errors.Error],
    ) -> Any:
        """Call `function` and count the call. Return its result, or None after an allowed error."""
        begin = time.monotonic()
        me = threading.get_ident()
        self._calls[me] = (name, begin + timeout + SLACK)
        try:
            result = function()
        except allowed as error:
            self.counts[f"{name}: {type(error).__name__}"] += 1
            return None
        else:
            self.counts[name] += 1
            return result
        finally:
            del self._calls[me]
            took = time.monotonic() - begin
            self.longest[name] = max(self.longest[name], took)  # type: ignore[assignment]

    def check(self) -> None:
        now = time.monotonic()
        hanging = [name for name, until in list(self._calls.values()) if until < now]
        assert not hanging, f"these calls hang: {hanging}"


def encode(writer: int, number: int, padding: bytes) -> bytes:
    return b"%d %d %d %s" % (writer, number, zlib.crc32(padding), padding)


def decode(data: bytes) -> tuple[int, int]:
    """Return the writer and the number of a message, and check that the message is complete."""
    writer, number, checksum, padding = data.split(b" ", 3)
    assert zlib.crc32(padding) == int(checksum), "a corrupted message"
    return int(writer), int(number)


def send(
    nc: Connection, subject: str, data: bytes, headers: dict[str, str] | None
) -> bool:
    nc.publish(subject, data, headers=headers)
    return True


class Writer:
    """Publishes numbers until it is told to stop."""

    def __init__(self, watch: Watch, nc: Connection, me: int, seed: int) -> None:
        self._watch, self._nc, self._me = watch, nc, me
        self._rng = random.Random(seed)
        self.number = 0
        self.refused = Numbers()
        self.losses: list[float] = []
        """The times when its connection was lost."""
        self._published = array("d")

    def may_be_late(self, number: int) -> bool:
        """Return whether that message may arrive after later ones.

        It may if the connection was lost after the message was published. The server reads the
        remaining bytes of the old connection while it reads the new one.
        """
        begin = self._published[number]
        with contextlib.suppress(TimeoutError):  # the callback may be late itself
            wait_for(lambda: any(loss >= begin for loss in self.losses))
            return True
        return False

    def publish(self) -> bool:
        size = self._rng.choice([0, 10, 100, 1000, 5000, 60_000])
        data = encode(self._me, self.number, self._rng.randbytes(size))
        headers = {"Number": str(self.number)} if self._rng.random() < 0.3 else None
        nc = self._nc
        self._published.append(time.monotonic())
        done = self._watch.call(
            "publish",
            WRITE_TIMEOUT,
            functools.partial(send, nc, f"c.{self._me}", data, headers),
            errors.WriteTimeoutError,
            errors.ReconnectBufferFullError,
        )
        if done is None:
            self.refused.add(self.number)
        self.number += 1
        return done is not None

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self._rng.choice([0.0, 0.0001, 0.002])):
            self.publish()


class Reader:
    """Checks the messages that arrive."""

    def __init__(
        self, watch: Watch, subscription: jsync.Subscription, writers: list[Writer]
    ) -> None:
        self._watch, self._subscription, self._writers = watch, subscription, writers
        self.last: dict[int, int] = {}
        self.seen: dict[int, Numbers] = {}

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            msg = self._watch.call(
                "next",
                0.5,
                functools.partial(self._subscription.next, 0.5),
                errors.TimeoutError,
            )
            if msg is None:
                continue
            writer, number = decode(msg.data)
            assert msg.subject == f"c.{writer}", "a corrupted subject"
            if msg.headers:
                assert msg.headers["Number"] == str(number), "corrupted headers"
            numbers = self.seen.setdefault(writer, Numbers())
            assert number not in numbers, f"{number} of {writer} came twice"
            numbers.add(number)
            last = self.last.get(writer, -1)
            if number < last:
                late = self._writers[writer].may_be_late(number)
                assert late, f"{number} of {writer} came after {last}"
                self._watch.counts["late"] += 1
            self.last[writer] = max(last, number)


def ask(watch: Watch, nc: Connection, me: int, stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        data = b"%d %d" % (me, number)
        number += 1
        reply = watch.call(
            "request",
            0.7,
            functools.partial(nc.request, "service", data, timeout=0.7),
            errors.TimeoutError,
            errors.NoRespondersError,
            errors.ConnectionLostError,
        )
        assert reply is None or reply.data == data, "the reply of another request"


def churn(watch: Watch, nc: Connection, stop: threading.Event) -> None:
    while not stop.is_set():
        subscription = watch.call("subscribe", 0, lambda: nc.subscribe("c.0"))
        watch.call(
            "next of a new one",
            0.1,
            functools.partial(subscription.next, 0.1),
            errors.TimeoutError,
        )
        watch.call("unsubscribe", 0, subscription.unsubscribe)
        watch.call(
            "flush",
            0.3,
            functools.partial(nc.flush, 0.3),
            errors.TimeoutError,
            errors.ConnectionLostError,
        )


class Saboteur:
    """Causes one fault after the other, and counts them."""

    def __init__(
        self, server: LocalServer, proxies: list[FaultProxy], rng: random.Random
    ) -> None:
        self._server, self._proxies, self._rng = server, proxies, rng
        self.counts: Counter[str] = Counter()

    def act(self) -> None:
        rng = self._rng
        deeds: list[tuple[int, Callable[[FaultProxy], None]]] = [
            (5, self.cut),
            (8, self.cut_after),
            (4, self.delay),
            (4, self.deafen),
            (3, self.nonsense),
            (2, self.refuse),
            (2, self.pause),
            (2, self.kill),
        ]
        weights, functions = zip(*deeds, strict=True)
        (deed,) = rng.choices(functions, weights)
        self.counts[deed.__name__] += 1
        deed(rng.choice(self._proxies))

    def cut(self, proxy: FaultProxy) -> None:
        proxy.cut(self._ending())

    def cut_after(self, proxy: FaultProxy) -> None:
        size = int(10 ** self._rng.uniform(0, 6))
        proxy.cut_after(max(1, size), self._side(), self._ending())

    def delay(self, proxy: FaultProxy) -> None:
        proxy.delay(self._rng.choice([0.0, 0.005, 0.05]), self._side())

    def deafen(self, proxy: FaultProxy) -> None:
        side: Sides = self._rng.choice(["client", "server", "both"])
        proxy.deaf(side)
        self._meanwhile(1.5)
        proxy.hear(side)

    def nonsense(self, proxy: FaultProxy) -> None:
        line = self._rng.choice(
            [b"NONSENSE\r\n", b"-ERR 'Stale Connection'\r\n", b"\x00\r\n", b"PING\r\n"]
        )
        with contextlib.suppress(RuntimeError):  # no client is connected
            proxy.inject(line)

    def refuse(self, proxy: FaultProxy) -> None:
        proxy.refuse()
        proxy.cut()
        self._meanwhile(0.5)
        proxy.accept()

    def pause(self, proxy: FaultProxy) -> None:
        self._server.pause()
        self._meanwhile(1.5)
        self._server.resume()

    def kill(self, proxy: FaultProxy) -> None:
        self._server.kill()
        self._meanwhile(0.3)
        self._server.start()

    def repair(self) -> None:
        for proxy in self._proxies:
            proxy.hear()
            proxy.delay(0.0)
            # Cancel a previous `cut_after`.
            proxy.cut_after(1 << 60, "client")
            proxy.cut_after(1 << 60, "server")

    def _meanwhile(self, seconds: float) -> None:
        time.sleep(self._rng.uniform(0, seconds))

    def _side(self) -> Side:
        return self._rng.choice(["client", "server"])

    def _ending(self) -> Ending:
        return self._rng.choice(["reset", "fin"])


def test_the_invariants_hold_after_every_fault(own_server: StartServer) -> None:
    logger.info("seed %s, %g seconds", SEED, SECONDS)
    server = own_server(jetstream=False, config=PATIENT)
    files = open_files()
    try:
        campaign(server)
    except BaseException as error:
        error.add_note(f"JSYNC_FAULT_SEED={SEED}")
        raise
    gc.collect()
    wait_for(lambda: open_files() <= files)


def campaign(server: LocalServer) -> None:
    rng = seeded()
    watch, stop = Watch(), threading.Event()
    with contextlib.ExitStack() as stack:
        proxies = [
            stack.enter_context(
                FaultProxy("127.0.0.1", server.port, receive_buffer=16_384)
            )
            for _ in range(2)
        ]
        events = [Events() for _ in range(4)]
        losses: list[float] = []

        def lost(error: Exception) -> None:
            events[0].note("disconnect", error)
            losses.append(time.monotonic())

        made = [
            connect(
                proxies[0].url, events[0], **OPTIONS, on_disconnect=lost
            ),  # writers
            connect(proxies[1].url, events[1], **OPTIONS),  # a reader, and requests
            # a reader on a connection without faults
            connect(server.url, events[2], **OPTIONS),
            connect(server.url, events[3], **OPTIONS),  # the service
        ]
        for nc in made:
            stack.callback(nc.close)
        made[3].subscribe("service", callback=lambda msg: msg.respond(msg.data))
        writers = [Writer(watch, made[0], n, rng.randrange(1 << 32)) for n in range(3)]
        for writer in writers:
            writer.losses = losses
        readers = [Reader(watch, nc.subscribe("c.>"), writers) for nc in made[1:3]]
        threads = [
            *(Thread(writer.run, stop) for writer in writers),
            *(Thread(reader.run, stop) for reader in readers),
            *(Thread(ask, watch, made[1], n, stop) for n in range(2)),
            Thread(ask, watch, made[0], 2, stop),
            Thread(churn, watch, made[1], stop),
        ]
        stack.callback(stop.set)
        saboteur = Saboteur(server, proxies, rng)
        begin, memory = time.monotonic(), 0
        while (elapsed := time.monotonic() - begin) < SECONDS or (
            made[0].stats().reconnects <= 5 and elapsed < 10 * SECONDS
        ):
            saboteur.act()
            time.sleep(rng.choice([0.0, 0.02, 0.3]))
            watch.check()
            for thread in threads:
                assert not thread.ended or thread.result()
            assert not any(nc.is_closed for nc in made)
            if not memory and elapsed > SECONDS / 3:
                gc.collect()
                memory = resident_bytes()
        saboteur.repair()
        for nc in made:
            wait_for(functools.partial(is_well, nc))
        # After the faults, all messages published from now on arrive.
        stop.set()
        for thread in threads:
            thread.result()
        stop.clear()
        threads = [Thread(reader.run, stop) for reader in readers]
        for writer in writers:
            for _ in range(10):
                assert writer.publish()
        for reader in readers:
            wait_for(functools.partial(has_all, reader, writers))
        stop.set()
        for thread in threads:
            thread.result()
        grown = resident_bytes() - memory
        published = sum(writer.number for writer in writers)
        refused = sum(len(writer.refused) for writer in writers)
        for reader in readers:
            for number, writer in enumerate(writers):
                late = reader.seen[number] & writer.refused
                assert not late, f"{late} were refused, and sent all the same"
        logger.info("faults: %s", dict(saboteur.counts))
        logger.info("reconnects: %s", [nc.stats().reconnects for nc in made])
        logger.info("published %d, of which %d refused", published, refused)
        for reader in readers:
            logger.info("read %d", sum(len(seen) for seen in reader.seen.values()))
        logger.info("calls: %s", dict(sorted(watch.counts.items())))
        longest = {name: round(s, 2) for name, s in sorted(watch.longest.items())}
        logger.info("longest: %s", longest)
        logger.info("memory grew by %.1f MB", grown / 1e6)
        # Full buffers on all sides take half of that. The campaign publishes a gigabyte.
        assert grown < 64 << 20
        assert made[0].stats().reconnects > 5
        begin = time.monotonic()
        for nc in made:
            nc.close()
        assert time.monotonic() - begin < len(made) * 1.5 + SLACK
    for each in events:
        assert each.wait("closed") is None
        names = [n for n in each.names if n in {"disconnect", "reconnect"}]
        assert names[::2] == ["disconnect"] * len(names[::2])
        assert names[1::2] == ["reconnect"] * len(names[1::2])


def is_well(nc: Connection) -> bool:
    with contextlib.suppress(errors.TimeoutError, errors.ConnectionError):
        for _ in range(3):
            nc.flush(2)
        return True
    return False


def has_all(reader: Reader, writers: list[Writer]) -> bool:
    return all(
        reader.last.get(number) == writer.number - 1
        for number, writer in enumerate(writers)
    )
