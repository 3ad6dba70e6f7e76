"""Streams that are filled once, and consumers that are created for one job."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jsync

from ..place import program
from .jetstream import api

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync.server import LocalServer

    from ..place import Place
    from .scenario import Result

FILLED_AT_ONCE = 128 << 20
"""The bytes that the process which fills a stream prepares at a time."""


@dataclass(frozen=True)
class Held:
    """A stream and its server."""

    server: LocalServer
    name: str
    count: int


def held(
    place: Place,
    size: int,
    count: int,
    *,
    server: LocalServer | None = None,
    storage: str = "memory",
) -> Held:
    """Return a stream of `count` messages of `size` bytes, filled when first needed."""
    name = f"HELD-{storage}-{size}-{count}"
    stream = Held(server or place.server, name, count)
    subject = name.replace("-", ".").lower()
    with jsync.connect(stream.server.url) as nc:
        names = api(nc, "STREAM.NAMES", {}).get("streams") or []
        assert isinstance(names, list)
        if stream.name in names:
            return stream
        config = {"name": stream.name, "subjects": [subject], "storage": storage}
        api(nc, f"STREAM.CREATE.{stream.name}", {**config, "allow_batched": True})
    most = FILLED_AT_ONCE // (size + 200)
    for begin in range(0, count, most):
        some = min(most, count - begin)
        task = stream.server.port, subject, size, some, 1000, 2
        place.run(program(place.batch, *task))
    return stream


def consumed(
    stream: Held,
    work: Callable[[str], Result],
    *,
    ack: bool = False,
    consumers: int = 0,
    in_memory: bool = False,
) -> Result:
    """Run `work(name)` with a new durable consumer, or with several that are numbered."""
    name = f"c{time.monotonic_ns()}"
    names = [f"{name}{number}" for number in range(consumers)] or [name]
    with ExitStack() as stack:
        nc = stack.enter_context(jsync.connect(stream.server.url))
        for each in names:
            config: dict[str, object] = {
                "durable_name": each,
                "ack_policy": "explicit" if ack else "none",
                "mem_storage": in_memory,
            }
            if ack:
                config["max_ack_pending"] = 50_000
            api(
                nc,
                f"CONSUMER.DURABLE.CREATE.{stream.name}.{each}",
                {"stream_name": stream.name, "config": config},
            )
            stack.callback(api, nc, f"CONSUMER.DELETE.{stream.name}.{each}", {})
        return work(name)


def together(place: Place, commands: list[list[str]]) -> Result:
    """Run several processes at the same time.

    Returns:
        The messages of all, the time of the slowest, and the CPU time of all.
    """
    with ExitStack() as stack:
        peers = [stack.enter_context(place.peer(command)) for command in commands]
        for peer in peers:
            peer.await_ready()
        for peer in peers:
            peer.go()
        results = [peer.result() for peer in peers]
    return {
        "count": sum(result["count"] for result in results),
        "seconds": max(result["seconds"] for result in results),
        "cpu": sum(result["cpu"] for result in results),
        "server_cpu": max(result["server_cpu"] for result in results),
    }
