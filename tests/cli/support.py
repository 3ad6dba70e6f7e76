"""Run the command for tests, in this process or in another one."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jsync.cli import main

if TYPE_CHECKING:
    from jsync.server import LocalServer


class Ended(NamedTuple):
    """The output of a command, and its exit code."""

    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    @property
    def rows(self) -> list[list[str]]:
        """Return the lines of a table, without its headings."""
        return [line.split("\t") for line in self.lines[1:]]

    @property
    def json(self) -> Any:
        """Return the single document in the output."""
        assert self.code == 0, self.errors
        return json.loads(self.output)

    @property
    def documents(self) -> list[Any]:
        """Return the documents of a stream of JSON, one on each line."""
        return [json.loads(line) for line in self.lines]


class Jsync:
    """The command, for one server: `jsync("stream", "ls")`."""

    def __init__(self, server: LocalServer | None = None) -> None:
        self._options = ("--server", server.url) if server is not None else ()

    def __call__(self, *arguments: str, stdin: bytes | str = b"") -> Ended:
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        given, output, errors = map(_file, (data, b"", b""))
        before, sys.stdin = sys.stdin, given
        try:
            with redirect_stdout(output), redirect_stderr(errors):
                code = main([*self._options, *arguments])
        finally:
            sys.stdin = before
        return Ended(code, _written(output), _written(errors))


def _file(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", write_through=True)


def _written(file: io.TextIOWrapper) -> str:
    file.seek(0)
    return file.read()


def run_line(line: str) -> str:
    """Run a line of a shell and return its output.

    The shell provides pipes and files, `jsync` runs in this process.
    """
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
