"""Tests that the `nats` command and jsync restore each other's backups."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

import jsync

from ..server.jetstream.backups.test_backups import filled, held
from .go_program import nats_command

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.server


def nats(server: LocalServer, *words: str | Path) -> None:
    done = subprocess.run(
        [nats_command(), "--server", server.url, "--no-context", *words],
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
        nats(server, "stream", "restore", tmp_path, "--no-progress")
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
        where = tmp_path / "b"
        nats(server, "stream", "backup", unique, where, "--no-progress", "--consumers")
        stream.delete()
        restored = js.restore_stream(where)
        assert held(restored)
        assert restored.consumer("billing").name == "billing"


def test_the_nats_command_restores_our_account_backup(
    own_server: StartServer, tmp_path: Path
) -> None:
    server = own_server()
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        for name in ("ONE", "TWO"):
            filled(js, name)
        js.backup_streams(tmp_path / "b")
        for name in ("ONE", "TWO"):
            js.delete_stream(name)
        nats(server, "account", "restore", tmp_path / "b")
        assert held(js.stream("ONE"))
        assert held(js.stream("TWO"))


def test_we_restore_account_backups_of_the_nats_command(
    own_server: StartServer, tmp_path: Path
) -> None:
    server = own_server()
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        for name in ("ONE", "TWO"):
            filled(js, name)
        nats(server, "account", "backup", tmp_path / "b", "--force")
        for name in ("ONE", "TWO"):
            js.delete_stream(name)
        assert len(js.restore_streams(tmp_path / "b")) == 2
        assert held(js.stream("ONE"))
        assert held(js.stream("TWO"))
