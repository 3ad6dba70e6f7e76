"""Several consumers on one connection, several processes, and where consumers are stored."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import program
from .held import Held, consumed, held, together
from .scenario import RATES, Bar, Job, Result, Scenario, cpu

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..place import Place

BATCH = 500
HELD = 300_000


def several(place: Place, client: str, stream: Held, consumers: int) -> Result:
    def work(prefix: str) -> Result:
        task = place.server.url, stream.name, prefix, stream.count, BATCH, 0, consumers
        command = place.clients("consumers", lambda _: task, stream.count)[client]
        return place.run(command)

    return consumed(stream, work, consumers=consumers)


def consumers_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    stream = held(place, 128, place.count(HELD))
    for client in place.clients("consumers", lambda n: (n,), stream.count):
        for consumers in (1, 4, 16):
            yield (
                f"{client}, {consumers}",
                functools.partial(several, place, client, stream, consumers),
            )


CONSUMERS = Scenario(
    f"Consumers on one connection, by {BATCH} each, 128 B, without acks",
    RATES,
    consumers_jobs,
)


def processes(place: Place, client: str, stream: Held, count: int) -> Result:
    each = stream.count // 2

    def command(consumer: str) -> list[str]:
        task = place.server.url, stream.name, consumer, each, BATCH, 0, 1
        return place.clients("consume", lambda _: task, each)[client]

    def work(prefix: str) -> Result:
        return together(
            place, [command(f"{prefix}{number}") for number in range(count)]
        )

    return consumed(stream, work, consumers=count)


def processes_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    stream = held(place, 128, place.count(HELD))
    for client in place.clients("consume", lambda n: (n,), stream.count):
        for count in (1, 2, 3, 4):
            yield (
                f"{client}, {count}",
                functools.partial(processes, place, client, stream, count),
            )


PROCESSES = Scenario(
    f"Processes, each with a consumer by {BATCH}, 128 B, without acks: all together",
    RATES,
    processes_jobs,
)


def kept(place: Place, client: str, stream: Held, in_memory: bool) -> Result:
    count = stream.count

    def work(consumer: str) -> Result:
        task = stream.name, consumer, count, BATCH, 1
        if client == RAW:
            return place.run(program(place.pull, "consume", place.server.port, *task))
        commands = place.clients(
            "consume", lambda _: (place.server.url, *task, 1), count
        )
        return place.run(commands[client])

    return consumed(stream, work, ack=True, in_memory=in_memory)


RAW = "raw socket"


def kept_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    stream = held(place, 128, place.count(HELD // 2), storage="file")
    for client in (RAW, *place.clients("consume", lambda n: (n,), stream.count)):
        for where, in_memory in (("files", False), ("memory", True)):
            yield (
                f"{client}, consumer in {where}",
                functools.partial(kept, place, client, stream, in_memory),
            )


KEPT = Scenario(
    f"Consume and ack by {BATCH}, 128 B, stream in files",
    RATES,
    kept_jobs,
    [
        Bar(
            "consumer in files, CPU a message: jsync / nats.go",
            1.0,
            lambda r: (
                cpu(r["jsync, consumer in files"])
                / cpu(r["nats.go, consumer in files"])
            ),
        )
    ],
)
