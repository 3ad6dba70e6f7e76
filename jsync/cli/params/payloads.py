"""The payloads and headers of messages, from the command line or the standard input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ..ui.stdin import standard_input
from .values import HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

headers_option = click.option(
    "--header",
    "-H",
    "headers",
    type=HEADER,
    multiple=True,
    help="A header, as NAME:VALUE. Can be repeated.",
)


def read_payloads(body: str | None, send_on: str) -> Iterator[bytes]:
    """Yield the payloads: the argument, or the standard input, whole or line by line.

    If the standard input is a terminal, the only payload is empty, so the command does
    not wait.
    """
    if body is not None:
        yield body.encode(errors="surrogateescape")
        return
    if sys.stdin.isatty():
        yield b""
        return
    if send_on == "newline":
        for line in standard_input():
            yield line.removesuffix(b"\n")
    else:
        yield standard_input().read()
