"""Connections through a proxy: HTTP CONNECT, and SOCKS5 with PySocks.

A proxy is a dialer: it is called with a host, a port and a timeout in seconds, and
returns a connected socket. The calls block, on a separate thread.
"""

from __future__ import annotations

import base64
import re
import socket
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from .. import errors
from ..errors import ConfigError, ProxyError
from ..terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import TypeAlias

Dialer: TypeAlias = "Callable[[str, int, float], socket.socket]"

MAX_HEAD = 64 * 1024
"""The most bytes of a proxy's answer to CONNECT."""

_PORTS = {"http": 80, "socks5": 1080, "socks5h": 1080}
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: ([^\r\n]*))?\r?\n")
_BLANK = re.compile(r"[\s\x00-\x1f\x7f]")
_END = re.compile(rb"\n\r?\n")
_FROM_ENVIRONMENT = ("nats", "all", "https")
"""The variables that name a proxy, without `_proxy`, in the order of precedence."""


@dataclass(frozen=True, slots=True, repr=False)
class Proxy:
    """A proxy, which connects to servers for the client."""

    scheme: str
    host: str
    port: int
    user: str | None
    password: str | None

    def __call__(self, host: str, port: int, timeout: float) -> socket.socket:
        """Connect to a server. Raises `ProxyError` if the proxy refuses or is down."""
        dial = _dial_http if self.scheme == "http" else _dial_socks
        try:
            return dial(self, host, port, monotonic() + timeout)
        except TimeoutError:
            raise errors.TimeoutError(
                f"{self} did not connect to {host}:{port} in time"
            ) from None
        except UnicodeError:
            raise ConfigError(f"the host of {self} is not a host name") from None
        except OSError as error:
            if isinstance(error, errors.ConnectionError):
                raise
            raise ProxyError(
                f"{self} cannot be reached: {_error_text(error)}"
            ) from error

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"the proxy {self.scheme}://{host}:{self.port}"

    def __repr__(self) -> str:
        return f"<Proxy {self.scheme}://{self.host}:{self.port}>"

    def __reduce__(self) -> str:
        raise TypeError("a Proxy may hold secrets and is not pickled")


def parse_proxy(url: str, source: str = "proxy") -> Proxy:
    """Read `http://user:password@host:port` or `socks5://...`.

    Raises:
        ConfigError: The URL is wrong. The error names the part, and shows no secret.
    """
    # urlsplit would take line breaks out.
    if _BLANK.search(url.strip()):
        raise ConfigError(f"the URL in {source} has blanks: percent-encode them")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host = parts.hostname
    except ValueError:
        raise ConfigError(
            f"the host in {source} is wrong: use http://host:port"
        ) from None
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ConfigError(
            f"the port in {source} has to be 1 to 65535; in a user or password "
            "percent-encode `/`, `?` and `#`"
        )
    if parts.scheme == "https":
        raise ConfigError(
            f"{source} has https://, which is TLS to the proxy itself and not supported: "
            "use http://, which carries TLS to the server as well"
        )
    if parts.scheme not in _PORTS:
        raise ConfigError(
            f"the scheme in {source} has to be http:// or socks5://, not "
            f"{printable(parts.scheme)}://"
        )
    if not host:
        raise ConfigError(f"the host in {source} is missing: use http://host:port")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError(
            f"the URL in {source} has a path or query: use http://host:port"
        )
    if parts.scheme != "http":
        _socks()
    user, password = parts.username, parts.password
    return Proxy(
        parts.scheme,
        host,
        port or _PORTS[parts.scheme],
        None if user is None else unquote(user),
        None if password is None else unquote(password),
    )


def environment_proxy(host: str) -> Proxy | None:
    """Find the proxy for `host` in the environment, as `requests` does, or None.

    The first of `nats_proxy`, `all_proxy` and `https_proxy` counts, in lower or upper
    case. `no_proxy` lists the hosts that need none.
    """
    proxies: Mapping[str, str] = getproxies()
    for name in _FROM_ENVIRONMENT:
        if url := proxies.get(name):
            return None if proxy_bypass(host) else parse_proxy(url, f"{name}_proxy")
    return None


def _left(deadline: float) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _dial_http(proxy: Proxy, host: str, port: int, deadline: float) -> socket.socket:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    request = f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n"
    if proxy.user is not None:
        secret = f"{proxy.user}:{proxy.password or ''}".encode()
        encoded = base64.b64encode(secret).decode()
        request += f"Proxy-Authorization: Basic {encoded}\r\n"
    sock = socket.create_connection((proxy.host, proxy.port), _left(deadline))
    try:
        sock.settimeout(_left(deadline))
        sock.sendall(f"{request}\r\n".encode())
        _check_answer(proxy, address, _read_head(proxy, sock, deadline))
    except BaseException:
        sock.close()
        raise
    return sock


def _read_head(proxy: Proxy, sock: socket.socket, deadline: float) -> bytes:
    head = b""
    while True:
        sock.settimeout(_left(deadline))
        # Peek first: the server's INFO may directly follow the answer, and must stay
        # unread.
        seen = sock.recv(4096, socket.MSG_PEEK)
        if not seen:
            raise ProxyError(f"{proxy} hung up before it answered CONNECT")
        end = _END.search(head + seen)
        size = end.end() - len(head) if end else len(seen)
        head += sock.recv(size)
        if len(head) > MAX_HEAD or not head.startswith(b"HTTP/1."[: len(head)]):
            raise ProxyError(f"{proxy} does not speak HTTP: check the port in proxy=")
        if end and len(head) >= end.end():
            return head


def _check_answer(proxy: Proxy, address: str, head: bytes) -> None:
    match = _STATUS.match(head)
    if match is None:
        raise ProxyError(f"{proxy} does not speak HTTP: check the port in proxy=")
    status, reason = int(match[1]), printable((match[2] or b"").decode("latin-1"))
    if 200 <= status < 300:
        return
    if status == 407:
        raise ProxyError(f"{proxy} wants a user and password, or others: {reason}")
    raise ProxyError(f"{proxy} does not connect to {address}: {status} {reason}")


def _dial_socks(proxy: Proxy, host: str, port: int, deadline: float) -> socket.socket:
    socks = _socks()
    try:
        sock: socket.socket = socks.create_connection(
            (host, port),
            timeout=_left(deadline),
            proxy_type=socks.SOCKS5,
            proxy_addr=proxy.host,
            proxy_port=proxy.port,
            proxy_rdns=True,
            proxy_username=proxy.user,
            proxy_password=proxy.password,
        )
    except socks.ProxyError as error:
        cause = getattr(error, "socket_err", None)
        if isinstance(cause, TimeoutError):
            raise TimeoutError from error
        if isinstance(error, socks.ProxyConnectionError) and cause is not None:
            raise cause from None
        words = printable(str(error.msg))
        raise ProxyError(
            f"{proxy} does not connect to {host}:{port}: {words}"
        ) from None
    return sock


def _socks() -> ModuleType:
    try:
        import socks  # noqa: PLC0415 (an extra)
    except ImportError:
        raise ConfigError(
            "a socks5:// proxy needs PySocks: pip install 'jsync[socks]'"
        ) from None
    return socks


def _error_text(error: OSError) -> str:
    return error.strerror or str(error)
