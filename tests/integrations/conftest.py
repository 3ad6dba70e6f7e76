"""Real Celery workers, as processes, on a server of each test's own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kombu import pools

from ..support.servers import wait_for
from . import tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery import Celery

    from jsync.server import LocalServer

    from ..conftest import StartServer

SECONDS = 60
ROOT = Path(__file__).parents[2]

QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat")


class Workers:
    """Starts workers of `tests.integrations.tasks`, and ends them."""

    def __init__(self, server: LocalServer, app: Celery, ends: Any) -> None:
        self.server = server
        self.app = app
        self._ends = ends
        self._count = 0

    def start(
        self, pool: str = "solo", *arguments: str, quiet: bool = True, **env: str
    ) -> subprocess.Popen[bytes]:
        """A worker that answers pings when this returns."""
        self._count += 1
        name = f"w{self._count}@here"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "celery", "-A", "tests.integrations.tasks"),
                *("worker", "--pool", pool, "-c", "2", "-n", name, "-l", "INFO"),
                *(QUIET if quiet else ()),
                *arguments,
            ],
            cwd=ROOT,
            env=os.environ | {"TEST_URL": url(self.server)} | env,
            start_new_session=True,
        )
        self._ends.callback(self.kill, process)

        def answers() -> bool:
            assert process.poll() is None, "the worker has ended"
            inspect = self.app.control.inspect([name], timeout=0.5)
            return bool(inspect.ping())

        wait_for(answers, SECONDS)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL for the worker and the processes of its pool."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(SECONDS)

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        """A warm shutdown: its exit code."""
        process.send_signal(signal.SIGTERM)
        return process.wait(SECONDS)


def url(server: LocalServer, name: str = "") -> str:
    return server.url.replace("nats://", "jetstream://") + name


@pytest.fixture
def broker(own_server: StartServer) -> LocalServer:
    return own_server()


@pytest.fixture
def app(broker: LocalServer) -> Iterator[Celery]:
    """The app of `tasks`, on the server of this test."""
    app = tasks.make_app(url(broker))
    yield app
    app.backend.close()
    pools.reset()  # the connections that publish
    app.close()


@pytest.fixture
def workers(broker: LocalServer, app: Celery) -> Iterator[Workers]:
    with contextlib.ExitStack() as ends:
        yield Workers(broker, app, ends)
