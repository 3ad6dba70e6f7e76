"""Tests of docs/cli.md: its examples work, and it lists every command, option and exit code."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jsync.cli.ui.errors import ExitCode

from .reference import PAGE, reference, written
from .support import Jsync

if TYPE_CHECKING:
    from ..conftest import StartServer

ELSEWHERE = ("pip ", "eval ")
"""The beginnings of lines that are not run here. A test with a real bash runs the completion."""

BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_page_has_every_command_and_option() -> None:
    assert written() == reference(), "write it with `python -m tests.cli.reference`"


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
                shown[line] = run(line)
    assert len(shown) > 20
    assert shown["jsync next ORDERS billing"].endswith('{"id": 42}\n\n')
    (last,) = (output for line, output in shown.items() if line.endswith("tail -n 1"))
    assert last == "1000\n"
    (counted,) = (output for line, output in shown.items() if "python3 -c" in line)
    assert counted == "13\n"


def run(line: str) -> str:
    """Run a line of the page. The shell provides pipes and files, `jsync` runs in this process."""
    data = b""
    for part in line.split(" | "):
        command, _, path = part.partition(" > ")
        words = shlex.split(re.sub(r"^NATS_URL=\S+ ", "", command))
        if words[0] == "jsync":
            ended = Jsync()(*words[1:], stdin=data)
            assert ended.code == 0, f"{line}: {ended.errors}"
            data = ended.output.encode()
        else:
            shell = ["bash", "-c", command]
            data = subprocess.run(
                shell, input=data, capture_output=True, check=True, timeout=60
            ).stdout
        if path:
            Path(path).write_bytes(data)
    return data.decode()
