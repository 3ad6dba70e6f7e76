"""One connection per process, from the `nats.*` options.

Spark sends the places of secrets to executors, never the secrets. Files and environment
variables are read where the connection is made.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import connect
from ..contexts import connect_keywords, creds_of
from ..errors import ConfigError
from .options import NATS, exclusive
from .retry import RETRY_SECONDS

if TYPE_CHECKING:
    from .. import Connection, JetStream
    from .options import Options

_SERVERS = ("nats://127.0.0.1:4222",)
_TIMEOUT = 5.0
_ALLOWED_WITH_CONTEXT = (
    *("nats.context", "nats.name", "nats.connectTimeout", "nats.timeout"),
    "nats.retryTimeout",
)
# Tasks wait for the reconnect, each until a deadline, so start sooner than by default.
_RECONNECT_WAIT = 0.5


@dataclass(frozen=True, kw_only=True, repr=False)
class ConnectionOptions:
    """Options of a connection without secrets, safe to pickle, compare and show."""

    servers: tuple[str, ...] = _SERVERS
    servers_place: tuple[str, str] | None = None
    """The place of the servers, if any: `env` or `file`, and the variable or path."""
    context: str | None = None
    """A context of the nats command, which each machine reads where it connects."""
    name: str = "jsync.spark"
    user: str | None = None
    secret: tuple[str, str, str] | None = None
    """The kind of secret (`password`, ...), `env` or `file`, and the variable or path."""
    jwt_place: tuple[str, str] | None = None
    """The place of the JWT of a user, whose seed is the secret."""
    tls: bool | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_hostname: str | None = None
    tls_handshake_first: bool = False
    proxy: str | None = None
    proxy_place: tuple[str, str] | None = None
    """The place of the proxy's URL, if any, as `servers_place`."""
    ws_headers_place: tuple[str, str] | None = None
    """The place of the HTTP headers of a WebSocket, if any, as JSON."""
    inbox_prefix: str = "_INBOX"
    connect_timeout: float = _TIMEOUT
    timeout: float = _TIMEOUT
    """Seconds that a request to JetStream may take."""
    retry_timeout: float = RETRY_SECONDS
    """Seconds to wait for a lost server or for a stream without a leader."""
    domain: str | None = None
    api_prefix: str | None = None

    @classmethod
    def of(cls, options: Options) -> ConnectionOptions:
        """Read the `nats.*` options. Raises `ConfigError` if one is invalid."""
        servers = options.list("nats.servers") or _SERVERS
        place = exclusive(
            options, "nats.servers", "nats.serversEnv", "nats.serversFile"
        )
        proxy = exclusive(options, "nats.proxy", "nats.proxyEnv", "nats.proxyFile")
        exclusive(options, "nats.domain", "nats.apiPrefix")
        _check_context(options)
        secret = _secret(options)
        user = options.text("nats.user")
        if user is not None and (secret is None or secret[0] != "password"):
            raise ConfigError("nats.user needs nats.passwordEnv or nats.passwordFile")
        if user is None and secret is not None and secret[0] == "password":
            raise ConfigError("a password needs nats.user")
        jwt = exclusive(options, "nats.jwtEnv", "nats.jwtFile")
        if jwt is not None and (secret is None or secret[0] != "nkey_seed"):
            raise ConfigError(
                f"{jwt} needs the seed of its user: give nats.nkeySeedEnv or "
                "nats.nkeySeedFile too, or both in a creds file by nats.credentialsFile"
            )
        ws_headers = exclusive(options, "nats.wsHeadersEnv", "nats.wsHeadersFile")
        tls = options.text("nats.tls")
        return cls(
            servers=servers,
            servers_place=_path_of(options, place, "nats.servers"),
            context=options.text("nats.context"),
            name=options.text("nats.name") or cls.name,
            user=user,
            secret=secret,
            jwt_place=_path_of(options, jwt),
            tls=None if tls is None else options.flag("nats.tls", False),
            tls_ca=options.text("nats.tlsCa"),
            tls_cert=options.text("nats.tlsCert"),
            tls_key=options.text("nats.tlsKey"),
            tls_hostname=options.text("nats.tlsHostname"),
            tls_handshake_first=options.flag("nats.tlsHandshakeFirst", False),
            proxy=options.text("nats.proxy"),
            proxy_place=_path_of(options, proxy, "nats.proxy"),
            ws_headers_place=_path_of(options, ws_headers),
            inbox_prefix=options.text("nats.inboxPrefix") or cls.inbox_prefix,
            connect_timeout=options.seconds("nats.connectTimeout") or _TIMEOUT,
            timeout=options.seconds("nats.timeout") or _TIMEOUT,
            retry_timeout=options.seconds("nats.retryTimeout") or RETRY_SECONDS,
            domain=options.text("nats.domain"),
            api_prefix=options.text("nats.apiPrefix"),
        )

    @property
    def api(self) -> str:
        """The prefix of the subjects of JetStream's API."""
        domain, prefix = self.domain, self.api_prefix
        if self.context is not None:
            found = connect_keywords(self.context, os.environ)[1]
            domain, prefix = found.get("domain"), found.get("prefix")
        if domain is not None:
            return f"$JS.{domain}.API"
        return prefix or "$JS.API"

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{field.name}={value!r}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        )
        return f"ConnectionOptions({shown})"


def _check_context(options: Options) -> None:
    """Raise `ConfigError` for an option that a context may have, beside a context."""
    if options.text("nats.context") is None:
        return
    for name in NATS:
        if name not in _ALLOWED_WITH_CONTEXT and options.text(name) is not None:
            raise ConfigError(
                f"options nats.context and {name} exclude each other: a context has its "
                "own servers and credentials"
            )


def _secret(options: Options) -> tuple[str, str, str] | None:
    """Return the kind of the secret and its place, or None without a secret."""
    kinds = {
        "nats.password": "password",
        "nats.token": "token",
        "nats.nkeySeed": "nkey_seed",
        "nats.credentials": "creds",
    }
    places = [f"{kind}{place}" for kind in kinds for place in ("Env", "File")]
    given = exclusive(options, *places)
    if given is None:
        return None
    kind = kinds[given.removesuffix("Env").removesuffix("File")]
    return kind, _kind_of(given), options.text(given) or ""


def _path_of(
    options: Options, given: str | None, plain: str | None = None
) -> tuple[str, str] | None:
    """Return the place that an option names, or None if it is not given or `plain`."""
    if given in (None, plain):
        return None
    return _kind_of(given), options.text(given) or ""


def _kind_of(name: str) -> str:
    """Return the kind of place that an option names, `env` or `file`."""
    return "env" if name.endswith("Env") else "file"


_open: dict[tuple[int, ConnectionOptions], Connection] = {}


def get_connection(options: ConnectionOptions) -> Connection:
    """Return this process's connection with these options. Blocks while it is made.

    It stays open for the next task of the same Python worker. Raises the errors of
    `jsync.connect`, and `ConfigError` if a secret is missing at its place.
    """
    key = os.getpid(), options
    nc = _open.get(key)
    if nc is None or nc.is_closed:
        nc = _open[key] = open_connection(options)
    return nc


def close_connections() -> None:
    """Close this process's connections, for a driver that continues without Spark. Blocks."""
    while _open:
        (pid, _), nc = _open.popitem()
        if pid == os.getpid():
            nc.close()


def get_jetstream(options: ConnectionOptions) -> JetStream:
    """Return JetStream on this process's connection. Blocks while that is made."""
    nc = get_connection(options)
    return nc.jetstream(
        domain=options.domain, prefix=options.api_prefix, timeout=options.timeout
    )


def open_connection(options: ConnectionOptions) -> Connection:
    """Open a connection that the caller closes. Blocks.

    Raises the errors of `get_connection`.
    """
    if options.context is not None:
        return connect(
            context=options.context,
            name=options.name,
            connect_timeout=options.connect_timeout,
            reconnect_wait=_RECONNECT_WAIT,
        )
    secret: dict[str, Any] = {}
    if options.secret is not None:
        kind, place, where = options.secret
        if kind == "creds" and place == "file":
            secret["creds"] = where  # the file is read again for every reconnect
        else:
            text = _text_at(place, where)
            secret[kind] = text.encode() if kind == "creds" else text
    if options.jwt_place is not None:
        jwt = _text_at(*options.jwt_place)
        secret = {"creds": creds_of(jwt, secret["nkey_seed"])}
    headers = options.ws_headers_place
    if headers is not None:
        _headers_at(*headers)  # raises immediately, and is called for each attempt
    servers: str | tuple[str, ...] = options.servers
    if options.servers_place is not None:
        servers = _text_at(*options.servers_place)
    return connect(
        servers,
        name=options.name,
        user=options.user,
        tls=options.tls,
        tls_ca=options.tls_ca,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        tls_hostname=options.tls_hostname,
        tls_handshake_first=options.tls_handshake_first,
        proxy=(
            options.proxy
            if options.proxy_place is None
            else _text_at(*options.proxy_place)
        ),
        ws_headers=None if headers is None else partial(_headers_at, *headers),
        inbox_prefix=options.inbox_prefix,
        connect_timeout=options.connect_timeout,
        reconnect_wait=_RECONNECT_WAIT,
        **secret,
    )


def _headers_at(place: str, where: str) -> dict[str, str]:
    """Read HTTP headers. Raises `ConfigError`, which does not show them."""
    text = _text_at(place, where)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(value, str) for value in found.values()
    ):
        raise ConfigError(
            f"the HTTP headers in {where} have to be a JSON object of names and values, "
            'such as {"Authorization": "Bearer ..."}'
        )
    return found


def _text_at(place: str, where: str) -> str:
    return _from_env(where) if place == "env" else _from_file(where)


def _from_env(name: str) -> str:
    text = os.environ.get(name)
    if not text:
        raise ConfigError(
            f"the environment variable {name} is not set where this runs: set it for the "
            f"driver, and for executors with spark.executorEnv.{name} (which Spark shows "
            "in event logs, unless SECRET, PASSWORD or TOKEN is in the name)"
        )
    return text


def _from_file(name: str) -> str:
    try:
        return Path(name).read_text().strip()
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from error
