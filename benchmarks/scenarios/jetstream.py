"""Read with durable consumers of a stream: fetch, consume, and one message at a time."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import jsync

from ..place import program, use_jsync, use_natsio, use_natspy
from .scenario import LATENCIES, RATES, Bar, Job, Result, Scenario, cpu, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..place import Place

STREAM = "BENCH"
BATCH = 2000


def api(
    nc: jsync.Connection, subject: str, body: dict[str, object]
) -> dict[str, object]:
    """Send an API request directly, so that the set-up does not use the measured code."""
    reply: dict[str, object] = json.loads(
        nc.request(f"$JS.API.{subject}", json.dumps(body).encode(), timeout=30).data
    )
    if "error" in reply:
        raise RuntimeError(f"{subject}: {reply['error']}")
    return reply


def fill(place: Place, count: int) -> None:
    """Fill the stream with `count` messages of 128 bytes, in memory."""

    def held() -> int:
        state = api(nc, f"STREAM.INFO.{STREAM}", {})["state"]
        assert isinstance(state, dict)
        return int(state["messages"])

    def settled() -> int:
        before, now = -1, held()
        while now != before:
            time.sleep(0.05)
            before, now = now, held()
        return now

    with jsync.connect(place.server.url) as nc:
        streams = api(nc, "STREAM.NAMES", {}).get("streams") or []
        if isinstance(streams, list) and STREAM in streams:
            return
        api(
            nc,
            f"STREAM.CREATE.{STREAM}",
            {"name": STREAM, "subjects": ["bench.js"], "storage": "memory"},
        )
        # The server drops messages that arrive too fast for the stream. Publish until it is
        # full.
        while (missing := count - settled()) > 0:
            port, some = place.server.port, min(missing, 20_000)
            place.run(program(place.raw, "publish", port, "bench.js", 128, some))


def fetched(place: Place, command: Callable[[str], list[str]], *, ack: bool) -> Result:
    """Run a reader with a durable consumer that is created and deleted for this job."""
    consumer = f"c{time.monotonic_ns()}"
    with ExitStack() as stack:
        nc = stack.enter_context(jsync.connect(place.server.url))
        config: dict[str, object] = {
            "durable_name": consumer,
            "ack_policy": "explicit" if ack else "none",
        }
        if ack:
            config["max_ack_pending"] = 50_000
        api(
            nc,
            f"CONSUMER.DURABLE.CREATE.{STREAM}.{consumer}",
            {"stream_name": STREAM, "config": config},
        )
        stack.callback(api, nc, f"CONSUMER.DELETE.{STREAM}.{consumer}", {})
        return place.run(command(consumer))


def fetch_jobs(ack: bool) -> Callable[[Place], Iterator[tuple[str, Job]]]:
    def jobs(place: Place) -> Iterator[tuple[str, Job]]:
        url = place.server.url
        held = place.count(300_000)
        fill(place, held)
        slow = max(BATCH, place.count(40_000) // BATCH * BATCH)
        fast = max(BATCH, held // BATCH * BATCH)

        def task(consumer: str, count: int) -> tuple[object, ...]:
            return "fetch", url, STREAM, consumer, min(count, held), BATCH, int(ack)

        def job(command: Callable[[str], list[str]]) -> Job:
            return lambda: fetched(place, command, ack=ack)

        yield "jsync", job(lambda c: use_jsync(*task(c, fast)))
        if (natsc := place.natsc) is not None:
            yield "nats.c", job(lambda c: program(natsc, *task(c, fast)))
        yield "nats-py", job(lambda c: use_natspy(*task(c, slow)))

    return jobs


FETCH = Scenario(
    f"JetStream fetch({BATCH}), 128 B, no acks, stream in memory",
    RATES,
    fetch_jobs(ack=False),
)
FETCH_ACK = Scenario(
    f"JetStream fetch({BATCH}) and an ack each",
    RATES,
    fetch_jobs(ack=True),
)

# Overlapping pull requests ----------------------------------------------------------

RAW, MINE, ITERATED, FETCHED, PEER = (
    "raw socket that pulls",
    "jsync consume",
    "jsync messages",
    "jsync fetch",
    "nats-py fetch",
)
GO, ASYNC_C, FETCH_C = "nats.go Consume", "nats.c async pull", "nats.c fetch"


def consume_jobs(
    window: int, ack: bool
) -> Callable[[Place], Iterator[tuple[str, Job]]]:
    def jobs(place: Place) -> Iterator[tuple[str, Job]]:
        url, port = place.server.url, place.server.port
        held = place.count(300_000)
        fill(place, held)
        slow = max(window, place.count(40_000) // window * window)

        def job(command: Callable[[str], list[str]]) -> Job:
            return lambda: fetched(place, command, ack=ack)

        def consuming(
            consumer: str, count: int, handler: int = 1
        ) -> tuple[object, ...]:
            return "consume", url, STREAM, consumer, count, window, int(ack), handler

        def mine(handler: int) -> Job:
            return job(lambda c: use_jsync(*consuming(c, held, handler)))

        def raw(consumer: str) -> list[str]:
            task = STREAM, consumer, held, window, int(ack)
            return program(place.pull, "consume", port, *task)

        def task(consumer: str, count: int) -> tuple[object, ...]:
            return "fetch", url, STREAM, consumer, count, window, int(ack)

        yield RAW, job(raw)
        yield MINE, mine(1)
        yield ITERATED, mine(0)
        whole = held // window * window
        yield FETCHED, job(lambda c: use_jsync(*task(c, whole)))
        if (natsgo := place.natsgo) is not None:
            yield GO, job(lambda c: program(natsgo, *consuming(c, held)))
            yield (
                "nats.go Messages",
                job(lambda c: program(natsgo, *consuming(c, held, handler=0))),
            )
            yield "nats.go Fetch", job(lambda c: program(natsgo, *task(c, whole)))
        if (natsc := place.natsc) is not None:
            yield ASYNC_C, job(lambda c: program(natsc, *consuming(c, held)))
            yield FETCH_C, job(lambda c: program(natsc, *task(c, whole)))
        if (natsio := place.natsio) is not None:
            yield (
                "natsio consume",
                job(lambda c: use_natsio(natsio, *consuming(c, slow))),
            )
        yield PEER, job(lambda c: use_natspy(*task(c, slow)))

    return jobs


def consume(window: int, *, ack: bool) -> Scenario:
    what = f"consume {'and ack ' if ack else ''}by {window}"
    bars = [
        Bar(
            f"{what}, rate: jsync / raw socket",
            0.9 if ack else 0.95,
            lambda r: rate(r[MINE]) / rate(r[RAW]),
            at_most=False,
        ),
        Bar(
            f"{what}, CPU a message: jsync / nats.c fetch",
            0.8 if ack else 0.6,
            lambda r: cpu(r[MINE]) / cpu(r[FETCH_C]),
        ),
        Bar(
            f"{what}, CPU a message: jsync / nats.c async pull",
            0.8 if ack else 0.6,
            lambda r: cpu(r[MINE]) / cpu(r[ASYNC_C]),
        ),
        Bar(
            f"{what}, rate: jsync / nats-py",
            8,
            lambda r: rate(r[MINE]) / rate(r[PEER]),
            at_most=False,
        ),
    ]
    if not ack:
        bars += [
            Bar(
                f"{what}, rate: jsync / nats.c fetch",
                1.3,
                lambda r: rate(r[MINE]) / rate(r[FETCH_C]),
                at_most=False,
            ),
            Bar(
                f"{what}, rate: jsync / nats.go Consume",
                1.0,
                lambda r: rate(r[MINE]) / rate(r[GO]),
                at_most=False,
            ),
            Bar(
                f"{what}, CPU a message: jsync / nats.go Consume",
                1.0,
                lambda r: cpu(r[MINE]) / cpu(r[GO]),
            ),
        ]
        bars.append(
            Bar(
                f"{what}, CPU a message: nats-py / jsync",
                25,
                lambda r: cpu(r[PEER]) / cpu(r[MINE]),
                at_most=False,
            )
        )
    if window == 500:
        bars.append(
            Bar(
                f"{what}, rate: fetch / consume",
                0.8,
                lambda r: rate(r[FETCHED]) / rate(r[MINE]),
                at_most=False,
            )
        )
    return Scenario(
        f"JetStream {what}, 128 B, stream in memory",
        RATES,
        consume_jobs(window, ack),
        bars,
    )


CONSUME = {
    f"consume{'ack' if ack else ''}{window}": consume(window, ack=ack)
    for ack in (False, True)
    for window in (500, 5000)
}

# One message per pull request -------------------------------------------------------

NEXT_C = "nats.c fetch(1)"


def next_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, port = place.server.url, place.server.port
    fill(place, place.count(300_000))
    count = place.count(20_000)

    def job(command: Callable[[str], list[str]]) -> Job:
        return lambda: fetched(place, command, ack=False)

    yield RAW, job(lambda c: program(place.pull, "next", port, STREAM, c, count))
    yield (
        # As in jsync, so that a late status is not mistaken for the status of another pull
        # request.
        "raw socket, a reply subject for each",
        job(lambda c: program(place.pull, "next", port, STREAM, c, count, 1)),
    )
    yield "jsync next", job(lambda c: use_jsync("next", url, STREAM, c, count))
    if (natsgo := place.natsgo) is not None:
        yield (
            "nats.go Next",
            job(lambda c: program(natsgo, "next", url, STREAM, c, count)),
        )
    if (natsc := place.natsc) is not None:
        yield NEXT_C, job(lambda c: program(natsc, "next", url, STREAM, c, count))
    if (natsio := place.natsio) is not None:
        yield (
            "natsio next",
            job(lambda c: use_natsio(natsio, "next", url, STREAM, c, count // 4)),
        )
    yield (
        "nats-py fetch(1)",
        job(lambda c: use_natspy("next", url, STREAM, c, count // 4)),
    )


NEXT = Scenario(
    "JetStream, one message a pull, 128 B, stream in memory",
    LATENCIES,
    next_jobs,
    [
        Bar(
            "next p50: jsync / raw pull of one",
            1.2,
            lambda r: r["jsync next"]["latency_p50"] / r[RAW]["latency_p50"],
        ),
        Bar(
            "next p50: jsync / nats.c",
            1.0,
            lambda r: r["jsync next"]["latency_p50"] / r[NEXT_C]["latency_p50"],
        ),
        Bar(
            "next p99: jsync / nats.c",
            1.5,
            lambda r: r["jsync next"]["latency_p99"] / r[NEXT_C]["latency_p99"],
        ),
    ],
)
