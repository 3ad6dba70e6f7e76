"""Tests with connection losses, kills and many threads: no message is missed, and none stalls."""

from __future__ import annotations

import contextlib
import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.campaign import SECONDS, seeded
from ....support.connection_faults import Events, connect
from ....support.servers import wait_for
from ....support.threads import LONG, Recorder, Thread
from .support import (
    QUICK,
    fill,
    settled,
)

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy, Side

pytestmark = pytest.mark.server

logger = logging.getLogger("jsync.tests.consume")

ALARM = 2 * QUICK["idle_heartbeat"]
SLACK = 30.0
"""The extra seconds that anything may take on a busy machine."""
FORGOTTEN = 10.0
"""The seconds before a SIGKILL whose acks the server may have forgotten.

Measured: 0.0 to 0.8, because the server writes the state of a consumer a few times a second. A
busy machine writes it later.
"""


@pytest.mark.parametrize(
    "seconds",
    [0, pytest.param(SECONDS, marks=pytest.mark.fault)],
    ids=["short", "long"],
)
def test_sixty_four_threads_consume_until_the_connection_closes(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream, seconds: float
) -> None:
    consumers = 64
    for number in range(consumers):
        stream.create_consumer(
            durable_name=f"c{number}", ack_policy="none", mem_storage=True
        )
    told = Recorder()
    shared = jsync.connect(server.url, on_error=told)
    mine = shared.jetstream().stream(stream.name)
    counts = [0] * consumers

    def read(number: int) -> None:
        for msg in mine.consumer(f"c{number}").messages(max_messages=20):
            assert int(msg.data) == counts[number]
            counts[number] += 1

    threads = [Thread(read, number) for number in range(consumers)]
    stop = threading.Event()

    def publish() -> None:
        number = 0
        while not stop.wait(0.002):
            nc.publish(f"{stream.name}.a", b"%d" % number)
            number += 1

    publisher = Thread(publish)
    try:
        until = monotonic() + seconds
        wait_for(
            lambda: (
                (monotonic() >= until and min(counts) >= 50)
                or any(thread.ended for thread in threads)
            ),
            seconds + LONG,
        )
        # All threads get a similar number of messages.
        assert max(counts) - min(counts) < 5000
        shared.close()
        ends = [type(thread.error()) for thread in threads]
    finally:
        stop.set()
        publisher.result()
        shared.close()
    assert ends == [errors.ConnectionClosedError] * consumers
    assert told.waiting == 0
    logger.info("%d messages by %d threads", sum(counts), consumers)


class Ledger:
    """A handler that acks with confirmation, and records redeliveries after a confirmed ack."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.confirmed: dict[int, float] = {}
        """The time of the confirmed ack of each message."""
        self.again: list[tuple[float, float]] = []
        """The times of the confirmed ack and of the redelivery."""
        self.stall = 0.0
        """The longest time between two messages, including waits for acks."""
        self._last = monotonic()

    def __call__(self, msg: jsync.JetStreamMsg) -> None:
        number, now = msg.metadata.stream_sequence, monotonic()
        self.stall, self._last = max(self.stall, now - self._last), now
        if number in self.confirmed:
            self.again.append((self.confirmed[number], now))
        self.seen.add(number)
        with contextlib.suppress(errors.ConnectionError, errors.TimeoutError):
            self.ack(msg, number)

    def ack(self, msg: jsync.JetStreamMsg, number: int) -> None:
        msg.ack_sync(timeout=1.0)
        self.confirmed[number] = monotonic()


class CoarseLedger(Ledger):
    """Confirms many acks at a time.

    A server that was killed has forgotten some deliveries, and does not answer their acks. This
    class does not wait for each of them.
    """

    def __init__(self, nc: jsync.Connection) -> None:
        super().__init__()
        self._nc = nc
        self._unconfirmed: list[int] = []

    def ack(self, msg: jsync.JetStreamMsg, number: int) -> None:
        msg.ack()
        self._unconfirmed.append(number)
        if len(self._unconfirmed) < 50:
            return
        numbers, self._unconfirmed = self._unconfirmed, []
        self._nc.flush(1.0)
        self.confirmed |= dict.fromkeys(numbers, monotonic())


@pytest.mark.parametrize(
    ("count", "cuts"), [(1500, 12), pytest.param(100_000, 100, marks=pytest.mark.fault)]
)
@pytest.mark.parametrize(
    "options", [{"max_messages": 50}, {"max_bytes": 8000}], ids=str
)
def test_cuts_anywhere_lose_nothing_and_repeat_nothing_confirmed(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far: jsync.Connection,
    proxy: FaultProxy,
    events: Events,
    count: int,
    cuts: int,
    options: dict[str, Any],
) -> None:
    # Messages in flight at a cut are redelivered after ack_wait. Buffered messages are
    # acknowledged long before.
    ack_wait = 6.0
    stream.create_consumer(durable_name="cut", ack_wait=ack_wait, max_ack_pending=1000)
    consumer = far.jetstream().stream(stream.name).consumer("cut")
    fill(nc, stream, count)
    ledger, told, rng = Ledger(), Recorder(), seeded(count, cuts)
    allowed = 0

    def handle(msg: jsync.JetStreamMsg) -> None:
        wait_for(lambda: len(ledger.seen) < allowed, LONG)  # each cut meets messages
        ledger(msg)

    with consumer.consume(handle, **options, **QUICK, on_error=told) as consuming:
        for number in range(1, cuts + 1):
            to: Side = rng.choice(("client", "server"))
            proxy.cut_after(rng.randrange(1, count * 150 // cuts), to)
            allowed = number * count // cuts
            wait_for(
                lambda cut=number, seen=allowed: (  # type: ignore[misc]
                    events.names.count("reconnect") >= cut or len(ledger.seen) >= seen
                ),
                LONG,
            )
        allowed = count + 1
        wait_for(lambda: len(ledger.seen) == count, LONG)
        assert not consuming.closed
    assert ledger.again == []
    assert events.names.count("reconnect") >= cuts // 2
    while told.waiting:  # a busy server sends heartbeats late
        assert isinstance(told.get(), errors.MissedHeartbeatError)
    assert len(ledger.confirmed) > count // 2
    # At the end, only the redelivered messages may be left.
    assert ledger.stall <= max(ALARM, ack_wait) + SLACK
    logger.info("%d cuts, the longest stall %.2f s", cuts, ledger.stall)


@pytest.mark.parametrize(
    ("count", "kills"), [(3000, 2), pytest.param(100_000, 10, marks=pytest.mark.fault)]
)
def test_consuming_continues_when_a_killed_server_returns(
    own_server: StartServer, unique: str, events: Events, count: int, kills: int
) -> None:
    server = own_server()
    with connect(server.url, events) as nc:
        stream = nc.jetstream().create_stream(name=unique, subjects=[f"{unique}.>"])
        consumer = stream.create_consumer(
            durable_name="worker", ack_wait=2, max_ack_pending=1000
        )
        fill(nc, stream, count)
        ledger, told = CoarseLedger(nc), Recorder()
        killed: list[float] = []
        outage = 0.0
        with consumer.consume(
            ledger, max_messages=100, **QUICK, on_error=told
        ) as consuming:
            for number in range(1, kills + 1):
                wanted = count * number // (kills + 1)
                wait_for(lambda least=wanted: len(ledger.seen) >= least, LONG)  # type: ignore[misc]
                killed.append(monotonic())
                server.kill()
                events.wait("disconnect", number)
                server.start()
                events.wait("reconnect", number)
                outage = max(outage, monotonic() - killed[-1])
            wait_for(lambda: len(ledger.seen) == count, LONG)
            stall = ledger.stall
            wait_for(lambda: settled(consumer), LONG)
            assert not consuming.closed
        assert ledger.seen == set(range(1, count + 1))
        while told.waiting:
            error = told.get()
            # A busy server sends heartbeats late.
            expected = (
                errors.NoRespondersError,
                errors.PullError,
                errors.MissedHeartbeatError,
            )
            assert isinstance(error, expected), error
    # The server forgets the acks of about its last second, but no older ones.
    ages = [
        next((kill for kill in killed if confirmed < kill < came), came) - confirmed
        for confirmed, came in ledger.again
    ]
    assert max(ages, default=0.0) <= FORGOTTEN
    assert stall <= ALARM + outage + SLACK
    logger.info(
        "%d kills: %d confirmed came again, confirmed at most %.2f s before; the longest "
        "stall %.2f s, the longest outage %.2f s",
        *(kills, len(ages), max(ages, default=0.0), stall, outage),
    )
