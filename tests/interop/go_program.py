"""Build a Go program that uses nats.go, and send it requests line by line.

`python -m tests.interop.go_program` builds it and the `nats` command, before any test needs them.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

SOURCES = Path(__file__).parent / "go"
NATSCLI = "v0.5.1"
PROGRAM = SOURCES.parent.parent.parent / ".cache" / "interop" / "peer"


def toolchain() -> str:
    """Return the path of the `go` command."""
    known = ("go", "/usr/local/go/bin/go", f"{sys.prefix}/bin/go")
    go = next(filter(None, map(shutil.which, known)), None)
    assert go is not None, (
        "no Go toolchain here: install Go 1.26 or newer, or run scripts/need-go"
    )
    return go


def build() -> Path:
    """Build the program. Needs Go and its module proxy."""
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    if not PROGRAM.exists() or PROGRAM.stat().st_mtime < newest:
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        _run([toolchain(), "build", "-C", str(SOURCES), "-o", str(PROGRAM), "."])
    return PROGRAM


def nats_command() -> Path:
    """Return the `nats` command. The first call builds it with Go, which takes minutes."""
    program = PROGRAM.parent / f"natscli-{NATSCLI}" / "nats"
    if not program.exists():
        package = f"github.com/nats-io/natscli/nats@{NATSCLI}"
        where = os.environ | {"GOBIN": str(program.parent)}
        _run([toolchain(), "install", package], where)
    return program


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    built = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr


class GoClient:
    """A process with nats.go."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [build(), url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, op: str, **request: Any) -> dict[str, Any]:
        """Run one operation, and return the reply.

        A failed operation has an `error` in its reply.
        """
        if "value" in request:
            request["value"] = base64.b64encode(request["value"]).decode()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **request}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        for entry in answer["entries"] or ():
            entry["value"] = base64.b64decode(entry["value"] or "")
        answer["value"] = base64.b64decode(answer["value"] or "")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    build()
    nats_command()
