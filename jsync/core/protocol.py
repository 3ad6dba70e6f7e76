"""The NATS protocol around the messages, with no socket, thread or clock.

INFO, commands, and the errors behind an -ERR. The extension parses and encodes messages.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from .. import errors
from .._version import __version__
from ..errors import (
    AuthenticationError,
    ConfigError,
    Error,
    InvalidSubjectError,
    PermissionsError,
    ProtocolError,
    ServerLimitError,
    StaleConnectionError,
    SubscriptionLimitError,
    TLSError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

AnyError = TypeVar("AnyError", bound=Error)

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The INFO of a server. Unknown fields are ignored.

    Example:
        ```python
        info = nc.server_info
        print(info.version, info.max_payload)
        ```
    """

    server_id: str = ""
    """The server's public nkey, new at each start."""
    server_name: str = ""
    """The configured name, or else the `server_id`."""
    version: str = ""
    proto: int = 0
    """1 when the server sends INFO again whenever the cluster changes."""
    git_commit: str = ""
    go: str = ""
    """The version of Go it was built with."""
    host: str = ""
    """The address it listens on, `0.0.0.0` for example. Do not connect to this one."""
    port: int = 0
    headers: bool = False
    """True if messages may have headers. Since nats-server 2.2."""
    max_payload: int = 1_048_576
    """The limit of a message's headers and payload, in bytes. -1: no limit.

    The INFO after CONNECT has the limit of the account, which may differ.
    """
    jetstream: bool = False
    """True if the server has JetStream. The account may still have none."""
    tls_required: bool = False
    tls_available: bool = False
    """TLS is the client's choice (`allow_non_tls`)."""
    tls_verify: bool = False
    """The server requires a client certificate."""
    auth_required: bool = False
    nonce: str | None = None
    """The text that nkey and JWT users sign. Sent only where such users can exist."""
    connect_urls: tuple[str, ...] = ()
    """`host:port` of every server of the cluster, without those in lame duck mode."""
    ldm: bool = False
    """Lame duck mode: the server is about to shut down and wants its clients to move."""
    client_id: int = 0
    """The number of this connection on the server."""
    client_ip: str = ""
    """Our address as the server sees it."""
    cluster: str = ""
    domain: str = ""
    """The JetStream domain."""
    xkey: str = ""
    """The server's curve key, for auth callout."""
    api_lvl: int = 0
    """The JetStream API level (ADR-44). Since nats-server 2.12."""
    connect_info: bool = False
    """This INFO is the answer to CONNECT. Since nats-server 2.12."""
    remote_account: str = ""
    """The account of this connection. Sent only with `connect_info`."""


_decode_info = msgspec.json.Decoder(ServerInfo).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def parse_info(data: bytes) -> ServerInfo:
    """Read the JSON of an INFO. Raises `ProtocolError` if it is not an object.

    A field of the wrong type counts as missing, so that it does not end the connection.
    """
    try:
        try:
            return _decode_info(data)
        except msgspec.ValidationError:
            fields = _decode_object(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"cannot read the INFO of the server: {error}") from error
    known: dict[str, Any] = {}
    for field in msgspec.structs.fields(ServerInfo):
        value = fields.get(field.name)
        if field.type is bool:  # an odd value must not turn off TLS
            known[field.name] = bool(value)
            continue
        if isinstance(value, list):
            value = [each for each in value if isinstance(each, str)]
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        with contextlib.suppress(msgspec.ValidationError):
            known[field.name] = msgspec.convert(value, field.type)
    return ServerInfo(**known)


def connect_command(
    *,
    auth: Mapping[str, str],
    tls: bool,
    name: str | None = None,
    echo: bool = True,
    pedantic: bool = False,
) -> bytes:
    """Return CONNECT, with the fields of `Authenticator.connect_fields` as `auth`.

    `tls` is True if the connection is encrypted already.
    """
    fields = {
        "verbose": False,
        "pedantic": pedantic,
        "tls_required": tls,
        "name": name or "",
        "lang": "python-jsync",
        "version": __version__,
        "protocol": 1,
        "echo": echo,
        "headers": True,
        "no_responders": True,
        **auth,
    }
    try:
        return b"CONNECT %b\r\n" % msgspec.json.encode(fields)
    except UnicodeEncodeError:
        # `from None`: the cause would contain the secret.
        raise ConfigError("a name or secret for CONNECT is not valid Unicode") from None


def subscribe_command(subject: str, queue: str | None, sid: int) -> bytes:
    """Return SUB. Rejects blanks, which break the line, but not every invalid subject."""
    words = [subject, queue] if queue is not None else [subject]
    for word in words:
        if not word or _BLANK.search(word):
            raise InvalidSubjectError(f"empty or with white space: {word!r}")
    return f"SUB {' '.join(words)} {sid}\r\n".encode()


def unsubscribe_command(sid: int, after: int = 0) -> bytes:
    """Return UNSUB, immediate or after `after` delivered messages in all."""
    return b"UNSUB %d %d\r\n" % (sid, after) if after else b"UNSUB %d\r\n" % sid


_BLANK = re.compile(r"[\x00-\x20\x7f]")

# How -ERR texts begin, in lower case, from the source of nats-server 2.15.1. The server
# does not always use the same capitals.
_ERRORS: Final[tuple[tuple[str, type[Error]], ...]] = (
    ("authorization violation", AuthenticationError),
    ("user authentication expired", AuthenticationError),
    ("user authentication revoked", AuthenticationError),
    ("account authentication expired", AuthenticationError),
    ("authentication timeout", AuthenticationError),
    ("authentication expired", AuthenticationError),
    ("failed account registration", AuthenticationError),
    ("stale connection", StaleConnectionError),
    ("slow consumer", ServerLimitError),
    ("maximum connections exceeded", ServerLimitError),
    ("maximum account active connections exceeded", ServerLimitError),
    ("maximum subscriptions exceeded", SubscriptionLimitError),
    ("connection throttling", ServerLimitError),
    ("invalid subject", InvalidSubjectError),
    ("invalid publish subject", InvalidSubjectError),
    ("secure connection - tls required", TLSError),
    ("unknown protocol operation", ProtocolError),
    ("parser error", ProtocolError),
    ("invalid client protocol", ProtocolError),
    ("maximum control line exceeded", ProtocolError),
    ("no responders requires headers", ProtocolError),
    ("message headers not supported", ProtocolError),
    ("attempted to connect to", ProtocolError),  # route, leaf node, gateway port
)
_LOWERED: Final = (
    "a message is larger than the max_payload, which was lowered while this connection was "
    "open; after the reconnect, such messages raise MaxPayloadError"
)
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_PERMISSIONS = re.compile(
    rf"permissions violation for (publish|subscription)(?: with reply of| to) {_QUOTED}"
    rf"(?: using queue {_QUOTED})?",
    re.IGNORECASE,
)


def server_error(text: str) -> Error:
    """Return the error for the text of an -ERR, a plain `Error` if it is unknown."""
    words = text.lower()
    if words.startswith("permissions violation"):
        if found := _PERMISSIONS.match(text):
            publish = found[1].lower() == "publish"
            return PermissionsError(
                text,
                subject=_unquote(found[2]),
                operation="publish" if publish else "subscribe",
            )
        return PermissionsError(text)
    if words.startswith("maximum payload"):
        return ServerLimitError(f"{text}: {_LOWERED}")
    return next((kind for start, kind in _ERRORS if words.startswith(start)), Error)(
        text
    )


def queue_of_violation(error: PermissionsError) -> str | None:
    """Return the queue group of the subscription that was denied, if it had one."""
    found = _PERMISSIONS.match(str(error))
    return _unquote(found[3]) if found and found[3] is not None else None


def is_fatal(error: Error) -> bool:
    """Return whether the server closes the connection after this -ERR.

    False for an unknown text: if the server does close, the next read notices it.
    """
    return isinstance(error, errors.ConnectionError)


def _unquote(text: str) -> str:
    # Undo Go's %q. Its other escapes are for characters that subjects hardly contain.
    return re.sub(r'\\(["\\])', r"\1", text)
