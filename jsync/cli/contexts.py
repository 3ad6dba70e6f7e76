"""The contexts that the nats command line tool stores, and reads of the environment.

They are JSON files, `$XDG_CONFIG_HOME/nats/context/NAME.json`, and `context.txt` beside
the directory has the name of the one that is selected.
"""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLES: Final = {
    "server": "NATS_URL",
    "user": "NATS_USER",
    "password": "NATS_PASSWORD",
    "token": "NATS_TOKEN",
    "creds": "NATS_CREDS",
    "nkey": "NATS_NKEY",
    "jwt": "NATS_JWT",
    "seed": "NATS_SEED",
    "tlscert": "NATS_CERT",
    "tlskey": "NATS_KEY",
    "tlsca": "NATS_CA",
    "timeout": "NATS_TIMEOUT",
    "context": "NATS_CONTEXT",
}
"""The environment variables of the nats command line tool, by our options."""

_FIELDS: Final = {
    "url": "server",
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "creds",
    "nkey": "nkey",
    "cert": "tlscert",
    "key": "tlskey",
    "ca": "tlsca",
    "user_jwt": "jwt",
    "user_seed": "seed",
    "jetstream_domain": "domain",
    "jetstream_api_prefix": "js_api_prefix",
    "inbox_prefix": "inbox_prefix",
    "tls_first": "tlsfirst",
}
_FILES: Final = frozenset(("creds", "nkey", "tlscert", "tlskey", "tlsca"))
_REFERENCES: Final = _FILES | {"password", "token", "jwt", "seed"}
"""What may be in a file, in the environment, or in the context itself."""
_SCHEME: Final = re.compile(r"(?:file|env|nsc|op)://|data:")
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_REFUSED: Final = {
    "nsc": "the nsc tool",
    "socks_proxy": "a SOCKS proxy",
    "windows_cert_store": "the certificate store of Windows",
}
_KINDS: Final = (
    ("user", "password"),
    ("creds",),
    ("nkey",),
    ("jwt", "seed"),
    ("token",),
)
"""Of several kinds in a context the first is used, as by the nats tool."""
CREDENTIALS: Final = frozenset(option for kind in _KINDS for option in kind)
"""The options that say who we are."""


def directory(environ: Mapping[str, str]) -> Path:
    """Where contexts are stored."""
    config = environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "nats"


def names(root: Path) -> list[str]:
    """The contexts there are."""
    return sorted(path.stem for path in (root / "context").glob("*.json"))


def selected(root: Path) -> str | None:
    """The context that is used when none is named, if there is one."""
    try:
        return (root / "context.txt").read_text().strip() or None
    except FileNotFoundError:
        return None


def select(root: Path, name: str | None) -> None:
    """Have a context used when none is named; None for no context.

    As the nats tool does: `previous-context.txt` has the one before. Each file is
    replaced as a whole.
    """
    before = selected(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        if before is not None:
            _replace(root / "previous-context.txt", before)
        if name is None:
            (root / "context.txt").unlink(missing_ok=True)
        else:
            _replace(root / "context.txt", name)
    except OSError as error:
        raise click.ClickException(f"{root}: {error.strerror or error}") from None


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(text)
    new.chmod(0o600)
    new.replace(path)


def stored(root: Path, name: str) -> dict[str, Any]:
    """The fields of a context, as they are stored; `name` may be the path of its file.

    Raises `click.UsageError` for one that does not exist, or is no context.
    """
    path = _path(root, name)
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        known = ", ".join(names(root)) or "none"
        raise click.UsageError(
            f"there is no context {name!r} in {root / 'context'} (known: {known})"
        ) from None
    except (ValueError, RecursionError):
        raise click.UsageError(f"{path} is not JSON") from None
    if not isinstance(found, dict):
        raise click.UsageError(f"{path} is not a context")
    return found


def _path(root: Path, name: str) -> Path:
    if name.endswith(".json"):
        return Path(name)
    if ".." in name or "/" in name:
        raise click.UsageError(f"{name!r} is not the name of a context")
    return root / "context" / f"{name}.json"


def load(root: Path, name: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The options that a context stands for; `name` may be the path of its file."""
    path, fields = _path(root, name), stored(root, name)
    for field, what in _REFUSED.items():
        if fields.get(field):
            raise click.UsageError(f"{path}: jsync cannot use {what} ({field})")
    options = {
        option: fields[field] for field, option in _FIELDS.items() if fields.get(field)
    }
    for option, value in options.items():
        if not isinstance(value, bool if option == "tlsfirst" else str):
            raise click.UsageError(f"{path}: {option} cannot be {value!r:.100}")
    for kind in _KINDS:
        if kind[0] in options:
            for option in CREDENTIALS.difference(kind):
                options.pop(option, None)
            break
    if "user" in options:
        # Without a password the user would be taken for a token.
        options.setdefault("password", "")
    for option in _REFERENCES & options.keys():
        options[option] = _fetched(options[option], f"{path}: {option}", environ)
    for option in _FILES & options.keys():
        if isinstance(options[option], str):
            options[option] = _expanded(options[option], environ)
    return options


def _fetched(reference: str, where: str, environ: Mapping[str, str]) -> str | bytes:
    """What a value refers to, as bytes; a plain one, or the path of a file, as it is."""
    scheme = _SCHEME.match(reference)
    if scheme is None:
        return reference
    rest = reference[scheme.end() :]
    match scheme[0]:
        case "file://":
            return rest
        case "env://":
            if not environ.get(rest):
                raise click.UsageError(
                    f"{where}: the environment variable {rest} is not set"
                )
            return environ[rest].encode()
        case "data:":
            try:
                return base64.b64decode(rest.partition(",")[2], validate=True)
            except ValueError:
                raise click.UsageError(f"{where} is not base64") from None
    raise click.UsageError(f"{where}: jsync cannot use {scheme[0]}")


def _expanded(path: str, environ: Mapping[str, str]) -> str:
    """A path without variables and `~`; what is not set is empty, as in Go."""
    text = _VARIABLE.sub(lambda found: environ.get(found[1] or found[2], ""), path)
    return os.path.expanduser(text)


def resolve(given: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """All options: those given, then the environment's, then the context's.

    Credentials go together: any that is given or in the environment takes the place of all
    that the context has.
    """
    options = {
        option: environ[variable]
        for option, variable in VARIABLES.items()
        if environ.get(variable)
    }
    options.update(given)
    if options.pop("no_context", False):
        return options
    root = directory(environ)
    name = options.pop("context", None) or selected(root)
    if name is None:
        return options
    context = load(root, name, environ)
    if any(option in options for option in CREDENTIALS):
        for option in CREDENTIALS:
            context.pop(option, None)
    return {**context, **options}
