"""Services: nats.go sends the requests to an echo, so only the service differs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jsync

from ..place import program
from .request import p50_ratio
from .scenario import RATE, Bar, Column, Job, Result, Scenario, cpu, key, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..place import Place

SUBJECT = "bench.service"

COLUMNS = [
    *RATE,
    Column("p50, us", key("latency_p50")),
    Column("p99, us", key("latency_p99")),
    Column("CPU of the service, us each", cpu),
]


def served(place: Place, service: list[str], caller: list[str]) -> Result:
    """Return the figures of the caller, with the CPU time of the service."""
    with place.peer(service) as peer:
        peer.await_ready()
        peer.go()
        found = place.run(caller)
        with jsync.connect(place.server.url) as nc:
            nc.publish(f"{SUBJECT}.stop")
        told = peer.result()
        return found | {"cpu": told["cpu"] * found["count"] / told["count"]}


def service_jobs(
    callers: int, workers: int, delay: int, count: int, place: Place
) -> Iterator[tuple[str, Job]]:
    if place.natsgo is None:
        return
    url, calls = place.server.url, place.count(count)
    task = (url, SUBJECT, 16, calls, callers)
    caller = program(place.natsgo, "call", *task)
    given = (url, SUBJECT, workers, delay)
    for name, service in place.clients("serve", lambda _: given, 0, 0).items():
        yield name, functools.partial(served, place, service, caller)


def scenario(
    title: str, callers: int, workers: int, delay: int, count: int, *bars: Bar
) -> Scenario:
    jobs: Callable[[Place], Iterator[tuple[str, Job]]] = functools.partial(
        service_jobs, callers, workers, delay, count
    )
    return Scenario(title, COLUMNS, jobs, list(bars))


SERVICES = {
    "service": scenario(
        "A service that echoes, one caller",
        *(1, 1, 0, 5000),
        Bar("service, one caller, p50: jsync / nats.go", 1.0, p50_ratio("nats.go")),
        Bar(
            "service, one caller, CPU: jsync / nats.go",
            1.0,
            lambda r: cpu(r["jsync"]) / cpu(r["nats.go"]),
        ),
    ),
    "service64": scenario(
        "A service that echoes, 64 callers",
        *(64, 1, 0, 100_000),
        Bar("service, 64 callers, p50: jsync / nats.go", 1.0, p50_ratio("nats.go")),
    ),
    "serviceio": scenario(
        "A service that waits 1 ms, 32 workers, 64 callers",
        *(64, 32, 1000, 60_000),
        Bar(
            "service, 1 ms with 32 workers: thousand/s",
            25.0,
            lambda r: rate(r["jsync"]),
            at_most=False,
        ),
    ),
}
