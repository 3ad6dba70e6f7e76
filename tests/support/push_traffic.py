"""Shared parts of the tests of push subscriptions: the traffic between client and server."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from .proxy import frame_filter

if TYPE_CHECKING:
    import jsync

    from .proxy import FaultProxy, Side

IDLE = "Idle Heartbeat"
FLOW = "FlowControl Request"


class Traffic:
    """The messages that a server pushes through a proxy, and the replies. Some can be lost."""

    REQUEST = re.compile(rb"HMSG \S+ \d+ (\S+) \d+ \d+\r\nNATS/1\.0 100 FlowControl")
    MESSAGE = re.compile(rb"H?MSG \S+ \d+ (\$JS\.ACK\.\S+) ")
    ANSWER = re.compile(rb"PUB (\$JS\.FC\.\S+) +0\r\n\r\n")

    def __init__(self, proxy: FaultProxy) -> None:
        self._lock = threading.Lock()
        self._lost: list[tuple[Side, bytes]] = []
        self.messages = 0
        """The number of messages of consumers, including lost ones."""
        self.requests: list[str] = []
        """The requests for flow control, including lost ones."""
        self.places: list[int] = []
        """The number of messages before each request."""
        self.answers: list[str] = []
        """The replies to the requests, including lost ones."""
        self.heartbeats = 0
        self._frames = frame_filter(self._look)
        proxy.rewrite(self._pass)

    def _pass(self, data: bytes, to: Side) -> bytes:
        if to == "client" and data.startswith(b"INFO "):
            # This is a new connection. An incomplete frame of the last one does not belong to it.
            self._frames = frame_filter(self._look)
        return self._frames(data, to)

    @property
    def has_lost(self) -> bool:
        """Whether every frame that `lose` selected is lost."""
        with self._lock:
            return not self._lost

    def lose(self, words: bytes, to: Side) -> None:
        """Drop the next frame that contains these words."""
        with self._lock:
            self._lost.append((to, words))

    def _look(self, frame: bytes, to: Side) -> bool:
        with self._lock:
            if to == "server":
                if answer := self.ANSWER.fullmatch(frame):
                    self.answers.append(answer[1].decode())
            elif request := self.REQUEST.match(frame):
                self.places.append(self.messages)
                self.requests.append(request[1].decode())
            elif self.MESSAGE.match(frame):
                self.messages += 1
            elif b"100 Idle Heartbeat" in frame:
                self.heartbeats += 1
            for number, (side, words) in enumerate(self._lost):
                if side == to and words in frame:
                    del self._lost[number]
                    return False
        return True


def say(
    nc: jsync.Connection,
    subject: str,
    status: int,
    text: str = "",
    *headers: str,
    reply: str = "",
    times: int = 1,
) -> None:
    """Publish a status as servers do, optionally several times in one write."""
    lines = [f"NATS/1.0 {status} {text}".rstrip(), *headers, "", ""]
    block = "\r\n".join(lines).encode()
    frame = f"HPUB {subject} {reply} {len(block)} {len(block)}\r\n".encode()
    nc._session.write_buffer.command((frame + block + b"\r\n") * times)
    nc.flush()


def sequences(messages: list[jsync.JetStreamMsg]) -> list[int]:
    return [msg.metadata.stream_sequence for msg in messages]


def take(sub: jsync.PushSubscription, count: int) -> list[jsync.JetStreamMsg]:
    """Return the next messages, each within a generous time."""
    return [sub.next(30) for _ in range(count)]


def publish(nc: jsync.Connection, subject: str, count: int, size: int = 8) -> None:
    """Publish `count` messages, which a stream stores."""
    for number in range(count):
        nc.publish(subject, b"%*d" % (size, number))
    nc.flush()
