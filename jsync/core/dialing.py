"""A dialer's call on a thread of its own, so that `close` need not wait for it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ..errors import ConfigError, Error
from .callbacks import wrap
from .shared import RLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from .callbacks import Spawner


class Dialing:
    """One call of a dialer.

    Whoever waits for it is woken at its end. A socket that comes after `abandon` is
    closed.
    """

    def __init__(
        self,
        dial: Callable[[], object],
        spawner: Spawner,
        wake: Callable[[], object],
    ) -> None:
        self._dial = dial
        self._wake = wake
        self._lock = RLock()
        self._socket: socket.socket | None = None
        self._error: Exception | None = None
        self._abandoned = False
        self.done = False
        spawner.start("jsync-dialer", self._run)

    def _run(self) -> None:
        sock: socket.socket | None = None
        error: Exception | None = None
        try:
            sock = _checked(self._dial())
        except (Error, OSError) as raised:
            error = raised
        except BaseException as raised:  # noqa: BLE001 (user code, SystemExit for one)
            error = wrap("dialer", raised)
        with self._lock:
            self._socket, self._error = sock, error
            self.done = True
            abandoned = self._abandoned
        if not abandoned:
            self._wake()
        elif sock is not None:
            sock.close()

    def result(self) -> socket.socket:
        """Return the socket of a call that is done, or raise what the dialer raised."""
        if self._error is not None:
            raise self._error
        assert self._socket is not None
        return self._socket

    def abandon(self) -> None:
        """Want the socket no more: close it now, or when it comes."""
        with self._lock:
            self._abandoned = True
            sock = self._socket
        if sock is not None:
            sock.close()


def _checked(sock: object) -> socket.socket:
    if not isinstance(sock, socket.socket):
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
    return sock
