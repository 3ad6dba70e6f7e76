"""The contexts that the nats command stores: names for servers and credentials (ADR-21).

`jsync.connect(context="prod")` and the `jsync` command use them. Contexts are JSON files,
`$XDG_CONFIG_HOME/nats/context/NAME.json`. The file `context.txt` next to that directory has
the name of the selected context.
"""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .core.proxies import parse_proxy
from .core.server_address import parse_servers
from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    "jetstream_event_prefix": "js_event_prefix",
    "inbox_prefix": "inbox_prefix",
    "tls_first": "tlsfirst",
    "socks_proxy": "proxy",
}
_FILES: Final = frozenset(("creds", "nkey", "tlscert", "tlskey", "tlsca"))
_REFERENCES: Final = _FILES | {"password", "token", "jwt", "seed"}
"""Settings whose values may be in a file, in the environment, or in the context."""
_SCHEME: Final = re.compile(r"(?:file|env|nsc|op)://|data:")
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_REFUSED: Final = {"windows_cert_store": "the certificate store of Windows"}
_NSC: Final = "nsc://"
_NSC_SECONDS: Final = 30.0
"""The timeout of the nsc command."""
_NO_NAME: Final = re.compile(r"[/\\]|\.\.|\.json$|^\s|\s$|^$")
_EMPTY: Final[dict[str, Any]] = {
    "description": "",
    **dict.fromkeys(_FIELDS, ""),
    "nsc": "",
    "tls_first": False,
}
"""The fields of a new context. The unused ones show their names to people who edit it."""
_field_of: Final = {setting: field for field, setting in _FIELDS.items()}
_json_kinds: Final = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
    str: "a string",
}
_KINDS: Final = (
    ("user", "password"),
    ("creds",),
    ("nkey",),
    ("jwt", "seed"),
    ("token",),
)
"""The kinds of credentials. A context with several uses the first, as the nats tool."""
CREDENTIALS: Final = frozenset(option for kind in _KINDS for option in kind)
"""The options that are credentials."""


def directory(environ: Mapping[str, str]) -> Path:
    """Return the directory that stores the contexts."""
    config = environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "nats"


def names(root: Path) -> list[str]:
    """Return the names of the stored contexts."""
    return sorted(path.stem for path in (root / "context").glob("*.json"))


def selected(root: Path) -> str | None:
    """Return the name of the selected context, which is the default, or None.

    Raises `ConfigError` if `context.txt` cannot be read.
    """
    path = root / "context.txt"
    try:
        return path.read_text("utf-8").strip() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8") from None


def select(root: Path, name: str | None) -> None:
    """Select the context to use by default, or none with None.

    As in the nats tool, `previous-context.txt` has the previous selection. Each file is
    replaced atomically.
    """
    try:
        before = selected(root)
    except ConfigError:
        before = None  # the new selection replaces an unreadable one
    root.mkdir(parents=True, exist_ok=True)
    if before is not None:
        _replace(root / "previous-context.txt", before)
    if name is None:
        (root / "context.txt").unlink(missing_ok=True)
    else:
        _replace(root / "context.txt", name)


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically. Only its owner can read it, because it may hold secrets."""
    path = path.resolve()  # the file that a link names is replaced, not the link
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)  # left by a process with this id that was killed
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(file, "w", encoding="utf-8", newline="") as output:
            output.write(text)
            output.flush()
            os.fsync(output.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def add(root: Path, name: str, fields: Mapping[str, Any]) -> None:
    """Store a new context.

    Args:
        root: The directory of the contexts.
        name: Its name.
        fields: The fields to set, by the names that they have in the file.

    Raises:
        ConfigError: The name or a field is not valid, the context exists already, or it
            cannot be written.
    """
    path = _stored_path(root, name)
    values = _EMPTY | {**fields}
    # A URL would override that of nsc.
    if not values["url"] and not values["nsc"]:
        values["url"] = "nats://127.0.0.1:4222"
    _check_fields(values)
    if path.exists():
        raise ConfigError(f"there is a context {name!r} already")
    _write(path, values)


def edit(
    root: Path, name: str, fields: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Change fields of a context. All other fields stay as they are.

    Credentials of one kind replace the others, because a context uses only one kind.

    Args:
        root: The directory of the contexts.
        name: Its name.
        fields: The fields to change, by the names that they have in the file.

    Returns:
        The changed fields, each with the value before and after.

    Raises:
        ConfigError: The context does not exist or is not JSON, a field is not valid, or
            the file cannot be written.
    """
    path = _stored_path(root, name)
    before = stored(root, name)
    merged = before | {**fields}
    for kind in _KINDS:
        if any(fields.get(_field_of[setting]) for setting in kind):
            for setting in CREDENTIALS.difference(kind):
                if merged.get(field := _field_of[setting]) and field not in fields:
                    merged[field] = ""
    _check_fields(merged)
    changes = {
        field: (before.get(field, _EMPTY.get(field)), value)
        for field, value in merged.items()
        if value != before.get(field, _EMPTY.get(field))
    }
    if changes:
        if stored(root, name) != before:
            raise ConfigError(f"another program changed context {name!r}: try again")
        _write(path, merged)
    return changes


def remove(root: Path, name: str) -> None:
    """Delete a context. If it is selected, no context is selected afterwards.

    Raises `ConfigError` if the context does not exist or cannot be deleted.
    """
    path = _stored_path(root, name)
    if not path.exists():
        stored(root, name)  # raises the error that lists the known contexts
    try:
        if selected(root) == name:
            select(root, None)
        path.unlink()
    except OSError as error:
        raise ConfigError(f"context {name!r}: {error.strerror}") from None


def _stored_path(root: Path, name: str) -> Path:
    """Return the path of a context to write. Raises `ConfigError` for a bad name."""
    if _NO_NAME.search(name) or not name.isprintable():
        raise ConfigError(
            f"{name!r} cannot be the name of a context: leave out slashes, `..`, control "
            "characters, spaces at the ends and the ending .json"
        )
    return root / "context" / f"{name}.json"


def _write(path: Path, fields: Mapping[str, Any]) -> None:
    text = msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _check_fields(fields: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a field that jsync could not use, or a part that is missing.

    Does not resolve references, because their variables may be set later.
    """
    known = {field: fields.get(field) or "" for field in _FIELDS}
    kinds = [
        kind for kind in _KINDS if any(known[_field_of[setting]] for setting in kind)
    ]
    if len(kinds) > 1:
        names = " and ".join(kind[0] for kind in kinds)
        raise ConfigError(f"{names} are mutually exclusive: keep only one of them")
    if known["password"] and not known["user"]:
        raise ConfigError("a password needs a user")
    if bool(known["user_jwt"]) != bool(known["user_seed"]):
        raise ConfigError("user_jwt and user_seed go together")
    if known["jetstream_domain"] and known["jetstream_api_prefix"]:
        raise ConfigError(
            "jetstream_domain and jetstream_api_prefix are mutually exclusive"
        )
    if known["url"]:
        parse_servers(known["url"])
    if known["socks_proxy"]:
        parse_proxy(known["socks_proxy"], "socks_proxy")
    for setting in _FILES:
        field, path = _field_of[setting], known[_field_of[setting]]
        if path and not _SCHEME.match(path) and not _VARIABLE.search(path):
            _check_there(field, os.path.expanduser(path))


def stored(root: Path, name: str) -> dict[str, Any]:
    """Return the fields of a context, as they are stored.

    `name` may be the path of its file. Raises `ConfigError` if the file does not exist or
    is not a context.
    """
    path = _path(root, name)
    try:
        found = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        known = ", ".join(names(root)) or "none"
        raise ConfigError(
            f"there is no context {name!r} in {root / 'context'} (known: {known})"
        ) from None
    except OSError as error:
        raise ConfigError(f"context {name!r}: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise ConfigError(f"{path} is not JSON") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not a context")
    return found


def _path(root: Path, name: str) -> Path:
    if name.endswith(".json"):
        return Path(name)
    if ".." in name or "/" in name:
        raise ConfigError(f"{name!r} is not the name of a context")
    return root / "context" / f"{name}.json"


def load(root: Path, name: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Read the settings of a context.

    Args:
        root: The directory of the contexts.
        name: The name of the context, or the path of its file.
        environ: The environment variables, which values may name.

    Returns:
        The settings, by the names that the options of the `jsync` command have.

    Raises:
        ConfigError: The context does not exist, or a field has a value that jsync cannot
            use. The error names the file and the field.
    """
    path, fields = _path(root, name), stored(root, name)
    for field, what in _REFUSED.items():
        if fields.get(field):
            raise ConfigError(f"{path}: jsync cannot use {what} ({field})")
    settings: dict[str, Any] = {}
    for field, setting in _FIELDS.items():
        value = fields.get(field)
        if not value:
            continue
        if not isinstance(value, bool if field == "tls_first" else str):
            kind = "true or false" if field == "tls_first" else "a string"
            raise ConfigError(
                f"{path}: {field}: {kind}, not {_json_kinds[type(value)]}"
            )
        settings[setting] = value
    if lookup := fields.get("nsc"):
        # A URL and creds of the context's own have precedence.
        settings = _profile(str(lookup), f"{path}: nsc") | settings
    for credentials in _KINDS:
        if credentials[0] in settings:
            for setting in CREDENTIALS.difference(credentials):
                settings.pop(setting, None)
            break
    if "user" in settings:
        settings.setdefault("password", "")  # a user without one would be a token
    elif "password" in settings:
        raise ConfigError(f"{path}: password: a password needs a user")
    if ("jwt" in settings) != ("seed" in settings):
        raise ConfigError(f"{path}: user_jwt and user_seed go together")
    if "domain" in settings:  # as the nats command has it
        settings.pop("js_api_prefix", None)
    for setting in _REFERENCES & settings.keys():
        where = f"{path}: {_field_of[setting]}"
        settings[setting] = _resolve_reference(settings[setting], where, environ)
    for setting in _FILES & settings.keys():
        if isinstance(settings[setting], str):
            where = f"{path}: {_field_of[setting]}"
            settings[setting] = _expand_env(settings[setting], where, environ)
    return settings


def connect_keywords(
    name: str, environ: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a context as the arguments of `jsync.connect` and of `Connection.jetstream`.

    Args:
        name: The name of the context, or the path of its file. Empty: the one that
            `NATS_CONTEXT` names, or the selected context.
        environ: The environment variables.

    Returns:
        Two dicts of keywords, of `connect` and of `jetstream`.

    Raises:
        ConfigError: There is no such context, or a field has a value that jsync cannot
            use. The error names the file and the field.
    """
    root = directory(environ)
    name = name or environ.get("NATS_CONTEXT") or selected(root) or ""
    if not name:
        raise ConfigError(
            f"no context is selected in {root}: name one, or run `jsync context select`"
        )
    settings = load(root, name, environ)
    try:
        keywords = to_keywords(settings)
    except ConfigError as error:
        raise ConfigError(f"{_path(root, name)}: {error}") from error
    return keywords, jetstream_keywords(settings)


def jetstream_keywords(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `Connection.jetstream` for settings of a context."""
    names = {
        "domain": "domain",
        "js_api_prefix": "prefix",
        "js_event_prefix": "event_prefix",
    }
    return {
        keyword: settings[name] for name, keyword in names.items() if name in settings
    }


def to_keywords(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `jsync.connect` for settings of a context.

    Args:
        settings: The settings that `load` returns.

    Returns:
        The keywords.

    Raises:
        ConfigError: The settings do not go together, or a file cannot be used.
    """
    keywords = {
        "servers": settings.get("server"),
        "tls_ca": _format_field("ca", settings.get("tlsca")),
        "tls_cert": _format_field("cert", settings.get("tlscert")),
        "tls_key": _format_field("key", settings.get("tlskey")),
        "tls_handshake_first": settings.get("tlsfirst"),
        "inbox_prefix": settings.get("inbox_prefix"),
        "token": _text("token", settings.get("token")),
        "creds": settings.get("creds"),
        "proxy": settings.get("proxy"),
    }
    if isinstance(creds := keywords["creds"], str):
        _check_there("creds", creds)
    user = settings.get("user")
    password = _text("password", settings.get("password"))
    if user and password is not None:
        keywords |= {"user": user, "password": password}
    elif user:  # as the nats command has it
        keywords["token"] = user
    elif password:
        raise ConfigError("a password needs a user: --user NAME --password WORD")
    if nkey := settings.get("nkey"):
        keywords["nkey_seed"] = (
            _text("nkey", nkey) if isinstance(nkey, bytes) else _seed(nkey)
        )
    jwt = _text("user_jwt", settings.get("jwt"))
    seed = _text("user_seed", settings.get("seed"))
    if jwt and seed:
        keywords["creds"] = creds_of(jwt, seed)
    elif jwt or seed:
        raise ConfigError("--jwt and --seed go together")
    return {name: value for name, value in keywords.items() if value}


def _resolve_reference(
    reference: str, where: str, environ: Mapping[str, str]
) -> str | bytes:
    """Return the bytes that a reference stands for.

    A plain value and the path of a file are returned as they are.
    """
    scheme = _SCHEME.match(reference)
    if scheme is None:
        return reference
    rest = reference[scheme.end() :]
    match scheme[0]:
        case "file://":
            return rest
        case "env://":
            if not environ.get(rest):
                raise ConfigError(
                    f"{where}: the environment variable {rest} is not set"
                )
            try:
                return environ[rest].encode()
            except UnicodeEncodeError:
                # `from None`: the cause would contain the value, which may be a secret.
                raise ConfigError(
                    f"{where}: the environment variable {rest} is not UTF-8"
                ) from None
        case "data:":
            try:
                return base64.b64decode(rest.partition(",")[2], validate=True)
            except ValueError:
                raise ConfigError(f"{where} is not base64") from None
        case "nsc://" if where.endswith(": creds"):
            found = _profile(reference, where)
            if "creds" not in found:
                raise ConfigError(f"{where}: nsc knows no creds of that user")
            return found["creds"]
    raise ConfigError(f"{where}: jsync cannot use {scheme[0]}")


def _expand_env(path: str, where: str, environ: Mapping[str, str]) -> str:
    """Expand variables and `~` in a path. An unset variable is empty, as in Go."""
    text = _VARIABLE.sub(lambda found: environ.get(found[1] or found[2], ""), path)
    try:
        return os.path.expanduser(text)
    except ValueError:
        raise _no_path(where, text) from None


def _profile(url: str, where: str) -> dict[str, str]:
    """Return the creds and the server that the nsc command has for `nsc://...`.

    The rest of the URL is `operator/account/user`. The command's output may contain seeds,
    so no error quotes it.
    """
    import subprocess  # noqa: PLC0415 (for few contexts)

    url = _NSC + url.removeprefix(_NSC)
    command = ["nsc", "generate", "profile", url]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, timeout=_NSC_SECONDS, check=False
        )
    except FileNotFoundError:
        raise ConfigError(
            f"{where}: the nsc command is not in PATH: install it, or give creds and url"
        ) from None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"{where}: the nsc command failed: {type(error).__name__}"
        ) from None
    if done.returncode:
        raise ConfigError(
            f"{where}: the nsc command failed with exit code {done.returncode}: "
            "run `nsc generate profile` with this URL"
        )
    try:
        found = msgspec.json.decode(done.stdout)
        operator = found.get("operator") or {}
        services = operator.get("service") or []
        creds = found.get("user_creds") or ""
        known = {"creds": creds, "server": ",".join(services)}
    except (ValueError, RecursionError, AttributeError, TypeError):
        raise ConfigError(f"{where}: the nsc command wrote no profile") from None
    return {setting: value for setting, value in known.items() if value}


def _text(name: str, value: str | bytes | None) -> str | None:
    """Decode a value, which is bytes if the context had a reference to it."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode().strip()
    except UnicodeDecodeError:
        # `from None`: the cause would contain the value, which may be a secret.
        raise ConfigError(f"{name}: the value is not UTF-8") from None


def _format_field(field: str, value: str | bytes | None) -> str | None:
    """Return the path of a TLS file, which OpenSSL reads itself."""
    if isinstance(value, bytes):
        raise ConfigError(f"{field}: give the path of a file")
    if value is not None:
        _check_there(field, value)
    return value


def _check_there(name: str, path: str) -> None:
    try:
        Path(path).stat()  # do not read: a pipe such as `<(...)` can be read only once
    except OSError as error:
        raise ConfigError(f"{name}: {path}: {error.strerror}") from None
    except ValueError:
        raise _no_path(name, path) from None


def _no_path(name: str, path: str) -> ConfigError:
    """Return the error for a path with an impossible character, such as NUL."""
    return ConfigError(f"{name}: {path!r} is not a path")


def _seed(path: str) -> str:
    """Read the seed of an nkey from a file."""
    try:
        seed = Path(path).read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(f"nkey: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        seed = ""
    except ValueError:
        raise _no_path("nkey", path) from None
    if not seed.startswith("SU"):
        raise ConfigError(
            f"nkey: {path} does not hold the seed of a user: that begins with SU"
        )
    return seed


def creds_of(jwt: str, seed: str) -> bytes:
    """Return the content of a creds file. Pure."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    ).encode()
