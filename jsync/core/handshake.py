"""The handshake as a state machine, with no socket, thread or clock."""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeVar

from .. import errors
from ..errors import Error, ProtocolError, ServerLimitError, TLSError
from .protocol import ServerInfo, parse_info, server_error

AnyError = TypeVar("AnyError", bound=Error)


class HandshakeState(Enum):
    """The next thing that the handshake waits for."""

    GREETING = "INFO"
    TLS = "the TLS handshake"
    CONNECT = "our CONNECT"
    PONG = "PONG"
    READY = "nothing"
    FAILED = "nothing, it has failed"


class NextStep(Enum):
    """The next action of the connection."""

    READ = "read, and pass on what comes"
    START_TLS = "do the TLS handshake, then call `secured`"
    SEND_CONNECT = "send CONNECT and PING, then call `connect_sent`"
    SEND_PONG = "send PONG, then read"
    READY = "nothing: the connection can be used"


_STEPS: Final = {
    HandshakeState.GREETING: NextStep.READ,
    HandshakeState.TLS: NextStep.START_TLS,
    HandshakeState.CONNECT: NextStep.SEND_CONNECT,
    HandshakeState.PONG: NextStep.READ,
    HandshakeState.READY: NextStep.READY,
}


class Handshake:
    """The handshake from the first byte of the server to the PONG after our CONNECT.

    Do what `step` says. Pass received bytes to `observe` first, then to the parser, and its
    frames one by one to `receive`, until that returns `Step.READY`. Later frames of the
    same read, often an INFO, belong to the connection. After an exception the handshake
    has failed permanently.

    TLS begins if either side requires it. With `tls_first` it begins before INFO, which
    need not mention TLS then, for example behind a proxy that terminates it. On a
    WebSocket, TLS is negotiated before the handshake, and `websocket_tls` tells if there is any.
    """

    def __init__(
        self, *, tls: bool, tls_first: bool = False, websocket_tls: bool | None = None
    ) -> None:
        self._is_websocket = websocket_tls is not None
        self._tls = (tls or tls_first) and not self._is_websocket
        begins_with_tls = tls_first and not self._is_websocket
        self._state = HandshakeState.TLS if begins_with_tls else HandshakeState.GREETING
        self._encrypted = bool(websocket_tls)
        self._owes_pong = False
        self._head = b""
        # The bytes after INFO, None until INFO is complete.
        self._tail: bytes | None = None
        self.info: ServerInfo | None = None
        """The last INFO of the server, None before the first."""

    @property
    def state(self) -> HandshakeState:
        return self._state

    @property
    def encrypted(self) -> bool:
        return self._encrypted

    @property
    def step(self) -> NextStep:
        """The next action. A failed handshake has none, and raises `KeyError`."""
        return _STEPS[self._state]

    def observe(self, data: bytes) -> None:
        """Check, before bytes are parsed, that the peer is a NATS server.

        Raises `ProtocolError` if the first bytes do not begin an INFO, and for unencrypted
        bytes where TLS has to begin.
        """
        if self._state is HandshakeState.TLS and data:
            raise self._failed(_plaintext_after_tls(data[:200].decode("latin-1")))
        if self._state is not HandshakeState.GREETING or self._is_websocket:
            return
        if len(self._head) < 5:
            self._head += data[:40]
            if not _begins_like_info(self._head[:5]):
                raise self._failed(ProtocolError(_not_nats_error(self._head)))
        if self._tail is not None:
            self._tail += data[:200]
        elif b"\n" in data:
            self._tail = data.partition(b"\n")[2][:200]

    def receive(self, op: str, value: object = None) -> NextStep:
        """Handle a frame of the parser. Return the next step, or raise the failure."""
        match self._state, op, value:
            case HandshakeState.TLS, _, _:
                raise self._failed(_plaintext_after_tls(f"{op} {value}"))
            case _, "-ERR", str(text):
                raise self._failed(_connect_error(text))
            case _, "BROKEN", Error() as error:
                raise self._failed(error)
            case HandshakeState.GREETING, "INFO", bytes(data):
                self._greeted(self._parsed(data))
            case HandshakeState.CONNECT | HandshakeState.PONG, "INFO", bytes(data):
                self.info = self._parsed(data)
            case HandshakeState.CONNECT, "PING", _:
                # Any bytes before CONNECT would end the handshake.
                self._owes_pong = True
            case HandshakeState.PONG, "PING", _:
                return NextStep.SEND_PONG
            case HandshakeState.PONG, "PONG", _:
                self._state = HandshakeState.READY
            case HandshakeState.PONG, "+OK", _:
                pass
            case _:
                raise self._failed(
                    ProtocolError(f"{op} while waiting for {self._state.value}")
                )
        return self.step

    def secured(self) -> NextStep:
        """Note that TLS is established with a valid certificate. Return the next step."""
        self._has_waited_for(HandshakeState.TLS)
        self._encrypted = True
        self._state = (
            HandshakeState.GREETING if self.info is None else HandshakeState.CONNECT
        )
        return self.step

    def connect_sent(self) -> NextStep:
        """Note that CONNECT and PING were sent. Return the next step."""
        self._has_waited_for(HandshakeState.CONNECT)
        self._state = HandshakeState.PONG
        return NextStep.SEND_PONG if self._owes_pong else self.step

    def eof(self) -> errors.ConnectionError:
        """Return the error for a peer that closes the connection now."""
        shaken = self._encrypted and not self._is_websocket
        if shaken and (self.info is None or self.info.tls_verify):
            error: errors.ConnectionError = TLSError(
                "closed by the server right after the TLS handshake: "
                "it may want another client certificate"
            )
        elif self._state is HandshakeState.GREETING and self._is_websocket:
            error = errors.ConnectionError(
                "the WebSocket was closed before an INFO came: is it a NATS server's?"
            )
        elif self._state is HandshakeState.GREETING:
            error = errors.ConnectionError(
                "closed before an INFO came: is it a NATS server? Its WebSocket port "
                "needs ws:// or wss://"
            )
        else:
            error = errors.ConnectionError(
                f"closed by the server without a reason, while waiting for {self._state.value}"
            )
        return self._failed(error)

    def timed_out(self) -> errors.TimeoutError:
        """Return the error for a `connect_timeout` that passes now."""
        hint = ""
        if (
            self._state is HandshakeState.GREETING
            and not self._head
            and not self._is_websocket
        ):
            hint = (
                ": is it the client port of a NATS server? "
                "One that begins with TLS needs `tls_handshake_first`, and a WebSocket "
                "port needs ws:// or wss://"
            )
        return self._failed(
            errors.TimeoutError(f"timed out waiting for {self._state.value}{hint}")
        )

    def _greeted(self, info: ServerInfo) -> None:
        self.info = info
        if not info.headers:
            raise self._failed(
                ProtocolError(
                    f"nats-server {info.version} sends no headers, which requests and "
                    "JetStream need: turn them on there, or use version 2.2 or newer"
                )
            )
        if (
            self._encrypted
            or self._is_websocket
            or not (self._tls or info.tls_required)
        ):
            self._state = HandshakeState.CONNECT
        elif not (info.tls_required or info.tls_available):
            raise self._failed(
                TLSError(
                    "TLS is required by your options, but the server does not offer it"
                )
            )
        elif self._tail:
            raise self._failed(_plaintext_after_tls(self._tail.decode("latin-1")))
        else:
            self._state = HandshakeState.TLS

    def _parsed(self, data: bytes) -> ServerInfo:
        try:
            return parse_info(data)
        except ProtocolError as error:
            raise self._failed(error) from error.__cause__

    def _has_waited_for(self, state: HandshakeState) -> None:
        if self._state is not state:
            raise self._failed(
                ProtocolError(f"{state.value} while waiting for {self._state.value}")
            )

    def _failed(self, error: AnyError) -> AnyError:
        self._state = HandshakeState.FAILED
        return error

    def __repr__(self) -> str:
        encrypted = ", encrypted" if self._encrypted else ""
        return f"<Handshake waiting for {self._state.value}{encrypted}>"


def _begins_like_info(head: bytes) -> bool:
    head = head.upper().replace(b"\t", b" ")
    return b"INFO ".startswith(head) or b"-ERR ".startswith(head)


def _not_nats_error(head: bytes) -> str:
    if head[0] in (0x15, 0x16):
        return "not INFO but TLS: the server may need `tls_handshake_first`"
    return f"not a NATS server: it begins with {head[:32].decode('latin-1')!a}"


def _connect_error(text: str) -> errors.ConnectionError:
    error = server_error(text)
    if isinstance(error, errors.ConnectionError):
        return error
    # After the handshake, such an error is about a message or subscription. During the
    # handshake there is none yet.
    return errors.ConnectionError(f"refused by the server: {text}")


def _plaintext_after_tls(plaintext: str) -> Error:
    # An attacker on the network can inject an error between INFO and the TLS handshake,
    # but a full server sends one too. Believing it does no more harm than a cut
    # connection.
    if plaintext.startswith("-ERR"):
        error = server_error(plaintext[4:].partition("\r\n")[0].strip(" '"))
        if isinstance(error, ServerLimitError):
            return error
    return ProtocolError(
        "unencrypted bytes between INFO and the TLS handshake: somebody may have "
        "injected them"
    )
