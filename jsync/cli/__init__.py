"""The `jsync` command.

The parts, lowest first:

    groups      commands with subcommands, and other names of commands
    app         the frame: commands loaded when they are used, options that all of them take
    params      types of parameters, tables of options, templates, the connection of the options
    ui          tables for people, tab-separated lines for pipes, JSON, errors, prompts
    decorators  decorators of commands
    diagnosis   problems of streams, consumers and servers, found in their infos
    ingest      rows of files into a stream
    top         streams and consumers, live
    commands    a module for each command, and the table of their lines of help
"""

from __future__ import annotations

import io
import os
import signal
import sys
from importlib.util import find_spec
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def _fill_closed_streams() -> None:
    """Open the null device for each standard stream that is closed, as by `<&-`.

    Python sets a closed stream to None, and the next socket would get its file
    descriptor. The input is then empty. Writes to the standard output fail, because the
    text would be lost, while the standard error discards them.
    """
    for name, flags, mode in (
        ("stdin", os.O_RDONLY, "r"),
        ("stdout", os.O_RDONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            raw = io.FileIO(os.open(os.devnull, flags), mode)
            # Write through: the interpreter would flush a buffer again at its exit.
            setattr(sys, name, io.TextIOWrapper(raw, write_through=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments`, by default the process's own.

    Blocks until the command has ended, and returns its exit code. Errors are one line
    on the standard error, so no exception is raised.
    """
    _fill_closed_streams()
    if not all(map(find_spec, ("click", "rich"))):
        sys.stderr.write(
            'jsync: to use the command line, run: pip install "jsync[cli]"\n'
        )
        return 1
    from .app import run

    if sys.platform == "win32" and current_thread() is main_thread():
        # By default Ctrl-Break kills the process. As Ctrl-C, it lets a command clean up.
        signal.signal(signal.SIGBREAK, signal.default_int_handler)
    return run(sys.argv[1:] if arguments is None else arguments)
