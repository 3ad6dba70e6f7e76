"""Tests that each server has the expected version, and that a missing server fails the tests."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from jsync.jetstream.features import format_version, version_of_api_level
from jsync.models.server_version import MIN_VERSION

from .lines import LINES, binary_of


@pytest.mark.parametrize("line", LINES)
def test_each_line_has_its_server(line: str) -> None:
    said = subprocess.run(
        [binary_of(line), "-v"], check=True, capture_output=True, text=True
    ).stdout
    assert re.fullmatch(rf"nats-server: v{re.escape(line)}\.\d+", said.strip())


def test_a_missing_server_failure_names_the_needed_command() -> None:
    with pytest.raises(
        pytest.fail.Exception, match=r"no nats-server 1\.0 .*make servers"
    ):
        binary_of("1.0")


def test_all_lines_are_installed_and_known() -> None:
    makefile = Path(__file__).parents[2] / "Makefile"
    found = re.search(r"foreach line,([\d. ]+),", makefile.read_text())
    assert found is not None
    assert set(LINES) <= set(found[1].split())
    assert format_version(MIN_VERSION) == LINES[0]
    assert format_version(version_of_api_level(99)) == LINES[-1]
