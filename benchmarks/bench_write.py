"""Measure encoding and appending in one process: `pytest benchmarks/bench_write.py`.

One run handles 1000 messages. A figure in microseconds for a run is therefore the time of one
message in nanoseconds. A thread reads the far end of the socket and discards the bytes.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from jsync._fast import (
    IOLoop,
    JetStreamMailbox,
    JetStreamMsg,
    MessageIterator,
    WriteBuffer,
    encode_headers,
    encode_publish,
    message_size,
)

from .frames import frames

if TYPE_CHECKING:
    from typing import Self

    from pytest_benchmark.fixture import BenchmarkFixture

COUNT = 1000
HEADERS = {"Nats-Msg-Id": "7f3a9c52", "Content-Type": "application/json"}


class Connected:
    """A write buffer on a socket pair, its I/O thread, and a thread that discards the bytes."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._wake, self._wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        self.write_buffer = WriteBuffer(self._wake_end)
        self.io_loop = IOLoop(self.write_buffer, self._wake)
        self._running = True
        self._threads = [
            threading.Thread(target=self._drop),
            threading.Thread(target=self._serve),
        ]

    def _drop(self) -> None:
        buffer = bytearray(1 << 20)
        while self._theirs.recv_into(buffer):
            pass

    def _serve(self) -> None:
        while self._running:
            self.io_loop.run_once(time.monotonic() + 1)

    def wait_until_sent(self) -> None:
        while self.write_buffer.pending > 1 << 20:
            time.sleep(0.0001)

    def __enter__(self) -> Self:
        self.io_loop.open(self._ours.fileno(), direct=True)
        self.write_buffer.open(self._ours.fileno(), b"", direct=True)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._running = False
        self.io_loop.interrupt()
        self._threads[1].join()
        self.write_buffer.pause()
        self._ours.close()
        self._threads[0].join()
        self._theirs.close()
        os.close(self._wake)
        os.close(self._wake_end)


@pytest.mark.parametrize("size", [16, 128, 1024, 16384])
def bench_publish(benchmark: BenchmarkFixture, size: int) -> None:
    """Encode and append messages.

    The I/O thread and the caller send them. Large payloads are copied.
    """
    payload = b"x" * size
    with Connected() as connected:
        write_buffer = connected.write_buffer

        def run() -> None:
            for _ in range(COUNT):
                write_buffer.publish("orders.eu.new", payload)
            connected.wait_until_sent()

        benchmark(run)


def bench_publish_with_headers(benchmark: BenchmarkFixture) -> None:
    payload = b"x" * 128
    with Connected() as connected:
        write_buffer = connected.write_buffer

        def run() -> None:
            for _ in range(COUNT):
                write_buffer.publish("orders.eu.new", payload, headers=HEADERS)
            connected.wait_until_sent()

        benchmark(run)


@pytest.mark.parametrize("size", [16, 128, 1024, 16384])
def bench_encode(benchmark: BenchmarkFixture, size: int) -> None:
    """Encode one PUB."""
    benchmark(encode_publish, "orders.eu.new", b"x" * size)


def bench_encode_headers(benchmark: BenchmarkFixture) -> None:
    """Encode one block of two headers."""
    benchmark(encode_headers, HEADERS)


def bench_message_size(benchmark: BenchmarkFixture) -> None:
    """Compute the size of a message as the server counts it for `max_bytes`."""
    block = encode_headers(HEADERS)
    benchmark(message_size, "orders.eu.new", "_INBOX.reply", block, b"x" * 128)


def bench_ack(benchmark: BenchmarkFixture) -> None:
    """Send 1000 acks. The clock does not include parsing the messages."""
    with Connected() as connected:
        write_buffer = connected.write_buffer
        # An I/O loop belongs to the thread that runs it, so this benchmark makes another one.
        io_loop, mailbox = IOLoop(write_buffer, -1), JetStreamMailbox(write_buffer, 7)
        io_loop.subscribe(7, mailbox)
        chunk = frames(128, COUNT)

        def messages() -> tuple[tuple[list[JetStreamMsg]], dict[str, object]]:
            io_loop.decrypted(chunk)
            taken = [
                msg
                for _, msg in zip(
                    range(COUNT), MessageIterator(mailbox, None), strict=False
                )
                if isinstance(msg, JetStreamMsg)
            ]
            return (taken,), {}

        def run(taken: list[JetStreamMsg]) -> None:
            for msg in taken:
                msg.ack()

        benchmark.pedantic(run, setup=messages, rounds=200)  # type: ignore[no-untyped-call]
