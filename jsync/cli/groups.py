"""Commands whose help has an example, and commands with subcommands."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import click

from .ui.errors import ExitCode
from .ui.output import echo

if TYPE_CHECKING:
    from collections.abc import Mapping

_OTHER_NAMES: Final = {
    "add": "create",
    "new": "create",
    "del": "rm",
    "delete": "rm",
    "i": "info",
    "list": "ls",
    "nfo": "info",
    "update": "edit",
}


class ExampleCommand(click.Command):
    """A command whose help ends with lines that a user can copy."""

    def __init__(self, name: str | None, *, example: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Example"):
            for line in self.example.splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class CommandGroup(click.Group):
    """A command with subcommands, such as `jsync stream`.

    Without a subcommand it shows its help. It also accepts the names of subcommands that
    the nats tool uses.
    """

    command_class: type[click.Command] | None = ExampleCommand
    other_names: Mapping[str, str] = _OTHER_NAMES

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            echo(ctx.get_help(), err=True)
            ctx.exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.other_names.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = name.startswith("-") or self.get_command(ctx, name) is not None
        if not known and not ctx.resilient_parsing:
            names = [*self.list_commands(ctx), *self.other_names]
            near = [repr(other) for other in get_close_matches(name, names)]
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)
