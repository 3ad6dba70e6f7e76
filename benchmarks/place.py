"""The servers and processes of the jobs, and the facts about this machine."""

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
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import jsync
from jsync.server import LocalServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from .peers.build import Programs

REPOSITORY = Path(__file__).parent.parent

# The server must not cut off a reader that is slower than the publisher as a slow consumer.
SERVER = 'max_pending: 4GB\nwrite_deadline: "120s"\n'

JOBS = {"publish", "read", "request", "fetch", "consume", "next", "ordered"}
KV_JOBS = {"kvput", "kvget", "kvkeys", "kvwatch"}
OBJECT_JOBS = {"objectput", "objectget", "objectopen"}
STREAM_JOBS = JOBS | {"publisher", "single"}
NATSIO_JOBS = STREAM_JOBS | KV_JOBS | OBJECT_JOBS | {"serve"}
NATSPY_JOBS = NATSIO_JOBS - {"consume", "objectopen"}
NATSC_JOBS = STREAM_JOBS | {"consumers", "readmany", "atomic"}
LIMIT = 180
"""The time in seconds after which the runner kills a peer that has not reported a result."""

PURE_PYTHON = {"natsio", "nats-py"}
NATSGO_JOBS = (
    NATSC_JOBS | KV_JOBS | OBJECT_JOBS | {"ingest", "serve", "shared", "callbacks"}
)


class PeerError(Exception):
    """A peer did not do its job."""


class Peer:
    """A process that speaks the protocol of `bench.h`."""

    def __init__(self, command: list[str], server_cpu: Callable[[], float]) -> None:
        self.command = command
        self._server_cpu = server_cpu
        self._before = 0.0
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
        limit = threading.Timer(LIMIT, self._process.kill)
        limit.start()
        line = self._process.stdout.readline()
        limit.cancel()
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
        self._before = self._server_cpu()
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, float]:
        found: dict[str, float] = json.loads(self.line())
        return found | {"server_cpu": self._server_cpu() - self._before}

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        with self._process:
            pass


class Place:
    """The servers. Each starts when it is first needed and ends with the `with` block."""

    def __init__(self, programs: Programs, scale: float) -> None:
        self.raw = str(programs.raw)
        self.pull = str(programs.pull)
        self.window = str(programs.window)
        self.batch = str(programs.batch)
        self.atomic = str(programs.atomic)
        self.delay = str(programs.delay)
        self.natsc = str(programs.natsc) if programs.natsc else None
        self.natsgo = str(programs.natsgo) if programs.natsgo else None
        self.natsio = str(programs.natsio) if programs.natsio else None
        self._servers: list[LocalServer] = []
        self._distant: dict[float, int] = {}
        self._scale = scale
        self._stack = ExitStack()
        self._load = os.getloadavg()[0]
        self.failures: dict[str, str] = {}
        """The jobs that a peer could not do, and the reasons. Other rounds still count."""

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
        """Scale the number of messages, but return at least 100, unless fewer are wanted."""
        return max(min(100, wanted), int(wanted * self._scale))

    def _serve(self, config: str = "") -> LocalServer:
        server = self._stack.enter_context(LocalServer(config=SERVER + config))
        self._servers.append(server)
        return server

    @functools.cached_property
    def server(self) -> LocalServer:
        return self._serve()

    @functools.cached_property
    def large(self) -> LocalServer:
        """A server for a large stream, which would slow down the other jobs."""
        return self._serve()

    @functools.cached_property
    def directory(self) -> Path:
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory()))

    @functools.cached_property
    def tls(self) -> tuple[LocalServer, str]:
        """A server that offers TLS, and the file of the CA to trust."""
        # The certificates are those of the tests, which need `cryptography`.
        from tests.support.certificate_authority import make_certificates  # noqa: PLC0415

        made = make_certificates(self.directory)
        config = "allow_non_tls: true\n" + made.server_config()
        return self._serve(config), str(made.ca.cert)

    @functools.cached_property
    def websocket(self) -> LocalServer:
        """A server that also listens for WebSocket connections, without TLS or compression."""
        server = self._stack.enter_context(LocalServer(config=SERVER, websocket=True))
        self._servers.append(server)
        return server

    def distant(self, milliseconds: float) -> int:
        """Return the port of a proxy to the server that adds this round-trip time."""
        if milliseconds not in self._distant:
            one_way = int(milliseconds * 500)
            line = program(self.delay, self.server.port, one_way)
            port = self._stack.enter_context(self.peer(line)).line()
            self._distant[milliseconds] = int(port)
        return self._distant[milliseconds]

    def server_cpu(self) -> float:
        """Return the CPU seconds of the servers, or 0 if the system does not report them."""
        return sum(map(_cpu_seconds, self._servers))

    @contextlib.contextmanager
    def peer(self, command: list[str]) -> Iterator[Peer]:
        peer = Peer(command, self.server_cpu)
        try:
            yield peer
        finally:
            peer.end()

    def run(self, command: list[str]) -> dict[str, float]:
        """Run a peer that needs no other process."""
        with self.peer(command) as peer:
            peer.await_ready()
            peer.go()
            return peer.result()

    def clients(
        self,
        job: str,
        task: Callable[[int], tuple[object, ...]],
        fast: int,
        slow: int | None = None,
        ca: str | None = None,
    ) -> dict[str, list[str]]:
        """Return the command of each available client that supports the job.

        Args:
            job: The name of the job.
            task: Returns the arguments of the job for a number of messages.
            fast: The number of messages for compiled clients.
            slow: The number for clients in pure Python. None leaves them out.
            ca: The file of the CA, for TLS.
        """
        more = ("--ca", ca) if ca else ()
        given = (job, *task(fast), *more)
        found = {"jsync": use_jsync(*given)}
        if self.natsgo is not None and job in NATSGO_JOBS:
            found["nats.go"] = program(self.natsgo, *given)
        if self.natsc is not None and job in NATSC_JOBS:
            found["nats.c"] = program(self.natsc, *given)
        if slow is not None:
            given = (job, *task(slow), *more)
            if self.natsio is not None and job in NATSIO_JOBS:
                found["natsio"] = use_natsio(self.natsio, *given)
            if job in NATSPY_JOBS:
                found["nats-py"] = use_natspy(*given)
        return found

    def facts(self) -> dict[str, str]:
        facts = machine(self.server.url, self._load)
        facts["nats-py"] = importlib.metadata.version("nats-py")
        for name, command in {
            "nats.c": [self.natsc],
            "nats.go": [self.natsgo],
            "natsio": [self.natsio, "-m", "benchmarks.peers.use_natsio"],
        }.items():
            if (path := command[0]) is not None:
                facts[name] = _output([path, *filter(None, command[1:]), "version"])
        return facts


def machine(url: str, load: float) -> dict[str, str]:
    """Return the software, the hardware, the time, and the load before and now."""
    with jsync.connect(url) as nc:
        version = nc.server_info.version
    return {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cpu": f"{_cpu_model()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "load": f"{load:.1f} before, {os.getloadavg()[0]:.1f} after",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "nats-server": f"{version}, on loopback",
        "jsync": f"{jsync.__version__}, commit {_commit()}",
    }


def use_jsync(*arguments: object) -> list[str]:
    return _python("use_jsync", arguments)


def use_gevent(*arguments: object) -> list[str]:
    return _python("use_gevent", arguments)


def use_natspy(*arguments: object) -> list[str]:
    return _python("use_natspy", arguments)


def use_natsio(python: str, *arguments: object) -> list[str]:
    return _python("use_natsio", arguments, python)


def parse(case: str) -> list[str]:
    return _python("parse", (case,))


def program(path: str, *arguments: object) -> list[str]:
    return [path, *map(str, arguments)]


def _python(
    module: str, arguments: tuple[object, ...], python: str = sys.executable
) -> list[str]:
    return [python, "-m", f"benchmarks.peers.{module}", *map(str, arguments)]


def _output(command: list[str]) -> str:
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _cpu_seconds(server: LocalServer) -> float:
    """Return the CPU time of all threads of a server, from its process clock on Linux."""
    if sys.platform != "linux":
        return 0.0
    clock = (~server.pid << 3) | 2
    return time.clock_gettime(clock)


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    def git(*arguments: str) -> str:
        return _output(["git", "-C", str(REPOSITORY), *arguments])

    changed = " with changes" if git("status", "--porcelain", "--", "jsync") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed
