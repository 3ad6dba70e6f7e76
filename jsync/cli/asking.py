"""Questions before what cannot be undone."""

from __future__ import annotations

import sys

import click

from .output import ask


def confirm(question: str, *, force: bool) -> None:
    """Return when it may be done: `--force` says so, or somebody at a terminal.

    Raises `click.UsageError` where nobody can be asked, and `click.ClickException` when
    the answer is no.
    """
    if force:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"{question} Say --force where nobody can be asked.")
    if not ask(question):
        raise click.ClickException("nothing was done")


force_option = click.option("--force", "-f", is_flag=True, help="Do not ask.")
