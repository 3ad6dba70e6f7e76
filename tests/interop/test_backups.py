"""Tests that the `nats` command and jsync restore each other's backups."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

import jsync

from ..server.test_backups import filled, held
from .go_program import nats_command

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.server import LocalServer

pytestmark = pytest.mark.server


def nats(server: LocalServer, *words: str | Path) -> None:
    done = subprocess.run(
        [nats_command(), "--server", server.url, "--no-context", "stream", *words],
        env={**os.environ, "HOME": str(nats_command().parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_nats_command_restores_our_backup(
    server: LocalServer, unique: str, tmp_path: Path
) -> None:
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        stream = filled(js, unique)
        stream.create_consumer(durable_name="billing")
        stream.backup(tmp_path)
        stream.delete()
        nats(server, "restore", tmp_path, "--no-progress")
        restored = js.stream(unique)
        assert held(restored)
        assert restored.consumer("billing").name == "billing"


def test_we_restore_a_backup_of_the_nats_command(
    server: LocalServer, unique: str, tmp_path: Path
) -> None:
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        stream = filled(js, unique)
        stream.create_consumer(durable_name="billing")
        nats(server, "backup", unique, tmp_path / "b", "--no-progress", "--consumers")
        stream.delete()
        restored = js.restore_stream(tmp_path / "b")
        assert held(restored)
        assert restored.consumer("billing").name == "billing"
