"""Consumer groups: the rate by number of members, and the pause after a change."""

from __future__ import annotations

import functools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import jsync

from ..place import use_jsync
from .held import together
from .scenario import RATES, Bar, Column, Job, Result, Scenario, key, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..place import Place

KEYS = 1000
PARTITIONS = 24
WORK = 1000
"""The time in microseconds that the handler sleeps."""


@contextmanager
def grouped(place: Place, count: int, members: list[str]) -> Iterator[str]:
    """Yield the name of a stream with `count` messages, all copied to its group `g`."""
    name = f"G{time.monotonic_ns()}"
    with jsync.connect(place.server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[f"{name}.*"], storage="memory")
        group = js.create_consumer_group(
            name,
            "g",
            partitions=PARTITIONS,
            filters={f"{name}.*": [1]},
            members=members,
        )
        with js.publisher() as publisher:
            for number in range(count):
                publisher.publish(f"{name}.{number % KEYS}", b"x" * 128)
        while sum(group.lag().values()) < count:
            time.sleep(0.1)
        yield name
        js.delete_consumer_group(name, "g")
        js.delete_stream(name)


def shared(place: Place, count: int, members: int) -> Result:
    names = [f"m{number}" for number in range(members)]
    with grouped(place, count, names) as stream:
        commands = [
            use_jsync("member", place.server.url, stream, name, WORK) for name in names
        ]
        return together(place, commands)


def shares(place: Place) -> Iterator[tuple[str, Job]]:
    count = place.count(4000)
    for members in (1, 2, 4, 8):
        yield f"{members} members", functools.partial(shared, place, count, members)


GROUP = Scenario(
    "A consumer group, a process for each member, the handler sleeps for 1 ms",
    RATES,
    shares,
    [
        Bar(
            "rate: 4 members to 1",
            3.0,
            lambda r: rate(r["4 members"]) / rate(r["1 members"]),
            at_most=False,
        )
    ],
)


def changed(place: Place, count: int, changes: int) -> Result:
    names = ["m0", "m1", "m2"]
    with grouped(place, count, names) as stream:
        return place.run(use_jsync("regroup", place.server.url, stream, WORK, changes))


def changes_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    yield (
        "add and drop of a fourth member",
        functools.partial(changed, place, place.count(40_000), 10),
    )


def milliseconds(name: str) -> Column:
    return Column(
        f"{name.replace('_', ' ')}, ms", lambda result: result[f"{name}"] / 1000
    )


REGROUP = Scenario(
    "A consumer group under load: from a change until its partitions are read again",
    [
        *(milliseconds("add_p50"), milliseconds("add_p99")),
        *(milliseconds("drop_p50"), milliseconds("drop_p99")),
        Column("changes", key("changes")),
    ],
    changes_jobs,
)
