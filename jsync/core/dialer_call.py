"""Blocking calls on threads, so that `close` and other servers do not wait for them."""

from __future__ import annotations

import socket
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from ..errors import ConfigError, Error
from .callbacks import as_callback_error
from .monkey import original
from .sync import ForkSafeRLock

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

NativeSocket: type[socket.socket] = original("socket", "socket")
"""The class of sockets that any thread may use, unlike the sockets of gevent."""


class DialerCall(Generic[Result]):
    """One call of a dialer or of the system's resolver, on a thread that `start` starts.

    It calls `wake` at its end. A socket that is returned after `discard_result` is closed.
    """

    def __init__(
        self,
        kind: str,
        call: Callable[[], Result],
        start: Callable[[str, Callable[[], object]], object],
        wake: Callable[[], object],
    ) -> None:
        self._kind = kind
        self._call = call
        self._wake = wake
        self._lock = ForkSafeRLock()
        self._result: Result | None = None
        self._error: Exception | None = None
        self._discarded = False
        self._ended = 0.0
        self.done = False
        start(f"jsync-{kind}", self._run)

    def _run(self) -> None:
        result: Result | None = None
        error: Exception | None = None
        try:
            result = self._call()
        except (Error, OSError) as raised:
            error = raised
        except BaseException as raised:  # noqa: BLE001 (user code, SystemExit for one)
            error = as_callback_error(self._kind, raised)
        with self._lock:
            self._result, self._error = result, error
            self._ended = monotonic()
            self.done = True
            discarded = self._discarded
        if not discarded:
            self._wake()
        elif isinstance(result, NativeSocket):
            result.close()

    def result(self) -> Result:
        """Return the result of a finished call, or raise its exception."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def succeeded_since(self, begin: float) -> bool:
        """Return whether a finished call returned a result, at `begin` or later."""
        return self._error is None and self._ended >= begin

    def discard_result(self) -> None:
        """Discard the result: close a socket now, or when the call returns it."""
        with self._lock:
            self._discarded = True
            result = self._result
        if isinstance(result, NativeSocket):
            result.close()


def check_socket(sock: object) -> socket.socket:
    """Return the socket of a dialer.

    Raises `ConfigError` if it is not a connected stream socket without TLS.
    """
    if not isinstance(sock, socket.socket | NativeSocket):
        raise ConfigError(
            f"the dialer has to return a connected socket, not {type(sock).__name__}"
        )
    if hasattr(sock, "do_handshake"):
        sock.close()
        raise ConfigError(
            "the dialer returned a socket with TLS: return a plain one, and pass tls= to "
            "connect"
        )
    if sock.type != socket.SOCK_STREAM or sock.fileno() < 0:
        sock.close()
        raise ConfigError("the dialer has to return a connected stream socket")
    if not isinstance(sock, NativeSocket):
        return NativeSocket(fileno=sock.detach())
    return sock
