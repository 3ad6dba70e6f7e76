"""`jsync options`: the options of the connection, which all commands take."""

from __future__ import annotations

import click

from ..groups import ExampleCommand
from ..params.environment import VARIABLES
from ..params.global_options import OPTIONS
from ..ui.output import write_json, write_text


@click.command(cls=ExampleCommand, example="jsync options")
@click.pass_context
def options(ctx: click.Context) -> None:
    """Show the options that all commands take.

    They may stand before a command or behind it, and win over the environment, which wins
    over the context.
    """
    known = []
    for option in OPTIONS:
        names, words = option.get_help_record(ctx) or ("", "")
        known.append((names, VARIABLES.get(option.name or ""), words))
    if ctx.obj.json:
        keys = ("option", "variable", "help")
        write_json([dict(zip(keys, row, strict=True)) for row in known])
        return
    formatter = ctx.make_formatter()
    formatter.write_dl(
        [
            (option, f"{words} [{variable}]" if variable else words)
            for option, variable, words in known
        ]
    )
    write_text(formatter.getvalue())
