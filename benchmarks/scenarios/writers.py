"""Eight threads write large messages at once, into one stream in files."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..place import program, use_jsync
from .held import together
from .scenario import RATES, Bar, Job, Scenario, rate
from .stream import SUBJECT, filled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..place import Place

WRITERS = 8
SIZE = 1_000_000
WINDOW = 8
"""The number of messages of a bare socket that fit into the window of jsync, 8 MiB."""
FLOW, OUTSTANDING = 4, 2
"""The flow of a fast ingest with that window. jsync chooses it automatically."""


def writers_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, port = place.server.url, place.server.port
    each = place.count(100)
    task = (SUBJECT, SIZE, each)
    commands = {
        "raw sockets, prebuilt": program(place.window, port, *task, WINDOW),
        "jsync": use_jsync("publisher", url, *task, 4000, 0),
        "jsync, publish_many(10)": use_jsync("publisher", url, *task, 4000, 10),
        "raw sockets, fast ingest": program(
            place.batch, port, *task, FLOW, OUTSTANDING
        ),
        "jsync, fast ingest": use_jsync("ingest", url, *task, 1000, OUTSTANDING, 0),
    }
    for name, command in commands.items():
        run = functools.partial(together, place, [command] * WRITERS)
        yield name, functools.partial(filled, place, run)


WRITE_LARGE = Scenario(
    f"{WRITERS} writers at once, 1 MB, stream in files, until all is stored",
    RATES,
    writers_jobs,
    [
        Bar(
            "8 publishers of 1 MB: jsync / raw sockets",
            0.8,
            lambda r: rate(r["jsync"]) / rate(r["raw sockets, prebuilt"]),
            at_most=False,
        ),
        Bar(
            "8 fast ingests of 1 MB: jsync / raw sockets",
            0.8,
            lambda r: (
                rate(r["jsync, fast ingest"]) / rate(r["raw sockets, fast ingest"])
            ),
            at_most=False,
        ),
    ],
)
