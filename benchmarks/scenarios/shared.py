"""Threads that share a connection, and each wait for an answer before the next call."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import program, use_gevent, use_jsync
from .keyvalue import SIZE, bucket
from .request import echoed, p99_ratio
from .scenario import (
    LATENCIES,
    RATE,
    Bar,
    Column,
    Job,
    Result,
    Scenario,
    cpu,
    key,
    rate,
)
from .stream import SUBJECT, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..place import Place

COUNT = 80_000
COUNT_ALONE = 20_000
GREENLETS = 1000
CALLS = {
    "publish": "JetStream publishes",
    "publishmemory": "JetStream publishes in memory",
    "request": "requests",
    "get": "key-value gets",
    "put": "key-value puts",
}
COLUMNS = [*RATE, *LATENCIES, Column("context switches each", key("switches"))]


def shared_jobs(name: str, threads: int, place: Place) -> Iterator[tuple[str, Job]]:
    url, count = place.server.url, place.count(COUNT if threads > 1 else COUNT_ALONE)
    call, in_memory = name.removesuffix("memory"), name.endswith("memory")
    run: Callable[[Place, list[str]], Result] = type(place).run
    if call == "publish":
        target = SUBJECT
        run = functools.partial(stored, storage="memory" if in_memory else "file")
    elif call == "request":
        target, run = "bench.echo", echoed
    else:
        target = bucket(place, 100, storage="file" if call == "put" else "memory")
    task = (url, call, target, SIZE, count, threads)
    for client, command in place.clients("shared", lambda _: task, count).items():
        yield client, functools.partial(run, place, command)


def scenario(call: str, threads: int) -> Scenario:
    title = f"{CALLS[call]}, {threads} {'threads' if threads > 1 else 'thread'}"
    bars = [
        Bar(
            f"{title}, rate: jsync / nats.go",
            0.9,
            lambda r: rate(r["jsync"]) / rate(r["nats.go"]),
            at_most=False,
        ),
        Bar(
            f"{title}, CPU: jsync / nats.go",
            1.3,
            lambda r: cpu(r["jsync"]) / cpu(r["nats.go"]),
        ),
        Bar(f"{title}, p99: jsync / nats.go", 2.0, p99_ratio("nats.go")),
        Bar(
            f"{title}, context switches of a call",
            2.5,
            lambda r: r["jsync"]["switches"],
        ),
    ]
    return Scenario(
        f"One connection: {title}, {SIZE} B",
        COLUMNS,
        functools.partial(shared_jobs, call, threads),
        bars,
    )


def greenlet_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    def task(threads: int) -> tuple[object, ...]:
        count = place.count(COUNT)
        return ("shared", place.server.url, "publish", SUBJECT, SIZE, count, threads)

    commands = {
        f"jsync, {GREENLETS} greenlets": use_gevent(*task(GREENLETS)),
        "jsync, 32 threads": use_jsync(*task(32)),
    }
    if place.natsgo is not None:
        commands[f"nats.go, {GREENLETS} goroutines"] = program(
            place.natsgo, *task(GREENLETS)
        )
    for client, command in commands.items():
        yield client, functools.partial(stored, place, command, storage="memory")


SHARED = {
    f"shared{call}{threads}": scenario(call, threads)
    for call in CALLS
    for threads in (1, 8, 32)
}
SHARED["greenlets"] = Scenario(
    f"One connection: JetStream publishes of {GREENLETS} greenlets of gevent, {SIZE} B",
    COLUMNS,
    greenlet_jobs,
)
