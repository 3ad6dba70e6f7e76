"""The URL and the options of a broker or a result backend, checked. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jsync.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX = "kombu"
"""The name of a broker whose URL has none."""

SCHEMES = {"jetstream", "jetstream+tls", "tls", "jetstream+nats", "nats"}

RETRIES = {
    "max_retries",
    "interval_start",
    "interval_step",
    "interval_max",
    "connect_retries_timeout",
    "errback",
    "on_revive",
    "retry_errors",
}
"""Options that kombu itself reads and adds."""

TLS = {
    "ca_certs": "tls_ca",
    "ssl_ca_certs": "tls_ca",
    "certfile": "tls_cert",
    "ssl_certfile": "tls_cert",
    "keyfile": "tls_key",
    "ssl_keyfile": "tls_key",
}


@dataclass(frozen=True)
class BrokerAddress:
    """The servers of a URL, and the name of the broker after them."""

    servers: tuple[str, ...]
    name: str


@dataclass(frozen=True)
class Options:
    """Checked options of the transport."""

    ack_wait: float = 30.0
    replicas: int | None = None
    max_bytes: int | None = None
    storage: str = "file"
    timeout: float = 5.0
    schedule_after: float | None = None
    connect: Mapping[str, Any] = field(default_factory=dict)
    jetstream: Mapping[str, Any] = field(default_factory=dict)


def parse_urls(urls: str | Sequence[str], name: str = PREFIX) -> BrokerAddress:
    """Read `jetstream://[user:password@]host[:port][,host...][/name]`, or several.

    Raises:
        ConfigError: A URL is not valid. The error does not show the password.
    """
    servers: list[str] = []
    names: list[str] = []
    for url in [urls] if isinstance(urls, str) else urls:
        found, named = _read(url.strip())
        servers += found
        names += [named] if named else []
    if len(set(names)) > 1:
        raise ConfigError(
            f"the URLs name several brokers: {', '.join(sorted(set(names)))}; "
            "name the same in each"
        )
    chosen = names[0] if names else name
    if not re.fullmatch(r"[A-Za-z0-9_-]+", chosen):
        raise ConfigError(
            f"the URL has a name that is not allowed: {chosen!r}; use letters, digits, "
            "- and _"
        )
    return BrokerAddress(tuple(servers), chosen)


def _read(url: str) -> tuple[list[str], str]:
    scheme, separator, rest = url.partition("://")
    safe = mask_password(url)
    if not separator or scheme not in SCHEMES:
        raise ConfigError(
            f"not a URL of this transport: {safe!r}; write jetstream://host:4222/name"
        )
    user, at, tail = rest.rpartition("@")
    if re.search(r"[/?#@\s]", user):
        raise ConfigError(
            f"the user or the password of the URL has a raw /, ?, # or @: {safe!r}; "
            "write %2F, %3F, %23 or %40, as urllib.parse.quote(password, safe='') does, "
            "and name the user once for all hosts"
        )
    user = user.replace(",", "%2C")
    hosts, _, name = tail.partition("/")
    if re.search(r"[?#]", tail):
        raise ConfigError(
            f"the URL has options: {safe!r}; put them into broker_transport_options"
        )
    plain = "tls" if scheme.endswith("tls") else "nats"
    servers = []
    for host in hosts.split(","):
        address = host or "127.0.0.1"
        try:
            urlsplit(f"nats://{address}").port  # noqa: B018  # raises
        except ValueError:
            # The error of urlsplit has the text of the port, which may be a password.
            raise ConfigError(f"the URL has a wrong port: {safe!r}") from None
        servers.append(f"{plain}://{user}{at}{address}")
    return servers, name.strip("/")


def mask_password(url: str, mask: str = "**") -> str:
    """Return a URL without its password, or without its token.

    The user part ends at the last "@", so that a password with a raw "/", "?", "#" or "@"
    is hidden as well. A port that is not a number is hidden, too, because kombu splits a
    URL at a semicolon, and the part of a password before it looks like host and port.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    user, at, tail = rest.rpartition("@")
    if at:
        name, colon, _ = user.partition(":")
        user = f"{name}:{mask}" if colon else mask
    hosts, slash, path = tail.partition("/")
    hosts = ",".join(_without_text_port(host, mask) for host in hosts.split(","))
    return f"{scheme}{separator}{user}{at}{hosts}{slash}{path}"


def _without_text_port(host: str, mask: str) -> str:
    head, colon, port = host.rpartition(":")
    if not colon or port.isdigit() or not port or "]" in port:
        return host
    return f"{head}:{mask}"


def check_options(given: Mapping[str, Any]) -> Options:
    """Check `broker_transport_options`, or `result_backend_transport_options`.

    Raises:
        ConfigError: An option is unknown, or has a value that is not allowed.
    """
    known = Options.__dataclass_fields__
    unknown = given.keys() - known.keys() - RETRIES
    if "visibility_timeout" in unknown:
        raise ConfigError(
            "this transport has no visibility_timeout: a task may run for any time; set "
            "ack_wait to the seconds until the tasks of a dead worker are delivered again"
        )
    if unknown:
        raise ConfigError(
            f"unknown option of the transport: {min(unknown)!r}; there are "
            f"{', '.join(sorted(known))}"
        )
    options = Options(**{name: given[name] for name in known.keys() & given.keys()})
    for name in ("ack_wait", "timeout", "schedule_after"):
        value = getattr(options, name)
        if name == "schedule_after" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ConfigError(f"{name} has to be seconds above 0, not {value!r}")
    if options.storage not in {"file", "memory"}:
        raise ConfigError(f"storage has to be file or memory, not {options.storage!r}")
    for name in ("connect", "jetstream"):
        if not hasattr(getattr(options, name), "keys"):
            raise ConfigError(
                f"{name} has to be a dict, not {getattr(options, name)!r}"
            )
    return options


def tls_options(ssl: object) -> dict[str, Any]:
    """Read `broker_use_ssl`: True, or a dict with `ca_certs`, `certfile`, `keyfile`.

    Raises:
        ConfigError: It requires something else, such as no verification.
    """
    if not ssl:
        return {}
    if ssl is True:
        return {"tls": True}
    if not isinstance(ssl, dict):
        raise ConfigError(f"broker_use_ssl has to be True or a dict, not {ssl!r}")
    unknown = ssl.keys() - TLS.keys()
    if unknown:
        raise ConfigError(
            f"broker_use_ssl has an unknown key: {min(unknown)!r}; there are ca_certs, "
            "certfile and keyfile, and servers are always verified"
        )
    return {"tls": True} | {TLS[name]: value for name, value in ssl.items()}
