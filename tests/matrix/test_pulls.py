"""Tests of all ways to pull messages, on each release line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ..support.servers import wait_for
from ..support.threads import LONG
from .test_management import needing

if TYPE_CHECKING:
    import jsync
    from jsync.models.server_version import ServerVersion


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> jsync.Stream:
    """A stream of a hundred messages."""
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"], storage="memory")
    with js.publisher() as publisher:
        for number in range(100):
            publisher.publish(f"{unique}.{number % 3}", b"%d" % number)
    return stream


@pytest.fixture
def consumer(stream: jsync.Stream) -> jsync.Consumer:
    return stream.create_consumer(durable_name="d")


def test_next_gives_one_message_or_times_out(
    stream: jsync.Stream, consumer: jsync.Consumer
) -> None:
    msg = consumer.next(LONG)
    assert (msg.data, msg.metadata.stream_sequence) == (b"0", 1)
    assert msg.metadata.num_pending == 99
    msg.ack_sync()
    assert consumer.info().ack_floor.stream_seq == 1
    empty = stream.create_consumer(name="e", filter_subject=f"{stream.name}.none")
    with pytest.raises(errors.TimeoutError):
        empty.next(0.1)
    empty.delete()
    with pytest.raises((errors.NoRespondersError, errors.ConsumerDeletedError)):
        empty.next(LONG)


def test_fetch_returns_the_available_messages(consumer: jsync.Consumer) -> None:
    with consumer.fetch(60, timeout=LONG) as batch:
        assert [int(msg.data) for msg in batch] == list(range(60))
    with consumer.fetch_nowait(60) as batch:
        assert [int(msg.data) for msg in batch] == list(range(60, 100))
        assert batch.error is None
    with consumer.fetch(1, timeout=0.1) as batch:
        assert list(batch) == []


def test_fetch_by_bytes(consumer: jsync.Consumer) -> None:
    with consumer.fetch(max_bytes=1000, timeout=LONG, idle_heartbeat=0.5) as batch:
        msgs = list(batch)
    assert 0 < len(msgs) < 100
    assert [int(msg.data) for msg in msgs] == list(range(len(msgs)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_messages": 10, "threshold_messages": 5},
        {"max_messages": 1},
        {"max_bytes": 2000},
        {"expires": 2.0, "idle_heartbeat": 0.5},
    ],
    ids=str,
)
def test_messages_gives_all(consumer: jsync.Consumer, options: dict[str, Any]) -> None:
    with consumer.messages(stop_after=100, **options) as messages:
        seen = []
        for msg in messages:
            seen.append(int(msg.data))
            msg.ack()
    assert seen == list(range(100))


@pytest.mark.parametrize("workers", [1, 4])
def test_consume_gives_all(consumer: jsync.Consumer, workers: int) -> None:
    seen: list[int] = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        seen.append(int(msg.data))
        msg.ack()

    with consumer.consume(handle, stop_after=100, workers=workers) as running:
        running.wait(LONG)
    assert sorted(seen) == list(range(100))


def test_messages_come_again_as_they_were_given_back(consumer: jsync.Consumer) -> None:
    msg = consumer.next(LONG)
    msg.nak()
    with consumer.fetch(100, timeout=LONG) as batch:
        again = [msg for msg in batch if msg.data == b"0"]
    assert [msg.metadata.num_delivered for msg in again] == [2]
    again[0].in_progress()
    again[0].term("no use")


def test_a_deleted_consumer_ends_its_readers(
    js: jsync.JetStream, consumer: jsync.Consumer
) -> None:
    running = consumer.consume(lambda msg: msg.ack())
    messages = consumer.messages()
    batch = consumer.fetch(1000, timeout=LONG)
    # If the server has not yet received a pull request, the request is lost with its consumer.
    wait_for(lambda: consumer.info().num_waiting == 3)
    js.delete_consumer(consumer.stream_name, consumer.name)
    with pytest.raises(errors.ConsumerDeletedError):
        running.wait(LONG)
    for reading in (messages, batch):
        with pytest.raises(errors.ConsumerDeletedError):
            list(reading)


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("pinned_client", {}),
        ("overflow", {"min_pending": 5}),
        ("overflow", {}),
        ("prioritized", {"priority": 3}),
    ],
)
def test_priority_groups_work_or_the_server_is_old(
    js: jsync.JetStream,
    stream: jsync.Stream,
    line: ServerVersion,
    policy: str,
    options: dict[str, Any],
) -> None:
    since = (2, 12) if policy == "prioritized" else (2, 11)
    if line >= since:
        stream.create_consumer(name="g", priority_groups=["a"], priority_policy=policy)
    # `js.consumer` does not ask the server about the consumer.
    consumer = js.consumer(stream.name, "g")
    what = "priorities of pulls" if "priority" in options else "priority groups"
    with needing(since, line, what):
        assert consumer.next(LONG, group="a", **options).data == b"0"
    with needing(since, line, what):
        with consumer.fetch(9, timeout=LONG, group="a", **options) as batch:
            assert len(list(batch)) == 9
    with needing(since, line, what):
        with consumer.messages(stop_after=10, group="a", **options) as messages:
            assert len(list(messages)) == 10
    with needing(since, line, what):
        handled: list[jsync.JetStreamMsg] = []
        with consumer.consume(
            handled.append, stop_after=10, group="a", **options
        ) as running:
            running.wait(LONG)
        assert len(handled) == 10


def test_a_stream_is_read_in_order(js: jsync.JetStream, stream: jsync.Stream) -> None:
    reader = stream.ordered_consumer()
    with reader.messages(stop_after=60) as messages:
        seen = []
        for msg in messages:
            seen.append(int(msg.data))
            if len(seen) == 30:
                # jsync creates the consumer again, from the next message.
                for name in stream.consumer_names():
                    js.delete_consumer(stream.name, name)
    assert seen == list(range(60))
    with reader.fetch(1000, timeout=0.5) as batch:
        assert [int(msg.data) for msg in batch] == list(range(60, 100))


def test_part_of_a_stream_is_read_in_order(stream: jsync.Stream) -> None:
    filters = [f"{stream.name}.0", f"{stream.name}.1"]
    some = stream.ordered_consumer(filter_subjects=filters, opt_start_seq=50)
    with some.fetch(10, timeout=LONG) as batch:
        assert [int(msg.data) for msg in batch] == [
            *(49, 51, 52, 54, 55, 57, 58, 60, 61, 63)
        ]
    last = stream.ordered_consumer(deliver_policy="last_per_subject")
    with last.fetch(3, timeout=LONG) as batch:
        assert [int(msg.data) for msg in batch] == [97, 98, 99]
