"""Long campaigns against ordered consumers: the order is exact in spite of all faults."""

from __future__ import annotations

import contextlib
import threading
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ....support.campaign import SECONDS, seeded
from ....support.connection_faults import Events, connect
from ....support.proxy import FaultProxy
from ....support.threads import LONG, Thread
from .support import delete_consumers, fill

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    import jsync

    from ....conftest import StartServer

pytestmark = [pytest.mark.server, pytest.mark.fault]


def test_order_is_exact_despite_cuts_and_kills(
    own_server: StartServer,
) -> None:
    count, rng = 100_000, seeded()
    server = own_server()
    events = sorted(
        [(rng.randrange(count), "cut") for _ in range(50)]
        + [(count * n // 6, "kill") for n in range(1, 6)]
    )
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        connect(server.url, Events()) as writer,
        connect(proxy.url, Events()) as reader,
    ):
        stream = writer.jetstream().create_stream(name="S", subjects=["S.>"])
        fill(writer, stream, 20_000)
        stored = 20_000
        got: list[int] = []
        consumer = reader.jetstream().ordered_consumer("S", max_reset_attempts=None)
        with consumer.messages(stop_after=count, max_messages=2000) as messages:
            while len(got) < count:
                msg = messages.next(LONG)
                assert msg.metadata.stream_sequence == len(got) + 1
                got.append(int(msg.data))
                while events and events[0][0] < len(got):
                    _, event = events.pop(0)
                    if event == "cut":
                        proxy.cut_after(rng.randrange(1, 100_000), "client")
                    else:
                        server.kill()
                        server.start()
                        writer.flush(LONG)
                if len(got) > stored - 5000 and stored < count:
                    fill(writer, stream, 10_000)
                    stored += 10_000
        assert got == list(range(count))
        assert not events


class Ways:
    """The ways to read some messages of an ordered consumer and to leave the others."""

    def __init__(
        self,
        consumer: jsync.OrderedConsumer,
        rng: random.Random,
        take: Callable[[Any], None],
    ) -> None:
        self.consumer = consumer
        self.rng = rng
        self.take = take

    def take_all(self, messages: Iterator[Any]) -> None:
        for msg in messages:
            self.take(msg)

    def ended_by(self, name: str) -> None:
        messages = self.consumer.messages(max_messages=self.rng.choice([1, 50, 500]))
        timer = threading.Timer(self.rng.random() / 20, getattr(messages, name))
        timer.start()
        self.take_all(iter(messages))
        timer.join()

    def stopped(self) -> None:
        self.ended_by("stop")

    def drained(self) -> None:
        self.ended_by("drain")

    def left(self) -> None:
        for msg in islice(self.consumer.messages(), self.rng.randrange(1, 200)):
            self.take(msg)

    def counted(self) -> None:
        with self.consumer.messages(max_messages=10) as messages:
            for _ in range(self.rng.randrange(100)):
                self.take(messages.next(LONG))

    def to_the_end(self) -> None:
        self.take_all(iter(self.consumer.messages(until_end=True)))

    def fetched(self) -> None:
        self.take_all(self.consumer.fetch(self.rng.randrange(1, 60), timeout=1))

    def fetched_at_once(self) -> None:
        self.take_all(self.consumer.fetch_nowait(40))

    def partly_fetched(self) -> None:
        for msg in islice(
            self.consumer.fetch(30, timeout=1), self.rng.randrange(1, 20)
        ):
            self.take(msg)

    def next(self) -> None:
        with contextlib.suppress(errors.TimeoutError):
            self.take(self.consumer.next(1))

    def consumed(self) -> None:
        count = self.rng.randrange(1, 100)
        with self.consumer.consume(
            self.take, stop_after=count, on_exception="stop"
        ) as work:
            assert work.wait(LONG)

    def any(self) -> None:
        self.rng.choice(
            [
                *(self.stopped, self.drained, self.left, self.counted),
                *(self.to_the_end, self.fetched, self.fetched_at_once),
                *(self.partly_fetched, self.next, self.consumed),
            ]
        )()


@pytest.mark.parametrize("seed", range(3))
def test_every_read_continues_exactly_where_the_last_stopped(
    own_server: StartServer, seed: int
) -> None:
    server = own_server()
    over = threading.Event()
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        connect(server.url, Events()) as writer,
        connect(proxy.url, Events()) as reader,
    ):
        stream = writer.jetstream().create_stream(name="S", subjects=["S.>"])

        def write() -> None:
            while not over.wait(0.005):
                for _ in range(20):
                    writer.publish("S.a", b"x")

        def harm() -> None:
            rng = seeded(seed)
            while not over.wait(rng.random() / 10):
                match rng.randrange(3):
                    case 0:
                        proxy.cut()
                    case 1:
                        proxy.cut_after(rng.randrange(1, 20_000), "client")
                    case _:
                        delete_consumers(writer, stream)

        got: list[int] = []

        def take(msg: jsync.JetStreamMsg) -> None:
            got.append(msg.metadata.stream_sequence)
            assert got[-1] == len(got)

        others = [Thread(write), Thread(harm)]
        ways = Ways(reader.jetstream().ordered_consumer("S"), seeded(seed), take)
        end = monotonic() + SECONDS
        try:
            while monotonic() < end:
                ways.any()
        finally:
            over.set()
            for other in others:
                other.result()
        writer.flush()
        ways.to_the_end()
        assert len(got) == stream.info().state.last_seq
