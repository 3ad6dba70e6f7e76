"""Tests of a single pull on a slow, silent or lost server, and of its request."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.pulls.engine import MAX_GRACE, MIN_GRACE, grace_after
from jsync.jetstream.pulls.pull import Pull

from ....support.servers import monitor, wait_for
from ....support.threads import LONG, SOON, Thread
from .support import Pulls, fill, numbers

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ....support.connection_faults import Events
    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


def test_a_fetch_sends_one_pull_when_called(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    pulls: Pulls,
) -> None:
    fill(nc, stream, 10)
    far.flush()
    assert pulls.count == 0
    far_worker.next(SOON)
    assert pulls.batches == [1]
    assert numbers(far_worker.fetch(9, timeout=SOON)) == list(range(1, 10))
    assert pulls.batches == [1, 9]


def test_a_silent_server_is_awaited_beyond_the_expiry(
    far_worker: jsync.Consumer, proxy: FaultProxy
) -> None:
    # "Client-side timeout value should always be larger than expiry."
    proxy.deaf("server")
    begin = monotonic()
    with pytest.raises(errors.TimeoutError):
        far_worker.next(0.3)
    batch = far_worker.fetch(5, timeout=0.3)
    assert list(batch) == []
    assert isinstance(batch.error, errors.TimeoutError)
    assert 2 * (0.3 + MIN_GRACE) < monotonic() - begin < SOON
    proxy.hear()


def test_a_silent_server_is_not_awaited_long(
    far: jsync.Connection, far_worker: jsync.Consumer, proxy: FaultProxy
) -> None:
    proxy.deaf("server")
    grace = grace_after(far._session.round_trip)
    assert grace_after(0.0) == MIN_GRACE
    for timeout in (0.1, 0.3):
        batch = far_worker.fetch(5, timeout=timeout)
        assert batch._pull.deadline <= monotonic() + timeout + grace
        assert list(batch) == []
    batch = far_worker.fetch_nowait(5, timeout=0.1)
    assert batch._pull.deadline < monotonic() + 0.1
    assert list(batch) == []
    proxy.hear()


def test_a_slow_line_is_awaited(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    proxy: FaultProxy,
) -> None:
    fill(nc, stream, 2)
    proxy.delay(0.2)
    with jsync.connect(proxy.url) as slow:
        far_worker = slow.jetstream().consumer(stream.name, worker.name)
        assert numbers([far_worker.next(timeout=0.01)]) == [0]
        assert numbers(far_worker.fetch(1, timeout=0.01)) == [1]
    assert worker.info().num_redelivered == 0


def test_next_waits_longer_after_a_slow_reconnect(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    events: Events,
) -> None:
    fill(nc, stream, 2)
    assert numbers([far_worker.next(timeout=2)]) == [0]
    (pull,) = far_worker._idle
    proxy.delay(0.2)
    proxy.cut()
    events.wait("reconnect")
    assert numbers([far_worker.next(timeout=2)]) == [1]
    assert far_worker._idle == [pull]
    assert pull.deadline - pull.expiry == pytest.approx(MAX_GRACE)


def test_messages_after_the_deadline_are_given_back(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    worker: jsync.Consumer,
) -> None:
    fill(nc, stream, 3)
    proxy.deaf("server")
    batch = far_worker.fetch(10, timeout=0.1)
    wait_for(lambda: worker.info().num_ack_pending == 3)
    assert list(batch) == []
    with pytest.raises(errors.TimeoutError):
        far_worker.next(0.1)
    proxy.hear()
    # This must not take the ack_wait of a minute.
    got = list(worker.fetch(3, timeout=SOON))
    assert sorted(numbers(got)) == [0, 1, 2]
    for msg in got:
        msg.ack_sync()
    fill(nc, stream, 1)
    assert numbers(far_worker.fetch(1, timeout=SOON)) == [3]


def test_no_ackless_message_before_the_deadline_is_lost(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far: jsync.Connection,
    proxy: FaultProxy,
) -> None:
    fill(nc, stream, 3)
    worker = stream.create_consumer(durable_name="ackless", ack_policy="none")
    far_worker = far.jetstream().stream(stream.name).consumer("ackless")
    proxy.deaf("server")
    batch = far_worker.fetch(10, timeout=0.3)
    wait_for(lambda: worker.info().delivered.consumer_seq == 3)
    wait_for(lambda: worker.info().num_waiting == 0)  # the pull has expired
    proxy.hear()
    assert numbers(batch) == [0, 1, 2]
    assert batch.error is None


@pytest.mark.parametrize("batch", [1, 10])
def test_one_and_many_behave_alike(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    worker: jsync.Consumer,
    proxy: FaultProxy,
    events: Events,
    batch: int,
) -> None:
    assert numbers(far_worker.fetch(batch, timeout=0.2)) == []
    assert numbers(far_worker.fetch_nowait(batch)) == []
    fill(nc, stream, batch)
    assert numbers(far_worker.fetch(batch, timeout=SOON)) == list(range(batch))
    with far_worker.fetch(batch, timeout=LONG) as left:
        assert left.error is None
    fill(nc, stream, batch)
    # The abandoned pull has taken no message.
    assert numbers(far_worker.fetch(batch, timeout=SOON)) == list(
        range(batch, 2 * batch)
    )
    reader = Thread(lambda: numbers(far_worker.fetch(batch, timeout=LONG)))
    wait_for(lambda: worker.info().num_waiting == 1)
    proxy.cut()
    assert isinstance(reader.error(), errors.ConnectionLostError)
    events.wait("reconnect")
    reader = Thread(lambda: numbers(far_worker.fetch(batch, timeout=LONG)))
    wait_for(lambda: worker.info().num_waiting == 1)
    worker.delete()
    assert isinstance(reader.error(), errors.ConsumerDeletedError)


def test_a_message_above_max_bytes_raises_an_error(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    nc.jetstream().publish(f"{stream.name}.a", bytes(2000))
    batch = worker.fetch(max_bytes=1000, timeout=SOON)
    with pytest.raises(errors.PullError, match="larger than max_bytes, 1000"):
        next(iter(batch))


def test_closed_batches_leave_no_interest_at_the_server(
    server: LocalServer, nc: jsync.Connection, worker: jsync.Consumer
) -> None:
    def subscriptions() -> int:
        (connection,) = monitor(server, f"connz?cid={nc.client_id}")["connections"]
        return int(connection["subscriptions"])

    worker.info()
    before = subscriptions()
    batches = [worker.fetch(10, timeout=LONG) for _ in range(20)]
    wait_for(lambda: subscriptions() == before + 20)
    for batch in batches:
        batch.close()
    wait_for(lambda: subscriptions() == before)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_messages": 1, "max_bytes": 1},
        {"max_messages": 0},
        {"max_messages": 1.5},
        {"max_messages": True},
        {"max_bytes": -1},
        {"max_messages": 1, "timeout": 0},
        {"max_messages": 1, "timeout": "5"},
        {"max_messages": 1, "timeout": None},
        {"max_messages": 1, "timeout": float("inf")},
        {"max_messages": 1, "timeout": 5, "idle_heartbeat": 3},
        {"max_messages": 1, "timeout": 5, "idle_heartbeat": "1"},
    ],
    ids=str,
)
def test_bad_options_are_refused_before_anything_is_sent(
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    pulls: Pulls,
    options: dict[str, Any],
) -> None:
    before = len(far._session.interests)
    with pytest.raises(errors.ConfigError):
        far_worker.fetch(**options)
    far.flush()
    assert pulls.count == 0
    assert len(far._session.interests) == before


def test_a_pull_no_server_takes_is_first_retried(
    far: jsync.Connection, stream: jsync.Stream, pulls: Pulls
) -> None:
    with pytest.raises(errors.NoRespondersError):
        far.jetstream().consumer(stream.name, "none").next(SOON)
    assert pulls.count == 3


def test_a_consumer_that_is_late_is_found(
    nc: jsync.Connection, stream: jsync.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pull, "retries", 1000)
    late = nc.jetstream().consumer(stream.name, "late")
    fetching = Thread(late.next, LONG)
    fetching.wait_until_blocked()
    stream.create_consumer(durable_name="late")
    fill(nc, stream, 1)
    assert int(fetching.result().data) == 0


def test_fetch_by_bytes_ends_with_its_last_byte(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    """The server says nothing when a message uses the last byte."""
    fill(nc, stream, 3)
    first, second = (stream.create_consumer(durable_name=name) for name in "ab")
    size = sum(
        len(msg.subject) + len(msg.reply or "") + len(msg.data)
        for msg in first.fetch(3, timeout=SOON)
    )
    batch = second.fetch(max_bytes=size, timeout=LONG, idle_heartbeat=0)
    assert Thread(lambda: numbers(batch)).result() == [0, 1, 2]
    assert batch.error is None
    fill(nc, stream, 3)
    again = second.fetch(max_bytes=size - 1, timeout=LONG, idle_heartbeat=0)
    assert Thread(lambda: numbers(again)).result() == [3, 4]
