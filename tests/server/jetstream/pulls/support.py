"""Shared parts of the tests of pulling: the traffic through the proxy, and handlers."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import jsync

    from ....support.proxy import FaultProxy, Side

QUICK: dict[str, Any] = {"expires": 1.0, "idle_heartbeat": 0.5}
CALM: dict[str, Any] = {"expires": 3.0, "idle_heartbeat": 1.5}
"""Options for tests that expect no error: heartbeats are late after 3 s instead of 1 s."""


SIZE = 64


class Pulls:
    """The pull requests that pass through a proxy, with replies that a test injects."""

    PATTERN = re.compile(
        rb"PUB \S+\.CONSUMER\.MSG\.NEXT\.\S+ (\S+) \d+\r\n(\{.*?\})\r\n"
    )

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        # Lists of chunks, which the proxy's thread appends to while a test reads them.
        self._seen: list[bytes] = []
        self._told: list[bytes] = []
        proxy.rewrite(self._look)

    def _look(self, chunk: bytes, to: Side) -> bytes:
        if to == "server":
            self._seen.append(chunk)
        else:
            self._told.append(chunk)
        return chunk

    @property
    def _sent(self) -> bytes:
        # Joining the list itself would fail when it grows meanwhile.
        return b"".join(self._seen.copy())

    @property
    def statuses(self) -> list[str]:
        """The statuses that the server has sent, without heartbeats."""
        found = re.findall(
            rb"NATS/1\.0 ([2-9]\d\d[^\r]*)\r\n", b"".join(self._told.copy())
        )
        return [status.decode() for status in found]

    @property
    def requests(self) -> list[dict[str, Any]]:
        found = self.PATTERN.findall(self._sent)
        return [json.loads(payload) for _, payload in found]

    @property
    def replies(self) -> set[bytes]:
        """The reply subjects of the pull requests."""
        return set(self.each_reply)

    @property
    def each_reply(self) -> list[bytes]:
        """The reply subject of each pull request."""
        return [reply for reply, _ in self.PATTERN.findall(self._sent)]

    def has_sent(self, command: bytes) -> bool:
        return b"\r\n" + command in self._sent

    @property
    def subscriptions(self) -> int:
        """The number of subscriptions made through the proxy."""
        return len(re.findall(rb"(?:^|\r\n)SUB ", self._sent))

    @property
    def batches(self) -> list[int]:
        return [request["batch"] for request in self.requests]

    @property
    def count(self) -> int:
        return len(self.requests)

    def answer(self, status: str, *headers: str, pull: int = -1) -> None:
        """Inject a status as the reply of the server to a pull request, by default the last."""
        wait_for(lambda: self.count > 0)
        inbox = self.each_reply[pull]
        lines = [f"NATS/1.0 {status}", *headers, "", ""]
        block = "\r\n".join(lines).encode()
        # The pull has its own subscription, or one more token on a subject of a lent one.
        sids = re.findall(
            rb"SUB (?:%b|%b\.\*) (\d+)\r\n"
            % (re.escape(inbox), re.escape(inbox.rpartition(b".")[0])),
            self._sent,
        )
        sid = sids[-1]
        frame = b"HMSG %s %s %d %d\r\n%s\r\n" % (
            *(inbox, sid, len(block), len(block)),
            block,
        )
        self._proxy.inject(frame)


def fill(nc: jsync.Connection, stream: jsync.Stream, count: int) -> None:
    """Store the next `count` numbers, each in `SIZE` bytes."""
    first = stream.info().state.messages
    for number in range(first, first + count):
        nc.publish(f"{stream.name}.a", b"%0*d" % (SIZE, number))
    nc.flush()
    wait_for(lambda: stream.info().state.messages == first + count)


def numbers(messages: Iterable[jsync.JetStreamMsg]) -> list[int]:
    return [int(msg.data) for msg in messages]


def take(messages: jsync.MessagesContext, count: int) -> list[int]:
    """Read and ack `count` messages."""
    got = []
    for _ in range(count):
        msg = messages.next(SOON)
        got.append(int(msg.data))
        msg.ack()
    return got


def settled(consumer: jsync.Consumer | jsync.PushConsumer) -> bool:
    info = consumer.info()
    return info.num_ack_pending == info.num_pending == 0


class Handler:
    """A handler that acks and records.

    It waits while `hold` is set, and raises for the messages in `bad`.
    """

    def __init__(self, *, bad: int | None = None, times: int = 1) -> None:
        self.numbers: list[int] = []
        self.entered = threading.Event()
        self.open = threading.Event()
        self.open.set()
        self._bad, self._times = bad, times

    def __call__(self, msg: jsync.JetStreamMsg) -> None:
        number = int(msg.data)
        self.entered.set()
        assert self.open.wait(LONG)
        self.numbers.append(number)
        if number == self._bad and self._times:
            self._times -= 1
            raise LookupError(number)
        msg.ack()


OPTIONS: list[dict[str, Any]] = [
    {},
    {"max_messages": 1},
    {"max_messages": 1, "threshold_messages": 1},
    {"max_messages": 7},
    {"max_messages": 10, "threshold_messages": 0},
    {"max_messages": 10, "threshold_messages": 10},
    {"max_messages": 5000},
    {"max_bytes": 200},
    {"max_bytes": 3000},
    {"max_bytes": 3000, "threshold_bytes": 0},
    {"max_bytes": 3000, "threshold_bytes": 3000},
    {"max_bytes": 1 << 20},
]


Work: TypeAlias = "jsync.MessagesContext | jsync.ConsumeContext"


@contextlib.contextmanager
def at_work(
    face: str,
    consumer: jsync.Consumer,
    handler: Callable[[jsync.JetStreamMsg], object],
    **options: Any,
) -> Iterator[Work]:
    """Run `messages` or `consume` with a handler, and stop it at the end."""
    if face == "consume":
        consuming = consumer.consume(handler, **options)
        try:
            yield consuming
        finally:
            consuming.stop()
        return
    messages = consumer.messages(**options)

    def read() -> None:
        for msg in messages:
            handler(msg)

    reader = Thread(read)
    try:
        yield messages
    finally:
        messages.stop()
        reader.result()


both_faces = pytest.mark.parametrize("face", ["messages", "consume"])
