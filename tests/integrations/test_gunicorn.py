"""A WSGI application under gunicorn with workers of gevent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync

from ..support.servers import wait_for

if TYPE_CHECKING:
    from jsync.server import LocalServer

ROOT = Path(__file__).parents[2]
SECONDS = 30.0
APP = """
import os
import jsync

def app(environ, start_response):
    nc = jsync.shared_connection(os.environ["TEST_URL"])
    subject = os.environ["TEST_SUBJECT"] + environ["PATH_INFO"].replace("/", ".")
    answer = nc.request(subject, environ["QUERY_STRING"].encode(), timeout=30)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [answer.data]
"""


def get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}{path}", timeout=SECONDS
    ) as answer:
        body: bytes = answer.read()
        return body


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@pytest.mark.parametrize("preload", [False, True])
def test_a_gevent_worker_answers_while_requests_wait(
    server: LocalServer, unique: str, tmp_path: Path, preload: bool
) -> None:
    (tmp_path / "application.py").write_text(APP)
    port = free_port()
    held: list[jsync.Msg] = []
    with (
        jsync.connect(server.url) as nc,
        nc.subscribe(f"{unique}.slow", callback=held.append),
        nc.subscribe(f"{unique}.quick", callback=lambda msg: msg.respond(msg.data)),
        subprocess.Popen(
            [
                *(sys.executable, "-m", "gunicorn", "--worker-class", "gevent"),
                *("--bind", f"127.0.0.1:{port}", "--log-level", "warning"),
                *(("--preload",) if preload else ()),
                "application:app",
            ],
            cwd=tmp_path,
            env=os.environ
            | {
                "TEST_URL": server.url,
                "TEST_SUBJECT": unique,
                "PYTHONPATH": str(ROOT),
            },
        ) as gunicorn,
        ThreadPoolExecutor(60) as threads,
    ):
        try:

            def listens() -> bool:
                with socket.socket() as sock:
                    return sock.connect_ex(("127.0.0.1", port)) == 0

            wait_for(listens, SECONDS)
            slow = [threads.submit(get, port, f"/slow?{i}") for i in range(30)]
            wait_for(lambda: len(held) == 30, SECONDS)
            # The only worker has 30 requests that wait, and answers others.
            for i in range(30):
                assert get(port, f"/quick?{i}") == b"%d" % i
            for msg in held:
                msg.respond(msg.data)
            answers = [future.result(SECONDS) for future in slow]
            assert answers == [b"%d" % i for i in range(30)]
        finally:
            gunicorn.send_signal(signal.SIGTERM)
        assert gunicorn.wait(SECONDS) == 0
