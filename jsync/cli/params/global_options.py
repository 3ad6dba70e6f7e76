"""The options that all commands take."""

from __future__ import annotations

from typing import Any

import click

from .completion import CONTEXT, FILE
from .settings import Settings
from .values import DURATION


def _store_global(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store an option of all commands. One after the command overrides one before."""
    if value is not None and value is not False:
        assert param.name is not None
        ctx.ensure_object(Settings).given[param.name] = value


def _option(*names: str, help: str, **more: Any) -> click.Option:  # noqa: A002
    return click.Option(
        names, help=help, expose_value=False, callback=_store_global, **more
    )


JSON = _option("--json", "-j", is_flag=True, help="Write JSON.")


OPTIONS = [
    _option(
        "--server", "-s", metavar="URL", help="URLs of servers, separated by commas."
    ),
    _option(
        "--context",
        type=CONTEXT,
        metavar="NAME",
        help="The context to use: `jsync context ls` shows them.",
    ),
    _option(
        "--no-context", is_flag=True, help="Use no context, also not the selected one."
    ),
    _option(
        "--creds",
        type=FILE,
        metavar="FILE",
        help="A file with credentials, as nsc writes it.",
    ),
    _option(
        "--user",
        metavar="NAME",
        help="The name of the user, or a token if no password is given.",
    ),
    _option("--password", metavar="WORD", help="The password of --user."),
    _option("--token", metavar="WORD", help="The token to authenticate with."),
    _option(
        "--nkey", type=FILE, metavar="FILE", help="A file with the seed of an nkey."
    ),
    _option("--jwt", metavar="JWT", help="The JWT of a user. Needs --seed."),
    _option("--seed", metavar="SEED", help="The seed of the user whose JWT --jwt has."),
    _option(
        "--tlsca",
        type=FILE,
        metavar="FILE",
        help="A file with the certificate authorities to trust.",
    ),
    _option(
        "--tlscert",
        type=FILE,
        metavar="FILE",
        help="A file with the client's certificate. Needs --tlskey.",
    ),
    _option(
        "--tlskey",
        type=FILE,
        metavar="FILE",
        help="A file with the private key of --tlscert.",
    ),
    _option(
        "--tlsfirst",
        is_flag=True,
        help="Begin with the TLS handshake, before the server's INFO.",
    ),
    _option(
        "--domain", "--js-domain", metavar="NAME", help="The JetStream domain to use."
    ),
    _option(
        "--js-api-prefix",
        metavar="PREFIX",
        help="The prefix of the JetStream API, instead of --domain.",
    ),
    _option(
        "--inbox-prefix",
        metavar="PREFIX",
        help="The prefix of the subjects that replies arrive on.",
    ),
    _option(
        "--timeout", type=DURATION, help="The time to wait for a reply. Default: 5s."
    ),
]
"""The options of the connection, which stand before the command or behind it."""


def add_global_options(command: click.Command) -> click.Command:
    """Add the options of all commands to a command and its subcommands."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            add_global_options(below)
    elif JSON not in command.params:
        own = {name for param in command.params for name in param.opts}
        command.params.append(JSON)
        for option in OPTIONS:
            if own.isdisjoint(option.opts):
                command.params.append(_HiddenOption(option))
    return command


class _HiddenOption(click.Option):
    """An option of all commands, on one of them. `jsync options` shows its help."""

    def __init__(self, option: click.Option) -> None:
        super().__init__(
            [*option.opts],
            type=option.type,
            is_flag=option.is_flag,
            expose_value=False,
            callback=_store_global,
            hidden=True,
        )
