"""Tests of idle_timeout, which ends an iteration when no message arrives."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ....support.servers import wait_for
from ....support.threads import SOON, Thread
from .support import QUICK, Pulls, fill, numbers, settled, take

if TYPE_CHECKING:
    import jsync

    from ....support.connection_faults import Events
    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


def test_messages_end_after_the_idle_timeout_fully_read(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 30)
    before = len(nc._session.interests)
    messages = worker.messages(max_messages=10, idle_timeout=3.0)
    begin = monotonic()
    got = []
    for msg in messages:
        got.append(int(msg.data))
        msg.ack()
    assert got == list(range(30))
    assert monotonic() - begin < SOON
    assert messages.closed
    assert list(messages) == []
    with pytest.raises(errors.SubscriptionClosedError):
        messages.next(1)
    wait_for(lambda: settled(worker))
    assert len(nc._session.interests) == before


def test_a_message_in_time_keeps_it_going(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    reader = Thread(lambda: numbers(worker.messages(idle_timeout=3.0)))
    for _ in range(8):
        # Heartbeats and pings do not count as messages.
        nc.flush()
        sleep(0.5)
        fill(nc, stream, 1)
    assert not reader.ended
    assert reader.result() == list(range(8))


def test_heartbeats_do_not_keep_it_going(worker: jsync.Consumer) -> None:
    begin = monotonic()
    assert list(worker.messages(idle_timeout=1.2, **QUICK)) == []
    assert monotonic() - begin < SOON


def test_the_users_own_time_does_not_count(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 1)
    got: list[int] = []
    later: list[Thread[None]] = []

    def publish_later() -> None:
        sleep(0.2)
        fill(nc, stream, 1)

    for msg in worker.messages(idle_timeout=3.0):
        got.append(int(msg.data))
        if len(got) < 3:
            sleep(3.1)
            later.append(Thread(publish_later))
    for thread in later:
        thread.result()
    assert got == [0, 1, 2]


def test_while_disconnected_nothing_is_idle(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    pulls: Pulls,
    events: Events,
) -> None:
    messages = far_worker.messages(idle_timeout=3.0)
    reader = Thread(lambda: numbers(messages))
    wait_for(lambda: pulls.count == 1)
    proxy.refuse()
    proxy.cut()
    events.wait("disconnect")
    sleep(3.2)
    assert not messages.closed
    fill(nc, stream, 3)
    proxy.accept()
    events.wait("reconnect")
    assert reader.result() == [0, 1, 2]


def test_messages_in_flight_at_idle_timeout_are_read(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    pulls: Pulls,
) -> None:
    reader = Thread(lambda: numbers(far_worker.messages(idle_timeout=0.5)))
    wait_for(lambda: worker.info().num_waiting == 1)
    proxy.deaf("server")
    fill(nc, stream, 2)
    wait_for(lambda: worker.info().num_ack_pending == 2)
    wait_for(lambda: pulls.has_sent(b"UNSUB "))
    proxy.hear()
    assert reader.result() == [0, 1]


def test_next_has_a_timeout_of_its_own(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    with worker.messages(idle_timeout=0.2) as messages:
        with pytest.raises(errors.TimeoutError):
            messages.next(0.5)
        fill(nc, stream, 1)
        assert take(messages, 1) == [0]


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), "1", True])
def test_idle_timeout_is_a_number_of_seconds(
    far_worker: jsync.Consumer, far: jsync.Connection, pulls: Pulls, bad: Any
) -> None:
    with pytest.raises(errors.ConfigError, match="idle_timeout"):
        far_worker.messages(idle_timeout=bad)
    far.flush()
    assert pulls.count == 0
