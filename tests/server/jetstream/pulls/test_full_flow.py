"""Tests of ending in full flow: every message that the server has counted as delivered arrives."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ....support.servers import wait_for
from ....support.threads import SOON, Thread
from .support import Work, at_work, both_faces, fill, numbers

if TYPE_CHECKING:
    import jsync

    from .support import Pulls

pytestmark = pytest.mark.server

ROUNDS = 40
PROBE = {"batch": 1, "max_bytes": 1, "no_wait": True}


def reader(stream: jsync.Stream, number: int = 0) -> jsync.Consumer:
    """Create a consumer without acks, which loses each message that its server drops."""
    return stream.create_consumer(name=f"reader-{number}", ack_policy="none")


class Refilling:
    """A handler that signals when half of a pull of 20 is read, and the next pull is sent."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.refilled = threading.Event()

    def __call__(self, msg: jsync.JetStreamMsg) -> None:
        self.numbers.append(int(msg.data))
        if len(self.numbers) == 10:
            self.refilled.set()


def is_read(work: Work) -> bool:
    return not getattr(work, "pending", 0)


@both_faces
@pytest.mark.parametrize("how", ["stop", "drain"])
def test_stopping_a_consumer_in_full_flow_loses_nothing(
    nc: jsync.Connection, stream: jsync.Stream, how: str, face: str
) -> None:
    fill(nc, stream, 200)
    for number in range(ROUNDS):
        consumer = reader(stream, number)
        handler = Refilling()
        with at_work(face, consumer, handler, max_messages=20) as work:
            assert handler.refilled.wait(SOON)
            rest = getattr(work, how)() or []
            wait_for(partial(is_read, work))
        got = [*handler.numbers, *numbers(rest)]
        assert got == list(range(consumer.info().delivered.consumer_seq))


def test_messages_stopped_at_once_return_everything_pulled(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 50)
    consumer = reader(stream)
    assert numbers(consumer.messages(max_messages=20).stop()) == list(range(20))
    rest = numbers(consumer.messages(max_bytes=2000).stop())
    assert rest == list(range(20, consumer.info().delivered.consumer_seq))


def test_a_fetch_left_at_once_returns_everything_pulled(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 60)
    consumer = reader(stream)
    for first in range(0, 60, 20):
        batch = consumer.fetch(20)
        assert numbers(batch.close()) == list(range(first, first + 20))
    # Get the available messages without waiting for more.
    fill(nc, stream, 5)
    assert numbers(consumer.fetch(20, timeout=60).close()) == list(range(60, 65))
    assert consumer.fetch(20, timeout=60).close() == []


@pytest.mark.parametrize("how", ["stop", "drain"])
def test_servers_with_nothing_to_send_are_asked_once(
    far: jsync.Connection, stream: jsync.Stream, pulls: Pulls, how: str
) -> None:
    consumer = reader(stream)
    messages = far.jetstream().stream(stream.name).consumer(consumer.name).messages()
    wait_for(lambda: consumer.info().num_waiting == 1)
    getattr(messages, how)()
    assert pulls.requests[1:] == [PROBE]
    wait_for(lambda: consumer.info().num_waiting == 0)


def test_a_server_owing_no_message_is_not_asked(
    nc: jsync.Connection,
    far: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
) -> None:
    fill(nc, stream, 20)
    batch = far_worker.fetch(10)
    wait_for(lambda: len(batch._pull.inbox.mailbox) == 10)
    batch.close()
    messages = far_worker.messages(max_messages=10, threshold_messages=0)
    wait_for(lambda: messages.pending == 10)
    messages.stop()
    assert pulls.batches == [10, 10]


def test_a_consumer_awaiting_acks_does_not_delay_stop(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    consumer = stream.create_consumer(durable_name="few", max_ack_pending=5)
    fill(nc, stream, 20)
    messages = consumer.messages(max_messages=10)
    wait_for(lambda: messages.pending == 5)
    stopping = Thread(messages.stop)
    stopping.result()
    with consumer.fetch(5, timeout=SOON) as batch:
        assert sorted(numbers(batch)) == list(range(5))


def test_stopping_gives_out_no_other_pin(
    far: jsync.Connection, stream: jsync.Stream, pulls: Pulls
) -> None:
    options: dict[str, Any] = {
        "priority_groups": ["A"],
        "priority_policy": "pinned_client",
    }
    stream.create_consumer(durable_name="pinned", **options)
    consumer = far.jetstream().stream(stream.name).consumer("pinned")
    consumer.messages(group="A").stop()
    assert pulls.batches == [500]
