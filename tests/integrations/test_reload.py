"""`jsync worker --reload`: a changed file is used without a restart by hand."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

import jsync

from ..cli.processes import Process
from ..support.servers import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.server import LocalServer

pytestmark = pytest.mark.server

APP = """
import jsync

app = jsync.Worker(stream="{stream}")

@app.handle("{stream}.a", consumer="w")
def handle(data: bytes) -> None:
    with open("done", "a") as done:
        done.write("{word} ")
"""


def test_changes_replace_the_processes_but_mistakes_do_not(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unique: str
) -> None:
    monkeypatch.chdir(tmp_path)
    app, done = tmp_path / "an_app.py", tmp_path / "done"
    app.write_text(APP.format(stream=unique, word="first"))
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])

        def handled_as(word: str) -> bool:
            js.publish(f"{unique}.a")
            return done.exists() and word in done.read_text().split()

        with Process(server, "worker", "an_app:app", "--reload", "-n", "2") as process:
            wait_for(lambda: handled_as("first"))
            app.write_text("import this is a mistake")
            process.await_words("ended: exit code")
            before = done.read_text().split().count("first")
            js.publish(f"{unique}.a")
            wait_for(lambda: done.read_text().split().count("first") > before)
            app.write_text(APP.format(stream=unique, word="second"))
            wait_for(lambda: handled_as("second"))
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait() == 0
        stream.delete()
