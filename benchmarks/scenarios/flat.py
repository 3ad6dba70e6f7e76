"""The cost of a message with many messages, or with many subscriptions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import program, use_jsync
from .held import Held, consumed, held
from .read import fed
from .scenario import RATES, Bar, Column, Job, Result, Scenario, cpu, key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..place import Place

SUBSCRIPTIONS = (1, 100, 10_000)
READ = 1_000_000


def idle_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    count = place.count(READ)
    for subscriptions in SUBSCRIPTIONS:
        task = place.server.url, "bench.read", 128, count
        command = use_jsync("read", *task, "--others", subscriptions - 1)
        yield (
            f"jsync, {subscriptions}",
            functools.partial(fed, place, command, 128, count),
        )


IDLE = Scenario(
    "Core messages to one of many subscriptions, 128 B",
    [*RATES, Column("peak MiB", key("peak_mib"))],
    idle_jobs,
    [
        Bar(
            "one of 10,000 subscriptions read, CPU a message: to the only one",
            1.1,
            lambda r: cpu(r["jsync, 10000"]) / cpu(r["jsync, 1"]),
        )
    ],
)


def spread(place: Place, command: list[str], count: int, subscriptions: int) -> Result:
    task = place.server.port, "bench.many", 128, count, subscriptions
    with place.peer(command) as reader:
        reader.await_ready()
        with place.peer(program(place.raw, "spread", *task)) as feeder:
            feeder.await_ready()
            reader.go()
            feeder.go()
            return reader.result()


def spread_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    count = max(10 * SUBSCRIPTIONS[-1], place.count(READ))
    for subscriptions in SUBSCRIPTIONS:
        task = functools.partial(
            lambda several, n: (place.server.url, "bench.many", 128, n, several),
            subscriptions,
        )
        for client, command in place.clients("readmany", task, count).items():
            yield (
                f"{client}, {subscriptions}",
                functools.partial(spread, place, command, count, subscriptions),
            )


SPREAD = Scenario(
    "Core messages to many subscriptions in turn, each read in turn, 128 B",
    RATES,
    spread_jobs,
    [
        Bar(
            "10,000 subscriptions read in turn, CPU a message: to one",
            1.1,
            lambda r: cpu(r["jsync, 10000"]) / cpu(r["jsync, 1"]),
        )
    ],
)


def callback_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    count = max(10 * SUBSCRIPTIONS[-1], place.count(READ))
    for subscriptions in (1, 1000, 10_000):
        task = functools.partial(
            lambda several, n: (place.server.url, "bench.many", 128, n, several),
            subscriptions,
        )
        for client, command in place.clients("callbacks", task, count).items():
            yield (
                f"{client}, {subscriptions}",
                functools.partial(spread, place, command, count, subscriptions),
            )


CALLBACKS = Scenario(
    "Core messages to callbacks of many subscriptions in turn, 128 B",
    [
        *RATES,
        Column("threads", key("threads")),
        Column("resident MiB", key("resident_mib")),
    ],
    callback_jobs,
    [
        Bar(
            "callbacks of 10,000 subscriptions, threads of jsync",
            70,
            lambda r: r["jsync, 10000"]["threads"],
        ),
        Bar(
            "callbacks of 10,000 subscriptions, CPU a message: jsync / nats.go",
            1.3,
            lambda r: cpu(r["jsync, 10000"]) / cpu(r["nats.go, 10000"]),
        ),
    ],
)

# By number of messages ---------------------------------------------------------------

BATCH = 500
COUNTS = {"100 thousand": 100_000, "a million": 1_000_000, "ten million": 10_000_000}


def long(place: Place, stream: Held, count: int) -> Result:
    def work(consumer: str) -> Result:
        task = stream.server.url, stream.name, consumer, count, BATCH, 0, 1
        return place.run(use_jsync("consume", *task))

    return consumed(stream, work)


def length_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    most = place.count(COUNTS["ten million"])
    stream = held(place, 16, most, server=place.large)
    for name, count in COUNTS.items():
        yield name, functools.partial(long, place, stream, place.count(count))


LENGTH = Scenario(
    f"Consume by {BATCH}, 16 B, stream in memory: jsync by number of messages",
    [*RATES, Column("peak MiB", key("peak_mib"))],
    length_jobs,
    [
        Bar(
            "ten million messages, CPU a message: to 100 thousand",
            1.1,
            lambda r: cpu(r["ten million"]) / cpu(r["100 thousand"]),
        ),
        Bar(
            "ten million messages, peak memory: to 100 thousand",
            1.1,
            lambda r: r["ten million"]["peak_mib"] / r["100 thousand"]["peak_mib"],
        ),
    ],
)
