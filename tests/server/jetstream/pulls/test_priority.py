"""Tests of priority groups (ADR-42): pinned clients, overflow and priorities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import SOON, Recorder
from .support import (
    QUICK,
    Handler,
    Pulls,
    at_work,
    both_faces,
    fill,
    numbers,
    settled,
    take,
)

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server

SWIFT: dict[str, Any] = {"timeout": SOON, "group": "A"}


@pytest.fixture
def pinned(stream: jsync.Stream) -> jsync.Consumer:
    """A consumer that unpins a client which has not pulled for a minute."""
    return stream.create_consumer(
        durable_name="pinned",
        priority_groups=["A"],
        priority_policy="pinned_client",
        priority_timeout=60,
    )


@pytest.fixture
def far_pinned(
    far: jsync.Connection, stream: jsync.Stream, pinned: jsync.Consumer
) -> jsync.Consumer:
    return far.jetstream().stream(stream.name).consumer("pinned")


def unpin(nc: jsync.Connection, consumer: jsync.Consumer) -> None:
    nc.jetstream().consumer(consumer.stream_name, consumer.name).unpin("A")


def holder(consumer: jsync.Consumer) -> str | None:
    """Return the id of the client that the server has pinned."""
    states = consumer.info().priority_groups
    assert states
    return states[0].pinned_client_id


# Pinned clients -----------------------------------------------------------------------


def test_repeated_next_and_fetch_calls_keep_the_pin(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_pinned: jsync.Consumer,
    pulls: Pulls,
) -> None:
    fill(nc, stream, 20)
    assert int(far_pinned.next(**SWIFT).data) == 0
    pin = holder(far_pinned)
    assert pin
    assert int(far_pinned.next(**SWIFT).data) == 1
    assert numbers(far_pinned.fetch(5, **SWIFT)) == list(range(2, 7))
    assert numbers(far_pinned.fetch_nowait(3, group="A")) == [7, 8, 9]
    with far_pinned.messages(group="A", max_messages=5) as messages:
        assert take(messages, 5) == list(range(10, 15))
    first, *others = pulls.requests
    assert (first["group"], first.get("id")) == ("A", None)
    assert {(pull["group"], pull["id"]) for pull in others} == {("A", pin)}


def test_only_the_pinned_client_is_served(
    server: LocalServer,
    nc: jsync.Connection,
    stream: jsync.Stream,
    pinned: jsync.Consumer,
) -> None:
    fill(nc, stream, 3)
    with jsync.connect(server.url) as second:
        other = second.jetstream().stream(stream.name).consumer("pinned")
        assert int(pinned.next(**SWIFT).data) == 0
        with pytest.raises(errors.TimeoutError):
            other.next(0.2, group="A")
        # The client is the consumer object, so another object of the same connection gets nothing.
        with pytest.raises(errors.TimeoutError):
            stream.consumer("pinned").next(0.2, group="A")
        assert int(pinned.next(**SWIFT).data) == 1
        unpin(nc, pinned)
        assert int(other.next(**SWIFT).data) == 2


def test_an_unpinned_client_waits_for_its_turn_again(
    nc: jsync.Connection,
    stream: jsync.Stream,
    pinned: jsync.Consumer,
    far_pinned: jsync.Consumer,
    pulls: Pulls,
) -> None:
    fill(nc, stream, 5)
    assert int(far_pinned.next(**SWIFT).data) == 0
    old = holder(pinned)
    # No client is pinned any more, so the old id is wrong.
    unpin(nc, pinned)
    assert int(far_pinned.next(**SWIFT).data) == 1
    assert pulls.statuses[-1] == "423 Nats-Wrong-Pin-Id"
    assert holder(pinned) not in (old, None)
    # Another client is pinned, so the ids do not match.
    unpin(nc, pinned)
    assert int(pinned.next(**SWIFT).data) == 2
    with pytest.raises(errors.TimeoutError):
        far_pinned.next(0.3, group="A")
    assert "423 Nats-Pin-Id mismatch" in pulls.statuses
    # When the other client is unpinned, the first one gets messages again.
    unpin(nc, pinned)
    assert int(far_pinned.next(**SWIFT).data) == 3
    assert numbers(far_pinned.fetch(1, **SWIFT)) == [4]


@both_faces
def test_messages_and_consume_pull_again_once_unpinned(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_pinned: jsync.Consumer,
    pulls: Pulls,
    face: str,
) -> None:
    told, handler, pins = Recorder(), Handler(), set()
    options: dict[str, Any] = {"group": "A", "max_messages": 10, "on_error": told}
    with at_work(face, far_pinned, handler, **options):
        for round_ in range(1, 4):
            fill(nc, stream, 30)
            wait_for(lambda n=round_ * 30: len(handler.numbers) == n)  # type: ignore[misc]
            pins.add(holder(far_pinned))
            unpin(nc, far_pinned)
        fill(nc, stream, 30)
        wait_for(lambda: len(handler.numbers) == 120)
        wait_for(lambda: settled(far_pinned))
    assert handler.numbers == list(range(120))
    assert len(pins) == 3
    error = told.get()
    assert isinstance(error, errors.PullError)
    assert error.status == 423
    assert "423 Nats-Wrong-Pin-Id" in pulls.statuses


@both_faces
def test_another_client_replaces_a_dead_pinned_one(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far: jsync.Connection,
    proxy: FaultProxy,
    face: str,
) -> None:
    two = stream.create_consumer(
        durable_name="pair",
        priority_groups=["A"],
        priority_policy="pinned_client",
        priority_timeout=1,
        ack_wait=1,
    )
    one = far.jetstream().stream(stream.name).consumer("pair")
    a, b = Handler(), Handler()
    with one.consume(a, group="A", **QUICK):
        wait_for(lambda: two.info().num_waiting == 1)
        with at_work(face, two, b, group="A", **QUICK):
            fill(nc, stream, 20)
            wait_for(lambda: len(a.numbers) == 20)
            assert b.numbers == []
            proxy.refuse()
            proxy.cut()
            fill(nc, stream, 20)
            wait_for(lambda: set(b.numbers) >= set(range(20, 40)))
            wait_for(lambda: settled(two))
            # The first client is back, and waits for its turn.
            proxy.accept()
            far.flush(SOON)
            fill(nc, stream, 20)
            wait_for(lambda: set(b.numbers) >= set(range(20, 60)))
    assert a.numbers == list(range(20))


def test_pin_ids_do_not_count_in_byte_limits(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    far: jsync.Connection,
    far_pinned: jsync.Consumer,
    pulls: Pulls,
) -> None:
    fill(nc, stream, 9)
    size = worker.next(SOON).size
    options: dict[str, Any] = {"max_bytes": 9 * size, "threshold_bytes": 0}
    with far_pinned.messages(group="A", **options) as messages:
        # A pin id is half as large as these messages.
        take(messages, 8)
        far.flush()
        assert pulls.count == 1
        take(messages, 1)
        wait_for(lambda: pulls.count == 2)
        assert [pull["max_bytes"] for pull in pulls.requests] == [9 * size] * 2


def test_a_publishers_header_is_no_pin_id(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    far_pinned: jsync.Consumer,
    pulls: Pulls,
) -> None:
    headers = {"Nats-Pin-Id": "forged"}
    for _ in range(3):
        nc.jetstream().publish(f"{stream.name}.a", b"1", headers=headers)
    for _ in range(3):
        far_pinned.next(**SWIFT).ack()
        far_worker.next(SOON).ack()
    assert all(pull.get("id") != "forged" for pull in pulls.requests)


# Overflow -----------------------------------------------------------------------------


@pytest.fixture
def overflow(stream: jsync.Stream) -> jsync.Consumer:
    return stream.create_consumer(
        durable_name="overflow", priority_groups=["A"], priority_policy="overflow"
    )


def test_overflow_clients_are_served_while_enough_is_pending(
    nc: jsync.Connection, stream: jsync.Stream, overflow: jsync.Consumer
) -> None:
    fill(nc, stream, 4)
    with overflow.messages(group="A", min_pending=5) as spare:
        nc.flush()
        with pytest.raises(errors.TimeoutError):
            spare.next(0.2)
        fill(nc, stream, 3)
        # Seven pending messages are three more than four. The last four are for others.
        assert take(spare, 3) == [0, 1, 2]
        with pytest.raises(errors.TimeoutError):
            spare.next(0.2)
        assert numbers(overflow.fetch(4, **SWIFT)) == [3, 4, 5, 6]


def test_overflow_clients_are_served_while_enough_awaits_acks(
    nc: jsync.Connection, stream: jsync.Stream, overflow: jsync.Consumer
) -> None:
    fill(nc, stream, 10)
    with pytest.raises(errors.TimeoutError):
        overflow.next(0.2, group="A", min_ack_pending=3)
    unacked = list(overflow.fetch(3, **SWIFT))
    assert int(overflow.next(min_ack_pending=3, **SWIFT).data) == 3
    for msg in unacked:
        msg.ack_sync()
    with overflow.fetch(1, timeout=0.2, group="A", min_ack_pending=3) as batch:
        assert list(batch) == []


# Priorities ---------------------------------------------------------------------------


def test_the_waiting_client_with_higher_priority_is_served(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    high = stream.create_consumer(
        durable_name="ranked", priority_groups=["A"], priority_policy="prioritized"
    )
    with jsync.connect(server.url) as second:
        low = second.jetstream().stream(stream.name).consumer("ranked")
        a, b = Handler(), Handler()
        with low.consume(b, group="A", priority=9, max_messages=5):
            fill(nc, stream, 10)
            wait_for(lambda: len(b.numbers) == 10)
            with high.consume(a, group="A", priority=0, max_messages=1000):
                wait_for(lambda: high.info().num_waiting >= 2)
                fill(nc, stream, 100)
                wait_for(lambda: len(a.numbers) == 100)
            fill(nc, stream, 10)
            wait_for(lambda: len(b.numbers) == 20)
    assert a.numbers == list(range(10, 110))


# Rejected pulls -----------------------------------------------------------------------

UNKNOWN_TOO: list[dict[str, Any]] = [
    {"group": ""},
    {"group": "with blank"},
    {"group": "x" * 17},
    {"group": 1},
    {"group": "A", "priority": 10},
    {"group": "A", "priority": -1},
    {"group": "A", "priority": 1.0},
    {"group": "A", "priority": True},
    {"group": "A", "min_pending": 0},
    {"group": "A", "min_ack_pending": -1},
    {"group": "A", "min_pending": "1"},
    {"priority": 1},
    {"min_pending": 1},
    {"min_ack_pending": 1},
]
KNOWN: list[dict[str, Any]] = [
    {},
    {"group": "B"},
    {"group": "A", "min_pending": 1},
    {"group": "A", "min_ack_pending": 1},
    {"group": "A", "priority": 1},
]


@pytest.mark.parametrize("options", UNKNOWN_TOO + KNOWN, ids=str)
def test_impossible_priority_options_are_rejected_before_sending(
    far: jsync.Connection,
    far_pinned: jsync.Consumer,
    pulls: Pulls,
    options: dict[str, Any],
) -> None:
    before = len(far._session.interests)
    calls: list[Any] = [
        lambda: far_pinned.next(1, **options),
        lambda: far_pinned.fetch(1, **options),
        lambda: far_pinned.fetch_nowait(1, **options),
        lambda: far_pinned.messages(**options),
        lambda: far_pinned.consume(print, **options),
    ]
    for call in calls:
        with pytest.raises(errors.ConfigError):
            call()
    far.flush()
    assert pulls.count == 0
    assert len(far._session.interests) == before


def test_a_consumer_without_groups_is_given_none(worker: jsync.Consumer) -> None:
    with pytest.raises(errors.ConfigError, match="no priority groups"):
        worker.fetch(1, group="A")


def test_the_server_judges_options_for_unknown_consumers(
    nc: jsync.Connection, stream: jsync.Stream, pinned: jsync.Consumer
) -> None:
    fill(nc, stream, 2)
    bound = nc.jetstream().consumer(stream.name, "pinned")
    with pytest.raises(errors.PullError, match="Priority Group missing"):
        bound.next(SOON)
    with pytest.raises(errors.PullError, match="Invalid Priority Group"):
        bound.next(SOON, group="B")
    with pytest.raises(errors.PullError, match="Not a Overflow"):
        bound.next(SOON, group="A", min_pending=1)
    # The client gets pinned nevertheless.
    assert [int(bound.next(**SWIFT).data) for _ in range(2)] == [0, 1]
    assert bound._pins["A"].id == holder(pinned)
