"""Tests of drain, close and the with block of a connection."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

import jsync
from jsync import errors

from ...support.proxy import FaultProxy
from ...support.servers import monitor, threads_since, wait_for
from ...support.threads import LONG, SOON, Recorder, Thread, wait_until_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ...conftest import StartServer

pytestmark = pytest.mark.server


@pytest.fixture
def nc(server: LocalServer) -> Iterator[jsync.Connection]:
    """A connection that the test may close itself."""
    nc = jsync.connect(server.url, write_buffer_size=1 << 18, write_timeout=LONG)
    yield nc
    nc.close()


def is_gone(server: LocalServer, client_id: int) -> bool:
    """Return whether the server has removed the connection."""
    page = monitor(server, "connz?limit=10000")
    return client_id not in [found["cid"] for found in page["connections"]]


# Drain --------------------------------------------------------------------------------


def test_drain_handles_received_messages_to_the_last_callback(
    server: LocalServer, unique: str
) -> None:
    handled: list[int] = []
    with jsync.connect(server.url) as other, jsync.connect(server.url) as nc:
        nc.subscribe(unique, callback=lambda msg: slow(handled, int(msg.data)))
        nc.flush()
        for i in range(100):
            other.publish(unique, b"%d" % i)
        other.flush()
        nc.drain()
        assert handled == list(range(100))
        assert nc.is_closed


def slow(handled: list[int], number: int) -> None:
    time.sleep(0.002)
    handled.append(number)


def test_an_idle_subscription_is_drained_twice(
    nc: jsync.Connection, unique: str
) -> None:
    """The second drain waits for no callback, because no message has come."""
    subscription = nc.subscribe(unique, callback=print)
    subscription.drain(timeout=LONG)
    subscription.drain(timeout=SOON)
    nc.drain(timeout=SOON)


def test_drain_sends_what_callbacks_publish_to_the_last(
    server: LocalServer, unique: str
) -> None:
    with jsync.connect(server.url) as other:
        answers = other.subscribe(f"{unique}.answer")
        other.flush()
        nc = jsync.connect(server.url)
        nc.subscribe(
            unique, callback=lambda msg: nc.publish(f"{unique}.answer", msg.data)
        )
        for i in range(1000):
            nc.publish(unique, b"%d" % i)
        nc.drain()
        assert [int(answers.next().data) for _ in range(1000)] == list(range(1000))


def test_drain_leaves_an_iterator_its_unread_messages(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique)
    for i in range(100):
        nc.publish(unique, b"%d" % i)
    nc.drain()
    assert [int(msg.data) for msg in sub] == list(range(100))
    with pytest.raises(errors.SubscriptionClosedError):
        sub.next()


def test_drain_ends_an_iteration_that_waits(nc: jsync.Connection, unique: str) -> None:
    sub = nc.subscribe(unique)
    reading: Thread[list[jsync.Msg]] = Thread(list, sub)
    reading.wait_until_blocked()
    nc.drain()
    assert reading.result() == []


def test_no_subscription_begins_during_a_drain(
    server: LocalServer, js: jsync.JetStream, stream: jsync.Stream, unique: str
) -> None:
    consumer = stream.create_consumer(durable_name="there")
    raised: dict[str, errors.Error | None] = {}
    release = threading.Event()
    nc = jsync.connect(server.url)
    other = nc.jetstream()
    subject = (stream.info().config.subjects or [""])[0].replace(">", "a")

    def begin(_: jsync.Msg) -> None:
        release.wait(LONG)
        calls: dict[str, Callable[[], object]] = {
            "subscribe": lambda: nc.subscribe(unique),
            "push": lambda: other.subscribe(subject, durable="no", keep=True),
            "ordered": lambda: other.subscribe(subject, ordered=True),
            "pull": lambda: other.pull_subscribe(subject, "no", keep=True),
            "consume": lambda: other.consumer(stream.name, "there").consume(print),
            "service": lambda: nc.service("no", "1.0.0"),
            "request": lambda: other.publish(subject, b"still served"),
        }
        for name, call in calls.items():
            try:
                call()
            except errors.Error as error:
                raised[name] = error
            else:
                raised[name] = None

    sub = nc.subscribe(unique, callback=begin)
    nc.publish(unique)
    nc.flush()
    before = set(nc._session.interests)
    draining = Thread(nc.drain, LONG)
    wait_for(lambda: not sub.is_active)
    release.set()
    draining.result()
    assert raised.pop("request") is None
    for name, error in raised.items():
        assert isinstance(error, errors.ConnectionClosedError), name
        assert "being drained" in str(error), name
    assert set(nc._session.interests) <= before
    assert list(stream.consumer_names()) == [consumer.name]


def test_drain_is_bounded_and_closes_all_the_same(
    nc: jsync.Connection, unique: str
) -> None:
    released = threading.Event()
    nc.subscribe(unique, callback=lambda msg: released.wait(LONG))
    try:
        nc.publish(unique)
        nc.publish(unique)
        begin = time.monotonic()
        with pytest.raises(errors.DrainTimeoutError) as caught:
            nc.drain(timeout=0.2)
        assert isinstance(caught.value, TimeoutError)
        assert time.monotonic() - begin < SOON
        assert nc.is_closed
    finally:
        released.set()


def test_drain_timeout_of_connect_bounds_the_with_block(
    server: LocalServer, unique: str
) -> None:
    released = threading.Event()
    try:
        with pytest.raises(errors.DrainTimeoutError):
            leave_with_a_stuck_callback(server, unique, released)
    finally:
        released.set()


def leave_with_a_stuck_callback(
    server: LocalServer, unique: str, released: threading.Event
) -> None:
    with jsync.connect(server.url, drain_timeout=0.2) as nc:
        nc.subscribe(unique, callback=lambda msg: released.wait(LONG))
        nc.publish(unique)


def test_drain_with_a_silent_server_is_bounded(
    own_server: StartServer, unique: str
) -> None:
    server = own_server()
    nc = jsync.connect(server.url)
    nc.subscribe(unique)
    server.pause()
    with pytest.raises(errors.DrainTimeoutError):
        nc.drain(timeout=0.2)
    assert nc.is_closed


def test_drain_closes_twice_and_after_a_close(nc: jsync.Connection) -> None:
    nc.drain()
    nc.drain()
    nc.close()
    nc.drain()
    assert nc.is_closed


def test_drain_from_two_threads_at_once_drains_once(
    server: LocalServer, unique: str
) -> None:
    handled: list[int] = []
    closed = Recorder()
    nc = jsync.connect(server.url, on_closed=closed)
    nc.subscribe(unique, callback=lambda msg: slow(handled, int(msg.data)))
    for i in range(50):
        nc.publish(unique, b"%d" % i)
    draining = [Thread(nc.drain) for _ in range(4)]
    for thread in draining:
        error = thread.error()
        assert error is None or isinstance(error, errors.ConnectionClosedError)
    closed.get()
    assert closed.waiting == 0
    assert handled == list(range(50))


def test_drain_from_a_callback_handles_its_backlog(
    server: LocalServer, unique: str
) -> None:
    handled: list[int] = []
    arrived = threading.Event()
    closed = Recorder()
    nc = jsync.connect(server.url, on_closed=closed)

    def handle(msg: jsync.Msg) -> None:
        handled.append(int(msg.data))
        if len(handled) == 1:
            assert arrived.wait(SOON)
            nc.drain(timeout=SOON)

    nc.subscribe(unique, callback=handle)
    for i in range(20):
        nc.publish(unique, b"%d" % i)
    nc.flush()
    arrived.set()
    assert closed.get() is None
    wait_for(lambda: handled == list(range(20)))


def subscribe_callback(nc: jsync.Connection, subject: str, call: Any) -> object:
    return nc.subscribe(subject, callback=call)


def consume_callback(nc: jsync.Connection, subject: str, call: Any) -> object:
    js = nc.jetstream()
    stream = js.stream(js.stream_name_by_subject(subject))
    return stream.create_consumer().consume(call)


def push_callback(nc: jsync.Connection, subject: str, call: Any) -> object:
    return nc.jetstream().subscribe(subject, callback=call)


def service_callback(nc: jsync.Connection, subject: str, call: Any) -> object:
    service = nc.service("calm", "1.0.0")
    service.endpoint("e", subject=subject)(lambda _: call(None))
    return service


@pytest.mark.parametrize(
    "second",
    [subscribe_callback, consume_callback, push_callback, service_callback],
)
@pytest.mark.parametrize("together", [True, False])
def test_draining_callbacks_do_not_wait_for_each_other(
    server: LocalServer,
    stream: jsync.Stream,
    second: Callable[[jsync.Connection, str, Any], object],
    together: bool,
) -> None:
    nc = jsync.connect(server.url, drain_timeout=LONG)
    subject = f"{stream.name}.a"
    both = threading.Barrier(2)
    others = Recorder()

    def drain(_: object) -> bytes:
        both.wait(SOON)
        if not together and threading.current_thread() is not first:
            wait_until_blocked(first)
        nc.drain()
        others()
        return b""

    first: threading.Thread

    def drain_first(msg: jsync.Msg) -> None:
        nonlocal first
        first = threading.current_thread()
        drain(msg)

    kept = second(nc, subject, drain), nc.subscribe(subject, callback=drain_first)
    nc.flush()
    nc.publish(subject, reply="answer")
    assert others.thread() is not others.thread()
    assert nc.is_closed
    assert kept


# Close --------------------------------------------------------------------------------


def blocked_next(nc: jsync.Connection, unique: str) -> None:
    nc.subscribe(unique).next(timeout=LONG)


def blocked_next_without_timeout(nc: jsync.Connection, unique: str) -> None:
    nc.subscribe(unique).next(timeout=None)


def blocked_iteration(nc: jsync.Connection, unique: str) -> None:
    for _ in nc.subscribe(unique):
        pass


def blocked_request(nc: jsync.Connection, unique: str) -> None:
    nc.subscribe(unique)
    nc.request(unique, timeout=LONG)


def blocked_request_many(nc: jsync.Connection, unique: str) -> None:
    nc.subscribe(unique)
    list(nc.request_many(unique, timeout=LONG))


WAITING_FOR_MESSAGES = [
    blocked_next,
    blocked_next_without_timeout,
    blocked_iteration,
    blocked_request,
    blocked_request_many,
]


@pytest.mark.parametrize("wait", WAITING_FOR_MESSAGES)
def test_close_wakes_a_thread_waiting_for_a_message(
    nc: jsync.Connection, unique: str, wait: Any
) -> None:
    waiting = Thread(wait, nc, unique)
    waiting.wait_until_blocked()
    assert not waiting.ended
    nc.close()
    assert isinstance(waiting.error(), errors.ConnectionClosedError)


def blocked_flush(nc: jsync.Connection, unique: str) -> None:
    nc.flush(timeout=LONG)


def blocked_rtt(nc: jsync.Connection, unique: str) -> None:
    nc.rtt(timeout=LONG)


def blocked_publish(nc: jsync.Connection, unique: str) -> None:
    while True:
        nc.publish(unique, b"x" * 100_000)


def blocked_drain(nc: jsync.Connection, unique: str) -> None:
    nc.drain(timeout=LONG)


def blocked_subscription_drain(nc: jsync.Connection, unique: str) -> None:
    nc.subscribe(unique).drain(timeout=LONG)


@pytest.mark.parametrize(
    "wait",
    [
        blocked_flush,
        blocked_rtt,
        blocked_publish,
        blocked_drain,
        blocked_subscription_drain,
        blocked_next,
        blocked_request,
    ],
)
def test_close_wakes_threads_waiting_for_a_silent_server(
    server: LocalServer, unique: str, wait: Any
) -> None:
    with FaultProxy("127.0.0.1", server.port) as proxy:
        nc = jsync.connect(proxy.url, write_buffer_size=1 << 18, write_timeout=LONG)
        proxy.deaf()
        waiting = Thread(wait, nc, unique)
        waiting.wait_until_blocked()
        assert not waiting.ended
        begin = time.monotonic()
        nc.close()
        assert time.monotonic() - begin < SOON
        assert isinstance(waiting.error(), errors.ConnectionClosedError)


@pytest.mark.parametrize("wait", [blocked_flush, blocked_request, blocked_request_many])
def test_close_wakes_a_thread_waiting_for_a_reconnect(
    own_server: StartServer, unique: str, wait: Any
) -> None:
    server = own_server()
    nc = jsync.connect(server.url, reconnect_wait=LONG)
    server.kill()
    wait_for(lambda: not nc.is_connected)
    waiting = Thread(wait, nc, unique)
    waiting.wait_until_blocked()
    assert not waiting.ended
    nc.close()
    assert isinstance(waiting.error(), errors.ConnectionClosedError)


def test_every_call_on_a_closed_connection_raises(
    server: LocalServer, unique: str
) -> None:
    nc = jsync.connect(server.url)
    sub = nc.subscribe(unique)
    nc.publish(unique)
    wait_for(lambda: sub.pending == 1)
    nc.close()
    calls: list[Callable[[], object]] = [
        lambda: nc.publish(unique),
        lambda: nc.request(unique),
        lambda: nc.request_many(unique),
        lambda: nc.subscribe(unique),
        nc.flush,
        nc.rtt,
    ]
    for call in calls:
        with pytest.raises(errors.ConnectionClosedError):
            call()
    assert len([sub.next()]) == 1  # messages that have arrived can still be read
    with pytest.raises(errors.ConnectionClosedError):
        sub.next()
    with pytest.raises(errors.ConnectionClosedError):
        next(iter(sub))
    sub.unsubscribe()
    assert nc.stats().out_messages == 1
    assert "closed" in repr(nc)


def test_close_sends_the_published_messages(server: LocalServer, unique: str) -> None:
    with jsync.connect(server.url) as reader:
        sub = reader.subscribe(unique)
        reader.flush()
        nc = jsync.connect(server.url)
        for i in range(10_000):
            nc.publish(unique, b"%d" % i)
        nc.close()
        assert [int(sub.next().data) for _ in range(10_000)] == list(range(10_000))


def test_close_ends_the_connection_on_the_server(
    server: LocalServer, nc: jsync.Connection
) -> None:
    client_id = nc.client_id
    assert not is_gone(server, client_id)
    nc.close()
    wait_for(lambda: is_gone(server, client_id))


def test_close_from_many_threads_and_again_closes_once(server: LocalServer) -> None:
    closed = Recorder()
    nc = jsync.connect(server.url, on_closed=closed)
    for thread in [Thread(nc.close) for _ in range(8)]:
        thread.result()
    nc.close()
    assert closed.get() is None
    assert nc.is_closed
    assert closed.waiting == 0


def test_close_ends_the_threads_of_the_connection(
    server: LocalServer, unique: str
) -> None:
    before = set(threading.enumerate())
    nc = jsync.connect(server.url, on_connect=lambda: None)
    handled = Recorder()
    nc.subscribe(unique, callback=handled)
    nc.publish(unique)
    handled.get()
    assert threads_since(before)
    nc.close()
    wait_for(lambda: not threads_since(before))


def test_close_does_not_wait_for_a_callback(nc: jsync.Connection, unique: str) -> None:
    released, begun = threading.Event(), Recorder()

    def handle(msg: jsync.Msg) -> None:
        begun()
        released.wait(LONG)

    nc.subscribe(unique, callback=handle)
    nc.publish(unique)
    begun.get()
    try:
        begin = time.monotonic()
        nc.close()
        assert time.monotonic() - begin < SOON
        assert nc.is_closed
    finally:
        released.set()


def test_close_during_a_reconnect_is_prompt(own_server: StartServer) -> None:
    server = own_server()
    closed = Recorder()
    nc = jsync.connect(server.url, reconnect_wait=LONG, on_closed=closed)
    server.kill()
    wait_for(lambda: not nc.is_connected)
    begin = time.monotonic()
    nc.close()
    assert time.monotonic() - begin < SOON
    assert closed.get() is None


# The with block -----------------------------------------------------------------------


def test_leaving_the_with_block_drains(server: LocalServer, unique: str) -> None:
    handled: list[int] = []
    with jsync.connect(server.url) as nc:
        nc.subscribe(unique, callback=lambda msg: slow(handled, int(msg.data)))
        for i in range(50):
            nc.publish(unique, b"%d" % i)
    assert handled == list(range(50))
    assert nc.is_closed


def test_an_exception_leaves_the_with_block_without_draining(
    server: LocalServer, unique: str
) -> None:
    released = threading.Event()
    begin = time.monotonic()
    try:
        with pytest.raises(ZeroDivisionError) as caught:
            fail_with_a_stuck_callback(server, unique, released)
    finally:
        released.set()
    assert time.monotonic() - begin < SOON
    assert caught.value.__context__ is None


def fail_with_a_stuck_callback(
    server: LocalServer, unique: str, released: threading.Event
) -> None:
    with jsync.connect(server.url, drain_timeout=LONG) as nc:
        nc.subscribe(unique, callback=lambda msg: released.wait(LONG))
        nc.publish(unique)
        nc.flush()
        _ = 1 / 0


def test_a_lost_connection_does_not_mask_an_exception(
    own_server: StartServer, unique: str
) -> None:
    server = own_server()
    with pytest.raises(ZeroDivisionError):
        fail_after_the_server_is_gone(server, unique)


def fail_after_the_server_is_gone(server: LocalServer, unique: str) -> None:
    with jsync.connect(server.url, allow_reconnect=False) as nc:
        server.kill()
        wait_for(lambda: nc.is_closed)
        _ = 1 / 0


def test_leaving_the_block_after_a_loss_is_quiet(
    own_server: StartServer,
) -> None:
    server = own_server()
    with jsync.connect(server.url, allow_reconnect=False) as nc:
        server.kill()
        wait_for(lambda: nc.is_closed)


def test_leaving_the_block_after_a_close_is_quiet(
    server: LocalServer,
) -> None:
    with jsync.connect(server.url) as nc:
        nc.close()
    with jsync.connect(server.url) as nc:
        nc.drain()


def test_the_io_thread_awaits_writers_before_closing_descriptors(
    server: LocalServer,
) -> None:
    nc = jsync.connect(server.url)
    session = nc._session
    write_buffer, closing, left = (
        session.write_buffer,
        threading.Event(),
        threading.Event(),
    )

    class Busy:
        """A write buffer with a thread in the middle of a write."""

        def close(self, error: Exception) -> int:
            closing.set()
            assert left.wait(LONG)
            return write_buffer.close(error)

    session.write_buffer = cast("Any", Busy())
    # as if the I/O thread were stuck in a name lookup
    finish = Thread(session.on_closed, None)
    assert closing.wait(SOON)
    session.io.stop()
    try:
        assert not session.io.join(0.5)
    finally:
        left.set()
        finish.result()
        session.write_buffer = write_buffer
    assert session.io.join(SOON)
    nc.close()


def test_a_raising_timer_stops_neither_others_nor_connection(
    nc: jsync.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    called = Recorder()
    session = nc._session
    soon = time.monotonic() + 0.05
    session.timers.add(soon, lambda: 1 // 0)
    session.timers.add(soon, called)
    session.call_soon(lambda: None)  # makes the I/O thread check its timers
    called.get()
    nc.flush()
    assert session.reconnects == 0
    assert "a timer failed" in caplog.text
