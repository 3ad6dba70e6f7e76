"""Tests of docs/cli.md and docs/cli: examples work, and each command and exit code is there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from jsync.cli.ui.errors import ExitCode

from .reference import DOCS, PAGES, reference
from .support import run_line
from .tree import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import StartServer

ELSEWHERE = ("pip ", "eval ")
"""The beginnings of lines that are not run here. A test with a real bash runs the completion."""

PAGE = DOCS / "cli.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_pages_equal_the_help_of_commands() -> None:
    wanted = reference()
    assert {*(DOCS / "cli").iterdir()} == wanted.keys()
    for path, text in wanted.items():
        assert path.read_text() == text, "run `python -m tests.cli.reference`"


def test_each_command_is_on_one_page() -> None:
    named = [name for page in PAGES.values() for name in page.commands]
    assert sorted(named) == sorted({words.partition(" ")[0] for words in COMMANDS})


def test_the_page_has_every_exit_code() -> None:
    assert [
        int(code)
        for code in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    ] == [*ExitCode]


@pytest.mark.server
def test_the_examples_of_the_page_work(
    own_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = own_server().url
    monkeypatch.setenv("NATS_URL", url)
    shown = {}
    for block in BLOCKS:
        for line in block.replace("nats://127.0.0.1:4222", url).splitlines():
            if not line.startswith(ELSEWHERE):
                shown[line] = run_line(line)
    assert len(shown) > 20
    assert shown["jsync next ORDERS billing"].endswith('{"id": 42}\n\n')
    (last,) = (output for line, output in shown.items() if line.endswith("tail -n 1"))
    assert last == "1000\n"
    (counted,) = (output for line, output in shown.items() if "python3 -c" in line)
    assert counted == "13\n"
