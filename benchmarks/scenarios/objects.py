"""Put and get objects: large ones, small ones, and the time to the first byte."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING

import jsync

from .request import p50_ratio
from .scenario import Bar, Column, Job, Result, Scenario, key, server_cpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..place import Place
    from .scenario import Round

STORE = "BENCHFILES"
MIB = 1 << 20
LARGE, SMALL, HUGE = 256 * MIB, 1024, 1024 * MIB


@contextmanager
def store(place: Place, size: int | None) -> Iterator[None]:
    """Create a store in files, with one object of `size` bytes if a size is given."""
    with jsync.connect(place.server.url) as nc:
        js = nc.jetstream(timeout=60)
        files = js.create_object_store(bucket=STORE)
        try:
            if size is not None:
                blocks = (b"x" * min(MIB, size - at) for at in range(0, size, MIB))
                files.put("object", blocks)
            yield
        finally:
            js.delete_object_store(STORE)


def stored(place: Place, size: int | None, command: list[str]) -> Result:
    with store(place, size):
        return place.run(command)


def jobs(
    job: str, size: int, fast: int, slow: int | None, place: Place
) -> Iterator[tuple[str, Job]]:
    count = place.count(fast)
    few = None if slow is None else place.count(slow)
    commands = place.clients(
        job, lambda n: (place.server.url, STORE, size, n), count, few
    )
    held = None if job == "objectput" else size
    for client, command in commands.items():
        yield client, functools.partial(stored, place, held, command)


def seconds_each(result: Result) -> float:
    """Return the milliseconds per object."""
    return result["seconds"] / result["count"] * 1e3


def cpu_each(result: Result) -> float:
    """Return the milliseconds of CPU time per object."""
    return result["cpu"] / result["count"] * 1e3


EACH = [
    Column("ms each", seconds_each),
    Column("CPU, ms each", cpu_each),
    Column("server CPU, us each", server_cpu),
]
SOON = [Column("p50, us", key("latency_p50")), Column("p99, us", key("latency_p99"))]


def ratio(of: Callable[[Result], float]) -> Callable[[Round], float]:
    """Return the ratio of jsync to nats.go."""
    return lambda results: of(results["jsync"]) / of(results["nats.go"])


def large_bars(text: str) -> list[Bar]:
    return [
        Bar(f"{text}, time: jsync / nats.go", 1.0, ratio(seconds_each)),
        Bar(f"{text}, CPU: jsync / nats.go", 1.0, ratio(cpu_each)),
    ]


def small_bars(text: str) -> list[Bar]:
    return [Bar(f"{text}, p50: jsync / nats.go", 1.0, p50_ratio("nats.go"))]


OBJECTS = {
    "objectput": Scenario(
        "An object of 256 MiB put, its SHA-256 included",
        EACH,
        functools.partial(jobs, "objectput", LARGE, 3, 1),
        large_bars("256 MiB put"),
    ),
    "objectget": Scenario(
        "An object of 256 MiB got, its SHA-256 checked",
        EACH,
        functools.partial(jobs, "objectget", LARGE, 3, 1),
        large_bars("256 MiB got"),
    ),
    "objectputsmall": Scenario(
        "Objects of 1 KiB put over one another",
        [*SOON, EACH[1]],
        functools.partial(jobs, "objectput", SMALL, 1000, 300),
        small_bars("1 KiB put"),
    ),
    "objectgetsmall": Scenario(
        "An object of 1 KiB got again and again",
        [*SOON, EACH[1]],
        functools.partial(jobs, "objectget", SMALL, 1000, 300),
        small_bars("1 KiB got"),
    ),
    "objectopen": Scenario(
        "The first byte of an object of 1 GiB",
        [*SOON, EACH[1]],
        functools.partial(jobs, "objectopen", HUGE, 200, 50),
    ),
}
