"""Measure the parser in one process: `pytest benchmarks/bench_parse.py`.

One run parses 1000 messages. A figure in microseconds for a run is therefore the time of one
message in nanoseconds.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

import pytest

from jsync._fast import (
    IOLoop,
    JetStreamMailbox,
    Mailbox,
    MessageIterator,
    Parser,
    WriteBuffer,
    parse_ack_subject,
    parse_headers,
)

from .frames import HEADERS, frames

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

COUNT = 1000
SIZES = [16, 128, 1024, 16384]


@pytest.mark.parametrize("size", SIZES)
def bench_feed(benchmark: BenchmarkFixture, size: int) -> None:
    parser, chunk = Parser(), frames(size, COUNT)
    assert len(benchmark(parser.feed, chunk)) == COUNT


@pytest.mark.parametrize("size", SIZES)
def bench_feed_headers(benchmark: BenchmarkFixture, size: int) -> None:
    parser, chunk = Parser(), frames(size, COUNT, headers=True)
    assert len(benchmark(parser.feed, chunk)) == COUNT


@pytest.mark.parametrize("jetstream", [False, True], ids=["Msg", "JetStreamMsg"])
@pytest.mark.parametrize("size", SIZES)
def bench_line(benchmark: BenchmarkFixture, size: int, jetstream: bool) -> None:
    """Parse messages, deliver them to a mailbox, and take them as its reader."""
    write_buffer = WriteBuffer()
    io_loop = IOLoop(write_buffer, -1)
    mailbox = (
        JetStreamMailbox(write_buffer, 7) if jetstream else Mailbox(write_buffer, 7)
    )
    io_loop.subscribe(7, mailbox)
    chunk = frames(size, COUNT)

    def run() -> int:
        io_loop.decrypted(chunk)
        return sum(
            1
            for _, _ in zip(range(COUNT), MessageIterator(mailbox, None), strict=False)
        )

    assert benchmark(run) == COUNT


def bench_line_from_socket(benchmark: BenchmarkFixture) -> None:
    """Parse messages of 128 bytes, with the system calls poll and receive."""
    ours, theirs = socket.socketpair()
    wake, other_end = os.pipe()
    write_buffer = WriteBuffer()
    io_loop, mailbox = IOLoop(write_buffer, wake), Mailbox(write_buffer, 7)
    io_loop.subscribe(7, mailbox)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    count = 100  # the number of frames that fit into a socket pair on every machine
    chunk = frames(128, count)
    io_loop.open(ours.fileno(), direct=True)

    def run() -> None:
        theirs.sendall(chunk)
        for _ in range(count):
            while not len(mailbox):
                io_loop.run_once(time.monotonic())
            mailbox.get(0)

    try:
        benchmark(run)
    finally:
        io_loop.close()
        ours.close()
        theirs.close()
        os.close(wake)
        os.close(other_end)


def bench_read_headers(benchmark: BenchmarkFixture) -> None:
    """Parse one block of three headers."""
    benchmark(parse_headers, HEADERS)


@pytest.mark.parametrize(
    "subject",
    [
        "$JS.ACK.ORDERS.worker.1.1000001.1.1763693000123456789.999",
        "$JS.ACK.hub.AAAB.ORDERS.worker.1.1000001.1.1763693000123456789.999.x",
    ],
    ids=["v1", "v2"],
)
def bench_metadata(benchmark: BenchmarkFixture, subject: str) -> None:
    benchmark(parse_ack_subject, subject)
