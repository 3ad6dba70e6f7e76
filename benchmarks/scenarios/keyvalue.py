"""Key-value buckets: one key at a time, many keys, all keys, and a live copy."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jsync

from ..place import use_jsync
from .request import p50_ratio
from .scenario import LATENCIES, RATES, Bar, Column, Job, Scenario, cpu, key, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ..place import Place

SIZE = 128
MANY = 1000
HELD, SLOW = 100_000, 20_000
ALL_KEYS = 1_000_000


def bucket(
    place: Place,
    count: int,
    *,
    storage: str = "memory",
    server: LocalServer | None = None,
) -> str:
    """Return the name of a bucket with this number of keys, filled when first needed."""
    name = f"BENCH-{storage}-{count}"
    with jsync.connect((server or place.server).url) as nc:
        js = nc.jetstream()
        if name in js.key_value_names():
            return name
        js.create_key_value(bucket=name, storage=storage)
        with js.publisher() as publisher:
            for number in range(count):
                publisher.publish(f"$KV.{name}.key.{number}", b"x" * SIZE)
    return name


def put_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    name, count = bucket(place, 0, storage="file"), place.count(5000)
    url = place.server.url
    peers = place.clients("kvput", lambda n: (url, name, SIZE, n), count, count)
    for client, command in peers.items():
        yield client, functools.partial(place.run, command)


KV_PUT = Scenario(
    f"Key-value: put, one at a time, {SIZE} B, bucket in files",
    LATENCIES,
    put_jobs,
    [
        Bar("put p50: jsync / nats.go", 1.0, p50_ratio("nats.go")),
        Bar("put p50: jsync / nats-py", 0.6, p50_ratio("nats-py")),
    ],
)


def get_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    name, count = bucket(place, place.count(HELD)), place.count(5000)
    url, keys = place.server.url, place.count(MANY)
    peers = place.clients("kvget", lambda n: (url, name, keys, n), count, count)
    for client, command in peers.items():
        yield client, functools.partial(place.run, command)


KV_GET = Scenario(
    f"Key-value: get, one at a time, {SIZE} B, bucket of {HELD:,} keys in memory",
    LATENCIES,
    get_jobs,
    [
        Bar("get p50: jsync / nats.go", 1.0, p50_ratio("nats.go")),
        Bar("get p50: jsync / nats-py", 0.6, p50_ratio("nats-py")),
    ],
)


def many_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    held = place.count(HELD)
    name, keys = bucket(place, held), min(MANY, held)
    task = place.server.url, name, keys, place.count(200) * keys
    yield "jsync", functools.partial(place.run, use_jsync("kvmany", *task))


KV_MANY = Scenario(
    f"Key-value: {MANY} keys at once, {SIZE} B, bucket in memory, and keys one by one "
    "in between",
    [*RATES[:2], Column("times the rate of get", key("times"))],
    many_jobs,
    [
        Bar(
            f"{MANY} keys, rate: get_many / get",
            10,
            lambda r: r["jsync"]["times"],
            at_most=False,
        )
    ],
)


def keys_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, large = place.large.url, place.count(ALL_KEYS)
    held, some = place.count(HELD), place.count(SLOW)
    names = {
        count: bucket(place, count, server=place.large) for count in (large, held, some)
    }
    peers = place.clients("kvkeys", lambda n: (url, names[n], n, 1), large, some)
    fewer = use_jsync("kvkeys", url, names[held], held, 5)
    yield "jsync", functools.partial(place.run, peers.pop("jsync"))
    yield f"jsync, {HELD:,}", functools.partial(place.run, fewer)
    for client, command in peers.items():
        yield client, functools.partial(place.run, command)


KV_KEYS = Scenario(
    f"Key-value: the keys of a bucket, {ALL_KEYS:,} in memory; in pure Python {SLOW:,}",
    [*RATES, Column("peak MiB", key("peak_mib"))],
    keys_jobs,
    [
        Bar(
            f"keys, peak memory: {ALL_KEYS:,} to {HELD:,}",
            1.1,
            lambda r: r["jsync"]["peak_mib"] / r[f"jsync, {HELD:,}"]["peak_mib"],
        ),
        Bar(
            "keys, CPU a key: jsync / nats.go",
            1.0,
            lambda r: cpu(r["jsync"]) / cpu(r["nats.go"]),
        ),
    ],
)


def watch_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, held, some = place.server.url, place.count(HELD), place.count(SLOW)
    names = {count: bucket(place, count) for count in (held, some)}
    ordered = use_jsync("kvordered", url, names[held], held, 5)
    yield ORDERED, functools.partial(place.run, ordered)
    peers = place.clients(
        "kvwatch", lambda n: (url, names[n], n, 5 if n == held else 1), held, some
    )
    for client, command in peers.items():
        yield client, functools.partial(place.run, command)


ORDERED = "jsync, ordered consumer"

KV_WATCH = Scenario(
    f"Key-value: a watch to the end of {HELD:,} initial entries, {SIZE} B; in pure Python "
    f"{SLOW:,}",
    RATES,
    watch_jobs,
    [
        Bar(
            "watch, CPU an entry above an ordered read, us",
            0.5,
            lambda r: cpu(r["jsync"]) - cpu(r[ORDERED]),
        ),
        Bar(
            "watch, rate: to an ordered read",
            0.95,
            lambda r: rate(r["jsync"]) / rate(r[ORDERED]),
            at_most=False,
        ),
        Bar(
            "watch, CPU an entry: jsync / nats.go",
            1.0,
            lambda r: cpu(r["jsync"]) / cpu(r["nats.go"]),
        ),
    ],
)


def live_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, held = place.server.url, place.count(HELD)
    command = use_jsync("kvlive", url, bucket(place, held), held, place.count(500_000))
    yield "jsync", functools.partial(place.run, command)


KV_LIVE = Scenario(
    f"Key-value: a live view of {HELD:,} keys, {SIZE} B: made, and read key by key",
    [
        Column("us a read of 1000 keys", key("read")),
        Column("us a read of all keys", key("read_every")),
        Column("the same of a dict", key("dict_every")),
        Column("bytes a key", key("each")),
        *RATES[:2],
    ],
    live_jobs,
    [Bar("live view, us a read of 1000 keys", 0.3, lambda r: r["jsync"]["read"])],
)
