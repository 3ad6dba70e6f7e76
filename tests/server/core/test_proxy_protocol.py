"""Tests of the PROXY protocol: servers learn the address of a client behind a real proxy."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.connections import works
from ...support.servers import free_port, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ...conftest import StartServer

CONFIG = """
proxy_protocol: true
accounts {
  SYS { users: [{user: admin, password: x}] }
  APP { users: [{user: app, password: x}] }
}
system_account: SYS
"""


@contextlib.contextmanager
def haproxy(directory: Path, port: int, server: int, version: str) -> Iterator[None]:
    """Run a haproxy that tells the server about its clients. Needs scripts/need-haproxy."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    program = shutil.which("haproxy", path=path)
    assert program, "no haproxy here: run scripts/need-haproxy"
    config = directory / "haproxy.cfg"
    config.write_text(
        f"""
        defaults
          mode tcp
          timeout connect 30s
          timeout client 300s
          timeout server 300s
        listen nats
          bind 127.0.0.1:{port}
          server one 127.0.0.1:{server} {version}
        """.replace("\n        ", "\n")
    )
    process = subprocess.Popen([program, "-db", "-f", config])
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("version", ["send-proxy", "send-proxy-v2"])
def test_a_server_behind_a_proxy_knows_client_addresses(
    own_server: StartServer, tmp_path: Path, version: str
) -> None:
    server, port = own_server(config=CONFIG), free_port()
    url = f"nats://127.0.0.1:{port}"
    with haproxy(tmp_path, port, server.port, version):

        def connects() -> bool:
            try:
                jsync.connect(url, user="app", password="x").close()
            except errors.ConnectionError:
                return False
            return True

        wait_for(connects)
        ports: list[int] = []

        def dial(host: str, port: int, timeout: float) -> socket.socket:
            """Connect, and record the port that the proxy sees."""
            sock = socket.create_connection((host, port), timeout)
            ports.append(sock.getsockname()[1])
            return sock

        with jsync.connect(
            url,
            user="app",
            password="x",
            name="behind",
            dialer=dial,
            ignore_discovered_servers=True,
        ) as nc:
            assert works(nc)
            with jsync.connect(url, user="admin", password="x") as admin:
                (one,) = admin.system().servers()
                found = one.connz(acc="APP").connections
            (behind,) = [each for each in found if each.name == "behind"]
            assert (behind.ip, behind.port) == ("127.0.0.1", ports[-1])
            assert nc.client_ip == "127.0.0.1"
            nc.force_reconnect()
            nc.flush(60)
            assert works(nc)
