"""Tests of threads that one read has answered: they are woken one after the other."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from jsync._fast import IOLoop, ReplyMux, Waker, WriteBuffer

from ...support.servers import wait_for
from ...support.threads import wait_until_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SID = 1
SOON = 60.0
INBOX = "_INBOX.x."
REQUEST = re.compile(rb"PUB (\S+) _INBOX\.x\.(\d+) 0\r\n\r\n")


class Requester:
    """A thread that sends its requests, and does something of its own in between."""

    def __init__(self, wire: Wire, name: str, *between: Callable[[], object]) -> None:
        self.answers: list[bytes] = []
        self.name = name
        self._wire, self._between = wire, between
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in range(len(self._between) + 1):
            if number:
                self._between[number - 1]()
            subject = f"{self.name}.{number}"
            msg = self._wire.replies.request(
                self._wire.write_buffer, subject, b"", SOON
            )
            assert msg, f"no answer to {subject}"
            self.answers.append(msg.data)

    def wait_until_blocked(self) -> None:
        wait_until_blocked(self._thread)

    def join(self) -> None:
        self._thread.join(SOON)
        assert not self._thread.is_alive()


class Wire:
    """A connection with an I/O thread, and the socket of its server."""

    def __init__(self, near: socket.socket, far: socket.socket, waker: Waker) -> None:
        near.setblocking(False)
        far.settimeout(SOON)
        self.far = far
        self._waker = waker
        self.write_buffer = WriteBuffer(waker.write_fd)
        self.replies = ReplyMux(INBOX)
        self.replies.is_open = True
        self.io_loop = IOLoop(self.write_buffer, waker.read_fd)
        self.io_loop.open(near.fileno(), direct=True)
        self.write_buffer.open(near.fileno(), b"", direct=True)
        self.io_loop.subscribe(SID, self.replies)
        self._got = b""
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self.io_loop.bind_to_thread()
        while not self._stops.is_set():
            assert self.io_loop.run_once(time.monotonic() + SOON) == []

    def receive(self, *subjects: str) -> list[tuple[str, bytes]]:
        """Wait for requests. Return the subject and the token of each."""
        while True:
            found = REQUEST.findall(self._got)
            if len(found) >= len(subjects):
                self._got = b""
                assert {subject.decode() for subject, _ in found} == set(subjects)
                return [(subject.decode(), token) for subject, token in found]
            self._got += self.far.recv(1 << 16)

    def answer(self, requests: Iterable[tuple[str, bytes]]) -> None:
        """Answer all in one piece, so that one read gets all answers."""
        self.far.sendall(
            b"".join(
                b"MSG _INBOX.x.%s %d %d\r\n%s\r\n"
                % (token, SID, len(subject), subject.encode())
                for subject, token in requests
            )
        )

    def stop(self) -> None:
        self._stops.set()
        self.io_loop.interrupt()
        self._thread.join(SOON)


@pytest.fixture
def wire() -> Iterator[Wire]:
    near, far = socket.socketpair()
    waker = Waker()
    with near, far:
        wire = Wire(near, far, waker)
        yield wire
        wire.stop()
    waker.close()


def answer_together(wire: Wire, *requesters: Requester) -> None:
    """Answer the first request of each, once all wait."""
    requests = wire.receive(*(f"{each.name}.0" for each in requesters))
    for each in requesters:
        each.wait_until_blocked()
    wire.answer(sorted(requests))


def test_each_thread_gets_its_own_answer(wire: Wire) -> None:
    threads = {name: Requester(wire, name, *[list] * 50) for name in "abcdefgh"}
    for number in range(51):
        wire.answer(wire.receive(*(f"{name}.{number}" for name in threads)))
    for name, each in threads.items():
        each.join()
        assert each.answers == [f"{name}.{number}".encode() for number in range(51)]


def test_a_thread_with_other_work_delays_none(wire: Wire) -> None:
    release = threading.Event()
    threads = [Requester(wire, name, release.wait) for name in "abc"]
    answer_together(wire, *threads)
    wait_for(lambda: all(each.answers for each in threads))
    release.set()
    wire.answer(wire.receive("a.1", "b.1", "c.1"))
    for each in threads:
        each.join()


def test_a_thread_that_ends_delays_none(wire: Wire) -> None:
    threads = [Requester(wire, name) for name in "abc"]
    answer_together(wire, *threads)
    for each in threads:
        each.join()


def test_a_request_leaves_without_the_other_threads(wire: Wire) -> None:
    """It would leave with theirs, but they send none."""
    for _ in range(20):
        release = threading.Event()
        quick = Requester(wire, "a", list)
        busy = [Requester(wire, name, release.wait) for name in "bc"]
        answer_together(wire, quick, *busy)
        wire.answer(wire.receive("a.1"))
        quick.join()
        release.set()
        wire.answer(wire.receive("b.1", "c.1"))
        for each in busy:
            each.join()


@pytest.mark.skipif(sys.platform != "linux", reason="a stream hides what was sent")
def test_requests_leave_before_all_threads_have_theirs() -> None:
    """The server works on the first ones while the other threads write."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    waker = Waker()
    with near, far:
        wire = Wire(near, far, waker)
        threads = {name: Requester(wire, name, *[list] * 4) for name in "abcdefgh"}
        answer_together(wire, *threads.values())
        for _ in range(4):
            requests: list[tuple[str, bytes]] = []
            while len(requests) < len(threads):
                sent = REQUEST.findall(far.recv(1 << 16))
                assert len(sent) <= len(threads) / 2
                requests += [(subject.decode(), token) for subject, token in sent]
            for each in threads.values():
                each.wait_until_blocked()
            wire.answer(requests)
        for each in threads.values():
            each.join()
        wire.stop()
    waker.close()


def test_a_chain_that_stops_delays_no_later_answer(wire: Wire) -> None:
    """The next read waits for the chain, whose threads do not come back."""
    release = threading.Event()
    late = Requester(wire, "d")
    (question,) = wire.receive("d.0")
    late.wait_until_blocked()
    threads = [Requester(wire, name, release.wait) for name in "abc"]
    requests = wire.receive("a.0", "b.0", "c.0")
    for each in threads:
        each.wait_until_blocked()
    wire.answer(sorted(requests))
    wait_for(lambda: all(each.answers for each in threads))
    wire.answer([question])
    late.join()
    release.set()
    wire.answer(wire.receive("a.1", "b.1", "c.1"))
    for each in threads:
        each.join()


def test_a_wait_that_ends_while_woken_strands_none(wire: Wire) -> None:
    """Deadlines pass while threads are being woken, and others get the same locks."""
    stops = threading.Event()
    wire.far.settimeout(0.1)

    def serve() -> None:
        got = b""
        while not stops.is_set():
            with contextlib.suppress(TimeoutError):
                got += wire.far.recv(1 << 16)
            wire.answer((s.decode(), token) for s, token in REQUEST.findall(got))
            got = got[got.rfind(b"\r\n\r\n") + 4 :]

    def ask(name: str, outcomes: list[object]) -> None:
        for number in range(400):
            timeout = random.uniform(0, 0.0005)
            wire.replies.request(wire.write_buffer, f"{name}.{number}", b"", timeout)
        last = wire.replies.request(wire.write_buffer, f"{name}.last", b"", SOON)
        outcomes.append(last and last.data)

    server = threading.Thread(target=serve)
    outcomes: list[object] = []
    threads = [threading.Thread(target=ask, args=(n, outcomes)) for n in "abcdefgh"]
    for thread in (server, *threads):
        thread.start()
    for thread in threads:
        thread.join(2 * SOON)
    stops.set()
    server.join(SOON)
    assert sorted(map(repr, outcomes)) == [
        repr(f"{n}.last".encode()) for n in "abcdefgh"
    ]
