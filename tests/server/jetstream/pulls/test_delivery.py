"""Tests that each message arrives once and in order, and of the time of the next pull request."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import SOON, Recorder
from .support import (
    OPTIONS,
    Handler,
    Pulls,
    at_work,
    both_faces,
    fill,
    settled,
    take,
)

pytestmark = pytest.mark.server


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_messages_gives_each_message_once_and_in_order(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    options: dict[str, Any],
) -> None:
    fill(nc, stream, 600)
    told = Recorder()
    begin = monotonic()
    with worker.messages(**options, on_error=told) as messages:
        assert take(messages, 600) == list(range(600))
        # A pull that waited for its expiry would take 30 seconds.
        assert monotonic() - begin < SOON
        fill(nc, stream, 50)
        assert take(messages, 50) == list(range(600, 650))
    wait_for(lambda: settled(worker))
    assert worker.info().num_redelivered == 0
    assert told.waiting == 0


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_consume_delivers_each_message_once_and_in_order(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    options: dict[str, Any],
) -> None:
    fill(nc, stream, 600)
    handler, told = Handler(), Recorder()
    with worker.consume(handler, **options, on_error=told):
        wait_for(lambda: len(handler.numbers) >= 600)
        fill(nc, stream, 50)
        wait_for(lambda: len(handler.numbers) >= 650)
    assert handler.numbers == list(range(650))
    wait_for(lambda: settled(worker))
    assert told.waiting == 0


def test_the_next_pull_leaves_while_half_is_unread(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
) -> None:
    fill(nc, stream, 40)
    with far_worker.messages(max_messages=10) as messages:
        wait_for(lambda: messages.pending == 10)
        take(messages, 4)
        assert pulls.batches == [10]
        take(messages, 1)
        wait_for(lambda: pulls.batches == [10, 5])
        # The second pull request came while half of the first batch was unread.
        wait_for(lambda: messages.pending == 10)
        assert take(messages, 35) == list(range(5, 40))


@both_faces
def test_all_pulls_are_answered_on_one_subscription(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    pulls: Pulls,
    face: str,
) -> None:
    # "Consume should create a single subscription to handle responses for all pull requests." No
    # pull request is sent before the first read.
    far.flush()
    assert pulls.count == 0
    before = pulls.subscriptions
    fill(nc, stream, 100)
    handler = Handler()
    with at_work(face, far_worker, handler, max_messages=10):
        wait_for(lambda: len(handler.numbers) == 100)
        assert pulls.count >= 10
        assert len(pulls.replies) == 1
        assert pulls.subscriptions == before + 1


def test_a_given_threshold_decides_when_to_pull(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    pulls: Pulls,
) -> None:
    fill(nc, stream, 40)
    options: dict[str, Any] = {"max_messages": 10, "threshold_messages": 2}
    with far_worker.messages(**options) as messages:
        take(messages, 7)
        far.flush()
        assert pulls.batches == [10]
        take(messages, 1)
        wait_for(lambda: pulls.batches == [10, 8])


def test_a_threshold_of_bytes_decides_when_to_pull(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    pulls: Pulls,
) -> None:
    fill(nc, stream, 40)
    size = far_worker.next().size + 2
    options: dict[str, Any] = {"max_bytes": 10 * size, "threshold_bytes": 5 * size}
    pulls_before = pulls.count
    with far_worker.messages(**options) as messages:
        take(messages, 4)
        far.flush()
        assert pulls.count == pulls_before + 1
        take(messages, 2)
        wait_for(lambda: pulls.count > pulls_before + 1)
        assert all(r["max_bytes"] <= 10 * size for r in pulls.requests[pulls_before:])
        assert take(messages, 33) == list(range(7, 40))


def test_a_message_above_max_bytes_is_delivered_alone(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
) -> None:
    sizes = [10, 5000, 20, 6000, 30]
    for size in sizes:
        nc.jetstream().publish(f"{stream.name}.a", bytes(size))
    told = Recorder()
    with far_worker.messages(max_bytes=1000, on_error=told) as messages:
        for size in sizes:
            msg = messages.next(SOON)
            assert len(msg.data) == size
            msg.ack()
        assert told.waiting == 0
        assert pulls.count <= 15


def test_messages_beyond_the_buffers_room_cause_no_spinning(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
) -> None:
    for _ in range(3):
        nc.jetstream().publish(f"{stream.name}.a", bytes(600))
    told = Recorder()
    with far_worker.messages(max_bytes=1000, on_error=told) as messages:
        wait_for(lambda: messages.pending == 1)
        for _ in range(3):
            # In three round trips a busy loop would send many pull requests.
            nc.flush()
            messages.next(SOON).ack()
        assert pulls.count < 20
    assert told.waiting == 0


@pytest.mark.parametrize("threshold", [500, 900])
@pytest.mark.parametrize("first", [100, 400, 458])
def test_messages_larger_than_any_open_pull_come_silently(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
    threshold: int,
    first: int,
) -> None:
    js, told = nc.jetstream(), Recorder()
    options: dict[str, Any] = {"max_bytes": 1000, "threshold_bytes": threshold}
    with far_worker.messages(**options, on_error=told) as messages:
        # Now two pulls are open, each for a part of the thousand.
        js.publish(f"{stream.name}.a", bytes(first))
        messages.next(SOON).ack()
        js.publish(f"{stream.name}.a", bytes(850))
        assert len(messages.next(SOON).data) == 850
        assert pulls.count < 20
    assert told.waiting == 0


@both_faces
@pytest.mark.parametrize("options", [{}, {"max_messages": 4}, {"max_bytes": 1000}])
def test_stop_after_ends_and_leaves_the_rest_untouched(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    face: str,
    options: dict[str, Any],
) -> None:
    fill(nc, stream, 40)
    handler = Handler()
    if face == "messages":
        for msg in worker.messages(stop_after=13, **options):
            handler(msg)
    else:
        consuming = worker.consume(handler, stop_after=13, **options)
        assert consuming.wait(SOON)
        assert consuming.error is None
    assert handler.numbers == list(range(13))
    wait_for(lambda: worker.info().num_ack_pending == 0)
    assert worker.info().num_pending == 27


def test_stop_after_takes_no_more_from_byte_pulls(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    messages = worker.messages(max_bytes=1000, stop_after=12)
    for number in range(6):
        nc.jetstream().publish(f"{stream.name}.a", b"%d" % number)
        take(messages, 1)
    for number in range(6, 36):
        nc.publish(f"{stream.name}.a", b"%d" % number)
    for msg in messages:
        msg.ack()
    # No message waits for its ack_wait.
    wait_for(lambda: worker.info().num_ack_pending == 0)
    rest = worker.info()
    assert rest.num_pending == 36 - 12


@pytest.mark.parametrize("bad", ["retry", None])
def test_on_exception_is_one_of_four(worker: jsync.Consumer, bad: Any) -> None:
    with pytest.raises(errors.ConfigError, match="on_exception"):
        worker.consume(print, on_exception=bad)
    with pytest.raises(errors.ConfigError, match="callable"):
        worker.consume(None)  # type: ignore[arg-type]
