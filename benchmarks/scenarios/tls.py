"""Read, consume, publish and send requests over TLS."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import PURE_PYTHON
from .held import Held, consumed, held
from .read import FAST, SLOW, fed
from .scenario import LATENCIES, RATES, Job, Result, Scenario
from .stream import SUBJECT, WINDOW, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..place import Place


def tls_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    server, ca = place.tls
    fast, slow = place.count(FAST // 2), place.count(SLOW // 2)

    def read(count: int) -> tuple[object, ...]:
        return server.url, "bench.read", 128, count

    for name, command in place.clients("read", read, fast, slow, ca).items():
        count = slow if name in PURE_PYTHON else fast
        yield (
            f"read, {name}",
            functools.partial(fed, place, command, 128, count, server.port),
        )

    def publish(count: int) -> tuple[object, ...]:
        return server.url, "bench.publish", 128, count, 1

    for name, command in place.clients("publish", publish, 2 * fast, slow, ca).items():
        yield f"publish, {name}", functools.partial(place.run, command)


TLS = Scenario("TLS: read and publish, 128 B", RATES, tls_jobs)


def tls_request_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    server, ca = place.tls
    count = place.count(2000)

    def task(count: int) -> tuple[object, ...]:
        return server.url, "$JS.API.INFO", 0, count

    for name, command in place.clients("request", task, count, count, ca).items():
        yield name, functools.partial(place.run, command)
        if name == "jsync":
            # The main thread leaves TLS to the I/O thread.
            command = [*command, "--thread"]
            yield f"{name}, not the main thread", functools.partial(place.run, command)


TLS_REQUEST = Scenario("TLS: `$JS.API.INFO`", LATENCIES, tls_request_jobs)

BATCH = 500


# The arguments after the batch: whether to ack, and whether a handler gets the messages.
JOBS = {"consume": (0, 1), "fetch": (0,)}


def read(place: Place, job: str, client: str, stream: Held, ca: str | None) -> Result:
    def work(consumer: str) -> Result:
        task = stream.server.url, stream.name, consumer, stream.count, BATCH
        commands = place.clients(job, lambda _: task + JOBS[job], stream.count, ca=ca)
        return place.run(commands[client])

    return consumed(stream, work)


def tls_stream_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    server, ca = place.tls
    stream = held(place, 128, place.count(300_000), server=server)
    for job in JOBS:
        for client in place.clients(job, lambda n: (n,), stream.count):
            for how, authority in (("TCP", None), ("TLS", ca)):
                yield (
                    f"{job} by {BATCH}, {client}, {how}",
                    functools.partial(read, place, job, client, stream, authority),
                )
    count = place.count(200_000)
    for how, authority in (("TCP", None), ("TLS", ca)):
        clients = place.clients(
            "publisher",
            lambda n: (server.url, SUBJECT, 128, n, WINDOW, 0),
            count,
            ca=authority,
        )
        for client, command in clients.items():
            yield (
                f"publisher, {client}, {how}",
                functools.partial(stored, place, command, server),
            )


TLS_STREAM = Scenario(
    "With TLS and without: consume and fetch, 128 B, from memory, and publishers, to files",
    RATES,
    tls_stream_jobs,
)
