"""Tests of a connection beside code that holds the GIL or computes for long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import jsync

from ...support.threads import Recorder
from ...support.windows import sleep_with_the_gil

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ...conftest import StartServer

pytestmark = pytest.mark.server


def busy_for(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def hold_the_gil_for(seconds: float) -> None:
    sleep_with_the_gil(int(seconds * 1000))()


@pytest.fixture
def impatient_server(own_server: StartServer) -> LocalServer:
    """A server that pings each second, and closes the connection after two unanswered pings."""
    return own_server(config='ping_interval: "1s"\nping_max: 2')


@pytest.mark.parametrize("where", ["main", "callback"])
def test_busy_user_code_keeps_the_connection(
    impatient_server: LocalServer, unique: str, where: str
) -> None:
    lost = Recorder()
    worked = Recorder()

    def work(msg: jsync.Msg) -> None:
        busy_for(4.0)
        worked()

    with jsync.connect(
        impatient_server.url, on_disconnect=lost, ping_interval=1.0
    ) as nc:
        if where == "main":
            busy_for(4.0)
        else:
            nc.subscribe(unique, callback=work)
            nc.publish(unique)
            worked.get()
        nc.flush()
        assert lost.waiting == 0
        assert nc.stats().reconnects == 0


def test_code_holding_the_gil_keeps_the_connection(
    impatient_server: LocalServer,
) -> None:
    lost = Recorder()
    with jsync.connect(impatient_server.url, on_disconnect=lost) as nc:
        for _ in range(2):
            hold_the_gil_for(1.2)
            nc.flush()
        assert lost.waiting == 0
        assert nc.stats().reconnects == 0


def test_a_held_gil_is_not_taken_for_silence(
    server: LocalServer,
) -> None:
    # These are the pings of jsync. Some intervals pass in which it cannot read a reply.
    lost = Recorder()
    with jsync.connect(server.url, ping_interval=0.5, on_disconnect=lost) as nc:
        hold_the_gil_for(2.5)
        nc.flush()
        assert lost.waiting == 0
        assert nc.stats().reconnects == 0
