"""Run a block of code as a reader would, against a server, and capture its output."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..cli.support import run_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .markdown import Block

SECONDS = 180
"""The time limit of a block in seconds. Each takes much less than one."""


def run(block: Block, urls: Mapping[str, str]) -> str:
    """Run a block with `urls` instead of the addresses on the page, and return its output."""
    code = block.text
    for named, real in urls.items():
        code = code.replace(named, real)
    if block.language == "sh":
        return "".join(map(run_command, jsync_commands(code)))
    if block.is_tests:
        return run_tests(code)
    return run_script(code) if block.is_script else run_here(code, block)


def run_here(code: str, block: Block) -> str:
    """Run code in a new namespace. The line numbers of its errors are those of the page."""
    compiled = compile("\n" * (block.line - 1) + code, str(block.page), "exec")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compiled, {"__name__": "__main__"})
    return output.getvalue()


def run_tests(code: str) -> str:
    """Run code as a test file of pytest. The output of pytest is not compared with the page."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "test_page.py"
        file.write_text(code)
        run_process(
            "-m", "pytest", "-q", "-W", "error", "--rootdir", directory, str(file)
        )
    return ""


def run_script(code: str) -> str:
    """Run code as the main program of a process, which must not write to stderr."""
    return run_process("-W", "error", "-c", code)


def run_process(*arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    said = process.stdout + process.stderr
    assert (process.returncode, process.stderr) == (0, ""), said
    return process.stdout


def jsync_commands(shell: str) -> list[str]:
    """Return the lines that are commands of jsync, or end in one.

    Lines that install packages are not run. `jsync server` is not run either, because the server
    of the tests replaces it.
    """
    lines = shell.replace("\\\n", "").splitlines()
    return [line for line in lines if re.search(r"(^|\| )jsync (?!server)", line)]


def run_command(line: str) -> str:
    """Run a command in this process, or a pipe in a shell, and return its output.

    The shell runs the `jsync` of this Python.
    """
    if " | " not in line:
        return run_line(line)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.run(
        line,
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env=os.environ | {"PATH": path},
    )
    assert process.returncode == 0, f"{line}: {process.stdout}{process.stderr}"
    return process.stdout
