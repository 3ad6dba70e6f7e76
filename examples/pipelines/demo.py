"""Send flights through JetStream and Spark: the last part of `make demo`, with Java.

Runs the three pipelines beside this file on its own server, one after the other. The first
writes the rows of a CSV file to a stream. The second writes that stream to Parquet by day,
and the delays by carrier and hour to another stream. The third makes a report from both. Then
the program compares the output with the input.
"""

from __future__ import annotations

import csv
import os
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from time import perf_counter

import msgspec
import pyarrow.parquet

import jsync
from jsync.server import LocalServer
from jsync.spark import pipeline

HERE = Path(__file__).parent
HOUR = tuple[str, str, int]
"""A carrier, a day and an hour."""


class Delays(msgspec.Struct):
    """The fields of a DELAYS message that this program checks."""

    carrier: str
    date: str
    hour: int
    flights: int


def count_flights(file: Path) -> Counter[HOUR]:
    with file.open(newline="") as rows:
        return Counter(
            (
                row["carrier"],
                f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}",
                int(row["hour"]),
            )
            for row in csv.DictReader(rows)
        )


def read_delays(js: jsync.JetStream) -> Counter[HOUR]:
    decode = msgspec.json.Decoder(Delays).decode
    found: Counter[HOUR] = Counter()
    with js.ordered_consumer("DELAYS").messages(until_end=True) as messages:
        for message in messages:
            hour = decode(message.data)
            found[hour.carrier, hour.date, hour.hour] += hour.flights
    return found


def main(archive: str) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="jsync-demo-") as out,
        LocalServer() as server,
        jsync.connect(server.url, name="pipelines demo") as nc,
    ):
        with zipfile.ZipFile(archive) as zipped:
            flights = Path(zipped.extract("flights.csv", out))
        os.environ.update(NATS_URL=server.url, OUT=out, FLIGHTS=str(flights))
        js = nc.jetstream()
        js.create_stream(name="FLIGHTS", subjects=["flights.>"], allow_batched=True)
        js.create_stream(name="DELAYS", subjects=["delays.>"], max_msgs_per_subject=1)

        begin = perf_counter()
        for name in ("publish", "flights", "report"):
            print(f"\n== jsync pipeline run examples/pipelines/{name}.toml", flush=True)
            code = pipeline.main(["run", str(HERE / f"{name}.toml")])
            if code:
                raise SystemExit(code)
        expected = count_flights(flights)
        table = pyarrow.parquet.read_table(f"{out}/flights", columns=["sequence"])
        if (
            not len(set(table["sequence"].to_pylist()))
            == len(table)
            == expected.total()
        ):
            raise SystemExit(f"{len(table):,} rows of {expected.total():,} in Parquet")
        if read_delays(js) != expected:
            raise SystemExit("the delays do not agree with the flights")
        print(
            f"\n{expected.total():,} flights: each once in Parquet, in "
            f"{len(list(Path(out, 'flights').glob('date=*')))} days, and each counted once in "
            f"{len(expected):,} messages of delays; {perf_counter() - begin:.0f} s"
        )


if __name__ == "__main__":
    main(sys.argv[1])
