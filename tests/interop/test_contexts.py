"""Tests that jsync reads contexts that the `nats` command has made."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ..support.accounts import password_config
from .go_program import nats_command

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import StartServer

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an empty home directory for both programs."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_nats_commands_selected_context_is_used(
    own_server: StartServer,
) -> None:
    server = own_server(
        config=f"{password_config({'ann': 's3cret'})}\njetstream {{ domain: hub }}"
    )
    run(
        *(nats_command(), "context", "add", "prod", "--server", server.url),
        *("--user", "ann", "--password", "s3cret", "--js-domain", "hub"),
        *("--inbox-prefix", "_INBOX.ann"),
    )
    with pytest.raises(errors.ConfigError, match="no context is selected"):
        jsync.connect(context=True)
    run(nats_command(), "context", "select", "prod")
    for context in ("prod", True):
        with jsync.connect(context=context) as nc:
            assert nc.new_inbox().startswith("_INBOX.ann.")
            assert nc.jetstream().account_info().domain == "hub"
