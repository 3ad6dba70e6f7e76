"""`jsync options`: the options of the connection, which all commands take."""

from __future__ import annotations

import click

from .app import OPTIONS
from .contexts import VARIABLES


@click.command()
@click.pass_context
def options(ctx: click.Context) -> None:
    """Show the options that all commands take.

    They may stand before a command or behind it, and win over the environment, which wins
    over the context.
    """
    formatter = ctx.make_formatter()
    lines = []
    for option in OPTIONS:
        assert option.name is not None
        variable = VARIABLES.get(option.name)
        names = ", ".join(option.opts)
        metavar = "" if option.is_flag else f" {option.make_metavar(ctx)}"
        known = f" [{variable}]" if variable else ""
        lines.append((names + metavar, f"{option.help}{known}"))
    formatter.write_dl(lines)
    click.echo(formatter.getvalue(), nl=False)
