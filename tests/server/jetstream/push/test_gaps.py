"""Tests of ADR-15, Messages Gaps: jsync reports lost messages with their range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.push_traffic import IDLE, Traffic, publish, say, sequences, take
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....support.proxy import FaultProxy


@pytest.fixture
def traffic(proxy: FaultProxy) -> Traffic:
    return Traffic(proxy)


@pytest.fixture
def problems() -> Recorder:
    return Recorder()


@pytest.fixture
def distant(traffic: Traffic, proxy: FaultProxy) -> Iterator[jsync.JetStream]:
    """JetStream through the proxy, where `traffic` can lose frames."""
    with jsync.connect(proxy.url) as connection:
        yield connection.jetstream()


# Match a message by its sequence in the stream and in the consumer.
def numbered(consumer: int, stream: int) -> bytes:
    return b".%d.%d." % (stream, consumer)


def test_a_message_gap_is_reported_with_its_range(
    nc: jsync.Connection,
    traffic: Traffic,
    distant: jsync.JetStream,
    problems: Recorder,
    subject: str,
) -> None:
    for lost in (4, 5, 9):
        traffic.lose(numbered(lost, lost), "client")
    with distant.subscribe(subject, on_error=problems, ack_policy="none") as sub:
        publish(nc, subject, 12)
        assert sequences(take(sub, 9)) == [1, 2, 3, 6, 7, 8, 10, 11, 12]
        first, second = problems.get(), problems.get()
    assert isinstance(first, errors.MessageGapError)
    assert isinstance(second, errors.MessageGapError)
    assert (first.first, first.last) == (4, 5)
    assert (first.after_stream_sequence, first.before_stream_sequence) == (3, 6)
    assert (second.first, second.last) == (9, 9)
    assert not problems.waiting


def test_missing_messages_that_need_acks_are_redelivered(
    nc: jsync.Connection,
    traffic: Traffic,
    distant: jsync.JetStream,
    problems: Recorder,
    subject: str,
) -> None:
    traffic.lose(numbered(2, 2), "client")
    with distant.subscribe(subject, on_error=problems, ack_wait=0.5) as sub:
        publish(nc, subject, 3)
        seen: set[int] = set()
        while seen != {1, 2, 3}:
            msg = sub.next(LONG)
            seen.add(msg.metadata.stream_sequence)
            msg.ack()
    gap = problems.get()
    assert isinstance(gap, errors.MessageGapError)
    assert (gap.first, gap.last) == (2, 2)
    assert not problems.waiting


def test_a_heartbeat_reports_a_final_gap_once(
    nc: jsync.Connection,
    traffic: Traffic,
    distant: jsync.JetStream,
    problems: Recorder,
    subject: str,
) -> None:
    for lost in (2, 3):
        traffic.lose(numbered(lost, lost), "client")
    with distant.subscribe(
        subject,
        on_error=problems,
        ack_policy="none",
        idle_heartbeat=0.2,
        heartbeat_timeout=LONG,
    ) as sub:
        publish(nc, subject, 3)
        assert sequences(take(sub, 1)) == [1]
        gap = problems.get()
        assert isinstance(gap, errors.MessageGapError)
        assert (gap.first, gap.last) == (2, 3)
        heard = traffic.heartbeats
        wait_for(lambda: traffic.heartbeats >= heard + 3)
        publish(nc, subject, 1)
        assert sequences(take(sub, 1)) == [4]
        assert not problems.waiting


def test_a_gap_before_the_first_message_is_reported(
    nc: jsync.Connection,
    traffic: Traffic,
    distant: jsync.JetStream,
    problems: Recorder,
    subject: str,
) -> None:
    publish(nc, subject, 3)
    traffic.lose(numbered(1, 1), "client")
    with distant.subscribe(subject, on_error=problems, ack_policy="none"):
        gap = problems.get()
    assert isinstance(gap, errors.MessageGapError)
    assert (gap.first, gap.last) == (1, 1)


def test_existing_consumers_count_gaps_from_their_last_sequence(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    traffic: Traffic,
    distant: jsync.JetStream,
    problems: Recorder,
    subject: str,
    unique: str,
) -> None:
    stream.create_push_consumer(durable_name="old", deliver_subject=f"to.{unique}")
    publish(nc, subject, 2)
    with js.subscribe(subject, consumer="old", stream=stream.name) as sub:
        for msg in take(sub, 2):
            msg.ack_sync()
    wait_for(lambda: not stream.consumer("old").info().push_bound)
    traffic.lose(numbered(3, 3), "client")
    with distant.subscribe(
        subject, consumer="old", stream=stream.name, on_error=problems
    ) as sub:
        publish(nc, subject, 2)
        assert sequences(take(sub, 1)) == [4]
        gap = problems.get()
    assert isinstance(gap, errors.MessageGapError)
    assert (gap.first, gap.last) == (3, 3)


def test_a_queue_group_looks_for_no_gaps(
    nc: jsync.Connection,
    traffic: Traffic,
    distant: jsync.JetStream,
    problems: Recorder,
    subject: str,
) -> None:
    traffic.lose(numbered(2, 2), "client")
    with distant.subscribe(
        subject, "group", on_error=problems, ack_policy="none"
    ) as sub:
        publish(nc, subject, 3)
        assert sequences(take(sub, 2)) == [1, 3]
        say(nc, sub.subject, 100, IDLE, "Nats-Last-Consumer: 9", "Nats-Last-Stream: 9")
        publish(nc, subject, 1)
        take(sub, 1)
        distant._api.session.callbacks.submit(problems, None)
        assert problems.get() is None


def test_dropped_messages_report_slow_readers_and_no_gaps(
    server: Any, nc: jsync.Connection, subject: str
) -> None:
    problems, slow = Recorder(), Recorder()
    with (
        jsync.connect(server.url, on_error=slow) as other,
        other.jetstream().subscribe(
            subject, pending_msgs_limit=5, on_error=problems, ack_policy="none"
        ) as sub,
    ):
        publish(nc, subject, 10)
        assert isinstance(slow.get(), errors.SlowConsumerError)
        wait_for(lambda: sub.dropped == 5)
        assert sequences(take(sub, 5)) == [1, 2, 3, 4, 5]
        publish(nc, subject, 1)
        assert sequences([sub.next(SOON)]) == [11]
        assert not problems.waiting


def test_a_consumer_that_is_reset_has_no_gap(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    problems = Recorder()
    publish(nc, subject, 5)
    with js.subscribe(subject, durable="again", on_error=problems) as sub:
        for msg in take(sub, 5):
            msg.ack_sync()
        stream.consumer("again").reset(2)
        assert sequences(take(sub, 4)) == [2, 3, 4, 5]
        nc._session.callbacks.submit(problems, None)
        assert problems.get() is None
