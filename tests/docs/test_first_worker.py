"""Tests of the page on the first worker: its commands do what the page says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import jsync

from ..support.servers import wait_for
from .markdown import ROOT, blocks
from .running import SECONDS, jsync_commands, run_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..conftest import StartServer

pytestmark = pytest.mark.server

PAGE = {
    block.title: block.text
    for block in blocks(ROOT / "docs/first-worker.md")
    if block.title is not None
}


@contextmanager
def working(command: str) -> Iterator[list[str]]:
    """Run the worker in the block. Its output is in the list after the block."""
    output: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-m", *command.split()], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield output
        finally:
            os.kill(process.pid, signal.SIGINT)
            output += process.communicate(timeout=SECONDS)[0].splitlines()
    assert process.returncode == 0


def run_all(title: str) -> str:
    return "".join(map(run_command, jsync_commands(PAGE[title])))


def test_the_first_worker_does_what_the_page_says(
    own_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NATS_URL", server.url)
    file = tmp_path / "billing.py"
    file.write_text(PAGE["billing.py"])
    (worker,) = jsync_commands(PAGE["worker"])
    run_all("streams")
    with jsync.connect(server.url) as nc:
        dead = nc.jetstream().stream("DEAD")
        orders = nc.jetstream().stream("ORDERS")

        def waiting() -> int:
            info = orders.consumer("billing").info()
            return info.num_pending + info.num_ack_pending

        with working(worker) as output:
            run_all("publish")
            wait_for(lambda: dead.info().state.messages == 1)
        assert output == ["billed order 1"]
        letters = run_all("letters")
        assert "ValueError: order 2 has a negative total" in letters
        assert '{"id": 2, "total": -1}' in letters

        lines = PAGE["billing.py"].splitlines(keepends=True)
        kept = [
            line for line in lines if "if order" not in line and "raise" not in line
        ]
        assert len(lines) - len(kept) == 2
        file.write_text("".join(kept))
        with working(worker) as output:
            run_all("replay")
            wait_for(lambda: dead.info().state.messages == 0)
            wait_for(lambda: waiting() == 0)
        assert output == ["billed order 2"]

        assert "\t1000\t" in run_all("orders")
        with working(worker) as output:
            wait_for(lambda: waiting() == 0)
        # The two processes may write into the middle of a line of the other one.
        billed = "".join(f"billed order {n}" for n in range(1, 1001))
        assert sorted("".join(output)) == sorted(billed)
