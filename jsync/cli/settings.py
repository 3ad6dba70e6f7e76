"""What the options of all commands come to: how to connect, and how to write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import jsync
from jsync import errors

from .contexts import resolve
from .failures import say, words_of
from .values import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT = 5.0


class Settings:
    """The options of all commands, as they are given: before the command, or behind it."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self._options: dict[str, Any] | None = None

    @property
    def json(self) -> bool:
        """Whether to write JSON."""
        return bool(self.given.get("json"))

    @property
    def timeout(self) -> float:
        """Seconds that the answer to one request may take."""
        timeout = self._all.get("timeout", _TIMEOUT)
        if isinstance(timeout, str):  # from the environment
            try:
                timeout = seconds(timeout)
            except ValueError as error:
                raise click.UsageError(f"NATS_TIMEOUT: {error}") from None
        if timeout == 0:
            raise click.UsageError("--timeout has to be above 0")
        return float(timeout)

    @property
    def names_a_server(self) -> bool:
        """Whether an option, the environment or a context says where the server is."""
        return "server" in self._all

    @property
    def servers(self) -> list[str]:
        """The URLs to connect to. They can hold secrets."""
        given: str = connect_options(self._all)["servers"]
        return [url.strip() for url in given.split(",")]

    @property
    def _all(self) -> Mapping[str, Any]:
        if self._options is None:
            self._options = resolve(self.given, os.environ)
        return self._options

    def connect(self, *, flow: bool = False, **options: Any) -> jsync.Connection:
        """Connect; blocks. A `flow` says on the standard error what becomes of the line."""
        if flow:
            options.setdefault("on_error", _say_error)
            options.setdefault("on_disconnect", _say_disconnected)
            options.setdefault("on_reconnect", lambda: say("connected again"))
        else:
            options.setdefault("on_error", _ignore)
        options = {
            "name": "jsync",
            "connect_timeout": self.timeout,
            **connect_options(self._all),
            **options,
        }
        try:
            return jsync.connect(**options)
        except errors.ConnectionError as error:
            if self.names_a_server or type(error) is not errors.ConnectionError:
                raise
            raise click.ClickException(
                f"{words_of(error)}: choose a server with --server, or run `jsync server`"
            ) from error

    def jetstream(self, nc: jsync.Connection) -> jsync.JetStream:
        """JetStream, of the domain or with the prefix that the options name."""
        return nc.jetstream(
            domain=self._all.get("domain"),
            prefix=self._all.get("js_api_prefix"),
            timeout=self.timeout,
        )

    def __repr__(self) -> str:
        return f"<Settings {', '.join(self.given) or 'of nothing'}>"


def flush(nc: jsync.Connection, timeout: float) -> None:
    """Block until the server has read all; raise what it does not allow."""
    nc.flush(timeout)
    if isinstance(nc.last_error, errors.PermissionsError):
        raise nc.last_error


def connect_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of `jsync.connect` for options; raises `click.UsageError`."""
    keywords = {
        "servers": options.get("server") or "nats://127.0.0.1:4222",
        "tls_ca": options.get("tlsca"),
        "tls_cert": options.get("tlscert"),
        "tls_key": options.get("tlskey"),
        "tls_handshake_first": options.get("tlsfirst"),
        "inbox_prefix": options.get("inbox_prefix"),
        "token": _text(options.get("token")),
        "creds": options.get("creds"),
    }
    if isinstance(creds := keywords["creds"], str):
        _check_there("creds", creds)
    user, password = options.get("user"), _text(options.get("password"))
    if user and password is not None:
        keywords |= {"user": user, "password": password}
    elif user:  # as the nats command does
        keywords["token"] = user
    elif password:
        raise click.UsageError("a password needs a user: --user NAME --password WORD")
    if nkey := options.get("nkey"):
        keywords["nkey_seed"] = _text(nkey) if isinstance(nkey, bytes) else _seed(nkey)
    jwt, seed = _text(options.get("jwt")), _text(options.get("seed"))
    if jwt and seed:
        keywords["creds"] = _creds(jwt, seed)
    elif jwt or seed:
        raise click.UsageError("--jwt and --seed go together")
    return {name: value for name, value in keywords.items() if value}


def _text(value: str | bytes | None) -> str | None:
    """A value that a context may refer to, and has as bytes then."""
    return value.decode().strip() if isinstance(value, bytes) else value


def _check_there(name: str, path: str) -> None:
    try:
        # Do not read it: a pipe such as `<(...)` can be read only once.
        Path(path).stat()
    except OSError as error:
        raise click.UsageError(f"{name}: {words_of(error)}") from None


def _seed(path: str) -> str:
    """The seed of an nkey, of a file."""
    try:
        seed = Path(path).read_text().strip()
    except OSError as error:
        raise click.UsageError(f"nkey: {words_of(error)}") from None
    except UnicodeDecodeError:
        seed = ""
    if not seed.startswith("SU"):
        raise click.UsageError(
            f"nkey: {path} does not hold the seed of a user: that begins with SU"
        )
    return seed


def _creds(jwt: str, seed: str) -> bytes:
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    ).encode()


def _say_error(error: Exception) -> None:
    say(words_of(error))


def _say_disconnected(error: Exception) -> None:
    # We closed it ourselves, at the end.
    if not isinstance(error, errors.ConnectionClosedError):
        say(f"connection lost, reconnecting: {words_of(error)}")


def _ignore(error: Exception) -> None:
    """What matters to a single request, that raises itself."""
