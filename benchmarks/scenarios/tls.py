"""The same over TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..place import use_jsync, use_natspy
from .read import FAST, SLOW, fed
from .scenario import LATENCIES, RATES, Job, Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..place import Place


def tls_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    server, ca = place.tls
    more = ("--ca", ca)

    def read(use: Callable[..., list[str]], wanted: int) -> Job:
        count = place.count(wanted)
        command = use("read", server.url, "bench.read", 128, count, *more)
        return lambda: fed(place, command, 128, count, server.port)

    def publish(use: Callable[..., list[str]], wanted: int) -> Job:
        task = ("bench.publish", 128, place.count(wanted), 1)
        return lambda: place.run(use("publish", server.url, *task, *more))

    yield "read, jsync", read(use_jsync, FAST // 2)
    yield "read, nats-py", read(use_natspy, SLOW // 2)
    yield "publish, jsync", publish(use_jsync, FAST)
    yield "publish, nats-py", publish(use_natspy, SLOW)


TLS = Scenario("TLS: read and publish, 128 B", RATES, tls_jobs)


def tls_request_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    server, ca = place.tls
    task = ("$JS.API.INFO", 0, place.count(2000), "--ca", ca)
    yield "jsync", lambda: place.run(use_jsync("request", server.url, *task))
    yield "nats-py", lambda: place.run(use_natspy("request", server.url, *task))


TLS_REQUEST = Scenario("TLS: `$JS.API.INFO`", LATENCIES, tls_request_jobs)
