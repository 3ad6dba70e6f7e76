"""Tests of the page on workers: `jsync worker` runs its file with the commands of the page."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

import jsync

from ..support.servers import free_port, wait_for
from .markdown import ROOT, blocks
from .running import SECONDS, jsync_commands, run, run_command

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import StartServer

pytestmark = pytest.mark.server

PAGE = list(blocks(ROOT / "docs/guides/worker.md"))
IN_PRODUCTION = list(blocks(ROOT / "docs/guides/worker-production.md"))


def code_of(url: str) -> int:
    with contextlib.suppress(OSError), urllib.request.urlopen(url) as answer:
        return int(answer.status)
    return 0


def test_the_worker_of_the_page_works(
    own_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NATS_URL", server.url)
    (billing,) = [block for block in PAGE if block.title == "billing.py"]
    (tmp_path / "billing.py").write_text(billing.text)
    (shell,) = [block for block in PAGE if block.language == "sh"]
    *others, command = jsync_commands(shell.text)
    for other in others:
        run_command(other)
    port = free_port()
    words = command.replace("8080", str(port)).split()
    with (
        subprocess.Popen(
            [sys.executable, "-u", "-m", *words], stdout=subprocess.PIPE, text=True
        ) as process,
        jsync.connect(server.url) as nc,
    ):
        wait_for(lambda: code_of(f"http://127.0.0.1:{port}/readyz") == 200)
        js = nc.jetstream()
        js.publish("orders.paid", b'{"id": 7, "amount": 12.5}')
        js.publish("orders.paid", b"nonsense")
        wait_for(lambda: js.stream("DEAD").info().state.messages == 1)
        os.kill(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert output == "7: 12.50\n"


def test_the_other_code_of_the_page_works(own_server: StartServer) -> None:
    urls = {"nats://127.0.0.1:4222": own_server().url}
    for block in PAGE:
        if block.language == "python" and block.title is None:
            assert run(block, urls) == (block.output or "")


def test_systemd_waits_longer_than_the_worker() -> None:
    (text,) = [
        block.text for block in IN_PRODUCTION if block.title == "billing.service"
    ]
    assert "TimeoutStopSec=40" in text
    assert "30" in text.partition("--grace")[2][:6]
