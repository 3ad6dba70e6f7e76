"""Tests of pulling in the subscribe workflow: `fetch` with the arguments of nats-py."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder, Thread
from ..pulls.support import Pulls

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy
    from ....support.subscribe_requests import Wire

pytestmark = pytest.mark.server


@pytest.fixture
def sub(js: jsync.JetStream, stream: jsync.Stream) -> jsync.PullSubscription:
    return js.pull_subscribe(f"{stream.name}.>", "worker")


def waiting(stream: jsync.Stream) -> int:
    return stream.consumer("worker").cached_info.num_waiting


def test_fetch_returns_the_available_messages_without_waiting(
    js: jsync.JetStream, far: jsync.JetStream, wire: Wire, subject: str
) -> None:
    sub = far.pull_subscribe(subject)
    for number in range(5):
        js.publish(subject, b"%d" % number)
    assert [msg.data for msg in sub.fetch()] == [b"0"]
    assert [msg.data for msg in sub.fetch(10, timeout=LONG)] == [b"1", b"2", b"3", b"4"]
    pulls = [request for request in wire.requests if "MSG.NEXT" in request]
    assert len(pulls) == 2
    payload = wire.payload("CONSUMER.MSG.NEXT")
    assert (payload["batch"], payload["no_wait"]) == (10, True)
    assert payload["expires"] > 0  # it waits for the first message, if there is none
    assert (sub.delivered, sub.pending_msgs, sub.pending_bytes) == (5, 0, 0)


def test_fetch_without_messages_waits_for_the_first(
    js: jsync.JetStream, sub: jsync.PullSubscription, stream: jsync.Stream, subject: str
) -> None:
    for timeout in (LONG, None):
        fetching = Thread(sub.fetch, 1, timeout)
        wait_for(lambda: waiting(stream) == 1)
        js.publish(subject, b"late")
        (msg,) = fetching.result()
        assert msg.data == b"late"
        msg.ack_sync()


def test_a_waiting_fetch_returns_with_its_first_message(
    js: jsync.JetStream, sub: jsync.PullSubscription, stream: jsync.Stream, subject: str
) -> None:
    for timeout in (LONG, None):
        fetching = Thread(sub.fetch, 100, timeout)
        wait_for(lambda: waiting(stream) == 1)
        js.publish(subject, b"late")
        assert [msg.data for msg in fetching.result()] == [b"late"]
        assert waiting(stream) == 0


def test_a_refused_fetch_waits_for_one_message(
    js: jsync.JetStream, stream: jsync.Stream, subject: str, wire: Wire
) -> None:
    consumer = stream.create_consumer(durable_name="worker", max_ack_pending=1)
    for number in (1, 2):
        js.publish(subject, b"%d" % number)
    held = consumer.next(SOON)
    with jsync.connect(wire.url) as nc:
        sub = nc.jetstream().pull_subscribe_bind("worker", stream.name)
        # While more messages are requested than wait, the server refuses another pull.
        other = consumer.fetch(10, timeout=LONG)
        wait_for(lambda: waiting(stream) == 1)
        fetching = Thread(sub.fetch, 5, LONG)
        wait_for(lambda: waiting(stream) == 2)
        assert wire.payload("CONSUMER.MSG.NEXT")["batch"] == 1
        other.close()
        held.ack_sync()
        assert [msg.data for msg in fetching.result()] == [b"2"]


@pytest.mark.parametrize("batch", [1, 10])
def test_an_empty_fetch_reports_neither_404_nor_408(
    sub: jsync.PullSubscription, batch: int
) -> None:
    with pytest.raises(
        errors.TimeoutError, match=r"no message within 0\.05 s"
    ) as caught:
        sub.fetch(batch, timeout=0.05, heartbeat=0.025)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.__cause__ is None


def test_fetch_takes_a_timedelta_for_each_duration(sub: jsync.PullSubscription) -> None:
    with pytest.raises(errors.TimeoutError, match=r"no message within 0\.05 s"):
        sub.fetch(1, timedelta(seconds=0.05), timedelta(seconds=0.025))
    sub.drain(timedelta(seconds=LONG))


def test_a_fetch_ended_early_raises_the_servers_reason(
    proxy: FaultProxy, subject: str
) -> None:
    pulls = Pulls(proxy)
    with jsync.connect(proxy.url) as nc:
        sub = nc.jetstream().pull_subscribe(subject)
        fetching = Thread(sub.fetch, 1, LONG)
        wait_for(lambda: pulls.count == 1)
        pulls.answer("409 Leadership Change")
        error = fetching.error()
        assert isinstance(error, errors.TimeoutError)
        assert "Leadership Change" in str(error)


def test_fetch_rejects_invalid_arguments(sub: jsync.PullSubscription) -> None:
    for batch, timeout, heartbeat in (
        (0, 5.0, None),
        (-1, 5.0, None),
        (1, 0.0, None),
        (1, -1.0, None),
        (1, 2.0, 1.5),
    ):
        with pytest.raises(errors.ConfigError):
            sub.fetch(batch, timeout, heartbeat)


def test_fetch_with_heartbeats_notices_a_silent_server(
    far: jsync.JetStream, wire: Wire, subject: str
) -> None:
    sub = far.pull_subscribe(subject)
    wire.drop(b"NATS/1.0 100 ")
    with pytest.raises(errors.PullError, match="no heartbeat"):
        sub.fetch(1, timeout=LONG, heartbeat=0.1)


def test_a_fetch_raises_when_its_consumer_is_deleted(
    sub: jsync.PullSubscription, stream: jsync.Stream
) -> None:
    fetching = Thread(sub.fetch, 10, LONG)
    wait_for(lambda: waiting(stream) == 1)
    stream.delete_consumer("worker")
    assert isinstance(fetching.error(), errors.ConsumerDeletedError)
    sub.unsubscribe()  # a consumer that is gone needs no deletion


def test_a_fetch_returns_received_messages_before_it_raises(
    js: jsync.JetStream, sub: jsync.PullSubscription, stream: jsync.Stream, subject: str
) -> None:
    fetching = Thread(sub.fetch, 10, LONG)
    wait_for(lambda: waiting(stream) == 1)
    js.publish(subject, b"before")
    wait_for(lambda: stream.consumer("worker").cached_info.delivered.consumer_seq == 1)
    stream.delete_consumer("worker")
    assert [msg.data for msg in fetching.result()] == [b"before"]
    with pytest.raises(errors.NoRespondersError):
        sub.fetch(1, timeout=SOON)


def test_unsubscribe_ends_it_and_deletes_its_own_consumer(
    js: jsync.JetStream, sub: jsync.PullSubscription, stream: jsync.Stream, subject: str
) -> None:
    with js.pull_subscribe(f"{stream.name}.>", "worker") as second:
        assert (sub.created, second.created) == (True, False)
    assert list(stream.consumer_names()) == ["worker"]
    sub.unsubscribe()
    assert list(stream.consumer_names()) == []
    sub.unsubscribe()
    for ended in (sub, second):
        assert not ended.is_active
        with pytest.raises(errors.SubscriptionClosedError):
            ended.fetch()


def test_unsubscribe_raises_server_errors_and_may_be_repeated(
    far: jsync.JetStream, wire: Wire, stream: jsync.Stream, subject: str
) -> None:
    sub = far.pull_subscribe(subject, "worker")
    sub._timeout = 0.05
    wire.drop(b'"success":true')
    with pytest.raises(errors.TimeoutError):
        sub.unsubscribe()
    wire.drop(None)
    sub._timeout = SOON
    sub.unsubscribe()
    assert not sub.created
    assert sum("CONSUMER.DELETE" in request for request in wire.requests) == 2
    assert list(stream.consumer_names()) == []


def test_drain_deletes_the_consumer_after_a_running_fetch(
    js: jsync.JetStream, sub: jsync.PullSubscription, stream: jsync.Stream, subject: str
) -> None:
    fetching = Thread(sub.fetch, 1, LONG)
    wait_for(lambda: waiting(stream) == 1)
    draining = Thread(sub.drain, LONG)
    wait_for(lambda: not sub.is_active)
    assert not draining.ended
    assert list(stream.consumer_names()) == ["worker"]
    js.publish(subject, b"the last one")
    assert [msg.data for msg in fetching.result()] == [b"the last one"]
    draining.result()
    assert list(stream.consumer_names()) == []


def test_drain_that_takes_too_long_leaves_the_consumer(
    js: jsync.JetStream, sub: jsync.PullSubscription, stream: jsync.Stream, subject: str
) -> None:
    fetching = Thread(sub.fetch, 1, LONG)
    wait_for(lambda: waiting(stream) == 1)
    with pytest.raises(errors.DrainTimeoutError, match="a fetch under way"):
        sub.drain(0.05)
    js.publish(subject, b"the last one")
    assert len(fetching.result()) == 1
    assert list(stream.consumer_names()) == ["worker"]


def test_draining_a_connection_deletes_it_closing_does_not(
    server: LocalServer, stream: jsync.Stream, subject: str
) -> None:
    for end, left in (("close", ["worker"]), ("drain", [])):
        nc = jsync.connect(server.url)
        sub = nc.jetstream().pull_subscribe(subject, "worker")
        sub_created = sub.created
        getattr(nc, end)()
        assert list(stream.consumer_names()) == left
        if sub_created:
            for name in left:
                stream.delete_consumer(name)


def test_drain_reports_a_deletion_that_fails(
    server: LocalServer, wire: Wire, stream: jsync.Stream, subject: str
) -> None:
    reported = Recorder()
    with jsync.connect(wire.url, on_error=reported) as nc:
        sub = nc.jetstream().pull_subscribe(subject, "worker")
        sub._timeout = 0.05
        wire.drop(b'"success":true')
        sub.drain()
        assert isinstance(reported.get(), errors.TimeoutError)
        wire.drop(None)
        sub._timeout = SOON


def test_drain_of_a_closed_connection_reports_nothing(
    server: LocalServer, subject: str
) -> None:
    reported = Recorder()
    nc = jsync.connect(server.url, on_error=reported)
    sub = nc.jetstream().pull_subscribe(subject)
    nc.close()
    sub.drain()
    with pytest.raises(errors.ConnectionClosedError):
        sub.unsubscribe()
    assert reported.waiting == 0


def test_the_repr_of_a_subscription_names_its_consumer(
    sub: jsync.PullSubscription,
) -> None:
    assert "PullSubscription of 'worker'" in repr(sub)
    assert "active" in repr(sub)
    sub.unsubscribe()
    assert "ended" in repr(sub)
