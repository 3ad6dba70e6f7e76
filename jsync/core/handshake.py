"""The handshake as a state machine, with no socket, thread or clock."""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeVar

from .. import errors
from ..errors import Error, ProtocolError, ServerLimitError, TLSError
from .protocol import ServerInfo, parse_info, server_error

AnyError = TypeVar("AnyError", bound=Error)


class State(Enum):
    """What the handshake waits for."""

    GREETING = "INFO"
    TLS = "the TLS handshake"
    CONNECT = "our CONNECT"
    PONG = "PONG"
    READY = "nothing"
    FAILED = "nothing, it has failed"


class Step(Enum):
    """What the connection has to do next."""

    READ = "read, and pass on what comes"
    START_TLS = "do the TLS handshake, then call `secured`"
    SEND_CONNECT = "send CONNECT and PING, then call `connect_sent`"
    SEND_PONG = "send PONG, then read"
    READY = "nothing: the connection can be used"


_STEPS: Final = {
    State.GREETING: Step.READ,
    State.TLS: Step.START_TLS,
    State.CONNECT: Step.SEND_CONNECT,
    State.PONG: Step.READ,
    State.READY: Step.READY,
}


class Handshake:
    """From the first byte of the server to the PONG after our CONNECT.

    Do what `step` says. Bytes read go to `observe` first and to the parser then, and its
    frames one by one to `receive`, up to the one that makes it `Step.READY`: what follows
    in the same read, often an INFO, is the connection's own. Whatever raises has failed
    for good. TLS begins when either side asks for it; with `tls_first` before INFO, and then INFO need not mention
    it, as when a proxy ends the TLS. On a WebSocket, `carried`, TLS has been settled before:
    `carried` says whether there is some.
    """

    def __init__(
        self, *, tls: bool, tls_first: bool = False, carried: bool | None = None
    ) -> None:
        self._carried = carried is not None
        self._tls = (tls or tls_first) and not self._carried
        begins_with_tls = tls_first and not self._carried
        self._state = State.TLS if begins_with_tls else State.GREETING
        self._encrypted = bool(carried)
        self._owes_pong = False
        self._head = b""
        # The bytes after INFO, None until INFO is complete.
        self._tail: bytes | None = None
        self.info: ServerInfo | None = None
        """The last INFO that came."""

    @property
    def state(self) -> State:
        return self._state

    @property
    def encrypted(self) -> bool:
        return self._encrypted

    @property
    def step(self) -> Step:
        """What to do now; a failed handshake has no step."""
        return _STEPS[self._state]

    def observe(self, data: bytes) -> None:
        """Look at bytes before they are parsed, whether this is a NATS server at all.

        Raises `ProtocolError` at the first byte that is not the beginning of an INFO, and
        at any that comes in plain when TLS is to begin.
        """
        if self._state is State.TLS and data:
            raise self._failed(_injected(data[:200].decode("latin-1")))
        if self._state is not State.GREETING or self._carried:
            return
        if len(self._head) < 5:
            self._head += data[:40]
            if not _begins_like_info(self._head[:5]):
                raise self._failed(ProtocolError(_describe_stranger(self._head)))
        if self._tail is not None:
            self._tail += data[:200]
        elif b"\n" in data:
            self._tail = data.partition(b"\n")[2][:200]

    def receive(self, op: str, value: object = None) -> Step:
        """Take a frame of the parser; return the next step or raise what went wrong."""
        match self._state, op, value:
            case State.TLS, _, _:
                raise self._failed(_injected(f"{op} {value}"))
            case _, "-ERR", str(text):
                raise self._failed(_refusal(text))
            case _, "BROKEN", Error() as error:
                raise self._failed(error)
            case State.GREETING, "INFO", bytes(data):
                self._greeted(self._parsed(data))
            case State.CONNECT | State.PONG, "INFO", bytes(data):
                self.info = self._parsed(data)
            case State.CONNECT, "PING", _:
                # Any bytes before CONNECT would end the handshake.
                self._owes_pong = True
            case State.PONG, "PING", _:
                return Step.SEND_PONG
            case State.PONG, "PONG", _:
                self._state = State.READY
            case State.PONG, "+OK", _:
                pass
            case _:
                raise self._failed(
                    ProtocolError(f"{op} while waiting for {self._state.value}")
                )
        return self.step

    def secured(self) -> Step:
        """The TLS handshake is done, and the certificate is the right one."""
        self._has_waited_for(State.TLS)
        self._encrypted = True
        self._state = State.GREETING if self.info is None else State.CONNECT
        return self.step

    def connect_sent(self) -> Step:
        """CONNECT and PING are on their way."""
        self._has_waited_for(State.CONNECT)
        self._state = State.PONG
        return Step.SEND_PONG if self._owes_pong else self.step

    def eof(self) -> errors.ConnectionError:
        """The error for a peer that closes the connection now."""
        shaken = self._encrypted and not self._carried
        if shaken and (self.info is None or self.info.tls_verify):
            error: errors.ConnectionError = TLSError(
                "closed by the server right after the TLS handshake: "
                "it may want another client certificate"
            )
        elif self._state is State.GREETING and self._carried:
            error = errors.ConnectionError(
                "the WebSocket was closed before an INFO came: is it a NATS server's?"
            )
        elif self._state is State.GREETING:
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
        """The error for when `connect_timeout` passes now."""
        hint = ""
        if self._state is State.GREETING and not self._head and not self._carried:
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
        if self._encrypted or self._carried or not (self._tls or info.tls_required):
            self._state = State.CONNECT
        elif not (info.tls_required or info.tls_available):
            raise self._failed(
                TLSError(
                    "TLS is required by your options, but the server does not offer it"
                )
            )
        elif self._tail:
            raise self._failed(_injected(self._tail.decode("latin-1")))
        else:
            self._state = State.TLS

    def _parsed(self, data: bytes) -> ServerInfo:
        try:
            return parse_info(data)
        except ProtocolError as error:
            raise self._failed(error) from error.__cause__

    def _has_waited_for(self, state: State) -> None:
        if self._state is not state:
            raise self._failed(
                ProtocolError(f"{state.value} while waiting for {self._state.value}")
            )

    def _failed(self, error: AnyError) -> AnyError:
        self._state = State.FAILED
        return error

    def __repr__(self) -> str:
        encrypted = ", encrypted" if self._encrypted else ""
        return f"<Handshake waiting for {self._state.value}{encrypted}>"


def _begins_like_info(head: bytes) -> bool:
    head = head.upper().replace(b"\t", b" ")
    return b"INFO ".startswith(head) or b"-ERR ".startswith(head)


def _describe_stranger(head: bytes) -> str:
    if head[0] in (0x15, 0x16):
        return "not INFO but TLS: the server may need `tls_handshake_first`"
    return f"not a NATS server: it begins with {head[:32].decode('latin-1')!a}"


def _refusal(text: str) -> errors.ConnectionError:
    error = server_error(text)
    if isinstance(error, errors.ConnectionError):
        return error
    # Later this error would be about a message or subscription. During the handshake
    # there is none.
    return errors.ConnectionError(f"refused by the server: {text}")


def _injected(plaintext: str) -> Error:
    # An attacker on the network can inject an error between INFO and the TLS handshake.
    # A full server sends one, too. To believe it does no more harm than a cut
    # connection.
    if plaintext.startswith("-ERR"):
        error = server_error(plaintext[4:].partition("\r\n")[0].strip(" '"))
        if isinstance(error, ServerLimitError):
            return error
    return ProtocolError(
        "unencrypted bytes between INFO and the TLS handshake: somebody may have "
        "injected them"
    )
