"""Tests of the page on Celery: a real worker runs its files with the commands of the page."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .markdown import ROOT, blocks
from .running import SECONDS, run

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import StartServer

pytestmark = pytest.mark.server

PAGE = list(blocks(ROOT / "docs/guides/celery.md"))


def test_the_worker_of_the_page_answers_its_call(
    own_server: StartServer, tmp_path: Path
) -> None:
    files = {block.title: block for block in PAGE if str(block.title).endswith(".py")}
    for name, block in files.items():
        (tmp_path / str(name)).write_text(block.text)
    (command,) = [
        block.text.split()
        for block in PAGE
        if block.language == "sh" and block.text.startswith("celery")
    ]
    url = own_server().url.replace("nats://", "jetstream://") + "/shop"
    environment = os.environ | {"BROKER": url}
    worker = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
    )
    try:
        called = subprocess.run(
            [sys.executable, "call.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(SECONDS)
    assert called.stdout == files["call.py"].output


def test_the_other_code_of_the_page_works() -> None:
    for block in PAGE:
        if block.language == "python" and block.title is None:
            assert run(block, {}) == (block.output or "")
