"""Read a stream into a pyarrow table, as columns from the wire and as objects."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from .held import held
from .scenario import RATES, Bar, Job, Scenario, cpu

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..place import Place

HELD = 1_000_000
COLUMNS, OBJECTS, CHEAPEST = (
    "columns",
    "objects, `metadata.timestamp`",
    "objects, `metadata.timestamp_ns`",
)


def jobs(place: Place) -> Iterator[tuple[str, Job]]:
    stream = held(place, 128, place.count(HELD))
    module = "benchmarks.peers.use_arrow"
    for title, job in (
        (COLUMNS, "columns"),
        (OBJECTS, "objects"),
        (CHEAPEST, "cheapest"),
    ):
        command = [sys.executable, "-m", module, job, stream.server.url, stream.name]
        yield title, functools.partial(place.run, command)


ARROW = Scenario(
    "A stream into a pyarrow table, 128 B",
    RATES,
    jobs,
    [
        Bar("columns, CPU a message, us", 0.25, lambda r: cpu(r[COLUMNS])),
        Bar(
            "CPU a message: objects into a table / columns",
            8,
            lambda r: cpu(r[OBJECTS]) / cpu(r[COLUMNS]),
            at_most=False,
        ),
    ],
)
