"""Writing large messages from many tasks at once: the server's limits are kept to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync

from .sink_support import LONG, stored

if TYPE_CHECKING:
    from ..conftest import StartServer

ROWS = 240
SMALL_BUFFER = "jetstream { max_buffered_size: 3MB }"
"""What may wait to be stored: three messages of eight tasks. The rest gets error 10167."""


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("batched", [False, True])
def test_large_messages_of_many_tasks_at_once_are_all_stored_and_none_twice(
    own_server: StartServer, spark_environment: None, delivery: str, batched: bool
) -> None:
    server = own_server(config=SMALL_BUFFER)
    with jsync.connect(server.url) as nc:
        stream = nc.jetstream().create_stream(
            name="LARGE", subjects=["LARGE.>"], allow_batched=batched
        )
        job = str(Path(__file__).with_name("large_job.py"))
        done = subprocess.run(
            [sys.executable, job, server.url, "LARGE", delivery, str(ROWS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LONG,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode()[-4000:]
        found = sorted(
            int(data.partition(b" ")[0]) for (data,) in stored(stream, "data")
        )
    assert found == list(range(ROWS))
