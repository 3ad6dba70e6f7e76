"""`jsync context`: the contexts of the nats tool, listed, shown and selected."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import click

from jsync import contexts, errors

from ..groups import CommandGroup
from ..params.completion import CONTEXT
from ..ui.output import (
    is_terminal,
    write_json,
    write_key_values,
    write_result,
    write_row,
    write_table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
_NAME: Final = click.argument("name", type=CONTEXT)


class _ContextGroup(CommandGroup):
    other_names: Mapping[str, str] = {
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
    """List, show and select contexts."""


@context.command("ls")
@click.option("--names", "-n", is_flag=True, help="Only the names.")
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
                    each["name"],
                    "*" if each["selected"] else "",
                    each["description"],
                    each["url"] if each["error"] is None else each["error"],
                ]
                for each in found
            ],
        )


@context.command()
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
    facts: dict[str, Any] = {"name": name, "selected": name == contexts.selected(root)}
    for field, value in stored.items():
        if value not in (None, "", False, []):
            facts[field] = _safe(field, value)
    if settings.json:
        write_json(facts)
    else:
        if is_terminal():
            facts["selected"] = "yes" if facts["selected"] else None
        write_key_values(f"Context {name}", {k: _text(v) for k, v in facts.items()})


@context.command()
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


@context.command()
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
