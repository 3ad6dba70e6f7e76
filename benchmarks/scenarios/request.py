"""From a request to its reply."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import program, use_jsync, use_natspy
from .scenario import LATENCIES, Bar, Job, Result, Round, Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..place import Place


def echoed(place: Place, command: list[str]) -> Result:
    port = place.server.port
    with place.peer(program(place.raw, "echo", port, "bench.echo")) as echo:
        echo.await_ready()
        return place.run(command)


def request_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, port = place.server.url, place.server.port
    task = ("bench.echo", 16, place.count(5000))
    commands = {
        "raw socket": program(place.raw, "request", port, *task),
        "jsync": use_jsync("request", url, *task),
        "nats-py": use_natspy("request", url, *task),
    }
    if place.natsc is not None:
        commands["nats.c"] = program(place.natsc, "request", url, *task)
    for name, command in commands.items():
        yield name, functools.partial(echoed, place, command)


def p50_ratio(other: str) -> Callable[[Round], float]:
    return lambda r: r["jsync"]["latency_p50"] / r[other]["latency_p50"]


REQUEST = Scenario(
    "Requests, 16 B, one at a time, to an echo in C",
    LATENCIES,
    request_jobs,
    [
        Bar("request p50: jsync / nats-py", 0.7, p50_ratio("nats-py")),
        Bar("request p50: jsync / nats.c", 1.0, p50_ratio("nats.c")),
    ],
)


def api_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, port = place.server.url, place.server.port
    task = ("$JS.API.INFO", 0, place.count(3000))
    yield "raw socket", lambda: place.run(program(place.raw, "request", port, *task))
    yield "jsync", lambda: place.run(use_jsync("request", url, *task))
    yield "nats-py", lambda: place.run(use_natspy("request", url, *task))
    if (natsc := place.natsc) is not None:
        yield "nats.c", lambda: place.run(program(natsc, "request", url, *task))


API = Scenario(
    "Requests to `$JS.API.INFO`, one at a time",
    LATENCIES,
    api_jobs,
    [
        Bar("$JS.API.INFO p50: jsync / nats-py", 0.7, p50_ratio("nats-py")),
        Bar("$JS.API.INFO p50: jsync / nats.c", 1.0, p50_ratio("nats.c")),
    ],
)


def request_busy_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    task = ("bench.echo", 16, place.count(300), "--busy", 1)
    for name, use in (("jsync", use_jsync), ("nats-py", use_natspy)):
        command = use("request", place.server.url, *task)
        yield name, functools.partial(echoed, place, command)


REQUEST_BUSY = Scenario(
    "Requests beside one pure Python thread in the same process",
    LATENCIES[:2],
    request_busy_jobs,
)
