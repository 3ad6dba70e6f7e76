"""Eight writers of large messages at once, into one stream in files."""

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
"""Messages of a bare socket: as many as fit into the window of jsync, 8 MiB."""


def writers_jobs(place: Place) -> Iterator[tuple[str, Job]]:
    url, port = place.server.url, place.server.port
    each = place.count(100)
    task = (SUBJECT, SIZE, each)
    commands = {
        "raw sockets, prebuilt": program(place.window, port, *task, WINDOW),
        "jsync": use_jsync("publisher", url, *task, 4000, 0),
        "jsync, publish_many(10)": use_jsync("publisher", url, *task, 4000, 10),
    }
    for name, command in commands.items():
        run = functools.partial(together, place, [command] * WRITERS)
        yield name, functools.partial(filled, place, run)


WRITE_LARGE = Scenario(
    f"{WRITERS} publishers at once, 1 MB, stream in files, until the last ack",
    RATES,
    writers_jobs,
    [
        Bar(
            "8 publishers of 1 MB: jsync / raw sockets",
            0.8,
            lambda r: rate(r["jsync"]) / rate(r["raw sockets, prebuilt"]),
            at_most=False,
        )
    ],
)
