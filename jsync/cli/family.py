"""A command of commands, which also answers to the names that the nats tool has for them."""

from __future__ import annotations

from typing import Final

import click

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


class Family(click.Group):
    """Commands that belong together, `jsync stream ...`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, _OTHER_NAMES.get(cmd_name, cmd_name))
