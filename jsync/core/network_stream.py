"""Byte streams over TCP and TLS, independent of NATS.

Everything here belongs to the I/O thread. It waits for the socket and a `Waker` together,
so that `close()` ends any of its waits, except the one in `resolve`.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

from .. import errors
from .._fast import os_strerror
from ..errors import ConfigError, TLSError
from .addresses import in_order
from .monkey import original

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._fast import TLSRecords, Waker
    from .addresses import Address
    from .options import Options
    from .tls import TLSLayer

READ_SIZE = 256 * 1024
ADDRESS_SECONDS = 0.25
"""Seconds that an address may be silent before the next one is tried beside it."""
CANCEL_CHECK_INTERVAL = 0.25
"""The interval at which a wait checks whether it is cancelled."""
POLLIN = 1
POLLOUT = 4
"""The values of `select` on all systems but Windows, which has no `select.poll`."""


class CancelledError(Exception):
    """A wait was cancelled through the `Waker`, because its result is not needed."""


def wait(
    fd: int | None,
    events: int,
    deadline: float,
    waker: Waker,
    cancelled: Callable[[], bool],
) -> bool:
    """Wait for `events` on `fd`. Return False at the deadline.

    Raises `CancelledError` once `cancelled` returns True.
    """
    fds = {} if fd is None else {fd: events}
    return bool(_wait_any(fds, deadline, waker, cancelled))


def _wait_any(
    fds: dict[int, int], deadline: float, waker: Waker, cancelled: Callable[[], bool]
) -> set[int]:
    """Wait for the events of any descriptor. Return those that are ready, if any."""
    polled = {**fds, waker.read_fd: POLLIN}
    while True:
        if cancelled():
            raise CancelledError
        left = deadline - monotonic()
        ready = _poll(polled, max(0.0, min(left, CANCEL_CHECK_INTERVAL)))
        if waker.read_fd in ready:
            waker.clear()
            ready.remove(waker.read_fd)
        if ready or left <= 0:
            return ready


def _poll(fds: dict[int, int], seconds: float) -> set[int]:
    """Wait for the events of each descriptor. Return the descriptors that are ready."""
    if sys.platform == "win32":
        readers = [fd for fd, events in fds.items() if events & POLLIN]
        # Use `select`, where a failed connection is an exception. WSAPoll reports one only
        # since version 2004 of Windows 10.
        writers = [fd for fd, events in fds.items() if events & POLLOUT]
        select = original("select", "select")
        return set().union(*select(readers, writers, writers, seconds))
    poll = original("select", "poll")()
    for fd, events in fds.items():
        poll.register(fd, events)
    return {fd for fd, _ in poll.poll(seconds * 1000)}


def is_literal(host: str) -> bool:
    """Return whether a host is an address, which needs no resolver."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return True
    return False


def resolve(host: str, port: int) -> list[Address]:
    """Return the IPv4 and IPv6 addresses of a host. Blocks."""
    try:
        getaddrinfo = original("socket", "getaddrinfo")
        return [*getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except OSError as error:
        raise errors.ConnectionError(
            f"cannot resolve {host!r}: {error.strerror or error}"
        ) from error
    except UnicodeError as error:
        raise ConfigError(f"{host!r} is not a host name: {error}") from error


class NetworkStream:
    """A connected socket, encrypted once `start_tls` has been called.

    `send` and `receive` block and are for the handshake. Later the extension reads and
    writes the socket itself, and encrypts with `records`. For a compressed stream it only
    reports that the socket is ready, and the I/O thread calls `decrypt`, `encrypt` and
    `send_pending`.
    """

    frame: Callable[[bytes], bytes] | None = None
    """Turns bytes into WebSocket frames. None unless the stream is a WebSocket."""
    compressed = False

    def __init__(
        self, sock: socket.socket, waker: Waker, cancelled: Callable[[], bool]
    ) -> None:
        self._sock = sock
        self._waker = waker
        self._cancelled = cancelled
        self._tls: TLSLayer | None = None
        self._unsent = b""

    @classmethod
    def connect(
        cls,
        where: str,
        addresses: list[Address],
        deadline: float,
        waker: Waker,
        cancelled: Callable[[], bool],
        shuffle: Callable[[list[Address]], None] | None = None,
    ) -> NetworkStream:
        """Connect to the first address that answers. `where` names the host in errors.

        While an address is silent, the next ones are tried beside it (RFC 8305), and half
        of the time is left for the last one and the handshake.
        """
        untried = deque(in_order(addresses, shuffle))
        left = deadline - monotonic()
        pause = min(ADDRESS_SECONDS, left / (2 * max(1, len(untried))))
        connecting: dict[int, tuple[socket.socket, str]] = {}
        failures: dict[str, Exception] = {}
        try:
            while untried or connecting:
                until = deadline
                if untried:
                    family, kind, proto, _, address = untried.popleft()
                    host = str(address[0])
                    try:
                        sock = _start_connect(family, kind, proto, address)
                    except OSError as error:
                        failures[host] = error
                        continue
                    connecting[sock.fileno()] = sock, host
                    if untried:
                        until = min(until, monotonic() + pause)
                fds = dict.fromkeys(connecting, POLLOUT)
                for fd in _wait_any(fds, until, waker, cancelled):
                    sock, host = connecting.pop(fd)
                    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if not code:
                        return cls(sock, waker, cancelled)
                    sock.close()
                    failures[host] = OSError(code, os_strerror(code))
                if monotonic() >= deadline:
                    silent = [host for _, host in connecting.values()]
                    late = silent + [str(address[4][0]) for address in untried]
                    failures |= {
                        host: errors.TimeoutError("timed out") for host in late
                    }
                    break
        finally:
            for sock, _ in connecting.values():
                sock.close()
        raise _failure(where, failures)

    @classmethod
    def from_socket(
        cls, sock: socket.socket, waker: Waker, cancelled: Callable[[], bool]
    ) -> NetworkStream:
        """Take over a socket that a dialer connected."""
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock, waker, cancelled)

    @property
    def fd(self) -> int:
        return self._sock.fileno()

    @property
    def encrypted(self) -> bool:
        return self._tls is not None

    @property
    def direct(self) -> bool:
        """True if the extension reads and writes the socket itself."""
        return not self.compressed

    @property
    def records(self) -> TLSRecords | None:
        """The TLS state for the extension, once the handshakes are done."""
        return self._tls.records() if self._tls and self.direct else None

    # For the handshake ----------------------------------------------------------------

    def send(self, data: bytes, deadline: float, *, framed: bool = False) -> None:
        """Send all of `data`. A WebSocket frames it, unless it is `framed` already."""
        self.encrypt(data, framed=framed)
        while not self.send_pending():
            self._wait(POLLOUT, deadline)

    def receive(self, deadline: float) -> bytes:
        """Block for the next bytes, and return them decrypted, or empty at the end."""
        while True:
            self._check_time(deadline)
            plain, closed = self.decrypt()
            self.send_pending()
            if plain or closed:
                return plain
            self._wait(POLLIN, deadline)

    def start_tls(self, options: Options, hostname: str, deadline: float) -> None:
        """Do the TLS handshake. Raises `TLSError`, for example for a wrong certificate."""
        from .tls import TLSLayer  # noqa: PLC0415 (brings in ssl, which few connections need)

        tls = TLSLayer(options, hostname)
        try:
            self._do_handshake(tls, deadline)
        except errors.TimeoutError:
            raise errors.TimeoutError(
                "timed out waiting for the TLS handshake"
            ) from None
        self._tls = tls

    def _do_handshake(self, tls: TLSLayer, deadline: float) -> None:
        data = b""
        while True:
            try:
                finished = tls.do_handshake(data)
            except TLSError:
                with contextlib.suppress(OSError):  # sends the TLS alert to the server
                    self._unsent += tls.outgoing()
                    self.send_pending()
                raise
            self._unsent += tls.outgoing()
            while not self.send_pending():
                self._wait(POLLOUT, deadline)
            if finished:
                return
            self._check_time(deadline)
            self._wait(POLLIN, deadline)
            data, closed = self._read()
            if closed:
                raise TLSError("closed by the server during the TLS handshake")

    def _check_time(self, deadline: float) -> None:
        """Stop at the deadline, or if cancelled: a peer may send without a pause."""
        if self._cancelled():
            raise CancelledError
        if monotonic() >= deadline:
            raise errors.TimeoutError("timed out")

    def _wait(self, events: int, deadline: float) -> None:
        if not wait(self.fd, events, deadline, self._waker, self._cancelled):
            raise errors.TimeoutError("timed out")

    # For the serving I/O thread, without waiting ----------------------------------------

    def decrypt(self) -> tuple[bytes, bool]:
        """Read from the socket. Return the plaintext, and whether the peer has closed."""
        data, closed = self._read()
        if self._tls is None:
            return data, closed
        plain, ended = self._tls.decrypt(data)
        # Reading may produce TLS output, such as the answer to a key update.
        self._unsent += self._tls.outgoing()
        return plain, closed or ended

    def encrypt(self, data: bytes, *, framed: bool = False) -> None:
        """Frame and encrypt `data`, and append it to the bytes that `send_pending` sends."""
        if self.frame is not None and not framed:
            data = self.frame(data)
        if self._tls is None:
            self._unsent += data
            return
        self._tls.encrypt(data)
        self._unsent += self._tls.outgoing()

    def send_pending(self) -> bool:
        """Send as much as the socket accepts. Return whether nothing is left."""
        sent = 0
        view = memoryview(self._unsent)
        try:
            while sent < len(view):
                sent += self._sock.send(view[sent : sent + READ_SIZE])
        except (BlockingIOError, InterruptedError):
            pass
        self._unsent = self._unsent[sent:]
        return not self._unsent

    def _read(self) -> tuple[bytes, bool]:
        try:
            data = self._sock.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return b"", False
        return data, not data

    # ------------------------------------------------------------------------------------

    def drain_incoming(self, deadline: float) -> None:
        """Wait until the peer has read everything and closed, at most until `deadline`.

        `close` alone may lose the last bytes written: a peer that is sending gets a reset
        from a closed socket, and drops the bytes that it has not read.
        """
        with contextlib.suppress(OSError, CancelledError):
            self._sock.shutdown(socket.SHUT_WR)
            while (
                monotonic() < deadline
                and wait(self.fd, POLLIN, deadline, self._waker, self._cancelled)
                and self._sock.recv(READ_SIZE)
            ):
                pass

    def close(self) -> None:
        """End the connection, even if a child process has the descriptor too."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def close_fd(self) -> None:
        """Close the descriptor only: in a forked child, the connection is the parent's."""
        self._sock.close()


def _start_connect(
    family: int, kind: int, proto: int, address: object
) -> socket.socket:
    """Return a socket that is connecting, and becomes writable at the end of that.

    Raises `OSError` also if the kernel lacks the family, or has no descriptors.
    """
    sock: socket.socket = original("socket", "socket")(family, kind, proto)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(BlockingIOError, InterruptedError):
            sock.connect(address)  # type: ignore[arg-type]
    except BaseException:
        sock.close()
        raise
    return sock


def _failure(where: str, failures: dict[str, Exception]) -> Exception:
    """Return the error of a host whose addresses failed, with the reason of each."""
    if all(isinstance(error, errors.TimeoutError) for error in failures.values()):
        return errors.TimeoutError(f"no connection to {where} in time")
    reasons = {address: _error_text(error) for address, error in failures.items()}
    listed = "; ".join(f"{address}: {why}" for address, why in reasons.items())
    last = list(failures.values())[-1]
    alike = len(set(reasons.values())) == 1
    error = errors.ConnectionError(
        f"cannot connect to {where}: {_error_text(last) if alike else listed}"
    )
    error.__cause__ = last
    return error


def _error_text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
