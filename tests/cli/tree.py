"""Find every command, including nested ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from jsync.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator


def commands() -> dict[str, click.Command]:
    """Return every command that can be run, by its words: `stream create`."""
    return dict(_below(app, ()))


def _below(
    group: click.Group, words: tuple[str, ...]
) -> Iterator[tuple[str, click.Command]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _below(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


COMMANDS = commands()
