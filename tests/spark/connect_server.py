"""The server of Spark Connect that a program with a local session starts."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDED = 600
"""The seconds in which the process of the server must end, even on a slow machine."""


@contextmanager
def connect_server(
    directory: Path, environment: dict[str, str]
) -> Iterator[dict[str, str]]:
    """Yield an environment in which Spark Connect takes a free port if 15002 is in use.

    A program that runs in it starts the server in a process beside its own. The end of the block
    stops that process and waits for its end.
    """
    discovery = directory / "connect-server.json"
    environment = {
        **environment,
        "SPARK_LOCAL_CONNECT_REUSE": "1",
        "SPARK_LOCAL_CONNECT_DISCOVERY": str(discovery),
        # The server is a daemon of Spark, for which spark.driver.memory has no effect.
        "SPARK_DAEMON_MEMORY": "1g",
    }
    try:
        yield environment
    finally:
        if discovery.exists():
            process = Path("/proc") / str(json.loads(discovery.read_text())["pid"])
            stop = [sys.executable, "-m", "pyspark.sql.connect.local_server", "--stop"]
            subprocess.run(stop, env=environment, check=True)
            wait_for(lambda: not process.exists(), ENDED)
