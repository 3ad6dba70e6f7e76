"""Tests of writing large messages from many tasks at once, within the limits of the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync.server import LocalServer

from .sink_support import LONG, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.bulk

ROWS = 240
SMALL_BUFFER = "jetstream { max_buffered_size: 3MB }"
"""A buffer for three messages, while eight tasks write. The server rejects others (10167)."""


WRITES = {
    f"{delivery}-{batched}".upper(): (delivery, batched)
    for delivery in ("at-least-once", "exactly-once")
    for batched in (False, True)
}
"""The delivery of each stream, and whether the stream supports fast ingest."""


@pytest.fixture(scope="module")
def written(spark_environment: None) -> Iterator[jsync.JetStream]:
    """All streams, written by one Spark."""
    with LocalServer(config=SMALL_BUFFER) as server, jsync.connect(server.url) as nc:
        js = nc.jetstream()
        for name, (_, batched) in WRITES.items():
            js.create_stream(name=name, subjects=[f"{name}.>"], allow_batched=batched)
        job = str(Path(__file__).with_name("large_job.py"))
        writes = [f"{name}={delivery}" for name, (delivery, _) in WRITES.items()]
        done = subprocess.run(
            [sys.executable, job, server.url, str(ROWS), *writes],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LONG,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode()[-4000:]
        yield js


@pytest.mark.parametrize("name", WRITES)
def test_large_messages_of_many_tasks_are_stored_once(
    written: jsync.JetStream, name: str
) -> None:
    found = sorted(
        int(data.partition(b" ")[0]) for (data,) in stored(written.stream(name), "data")
    )
    assert found == list(range(ROWS))
