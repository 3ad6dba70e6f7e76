"""Read a stream from its first message to its last with a push consumer (ADR-15)."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

import jsync

from ..place import program, use_jsync, use_natspy
from .held import held
from .jetstream import api
from .scenario import RATES, Bar, Job, Result, Scenario, cpu

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..place import Place
    from .held import Held

HELD, SLOW = 300_000, 40_000
MINE, PEER = "jsync", "nats-py"


def raw(place: Place, stream: Held) -> Result:
    """Run a socket that counts messages. The consumer is created once the socket listens."""
    name = f"c{time.monotonic_ns()}"
    subject = f"bench.push.{name}"
    config = {"name": name, "deliver_subject": subject, "ack_policy": "none"}
    task = place.server.port, subject, stream.count
    with (
        jsync.connect(place.server.url) as nc,
        place.peer(program(place.raw, "pushed", *task)) as reader,
    ):
        reader.await_ready()
        reader.go()
        where = f"{stream.name}.{name}"
        request: dict[str, object] = {"stream_name": stream.name, "config": config}
        api(nc, f"CONSUMER.CREATE.{where}", request)
        result = reader.result()
        api(nc, f"CONSUMER.DELETE.{where}", {})
    return result


def jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, stream = place.server.url, held(place, 128, place.count(HELD))
    short = held(place, 128, place.count(SLOW))

    yield "raw socket that counts", functools.partial(raw, place, stream)
    for flow, words in ((0, ""), (1, ", with flow control")):
        mine = use_jsync("push", url, stream.name, stream.count, flow)
        yield f"{MINE}{words}", functools.partial(place.run, mine)
    theirs = use_natspy("push", url, short.name, short.count, 0)
    yield PEER, functools.partial(place.run, theirs)


PUSH = Scenario(
    "A push subscription over a whole stream, 128 B, without acks",
    RATES,
    jobs,
    [Bar("push, CPU a message, us", 1.0, lambda r: cpu(r[MINE]) or 0.0)],
)
