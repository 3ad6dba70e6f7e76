"""Tests of waiting threads, and of the one that reads, over a socket pair without a server."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from functools import partial
from operator import call
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING

import pytest

from jsync import PubAck, errors
from jsync._fast import (
    AckWindow,
    IngestCounters,
    IngestWriter,
    IOLoop,
    JetStreamMailbox,
    Mailbox,
    PoolThread,
    ReadyQueue,
    Waiter,
    Waker,
    WriteBuffer,
    monotonic_ns,
)
from jsync.core.timers import MAX_CALLS_PER_READ, Timers
from jsync.jetstream.publishing.publish import no_stream, read_ack

from ...support.servers import wait_for
from ...support.threads import wait_until_blocked
from ...support.windows import WINDOWS, sleep_with_the_gil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


SID = 7
MESSAGE = b"MSG a %d 1\r\nx\r\n" % SID


class Wire:
    """A connection whose I/O thread sleeps, and the socket of its server."""

    def __init__(self, near: socket.socket, far: socket.socket, waker: Waker) -> None:
        near.setblocking(False)
        self.far = far
        self._waker = waker
        self.write_buffer = WriteBuffer(waker.write_fd)
        self.io_loop = IOLoop(self.write_buffer, waker.read_fd)
        self.io_loop.open(near.fileno(), direct=True)
        self.write_buffer.open(near.fileno(), b"", direct=True)
        self.mailbox = JetStreamMailbox(self.write_buffer, SID)
        self.io_loop.subscribe(SID, self.mailbox)
        waker.clear()

    def has_woken_the_io_thread(self) -> bool:
        """Return whether the I/O thread was woken since the last call."""
        with DefaultSelector() as selector:
            selector.register(self._waker.read_fd, EVENT_READ)
            woken = bool(selector.select(0))
        self._waker.clear()
        return woken


@pytest.fixture
def wire() -> Iterator[Wire]:
    near, far = socket.socketpair()
    waker = Waker()
    with near, far:
        yield Wire(near, far, waker)
    waker.close()


def test_deadlines_are_of_the_clock_that_python_has() -> None:
    for _ in range(1000):
        before, here, after = time.monotonic_ns(), monotonic_ns(), time.monotonic_ns()
        assert before <= here <= after


def test_a_waker_closes_its_descriptors_once() -> None:
    waker = Waker()
    fds = {waker.read_fd, waker.write_fd}
    waker.close()
    assert {waker.read_fd, waker.write_fd} == {-1}
    with socket.socket() as other:
        waker.close()
        del waker
        assert other.fileno() >= 0
        other.bind(("127.0.0.1", 0))
    for fd in fds - {other.fileno()}:
        if WINDOWS:
            with pytest.raises(OSError, match="10038"):
                socket.socket(fileno=fd)
        else:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(fd)


def test_events_of_the_handshake_are_not_seen_again(wire: Wire) -> None:
    flushing = Waiter(wire.write_buffer)
    assert wire.io_loop.feed(b"PONG\r\n") == [("PONG", None)]
    assert wire.io_loop.ping(flushing)
    assert wire.io_loop.run_once(0.0) == []
    assert not flushing.done
    wire.far.sendall(b"PONG\r\n")
    assert flushing.wait(60)


def test_the_io_thread_reads_despite_constant_interruptions(
    wire: Wire,
) -> None:
    wire.far.sendall(MESSAGE)
    wire.io_loop.interrupt()
    assert wire.io_loop.run_once(time.monotonic() + 60) == []
    assert wire.mailbox.next(0).data == b"x"


@pytest.mark.parametrize("hurry", ["interrupted", "deadline"])
def test_the_io_thread_writes_despite_constant_hurrying(wire: Wire, hurry: str) -> None:
    """What a full socket does not take follows once it takes more."""
    for _ in range(64):
        wire.write_buffer.publish("a", b"x" * 100_000)
    wire.write_buffer.flush()
    assert wire.write_buffer.pending > 0
    wire.far.setblocking(False)
    until = time.monotonic() + 60
    while wire.write_buffer.pending and time.monotonic() < until:
        with contextlib.suppress(BlockingIOError):
            wire.far.recv(1 << 20)
        if hurry == "interrupted":
            wire.io_loop.interrupt()
        assert wire.io_loop.run_once(until if hurry == "interrupted" else 0.0) == []
    assert wire.write_buffer.pending == 0


def test_the_io_thread_checks_the_socket_between_calls() -> None:
    timers = Timers()
    for _ in range(10 * MAX_CALLS_PER_READ):
        timers.call_soon(list)
    assert [len(timers.due(0.0)) for _ in range(9)] == [MAX_CALLS_PER_READ] * 9
    assert timers.next == 0.0
    timers.due(0.0)
    assert timers.next == float("inf")


def test_a_reading_thread_reports_when_a_mailbox_ends(
    wire: Wire,
) -> None:
    wire.mailbox.end_after(1)
    wire.far.sendall(MESSAGE)
    assert wire.mailbox.next(10).data == b"x"
    assert wire.has_woken_the_io_thread()
    # The I/O thread knows already, so the next end does not wake it again.
    other = JetStreamMailbox(wire.write_buffer, SID + 1)
    other.end_after(1)
    wire.io_loop.subscribe(SID + 1, other)
    wire.far.sendall(b"MSG a %d 1\r\nx\r\n" % (SID + 1))
    assert other.next(10).data == b"x"
    assert not wire.has_woken_the_io_thread()
    assert wire.io_loop.run_once(0.0) == [("ENDED", wire.mailbox), ("ENDED", other)]


def test_closing_returns_events_left_by_reading_threads(
    wire: Wire,
) -> None:
    wire.mailbox.end_after(2)
    wire.mailbox.on_first = list
    wire.far.sendall(MESSAGE + MESSAGE)
    assert wire.mailbox.next(10).data == b"x"
    ended, *rest = wire.io_loop.close()
    assert ended == ("ENDED", wire.mailbox)
    assert ("FIRST", wire.mailbox) in rest
    assert wire.io_loop.close() == []


def test_ctrl_c_leaves_a_window_call_still_due(wire: Wire) -> None:
    """Without its timer a message whose ack is lost would wait for ever."""
    window = AckWindow(
        *(wire.write_buffer, "_INBOX.p.", 16, 1 << 20, 60.0, 60.0),
        resend=False,
        pub_ack=PubAck,
        read_ack=read_ack,
        no_stream=no_stream,
        backoff=float,
        retry_attempts=0,
        retry_wait=0.0,
    )
    calls: list[str] = []

    def interrupted(name: str) -> None:
        calls.append(name)
        if calls.count(name) == 1:
            raise KeyboardInterrupt

    window.on_timer = partial(interrupted, "timer")
    window.on_done = partial(interrupted, "done")
    with pytest.raises(KeyboardInterrupt):
        window.publish("s", b"1")
    future = window.publish("s", b"2")
    assert calls == ["timer", "timer"]
    window.close(errors.ConnectionClosedError("closed"))
    with pytest.raises(KeyboardInterrupt):
        future.add_done_callback(print)
    future.add_done_callback(print)
    assert calls == ["timer", "timer", "done", "done"]
    assert [each for _, each, _ in window.take_done()] == [[print], [print]]


def test_an_ingest_message_counts_as_sent_before_leaving() -> None:
    """The loss of the connection looks at the count while a large message is being sent."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    uncounted = 0
    try:
        for _ in range(50):
            near, far = socket.socketpair()
            with near, far:
                uncounted += sent_but_not_counted(near)
    finally:
        sys.setswitchinterval(interval)
    assert uncounted == 0


def sent_but_not_counted(near: socket.socket) -> int:
    """Return how often another thread saw a message sent that was not counted."""
    waker = Waker()
    near.setblocking(False)
    write_buffer = WriteBuffer(waker.write_fd)
    write_buffer.set_max_payload(1 << 23)
    write_buffer.open(near.fileno(), b"", direct=True)
    counts = IngestCounters()
    writer = IngestWriter(write_buffer, counts, 1 << 30, 1 << 30)
    writer.begin(Mailbox(write_buffer, SID), b"_INBOX.x.1.fail.")
    over, found = threading.Event(), 0

    def look() -> None:
        nonlocal found
        while not over.is_set():
            written, _ = write_buffer.counters
            found += written > counts.sent

    looking = threading.Thread(target=look)
    looking.start()
    try:
        writer.write("s", b"x" * 4_000_000)
    finally:
        over.set()
        looking.join()
        write_buffer.close(errors.ConnectionClosedError("closed"))
        waker.close()
    return found


def test_a_message_arriving_while_acks_leave_is_returned(
    wire: Wire,
) -> None:
    # The write is so large that it releases the GIL.
    wire.write_buffer.command(b"ack", deferred=True)
    wire.write_buffer.command(bytes(200_000), piggyback=True)
    begin = threading.Lock()
    begin.acquire()
    returned = threading.Event()
    at_once: list[bool] = []

    def deliver() -> None:
        with begin:
            wire.io_loop.decrypted(MESSAGE)
        at_once.append(returned.wait(60))

    delivering = threading.Thread(target=deliver)
    delivering.start()
    # These steps run without bytecode in between. A thread that releases the GIL after holding it
    # for so long gets it back only after a waiting thread.
    steps: tuple[Callable[[], object], ...] = (
        begin.release,
        sleep_with_the_gil(50),
        partial(wire.mailbox.get, 20),
    )
    *_, msg = map(call, steps)
    returned.set()
    delivering.join()
    assert msg is not None
    assert at_once == [True]


def acks_that_left(wire: Wire) -> bytes:
    wire.far.setblocking(False)
    try:
        return wire.far.recv(100)
    except BlockingIOError:
        return b""
    finally:
        wire.far.setblocking(True)


def ack_and_take_the_next(wire: Wire) -> None:
    wire.write_buffer.command(b"ack", deferred=True)
    wire.far.sendall(MESSAGE)
    assert wire.mailbox.get(10) is not None


def test_acks_leave_before_waiting_for_the_next_message(wire: Wire) -> None:
    for _ in range(5):
        ack_and_take_the_next(wire)
        assert acks_that_left(wire) == b"ack"


def test_acks_wait_together_while_messages_keep_coming(
    wire: Wire,
) -> None:
    wire.mailbox.holds_acks = True
    ack_and_take_the_next(wire)
    # jsync does not know yet that messages come quickly
    assert acks_that_left(wire) == b"ack"

    def two_stay() -> bool:
        ack_and_take_the_next(wire)
        ack_and_take_the_next(wire)
        return acks_that_left(wire) == b""

    # On a busy machine there may be a long time between two messages.
    assert any(two_stay() for _ in range(50))


def test_delayed_acks_leave_with_the_next_io_round(wire: Wire) -> None:
    wire.mailbox.holds_acks = True
    for _ in range(5):
        ack_and_take_the_next(wire)
    time.sleep(0.002)
    wire.io_loop.run_once(0.0)
    assert acks_that_left(wire).endswith(b"ack")
    assert wire.write_buffer.pending == 0


def test_acks_leave_before_waiting_for_the_io_thread(wire: Wire) -> None:
    wire.mailbox.holds_acks = True
    for _ in range(5):
        ack_and_take_the_next(wire)
    wire.io_loop.close()  # as with TLS, or when other threads also wait
    assert wire.mailbox.get(0.01) is None
    assert wire.write_buffer.pending == 0


def test_a_full_mailbox_uses_its_overflow_before_dropping(
    wire: Wire,
) -> None:
    mailbox = Mailbox(wire.write_buffer, SID + 1, max_messages=2)
    mailbox.overflow = overflow = Mailbox(wire.write_buffer, SID + 1, max_messages=1)
    wire.io_loop.subscribe(SID + 1, mailbox)
    wire.far.sendall(b"".join(b"MSG a %d 1\r\n%d\r\n" % (SID + 1, n) for n in range(5)))
    assert wire.io_loop.run_once(1.0) == [("SLOW", mailbox), ("SLOW", overflow)]
    assert [msg.data for msg in mailbox.take_rest()] == [b"0", b"1"]
    assert [msg.data for msg in overflow.take_rest()] == [b"2"]
    assert (mailbox.dropped, overflow.dropped) == (3, 2)


def test_after_a_read_waiters_recall_the_io_thread(
    wire: Wire,
) -> None:
    other = JetStreamMailbox(wire.write_buffer, SID + 1)
    other.alone = False
    wire.io_loop.subscribe(SID + 1, other)

    def calls_back() -> bool:
        wire.far.sendall(MESSAGE)
        assert wire.mailbox.next(10).data == b"x"
        wire.has_woken_the_io_thread()
        assert other.get(0.0001) is None
        return wire.has_woken_the_io_thread()

    # The I/O thread leaves the socket alone for a moment, which may be over on a busy machine.
    wait_for(calls_back)
    # No thread has read since, so the I/O thread does not need to be called back.
    assert other.get(0.0001) is None
    assert not wire.has_woken_the_io_thread()


def test_an_idle_pool_leaves_the_socket_to_readers(wire: Wire) -> None:
    """Its last mailbox has ended, so no message is for it."""
    queue = ReadyQueue(wire.write_buffer, lambda: None)
    pooled = Mailbox(wire.write_buffer, SID + 1)
    pooled.pool(queue, "a task")
    assert pooled.claim_task() == "a task"
    idle = threading.Thread(target=PoolThread(queue, "a thread").next, args=(60.0,))
    idle.start()
    wait_until_blocked(idle)
    wire.far.sendall(MESSAGE)
    try:
        assert wire.mailbox.next(20).data == b"x"  # no other thread reads the socket
    finally:
        queue.end()
        idle.join()


def test_a_writer_waiting_for_room_meets_new_limits() -> None:
    write_buffer = WriteBuffer(limit=1000)
    write_buffer.set_max_payload(1 << 20)
    write_buffer.open(-1, b"", direct=False)
    write_buffer.publish("a", bytes(990))
    assert write_buffer.take(1) == b"P"
    raised: list[Exception] = []

    def publish() -> None:
        try:
            write_buffer.publish("a", bytes(900))
        except Exception as error:  # noqa: BLE001 (looked at below)
            raised.append(error)

    writing = threading.Thread(target=publish)
    writing.start()
    wait_until_blocked(writing)
    assert (
        write_buffer.set_max_payload(100) == []
    )  # what is sent already is not taken back
    while write_buffer.take(1 << 20) or writing.is_alive():
        writing.join(0.01)
    assert [type(error) for error in raised] == [errors.MaxPayloadError]
    assert write_buffer.counters == (1, 990)


def test_messages_waiting_for_a_connection_fit_its_limit() -> None:
    write_buffer = WriteBuffer(hold_limit=1 << 20)
    for size, headers in ((10, None), (200, None), (99, {"A": "b"}), (60, {"A": "b"})):
        write_buffer.publish(f"s.{size}", bytes(size), "reply", headers)
    assert write_buffer.set_max_payload(100) == [("s.200", 200), ("s.99", 117)]
    assert write_buffer.set_max_payload(50) == [("s.60", 78)]
    assert write_buffer.set_max_payload(1000) == []
    write_buffer.open(-1, b"SUB a 1\r\n", direct=False)
    assert write_buffer.take(1 << 20) == b"SUB a 1\r\n"
    assert write_buffer.take(1 << 20) == b"PUB s.10 reply 10\r\n" + bytes(10) + b"\r\n"
    assert write_buffer.counters == (1, 10)
