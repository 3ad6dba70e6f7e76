"""Consume while threads of the same process hold the GIL."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import use_jsync
from .held import Held, consumed, held
from .scenario import RATES, Bar, Column, Job, Result, Scenario, key, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ..place import Place

BATCH = 5000
HOLD = 200


def stalled(
    place: Place, stream: Held, server: LocalServer, count: int, *more: object
) -> Result:
    def work(consumer: str) -> Result:
        task = server.url, stream.name, consumer, count, BATCH, 0, 1
        return place.run(use_jsync("consume", *task, *more))

    return consumed(stream, work)


def jobs(place: Place) -> Iterator[tuple[str, Job]]:
    tls, ca = place.tls
    count = place.count(300_000)
    plain = functools.partial(
        stalled, place, held(place, 128, count), place.server, count
    )
    secret = functools.partial(
        stalled, place, held(place, 128, count, server=tls), tls, count, "--ca", ca
    )
    yield "alone", plain
    yield "1 busy in Python", functools.partial(plain, "--busy", 1)
    yield "TLS, alone", secret
    yield "TLS, 1 busy in Python", functools.partial(secret, "--busy", 1)
    yield (
        f"C holds the GIL, {HOLD} ms at a time",
        functools.partial(
            stalled,
            *(place, held(place, 128, count), place.server, place.count(30_000)),
            *("--hold", HOLD),
        ),
    )


STALLS = Scenario(
    f"jsync consume by {BATCH}, 128 B, beside threads that hold the GIL",
    [*RATES, Column("reconnects", key("reconnects"))],
    jobs,
    [
        Bar(
            "consume beside a thread busy in Python: to alone",
            0.5,
            lambda r: rate(r["1 busy in Python"]) / rate(r["alone"]),
            at_most=False,
        ),
        Bar(
            f"reconnects while C holds the GIL for {HOLD} ms at a time",
            0,
            lambda r: r[f"C holds the GIL, {HOLD} ms at a time"]["reconnects"],
        ),
    ],
)
