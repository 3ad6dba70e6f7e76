"""Tests of TLS in the extension: over a socket pair, with the `ssl` of Python as the server."""

from __future__ import annotations

import contextlib
import gc
import re
import socket
import ssl
import sys
import threading
import time
import weakref
from collections import Counter
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors
from jsync._fast import (
    Event,
    IOLoop,
    JetStreamMailbox,
    ReplyMux,
    TLSRecords,
    Waiter,
    Waker,
    WriteBuffer,
)
from jsync.core.tls import TLSLayer
from jsync.errors import TLSError

from ...support.servers import wait_for
from .test_thread_races import ROUNDS, meet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...support.certificates import Certificates

SID = 7


class Context(ssl.SSLContext):
    """Records the threads that read and wrote, and calls `inside` in the middle of them."""

    readers: set[int]
    writers: set[int]
    inside: Callable[[], object] | None = None
    written: bytes = b""
    """The plaintext of the last write, as it was after `inside`."""


class Ours(ssl.SSLObject):
    def read(self, *arguments: Any) -> Any:
        self._be_inside().readers.add(threading.get_ident())
        return super().read(*arguments)

    def write(self, data: Any) -> int:
        context = self._be_inside()
        context.writers.add(threading.get_ident())
        context.written = bytes(data)
        return super().write(data)

    def _be_inside(self) -> Context:
        context = self.context
        assert isinstance(context, Context)
        act, context.inside = context.inside, None
        if act is not None:
            act()
        return context


class Pair:
    """A connection over TLS whose I/O thread sleeps, and its server."""

    def __init__(
        self,
        near: socket.socket,
        far: socket.socket,
        waker: Waker,
        certificates: Certificates,
        newest: ssl.TLSVersion,
    ) -> None:
        near.setblocking(False)
        self.near, self.far, self.waker = near, far, waker
        self.context = Context(ssl.PROTOCOL_TLS_CLIENT)
        self.context.sslobject_class = Ours
        self.context.readers, self.context.writers = set(), set()
        self.context.maximum_version = newest
        self.context.load_verify_locations(certificates.ca.cert)
        theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        theirs.load_cert_chain(certificates.server.cert, certificates.server.key)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = theirs.wrap_bio(self.incoming, self.outgoing, server_side=True)
        options: Any = SimpleNamespace(tls=self.context)
        client = TLSLayer(options, "localhost")
        done, came = False, b""
        while not done:
            done = client.do_handshake(came)
            self.incoming.write(client.outgoing())
            with contextlib.suppress(ssl.SSLWantReadError):
                self.server.do_handshake()
            came = b"" if done else self.outgoing.read()
        self.write_buffer = WriteBuffer(waker.write_fd)
        self.io_loop = IOLoop(self.write_buffer, waker.read_fd)
        self.records: TLSRecords = client.records()
        self.mailbox = JetStreamMailbox(self.write_buffer, SID)
        self.io_loop.subscribe(SID, self.mailbox)
        self.io_loop.open(near.fileno(), direct=True, records=self.records)
        self.write_buffer.open(near.fileno(), b"", direct=True, records=self.records)
        waker.clear()

    def encrypted(self, data: bytes) -> bytes:
        """Return the ciphertext of the server for these bytes, after any pending ciphertext."""
        self.server.write(data)
        return self.outgoing.read()

    def turn(self, seconds: float = 0.0) -> list[tuple[Event, Any]]:
        """Play the I/O thread for this time, but for at least one turn."""
        return self.io_loop.run_once(time.monotonic() + seconds)

    def heard(self) -> bytes:
        """Return the bytes that the server can read now."""
        parts = []
        while True:
            try:
                self.incoming.write(self.far.recv(1 << 20, socket.MSG_DONTWAIT))
            except BlockingIOError:
                break
        while True:
            try:
                parts.append(self.server.read(1 << 20))
            except ssl.SSLWantReadError:
                return b"".join(parts)


@pytest.fixture(params=["TLSv1_2", "TLSv1_3"])
def pair(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Pair]:
    near, far = socket.socketpair()
    waker = Waker()
    with near, far:
        yield Pair(near, far, waker, certificates, ssl.TLSVersion[request.param])
    waker.close()


def frame(data: bytes, subject: bytes = b"a") -> bytes:
    return b"MSG %b %d %d\r\n%b\r\n" % (subject, SID, len(data), data)


def in_a_thread(act: Callable[[], object]) -> int:
    """Run `act` in a thread, and return the id of that thread."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert thread.ident is not None
    return thread.ident


# Reading ------------------------------------------------------------------------------


def test_a_record_may_be_cut_at_any_byte(pair: Pair) -> None:
    pair.far.sendall(pair.encrypted(frame(b"first")))
    assert pair.turn() == []
    assert pair.mailbox.next(0).data == b"first"
    for i in range(1, 1000):
        whole = pair.encrypted(frame(b"%04d" % i))
        if i == len(whole):
            return
        pair.far.sendall(whole[:i])
        assert pair.turn() == []
        assert len(pair.mailbox) == 0
        pair.far.sendall(whole[i:])
        assert pair.turn() == []
        assert pair.mailbox.next(0).data == b"%04d" % i


@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 16_385, 300_000, 3_000_000])
def test_messages_of_any_size_come_whole(pair: Pair, size: int) -> None:
    payload = (bytes(range(256)) * (size // 256 + 1))[:size]
    sent = pair.encrypted(frame(payload) * 3)
    sending = threading.Thread(target=pair.far.sendall, args=(sent,))
    sending.start()
    until = time.monotonic() + 60
    while len(pair.mailbox) < 3 and time.monotonic() < until:
        assert pair.turn() == []
    sending.join(60)
    assert [pair.mailbox.next(0).data == payload for _ in range(3)] == [True] * 3


def test_a_broken_record_is_reported_after_earlier_messages(
    pair: Pair,
) -> None:
    whole = pair.encrypted(frame(b"good"))
    broken = bytearray(pair.encrypted(frame(b"bad")))
    broken[-1] ^= 1
    pair.far.sendall(whole + broken)
    [(name, error)] = pair.turn()
    assert name == Event.BROKEN
    assert isinstance(error, TLSError)
    assert pair.mailbox.next(0).data == b"good"
    assert len(pair.mailbox) == 0
    pair.turn()
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        pair.heard()


def test_bytes_that_are_no_record_raise_tls_errors(pair: Pair) -> None:
    pair.far.sendall(b"PING\r\n" * 10)
    [(name, error)] = pair.turn()
    assert name == Event.BROKEN
    assert isinstance(error, TLSError)


def test_the_end_of_records_ends_the_connection(
    pair: Pair,
) -> None:
    last = pair.encrypted(frame(b"last"))
    with pytest.raises(ssl.SSLWantReadError):
        pair.server.unwrap()
    pair.far.sendall(last + pair.outgoing.read())
    [(name, error)] = pair.turn()
    assert name == Event.BROKEN
    assert isinstance(error, EOFError)
    assert pair.mailbox.next(0).data == b"last"


# Writing ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 300_000, 2_000_000])
def test_unsent_bytes_of_a_socket_follow_in_order(pair: Pair, size: int) -> None:
    pair.write_buffer.set_max_payload(1 << 24)
    payload = (bytes(range(256)) * (size // 256 + 1))[:size]

    def publish() -> None:
        for _ in range(3):
            pair.write_buffer.publish("a", payload)
        pair.write_buffer.flush()

    in_a_thread(publish)
    expected = (b"PUB a %d\r\n%b\r\n" % (size, payload)) * 3
    heard, until = b"", time.monotonic() + 60
    while len(heard) < len(expected) and time.monotonic() < until:
        heard += pair.heard()
        assert pair.turn(0.001) == []
    assert heard == expected
    assert pair.write_buffer.pending == 0


def test_threads_that_write_at_once_mix_no_bytes(pair: Pair) -> None:
    threads, each = 4, 400
    heard, until = b"", time.monotonic() + 60

    def publish(number: int) -> None:
        for i in range(each):
            pair.write_buffer.publish(f"a.{number}", b"%d" % i, request=i % 3 == 0)

    publishing = [
        threading.Thread(target=publish, args=(number,)) for number in range(threads)
    ]
    for thread in publishing:
        thread.start()
    while time.monotonic() < until:
        alive = any(thread.is_alive() for thread in publishing)
        assert pair.turn(0.001) == []
        heard += pair.heard()
        if not alive and pair.write_buffer.pending == 0:
            break
    pair.write_buffer.flush()
    pair.turn()
    heard += pair.heard()
    lines = heard.split(b"\r\n")
    found = list(zip(lines[::2], lines[1::2], strict=False))
    for number in range(threads):
        head = b"PUB a.%d " % number
        numbers = [int(data) for line, data in found if line.startswith(head)]
        assert numbers == list(range(each))


def test_threads_encrypt_while_others_decrypt(pair: Pair) -> None:
    """Each message of the writers is answered, and whoever waits or turns decrypts."""
    writers, each = 3, max(ROUNDS // 4, 50)
    over = threading.Event()
    heard: list[bytes] = []

    def serve() -> None:
        pair.far.settimeout(0.05)
        rest = b""
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                pair.incoming.write(pair.far.recv(1 << 16))
            with contextlib.suppress(ssl.SSLWantReadError):
                while True:
                    rest += pair.server.read(1 << 16)
            *lines, rest = rest.split(b"\r\n")
            if len(lines) % 2:
                rest = lines.pop() + b"\r\n" + rest
            heard.extend(lines[1::2])
            if lines:
                frames = b"".join(map(frame, lines[1::2]))
                pair.far.settimeout(60)
                pair.far.sendall(pair.encrypted(frames))
                pair.far.settimeout(0.05)

    def turn() -> None:
        while not over.is_set():
            assert pair.turn(0.001) == []

    def write(number: int) -> None:
        for i in range(each):
            pair.write_buffer.publish("a", b"%d %d" % (number, i), request=True)

    def read() -> None:
        try:
            answers = [pair.mailbox.next(60).data for _ in range(writers * each)]
        finally:
            over.set()
        assert answers == heard
        for number in range(writers):
            mine = [data for data in heard if data.startswith(b"%d " % number)]
            assert mine == [b"%d %d" % (number, i) for i in range(each)]

    meet(serve, turn, read, *(partial(write, number) for number in range(writers)))


def test_no_thread_decrypts_while_another_encrypts(pair: Pair) -> None:
    reading = threading.Thread(target=pair.turn)
    readers: set[int] = set()

    def have_it_read() -> None:
        pair.far.sendall(pair.encrypted(frame(b"x")))
        reading.start()
        wait_for(lambda: not has_bytes(pair.near))
        time.sleep(0.02)  # enough for who does not wait for us
        readers.update(pair.context.readers)

    pair.context.inside = have_it_read
    in_a_thread(lambda: pair.write_buffer.publish("a", b"y", request=True))
    reading.join(60)
    assert readers == set()
    assert pair.mailbox.next(0).data == b"x"
    assert pair.heard() == b"PUB a 1\r\ny\r\n"


def test_no_thread_receives_while_another_decrypts(pair: Pair) -> None:
    """A fault, and the alert that TLS owes for it, belong to the thread that met it."""
    good = pair.encrypted(frame(b"good"))
    broken = bytearray(pair.encrypted(frame(b"bad")))
    broken[-1] ^= 1
    events: dict[str, list[tuple[Event, Any]]] = {}
    left: list[bool] = []

    def turn(name: str, seconds: float) -> None:
        events[name] = pair.turn(seconds)

    second = threading.Thread(target=turn, args=("second", 60.0))

    def have_it_read() -> None:
        pair.far.sendall(broken)
        second.start()
        time.sleep(0.05)  # enough for who does not wait for us
        left.append(has_bytes(pair.near))

    pair.context.inside = have_it_read
    pair.far.sendall(good)
    in_a_thread(lambda: turn("first", 0.0))
    second.join(60)
    assert left == [True]
    assert events["first"] == []
    [(name, error)] = events["second"]
    assert name == Event.BROKEN
    assert isinstance(error, TLSError)
    assert pair.mailbox.next(0).data == b"good"
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        pair.heard()


def test_a_waiting_thread_never_spins_while_another_decrypts(pair: Pair) -> None:
    """The other thread needs that CPU to be done, and there is something to read until then."""
    waiter = Waiter(pair.write_buffer)
    waiting = threading.Thread(target=waiter.wait, args=(60.0,))
    busy: list[float] = []
    seconds = 0.4

    def have_it_wait() -> None:
        pair.far.sendall(pair.encrypted(frame(b"second")))
        waiting.start()
        assert waiting.ident is not None
        time.sleep(seconds)
        clock = time.pthread_getcpuclockid(waiting.ident)
        busy.append(time.clock_gettime(clock))

    pair.context.inside = have_it_wait
    pair.far.sendall(pair.encrypted(frame(b"first")))
    in_a_thread(pair.turn)
    waiter.set(None)
    waiting.join(60)
    assert not waiting.is_alive()
    assert busy[0] < seconds / 2
    heard: list[bytes] = []
    in_a_thread(lambda: heard.extend(pair.mailbox.next(60).data for _ in range(2)))
    assert heard == [b"first", b"second"]


def test_a_connection_is_dropped_once_no_thread_encrypts(pair: Pair) -> None:
    holding = threading.Thread(target=pair.write_buffer.pause)
    given_up: list[bool] = []
    others: list[bytes] = []

    def hold() -> None:
        holding.start()
        time.sleep(0.05)  # enough for who does not wait for us
        given_up.append(not holding.is_alive())
        # They would take the place of bytes that have been freed.
        others.extend(b"?" * (size - 32) for size in [64, 1 << 12, 1 << 16] * 100)

    pair.context.inside = hold
    in_a_thread(lambda: pair.write_buffer.publish("a", b"y", request=True))
    holding.join(60)
    assert not holding.is_alive()
    assert given_up == [False]
    assert repr(pair.write_buffer).startswith("<WriteBuffer paused")
    assert pair.context.written == b"PUB a 1\r\ny\r\n"
    assert pair.heard() == b"PUB a 1\r\ny\r\n"


class Plain:
    """Stands in for TLS: it encrypts nothing, and owes an answer to all that it reads."""

    ANSWER = b"+ANSWER\r\n"

    def __init__(self) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.failing: Callable[[], Exception] | None = None

    def read(self, most: int, room: memoryview) -> int:
        data = self.incoming.read(most)
        if not data:
            raise ssl.SSLWantReadError
        room[: len(data)] = data
        self.outgoing.write(self.ANSWER)
        return len(data)

    def write(self, data: memoryview) -> int:
        if self.failing is not None:
            raise self.failing()
        return self.outgoing.write(data)

    def records(self) -> TLSRecords:
        tls: Any = self
        return TLSRecords(tls, self.incoming, self.outgoing, self.explain)

    @staticmethod
    def explain(error: Exception) -> Exception | None:
        return None if isinstance(error, ssl.SSLWantReadError) else error


class Changing:
    """An I/O loop on a socket pair, whose connections the test opens and gives up."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.waker = Waker()
        self.write_buffer = WriteBuffer(self.waker.write_fd)
        self.io_loop = IOLoop(self.write_buffer, self.waker.read_fd)
        self.mailbox = JetStreamMailbox(self.write_buffer, SID)
        self.io_loop.subscribe(SID, self.mailbox)

    def open(self, tls: Plain) -> None:
        records = tls.records()
        self.io_loop.open(self.near.fileno(), direct=True, records=records)
        self.write_buffer.open(self.near.fileno(), b"", direct=True, records=records)

    def give_up(self) -> None:
        self.io_loop.close()
        self.write_buffer.pause()

    def turn(self) -> list[tuple[Event, Any]]:
        return self.io_loop.run_once(time.monotonic())

    def heard(self) -> bytes:
        try:
            return self.far.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""


@pytest.fixture
def changing() -> Iterator[Changing]:
    changing = Changing()
    with changing.near, changing.far:
        yield changing
        changing.io_loop.finish()
        changing.write_buffer.close(errors.ConnectionClosedError("closed"))
    changing.waker.close()


def test_threads_read_and_write_while_tls_connections_change(
    changing: Changing,
) -> None:
    """The records of a connection go with it, and each answer that they owe leaves."""
    lives: weakref.WeakSet[Plain] = weakref.WeakSet()
    left, at_work = Counter(("publish", "wait")), threading.Lock()
    heard: list[bytes] = []

    def open_next() -> None:
        tls = Plain()
        lives.add(tls)
        changing.open(tls)

    def ended(name: str) -> None:
        with at_work:
            left[name] -= 1

    def turn() -> None:
        while left.total():
            assert changing.turn() == []
            time.sleep(0)  # with a GIL, let the other threads run
            changing.give_up()
            open_next()

    def publish() -> None:
        for i in range(ROUNDS):
            changing.write_buffer.publish("a", b"%d" % i)
        ended("publish")

    def wait() -> None:
        for i in range(ROUNDS):
            changing.far.sendall(frame(b"%d" % i))
            assert changing.mailbox.next(60).data == b"%d" % i
        ended("wait")

    def hear() -> None:
        while left.total():
            heard.append(changing.heard())

    open_next()
    meet(turn, publish, wait, hear)
    while changing.write_buffer.pending:
        assert changing.turn() == []
        heard.append(changing.heard())
    said = b"".join(heard) + changing.heard()
    numbers = [int(found) for found in re.findall(rb"\r\n(\d+)\r\n", said)]
    assert numbers == sorted(set(numbers))
    changing.give_up()
    changing.open(Plain())
    gc.collect()
    assert len(lives) == 0


def test_each_answer_that_tls_owes_leaves(changing: Changing) -> None:
    """Though another thread sends at the moment when one thread begins to owe it."""
    over = threading.Event()
    changing.open(Plain())

    def turn() -> None:
        while not over.is_set():
            assert changing.turn() == []
            time.sleep(0)  # with a GIL, let the other threads run

    def publish() -> None:
        while not over.is_set():
            changing.write_buffer.publish("a", b"", request=True)
            time.sleep(0)

    def ask() -> None:
        said = b""
        try:
            for i in range(ROUNDS):
                changing.far.sendall(frame(b"%d" % i))
                until = time.monotonic() + 60
                while said.count(Plain.ANSWER) <= i % 100:
                    assert time.monotonic() < until, "an answer is missing"
                    said += changing.heard()
                if i % 100 == 99:
                    said = said.rpartition(Plain.ANSWER)[2]
                assert changing.mailbox.next(60).data == b"%d" % i
        finally:
            over.set()

    meet(turn, publish, ask)


def test_an_encrypting_thread_reports_each_fault_once(changing: Changing) -> None:
    over = threading.Event()
    made: list[TLSError] = []
    told: list[TLSError] = []

    def fail() -> TLSError:
        made.append(TLSError(f"{len(made)}"))
        return made[-1]

    def open_next() -> None:
        tls = Plain()
        tls.failing = fail
        changing.open(tls)

    def turn() -> None:
        try:
            while len(told) < ROUNDS:
                time.sleep(0)  # with a GIL, let the other threads run
                for name, error in changing.turn():
                    assert name == Event.BROKEN
                    told.append(error)
                    changing.give_up()
                    open_next()
        finally:
            over.set()

    def publish() -> None:
        while not over.is_set():
            with contextlib.suppress(errors.ConnectionLostError):
                changing.write_buffer.publish("a", b"", request=True)
            time.sleep(0)

    open_next()
    meet(turn, publish, publish)
    changing.give_up()
    numbers = [int(str(error)) for error in told]
    assert numbers == sorted(set(numbers))
    assert all(error is made[i] for error, i in zip(told, numbers, strict=True))
    # Each one is in two lists, `made` and `told`, or in one, and nowhere else.
    held = Counter(map(id, told))
    counts = {sys.getrefcount(error) - held[id(error)] for error in made}
    assert len(counts) == 1


def has_bytes(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


# Which thread -------------------------------------------------------------------------


def answer(pair: Pair, count: int, subject: bytes = b"a") -> None:
    """Play a server that replies to `count` requests."""
    pair.far.settimeout(60)
    heard = b""
    for number in range(1, count + 1):
        while heard.count(b"\r\n") < 2:
            pair.incoming.write(pair.far.recv(1 << 16))
            heard += pair.server.read(1 << 16)
        heard = heard.split(b"\r\n", 2)[2]
        to = subject % number if b"%" in subject else subject
        pair.far.sendall(pair.encrypted(frame(b"answer", to)))


def test_a_lone_waiting_thread_encrypts_and_decrypts_itself(pair: Pair) -> None:
    answering = threading.Thread(target=answer, args=(pair, 3))
    answering.start()
    answers = []

    def ask() -> None:
        for _ in range(3):
            pair.write_buffer.publish("a", b"?", request=True)
            answers.append(pair.mailbox.next(60).data)

    asking = in_a_thread(ask)
    answering.join(60)
    assert answers == [b"answer"] * 3
    assert pair.context.readers == pair.context.writers == {asking}


def test_a_thread_running_signal_handlers_does_no_tls(
    pair: Pair,
) -> None:
    pair.write_buffer.publish("a", b"?", request=True)
    pair.write_buffer.flush()
    assert pair.io_loop.ping()
    assert pair.context.writers == set()
    pair.far.sendall(pair.encrypted(frame(b"answer")))
    assert not Waiter(pair.write_buffer).wait(0.01)
    assert pair.context.readers == set()
    io_thread = in_a_thread(pair.turn)
    assert pair.mailbox.next(0).data == b"answer"
    assert pair.context.readers == pair.context.writers == {io_thread}
    assert pair.heard() == b"PUB a 1\r\n?\r\nPING\r\n"


def test_a_main_thread_request_wakes_the_io_thread(
    pair: Pair,
) -> None:
    replies = ReplyMux("_INBOX.")
    replies.is_open = True
    pair.io_loop.subscribe(SID, replies)
    io_thread = threading.Thread(target=pair.turn, args=[60])
    io_thread.start()
    answering = threading.Thread(target=answer, args=(pair, 3, b"_INBOX.%d"))
    answering.start()
    for _ in range(3):
        msg = replies.request(pair.write_buffer, "a", b"?", 60)
        assert msg
        assert msg.data == b"answer"
    answering.join()
    pair.io_loop.interrupt()
    io_thread.join()


def test_a_main_thread_request_leaves_even_without_waiting(
    pair: Pair,
) -> None:
    replies = ReplyMux("_INBOX.")
    replies.is_open = True
    assert replies.request(pair.write_buffer, "a", b"?", 0) is None
    with DefaultSelector() as selector:
        selector.register(pair.waker.read_fd, EVENT_READ)
        assert selector.select(0)
    pair.turn()
    assert pair.heard() == b"PUB a _INBOX.1 1\r\n?\r\n"


# A finaliser in the middle ------------------------------------------------------------


def test_a_finaliser_may_publish_while_its_thread_encrypts(pair: Pair) -> None:
    pair.context.inside = lambda: pair.write_buffer.publish("b", b"inner", request=True)
    in_a_thread(lambda: pair.write_buffer.publish("a", b"outer", request=True))
    pair.turn()
    assert pair.heard() == b"PUB a 5\r\nouter\r\nPUB b 5\r\ninner\r\n"


def test_a_finaliser_may_publish_while_its_thread_decrypts(pair: Pair) -> None:
    pair.context.inside = lambda: pair.write_buffer.publish("b", b"inner", request=True)
    pair.far.sendall(pair.encrypted(frame(b"x")))
    in_a_thread(pair.turn)
    assert pair.mailbox.next(0).data == b"x"
    in_a_thread(pair.turn)
    assert pair.heard() == b"PUB b 5\r\ninner\r\n"


def test_a_finaliser_may_close_while_its_thread_encrypts(pair: Pair) -> None:
    others: list[bytes] = []

    def close() -> None:
        pair.write_buffer.close(EOFError())
        # They would take the place of bytes that have been freed.
        others.extend(b"?" * (size - 32) for size in [64, 1 << 12, 1 << 16] * 100)

    pair.context.inside = close
    in_a_thread(lambda: pair.write_buffer.publish("a", b"outer", request=True))
    assert repr(pair.write_buffer).startswith("<WriteBuffer closed")
    assert pair.write_buffer.pending == 0
    assert pair.context.written == b"PUB a 5\r\nouter\r\n"  # still there to be read
    assert pair.heard() == b""


def test_a_finaliser_may_close_while_a_sender_waits(
    pair: Pair,
) -> None:
    writing = threading.Thread(
        target=lambda: pair.write_buffer.publish("a", request=True)
    )

    def close() -> None:
        writing.start()
        wait_for(lambda: pair.write_buffer.counters[0] == 1)
        time.sleep(0.05)  # the writer waits for the lock of TLS by then, as a rule
        pair.write_buffer.close(EOFError())

    pair.context.inside = close
    pair.far.sendall(pair.encrypted(frame(b"x")))
    in_a_thread(pair.turn)
    writing.join(60)
    assert not writing.is_alive()
    assert pair.mailbox.next(0).data == b"x"
    assert pair.heard() == b""


def test_a_finaliser_may_wait_while_its_thread_encrypts(
    pair: Pair,
) -> None:
    came = []
    pair.far.sendall(pair.encrypted(frame(b"x")))
    pair.context.inside = lambda: came.append(Waiter(pair.write_buffer).wait(0.01))
    in_a_thread(lambda: pair.write_buffer.publish("a", b"outer", request=True))
    assert came == [False]
    pair.turn()
    assert pair.mailbox.next(0).data == b"x"
    assert pair.heard() == b"PUB a 5\r\nouter\r\n"


def test_an_error_stays_with_its_own_connection(
    pair: Pair,
) -> None:
    def fail() -> None:
        raise TLSError("of the first")

    pair.context.inside = fail
    in_a_thread(lambda: pair.write_buffer.publish("a", request=True))
    pair.write_buffer.pause()
    pair.io_loop.close()
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.shutdown(socket.SHUT_RD)
        pair.io_loop.open(near.fileno(), direct=True)
        pair.write_buffer.open(near.fileno(), b"x", direct=True)
        pair.write_buffer.flush()
        [(name, error)] = pair.turn(60)
    assert name == Event.BROKEN
    assert isinstance(error, BrokenPipeError)


def test_the_objects_of_tls_go_with_the_connection(pair: Pair) -> None:
    pair.write_buffer.pause()
    pair.io_loop.close()
    pair.io_loop.open(pair.near.fileno(), direct=True)
    del pair.records
    gc.collect()
    assert not [
        one
        for one in gc.get_objects()
        if isinstance(one, Ours) and one.context is pair.context
    ]
