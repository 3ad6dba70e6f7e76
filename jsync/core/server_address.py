"""Server URLs. "As nats.go" marks the rules that both clients share. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ..errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PORT = 4222
_PORTS = {"nats": DEFAULT_PORT, "tls": DEFAULT_PORT, "ws": 80, "wss": 443}

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HALF_SCHEME = re.compile(r"(nats|tls|wss?):/(?!/)", re.IGNORECASE)
_TARGET = re.compile(r"[/?#]")
_BLANK = re.compile(r"[\x00-\x20\x7f]")
_HOST = re.compile(r"[^\s\[\]/?#@%:\\,\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ServerAddress:
    """One server to connect to. Two are equal when host, port and path are."""

    host: str
    """The host in lower case, or an IPv6 address without its brackets."""
    port: int = DEFAULT_PORT
    tls: bool = False
    """True if the URL has `tls://` or `wss://`. A server may also require TLS."""
    user: str | None = None
    password: str | None = None
    token: str | None = None
    """A lone user in the URL, without a colon, is a token (as nats.go)."""
    discovered: bool = False
    """True if another server's INFO announced the server. Otherwise the user gave it."""
    tls_name: str | None = None
    """The name to verify a certificate against, if it is not `host`."""
    websocket: bool = False
    """True if the URL has `ws://` or `wss://`."""
    target: str = "/"
    """Path and query of a WebSocket. The query may be a secret."""

    @property
    def path(self) -> str:
        """The path of a WebSocket."""
        return self.target.partition("?")[0]

    @property
    def url(self) -> str:
        """The URL without user, password, token or query: fit for logs and errors."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.websocket:
            path = "" if self.path == "/" else self.path
            return f"{'wss' if self.tls else 'ws'}://{host}:{self.port}{path}"
        return f"{'tls' if self.tls else 'nats'}://{host}:{self.port}"

    @property
    def has_userinfo(self) -> bool:
        return self.user is not None or self.token is not None

    @property
    def certificate_name(self) -> str:
        """The host name that the certificate must be for."""
        return without_dot(self.tls_name or self.host)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ServerAddress):
            return self._key == other._key
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, int, str]:
        return self.host, self.port, self.target

    def __repr__(self) -> str:
        return f"Server({self.url!r}{', discovered' if self.discovered else ''})"

    def __reduce__(self) -> str:
        raise TypeError("a ServerAddress may hold secrets and is not pickled")


def without_dot(host: str) -> str:
    """Return a host name without the trailing dot that makes it absolute for DNS."""
    return host.removesuffix(".")


def parse_server(url: str) -> ServerAddress:
    """Read `nats://user:password@host:port`, where all but the host may be missing.

    The URL of a WebSocket, `ws://` or `wss://`, may have a path and a query.

    Raises `ConfigError`, which shows the URL without anything that may be a secret.
    """
    scheme, authority = _split(url)
    if _HALF_SCHEME.match(url):
        raise ConfigError("the scheme has to end with `://`: use nats://host:port")
    if scheme not in _PORTS:
        raise ConfigError(
            f"the scheme has to be nats://, tls://, ws:// or wss://: {_redacted(url)}"
        )
    target = "/"
    if websocket := scheme in ("ws", "wss"):
        authority, target = _split_target(authority, url)
    userinfo, _, address = authority.rpartition("@")
    if any(c in userinfo for c in "/?#"):
        raise ConfigError(
            f"`/`, `?` and `#` in a user or password have to be percent-encoded: {_redacted(url)}"
        )
    address = address.removesuffix("/")
    if any(c in address for c in "/?#"):
        raise ConfigError(f"the URL of a server has no path or query: {_redacted(url)}")
    host, port = _parse_address(address, url, _PORTS[scheme])
    user, password, token = _parse_userinfo(userinfo, url)
    return ServerAddress(
        host,
        port,
        scheme in ("tls", "wss"),
        user,
        password,
        token,
        websocket=websocket,
        target=target,
    )


def parse_servers(urls: str | Sequence[str]) -> list[ServerAddress]:
    """Read a URL, several separated by commas, or a list of either.

    Of equal servers, the first stays.
    """
    given: object = [urls] if isinstance(urls, str) else urls
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise ConfigError(
            f"servers has to be a URL or a list of URLs, not {type(urls).__name__}"
        )
    listed = list(given)
    for url in listed:
        if not isinstance(url, str):
            raise ConfigError(
                f"each URL in servers has to be a str, not {type(url).__name__}"
            )
    for url in listed:
        _check_commas(url)
    parts = [part.strip() for url in listed for part in url.split(",")]
    servers = list(dict.fromkeys(parse_server(part) for part in parts if part))
    if not servers:
        raise ConfigError("no server given")
    if len({server.websocket for server in servers}) > 1:
        raise ConfigError(
            "servers has ws:// or wss:// together with nats:// or tls://: use either "
            "WebSocket for all servers, or for none"
        )
    return servers


def _check_commas(url: str) -> None:
    """Raise `ConfigError` if a comma may be part of a password.

    The rest of the password would be read as a host and port.
    """
    for before, after in pairwise(url.split(",")):
        if "@" in after and "://" not in after and "@" not in before:
            raise ConfigError(
                "a comma in a user or password has to be percent-encoded: `%2C`. If it "
                "separates two servers, begin each with its scheme: nats://user:password@host"
            )


def _split(url: str) -> tuple[str, str]:
    scheme, _, authority = url.partition("://")
    # `user:p://w@host` has no scheme, but `://` in its password.
    return (scheme.lower(), authority) if _SCHEME.match(url) else ("nats", url)


def _split_target(rest: str, url: str) -> tuple[str, str]:
    """Return the authority and the target of the URL of a WebSocket."""
    at = _TARGET.search(rest)
    if at is None:
        return rest, "/"
    target = rest[at.start() :]
    if "#" in target:
        raise ConfigError(f"the URL of a WebSocket has no fragment: {_redacted(url)}")
    if not target.isascii() or _BLANK.search(target):
        raise ConfigError(
            f"path and query of a WebSocket have to be percent-encoded: {_redacted(url)}"
        )
    return rest[: at.start()], target if target[0] == "/" else f"/{target}"


def _redacted(url: str) -> str:
    # A password with a raw `@` or `,` splits the URL in the wrong places. So hide
    # everything that is not clearly scheme, host and port.
    scheme, authority = _split(url)
    userinfo, _, address = authority.rpartition("@")
    address, *garbage = re.split(r"(?=[/?#])", address, maxsplit=1)
    host, colon, port = address.rpartition(":")
    if colon and not _is_port(port) and not address.endswith("]"):
        address = f"{host}:***"
    shown = (
        f"{scheme}://{'***@' if userinfo else ''}{address}{'***' if garbage else ''}"
    )
    return repr(shown)


def _parse_address(address: str, url: str, usual: int) -> tuple[str, int]:
    if address.startswith("["):
        host, bracket, port = address[1:].partition("]")
        try:
            host = str(ipaddress.IPv6Address(unquote(host)))
        except ValueError:
            bracket = ""
        if not bracket or (port and not port.startswith(":")):
            raise ConfigError(f"not an IPv6 address: {_redacted(url)}")
        port = port[1:]
    else:
        host, _, port = address.partition(":")
        if ":" in port:
            raise ConfigError(
                f"more than one colon (an IPv6 address goes in brackets): {_redacted(url)}"
            )
        if not _HOST.fullmatch(host):
            raise ConfigError(f"the host is missing or not a name: {_redacted(url)}")
    if not port:
        return host.lower(), usual
    if not _is_port(port):
        raise ConfigError(f"the port has to be 1 to 65535: {_redacted(url)}")
    return host.lower(), int(port)


def _is_port(text: str) -> bool:
    digits = text.isascii() and text.isdigit() and len(text) < 6
    return digits and 0 < int(text) < 65536


def _parse_userinfo(
    userinfo: str, url: str
) -> tuple[str | None, str | None, str | None]:
    first, colon, second = userinfo.partition(":")
    try:
        first, second = (
            unquote(first, errors="strict"),
            unquote(second, errors="strict"),
        )
    except UnicodeDecodeError:
        # `from None`: the cause would contain the secret.
        raise ConfigError(f"the userinfo is not UTF-8: {_redacted(url)}") from None
    if colon and not first:
        raise ConfigError(f"a password without a user: {_redacted(url)}")
    if colon:
        return first, second, None
    return None, None, first or None
