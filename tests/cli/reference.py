"""Generate the reference of the command from the commands themselves.

`python -m tests.cli.reference` writes the list of all commands, and a page for each group of
commands, into docs/cli.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from jsync.cli.groups import ExampleCommand
from jsync.cli.params.environment import VARIABLES
from jsync.cli.params.global_options import OPTIONS

from .tree import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS: Final = Path(__file__).parents[2] / "docs"
LIST: Final = DOCS / "cli/commands.md"
"""The page that lists all commands."""


class Page(NamedTuple):
    """A page of the reference."""

    title: str
    commands: tuple[str, ...]
    """The commands that it describes, each with its subcommands."""


PAGES: Final = {
    "messages": Page(
        "Commands for messages and services",
        ("pub", "sub", "request", "reply", "service"),
    ),
    "stream": Page("Commands for streams", ("stream",)),
    "consumer": Page(
        "Commands for consumers",
        ("consumer", "next", "fetch", "consume"),
    ),
    "kv": Page("Commands for buckets of keys", ("kv",)),
    "object": Page("Commands for object stores", ("object",)),
    "counter": Page("Commands for counters and schedules", ("counter", "schedule")),
    "worker": Page("Commands for workers and groups", ("worker", "dead", "group")),
    "operate": Page(
        "Commands for accounts, contexts and events",
        ("top", "events", "account", "trace", "rtt", "context"),
    ),
    "data": Page("Commands for files and pipelines", ("ingest", "export", "pipeline")),
    "server": Page(
        "Commands for servers and checks",
        ("server", "demo", "doctor", "bench", "options", "completion"),
    ),
}


def reference() -> dict[Path, str]:
    """Return the text that each page of the reference should have."""
    pages = {
        DOCS / "cli" / f"{name}.md": "\n".join(_page(page)) + "\n"
        for name, page in PAGES.items()
    }
    return pages | {LIST: "\n".join(_list()) + "\n"}


def _list() -> Iterator[str]:
    yield "# Every command"
    yield ""
    yield (
        "This page is made from the `--help` of the commands. "
        "[Use the command](../cli.md) shows how they work together."
    )
    yield ""
    yield "| command | |"
    yield "|---|---|"
    for name, page in PAGES.items():
        for words in _commands(page):
            anchor = f"{name}.md#jsync-{words.replace(' ', '-')}"
            summary = (COMMANDS[words].help or "").partition("\n")[0]
            yield f"| [`jsync {words}`]({anchor}) | {summary} |"
    yield ""
    yield "## Options of the connection"
    yield ""
    yield "Every command takes these options, before its name or after it:"
    yield ""
    for option in OPTIONS:
        variable = VARIABLES.get(option.name or "")
        known = f" In the environment: `{variable}`." if variable else ""
        yield _option(option) + known


def _page(page: Page) -> Iterator[str]:
    yield f"# {page.title}"
    yield ""
    yield (
        "This page is made from the `--help` of the commands. The "
        "[options of the connection](commands.md#options-of-the-connection), such as `--server` "
        "and `--context`, belong to every command."
    )
    for words in _commands(page):
        yield from _section(words, COMMANDS[words])


def _commands(page: Page) -> Iterator[str]:
    for words in COMMANDS:
        if words.partition(" ")[0] in page.commands:
            yield words


def _section(words: str, command: click.Command) -> Iterator[str]:
    assert isinstance(command, ExampleCommand)
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    usage = " ".join([f"jsync {words} [OPTIONS]", *map(_argument, arguments)])
    yield from ("", f"## jsync {words}", "", f"`{usage}`", "")
    for paragraph in (command.help or "").split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""
    yield from ("```text", *command.example.splitlines(), "```", "")
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            yield _option(param)


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    if argument.nargs == -1 and argument.metavar is None:
        name = f"{name}..."
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: click.Option) -> str:
    names = ", ".join(option.opts)
    if option.secondary_opts:
        names += " / " + ", ".join(option.secondary_opts)
    return f"- `{names}{_value(option)}`: {option.help}"


def _value(option: click.Option) -> str:
    if option.is_flag or option.count:
        return ""
    if option.metavar:
        return f" {option.metavar}"
    if isinstance(option.type, click.Choice):
        return f" [{'|'.join(map(str, option.type.choices))}]"
    return f" {option.type.name.upper()}"


if __name__ == "__main__":
    for path, text in reference().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
