"""Read, publish and send requests over WebSocket and TCP, with one server."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import PURE_PYTHON
from .read import FAST, SLOW, fed
from .scenario import LATENCIES, RATES, Bar, Job, Result, Round, Scenario, cpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..place import Place

NOT_OVER_WEBSOCKET = {"nats.c", "natsio"}


def commands(
    place: Place,
    job: str,
    task: Callable[[str, int], tuple[object, ...]],
    fast: int,
    slow: int,
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each client that supports WebSocket, its transport, and its command."""
    server = place.websocket
    for how, url in (("TCP", server.url), ("WebSocket", server.websocket_url)):
        given = functools.partial(task, url)
        for client, command in place.clients(job, given, fast, slow).items():
            if client not in NOT_OVER_WEBSOCKET:
                yield client, how, command


def websocket_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    fast, slow = place.count(FAST // 2), place.count(SLOW // 2)

    def read(url: str, count: int) -> tuple[object, ...]:
        return url, "bench.read", 128, count

    def publish(url: str, count: int) -> tuple[object, ...]:
        return url, "bench.publish", 128, count, 1

    port = place.websocket.port
    for client, how, command in commands(place, "read", read, fast, slow):
        count = slow if client in PURE_PYTHON else fast
        yield (
            f"read, {client}, {how}",
            functools.partial(fed, place, command, 128, count, port),
        )
    for client, how, command in commands(place, "publish", publish, 2 * fast, slow):
        yield f"publish, {client}, {how}", functools.partial(place.run, command)


def ratio(job: str, value: Callable[[Result], float]) -> Callable[[Round], float]:
    return lambda r: (
        value(r[f"{job}, jsync, WebSocket"]) / value(r[f"{job}, jsync, TCP"])
    )


WEBSOCKET = Scenario(
    "WebSocket and TCP: read and publish, 128 B",
    RATES,
    websocket_jobs,
    [
        Bar("read, CPU: WebSocket / TCP", 1.33, ratio("read", cpu)),
        Bar("publish, CPU: WebSocket / TCP", 1.33, ratio("publish", cpu)),
    ],
)


def websocket_request_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    count = place.count(2000)

    def task(url: str, count: int) -> tuple[object, ...]:
        return url, "$JS.API.INFO", 0, count

    for client, how, command in commands(place, "request", task, count, count):
        yield f"{client}, {how}", functools.partial(place.run, command)


WEBSOCKET_REQUEST = Scenario(
    "WebSocket and TCP: `$JS.API.INFO`", LATENCIES, websocket_request_jobs
)
