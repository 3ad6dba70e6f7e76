"""Consume and publish messages of other sizes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import program
from .held import consumed, held
from .ingest import FLOW, OUTSTANDING
from .scenario import RATES, Job, Scenario
from .stream import SUBJECT, WINDOW, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..place import Place
    from .scenario import Result

SIZES = {"16": ("16 B", 16), "1k": ("1 KiB", 1024), "16k": ("16 KiB", 16384)}
BATCH = 500


def scaled(size: int, small: int) -> int:
    """Return fewer messages for larger sizes, so that each job takes about as long."""
    return small if size < 1024 else small // 2 if size < 16384 else small // 15


def consume_jobs(size: int, place: Place) -> Iterator[tuple[str, Job]]:
    count = max(BATCH, place.count(scaled(size, 300_000)))
    stream = held(place, size, count)

    def job(command: Callable[[str], list[str]]) -> Job:
        def work(consumer: str) -> Result:
            return place.run(command(consumer))

        return lambda: consumed(stream, work)

    def by(client: str) -> Callable[[str], list[str]]:
        def command(consumer: str) -> list[str]:
            task = place.server.url, stream.name, consumer, count, BATCH, 0, 1
            return place.clients("consume", lambda _: task, count)[client]

        return command

    yield (
        "raw socket that pulls",
        job(
            lambda c: program(
                *(place.pull, "consume", place.server.port),
                *(stream.name, c, count, BATCH, 0),
            )
        ),
    )
    for client in place.clients("consume", lambda n: (n,), count):
        yield client, job(by(client))


def publish_jobs(size: int, place: Place) -> Iterator[tuple[str, Job]]:
    count = place.count(scaled(size, 2_000_000))
    task = ("bench.publish", size, count)
    raw = program(place.raw, "publish", place.server.port, *task)
    yield "raw socket, prebuilt", functools.partial(place.run, raw)
    clients = place.clients("publish", lambda _: (place.server.url, *task, 1), count)
    for name, command in clients.items():
        yield name, functools.partial(place.run, command)


def ahead_jobs(size: int, place: Place) -> Iterator[tuple[str, Job]]:
    count = place.count(scaled(size, 200_000))
    task = (SUBJECT, size, count, WINDOW)
    commands = {
        "raw socket, prebuilt": program(place.window, place.server.port, *task),
        **place.clients("publisher", lambda _: (place.server.url, *task, 0), count),
    }
    for name, command in commands.items():
        yield name, functools.partial(stored, place, command)


def ingest_jobs(size: int, place: Place) -> Iterator[tuple[str, Job]]:
    count = place.count(scaled(size, 300_000))
    task = (SUBJECT, size, count, FLOW, OUTSTANDING)
    commands = {
        "raw socket, prebuilt": program(place.batch, place.server.port, *task),
        **place.clients("ingest", lambda _: (place.server.url, *task, 0), count),
    }
    for name, command in commands.items():
        yield name, functools.partial(stored, place, command)


PAYLOADS = {
    f"{key}{name}": Scenario(f"{title}, {text}", RATES, functools.partial(jobs, size))
    for key, title, jobs in (
        ("consume", f"JetStream consume by {BATCH}, stream in memory", consume_jobs),
        ("publish", "Core publish, until the PONG after the last", publish_jobs),
        ("ahead", f"Publisher, window {WINDOW}, stream in files", ahead_jobs),
        ("ingest", f"Fast ingest, flow {FLOW}, stream in files", ingest_jobs),
    )
    for name, (text, size) in SIZES.items()
}
