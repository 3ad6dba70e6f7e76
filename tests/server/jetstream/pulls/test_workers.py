"""Tests of a handler on several threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import SOON, Recorder, Thread
from .support import Handler, fill, numbers, settled

if TYPE_CHECKING:
    from jsync.server import LocalServer

pytestmark = pytest.mark.server

WORKERS = 4


class Together:
    """A handler that returns once all threads have called it at the same time."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.numbers: list[int] = []
        self._barrier = threading.Barrier(WORKERS, timeout=SOON)

    def __call__(self, msg: jsync.JetStreamMsg) -> None:
        self._barrier.wait()
        self.threads.add(threading.current_thread().name)
        self.numbers.append(int(msg.data))
        msg.ack()


def test_each_message_is_handled_once_by_one_worker(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 40 * WORKERS)
    handler, told = Together(), Recorder()
    with worker.consume(handler, workers=WORKERS, max_messages=20, on_error=told):
        wait_for(lambda: len(handler.numbers) == 40 * WORKERS)
    assert len(handler.threads) == WORKERS
    assert sorted(handler.numbers) == list(range(40 * WORKERS))
    wait_for(lambda: settled(worker))
    assert told.waiting == 0


def test_an_idle_worker_takes_messages_while_others_work(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    handler = Handler()
    handler.open.clear()
    with worker.consume(handler, workers=WORKERS) as consuming:
        # Publish one message at a time, so that each wakes another thread.
        for count in range(1, WORKERS + 1):
            fill(nc, stream, 1)
            wait_for(lambda n=count: worker.info().num_ack_pending == n)  # type: ignore[misc]
            handler.entered.wait(SOON)
            handler.entered.clear()
        assert not consuming.closed
        handler.open.set()
        for count in range(WORKERS + 1, 200):
            fill(nc, stream, 1)
            wait_for(lambda n=count: len(handler.numbers) == n)  # type: ignore[misc]


@pytest.mark.parametrize("how", ["stop", "drain"])
def test_ending_it_from_every_handler_at_once(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer, how: str
) -> None:
    fill(nc, stream, 40)
    made: list[jsync.ConsumeContext] = []
    begin, got = threading.Barrier(WORKERS + 1, timeout=SOON), []
    first = threading.local()

    def handle(msg: jsync.JetStreamMsg) -> None:
        if not hasattr(first, "done"):
            first.done = True
            begin.wait()
        getattr(made[0], how)()
        got.append(int(msg.data))
        msg.ack()

    made.append(worker.consume(handle, workers=WORKERS, max_messages=20))
    wait_for(lambda: worker.info().num_ack_pending == 20)
    begin.wait()
    assert made[0].wait(SOON)
    assert len(got) == (20 if how == "drain" else WORKERS)
    with worker.fetch(40 - len(got), timeout=SOON) as rest:
        assert sorted(numbers(rest) + got) == list(range(40))


@pytest.mark.parametrize("how", ["stop", "drain"])
def test_ending_from_outside_waits_for_all_workers(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer, how: str
) -> None:
    fill(nc, stream, 20)
    handler = Handler()
    handler.open.clear()
    consuming = worker.consume(handler, workers=WORKERS)
    wait_for(lambda: worker.info().num_ack_pending == 20)
    wait_for(lambda: len(consuming._delivery.mailbox) == 20 - WORKERS)
    ending = Thread(getattr(consuming, how))
    if how == "stop":  # it waits for the server first, and then for the handlers
        wait_for(lambda: len(consuming._delivery.mailbox) == 0)
    ending.wait_until_blocked()
    assert not consuming.closed
    handler.open.set()
    ending.result()
    assert consuming.wait(0)
    if how == "drain":
        assert sorted(handler.numbers) == list(range(20))
    else:
        assert sorted(handler.numbers) == list(range(WORKERS))


def test_stop_after_ends_all_of_them(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 40)
    handler = Handler()
    with worker.consume(handler, workers=WORKERS, stop_after=13) as consuming:
        assert consuming.wait(SOON)
    assert sorted(handler.numbers) == list(range(13))
    assert worker.info().num_pending == 27


def test_stop_after_ends_those_too_that_wait(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    handler = Handler()
    consuming = worker.consume(handler, workers=WORKERS, stop_after=5)
    wait_for(lambda: worker.info().num_waiting == 1)
    for count in range(1, 6):
        fill(nc, stream, 1)
        wait_for(lambda n=count: len(handler.numbers) == n)  # type: ignore[misc]
    assert consuming.wait(SOON)


def test_one_raising_handler_ends_all_workers_if_told(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 40)
    handler, told = Handler(bad=5), Recorder()
    begun: list[jsync.ConsumeContext] = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        # Otherwise the other threads could handle all messages before this one ends them.
        if int(msg.data) > 5:
            wait_for(lambda: bool(begun) and begun[0]._delivery.mailbox.closed)
        handler(msg)

    consuming = worker.consume(
        handle, workers=WORKERS, on_exception="stop", on_error=told, max_messages=10
    )
    begun.append(consuming)
    with pytest.raises(errors.CallbackError) as raised:
        consuming.wait(SOON)
    assert isinstance(raised.value.__cause__, LookupError)
    assert isinstance(told.get(), errors.CallbackError)
    acked = [number for number in handler.numbers if number != 5]
    assert len(acked) < 5 + WORKERS
    with worker.fetch(39 - len(acked), timeout=SOON) as rest:
        assert sorted(numbers(rest) + acked + [5]) == list(range(40))


@pytest.mark.parametrize("on_exception", ["continue", "nak", "term"])
def test_one_raising_handler_does_not_disturb_other_workers(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    on_exception: Any,
) -> None:
    fill(nc, stream, 40)
    handler, told = Handler(bad=5), Recorder()
    again = on_exception == "nak"
    with worker.consume(
        handler, workers=WORKERS, on_exception=on_exception, on_error=told
    ):
        wait_for(lambda: len(handler.numbers) == 40 + again)
    assert sorted(handler.numbers) == sorted([*range(40), *([5] * again)])
    assert told.get().__cause__.args == (5,)


def test_a_deletion_ends_all_of_them(worker: jsync.Consumer) -> None:
    consuming = worker.consume(print, workers=WORKERS)
    wait_for(lambda: worker.info().num_waiting == 1)
    worker.delete()
    with pytest.raises(errors.ConsumerDeletedError):
        consuming.wait(SOON)
    assert consuming.closed


def test_closing_the_connection_ends_all_of_them(
    server: LocalServer, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    nc = jsync.connect(server.url)
    consumer = nc.jetstream().stream(stream.name).consumer("worker")
    consuming = consumer.consume(print, workers=WORKERS)
    wait_for(lambda: worker.info().num_waiting == 1)
    nc.close()
    with pytest.raises(errors.ConnectionClosedError):
        consuming.wait(SOON)


@pytest.mark.parametrize("bad", [0, -1, 1.0, True, "2"])
def test_workers_are_counted_from_one(worker: jsync.Consumer, bad: Any) -> None:
    with pytest.raises(errors.ConfigError, match="workers"):
        worker.consume(print, workers=bad)


def test_failing_to_start_a_thread_leaves_no_subscription(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(nc, stream, 10)
    before = len(nc._session.interests)
    started: list[threading.Thread] = []
    real = nc._session.thread_factory.start

    def start(name: str, run: Any) -> threading.Thread:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(real(name, run))
        return started[-1]

    monkeypatch.setattr(nc._session.thread_factory, "start", start)
    with pytest.raises(RuntimeError, match="new thread"):
        worker.consume(jsync.JetStreamMsg.nak, workers=WORKERS)
    wait_for(lambda: not any(thread.is_alive() for thread in started))
    assert len(nc._session.interests) == before
    with worker.fetch(10, timeout=SOON) as rest:
        assert sorted(numbers(rest)) == list(range(10))
