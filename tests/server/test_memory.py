"""Tests that a hundred thousand repetitions of a call do not leak memory."""

from __future__ import annotations

import functools
import gc
import itertools
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ..support.connection_faults import (
    Events,
    FakeServer,
    Peer,
    connect,
    leave,
    open_files,
    resident_bytes,
    subscribed,
    waiting,
)
from ..support.proxy import FaultProxy
from ..support.servers import wait_for
from ..support.threads import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync.server import LocalServer

pytestmark = pytest.mark.server

MOST = 5 << 20

few_and_many = pytest.mark.parametrize(
    "cycles",
    [10_000, pytest.param(100_000, marks=pytest.mark.fault)],
    ids=["few", "many"],
)


def growth(cycle: Callable[[], object], cycles: int) -> int:
    """Return the growth of resident memory over a number of calls, after a warm-up."""
    for _ in range(cycles // 5):
        cycle()
    gc.collect()
    before = resident_bytes()
    for _ in range(cycles):
        cycle()
    gc.collect()
    return resident_bytes() - before


@few_and_many
def test_requests_leave_nothing(server: LocalServer, unique: str, cycles: int) -> None:
    with jsync.connect(server.url) as service, jsync.connect(server.url) as nc:
        service.subscribe(unique, callback=lambda msg: msg.respond(msg.data))
        service.flush()
        data = bytes(1000)
        assert growth(lambda: nc.request(unique, data), cycles) < MOST
        assert waiting(nc) == 0


@few_and_many
def test_requests_that_fail_leave_nothing(
    server: LocalServer, unique: str, cycles: int
) -> None:
    with jsync.connect(server.url) as nc:
        nc.subscribe(unique)
        timeouts = itertools.cycle([True, *[False] * 9])

        def fail() -> None:
            if next(timeouts):
                with pytest.raises(errors.TimeoutError):
                    nc.request(unique, timeout=1e-6)
            else:
                with pytest.raises(errors.NoRespondersError):
                    nc.request(f"{unique}.nobody")

        assert growth(fail, cycles // 2) < MOST
        assert waiting(nc) == 0


@few_and_many
def test_request_many_leaves_no_subscription(
    server: LocalServer, unique: str, cycles: int
) -> None:
    with jsync.connect(server.url) as nc:
        nc.subscribe(unique, callback=lambda msg: msg.respond(msg.data))

        def ask() -> None:
            # Read one iterator to its end, and drop the other one.
            (msg,) = nc.request_many(unique, b"?", max_messages=1)
            assert next(nc.request_many(unique, msg.data)).data == b"?"

        assert growth(ask, cycles // 4) < MOST
        assert waiting(nc) == 0


@few_and_many
@pytest.mark.parametrize("close", [False, True], ids=["dropped", "closed"])
def test_replies_that_nobody_has_asked_for_leave_nothing(
    server: LocalServer, unique: str, close: bool, cycles: int
) -> None:
    with jsync.connect(server.url) as nc:
        nc.subscribe(unique, callback=lambda msg: msg.respond(bytes(1000)))

        asked = itertools.count(1)

        def ask() -> None:
            replies: Any = nc.request_many(unique, timeout=LONG)
            if close:
                replies.close()
            if next(asked) % 500 == 0:
                # Requests that wait for the callback are no leak. It answers in order.
                nc.request(unique, timeout=LONG)

        assert growth(ask, cycles // 2) < MOST
        assert waiting(nc) == 0


@few_and_many
def test_subscriptions_leave_nothing(
    server: LocalServer, unique: str, cycles: int
) -> None:
    with jsync.connect(server.url) as nc:

        def subscribe() -> None:
            subscription = nc.subscribe(unique)
            nc.publish(unique, b"x" * 100)
            subscription.next(10)
            subscription.unsubscribe()

        assert growth(subscribe, cycles) < MOST
        nc.flush()
        assert len(nc._session.interests) == 0
        assert len(nc._session._drainables.all()) == 0


@few_and_many
def test_subscriptions_that_end_by_themselves_leave_nothing(
    server: LocalServer, unique: str, cycles: int
) -> None:
    with jsync.connect(server.url) as nc:

        def subscribe() -> None:
            subscription = nc.subscribe(unique)
            subscription.unsubscribe(after=1)
            nc.publish(unique)
            assert len(list(subscription)) == 1

        assert growth(subscribe, cycles) < MOST
        # The I/O thread learns of ended subscriptions in batches.
        wait_for(lambda: len(nc._session.interests) == 0)


@few_and_many
def test_messages_leave_nothing(server: LocalServer, unique: str, cycles: int) -> None:
    with jsync.connect(server.url) as nc:
        subscription = nc.subscribe(unique)
        payloads = itertools.cycle([b"", b"x" * 100, b"x" * 10_000])

        def next_one() -> None:
            nc.publish(unique, next(payloads), headers={"A": "b"})
            msg = subscription.next(10)
            assert msg.headers == {"A": ["b"]} or msg.headers is not None

        assert growth(next_one, cycles) < MOST


def test_timeouts_leave_nothing(server: LocalServer, unique: str) -> None:
    with jsync.connect(server.url) as nc:
        subscription = nc.subscribe(unique)

        def late() -> None:
            with pytest.raises(errors.TimeoutError):
                subscription.next(1e-6)

        assert growth(late, 20_000) < MOST


def test_reconnects_leave_nothing(server: LocalServer, unique: str) -> None:
    events = Events()
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        connect(proxy.url, events, reconnect_wait=0.0) as nc,
    ):
        subscription = nc.subscribe(unique)
        nc.flush()
        files = open_files()
        numbers = itertools.count(1)

        def reconnect() -> None:
            proxy.cut()
            events.wait("reconnect", next(numbers))
            nc.publish(unique, bytes(100_000))
            subscription.next(10)

        assert growth(reconnect, 200) < MOST
        wait_for(lambda: open_files() <= files)


def test_failed_waits_for_a_reconnect_leave_no_memory() -> None:
    events = Events()

    with FakeServer(leave, Peer.reset) as fake:
        nc = connect(fake.url, events, reconnect_wait=60.0)
        try:
            nc.publish("leave")
            events.wait("disconnect")

            def late() -> None:
                with pytest.raises(errors.TimeoutError):
                    nc.request("service", bytes(1000), timeout=1e-6)

            assert growth(late, 20_000) < MOST
            assert waiting(nc) == 0
            assert len(nc._session._waiting) < 100
        finally:
            nc.close()


def test_connections_leave_nothing(server: LocalServer, unique: str) -> None:
    def use() -> None:
        with jsync.connect(server.url, on_closed=lambda error: None) as nc:
            subscription = nc.subscribe(unique)
            nc.publish(unique)
            subscription.next(10)

    use()
    files = open_files()
    assert growth(use, 200) < MOST
    wait_for(lambda: open_files() <= files)


def test_attempts_that_fail_leave_nothing() -> None:
    with FakeServer(Peer.reset) as fake:
        files: list[int] = []

        def attempt() -> None:
            with pytest.raises(errors.ConnectionError):
                jsync.connect(fake.url)
            fake.peers.clear()
            fake._threads[1:] = []
            files.append(open_files())

        assert growth(attempt, 300) < MOST
        wait_for(functools.partial(settled, files[0]))


def settled(files: int) -> bool:
    return open_files() <= files


@few_and_many
def test_fetches_leave_nothing(server: LocalServer, unique: str, cycles: int) -> None:
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name=unique, subjects=[unique], storage="memory")
        worker = stream.create_consumer(durable_name="worker")

        def cycle() -> None:
            js.publish(unique, b"x")
            with worker.fetch(1) as batch:
                for msg in batch:
                    msg.ack()

        before = subscribed(nc)
        assert growth(cycle, cycles) < MOST
        wait_for(lambda: subscribed(nc) == before)
        stream.delete()
