"""The options of all commands, and the connection and the output that they select."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

import jsync
from jsync import errors
from jsync.contexts import jetstream_keywords, to_keywords

from ..ui.errors import format_error, print_error
from .environment import resolve
from .values import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT = 5.0
_LOCAL = "nats://127.0.0.1:4222"


class Settings:
    """The options of all commands, given before the command or after it."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self._options: dict[str, Any] | None = None

    @property
    def json(self) -> bool:
        """True if the output is JSON."""
        return bool(self.given.get("json"))

    @property
    def timeout(self) -> float:
        """The timeout of one request, in seconds."""
        timeout, source = self._all.get("timeout", _TIMEOUT), "--timeout"
        if isinstance(timeout, str):  # from the environment
            source = "NATS_TIMEOUT"
            try:
                timeout = seconds(timeout)
            except ValueError as error:
                raise click.UsageError(f"{source}: {error}") from None
        if timeout == 0:
            raise click.UsageError(f"{source} has to be above 0")
        return float(timeout)

    @property
    def names_a_server(self) -> bool:
        """True if an option, the environment or a context names a server."""
        return "server" in self._all

    @property
    def servers(self) -> list[str]:
        """The URLs of the servers. They can hold secrets."""
        given: str = self._all.get("server") or _LOCAL
        return [url.strip() for url in given.split(",")]

    @property
    def _all(self) -> Mapping[str, Any]:
        if self._options is None:
            self._options = resolve(self.given, os.environ)
        return self._options

    def connect(self, *, flow: bool = False, **options: Any) -> jsync.Connection:
        """Connect to a server. Blocks.

        With `flow`, changes and errors of the connection are reported on the standard
        error.
        """
        # The command ends with this error, so it need not be logged as well.
        options.setdefault("on_closed", lambda error: None)
        if flow:
            options.setdefault("on_error", _say_error)
            options.setdefault("on_disconnect", _say_disconnected)
            options.setdefault("on_reconnect", lambda: print_error("connected again"))
        else:
            options.setdefault("on_error", _ignore)
        options = {
            "name": "jsync",
            "connect_timeout": self.timeout,
            "servers": _LOCAL,
            **to_keywords(self._all),
            **options,
        }
        try:
            return jsync.connect(**options)
        except errors.ConnectionError as error:
            if self.names_a_server or type(error) is not errors.ConnectionError:
                raise
            raise click.ClickException(
                f"{format_error(error)}: choose a server with --server, or run `jsync server`"
            ) from error

    def jetstream(self, nc: jsync.Connection) -> jsync.JetStream:
        """Return JetStream with the domain or the prefix from the options."""
        return nc.jetstream(timeout=self.timeout, **jetstream_keywords(self._all))

    def __repr__(self) -> str:
        return f"<Settings {', '.join(self.given) or 'of nothing'}>"


def flush(nc: jsync.Connection, timeout: float) -> None:
    """Block until the server has read everything that was sent.

    Raises the last error of the connection if that is a `PermissionsError`.
    """
    nc.flush(timeout)
    if isinstance(nc.last_error, errors.PermissionsError):
        raise nc.last_error


def _say_error(error: Exception) -> None:
    print_error(format_error(error))


def _say_disconnected(error: Exception) -> None:
    # The command itself has closed the connection, at its end.
    if not isinstance(error, errors.ConnectionClosedError):
        print_error(f"connection lost, reconnecting: {format_error(error)}")


def _ignore(error: Exception) -> None:
    """Ignore errors that concern only one request, because that request raises them."""
