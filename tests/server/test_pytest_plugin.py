"""Tests of the pytest fixtures of jsync."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jsync.errors import ConfigError
from jsync.server import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server


def run_pytest(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a test file of a user, in another process."""
    (directory / "test_user.py").write_text(code)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_each_test_gets_a_server_that_ends_afterwards(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
import jsync, pytest
before = []

@pytest.mark.parametrize("number", [1, 2])
def test_it(jsync_server, number):
    with jsync.connect(jsync_server.url) as nc:
        nc.jetstream().create_stream(name="S", subjects=[f"s{number}"])
    assert all(not server.is_running for server in before)
    before.append(jsync_server)
""",
    )
    assert "2 passed" in done.stdout, done.stdout


def test_a_cluster_stores_three_replicas(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
import jsync

def test_it(jsync_cluster):
    with jsync.connect(jsync_cluster.urls) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", num_replicas=3)
        assert js.publish("S").seq == 1
""",
    )
    assert "1 passed" in done.stdout, done.stdout


def test_a_run_without_fixtures_imports_nothing_of_jsync(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
import sys

def test_it(request):
    assert request.config.pluginmanager.has_plugin("jsync")
    assert "jsync" not in sys.modules
""",
    )
    assert "1 passed" in done.stdout, done.stdout


def test_a_cluster_of_one_is_an_error() -> None:
    with pytest.raises(ConfigError, match="use LocalServer for one"):
        LocalCluster(1)
