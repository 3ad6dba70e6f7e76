"""Compare `jsync.Worker` with `consume`: the added cost, and several processes."""

from __future__ import annotations

import functools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import jsync

from ..place import use_jsync
from .held import together
from .scenario import RATES, Bar, Job, Result, Scenario, cpu, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..place import Place

PAYLOAD = b'{"id": 4711, "customer": "someone", "amount": 12.5}'
AHEAD = 2000
SHARED = 500
"""The prefetch of each process if several processes share the messages."""
SPIN = 50
"""The microseconds that a handler computes. Without it, the server would be the bottleneck."""
ONE = "consume that acks"
RAW = "a worker, bytes"
TYPED = "a worker, JSON into a type"


@contextmanager
def orders(place: Place, count: int) -> Iterator[str]:
    """Yield the name of a stream with `count` messages. Its consumer has the same name."""
    name = f"W{time.monotonic_ns()}"
    with jsync.connect(place.server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name=name, subjects=[name], storage="memory")
        with js.publisher() as publisher:
            publisher.publish_many(name, [PAYLOAD] * count)
        stream.create_consumer(
            durable_name=name, filter_subject=name, max_ack_pending=50_000
        )
        yield name
        stream.delete()


def alone(place: Place, count: int, ahead: int, *how: object) -> Result:
    """Run one process that reads all messages."""
    with orders(place, count) as name:
        task = "work", place.server.url, name, name, count, ahead, *how
        return place.run(use_jsync(*task))


def several(place: Place, count: int, processes: int) -> Result:
    """Run several processes that share the messages of one consumer."""
    with orders(place, count) as name:
        task = "work", place.server.url, name, name, 0, SHARED, 0, SPIN, 0
        return together(place, [use_jsync(*task)] * processes)


def own_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    count = place.count(200_000)
    yield ONE, functools.partial(alone, place, count, AHEAD, 0, 0, 1)
    yield RAW, functools.partial(alone, place, count, AHEAD, 0, 0, 0)
    yield TYPED, functools.partial(alone, place, count, AHEAD, 1, 0, 0)


WORKER = Scenario(
    f"A worker beside consume, one thread, {len(PAYLOAD)} B of JSON, each message acked",
    RATES,
    own_jobs,
    [
        Bar(
            "CPU of a worker over consume, us", 0.5, lambda r: cpu(r[RAW]) - cpu(r[ONE])
        ),
        Bar(
            "the same with JSON into a type, us",
            1.5,
            lambda r: cpu(r[TYPED]) - cpu(r[ONE]),
        ),
    ],
)


def process_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    count = place.count(40_000)
    yield ONE, functools.partial(alone, place, count, SHARED, 0, SPIN, 1)
    for processes in (1, 2, 4):
        yield (
            f"{processes} processes",
            functools.partial(several, place, count, processes),
        )


WORKER_PROCESSES = Scenario(
    f"Workers that share a consumer, beside one process with consume: {SPIN} us of work",
    RATES,
    process_jobs,
    [
        Bar(
            "rate: 4 processes to one consume",
            1.0,
            lambda r: rate(r["4 processes"]) / rate(r[ONE]),
            at_most=False,
        )
    ],
)
