"""Tests that an ordered consumer keeps its place for one reader, and keeps nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync import errors

from ....support.connection_faults import subscribed
from ....support.servers import wait_for
from .support import by_next, consumers, delete_consumers, fill, numbers, take

if TYPE_CHECKING:
    import jsync


pytestmark = pytest.mark.server


def test_one_thread_reads_at_a_time(nc: jsync.Connection, stream: jsync.Stream) -> None:
    fill(nc, stream, 10)
    consumer = stream.ordered_consumer()
    with consumer.messages() as messages:
        assert take(messages, 1) == [0]
        for attempt in (consumer.messages, consumer.next, lambda: consumer.fetch(1)):
            with pytest.raises(errors.ConcurrentUseError):
                attempt()
    with consumer.fetch(5) as batch:
        assert int(next(batch).data) == 1
        with pytest.raises(errors.ConcurrentUseError):
            consumer.next()
    assert int(consumer.next().data) == 2


def test_no_consumer_is_left_on_the_server(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 10)
    consumer = stream.ordered_consumer()
    for _ in range(3):
        with consumer.messages() as messages:
            messages.next()
            delete_consumers(nc, stream)
    consumer.fetch(5).close()
    wait_for(lambda: not consumers(nc, stream))
    assert numbers(stream.ordered_consumer().messages(until_end=True)) == [*range(10)]
    wait_for(lambda: not consumers(nc, stream))
    assert len(numbers(stream.ordered_consumer().messages(stop_after=5))) == 5
    wait_for(lambda: not consumers(nc, stream))
    stream.ordered_consumer().consume(lambda m: None, until_end=True)
    wait_for(lambda: not consumers(nc, stream))


def test_nothing_piles_up_in_the_connection(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    session = nc._session
    consumer = stream.ordered_consumer()
    begun = subscribed(nc), len(session.reply_mux)
    for _ in range(30):
        fill(nc, stream, 6)
        assert consumer.next().data
        assert len(list(consumer.fetch(2))) == 2
        for _ in consumer.fetch(5):
            break
        for msg in consumer.messages():
            delete_consumers(nc, stream)
            assert msg.data
            break
        assert consumer.next().data
    consumer.messages().stop()
    wait_for(lambda: (subscribed(nc), len(session.reply_mux)) == begun)


def test_polling_an_idle_stream_keeps_its_consumer(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    consumer = stream.ordered_consumer()
    names = consumers(nc, stream)
    for _ in range(5):
        with pytest.raises(errors.TimeoutError):
            consumer.next(0.05)
        assert not numbers(consumer.fetch_nowait(5))
    fill(nc, stream, 3)
    assert by_next(consumer, 3) == [0, 1, 2]
    assert consumers(nc, stream) == names
