"""The way from a request to its reply."""

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
    task, count = ("bench.echo", 16), place.count(5000)
    commands = {
        "raw socket": program(place.raw, "request", port, *task, count),
        **place.clients("request", lambda n: (url, *task, n), count, count),
    }
    for name, command in commands.items():
        yield name, functools.partial(echoed, place, command)


def p50_ratio(other: str) -> Callable[[Round], float]:
    return lambda r: r["jsync"]["latency_p50"] / r[other]["latency_p50"]


def p99_ratio(other: str) -> Callable[[Round], float]:
    return lambda r: r["jsync"]["latency_p99"] / r[other]["latency_p99"]


REQUEST = Scenario(
    "Requests, 16 B, one at a time, to an echo in C",
    LATENCIES,
    request_jobs,
    [
        Bar("request p50: jsync / nats-py", 0.7, p50_ratio("nats-py")),
        Bar("request p50: jsync / nats.c", 1.0, p50_ratio("nats.c")),
        Bar("request p99: jsync / nats.c", 1.5, p99_ratio("nats.c")),
    ],
)


def api_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, port = place.server.url, place.server.port
    count = place.count(3000)
    commands = {
        "raw socket": program(place.raw, "request", port, "$JS.API.INFO", 0, count),
        **place.clients("request", lambda n: (url, "$JS.API.INFO", 0, n), count, count),
    }
    for name, command in commands.items():
        yield name, functools.partial(place.run, command)


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
