"""Measure parsing alone, in microseconds per message:

`python -m benchmarks.peers.parse CASE`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.frames import frames
from jsync._fast import (
    IOLoop,
    JetStreamMailbox,
    JetStreamMsg,
    MessageIterator,
    Parser,
    WriteBuffer,
)

from .measure import await_go, report

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 1000
SECONDS = 0.5


def feed(chunk: bytes) -> Callable[[], object]:
    """Measure `Parser.feed`, which also builds an event for each message."""
    parser = Parser()
    return lambda: parser.feed(chunk)


def line(
    chunk: bytes, use: Callable[[JetStreamMsg], object] | None = None
) -> Callable[[], object]:
    """Measure the path of a connection: parse, deliver to a mailbox, and take from there."""
    write_buffer = WriteBuffer()
    reader = IOLoop(write_buffer, -1)
    mailbox = JetStreamMailbox(write_buffer, 7)
    reader.subscribe(7, mailbox)

    def run() -> None:
        reader.decrypted(chunk)
        messages = MessageIterator(mailbox, None)
        if use is None:
            for _, _ in zip(range(COUNT), messages, strict=False):
                pass
        else:
            for _, msg in zip(range(COUNT), messages, strict=False):
                assert isinstance(msg, JetStreamMsg)
                use(msg)

    return run


def natspy(chunk: bytes) -> Callable[[], object]:
    """Measure the parser of nats-py alone, with a client that discards its messages."""
    from nats.protocol.parser import Parser as TheirParser  # noqa: PLC0415

    class Client:
        async def _process_msg(self, *message: object) -> None:
            pass

    parser: Any = TheirParser(Client())
    loop = asyncio.new_event_loop()
    return lambda: loop.run_until_complete(parser.parse(chunk))


CASES: dict[str, Callable[[], Callable[[], object]]] = {
    "feed, 128 B": lambda: feed(frames(128, COUNT)),
    "feed, 16 B": lambda: feed(frames(16, COUNT)),
    "feed, 1 KiB": lambda: feed(frames(1024, COUNT)),
    "feed, 16 KiB": lambda: feed(frames(16384, COUNT)),
    "feed, 128 B and headers": lambda: feed(frames(128, COUNT, headers=True)),
    "line to mailbox to reader, 128 B": lambda: line(frames(128, COUNT)),
    "line, 128 B, no reply": lambda: line(frames(128, COUNT, ack=False)),
    "line, 128 B and headers": lambda: line(frames(128, COUNT, headers=True)),
    "line, headers read": lambda: line(
        frames(128, COUNT, headers=True), lambda msg: msg.headers
    ),
    "line, metadata read": lambda: line(frames(128, COUNT), lambda msg: msg.metadata),
    "line, subject and data read": lambda: line(
        frames(128, COUNT), lambda msg: (msg.subject, msg.data)
    ),
    "nats-py's parser alone, 128 B": lambda: natspy(frames(128, COUNT)),
}


def main() -> None:
    run = CASES[sys.argv[1]]()
    await_go()
    times = []
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    times.sort()
    report({"us": times[len(times) // 2] / COUNT * 1e6, "best": times[0] / COUNT * 1e6})


if __name__ == "__main__":
    main()
