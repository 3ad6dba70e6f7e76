"""Publish into a stream in files: one message at a time, and without waiting for each ack."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jsync

from ..place import program, use_jsync
from .jetstream import api
from .request import p50_ratio
from .scenario import LATENCIES, RATES, Bar, Job, Result, Scenario, cpu, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ..place import Place

STREAM = "BENCHFILE"
SUBJECT = "bench.file"
SIZE = 128
WINDOW = 4000


def stored(
    place: Place,
    command: list[str],
    server: LocalServer | None = None,
    storage: str = "file",
) -> Result:
    """Run a publisher with a new stream, and check that the stream holds every message."""
    return filled(place, functools.partial(place.run, command), server, storage)


def filled(
    place: Place, run: Job, server: LocalServer | None = None, storage: str = "file"
) -> Result:
    """Run a job with a new stream, and check that the stream holds every message."""
    with jsync.connect((server or place.server).url) as nc:
        api(
            nc,
            f"STREAM.CREATE.{STREAM}",
            {
                "name": STREAM,
                "subjects": [SUBJECT],
                "allow_batched": True,
                "storage": storage,
            },
        )
        try:
            result = run()
            state = api(nc, f"STREAM.INFO.{STREAM}", {})["state"]
            assert isinstance(state, dict)
            assert state["messages"] >= result["count"], "not all was stored"
            return result
        finally:
            api(nc, f"STREAM.DELETE.{STREAM}", {})


def ahead_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, port = place.server.url, place.server.port
    fast, slow = place.count(400_000), place.count(60_000)
    task = (SUBJECT, SIZE, fast, WINDOW)
    peers = place.clients(
        "publisher", lambda n: (url, SUBJECT, SIZE, n, WINDOW, 0), fast, slow
    )
    commands = {
        "raw socket, prebuilt": program(place.window, port, *task),
        "jsync": peers.pop("jsync"),
        "jsync, publish_many(1000)": use_jsync("publisher", url, *task, 1000),
        "jsync, headers": use_jsync("publisher", url, *task, -1),
        "jsync + 1 busy": use_jsync("publisher", url, *task, 0, "--busy", 1),
        **peers,
    }
    for name, command in commands.items():
        yield name, functools.partial(stored, place, command)


AHEAD = Scenario(
    f"Publisher, window {WINDOW}, 128 B, stream in files, until the last ack",
    RATES,
    ahead_jobs,
    [
        Bar(
            "publisher: jsync / raw socket",
            0.85,
            lambda r: rate(r["jsync"]) / rate(r["raw socket, prebuilt"]),
            at_most=False,
        ),
        Bar(
            "publisher, rate: jsync / nats.go",
            1.0,
            lambda r: rate(r["jsync"]) / rate(r["nats.go"]),
            at_most=False,
        ),
        Bar(
            "publisher, CPU a message: jsync / nats.go",
            1.0,
            lambda r: cpu(r["jsync"]) / cpu(r["nats.go"]),
        ),
        Bar("publisher, CPU a message, us", 1.5, lambda r: cpu(r["jsync"])),
    ],
)


def single_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, port = place.server.url, place.server.port
    count = place.count(5000)
    commands = {
        "raw socket": program(place.raw, "request", port, SUBJECT, SIZE, count),
        **place.clients("single", lambda n: (url, SUBJECT, SIZE, n), count, count),
    }
    for name, command in commands.items():
        yield name, functools.partial(stored, place, command)


SINGLE = Scenario(
    "Publish and its ack, one at a time, 128 B, stream in files",
    LATENCIES,
    single_jobs,
    [
        Bar("publish p50: jsync / nats-py", 0.6, p50_ratio("nats-py")),
        Bar("publish p50: jsync / nats.c", 1.0, p50_ratio("nats.c")),
    ],
)
