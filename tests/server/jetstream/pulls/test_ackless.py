"""Tests of consumers with the ack policy none: no ack is sent, and no prefetched message is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync

from ....support.servers import wait_for
from ....support.threads import SOON, Thread
from .support import Handler, fill, numbers, take

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.server


@pytest.fixture
def reader(stream: jsync.Stream) -> jsync.Consumer:
    return stream.create_consumer(name="reader", ack_policy="none")


@pytest.mark.parametrize(
    "ack",
    [
        jsync.JetStreamMsg.ack,
        jsync.JetStreamMsg.nak,
        jsync.JetStreamMsg.term,
        jsync.JetStreamMsg.in_progress,
        jsync.JetStreamMsg.ack_sync,
    ],
)
def test_no_ack_is_written(
    nc: jsync.Connection,
    stream: jsync.Stream,
    reader: jsync.Consumer,
    ack: Callable[[jsync.JetStreamMsg], None],
) -> None:
    fill(nc, stream, 4)
    with reader.messages(max_messages=1) as messages:
        msgs = [reader.next(SOON), *reader.fetch(1), messages.next(SOON)]
        messages.next(SOON)
        wait_for(lambda: reader.info().num_waiting == 1)
        sent = nc.stats().out_messages
        for msg in msgs:
            ack(msg)
            assert not msg.is_acked
        nc.flush()
        assert nc.stats().out_messages == sent


def test_consumers_of_unknown_policy_accept_acks_without_effect(
    nc: jsync.Connection, stream: jsync.Stream, reader: jsync.Consumer
) -> None:
    fill(nc, stream, 3)
    bound = nc.jetstream().consumer(stream.name, "reader")
    for number in range(3):
        msg = bound.next(SOON)
        assert int(msg.data) == number
        msg.ack()
        assert msg.is_acked
    assert reader.info().delivered.consumer_seq == 3


def test_stopped_messages_return_the_prefetched_messages(
    nc: jsync.Connection, stream: jsync.Stream, reader: jsync.Consumer
) -> None:
    fill(nc, stream, 50)
    messages = reader.messages(max_messages=30)
    assert take(messages, 3) == [0, 1, 2]
    wait_for(lambda: messages.pending == 27)
    rest = messages.stop()
    assert numbers(rest) == list(range(3, 30))
    assert messages.stop() == []
    assert list(messages) == []
    # The server has not yet delivered the remaining messages.
    assert numbers(reader.fetch_nowait(50)) == list(range(30, 50))


def test_after_a_with_block_stop_still_returns_it(
    nc: jsync.Connection, stream: jsync.Stream, reader: jsync.Consumer
) -> None:
    fill(nc, stream, 20)
    with reader.messages(max_messages=10) as messages:
        for _ in messages:
            break
        wait_for(lambda: messages.pending == 9)
    assert list(messages) == []
    assert numbers(messages.stop()) == list(range(1, 10))
    with reader.fetch(10, timeout=SOON) as batch:
        next(iter(batch))
    assert numbers(batch.close()) == list(range(11, 20))


def test_a_stopped_consume_returns_the_unhandled_messages(
    nc: jsync.Connection, stream: jsync.Stream, reader: jsync.Consumer
) -> None:
    fill(nc, stream, 20)
    handler = Handler()
    handler.open.clear()
    consuming = reader.consume(handler, max_messages=20)
    assert handler.entered.wait(SOON)
    wait_for(lambda: len(consuming._delivery.mailbox) == 19)
    stopping = Thread(consuming.stop)
    # It waits for the server first, and then for the handler.
    wait_for(lambda: len(consuming._delivery.mailbox) == 0)
    stopping.wait_until_blocked()
    handler.open.set()
    assert numbers(stopping.result()) == list(range(1, 20))
    assert consuming.stop() == []


def test_with_acks_stop_returns_nothing_to_the_caller(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 20)
    messages = worker.messages()
    wait_for(lambda: messages.pending == 20)
    assert messages.stop() == []
    consuming = worker.consume(Handler())
    wait_for(lambda: worker.info().num_pending == worker.info().num_ack_pending == 0)
    assert consuming.stop() == []


def test_stop_returns_the_rest_after_a_handler_fails(
    nc: jsync.Connection, stream: jsync.Stream, reader: jsync.Consumer
) -> None:
    fill(nc, stream, 20)
    handler = Handler(bad=4)
    handler.open.clear()
    consuming = reader.consume(handler, max_messages=20, on_exception="stop")
    wait_for(lambda: len(consuming._delivery.mailbox) == 19)
    handler.open.set()
    wait_for(lambda: consuming.closed)
    assert handler.numbers == list(range(5))
    assert numbers(consuming.stop()) == list(range(5, 20))
