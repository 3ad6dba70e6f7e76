"""Consume, publish and ingest with a server that has a round-trip time of 2 or 20 ms."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import program
from .held import Held, consumed, held
from .ingest import FLOW, OUTSTANDING
from .scenario import RATES, Bar, Job, Result, Scenario, rate
from .stream import SIZE, SUBJECT, WINDOW, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..place import Place

BATCH = 5000
RAW = "raw socket"


def consume(place: Place, client: str, stream: Held, port: int) -> Result:
    count = stream.count

    def work(consumer: str) -> Result:
        task = stream.name, consumer, count, BATCH, 0
        if client == RAW:
            return place.run(program(place.pull, "consume", port, *task))
        url = f"nats://127.0.0.1:{port}"
        return place.run(
            place.clients("consume", lambda _: (url, *task, 1), count)[client]
        )

    return consumed(stream, work)


def jobs(milliseconds: int, place: Place) -> Iterator[tuple[str, Job]]:
    port, stream = place.distant(milliseconds), held(place, SIZE, place.count(150_000))
    url, count = f"nats://127.0.0.1:{port}", place.count(100_000)
    for client in (RAW, *place.clients("consume", lambda n: (n,), count)):
        yield (
            f"consume by {BATCH}, {client}",
            functools.partial(consume, place, client, stream, port),
        )
    ahead, ingest = (SUBJECT, SIZE, count, WINDOW), (SUBJECT, SIZE, count, FLOW)
    commands = {
        f"publisher, {RAW}": program(place.window, port, *ahead),
        f"fast ingest, {RAW}": program(place.batch, port, *ingest, OUTSTANDING),
    }
    publishers = place.clients("publisher", lambda _: (url, *ahead, 0), count)
    commands |= {f"publisher, {name}": c for name, c in publishers.items()}
    ingests = place.clients("ingest", lambda _: (url, *ingest, OUTSTANDING, 0), count)
    commands |= {f"fast ingest, {name}": c for name, c in ingests.items()}
    for name, command in commands.items():
        yield name, functools.partial(stored, place, command)


def kept_up(milliseconds: int, what: str) -> Bar:
    return Bar(
        f"{milliseconds} ms away, {what}: jsync / raw socket",
        0.9,
        lambda r: rate(r[f"{what}, jsync"]) / rate(r[f"{what}, {RAW}"]),
        at_most=False,
    )


def scenario(milliseconds: int) -> Scenario:
    return Scenario(
        f"A round trip of {milliseconds} ms, 128 B; ingest with a flow of {FLOW}, "
        f"{OUTSTANDING} outstanding, publishers with a window of {WINDOW}",
        RATES,
        functools.partial(jobs, milliseconds),
        [
            kept_up(milliseconds, what)
            for what in (f"consume by {BATCH}", "publisher", "fast ingest")
        ],
    )


DISTANCE = {f"distance{ms}": scenario(ms) for ms in (2, 20)}
