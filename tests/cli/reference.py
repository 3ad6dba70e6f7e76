"""Generate the reference in docs/cli.md from the commands themselves.

`python -m tests.cli.reference` writes the reference into the page, below its heading.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jsync.cli.params.environment import VARIABLES
from jsync.cli.params.global_options import OPTIONS

from .tree import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
HEADING = "## Every command"


def reference() -> str:
    """Return the reference that belongs below the heading."""
    return "\n".join(_lines()) + "\n"


def written() -> str:
    """Return the text that is below the heading now."""
    return PAGE.read_text().partition(f"{HEADING}\n\n")[2]


def _lines() -> Iterator[str]:
    yield "The options of the connection, which every command takes, before it or behind it:"
    yield ""
    for option in OPTIONS:
        variable = VARIABLES.get(option.name or "")
        known = f" In the environment: `{variable}`." if variable else ""
        yield _line(option) + known
    for words, command in COMMANDS.items():
        yield ""
        yield f"### jsync {words}"
        yield ""
        arguments = [
            param for param in command.params if isinstance(param, click.Argument)
        ]
        usage = " ".join([f"jsync {words} [OPTIONS]", *map(_argument, arguments)])
        yield f"`{usage}`"
        yield ""
        for paragraph in (command.help or "").replace("\b\n", "").split("\n\n"):
            yield " ".join(paragraph.split())
            yield ""
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                yield _line(param)


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    if argument.nargs == -1 and argument.metavar is None:
        name = f"{name}..."
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _line(option: click.Option) -> str:
    names = ", ".join(option.opts)
    if option.secondary_opts:
        names += " / " + ", ".join(option.secondary_opts)
    return f"- `{names}{_value(option)}`: {option.help}"


def _value(option: click.Option) -> str:
    if option.is_flag or option.count:
        return ""
    if option.metavar:
        return f" {option.metavar}"
    if isinstance(option.type, click.Choice):
        return f" [{'|'.join(map(str, option.type.choices))}]"
    return f" {option.type.name.upper()}"


if __name__ == "__main__":
    before = PAGE.read_text().partition(f"{HEADING}\n\n")[0]
    PAGE.write_text(f"{before}{HEADING}\n\n{reference()}")
