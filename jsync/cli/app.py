"""The frame of the command: commands loaded when they are used, options that all of them take."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import shell_complete

from jsync import __version__

from .commands import HIDDEN, SECTIONS
from .completion import CONTEXT, FILE, VARIABLE
from .failures import Code, guard
from .family import Family
from .settings import Settings
from .values import DURATION

if TYPE_CHECKING:
    from collections.abc import Sequence


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store an option of all commands. One after the command overrides one before."""
    if value is not None and value is not False:
        assert param.name is not None
        ctx.ensure_object(Settings).given[param.name] = value


def _option(*names: str, help: str, **more: Any) -> click.Option:  # noqa: A002
    return click.Option(
        names, help=help, expose_value=False, callback=_remember, **more
    )


_NAME = "jsync"
_USUAL = {"--server", "--context", "--creds", "--json", "--version", "--help"}
"""The options that the help of `jsync` itself shows."""

JSON = _option("--json", "-j", is_flag=True, help="Write JSON.")
OPTIONS = [
    _option("--server", "-s", metavar="URL", help="Servers, separated by commas."),
    _option("--context", type=CONTEXT, metavar="NAME", help="One of the nats tool's."),
    _option("--no-context", is_flag=True, help="Use no context, not the selected one."),
    _option("--creds", type=FILE, metavar="FILE", help="Credentials, a creds file."),
    _option("--user", metavar="NAME", help="User, or a token when without password."),
    _option("--password", metavar="WORD", help="Password."),
    _option("--token", metavar="WORD", help="Token."),
    _option(
        "--nkey", type=FILE, metavar="FILE", help="The seed of an nkey, in a file."
    ),
    _option("--jwt", metavar="JWT", help="A user's JWT, with --seed."),
    _option("--seed", metavar="SEED", help="The seed that goes with --jwt."),
    _option("--tlsca", type=FILE, metavar="FILE", help="Authorities to trust."),
    _option("--tlscert", type=FILE, metavar="FILE", help="Our certificate."),
    _option("--tlskey", type=FILE, metavar="FILE", help="Its key."),
    _option("--tlsfirst", is_flag=True, help="Begin with TLS."),
    _option("--domain", "--js-domain", metavar="NAME", help="The JetStream domain."),
    _option("--js-api-prefix", metavar="PREFIX", help="Prefix of JetStream's API."),
    _option("--inbox-prefix", metavar="PREFIX", help="Prefix of inboxes."),
    _option(
        "--timeout", type=DURATION, help="Time to wait for an answer. Default: 5s."
    ),
]
"""The options of the connection, which stand before the command or behind it."""


def adopt(command: click.Command) -> click.Command:
    """Add the options of all commands to a command and its subcommands."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            adopt(below)
    elif JSON not in command.params:
        own = {name for param in command.params for name in param.opts}
        command.params.append(JSON)
        for option in OPTIONS:
            if own.isdisjoint(option.opts):
                command.params.append(_Unlisted(option))
    return command


class _Unlisted(click.Option):
    """An option of all commands, on one of them. `jsync options` shows its help."""

    def __init__(self, option: click.Option) -> None:
        super().__init__(
            [*option.opts],
            type=option.type,
            is_flag=option.is_flag,
            expose_value=False,
            callback=_remember,
            hidden=True,
        )


class Jsync(Family):
    """The commands of the table, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = HIDDEN.get(cmd_name, cmd_name)
        for section in SECTIONS.values():
            if name in section:
                module, _, attribute = section[name].where.partition(":")
                found = getattr(import_module(f"{__package__}.{module}"), attribute)
                assert isinstance(found, click.Command)
                return adopt(found)
        return None

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        records = [param.get_help_record(ctx) for param in self.get_params(ctx)]
        shown = [
            record
            for record in records
            if record and _USUAL.intersection(record[0].replace(",", "").split())
        ]
        with formatter.section("Options, of which `jsync options` shows all"):
            formatter.write_dl(shown)
        self.format_commands(ctx, formatter)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        for title, section in SECTIONS.items():
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
    return guard(lambda: _invoke([*arguments]))


def _invoke(arguments: list[str]) -> Code | None:
    # Do not call `app.main`, because it exits the process at a broken pipe.
    with app.make_context(_NAME, arguments) as ctx:
        code: Code | None = app.invoke(ctx)
        return code
