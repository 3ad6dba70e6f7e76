"""What jsync logs: nothing that shows, until the program configures logging."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jsync.server import LocalServer

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
    assert raised.wait(30)
"""


def stderr_of(server: LocalServer, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stderr


def test_it_is_quiet_by_default(server: LocalServer) -> None:
    assert stderr_of(server) == ""


def test_it_tells_who_configures_logging(server: LocalServer) -> None:
    told = stderr_of(server, "verbose")
    assert "WARNING jsync.connection" in told
    assert "SlowConsumerError" in told
    assert "out of the callback" in told


def test_every_logger_is_below_the_package() -> None:
    handlers = logging.getLogger("jsync").handlers
    assert [type(handler) for handler in handlers] == [logging.NullHandler]
