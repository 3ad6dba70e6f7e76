"""`jsync completion`: the script that completes commands in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ..groups import ExampleCommand
from ..params.completion import VARIABLE
from ..ui.output import write_text


@click.command(cls=ExampleCommand, example='eval "$(jsync completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Write the script that completes commands in a shell.

    For bash, put `eval "$(jsync completion bash)"` into ~/.bashrc. For zsh, put the
    same with zsh into ~/.zshrc, below `compinit`. For fish, run
    `jsync completion fish > ~/.config/fish/completions/jsync.fish`.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "jsync", VARIABLE).source()
    write_text(script, "\n")
