"""Tests of commands that read a stream to its end, at a leader that has a successor."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jsync import errors

from ..support.connection_faults import Events, connect
from ..support.servers import wait_for
from ..support.threads import LONG
from .test_ordered import with_retries

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.server import LocalServer

    from ..support.routed_cluster import RoutedCluster

pytestmark = pytest.mark.cluster

ROWS = 20


def begin(server: LocalServer, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "jsync", "--server", server.url]
    return subprocess.Popen(
        [*command, "--timeout", "60s", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(command: subprocess.Popen[str]) -> None:
    output, _ = command.communicate(timeout=LONG)
    assert command.returncode == 0, output


def complete(server: LocalServer, *arguments: str) -> None:
    """Repeat a command until the cluster can answer it."""

    def is_done() -> bool:
        command = begin(server, *arguments)
        command.communicate(timeout=LONG)
        return command.returncode == 0

    wait_for(is_done, LONG)


def test_an_outdated_leader_shortens_no_command(
    routed: RoutedCluster, unique: str, tmp_path: Path
) -> None:
    # A leader may give up before the commands begin.
    assert any(is_outdated(routed, f"{unique}{n}", tmp_path) for n in range(5))


def is_outdated(routed: RoutedCluster, name: str, directory: Path) -> bool:
    """Run the commands at an outdated leader. Return False if it had given up already."""
    rows, copy = directory / "rows.ndjson", directory / "copy.ndjson"
    lines = [f'{{"n": {number}}}\n' for number in range(ROWS)]
    ingest = ("ingest", str(rows), "--subject", name, "--stream", name, "--resume")
    with connect(routed.urls, Events()) as nc:
        js = nc.jetstream(timeout=10)
        config = {"num_replicas": 3, "duplicate_window": 0.1}
        with_retries(lambda: js.create_stream(name=name, subjects=[name], **config))
    old = routed.stream_leader(name)
    other = next(server for server in routed.servers if server is not old)
    rows.write_text("".join(lines[: ROWS // 2]))
    complete(other, *ingest)
    rows.write_text("".join(lines))
    with connect(old.url, Events()) as near:
        source = near.jetstream(timeout=2).bind_stream(name)
        with routed.cut_off(old):
            complete(other, *ingest)
            last = 0
            with contextlib.suppress(errors.Error):
                last = source.info().state.last_seq
            if last != ROWS // 2:
                return False
            exporting = begin(old, "export", name, "--output", str(copy))
            ingesting = begin(old, *ingest)
            with contextlib.suppress(TimeoutError):
                wait_for(lambda: exporting.poll() is not None, 3)
        finish(exporting)
        finish(ingesting)
    assert len(copy.read_text().splitlines()) == ROWS
    with connect(other.url, Events()) as nc:
        js = nc.jetstream(timeout=10)
        assert with_retries(js.stream(name).leader_info).state.messages == ROWS
        with_retries(lambda: js.delete_stream(name))
    return True
