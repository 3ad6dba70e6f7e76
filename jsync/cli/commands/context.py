"""`jsync context`: create, show, change and select the contexts of the nats tool."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import click

from jsync import contexts, errors

from ..groups import CommandGroup
from ..params.completion import CONTEXT
from ..ui.output import (
    echo,
    is_terminal,
    write_json,
    write_key_values,
    write_result,
    write_row,
    write_table,
)
from ..ui.prompts import confirm, force_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..params.settings import Settings

_OPEN: Final = frozenset(
    (
        *("description", "user", "creds", "nkey", "cert", "key", "ca", "nsc"),
        *("jetstream_domain", "jetstream_api_prefix", "jetstream_event_prefix"),
        *("inbox_prefix", "color_scheme", "windows_cert_store"),
        *("windows_cert_match", "windows_cert_match_by"),
    )
)
"""The fields without secrets. A file is shown by its name, not its content."""
_URLS: Final = frozenset(("url", "socks_proxy"))
_REFERENCES: Final = ("env://", "file://", "op://", "nsc://")
_SECRET_TEXTS: Final = ("data:", "SU", "SA", "SO", "-----")
"""The beginnings of seeds and inline files."""
_HIDDEN: Final = "(hidden)"
_OPTIONS: Final = {
    "server": "url",
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "creds",
    "nkey": "nkey",
    "jwt": "user_jwt",
    "seed": "user_seed",
    "tlscert": "cert",
    "tlskey": "key",
    "tlsca": "ca",
    "tlsfirst": "tls_first",
    "domain": "jetstream_domain",
    "js_api_prefix": "jetstream_api_prefix",
    "inbox_prefix": "inbox_prefix",
}
"""The fields of the options that all commands take."""
_NO_FIELDS: Final = {
    "context": "--context",
    "no_context": "--no-context",
    "timeout": "--timeout",
}
"""The options of all commands that a context cannot store."""
_PATHS: Final = frozenset(("creds", "nkey", "cert", "key", "ca"))
_NAME: Final = click.argument("name", type=CONTEXT)


class _ContextGroup(CommandGroup):
    other_names: Mapping[str, str] = {
        "create": "add",
        "new": "add",
        "save": "add",
        "update": "edit",
        "del": "rm",
        "delete": "rm",
        "l": "ls",
        "list": "ls",
        "info": "show",
        "view": "show",
        "v": "show",
        "set": "select",
        "switch": "select",
    }


@click.group(cls=_ContextGroup)
def context() -> None:
    """Create, show, change and select contexts."""


def _field_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the fields that no other command needs."""
    for names, metavar, text in (
        (
            ("--nsc",),
            "URL",
            "The user of the nsc tool, as nsc://operator/account/user.",
        ),
        (("--socks-proxy",), "URL", "The proxy to connect through."),
        (
            ("--js-event-prefix", "jetstream_event_prefix"),
            "PREFIX",
            "The prefix of the events of JetStream.",
        ),
        (("--description",), "TEXT", "A description of the context."),
    ):
        command = click.option(*names, metavar=metavar, help=text)(command)
    return command


@context.command(
    example="jsync context add prod --server tls://nats.example.com --creds prod.creds"
)
@_NAME
@_field_options
@click.option("--select", is_flag=True, help="Also select the new context.")
@click.pass_obj
def add(settings: Settings, /, name: str, select: bool, **fields: str | None) -> None:
    """Create a context.

    The options that connect other commands, such as --server and --creds, become its
    fields: `jsync options` shows them. The file is readable only by you. To keep a secret
    out of it, write --password env://VARIABLE, or --token, --jwt and --seed in this form.
    """
    root = contexts.directory(os.environ)
    contexts.add(root, name, _given_fields(settings, fields))
    if select:
        contexts.select(root, name)
    text = f"created context {name}" + (" and selected it" if select else "")
    write_result(settings, text, {"created": name, "selected": select})


@context.command(example="jsync context edit lab --domain hub")
@_NAME
@_field_options
@click.option(
    "--unset",
    multiple=True,
    metavar="FIELD",
    help="A field to clear, by the name that `jsync context show` has for it.",
)
@click.pass_obj
def edit(
    settings: Settings, /, name: str, unset: tuple[str, ...], **fields: str | None
) -> None:
    """Change a context.

    Options change only the fields that they name, and credentials of another kind replace
    the ones in the context. The command shows the changes, without secrets.
    """
    root = contexts.directory(os.environ)
    given = _given_fields(settings, fields)
    before = contexts.stored(root, name)
    for field in unset:
        if field in given:
            raise click.UsageError(f"--unset {field} and a value for it are exclusive")
        if field not in before:
            known = ", ".join(key for key, value in before.items() if value)
            raise click.UsageError(f"context {name} has no field {field!r}: {known}")
        given[field] = False if before[field] in (True, False) else ""
    if not given:
        raise click.UsageError(
            "give the fields to change, such as --server URL, or --unset FIELD"
        )
    changes = contexts.edit(root, name, given)
    for field, (old, new) in changes.items():
        was, will_be = (
            _text(_safe(field, value)) if value else "none" for value in (old, new)
        )
        echo(f"  {field}: {was} -> {will_be}", err=True)
    text = f"changed context {name}" if changes else "nothing changes"
    write_result(settings, text, {"changed": name, "fields": [*changes]})


@context.command(example="jsync context rm lab --force")
@_NAME
@force_option
@click.pass_obj
def rm(settings: Settings, name: str, force: bool) -> None:
    """Delete a context.

    If it is the selected one, no context is selected afterwards.
    """
    root = contexts.directory(os.environ)
    if name not in contexts.names(root):
        contexts.stored(root, name)
        raise click.UsageError(f"{name!r} is a file: give the name of a context")
    kind = "the selected context" if contexts.selected(root) == name else "context"
    confirm(f"Delete {kind} {name}?", force=force)
    contexts.remove(root, name)
    write_result(settings, f"deleted context {name}", {"deleted": name})


def _given_fields(
    settings: Settings, fields: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return the fields of a context that the options of a command set.

    Paths become absolute, because a context is used in every directory.
    """
    for option, written in _NO_FIELDS.items():
        if option in settings.given:
            raise click.UsageError(f"a context does not store {written}")
    found = {
        field: settings.given[option]
        for option, field in _OPTIONS.items()
        if option in settings.given
    } | {field: value for field, value in fields.items() if value is not None}
    for field in _PATHS & found.keys():
        path = found[field]
        if path and not path.startswith(("~", "$", "data:")) and "://" not in path:
            found[field] = str(Path(path).absolute())
    return found


@context.command("ls", example="jsync context ls")
@click.option("--names", "-n", is_flag=True, help="Write only the names.")
@click.pass_obj
def list_(settings: Settings, names: bool) -> None:
    """List the contexts."""
    root = contexts.directory(os.environ)
    selected = contexts.selected(root)
    known = contexts.names(root)
    if names:
        if settings.json:
            write_json(known)
        else:
            for name in known:
                write_row([name])
        return
    found = [_summary(root, name, selected) for name in known]
    if settings.json:
        write_json(found)
    else:
        write_table(
            ["name", "selected", "description", "url"],
            [
                [
                    row["name"],
                    "*" if row["selected"] else "",
                    row["description"],
                    row["url"] if row["error"] is None else row["error"],
                ]
                for row in found
            ],
        )


@context.command(example="jsync context show lab")
@click.argument("name", type=CONTEXT, required=False)
@click.pass_obj
def show(settings: Settings, name: str | None) -> None:
    """Show a context, without its secrets.

    Without NAME the command shows the selected context. It says which secrets a context
    has, and does not show them.
    """
    root = contexts.directory(os.environ)
    name = name or contexts.selected(root)
    if name is None:
        raise click.UsageError(
            "no context is selected: give a NAME, or use `jsync context select NAME`"
        )
    stored = contexts.stored(root, name)
    fields: dict[str, Any] = {"name": name, "selected": name == contexts.selected(root)}
    for field, value in stored.items():
        if value not in (None, "", False, []):
            fields[field] = _safe(field, value)
    if settings.json:
        write_json(fields)
    else:
        if is_terminal():
            fields["selected"] = "yes" if fields["selected"] else None
        write_key_values(f"Context {name}", {k: _text(v) for k, v in fields.items()})


@context.command(example="jsync context select lab")
@_NAME
@click.pass_obj
def select(settings: Settings, name: str) -> None:
    """Select the context that is used when you name none.

    The nats tool uses the selected context, too.
    """
    root = contexts.directory(os.environ)
    contexts.stored(root, name)
    if name not in contexts.names(root):
        raise click.UsageError(f"{name!r} is a file: give the name of a context")
    contexts.select(root, name)
    write_result(settings, f"selected context {name}", {"selected": name})


@context.command(example="jsync context unselect")
@click.pass_obj
def unselect(settings: Settings) -> None:
    """Have no context selected."""
    contexts.select(contexts.directory(os.environ), None)
    write_result(settings, "no context is selected", {"selected": None})


def _summary(root: Path, name: str, selected: str | None) -> dict[str, Any]:
    """Return a context for the list, with `error` if its file is not valid."""
    found: dict[str, Any] = {"name": name, "selected": name == selected}
    try:
        stored, error = contexts.stored(root, name), None
    except errors.ConfigError as wrong:
        stored, error = {}, str(wrong)
    return found | {
        "description": str(stored.get("description") or ""),
        "url": _safe("url", stored.get("url") or ""),
        "error": error,
    }


def _safe(field: str, value: Any) -> Any:
    """Return a value of a context. Secrets are hidden, references to them are not."""
    if field in _URLS:
        return ",".join(_without_user(url) for url in str(value).split(","))
    if not isinstance(value, str):
        return value if isinstance(value, bool | list) else _HIDDEN
    if value.startswith(_REFERENCES):
        return value
    if field in _OPEN and not value.startswith(_SECRET_TEXTS):
        return value
    return _HIDDEN


def _without_user(url: str) -> str:
    """Return a URL in which the user, the password or the token is hidden."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return _HIDDEN
    if "@" not in url:
        return url.strip()
    place = parts.netloc.rpartition("@")[2]
    if not parts.scheme or not parts.netloc:
        return f"{_HIDDEN}@{url.rpartition('@')[2]}"
    return urlunsplit((parts.scheme, f"{_HIDDEN}@{place}", parts.path, "", ""))


def _text(value: Any) -> object:
    return json.dumps(value) if isinstance(value, dict) else value
