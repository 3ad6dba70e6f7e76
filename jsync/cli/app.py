"""The frame of the command: commands are loaded when they are used."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

import click
from click.shell_completion import shell_complete

from jsync import __version__

from . import commands
from .groups import CommandGroup
from .params.completion import VARIABLE
from .params.global_options import JSON, OPTIONS, add_global_options
from .params.settings import Settings
from .ui.errors import ExitCode, run_with_exit_code

if TYPE_CHECKING:
    from collections.abc import Sequence


_NAME = "jsync"
_SHORT_HELP = {"--server", "--context", "--creds", "--json", "--version", "--help"}
"""The options that the help of `jsync` itself shows."""


class Jsync(CommandGroup):
    """The commands of the table, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for section in commands.SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = commands.HIDDEN.get(cmd_name, cmd_name)
        for section in commands.SECTIONS.values():
            if name in section:
                module, _, attribute = section[name].where.partition(":")
                found = getattr(import_module(module, commands.__name__), attribute)
                assert isinstance(found, click.Command)
                return add_global_options(found)
        return None

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        records = [param.get_help_record(ctx) for param in self.get_params(ctx)]
        shown = [
            record
            for record in records
            if record and _SHORT_HELP.intersection(record[0].replace(",", "").split())
        ]
        with formatter.section("Options, of which `jsync options` shows all"):
            formatter.write_dl(shown)
        self.format_commands(ctx, formatter)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        for title, section in commands.SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name, command.help) for name, command in section.items()]
                )


@click.group(
    cls=Jsync,
    params=[*OPTIONS, JSON],
    context_settings={"help_option_names": ["--help", "-h"]},
)
@click.version_option(__version__, "--version")
@click.pass_context
def app(ctx: click.Context) -> None:
    """NATS and JetStream from the command line."""
    ctx.ensure_object(Settings)


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code.

    Blocks until the command has ended.
    """
    instruction = os.environ.get(VARIABLE)
    if instruction:
        return shell_complete(app, {}, _NAME, VARIABLE, instruction)
    return run_with_exit_code(lambda: _invoke([*arguments]))


def _invoke(arguments: list[str]) -> ExitCode | None:
    # Do not call `app.main`, because it exits the process at a broken pipe.
    with app.make_context(_NAME, arguments) as ctx:
        code: ExitCode | None = app.invoke(ctx)
        return code
