"""The stub of the extension is what the type checker and the reader see of it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_stub_says_what_the_extension_is() -> None:
    assert importlib.util.find_spec("mypy") is not None, (
        "mypy is missing: install the `lint` dependency group (pip install --group lint)"
    )
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy.stubtest"),
            *("--mypy-config-file", str(PYPROJECT), "jsync._fast"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
