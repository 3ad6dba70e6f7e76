"""Tests of the subscribe workflow of ADR-15 on each release line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync import errors

from ..support.servers import wait_for
from ..support.threads import LONG, Recorder

if TYPE_CHECKING:
    import jsync


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> jsync.Stream:
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"], storage="memory")
    for number in range(5):
        js.publish(f"{unique}.a", b"%d" % number)
    return stream


def test_a_consumer_is_created_shared_checked_and_deleted(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    subject = f"{stream.name}.*"
    handled = Recorder()
    with js.subscribe(subject, "workers", handled) as first:
        with js.subscribe(subject, "workers", handled):
            assert {handled.get().data for _ in range(5)} == {
                b"%d" % number for number in range(5)
            }
            with pytest.raises(errors.QueueRequiredError):
                js.subscribe(subject, consumer="workers")
            with pytest.raises(errors.FilterMismatchError):
                js.subscribe(f"{stream.name}.a", "workers")
            with pytest.raises(errors.PushRequiredError):
                js.pull_subscribe(subject, "workers")
        assert list(stream.consumer_names()) == ["workers"]
        wait_for(lambda: first.consumer_info().num_ack_pending == 0)
    assert list(stream.consumer_names()) == []


def test_a_consumer_in_use_is_refused(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    subject = f"{stream.name}.a"
    with js.subscribe(subject, durable="d", flow_control=True) as sub:
        assert [int(sub.next(LONG).data) for _ in range(5)] == list(range(5))
        wait_for(lambda: sub.consumer_info().push_bound)
        with pytest.raises(errors.DuplicateSubscriptionError):
            js.subscribe(subject, durable="d")
    stream.create_consumer(durable_name="other", deliver_subject=f"to.{stream.name}")
    with pytest.raises(errors.ConfigMismatchError, match="ack_wait"):
        js.subscribe(subject, durable="other", ack_wait=5)


def test_a_pull_subscription_fetches(js: jsync.JetStream, stream: jsync.Stream) -> None:
    with js.pull_subscribe(f"{stream.name}.a", "p") as sub:
        assert [int(msg.data) for msg in sub.fetch(3, timeout=LONG)] == [0, 1, 2]
        assert [int(msg.data) for msg in sub.fetch(9, timeout=LONG)] == [3, 4]
        with pytest.raises(errors.TimeoutError):
            sub.fetch(timeout=0.05)
    assert list(stream.consumer_names()) == []


def test_an_ordered_subscription_reads_all(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with js.subscribe(f"{stream.name}.a", ordered=True) as sub:
        assert [int(sub.next(LONG).data) for _ in range(5)] == list(range(5))


def test_ordered_subscriptions_read_streams_with_limited_pending_acks(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    stream.update(consumer_limits={"max_ack_pending": 2, "inactive_threshold": 3.0})
    with js.subscribe(f"{stream.name}.a", ordered_consumer=True) as sub:
        assert [int(sub.next(LONG).data) for _ in range(5)] == list(range(5))
    with stream.ordered_consumer() as consumer:
        assert [int(msg.data) for msg in consumer.fetch(5)] == list(range(5))
        assert consumer.info().config.inactive_threshold == 3.0
