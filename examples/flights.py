"""Publish 336,776 flights to JetStream and consume them again: `make demo`.

The program publishes every flight that left New York in 2013 as a JSON message to
`flights.<carrier>.<origin>` and waits for the ack of the stream. Then it consumes all flights
through a durable consumer and acknowledges each one.
"""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import jsync
from jsync.server import LocalServer

if TYPE_CHECKING:
    from collections.abc import Iterator

Flight = dict[str, str | int | None]


class Departure(msgspec.Struct):
    """The fields of a flight that the consumer needs. msgspec skips the others."""

    carrier: str
    dep_delay: int | None


PUBLISHERS = 8
"""The number of threads that share one connection. Each waits for the ack of its message."""


def read_flights(path: str) -> Iterator[Flight]:
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            yield {name: read_value(text) for name, text in row.items()}


def read_value(text: str) -> str | int | None:
    if text == "NA":  # the delay of a cancelled flight, for instance
        return None
    return int(text) if text.lstrip("-").isdigit() else text


def publish(js: jsync.JetStream, flights: list[Flight], progress: Progress) -> float:
    """Publish every flight, wait until each is stored, and return the seconds it took."""
    task = progress.add_task("publishing", total=len(flights))
    encode = msgspec.json.Encoder().encode

    def publish_share(share: Iterator[Flight]) -> None:
        for flight in share:
            js.publish(
                f"flights.{flight['carrier']}.{flight['origin']}", encode(flight)
            )
            progress.advance(task)

    begin = perf_counter()
    with ThreadPoolExecutor(PUBLISHERS) as pool:
        shares = [islice(flights, i, None, PUBLISHERS) for i in range(PUBLISHERS)]
        for done in [pool.submit(publish_share, share) for share in shares]:
            done.result()
    return perf_counter() - begin


def consume(
    worker: jsync.Consumer, count: int, progress: Progress
) -> tuple[dict[str, list[int]], int, float]:
    """Fetch and ack every flight.

    Returns:
        The departure delays by carrier, the number of flights and the seconds it took.
    """
    task = progress.add_task("consuming", total=count)
    decode = msgspec.json.Decoder(Departure).decode
    delays: dict[str, list[int]] = defaultdict(list)
    consumed = 0
    begin = perf_counter()
    while consumed < count:
        before = consumed
        # A fetch of more messages than there are left would wait until its timeout.
        with worker.fetch(min(5000, count - consumed), timeout=10) as batch:
            for msg in batch:
                flight = decode(msg.data)
                if flight.dep_delay is not None:  # the flight was not cancelled
                    delays[flight.carrier].append(flight.dep_delay)
                msg.ack()
                consumed += 1
        progress.update(task, completed=consumed)
        if consumed == before:
            raise SystemExit(f"only {consumed} of {count} flights came back")
    return delays, consumed, perf_counter() - begin


def main(path: str) -> None:
    console = Console()
    flights = list(read_flights(path))
    with (
        LocalServer() as server,
        jsync.connect(server.url, name="flights demo") as nc,
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        ) as progress,
    ):
        console.print(
            f"jsync {jsync.__version__}, nats-server {nc.server_info.version} "
            f"at {server.url}, {len(flights):,} flights"
        )
        js = nc.jetstream()
        stream = js.create_stream(name="FLIGHTS", subjects=["flights.>"])
        published_in = publish(js, flights, progress)
        worker = stream.create_consumer(durable_name="worker", max_ack_pending=20_000)
        delays, consumed, consumed_in = consume(worker, len(flights), progress)
        nc.flush()  # wait until the server has read the last acks
        stored = stream.info().state.messages
        info = worker.info()

    late = sorted(
        ((sum(d) / len(d), max(d), len(d), carrier) for carrier, d in delays.items()),
        reverse=True,
    )
    table = Table(title="The ten carriers with the longest departure delays")
    for column in ("carrier", "mean, minutes", "worst", "flights"):
        table.add_column(column, justify="left" if column == "carrier" else "right")
    for mean, worst, count, carrier in late[:10]:
        table.add_row(carrier, f"{mean:.1f}", f"{worst:.0f}", f"{count:,}")
    console.print(table)
    console.print(
        f"published {len(flights):,} in {published_in:.1f} s "
        f"({len(flights) / published_in:,.0f}/s, each confirmed by the stream)\n"
        f"consumed  {consumed:,} in {consumed_in:.1f} s "
        f"({consumed / consumed_in:,.0f}/s, each acked)\n"
        f"the stream holds {stored:,}; the consumer has {info.num_pending:,} left "
        f"to deliver and {info.num_ack_pending:,} without an ack"
    )
    if (
        not len(flights) == stored == consumed
        or info.num_pending
        or info.num_ack_pending
    ):
        raise SystemExit("the counts do not agree")


if __name__ == "__main__":
    main(sys.argv[1])
