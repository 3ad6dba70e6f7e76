"""Where the jobs run: servers, processes, and what machine this is."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import jsync
from jsync.server import LocalServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from .peers.build import Programs

REPOSITORY = Path(__file__).parent.parent

# A reader that is slower than the publisher must not be cut off as a slow consumer.
SERVER = 'max_pending: 4GB\nwrite_deadline: "120s"\n'


class PeerError(Exception):
    """A peer did not do its job."""


class Peer:
    """A process that speaks as `bench.h` says."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )

    def line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(self._failure())
        return line.strip()

    def _failure(self) -> str:
        _, errors = self._process.communicate(timeout=10)
        told = errors.strip().splitlines()[-1:] or [f"exit {self._process.returncode}"]
        return f"{' '.join(self.command[-8:])}: {told[0]}"

    def await_ready(self) -> None:
        line = self.line()
        if line != "ready":
            raise PeerError(f"{self.command}: {line}")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, float]:
        found: dict[str, float] = json.loads(self.line())
        return found

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        with self._process:
            pass


class Place:
    """The servers, started when first asked for, and ended with the block."""

    def __init__(self, programs: Programs, scale: float) -> None:
        self.raw = str(programs.raw)
        self.pull = str(programs.pull)
        self.window = str(programs.window)
        self.batch = str(programs.batch)
        self.atomic = str(programs.atomic)
        self.natsc = str(programs.natsc) if programs.natsc else None
        self._scale = scale
        self._stack = ExitStack()
        self._load = os.getloadavg()[0]
        self.failures: dict[str, str] = {}
        """Jobs that a peer could not do, and why; the other rounds still count."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def count(self, wanted: int) -> int:
        return max(100, int(wanted * self._scale))

    @functools.cached_property
    def server(self) -> LocalServer:
        return self._stack.enter_context(LocalServer(config=SERVER))

    @functools.cached_property
    def directory(self) -> Path:
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory()))

    @functools.cached_property
    def tls(self) -> tuple[LocalServer, str]:
        """A server that offers TLS, and the file of the authority to trust."""
        # Its certificates are those of the tests, which need `cryptography`.
        from tests.certificates import make_certificates  # noqa: PLC0415

        made = make_certificates(self.directory)
        config = SERVER + "allow_non_tls: true\n" + made.server_config()
        return self._stack.enter_context(LocalServer(config=config)), str(made.ca.cert)

    @contextlib.contextmanager
    def peer(self, command: list[str]) -> Iterator[Peer]:
        peer = Peer(command)
        try:
            yield peer
        finally:
            peer.end()

    def run(self, command: list[str]) -> dict[str, float]:
        """A peer that needs nobody else."""
        with self.peer(command) as peer:
            peer.await_ready()
            peer.go()
            return peer.result()

    def facts(self) -> dict[str, str]:
        with jsync.connect(self.server.url) as nc:
            version = nc.server_info.version
        facts = {
            "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "cpu": f"{_cpu_model()}, {os.cpu_count()} cores",
            "system": f"{platform.system()} {platform.release()}",
            "load": f"{self._load:.1f} before, {os.getloadavg()[0]:.1f} after",
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "nats-server": f"{version}, on loopback",
            "jsync": f"{jsync.__version__}, commit {_commit()}",
            "nats-py": importlib.metadata.version("nats-py"),
        }
        if self.natsc is not None:
            told = subprocess.run(
                [self.natsc, "version"], capture_output=True, text=True, check=True
            )
            facts["nats.c"] = told.stdout.strip()
        return facts


def use_jsync(*arguments: object) -> list[str]:
    return _python("use_jsync", arguments)


def use_natspy(*arguments: object) -> list[str]:
    return _python("use_natspy", arguments)


def parse(case: str) -> list[str]:
    return _python("parse", (case,))


def program(path: str, *arguments: object) -> list[str]:
    return [path, *map(str, arguments)]


def _python(module: str, arguments: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.peers.{module}", *map(str, arguments)]


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(REPOSITORY), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = " with changes" if git("status", "--porcelain", "--", "jsync") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed
