"""Tests that the names on the page on other clients are those of the newest tested versions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from . import clients

pytestmark = pytest.mark.server

DOCS = Path(__file__).parents[1] / "docs"


def test_the_documented_names_are_those_of_the_packages() -> None:
    clients.command("natsio")  # installs the packages
    packages = clients.CACHE / "natsio" / "packages"
    read = subprocess.run(
        [clients.PYTHON.find(), str(DOCS / "other_clients.py"), str(packages)],
        capture_output=True,
        text=True,
        check=True,
    )
    recorded = json.loads((DOCS / "other_clients.json").read_text())
    assert json.loads(read.stdout) == recorded
