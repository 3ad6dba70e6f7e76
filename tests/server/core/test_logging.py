"""Tests of the log lines of jsync, and of their output without a logging configuration."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import jsync

from ...support.connection_faults import FakeServer
from ...support.servers import wait_for

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ...support.connection_faults import Peer

pytestmark = pytest.mark.server

PROGRAM = """
import logging, sys, threading
import jsync

if sys.argv[2:]:
    logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s %(message)s")
raised = threading.Event()

def handle(msg):
    try:
        raise LookupError("out of the callback")
    finally:
        raised.set()

with jsync.connect(sys.argv[1]) as nc:
    nc.subscribe("a", callback=handle)
    nc.subscribe("b", max_pending_messages=1)
    for subject in ("a", "b", "b", "b"):
        nc.publish(subject)
    assert raised.wait(60)
"""


def stderr_of(server: LocalServer, *arguments: str, program: str = PROGRAM) -> str:
    return subprocess.run(
        [sys.executable, "-c", program, server.url, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stderr


def test_errors_without_callback_or_logging_still_show(
    server: LocalServer,
) -> None:
    told = stderr_of(server)
    assert "SlowConsumerError" in told
    assert "out of the callback" in told


def test_a_servers_words_are_harmless_when_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    evil = "\x1b]0;x\x07\x1b[2J\u009b5n\u202e"

    def refuse(peer: Peer) -> None:
        peer.handshake(connect_urls=[f"{evil[2:]}:4222", "\u009b\u202e:4223"])
        peer.send(f"-ERR 'Something {evil}'\r\n".encode())
        peer.send(f"-ERR 'Stale Connection {evil}'\r\n".encode())

    caplog.set_level(logging.DEBUG, "jsync")
    with FakeServer(refuse) as fake:
        nc = jsync.connect(fake.url, reconnect_wait=0.01)
        wait_for(lambda: "is not a host name" in caplog.text)
        wait_for(lambda: "Stale Connection" in caplog.text)
        nc.close()  # the connection is always lost, so it cannot drain
    assert "Something \\u001b" in caplog.text
    assert not set(evil) & set(caplog.text) - {*"]0;x[2J5n"}


def test_a_program_that_handles_its_errors_logs_nothing(server: LocalServer) -> None:
    program = """
import sys, jsync

jsync.connect(sys.argv[1], on_error=lambda error: None).close()
with jsync.connect(sys.argv[1]) as nc:
    nc.subscribe("a", callback=lambda msg: None)
    nc.publish("a")
"""
    assert stderr_of(server, program=program) == ""


def test_a_program_with_logging_sees_the_loggers_name(
    server: LocalServer,
) -> None:
    told = stderr_of(server, "verbose")
    assert "WARNING jsync.connection jsync-1: CallbackError" in told
    assert "WARNING jsync.connection jsync-1: SlowConsumerError" in told


def test_the_package_adds_no_handlers() -> None:
    assert not logging.getLogger("jsync").handlers
