"""Read a stream from its first message to its last, in order."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import program
from .held import Held, consumed, held
from .scenario import RATES, Job, Result, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..place import Place

BATCH = 500
HELD, SLOW = 300_000, 40_000


def raw(place: Place, stream: Held) -> Result:
    def work(consumer: str) -> Result:
        task = place.server.port, stream.name, consumer, stream.count, BATCH, 0
        return place.run(program(place.pull, "consume", *task))

    return consumed(stream, work, in_memory=True)


def jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, stream = place.server.url, held(place, 128, place.count(HELD))
    # clients in pure Python read all of this stream
    short = held(place, 128, place.count(SLOW))

    def task(count: int) -> tuple[object, ...]:
        name = short.name if count == short.count else stream.name
        return url, name, count, BATCH

    yield "raw socket that pulls", functools.partial(raw, place, stream)
    clients = place.clients("ordered", task, stream.count, short.count)
    for client, command in clients.items():
        yield client, functools.partial(place.run, command)


ORDERED = Scenario(
    f"An ordered consumer to the end of the stream, by {BATCH}, 128 B; nats.c and nats-py "
    "have it pushed",
    RATES,
    jobs,
)
