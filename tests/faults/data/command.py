"""The command in a process of its own, forked from one that has imported it already."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import TYPE_CHECKING

import jsync.cli
import jsync.cli.commands.backup
import jsync.cli.commands.export
import jsync.cli.ingest.command

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


def start(errors: Path, *arguments: str) -> ForkServerProcess:
    """Start the command. Its standard error goes to a file."""
    process = _CONTEXT.Process(target=_run, args=(str(errors), arguments))
    process.start()
    return process


def _run(errors: str, arguments: tuple[str, ...]) -> None:
    file = os.open(errors, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 2)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    sys.exit(jsync.cli.main(list(arguments)))
