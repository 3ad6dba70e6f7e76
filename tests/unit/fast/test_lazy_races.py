"""Tests that many threads get the same value of a part that is decoded lazily.

With a GIL these tests always pass. Without one, run them first: reading a message writes its
decoded parts.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest

from jsync._fast import JetStreamMsg, Msg, Parser, WriteBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync import Headers

Result = TypeVar("Result")

THREADS = 8
ROUNDS = 200

ACK = "$JS.ACK.ORDERS.worker.1.20.3.1760000000123456789.42"
BLOCK = b"NATS/1.0\r\nA: 1\r\nA: 2\r\nB: \xc3\xbc\r\n\r\n"
FRAME = b"HMSG orders.new 1 %b %d %d\r\n%bhi\r\n" % (
    ACK.encode(),
    len(BLOCK),
    len(BLOCK) + 2,
    BLOCK,
)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(THREADS) as pool:
        yield pool


def at_once(pool: ThreadPoolExecutor, call: Callable[[], Result]) -> list[Result]:
    """Return the result of `call` on each thread. All threads start at the same time."""
    barrier = threading.Barrier(THREADS)

    def run() -> Result:
        barrier.wait(60)
        return call()

    return [future.result(30) for future in [pool.submit(run) for _ in range(THREADS)]]


def received() -> Msg:
    [(_, (_, msg))] = Parser().feed(FRAME)
    assert isinstance(msg, Msg)
    return msg


def parts_of(msg: Msg) -> tuple[object, object, object, Headers | None, int]:
    return msg.subject, msg.reply, msg.data, msg.headers, msg.size


def test_all_threads_decode_the_same_message(pool: ThreadPoolExecutor) -> None:
    for _ in range(ROUNDS):
        msg = received()
        seen = at_once(pool, partial(parts_of, msg))
        subject, reply, data, headers, _size = seen[0]
        assert (subject, reply, data) == ("orders.new", ACK, b"hi")
        assert headers is not None
        assert headers.get_all("A") == ["1", "2"]
        assert headers["B"] == "ü"
        assert all(other == seen[0] for other in seen)


def test_all_threads_read_the_same_metadata(pool: ThreadPoolExecutor) -> None:
    for _ in range(ROUNDS):
        msg = JetStreamMsg("orders.new", b"hi", reply=ACK)
        seen = at_once(pool, partial(getattr, msg, "metadata"))
        assert {m.stream for m in seen} == {"ORDERS"}
        assert {m.stream_sequence for m in seen} == {20}
        assert len({m.timestamp for m in seen}) == 1


def test_all_threads_write_into_one_buffer(pool: ThreadPoolExecutor) -> None:
    write_buffer = WriteBuffer(limit=1 << 26, hold_limit=1 << 26)

    def publish() -> None:
        for _ in range(ROUNDS):
            write_buffer.publish("a", b"0123456789")

    at_once(pool, publish)
    assert write_buffer.counters == (THREADS * ROUNDS, THREADS * ROUNDS * 10)
