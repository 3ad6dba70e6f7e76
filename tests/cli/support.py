"""The command as tests run it: in this process, or as one of its own."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from click.testing import CliRunner

from jsync.cli import main

if TYPE_CHECKING:
    from jsync.server import LocalServer


class Ended(NamedTuple):
    """What a command has written, and its exit code."""

    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    @property
    def rows(self) -> list[list[str]]:
        """The lines of a table, without its headings."""
        return [line.split("\t") for line in self.lines[1:]]

    @property
    def json(self) -> Any:
        """The one document that was written."""
        assert self.code == 0, self.errors
        return json.loads(self.output)

    @property
    def documents(self) -> list[Any]:
        """Those of a flow, one on each line."""
        return [json.loads(line) for line in self.lines]


class Jsync:
    """The command, for one server: `jsync("stream", "ls")`."""

    def __init__(self, server: LocalServer | None = None) -> None:
        self._options = ("--server", server.url) if server is not None else ()

    def __call__(self, *arguments: str, stdin: bytes | str = b"") -> Ended:
        with CliRunner().isolation(input=stdin) as (output, errors, _):
            code = main([*self._options, *arguments])
            sys.stderr.flush()  # as the end of a process does
        return Ended(code, output.getvalue().decode(), errors.getvalue().decode())
