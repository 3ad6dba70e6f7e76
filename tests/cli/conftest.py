"""Fixtures of the tests of the command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ..server.conftest import js, nc, stream
from .support import Jsync

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.server import LocalServer

__all__ = ["js", "nc", "stream"]


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of contexts. No context of this machine reaches a test."""
    for name in [name for name in os.environ if name.startswith("NATS_")]:
        if name != "NATS_SERVER":
            monkeypatch.delenv(name)
    monkeypatch.setenv("NATS_TIMEOUT", "30s")  # a busy machine must not fail the test
    home = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    return home


@pytest.fixture
def jsync(server: LocalServer) -> Jsync:
    """The command, connected to the server that tests share."""
    return Jsync(server)
