"""Publish by fast ingest (ADR-50) into a stream in files."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import program, use_jsync, use_natspy
from .scenario import RATES, Bar, Job, Scenario, cpu, rate
from .stream import SIZE, SUBJECT, WINDOW, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..place import Place

FLOW, OUTSTANDING = 1000, 2


def ingest_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, port = place.server.url, place.server.port
    fast, slow = place.count(600_000), place.count(60_000)
    task = (SUBJECT, SIZE, fast, FLOW, OUTSTANDING)
    commands = {
        "raw socket, prebuilt": program(place.batch, port, *task),
        "jsync, add": use_jsync("ingest", url, *task, 0),
        "jsync, add_many(1000)": use_jsync("ingest", url, *task, 1000),
        "jsync, add with headers": use_jsync("ingest", url, *task, -1),
        **(
            {"orbit.go": program(place.natsgo, "ingest", url, *task, 0)}
            if place.natsgo is not None
            else {}
        ),
        "jsync, add + 1 busy": use_jsync("ingest", url, *task, 0, "--busy", 1),
        "jsync publisher": use_jsync("publisher", url, SUBJECT, SIZE, fast, WINDOW, 0),
        "nats-py publish_async": use_natspy(
            "publisher", url, SUBJECT, SIZE, slow, WINDOW, 0
        ),
    }
    for name, command in commands.items():
        yield name, functools.partial(stored, place, command)


def kept_up(how: str) -> Bar:
    return Bar(
        f"fast ingest, {how}: jsync / raw socket",
        0.95,
        lambda r: rate(r[f"jsync, {how}"]) / rate(r["raw socket, prebuilt"]),
        at_most=False,
    )


INGEST = Scenario(
    f"Fast ingest, flow {FLOW}, {OUTSTANDING} outstanding, 128 B, stream in files, until "
    "the last is stored",
    RATES,
    ingest_jobs,
    [
        *(kept_up(how) for how in ("add", "add_many(1000)")),
        Bar(
            "fast ingest, add: jsync / orbit.go",
            1.0,
            lambda r: rate(r["jsync, add"]) / rate(r["orbit.go"]),
            at_most=False,
        ),
        Bar(
            "fast ingest, add: jsync / nats-py publish_async",
            5,
            lambda r: rate(r["jsync, add"]) / rate(r["nats-py publish_async"]),
            at_most=False,
        ),
        Bar(
            "fast ingest, add, CPU a message, us", 0.35, lambda r: cpu(r["jsync, add"])
        ),
        Bar(
            "fast ingest, add_many(1000), CPU a message, us",
            0.35,
            lambda r: cpu(r["jsync, add_many(1000)"]),
        ),
    ],
)
