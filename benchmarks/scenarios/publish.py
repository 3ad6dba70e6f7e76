"""The way from `publish` to the socket, and to a reader."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import program, use_jsync, use_natspy
from .read import FAST, SLOW
from .scenario import RATES, Bar, Column, Job, Result, Scenario, cpu, key, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..place import Place


def publish_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, port = place.server.url, place.server.port
    fast, slow = place.count(4 * FAST), place.count(2 * SLOW)

    def task(count: int, threads: int = 1) -> tuple[object, ...]:
        return "bench.publish", 128, count, threads

    def mine(count: int, threads: int, *more: object) -> Job:
        return lambda: place.run(
            use_jsync("publish", url, *task(count, threads), *more)
        )

    yield (
        "raw socket, prebuilt",
        lambda: place.run(program(place.raw, "publish", port, *task(fast)[:3])),
    )
    yield "jsync, 1 thread", mine(fast, 1)
    yield "jsync, 4 threads", mine(fast, 4)
    yield "jsync, 1 thread + 1 busy", mine(fast // 4, 1, "--busy", 1)
    if (natsc := place.natsc) is not None:
        for threads in (1, 4):
            yield (
                f"nats.c, {threads} thread{'s' * (threads > 1)}",
                functools.partial(
                    place.run, program(natsc, "publish", url, *task(fast, threads))
                ),
            )
    peers = place.clients("publish", lambda n: (url, *task(n)), fast, slow)
    for name in ("nats.go", "natsio", "nats-py"):
        if name in peers:
            yield name, functools.partial(place.run, peers[name])
    busy = ("--busy", 1)
    yield (
        "nats-py + 1 busy",
        lambda: place.run(use_natspy("publish", url, *task(slow // 4), *busy)),
    )


PUBLISH = Scenario(
    "Core publish, 128 B, until the PONG after the last",
    RATES,
    publish_jobs,
    [
        Bar(
            "publish 128 B: jsync / raw socket (2 million/s of 4)",
            0.5,
            lambda r: rate(r["jsync, 1 thread"]) / rate(r["raw socket, prebuilt"]),
            at_most=False,
        ),
        Bar(
            "publish 128 B, 1 thread, thousand/s",
            2000,
            lambda r: rate(r["jsync, 1 thread"]),
            at_most=False,
        ),
        Bar(
            "publish 128 B beside a busy thread, thousand/s",
            400,
            lambda r: rate(r["jsync, 1 thread + 1 busy"]),
            at_most=False,
        ),
    ],
)


def lone(place: Place, command: Callable[[str, str], list[str]], count: int) -> Result:
    """Publish one message at an interval, to a process that stamps arrivals: no server."""
    with place.peer(program(place.raw, "sink", count)) as sink:
        port = sink.line()
        result = place.run(command(port, f"nats://127.0.0.1:{port}"))
        return result | sink.result()


def lone_jobs(
    interval: int, count: int
) -> Callable[[Place], Iterator[tuple[str, Job]]]:
    def jobs(place: Place) -> Iterator[tuple[str, Job]]:
        n = place.count(count)

        def job(command: Callable[[str, str], list[str]]) -> Job:
            return lambda: lone(place, command, n)

        rest = (n, interval, 128)
        yield "raw socket", job(lambda port, _: program(place.raw, "lone", port, *rest))
        yield "jsync", job(lambda _, url: use_jsync("lone", url, *rest))
        if (natsc := place.natsc) is not None:
            yield "nats.c", job(lambda _, url: program(natsc, "lone", url, *rest, 0))
            asap = (*rest, 1)
            yield "nats.c, SendAsap", job(lambda _, u: program(natsc, "lone", u, *asap))
        yield "nats-py", job(lambda _, url: use_natspy("lone", url, *rest))
        if interval >= 1000:
            busy = (*rest, "--busy", 1)
            yield "jsync + 1 busy", job(lambda _, url: use_jsync("lone", url, *busy))

    return jobs


LONE_COLUMNS = [
    Column("arrival p50, us", key("arrival_p50")),
    Column("arrival p99, us", key("arrival_p99")),
    Column("caller p50, us", key("caller_p50")),
    Column("caller p99, us", key("caller_p99")),
    Column("CPU, us each", cpu),
]


def lone_bar(text: str) -> list[Bar]:
    return [
        Bar(
            f"lone write {text}, arrival p50, us",
            20,
            lambda r: r["jsync"]["arrival_p50"],
        )
    ]


LONE_1000 = Scenario(
    "A lone write of 128 B each millisecond: until it has arrived in another process",
    LONE_COLUMNS,
    lone_jobs(1000, 1000),
    lone_bar("each 1 ms"),
)
LONE_100 = Scenario(
    "A lone write of 128 B each 100 us",
    LONE_COLUMNS,
    lone_jobs(100, 5000),
    lone_bar("each 100 us"),
)
