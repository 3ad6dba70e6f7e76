"""What tests of kombu's transport share: readers, and a producer."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest
from kombu import Connection, Consumer, Producer, Queue

from ..support.proxy import frame_filter
from ..support.servers import wait_for
from .conftest import SECONDS, url

if TYPE_CHECKING:
    from collections.abc import Callable

    from kombu.message import Message

    from jsync.server import LocalServer

    from ..support.proxy import Side

JOBS = Queue("jobs", routing_key="jobs")


def another(broker: LocalServer, **options: Any) -> Connection:
    return Connection(url(broker), transport_options={"ack_wait": 2, **options})


class Reading:
    """Reads queues on a channel of its own, and keeps the messages."""

    def __init__(
        self, connection: Connection, *queues: Queue, prefetch: int = 0, **options: Any
    ) -> None:
        self.connection = connection
        self.messages: list[Message] = []
        self.channel = connection.channel()
        self.consumer = Consumer(
            self.channel, queues, on_message=self.messages.append, **options
        )
        if prefetch:
            self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    def until(self, count: int) -> list[Any]:
        """The bodies of the first messages."""

        def enough() -> bool:
            with contextlib.suppress(TimeoutError):
                self.connection.drain_events(timeout=0.2)
            return len(self.messages) >= count

        wait_for(enough, SECONDS)
        return [message.decode() for message in self.messages[:count]]

    def nothing_more(self) -> None:
        before = len(self.messages)
        with pytest.raises(TimeoutError):
            self.connection.drain_events(timeout=0.3)
        assert len(self.messages) == before


def publish(connection: Connection, queue: Queue, *bodies: Any, **options: Any) -> None:
    producer = Producer(connection)
    for body in bodies:
        producer.publish(
            body,
            exchange=queue.exchange,
            routing_key=queue.routing_key,
            declare=[queue],
            **options,
        )


class Once:
    """A hook of the proxy that does something at the first frame with some text.

    The frame is lost unless `keep` is true.
    """

    def __init__(
        self, text: bytes, act: Callable[[], object], to: Side, *, keep: bool = False
    ) -> None:
        self.happened = threading.Event()
        self._text, self._act, self._to = text, act, to
        self._keep = keep
        self._filter = frame_filter(self._passes)

    def _passes(self, frame: bytes, to: Side) -> bool:
        if to != self._to or self.happened.is_set() or self._text not in frame:
            return True
        self.happened.set()
        self._act()
        return self._keep

    def __call__(self, data: bytes, to: Side) -> bytes:
        return self._filter(data, to)
