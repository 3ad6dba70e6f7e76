"""The checked options of `connect`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from os import PathLike
from typing import TYPE_CHECKING, TypeAlias

from .._fast import check_publish_subject
from ..errors import ConfigError, InvalidSubjectError
from ..validation import (
    check_bool,
    check_callable,
    check_count,
    check_optional_callable,
    check_positive_seconds,
    check_seconds,
)

if TYPE_CHECKING:
    import ssl

    from .auth import Secret
    from .protocol import ServerInfo
    from .proxies import Dialer
    from .server_pool import PoolServer, ServerChoice
    from .websocket import HttpHeaders

Path: TypeAlias = str | PathLike[str]
AuthCallback: TypeAlias = Callable[[bytes], Mapping[str, str]]
ReconnectToServer: TypeAlias = "Callable[[list[PoolServer], ServerInfo], ServerChoice]"

_CALLBACKS = ("reconnect_delay", "reconnect_to_server", "dialer")
"""Options that are callables, besides those that begin with `on_`."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Options:
    """The keywords of `jsync.connect`, which documents them and has their defaults."""

    servers: str | Sequence[str]
    name: str | None
    user: Secret | None
    password: Secret | None
    token: Secret | None
    nkey_seed: str | bytes | None
    creds: Path | bytes | None
    auth_callback: AuthCallback | None
    tls: bool | ssl.SSLContext | None
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_hostname: str | None
    tls_handshake_first: bool
    proxy: str | bool | None
    dialer: Dialer | None
    ws_headers: HttpHeaders | Callable[[], HttpHeaders] | None
    ws_compression: bool
    ws_masking: bool
    connect_timeout: float
    retry_on_failed_connect: bool
    allow_reconnect: bool
    max_reconnects: int
    reconnect_wait: float
    reconnect_jitter: float
    reconnect_jitter_tls: float
    reconnect_delay: Callable[[int], float] | None
    reconnect_to_server: ReconnectToServer | None
    randomize: bool
    ignore_discovered_servers: bool
    ignore_auth_error_abort: bool
    ping_interval: float
    max_pings_out: int
    no_echo: bool
    pedantic: bool
    inbox_prefix: str
    max_pending_messages: int
    max_pending_bytes: int
    write_buffer_size: int
    write_timeout: float
    reconnect_buffer_size: int
    drain_timeout: float
    callback_threads: int
    on_connect: Callable[[], object] | None
    on_disconnect: Callable[[Exception], object] | None
    on_reconnect: Callable[[], object] | None
    on_closed: Callable[[Exception | None], object] | None
    on_error: Callable[[Exception], object] | None
    on_lame_duck: Callable[[], object] | None
    on_discovered: Callable[[list[str]], object] | None

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "write_timeout", "drain_timeout"):
            self._set(name, check_positive_seconds(getattr(self, name), name))
        self._set("ping_interval", _finite(self.ping_interval, "ping_interval"))
        if not self.ping_interval:
            raise ConfigError("ping_interval has to be above 0 seconds, not 0")
        for name in ("reconnect_wait", "reconnect_jitter", "reconnect_jitter_tls"):
            self._set(name, _finite(getattr(self, name), name))
        self._check_count("max_pings_out", 1)
        self._check_count("callback_threads", 1)
        self._check_count("max_pending_messages", 1)
        self._check_count("max_pending_bytes", 1)
        self._check_count("write_buffer_size", 1)
        self._check_count("reconnect_buffer_size", 0)
        self._check_count("max_reconnects", -1)
        for name, field in Options.__dataclass_fields__.items():
            if field.type == "bool":
                check_bool(getattr(self, name), name)
        for name in ("tls_ca", "tls_cert", "tls_key"):
            path = getattr(self, name)
            if not (path is None or isinstance(path, str | PathLike)):
                raise ConfigError(f"{name} has to be the path of a file, not {path!r}")
        for name in ("name", "tls_hostname"):
            text = getattr(self, name)
            if not (text is None or isinstance(text, str)):
                raise ConfigError(f"{name} has to be a str, not {text!r}")
        if not isinstance(self.inbox_prefix, str):
            raise ConfigError(
                f"inbox_prefix has to be a str, not {self.inbox_prefix!r}"
            )
        if not (self.tls is None or isinstance(self.tls, bool)):
            self._check_context()
        try:
            check_publish_subject(self.inbox_prefix)
        except InvalidSubjectError as error:
            raise ConfigError(f"inbox_prefix: {error}") from error
        for name in Options.__dataclass_fields__:
            if name.startswith("on_") or name in _CALLBACKS:
                check_optional_callable(getattr(self, name), name)
        self._check_proxy()
        if callable(self.ws_headers):
            check_callable(self.ws_headers, "ws_headers")
        elif self.ws_headers is not None:
            from .websocket import check_headers  # noqa: PLC0415 (few have a WebSocket)

            check_headers(self.ws_headers)
        if (self.tls_cert is None) and self.tls_key is not None:
            raise ConfigError("tls_key needs tls_cert")
        if self.tls is False and self.wants_tls:
            raise ConfigError("tls=False excludes the other tls_ options")

    def _check_proxy(self) -> None:
        if not (self.proxy is None or isinstance(self.proxy, str | bool)):
            raise ConfigError("proxy has to be a URL, or True for the environment's")
        if self.proxy and self.dialer is not None:
            raise ConfigError("a dialer excludes proxy")

    def _check_context(self) -> None:
        import ssl  # noqa: PLC0415 (a user with a context has imported it)

        if not isinstance(self.tls, ssl.SSLContext):
            raise ConfigError("tls has to be a bool or an ssl.SSLContext")
        if self.tls_ca or self.tls_cert:
            raise ConfigError("an SSLContext excludes tls_ca, tls_cert and tls_key")

    def _check_count(self, name: str, minimum: int) -> None:
        self._set(name, check_count(getattr(self, name), name, minimum))

    def _set(self, name: str, value: float) -> None:
        object.__setattr__(self, name, value)  # frozen after this

    @property
    def wants_tls(self) -> bool:
        """True if any option requires TLS, even if the server does not."""
        return bool(
            self.tls
            or self.tls_ca
            or self.tls_cert
            or self.tls_hostname
            or self.tls_handshake_first
        )

    def __repr__(self) -> str:
        return f"<Options {self.name or 'unnamed'}>"

    def __reduce__(self) -> str:
        raise TypeError("the options of a connection hold secrets and are not pickled")


def _finite(value: object, name: str) -> float:
    """Return a finite duration of at least 0 seconds. A very long one means never."""
    number = check_seconds(value, name)
    if not 0 <= number < inf:
        raise ConfigError(f"{name} has to be at least 0 seconds, not {value!r}")
    return number
