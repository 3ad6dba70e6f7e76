"""Tests that SIGKILLs of the server, of the supervisor and of its processes lose no message."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ..servers import free_port, wait_for

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.server

KILLS = int(os.environ.get("JSYNC_FAULT_KILLS", "20"))
"""The number of kills of each kind."""
BATCH = 60
"""The number of messages between two kills. One in ten fails every time."""

APP = """
import jsync

app = jsync.Worker(stream="JOBS")
retry = jsync.Retry(
    delays=[0.05], attempts=2, deliveries=10_000, dead_letter="dead.jobs"
)

@app.handle("jobs.*", consumer="w", workers=3, ack_wait=1, retry=retry)
def handle(data: bytes) -> None:
    with open("done", "ab", buffering=0) as done:
        done.write(data + b"\\n")
    if data.endswith(b"0"):
        raise LookupError(data)
"""


def children(process: subprocess.Popen[bytes]) -> list[int]:
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as found:
        return [int(pid) for pid in found.read().split()]


class Campaign:
    """A server, a worker of two processes, and a publisher that retries forever."""

    def __init__(self, server: LocalServer, nc: jsync.Connection) -> None:
        self.server = server
        self.js = nc.jetstream()
        self.published = 0
        self.port = free_port()
        self.start()

    def start(self) -> None:
        # Log to a file, because a full pipe without a reader would stop the worker.
        with open("log", "ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "jsync", "--server", self.server.url),
                    *("worker", "an_app:app", "-n", "2"),
                    *("--http", f"127.0.0.1:{self.port}"),
                ],
                stderr=log,
            )

    def end(self) -> None:
        """Kill the supervisor."""
        self.process.kill()
        self.process.wait()

    def publish(self) -> None:
        for number in range(self.published, self.published + BATCH):
            while True:
                try:
                    self.js.publish(
                        "jobs.a", b"%d" % number, msg_id=str(number), timeout=2
                    )
                    break
                except errors.Error:
                    continue
        self.published += BATCH

    def kill(self, which: str) -> None:
        match which:
            case "server":
                self.server.kill()
                self.server.start()
            case "supervisor":
                self.end()
                self.start()
            case "process":
                pid = children(self.process)[0]
                os.kill(pid, signal.SIGKILL)
                wait_for(lambda: f"process {pid} has ended" in Path("log").read_text())

    def is_ready(self) -> bool:
        """Return whether both processes are ready. A kill before that counts as a crash loop."""
        url = f"http://127.0.0.1:{self.port}/readyz"
        try:
            with urllib.request.urlopen(url) as found:
                return bool(found.status == 200)
        except OSError:
            return False

    def is_settled(self) -> bool:
        try:
            info = self.js.consumer("JOBS", "w").info(timeout=2)
        except errors.Error:
            return False
        return info.num_pending == info.num_ack_pending == 0


@pytest.mark.fault
@pytest.mark.parametrize("kinds", [["server"], ["supervisor"], ["process"], ["all"]])
def test_each_message_is_handled_and_each_failure_is_kept_once(
    own_server: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kinds: list[str],
) -> None:
    (tmp_path / "an_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    server = own_server(store_dir=tmp_path / "store")
    with jsync.connect(server.url, reconnect_wait=0.1) as nc:
        js = nc.jetstream()
        js.create_stream(name="JOBS", subjects=["jobs.*"])
        js.create_stream(name="DEAD", subjects=["dead.*"])
        campaign = Campaign(server, nc)
        try:
            each = ["server", "supervisor", "process"] if kinds == ["all"] else kinds
            for number in range(KILLS):
                kind = each[number % len(each)]
                if kind == "process":
                    wait_for(campaign.is_ready)
                campaign.publish()
                campaign.kill(kind)
            campaign.publish()
            wait_for(campaign.is_settled, 120)
            count = campaign.published
            done = {*map(int, (tmp_path / "done").read_text().split())}
            assert done == {*range(count)}
            jobs, info = js.stream("JOBS").info(), js.consumer("JOBS", "w").info()
            assert jobs.state.messages == count
            assert info.ack_floor.stream_seq == jobs.state.last_seq
            letters = [
                int(msg.data)
                for msg in js.stream("DEAD").ordered_consumer().messages(until_end=True)
            ]
            assert sorted(letters) == [*range(0, count, 10)]
            os.kill(campaign.process.pid, signal.SIGTERM)
            assert campaign.process.wait() == 0
        finally:
            campaign.end()
