"""Confirmation of changes that cannot be undone."""

from __future__ import annotations

import sys

import click

from .output import ask


def confirm(question: str, *, force: bool) -> None:
    """Return if `--force` or a person at a terminal allows the change.

    Raises `click.UsageError` if there is no terminal, and `click.ClickException` if the
    answer is no.
    """
    if force:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(
            f"{question} There is no terminal to confirm on: pass --force"
        )
    if not ask(question):
        raise click.ClickException("nothing was done")


force_option = click.option(
    "--force", "-f", is_flag=True, help="Act without confirmation."
)
