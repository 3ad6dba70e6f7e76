"""Tests that every program in `examples/` runs and prints the expected lines."""

from __future__ import annotations

import contextlib
import csv
import operator
import os
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync.errors import NotFoundError
from jsync.server import LocalServer

from ..support.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server

EXAMPLES = Path(__file__).parents[2] / "examples"
FLIGHTS = Path(__file__).parents[1] / "cli" / "flights.csv"


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """A server for all examples. Each example uses other streams."""
    with LocalServer() as server:
        yield server


def start(server: LocalServer, name: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-W", "error", str(EXAMPLES / name)),
            *(str(argument) for argument in arguments),
        ],
        env=os.environ | {"NATS_URL": server.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(server: LocalServer, name: str, *arguments: object) -> list[str]:
    """Run an example, check that it succeeds, and return the lines of its output."""
    with start(server, name, *arguments) as process:
        try:
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")
    return output.splitlines()


def test_a_worker_retries_failures_and_keeps_broken_messages(
    server: LocalServer,
) -> None:
    lines = run(server, "worker.py", "--once")
    assert sorted(lines) == [
        "dead letter: hello",
        "order 1: charged 9.50",
        "order 2: charged 19.00",
        "order 2: the bank does not answer, attempt 1",
        "order 3: charged 28.50",
    ]
    with jsync.connect(server.url) as nc:
        worker = nc.jetstream().stream("ORDERS").consumer("charging")
        assert (worker.info().num_ack_pending, worker.info().num_pending) == (0, 0)


def test_a_terminated_worker_finishes_messages_it_has_begun(
    server: LocalServer,
) -> None:
    with jsync.connect(server.url) as nc, start(server, "worker.py") as process:
        js = nc.jetstream()

        def acked() -> int:
            with contextlib.suppress(NotFoundError):
                return js.consumer("ORDERS", "charging").info().ack_floor.stream_seq
            return 0

        try:
            wait_for(lambda: "ORDERS" in list(js.stream_names()))
            last = js.publish("orders.new", b'{"id": 7, "amount": 1}').seq
            wait_for(lambda: acked() == last)
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")
    assert "order 7: charged 1.00" in output


def test_tasks_are_queued_and_done(server: LocalServer) -> None:
    with pytest.raises(TypeError) as error:
        operator.add(1, "two")
    assert run(server, "tasks.py", "--once") == [
        "5",
        "Hello NATS",
        str({"error": repr(error.value)}),
    ]
    with jsync.connect(server.url) as nc:
        assert nc.jetstream().stream("TASKS").cached_info.state.messages == 0


def test_a_csv_file_is_ingested_once_however_often(server: LocalServer) -> None:
    rows = csv.DictReader(FLIGHTS.read_text().splitlines())
    united = Counter(row["origin"] for row in rows if row["carrier"] == "UA")
    expected = [
        "200 rows sent",
        "200 stored; of United by airport:",
        *(f"  flights.UA.{origin} {united[origin]}" for origin in sorted(united)),
    ]
    for _ in range(2):
        assert run(server, "ingest_csv.py", FLIGHTS) == expected


def test_a_stream_is_read_as_a_log(server: LocalServer) -> None:
    assert run(server, "ordered_read.py") == [
        "readings.0: 334 readings, 499.5 on average",
        "readings.1: 333 readings, 499.0 on average",
        "readings.2: 333 readings, 500.0 on average",
        "later: {'readings.0': [42.0]}, go on from 1002",
    ]


def test_a_service_answers(server: LocalServer) -> None:
    assert run(server, "service.py", "--once") == [
        "Answer(mean=3.0)",
        "rejected: no numbers",
        "2 requests, 1 errors",
        "the service has stopped",
    ]


def test_a_subjects_last_message_is_a_keys_value(
    server: LocalServer,
) -> None:
    assert run(server, "last_values.py") == [
        "another program was faster: b'off'",
        "watched: lamp.kitchen=on, lamp.hall=on, lamp.hall=off",
        "all: {'lamp.kitchen': b'on', 'lamp.hall': b'off'}",
        "history of the hall: [b'on', b'off']",
        "deleted: (None, 0)",
    ]


def test_trades_are_atomic(server: LocalServer) -> None:
    done, total = run(server, "order_book.py")
    trades = int(done.split()[0])
    assert 0 < trades <= 30
    assert done == f"{trades} trades done, {trades} in the book"
    assert total == "300 in all accounts together"


def test_the_demo_of_flights_ends_with_a_chart(tmp_path: Path) -> None:
    header, *lines = FLIGHTS.read_text().splitlines()
    columns = header.split(",")
    at = columns.index("carrier"), columns.index("dep_delay")
    rows = [line.split(",") for line in lines]
    for number, row in enumerate(rows[:30]):
        row[at[0]] = "F9"  # the carrier whose flights the worker handles
        row[at[1]] = str(number) if number % 10 else "NA"
    archive = tmp_path / "flights.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        text = "\n".join([header, *(",".join(row) for row in rows)])
        zipped.writestr("flights.csv", text)
    done = subprocess.run(
        [*(sys.executable, "-m", "examples.flights"), str(archive), str(tmp_path)],
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    of_carrier = sum(row[at[0]] == "F9" for row in rows)
    count = f"{len(rows):,}"
    output = done.stdout
    assert f"lag {count}, 0 unacked" in output
    assert output.count("ValueError: flight") == 3
    assert f"{of_carrier} flights handled, 3 dead letters, all replayed" in output
    assert f"the stream holds {count} flights, and 3 more by the replay" in output
    for suffix in ("svg", "png"):
        assert (tmp_path / f"flights.{suffix}").stat().st_size > 5_000


def test_every_example_is_run() -> None:
    # tests/spark runs the pipelines.
    here = Path(__file__).read_text()
    examples = {path.name for path in EXAMPLES.glob("*.py")}
    assert {name for name in examples if f'"{name}"' not in here} == set()
