"""A worker with a fault, its dead letters, and their replay.

The worker counts the late flights of one carrier. A cancelled flight has no delay, so the
handler fails. After three attempts the flight becomes a dead letter. Then a handler without
the fault starts, and `jsync dead replay` publishes the dead letters again.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from itertools import zip_longest
from time import monotonic, sleep
from typing import TYPE_CHECKING

import msgspec

import jsync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CARRIER = "F9"
DEADLINE = 60.0
"""The seconds after which the demo fails, if the worker does not end its work."""


class Flight(msgspec.Struct):
    flight: int
    dep_delay: int | None


counts: Counter[str] = Counter()


def count_late(flight: Flight) -> None:
    if flight.dep_delay is None:
        raise ValueError(f"flight {flight.flight} has no delay")
    counts["late" if flight.dep_delay > 15 else "on time"] += 1


def count_late_or_cancelled(flight: Flight) -> None:
    if flight.dep_delay is None:
        counts["cancelled"] += 1
    else:
        count_late(flight)


@contextmanager
def run_worker(
    nc: jsync.Connection, handler: Callable[[Flight], None]
) -> Iterator[None]:
    """Run a worker with this handler. The block ends when it has handled all flights."""
    app = jsync.Worker(
        stream="FLIGHTS",
        retry=jsync.Retry(delays=[0.1], attempts=3, dead_letter="dead.flights"),
    )
    app.handle(f"flights.{CARRIER}.*", consumer="late")(handler)
    with app.start(nc):
        yield
        consumer = nc.jetstream().consumer("FLIGHTS", "late")
        deadline = monotonic() + DEADLINE
        while (info := consumer.info()).num_pending or info.num_ack_pending:
            if monotonic() > deadline:
                raise SystemExit(
                    f"flights of {CARRIER} are left after {DEADLINE:.0f} s"
                )
            sleep(0.05)


def run_command(nc: jsync.Connection, *arguments: str) -> list[str]:
    """Run `jsync` with these arguments, and return the command and its output."""
    server = ["--server", str(nc.connected_url)]
    done = subprocess.run(
        [sys.executable, "-m", "jsync", *server, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=DEADLINE,
    )
    return [f"$ jsync {' '.join(arguments)}", *aligned(done.stdout)]


def aligned(text: str) -> list[str]:
    """Return the lines of a table whose cells have tabs between them."""
    rows = [line.split("\t") for line in text.splitlines()]
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def replay_dead_letters(nc: jsync.Connection, flights: int) -> tuple[list[str], int]:
    """Handle the flights of the carrier, then replay those that became dead letters.

    Returns:
        The lines to show, and the number of flights that were published again.
    """
    dead = nc.jetstream().create_stream(name="DEAD", subjects=["dead.>"])
    logging.disable()  # hide the tracebacks of the fault
    with run_worker(nc, count_late):
        pass
    logging.disable(logging.NOTSET)
    handled, letters = counts.total(), dead.info().state.messages
    lines = run_command(nc, "dead", "ls", "DEAD")
    with run_worker(nc, count_late_or_cancelled):
        lines += run_command(nc, "dead", "replay", "DEAD", "--all", "--force")
    left = dead.info().state.messages
    if left or not handled + letters == counts.total() == flights:
        raise SystemExit(f"{counts.total()} of {flights} handled, {left} letters left")
    lines.append(
        f"{CARRIER}: {flights:,} flights handled, {letters} dead letters, all replayed: "
        + ", ".join(f"{count:,} {name}" for name, count in counts.items())
    )
    return lines, letters
