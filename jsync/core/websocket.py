"""WebSocket under NATS (RFC 6455): the upgrade, and compression. Pure.

The extension makes and parses the frames themselves.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..errors import ConfigError, ProtocolError, TLSError, WebSocketError
from ..terminal import printable
from .server_address import without_dot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .server_address import ServerAddress

HttpHeaders: TypeAlias = Mapping[str, str | Sequence[str]]

MAX_HEAD = 64 * 1024
"""The most bytes of the answer to the upgrade, without its body."""
MIN_COMPRESSED = 64
"""Shorter writes are not compressed, since they would grow (as nats-server)."""
PIECE = 1 << 20
"""The most bytes that one step of the decompression returns."""

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: ([^\r\n]*))?\r?\n")
_COMPRESSION = "permessage-deflate"
_OFFER = f"{_COMPRESSION}; server_no_context_takeover; client_no_context_takeover"
_RESERVED_HEADERS = {"upgrade", "connection", "content-length", "transfer-encoding"}


def check_headers(headers: object) -> list[tuple[str, str]]:
    """Return the HTTP headers as pairs of a name and one value.

    Raises `ConfigError` for a header that cannot be sent. The error shows names only, since
    values may be secrets.
    """
    if not isinstance(headers, Mapping):
        raise ConfigError(
            f"ws_headers has to be a mapping of names to values, not {headers!r}"
            if headers is None
            else f"ws_headers has to be a mapping, not {type(headers).__name__}"
        )
    found = []
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(f"a name in ws_headers is no name of a header: {name!r}")
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith(
            "sec-websocket-"
        ):
            raise ConfigError(f"ws_headers cannot set {name}: jsync sets it")
        values = value if isinstance(value, list | tuple) else [value]
        for one in values:
            if not isinstance(one, str) or re.search(r"[\x00-\x08\x0a-\x1f\x7f]", one):
                raise ConfigError(
                    f"the value of {name} in ws_headers has to be a str without line "
                    "breaks"
                )
            found.append((name, one))
    return found


@dataclass(frozen=True, slots=True)
class UpgradeResult:
    """The parameters of a finished upgrade."""

    compressed: bool
    masked: bool
    rest: bytes
    """The bytes that follow the answer, which are frames."""


class Upgrade:
    """The upgrade from our request to the end of the server's answer.

    Send `request`, and pass received bytes to `receive` until it returns a result. After an
    exception the upgrade has failed permanently.
    """

    def __init__(
        self,
        server: ServerAddress,
        headers: Sequence[tuple[str, str]] = (),
        *,
        key: bytes,
        encrypted: bool,
        compression: bool = True,
        masking: bool = True,
    ) -> None:
        """`key` is 16 random bytes, different for each attempt."""
        self._server = server
        self._headers = headers
        self._key = base64.b64encode(key)
        self._encrypted = encrypted
        self._compression = compression
        self._masking = masking
        self._data = b""

    def __repr__(self) -> str:
        return f"<Upgrade to {self._server.url}>"

    @property
    def request(self) -> bytes:
        """The HTTP request. It may contain secrets."""
        server = self._server
        name = without_dot(server.host)
        host = f"[{name}]" if ":" in name else name
        lines = [f"GET {server.target} HTTP/1.1"]
        if not any(name.lower() == "host" for name, _ in self._headers):
            usual = server.port == (443 if self._encrypted else 80)
            lines.append(f"Host: {host if usual else f'{host}:{server.port}'}")
        lines += [
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {self._key.decode()}",
            "Sec-WebSocket-Version: 13",
        ]
        if self._compression:
            lines.append(f"Sec-WebSocket-Extensions: {_OFFER}")
        if not self._masking:
            lines.append("Nats-No-Masking: true")
        lines += [f"{name}: {value}" for name, value in self._headers]
        try:
            return "\r\n".join([*lines, "", ""]).encode("latin-1")
        except UnicodeEncodeError:
            # `from None`: the cause would carry the secret.
            raise ConfigError(
                "ws_headers or the path of the URL has characters that HTTP cannot carry: "
                "encode them"
            ) from None

    def receive(self, data: bytes) -> UpgradeResult | None:
        """Add received bytes. Return the parameters once the answer is complete."""
        self._data += data
        self._check_beginning()
        head, end, rest = self._data.partition(b"\r\n\r\n")
        if not end:
            if len(head) > MAX_HEAD:
                raise WebSocketError(
                    f"the HTTP answer to the upgrade is longer than {MAX_HEAD} bytes"
                )
            return None
        status = _STATUS.match(head + b"\r\n")
        if status is None:
            raise self._not_http_error()
        reason = printable((status[2] or b"").decode("latin-1"))
        fields = _fields(head[status.end() :])
        if int(status[1]) != 101:
            raise self._rejected_error(int(status[1]), reason, fields, rest)
        return self._check_answer(fields, rest)

    def eof(self) -> Exception:
        """Return the error for a peer that closes the connection now."""
        if self._data:
            return WebSocketError(
                "the server closed the connection in the middle of the HTTP answer"
            )
        if self._encrypted:
            return TLSError(
                "closed by the server right after the TLS handshake: it may want another "
                "client certificate"
            )
        return WebSocketError(
            "closed before an HTTP answer came: is it a WebSocket port, and one without "
            "TLS? For TLS, use wss://"
        )

    def timed_out(self) -> str:
        """Return the text of the error for a timeout now."""
        return "timed out waiting for the HTTP answer to the WebSocket upgrade"

    def _check_beginning(self) -> None:
        start = self._data[:5]
        if not (b"HTTP/".startswith(start) or start == b"HTTP/"):
            raise self._not_http_error()

    def _not_http_error(self) -> Exception:
        data = self._data
        if data[:1] in (b"\x15", b"\x16"):
            return TLSError("the server speaks TLS: use wss:// instead of ws://")
        if b"INFO ".startswith(data[:5]) or b"-ERR ".startswith(data[:5]):
            return WebSocketError(
                "this is the plain port of a NATS server, not its WebSocket port: use "
                "nats:// or tls://, or another port"
            )
        return WebSocketError(
            "the server does not speak HTTP: its answer begins with "
            f"{data[:32].decode('latin-1')!a}"
        )

    def _rejected_error(
        self, status: int, reason: str, fields: Mapping[str, str], body: bytes
    ) -> Exception:
        answer = f"{status} {reason}".strip()
        if not self._encrypted and b"HTTP request to an HTTPS server" in body:
            return TLSError("the server speaks TLS: use wss:// instead of ws://")
        if 300 <= status < 400:
            where = printable(re.split(r"[?#]", fields.get("location", ""))[0])
            where = re.sub(r"//[^/@]*@", "//", where)
            words = (
                f"the server redirects the WebSocket to {where or 'nowhere'} ({answer}): "
                "give the URL that it redirects to"
            )
        elif status in (401, 403, 407):
            words = (
                f"the server rejected the WebSocket upgrade: {answer}. Check ws_headers"
            )
        elif status == 404:
            path = printable(self._server.path)
            words = f"the server has no WebSocket at the path {path!r}: {answer}"
        else:
            words = (
                f"the server rejected the WebSocket upgrade: {answer}. Is it the "
                "WebSocket port of a NATS server?"
            )
        return WebSocketError(words, status=status)

    def _check_answer(self, fields: Mapping[str, str], rest: bytes) -> UpgradeResult:
        digest = hashlib.sha1(self._key + _GUID, usedforsecurity=False).digest()
        if (
            fields.get("upgrade", "").lower() != "websocket"
            or "upgrade" not in _split_list(fields.get("connection", ""))
            or fields.get("sec-websocket-accept") != base64.b64encode(digest).decode()
        ):
            raise WebSocketError(
                "the answer to the WebSocket upgrade is not the one to our request: a "
                "proxy may have made it",
                status=101,
            )
        if "sec-websocket-protocol" in fields:
            raise WebSocketError(
                "the server chose a WebSocket protocol that jsync did not offer",
                status=101,
            )
        extensions = fields.get("sec-websocket-extensions", "")
        name, *parameters = [part.strip().lower() for part in extensions.split(";")]
        compressed = bool(name)
        if compressed and (
            not self._compression or name != _COMPRESSION or "," in extensions
        ):
            raise WebSocketError(
                f"the server chose a WebSocket extension that jsync did not offer: "
                f"{printable(extensions)}",
                status=101,
            )
        if any(one.startswith("client_max_window_bits") for one in parameters):
            raise WebSocketError(
                "the server chose client_max_window_bits, which jsync did not offer",
                status=101,
            )
        unmasked = fields.get("nats-no-masking", "").lower() == "true"
        return UpgradeResult(
            compressed=compressed, masked=self._masking or not unmasked, rest=rest
        )


def _fields(lines: bytes) -> dict[str, str]:
    """Return the header fields by lower-case name. Values of one name are joined."""
    found: dict[str, str] = {}
    for line in lines.decode("latin-1").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            name, value = name.strip().lower(), value.strip()
            found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _split_list(value: str) -> list[str]:
    return [word.strip().lower() for word in value.split(",")]


class Deflater:
    """Turns written bytes into frames, and compresses the longer ones."""

    def __init__(self, frame: Callable[..., bytes]) -> None:
        self._frame = frame

    def __call__(self, data: bytes) -> bytes:
        """Return the frame of `data`. It is compressed independently of earlier frames."""
        if len(data) < MIN_COMPRESSED:
            return self._frame(data)
        deflate = zlib.compressobj(1, wbits=-zlib.MAX_WBITS)
        small = deflate.compress(data) + deflate.flush(zlib.Z_SYNC_FLUSH)
        return self._frame(small[:-4], compressed=True)


class Inflater:
    """Decompresses messages part by part, also those that refer to earlier messages."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)

    def __call__(self, data: bytes, last: bool) -> Iterator[bytes]:
        """Yield a part decompressed, in pieces. The part ends a message if it is `last`."""
        if last:
            data += b"\x00\x00\xff\xff"
        try:
            while data:
                if self._inflate.eof:
                    self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
                piece = self._inflate.decompress(data, PIECE)
                data = self._inflate.unconsumed_tail or self._inflate.unused_data
                if piece:
                    yield piece
        except zlib.error as error:
            raise ProtocolError(
                f"WebSocket: a compressed message is broken: {error}"
            ) from error
