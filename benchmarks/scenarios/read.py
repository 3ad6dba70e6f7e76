"""The way from bytes on the socket to a message for the program."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..peers.parse import CASES
from ..place import PURE_PYTHON, parse, program, use_jsync, use_natspy
from .scenario import RATE, RATES, Bar, Column, Job, Result, Scenario, cpu, key, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..place import Place


def parse_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    for case in CASES:
        yield case, functools.partial(place.run, parse(case))


PARSE = Scenario(
    "Parsing alone, one process: messages with an ack reply",
    [
        Column("us a message", key("us")),
        Column("best", key("best")),
    ],
    parse_jobs,
    [
        Bar("parse 128 B, `Parser.feed`, us", 0.2, lambda r: r["feed, 128 B"]["us"]),
        Bar(
            "parse 128 B, through the line to the reader, us",
            0.2,
            lambda r: r["line to mailbox to reader, 128 B"]["us"],
        ),
    ],
)


FAST, SLOW = 1_000_000, 100_000


def fed(
    place: Place, command: list[str], size: int, count: int, port: int | None = None
) -> Result:
    """Run a reader, and a raw publisher in another process that is never the bottleneck."""
    port = port or place.server.port
    with place.peer(command) as reader:
        reader.await_ready()
        feeder_command = program(place.raw, "publish", port, "bench.read", size, count)
        with place.peer(feeder_command) as feeder:
            feeder.await_ready()
            reader.go()
            feeder.go()
            result = reader.result()
            feeder.result()
    return result


def read_jobs(size: int) -> Callable[[Place], Iterator[tuple[str, Job]]]:
    def jobs(place: Place) -> Iterator[tuple[str, Job]]:
        url, port = place.server.url, place.server.port
        fast = place.count(FAST if size < 1024 else FAST // 4)
        slow = place.count(SLOW if size < 16384 else SLOW // 5)

        def task(count: int) -> tuple[object, ...]:
            return "bench.read", size, count

        raw = program(place.raw, "read", port, *task(fast))
        yield "raw socket that counts", lambda: fed(place, raw, size, fast)
        peers = place.clients("read", lambda n: (url, *task(n)), fast, slow)
        for name, command in peers.items():
            count = slow if name in PURE_PYTHON else fast
            yield name, functools.partial(fed, place, command, size, count)

    return jobs


READ = Scenario(
    "Socket to message in hand, 128 B, core subscribe behind a nats-server",
    RATES,
    read_jobs(128),
    [
        Bar(
            "read 128 B, CPU a message: nats-py / jsync",
            25,
            lambda r: cpu(r["nats-py"]) / cpu(r["jsync"]),
            at_most=False,
        ),
        Bar(
            "read 128 B, rate: jsync / raw socket",
            0.8,
            lambda r: rate(r["jsync"]) / rate(r["raw socket that counts"]),
            at_most=False,
        ),
    ],
)
READ_SIZES = {
    f"read{name}": Scenario(
        f"Socket to message in hand, {text}, core subscribe behind a nats-server",
        RATES,
        read_jobs(size),
    )
    for name, text, size in (
        ("16", "16 B", 16),
        ("1k", "1 KiB", 1024),
        ("16k", "16 KiB", 16384),
    )
}


def sourced(place: Place, command: Callable[[str], list[str]], count: int) -> Result:
    """Run a reader against a process that sends prebuilt messages instead of a server."""
    with place.peer(program(place.raw, "source", 128, count)) as source:
        with place.peer(command(source.line())) as reader:
            reader.await_ready()
            reader.go()
            source.go()
            return reader.result()


def source_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    fast, slow = place.count(4 * FAST), place.count(SLOW)

    def url(port: str) -> str:
        return f"nats://127.0.0.1:{port}"

    def task(count: int) -> tuple[object, ...]:
        return "bench.read", 128, count

    def by(path: str) -> Callable[[str], list[str]]:
        return lambda port: program(path, "read", url(port), *task(fast))

    yield (
        "raw socket that counts",
        lambda: sourced(
            place, lambda p: program(place.raw, "read", p, *task(fast)), fast
        ),
    )
    yield (
        "jsync",
        lambda: sourced(place, lambda p: use_jsync("read", url(p), *task(fast)), fast),
    )
    for name, path in {"nats.c": place.natsc, "nats.go": place.natsgo}.items():
        if path is not None:
            yield name, functools.partial(sourced, place, by(path), fast)
    yield (
        "nats-py",
        lambda: sourced(place, lambda p: use_natspy("read", url(p), *task(slow)), slow),
    )


SOURCE = Scenario(
    "The same with no server between: a process that sends prebuilt messages",
    RATES,
    source_jobs,
)


def read_busy_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, fast, slow = place.server.url, place.count(FAST), place.count(SLOW // 10)
    quiet = use_jsync("read", url, "bench.read", 128, fast)
    yield "jsync, alone", lambda: fed(place, quiet, 128, fast)
    for busy in (1, 4):
        mine = use_jsync("read", url, "bench.read", 128, fast, "--busy", busy)
        yield f"jsync, {busy} busy", functools.partial(fed, place, mine, 128, fast)
    natspy = use_natspy("read", url, "bench.read", 128, slow, "--busy", 1)
    yield "nats-py, 1 busy", lambda: fed(place, natspy, 128, slow)


READ_BUSY = Scenario(
    "Delivery beside pure Python threads in the same process, 128 B",
    RATE,
    read_busy_jobs,
)
