"""Publish 336,776 flights to JetStream and consume them again: `make demo`.

The program publishes every flight that left New York in 2013 as a JSON message to
`flights.<carrier>.<origin>` in three ways, each into its own stream: one at a time on a few
threads, with many acks under way, and by fast ingest. Then it consumes all flights through a
durable consumer, acknowledges each one, and shows by `jsync top` how its lag shrinks. A worker
fails for some flights, which become dead letters and are replayed. At the end the program
compares the counts and draws a chart of the run.
"""

from __future__ import annotations

import csv
import io
import os
import sys
import threading
import zipfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, NamedTuple

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

from .top import Top
from .worker import CARRIER, replay_dead_letters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Flight = dict[str, str | int | None]


class Rate(NamedTuple):
    """A call of the demo, with its messages and its time."""

    call: str
    messages: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds


class Departure(msgspec.Struct):
    """The fields of a flight that the consumer needs. msgspec skips the others."""

    carrier: str
    dep_delay: int | None


Message = tuple[str, bytes]
"""A subject below that of the stream, and a payload."""

THREADS = 8
"""The number of threads that share one connection. Each waits for the ack of its message."""

ONE_AT_A_TIME = 20_000
"""The number of flights that are published with a wait for each ack."""


def read_flights(path: str) -> Iterator[Flight]:
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            yield {name: read_value(text) for name, text in row.items()}


def read_value(text: str) -> str | int | None:
    if text == "NA":  # the delay of a cancelled flight, for instance
        return None
    return int(text) if text.lstrip("-").isdigit() else text


def publish_each(js: jsync.JetStream, messages: Iterable[Message]) -> None:
    """Publish messages from several threads. Each call waits for its ack."""
    source, lock = iter(messages), threading.Lock()

    def publish_share() -> None:
        while True:
            with lock:
                message = next(source, None)
            if message is None:
                return
            js.publish(f"single.{message[0]}", message[1])

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(publish_share) for _ in range(THREADS)]:
            done.result()


def publish_ahead(js: jsync.JetStream, messages: Iterable[Message]) -> None:
    """Publish messages without waiting in between. The block ends when all are stored."""
    with js.publisher() as publisher:
        for subject, data in messages:
            publisher.publish(f"flights.{subject}", data)


def publish_fast(js: jsync.JetStream, messages: Iterable[Message]) -> None:
    """Publish messages by fast ingest. The block ends when all are stored, in order."""
    with js.fast_ingest() as ingest:
        for subject, data in messages:
            ingest.add(f"fast.{subject}", data)


def publish(
    js: jsync.JetStream, messages: list[Message], progress: Progress
) -> list[Rate]:
    """Publish the messages in each way, each to a new stream."""
    rates = []
    for call, name, count, way in (
        (
            f"js.publish, {THREADS} threads",
            "single",
            min(ONE_AT_A_TIME, len(messages)),
            publish_each,
        ),
        ("js.publisher", "flights", len(messages), publish_ahead),
        ("js.fast_ingest", "fast", len(messages), publish_fast),
    ):
        stream = js.create_stream(
            name=name.upper(), subjects=[f"{name}.>"], allow_batched=name == "fast"
        )
        begin = perf_counter()
        way(js, progress.track(messages[:count], description=call))
        rates.append(Rate(call, count, perf_counter() - begin))
        if stream.info().state.messages != count:
            raise SystemExit(f"{call}: the stream does not hold {count:,} flights")
    return rates


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


def show_delays(console: Console, delays: dict[str, list[int]]) -> None:
    late = sorted(
        ((sum(d) / len(d), max(d), len(d), carrier) for carrier, d in delays.items()),
        reverse=True,
    )
    table = Table(title="The five carriers with the longest departure delays")
    for column in ("carrier", "mean, minutes", "worst", "flights"):
        table.add_column(column, justify="left" if column == "carrier" else "right")
    for mean, worst, count, carrier in late[:5]:
        table.add_row(carrier, f"{mean:.1f}", f"{worst:.0f}", f"{count:,}")
    console.print(table)


def show_rates(console: Console, rates: list[Rate]) -> None:
    table = Table(title="Each message published and confirmed, or consumed and acked")
    for column in ("call", "messages", "seconds", "messages/s"):
        table.add_column(column, justify="left" if column == "call" else "right")
    for rate in rates:
        cells = f"{rate.messages:,}", f"{rate.seconds:.1f}", f"{rate.per_second:,.0f}"
        table.add_row(rate.call, *cells)
    console.print(table)


def draw_chart(
    rates: list[Rate], top: Top, title: str, directory: Path
) -> Iterator[str]:
    try:
        from .chart import draw  # noqa: PLC0415 - without matplotlib there is no chart
    except ImportError as error:
        yield f"no chart: {error}"
        return
    calls = {rate.call: rate.per_second for rate in rates}
    for path in draw(calls, top.lag, title, directory):
        yield f"chart: {path}"


def main(archive: str, directory: str) -> None:
    console = Console()
    # No context that you have selected reaches the commands.
    os.environ["XDG_CONFIG_HOME"] = str(Path(directory, "config").absolute())

    def write(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    flights = list(read_flights(archive))
    with (
        LocalServer() as server,
        jsync.connect(server.url, name="flights demo") as nc,
    ):
        title = (
            f"jsync {jsync.__version__}, nats-server {nc.server_info.version}, "
            f"{len(flights):,} flights"
        )
        write(f"{title}, at {server.url}")
        js = nc.jetstream()
        encode = msgspec.json.Encoder().encode
        messages = [
            (f"{flight['carrier']}.{flight['origin']}", encode(flight))
            for flight in flights
        ]
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        ) as progress:
            rates = publish(js, messages, progress)
            stream = js.stream("FLIGHTS")
            worker = stream.create_consumer(
                durable_name="worker", max_ack_pending=20_000
            )
            with Top(server.url, write) as top:
                delays, consumed, seconds = consume(worker, len(flights), progress)
        rates.append(Rate("consumer.fetch, msg.ack", consumed, seconds))
        info = worker.info()
        # The server counts an ack a moment after it has read it.
        for _ in range(100):
            if not info.num_ack_pending:
                break
            sleep(0.1)
            info = worker.info()
        stored = stream.info().state.messages
        of_carrier = sum(flight["carrier"] == CARRIER for flight in flights)
        lines, replayed = replay_dead_letters(nc, of_carrier)
        stored_at_the_end = stream.info().state.messages

    for line in lines:
        write(line)
    show_delays(console, delays)
    show_rates(console, rates)
    for line in draw_chart(rates, top, title, Path(directory)):
        write(line)
    write(
        f"the stream holds {stored:,} flights, and {replayed} more by the replay; the "
        f"consumer had {info.num_pending:,} left to deliver and "
        f"{info.num_ack_pending:,} without an ack"
    )
    if (
        not len(flights) == stored == consumed == stored_at_the_end - replayed
        or info.num_pending
        or info.num_ack_pending
    ):
        raise SystemExit("the counts do not agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
