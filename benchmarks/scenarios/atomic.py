"""Publish atomic batches (ADR-50) into streams in files and in memory."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jsync

from ..place import program, use_jsync
from .jetstream import api
from .scenario import RATES, Bar, Job, Result, Scenario, rate
from .stream import SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..place import Place

STREAM = "BENCHATOMIC"
SUBJECT = "bench.atomic"
BATCH = 1000


def stored(place: Place, storage: str, command: list[str]) -> Result:
    """Run a publisher with a new stream, and check that the stream holds every message."""
    with jsync.connect(place.server.url) as nc:
        config = {"name": STREAM, "subjects": [SUBJECT], "storage": storage}
        api(nc, f"STREAM.CREATE.{STREAM}", {**config, "allow_atomic": True})
        try:
            result = place.run(command)
            state = api(nc, f"STREAM.INFO.{STREAM}", {})["state"]
            assert isinstance(state, dict)
            assert state["messages"] == result["count"], "not all was stored"
            return result
        finally:
            api(nc, f"STREAM.DELETE.{STREAM}", {})


def jobs(storage: str, place: Place) -> Iterator[tuple[str, Job]]:
    task = (SUBJECT, SIZE, place.count(100_000))
    commands = {
        "raw socket, prebuilt": program(place.atomic, place.server.port, *task, BATCH),
        "jsync, publish_batch": use_jsync("atomic", place.server.url, *task, BATCH),
        "jsync, add": use_jsync("atomic", place.server.url, *task, -BATCH),
    }
    if place.natsgo is not None:
        for name, chunk in {"PublishMsgBatch": BATCH, "Add": -BATCH}.items():
            commands[f"orbit.go, {name}"] = program(
                place.natsgo, "atomic", place.server.url, *task, chunk
            )
    if place.natsc is not None:
        commands["nats.c, add"] = program(
            place.natsc, "atomic", place.server.url, *task, BATCH
        )
    for name, command in commands.items():
        yield name, functools.partial(stored, place, storage, command)


def scenario(storage: str, *bars: Bar) -> Scenario:
    return Scenario(
        f"Atomic batches of {BATCH}, one after the other, 128 B, stream in {storage}",
        RATES,
        functools.partial(jobs, storage),
        list(bars),
    )


ATOMIC = {
    "atomic": scenario(
        "file",
        Bar(
            "atomic batches in files: publish_batch / raw socket",
            0.7,
            lambda r: rate(r["jsync, publish_batch"]) / rate(r["raw socket, prebuilt"]),
            at_most=False,
        ),
    ),
    "atomicmemory": scenario("memory"),
}
