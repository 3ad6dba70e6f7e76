"""The command on Windows: signals that other systems do not have."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from ..support.servers import monitor, wait_for
from ..support.threads import Thread
from ..support.windows import WINDOWS

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from .support import Jsync

pytestmark = pytest.mark.server

if WINDOWS:

    @pytest.mark.parametrize("name", ["SIGINT", "SIGBREAK"])
    def test_ctrl_c_and_ctrl_break_end_a_command(
        jsync: Jsync, server: LocalServer, unique: str, name: str
    ) -> None:
        def press() -> None:
            wait_for(lambda: unique in str(monitor(server, "subsz?subs=1")))
            signal.raise_signal(getattr(signal, name))

        pressing = Thread(press)
        ended = jsync("sub", unique)
        pressing.result()
        assert (ended.code, "Traceback" in ended.errors) == (130, False), ended.errors
