from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.server

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_what_the_readme_shows_works(own_server: StartServer) -> None:
    server: LocalServer = own_server()
    with jsync.connect(server.url) as nc:
        outputs = []
        for block in BLOCKS:
            code = block.replace("nats://127.0.0.1:4222", server.url)
            run = subprocess.run(
                [sys.executable, "-W", "error", "-c", code],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert (run.returncode, run.stderr) == (0, "")
            outputs.append(run.stdout)
            # For the blocks that read what the first has published, and acked.
            nc.jetstream().publish("orders.more", b"{}")
    first, ahead, worker, log, looked_up, batch, ingest, arrow, pushed = outputs
    assert first == "orders.new b'{\"id\": 42}' 1\n"
    assert (ahead, worker) == ("", "orders.more\n")
    last, *more, purged = looked_up.splitlines()
    assert (last, len(more), purged) == ("b'{}'", 4, "3")
    assert (batch, ingest, pushed) == ("2\n", "20000\n", "orders.more\n")
    assert arrow == "250\n500\n0\n"
    assert int(log) == len(b'{"id": 42}') + 10_000 * len(b"{}") + 3 * len(b"{}")


def test_the_readme_names_the_two_commands() -> None:
    text = README.read_text()
    assert "make demo" in text
    assert "make test" in text
