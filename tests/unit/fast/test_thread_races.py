"""Tests that let two or more threads meet at each structure in docs/locks.md.

With a GIL these tests always pass. Without one, each test is about the protection in a row of that
table. JSYNC_MEETINGS sets the number of rounds of each test.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn, Self, cast

import pytest

from jsync import PubAck, errors
from jsync._fast import (
    AckWindow,
    GapTracker,
    IngestCounters,
    IngestWriter,
    IOLoop,
    JetStreamMailbox,
    Mailbox,
    MessageIterator,
    PinId,
    ReplyMux,
    RowBuffer,
    SequenceChecker,
    ThreadGuard,
    Waiter,
    WriteBuffer,
)

from ...support.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync._fast import JetStreamMsg

ROUNDS = int(os.environ.get("JSYNC_MEETINGS", "2000"))
LONG = 300.0
SID = 7
ACK = b"$JS.ACK.S.c.1.%d.%d.1760000000123456789.0"


def meet(*calls: Callable[[], object]) -> None:
    """Run each call on a thread, all starting together, and raise the error of any call."""
    barrier = threading.Barrier(len(calls))
    raised: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            barrier.wait(LONG)
            call()
        except BaseException as error:  # noqa: BLE001 - raised below
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive(), "a thread hangs"
    for error in raised:
        raise error


class Step:
    """Lets threads start each round at the same moment, if they run in parallel."""

    def __init__(self, threads: int) -> None:
        self.at = [-1] * threads

    def __call__(self, me: int, round_: int) -> None:
        self.at[me], tries = round_, 0
        while min(self.at) < round_:
            tries += 1
            if tries % 100 == 0:
                time.sleep(0)  # with a GIL, let the other threads run


class Station:
    """An I/O loop that the test feeds, and its write buffer, which the test empties."""

    def __init__(self, *, connected: bool = False, limit: int = 1 << 28) -> None:
        self.write_buffer = WriteBuffer(limit=limit, hold_limit=1 << 28)
        self.io_loop = IOLoop(self.write_buffer, -1)
        if connected:  # as with TLS, where the I/O thread takes the bytes
            self.write_buffer.open(-1, b"", direct=False)

    def mailbox(self, readers: int = 1) -> JetStreamMailbox:
        mailbox = JetStreamMailbox(self.write_buffer, SID, readers=readers)
        self.io_loop.subscribe(SID, mailbox)
        return mailbox

    def message(self, i: int, sid: int = SID) -> None:
        """Feed message `i` of a consumer."""
        self.messages(i, sid=sid)

    def messages(self, *numbers: int, sid: int = SID) -> None:
        """Feed messages of a consumer as one read."""
        fed = b""
        for i in numbers:
            reply, data = ACK % (i, i), b"%d" % i
            fed += b"MSG a %d %b %d\r\n%b\r\n" % (sid, reply, len(data), data)
        self.io_loop.decrypted(fed)

    def written(self, over: threading.Event) -> Iterator[bytes]:
        """Yield all written bytes until the end."""
        while not over.is_set() or self.write_buffer.pending:
            taken = self.write_buffer.take(1 << 20)
            if taken:
                yield taken
            else:
                time.sleep(0)  # with a GIL, let the other threads run


class Wire(Station):
    """An I/O loop on a socket pair, whose other end the test holds."""

    def __init__(self) -> None:
        super().__init__()
        self.mine, self.other = socket.socketpair()
        self.write_buffer.open(self.mine.fileno(), b"", direct=True)
        self.io_loop.open(self.mine.fileno(), direct=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.io_loop.finish()
        self.write_buffer.close(errors.ConnectionClosedError("closed"))
        self.mine.close()
        self.other.close()


def test_one_ack_of_many_threads_is_sent() -> None:
    station = Station()
    mailbox = station.mailbox()
    for i in range(1, ROUNDS + 1):
        station.message(i)
    msgs = cast("list[JetStreamMsg]", mailbox.take_rest())
    msgs[0].ack()
    one = station.write_buffer.pending - len(ACK % (1, 1))

    step = Step(2)

    def ack(me: int) -> None:
        for i, msg in enumerate(msgs):
            step(me, i)
            msg.ack()

    meet(lambda: ack(0), lambda: ack(1))
    assert all(msg.is_acked for msg in msgs)
    sizes = (len(ACK % (i, i)) + one for i in range(1, ROUNDS + 1))
    assert station.write_buffer.pending == sum(sizes)


def test_each_message_of_a_batch_gets_one_ack() -> None:
    station = Station()
    for _ in range(ROUNDS // 20):
        mailbox = station.mailbox()
        mailbox.use_columns(RowBuffer(acks=True))
        for i in range(1, 10):
            station.message(i)
        batch, before = mailbox.take_rows(), station.write_buffer.pending
        meet(batch.ack, batch.ack)
        each = len(b"PUB  4\r\n+ACK\r\n") + len(ACK % (1, 1))
        assert station.write_buffer.pending - before == 9 * each


def test_tokens_of_replies_are_never_given_twice() -> None:
    station = Station()
    replies, step = ReplyMux("_INBOX.x."), Step(2)
    tokens: list[list[int]] = [[], []]

    def add(me: int) -> None:
        waiter = Waiter(station.write_buffer)
        for i in range(ROUNDS):
            step(me, i)
            tokens[me].append(replies.add(waiter))
        for token in tokens[me]:
            replies.discard(token)

    meet(lambda: add(0), lambda: add(1))
    assert len({*tokens[0], *tokens[1]}) == 2 * ROUNDS
    assert len(replies) == 0


def test_a_waiter_has_one_outcome() -> None:
    station = Station()
    waiters = [Waiter(station.write_buffer, local=True) for _ in range(ROUNDS)]
    seen: list[str] = []

    def outcome(waiter: Waiter) -> str:
        try:
            return str(waiter.value())
        except errors.ConnectionLostError:
            return "lost"

    step = Step(2)

    def wait() -> None:
        for waiter in waiters:
            assert waiter.wait(LONG)
            seen.append(outcome(waiter))

    def settle() -> None:
        for i, waiter in enumerate(waiters):
            step(0, i)
            waiter.set("set")

    def fail() -> None:
        lost = errors.ConnectionLostError("lost")
        for i, waiter in enumerate(waiters):
            step(1, i)
            waiter.fail(lost)

    meet(wait, settle, fail)
    assert seen == [outcome(waiter) for waiter in waiters]
    assert set(seen) <= {"set", "lost"}


def test_readers_of_a_mailbox_get_each_message_once() -> None:
    station = Station()
    mailbox = station.mailbox(readers=3)
    seen: list[list[int]] = [[], [], []]
    counted = [0]

    def bring() -> None:
        for i in range(1, ROUNDS + 1):
            station.message(i)
        mailbox.close()

    def read(mine: list[int]) -> None:
        while (msg := mailbox.get(LONG)) is not None:
            if len(mine) % 3 == 2:
                mailbox.put_back([msg])
                msg = mailbox.get(0)
                if msg is None:  # another reader has it, or it has not arrived
                    continue
            mine.append(int(msg.data))

    def count() -> None:
        mailbox.give_credit(1 << 40, 1 << 40)
        while not mailbox.closed or len(mailbox):
            assert len(mailbox) >= 0
            mailbox.take_counts()
            mailbox.need_no_acks()
            counted[0] += 1

    meet(bring, count, *(lambda mine=mine: read(mine) for mine in seen))
    assert sorted(i for mine in seen for i in mine) == list(range(1, ROUNDS + 1))


def test_two_messages_wake_two_readers() -> None:
    station = Station()
    mailbox = station.mailbox(readers=2)
    both = threading.Barrier(2, timeout=20)

    def read() -> None:
        while mailbox.get(LONG) is not None:
            both.wait()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for i in range(20):
            time.sleep(0.02)  # so that both sleep, or else the round finds nothing
            # In one read: the second comes before the reader of the first one runs.
            station.messages(2 * i + 1, 2 * i + 2)
            wait_for(lambda: len(mailbox) == 0, 20)
    finally:
        mailbox.close()
        for reader in readers:
            reader.join(LONG)
    assert not both.broken


def test_the_last_message_comes_before_the_end() -> None:
    station = Station()

    class Owner:
        def waited(self) -> None: ...

    for _ in range(ROUNDS // 20):
        mailbox = station.mailbox()
        mailbox.end_after(3)

        def bring() -> None:
            for i in range(1, 4):
                station.message(i)

        def read(mailbox: Mailbox = mailbox) -> None:
            got = [int(msg.data) for msg in MessageIterator(mailbox, Owner())]
            assert got == [1, 2, 3]

        meet(bring, read)


def test_taken_messages_are_counted_once() -> None:
    station = Station()
    mailbox = station.mailbox()
    mailbox.on_credit = lambda: None
    mailbox.give_credit(1 << 40, 1 << 40)
    for i in range(1, ROUNDS + 1):
        station.message(i)
    total, over = [0], threading.Event()

    def take() -> None:
        while mailbox.get(0) is not None:
            pass
        over.set()

    def count() -> None:
        last = False
        while not last:
            last = over.is_set()
            (taken, _), _ = mailbox.take_counts()
            total[0] += taken

    meet(take, count)
    assert total == [ROUNDS]


def test_a_subscription_gets_messages_while_it_exists() -> None:
    station = Station()
    over = threading.Event()
    brought = [0]

    def bring() -> None:
        while not over.is_set():
            brought[0] += 1
            station.message(brought[0])

    def await_two_more() -> int:
        begun = brought[0]
        while brought[0] < begun + 2:
            time.sleep(0)
        return begun

    def come_and_go() -> None:
        for _ in range(ROUNDS // 50):
            mailbox = station.mailbox()
            await_two_more()
            assert mailbox.get(LONG / 10) is not None
            station.io_loop.unsubscribe(SID)
            begun = await_two_more()
            assert all(int(msg.data) < begun + 2 for msg in mailbox.take_rest())
            await_two_more()
            assert len(mailbox) == 0
        over.set()

    meet(bring, come_and_go)


def test_subscriptions_come_and_go_under_the_reading_thread() -> None:
    station = Station()
    over = threading.Event()
    got = Counter[int]()

    def bring() -> None:
        for i in range(1, ROUNDS + 1):
            station.message(i, sid=1 + i % 3)
        over.set()

    def come_and_go(sid: int) -> None:
        while not over.is_set():
            mailbox = JetStreamMailbox(station.write_buffer, sid)
            station.io_loop.subscribe(sid, mailbox)
            mailbox.get(0.0001)
            station.io_loop.unsubscribe(sid)
            got[sid] += len(mailbox.take_rest())

    meet(bring, *(lambda sid=sid: come_and_go(sid) for sid in (1, 2, 3)))
    assert sum(got.values()) <= ROUNDS


def test_each_pong_answers_one_ping() -> None:
    station = Station(connected=True)
    over, pings = threading.Event(), [0]

    def answer() -> None:
        for taken in station.written(over):
            count = taken.count(b"PING\r\n")
            pings[0] += count
            station.io_loop.decrypted(b"PONG\r\n" * count)

    def ping() -> None:
        for _ in range(ROUNDS):
            waiter = Waiter(station.write_buffer, local=True)
            assert station.io_loop.ping(waiter)
            assert waiter.wait(LONG)

    def flushers() -> None:
        meet(ping, ping)
        over.set()

    meet(answer, flushers)
    assert pings == [2 * ROUNDS]


def test_each_ping_is_answered_or_lost() -> None:
    station = Station(connected=True)
    over = threading.Event()

    def answer() -> None:
        for taken in station.written(over):
            station.io_loop.decrypted(b"PONG\r\n" * taken.count(b"PING\r\n"))

    def lose() -> None:
        while not over.is_set():
            station.write_buffer.pause()
            station.io_loop.fail_pings(errors.ConnectionLostError("lost"))
            station.write_buffer.open(-1, b"", direct=False)
            time.sleep(0)

    def ping() -> None:
        for _ in range(ROUNDS):
            waiter = Waiter(station.write_buffer, local=True)
            if station.io_loop.ping(waiter):
                assert waiter.wait(LONG / 10)

    def flushers() -> None:
        try:
            meet(ping, ping)
        finally:
            over.set()

    meet(answer, lose, flushers)


def test_one_thread_at_a_time_reads_the_socket() -> None:
    over = threading.Event()
    with Wire() as wire:
        mailbox = wire.mailbox()

        def bring() -> None:
            frames = b"".join(
                b"MSG a %d %b %d\r\n%d\r\n" % (SID, ACK % (i, i), len(b"%d" % i), i)
                for i in range(1, ROUNDS + 1)
            )
            for at in range(0, len(frames), 100):
                wire.other.sendall(frames[at : at + 100])

        def turn() -> None:
            while not over.is_set():
                wire.io_loop.run_once(time.monotonic() + 0.0001)

        def read() -> None:
            try:
                for i in range(1, ROUNDS + 1):
                    msg = mailbox.get(LONG)
                    assert msg is not None
                    assert msg.data == b"%d" % i
                    # the I/O thread sends the ack later
                    cast("JetStreamMsg", msg).ack()
            finally:
                over.set()

        meet(bring, turn, read)


def test_a_thread_reads_once_no_other_waits() -> None:
    with Wire() as wire:
        quiet = [
            JetStreamMailbox(wire.write_buffer, sid, readers=2) for sid in (1, 2, 3)
        ]

        def wait(mailbox: Mailbox) -> None:
            for _ in range(ROUNDS):
                assert mailbox.get(1e-7) is None

        meet(*(lambda mailbox=mailbox: wait(mailbox) for mailbox in quiet))
        mailbox = wire.mailbox()
        wire.other.sendall(b"MSG a %d 1\r\nx\r\n" % SID)
        assert mailbox.get(LONG / 10) is not None  # no other thread reads the socket


def test_a_closed_write_buffer_says_why() -> None:
    write_buffer = WriteBuffer()
    write_buffer.close(errors.ConnectionClosedError("first"))

    def close() -> None:
        for i in range(ROUNDS):
            write_buffer.close(errors.ConnectionClosedError(f"{i}"))

    def write() -> None:
        for _ in range(ROUNDS):
            with pytest.raises(errors.ConnectionClosedError):
                write_buffer.publish("s", b"")

    meet(close, close, write, write)


def test_publishes_of_each_thread_stay_in_order() -> None:
    station = Station(connected=True, limit=4096)
    over = threading.Event()
    written: list[bytes] = []

    def carry_out() -> None:
        written.extend(station.written(over))

    def publish(number: int) -> None:
        for i in range(ROUNDS):
            station.write_buffer.publish(f"s.{number}", b"%d" % i)

    def publishers() -> None:
        meet(*(lambda number=number: publish(number) for number in range(3)))
        over.set()

    meet(carry_out, publishers)
    frames = re.findall(rb"PUB s\.(\d) \d+\r\n(\d+)\r\n", b"".join(written))
    for number in range(3):
        mine = [int(data) for subject, data in frames if int(subject) == number]
        assert mine == list(range(ROUNDS))
    assert station.write_buffer.counters[0] == 3 * ROUNDS


def window_of(station: Station, size: int) -> AckWindow:
    def never(*_: object) -> NoReturn:
        raise AssertionError("no ack is a rejection")

    window = AckWindow(
        station.write_buffer,
        "_INBOX.p.",
        size,
        1 << 20,
        LONG,
        LONG,
        resend=False,
        pub_ack=lambda stream, sequence: PubAck(stream=stream, seq=sequence),
        read_ack=never,
        no_stream=never,
        backoff=lambda _: 0.0,
        retry_attempts=0,
        retry_wait=0.0,
    )
    window.on_done = window.on_timer = window.on_refused = lambda: None
    station.io_loop.subscribe(SID, window)
    return window


def test_each_publish_gets_the_ack_of_its_message() -> None:
    station = Station(connected=True)
    window = window_of(station, 16)
    over, sequences = threading.Event(), []
    pattern = re.compile(rb"PUB s (_INBOX\.p\.\d+) \d+\r\n(\d+)\r\n")

    def store() -> None:
        rest = b""
        for taken in station.written(over):
            rest += taken
            end = 0
            for found in pattern.finditer(rest):
                end = found.end()
                ack = b'{"stream":"S","seq":%b}' % found[2]
                station.io_loop.decrypted(
                    b"MSG %b %d %d\r\n%b\r\n" % (found[1], SID, len(ack), ack)
                )
            rest = rest[end:]

    def publish(first: int) -> None:
        futures = []
        for i in range(first, first + ROUNDS):
            future = window.publish("s", b"%d" % i)
            future.add_done_callback(print)
            futures.append((i, future))
        for i, future in futures:
            assert future.result(LONG).seq == i
            sequences.append(i)

    def look() -> None:
        while not over.is_set():
            window.expire()
            window.take_done()
            window.take_failures()
            assert window.pending <= 16
            repr(window)

    def publishers() -> None:
        meet(lambda: publish(1), lambda: publish(1 + ROUNDS))
        assert window.flush(LONG)
        over.set()

    meet(store, look, publishers)
    assert sorted(sequences) == list(range(1, 2 * ROUNDS + 1))
    assert (window.acknowledged, window.failed) == (2 * ROUNDS, 0)
    assert (window.pending, window.published) == (0, 2 * ROUNDS)


def test_a_window_that_closes_ends_each_publish_once() -> None:
    for _ in range(ROUNDS // 50):
        station = Station(connected=True)
        window = window_of(station, 8)
        ended: list[object] = []

        def publish(window: AckWindow = window, ended: list[object] = ended) -> None:
            try:
                while True:
                    future = window.publish("s", b"x")
                    future.add_done_callback(ended.append)
            except errors.PublisherClosedError:
                return

        def close(window: AckWindow = window) -> None:
            while window.pending < 8:
                pass
            window.close(errors.PublisherClosedError("closed"))

        meet(publish, publish, close)
        told = [done for done, calls, _ in window.take_done() for _ in calls]
        assert len(told) == len(set(map(id, told))) == 8
        assert (window.failed, window.pending) == (8, 0)


def test_messages_that_are_passed_over_are_counted_once() -> None:
    station = Station()
    mailbox = station.mailbox()
    order = mailbox.order = SequenceChecker(ROUNDS)
    over, total = threading.Event(), [0]

    def bring() -> None:
        for i in range(1, ROUNDS + 1):
            station.message(i)
        over.set()

    def count() -> None:
        last = False
        while not last:
            last = over.is_set()
            total[0] += order.take_passed_over()[0]

    meet(bring, count)
    assert total == [ROUNDS]


def test_each_gap_of_a_trail_is_found_once() -> None:
    station = Station()
    mailbox = station.mailbox()
    trail = mailbox.trail = GapTracker()
    trail.start(0, 0)
    over = threading.Event()
    gaps: list[tuple[int, int, int, int]] = []

    def bring() -> None:
        for i in range(2, 2 * ROUNDS + 1, 2):  # every other message is missing
            station.message(i)
        over.set()

    def take() -> None:
        last = False
        while not last:
            last = over.is_set()
            gaps.extend(trail.take_gaps())

    meet(bring, take)
    assert [gap[:2] for gap in gaps] == [(i, i) for i in range(1, 2 * ROUNDS, 2)]
    assert all(a[1] < b[0] for a, b in pairwise(gaps))


def test_a_pin_is_one_of_those_that_came() -> None:
    station = Station()
    mailbox = station.mailbox()
    pin = mailbox.pin = PinId()
    over = threading.Event()
    ids = {"a" * 21, "b" * 22, ""}

    def bring() -> None:
        for i in range(ROUNDS):
            name = (b"a" * 21, b"b" * 22)[i % 2]
            block = b"NATS/1.0\r\nNats-Pin-Id: %b\r\n\r\n" % name
            station.io_loop.decrypted(
                b"HMSG a %d %b %d %d\r\n%bx\r\n"
                % (SID, ACK % (i, i), len(block), len(block) + 1, block)
            )
            mailbox.take_rest()
        over.set()

    def look() -> None:
        while not over.is_set():
            assert pin.id in ids
            pin.clear("a" * 21)

    meet(bring, look, look)


def test_one_thread_at_a_time_enters_a_batch() -> None:
    turn, inside, entered = ThreadGuard(), [0], []

    def enter() -> None:
        for _ in range(ROUNDS):
            try:
                with turn:
                    inside[0] += 1
                    assert inside[0] == 1
                    inside[0] -= 1
                    entered.append(1)
            except errors.ConcurrentUseError:
                pass

    meet(enter, enter, enter)
    assert entered


def test_one_thread_writes_an_ingest_at_a_time() -> None:
    station = Station(connected=True)
    counts = IngestCounters()
    writer = IngestWriter(station.write_buffer, counts, 1 << 30, 1 << 30)
    writer.begin(station.mailbox(), b"_INBOX.i.1.")
    writer.limit = 1 << 40
    over = threading.Event()
    numbers: list[int] = []
    written: list[bytes] = []

    def carry_out() -> None:
        written.extend(station.written(over))

    def write() -> None:
        for i in range(ROUNDS):
            try:
                ack = writer.write("s", b"%d" % i)
            except errors.ConcurrentUseError:
                continue
            assert ack is not None
            numbers.append(ack.batch_sequence)

    def ping() -> None:
        while not over.is_set():
            writer.ping()
            assert writer.under_way >= 0

    def writers() -> None:
        meet(write, write)
        over.set()

    meet(carry_out, ping, writers)
    frames = re.findall(rb"PUB s _INBOX\.i\.1\.(\d+)\.[01]", b"".join(written))
    assert [int(number) for number in frames] == list(range(1, counts.sent + 1))
    assert sorted(numbers) == list(range(1, counts.sent + 1))


def written_to_window(station: Station) -> tuple[Callable[[], object], ...]:
    window = window_of(station, 16)
    return lambda: window.publish("s", bytes(64)), window.expire


def written_to_ingest(station: Station) -> tuple[Callable[[], object], ...]:
    writer = IngestWriter(station.write_buffer, IngestCounters(), 1 << 30, 1 << 30)
    writer.begin(station.mailbox(), b"_INBOX.i.1.")
    writer.limit = 1 << 40
    return lambda: writer.write("s", bytes(64)), writer.ping


@pytest.mark.parametrize("made", [written_to_window, written_to_ingest])
def test_a_signal_handler_in_a_wait_blocks_nobody(
    made: Callable[[Station], tuple[Callable[[], object], ...]],
) -> None:
    station = Station(connected=True, limit=64)
    write, look = made(station)
    write()  # the buffer is full
    waits, inside, looked = False, threading.Event(), threading.Event()
    seen: list[bool] = []

    def handle(*_: object) -> None:
        if waits and not inside.is_set():
            inside.set()
            end = time.monotonic() + LONG / 10
            while not looked.is_set() and time.monotonic() < end:
                pass
            seen.append(looked.is_set())
            station.write_buffer.take(1 << 20)

    def look_then() -> None:
        assert inside.wait(LONG)
        look()
        looked.set()

    other = threading.Thread(target=look_then)
    other.start()
    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        waits = True
        write()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    other.join(LONG)
    assert seen == [True]
