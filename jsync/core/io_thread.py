"""The I/O thread: connect, serve, reconnect, until it is stopped."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import sys
import threading
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from .. import errors
from .._fast import Event, JetStreamMailbox, Mailbox, Msg, Waiter
from ..errors import (
    AuthenticationError,
    ConnectionLostError,
    ConnectTimeoutError,
    Error,
    MaxPayloadError,
    NoServersError,
    PermissionsError,
    ServerLimitError,
    SlowConsumerError,
    StaleConnectionError,
    SubscriptionLimitError,
    WebSocketError,
)
from ..terminal import printable
from .auth import Authenticator
from .callbacks import as_callback_error, call_with_timeout
from .dialer_call import DialerCall, check_socket
from .events import LameDuck, ServersDiscovered
from .handshake import Handshake, HandshakeState as HandshakeState, NextStep
from .monkey import NativeThread, is_patched, native_ident
from .network_stream import CancelledError, NetworkStream, is_literal, resolve, wait
from .protocol import PING, PONG, connect_command, is_fatal, parse_info, server_error
from .server_address import parse_servers, without_dot
from .server_pool import Backoff, ServerPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from .addresses import Address
    from .protocol import ServerInfo
    from .proxies import Dialer, Proxy
    from .server_address import ServerAddress
    from .session import Session
    from .timers import Timers

Result = TypeVar("Result")

logger = logging.getLogger("jsync.connection")

LAME_DUCK_SECONDS = 5.0
"""Seconds that pending requests may delay the move away from a lame duck."""
RECONNECT_SECONDS = 1.0
"""Seconds that pending requests may delay a move that the user requested."""
PIECE_SIZE = 256 * 1024
"""The most bytes that are compressed in one step."""
LATE_SECONDS = 60.0
"""Seconds for which the addresses of a name are used that came too late for their attempt."""
HANGING_SECONDS = 1.0
"""Seconds between two calls of user code, for each call that has not returned."""
MAX_PAYLOAD = 64 << 20
"""The largest `max_payload` that nats-server can be configured with."""
_SERVER_EVENTS = {
    *(Event.INFO, Event.ERR, Event.OK, Event.PING, Event.PONG),
    *(Event.BROKEN, Event.READABLE, Event.WRITABLE),
}
"""Events that are ignored after the connection has ended."""


@dataclass(slots=True)
class PendingReconnect:
    """A planned move to another server, once no request is pending or at `deadline`."""

    reason: str
    seconds: float
    """The limit of each of the two waits: for replies, then for the last PONG."""
    deadline: float
    by_user: bool
    pong: Waiter | None = field(default=None)


@dataclass(slots=True)
class HandshakeResult:
    """A connection whose handshake is done."""

    server: ServerAddress
    stream: NetworkStream
    info: ServerInfo
    read_ahead: deque[tuple[str, object]]
    """Frames that were read together with PONG. They are handled like all later ones."""
    round_trip: float
    """Seconds between the first PING and its PONG."""


@dataclass(slots=True)
class _Call:
    """A call of user code on another thread."""

    started: float
    has_ended: bool = False


class IOThread:
    """The thread that connects, reads, writes and reconnects. It never runs user code.

    Other threads call `start`, `stop`, `join` and `close_fd`.
    """

    def __init__(self, session: Session) -> None:
        options = session.options
        self._session = session
        # Set this before anything can raise: a traceback may show a half-made object.
        name = f"{session.name}-io"
        self._thread: threading.Thread | NativeThread
        if is_patched():
            self._thread = NativeThread(self._run, name)
        else:
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._ident: int | None = None
        """The number of the thread, while it runs."""
        self._options = options
        self._io_loop = session.io_loop
        self._write_buffer = session.write_buffer
        self._authenticator = Authenticator(
            user=options.user,
            password=options.password,
            token=options.token,
            nkey_seed=options.nkey_seed,
            creds=options.creds,
            auth_callback=options.auth_callback,
        )
        if options.wants_tls:
            from .tls import TLSLayer  # noqa: PLC0415 (brings in ssl)

            # Raises for a missing file or a wrong name, in the calling thread.
            TLSLayer(options, without_dot(options.tls_hostname or "localhost"))
        self._proxy: Proxy | None = None
        if isinstance(options.proxy, str):
            from .proxies import parse_proxy  # noqa: PLC0415 (few have a proxy)

            self._proxy = parse_proxy(options.proxy)
        rng = random.SystemRandom()
        self._shuffle = rng.shuffle if options.randomize else None
        self.pool = ServerPool(
            parse_servers(options.servers),
            randomize=options.randomize,
            max_reconnects=options.max_reconnects,
            ignore_discovered=options.ignore_discovered_servers,
            ignore_auth_error_abort=options.ignore_auth_error_abort,
            rng=rng,
        )
        self._backoff = Backoff(
            rng,
            options.reconnect_wait,
            options.reconnect_jitter,
            options.reconnect_jitter_tls,
            options.reconnect_delay,
        )
        self._stream: NetworkStream | None = None
        self._credentials_sent = 0
        """A hash of the last credentials, to tell whether the next ones are others."""
        self._resolving: dict[tuple[str, int], DialerCall[list[Address]]] = {}
        """Lookups that did not end in time, by host and port."""
        self._hanging: dict[str, list[_Call]] = {}
        """Calls of user code that did not return in time, by the name of the callable."""
        self._round_started = float("-inf")
        self._next_ping = 0.0
        self._pending_reconnect: PendingReconnect | None = None
        self._stopping = False
        self._reconnect_requested = False
        """True after `force_reconnect`, until the move begins."""
        self._new_servers: list[ServerAddress] | None = None
        """The servers that the user set last, until the pool takes them. Guarded by the
        lock of the session."""
        self._unhandled: list[tuple[str, object]] = []
        """Events that were read after the event that ended the connection."""

    def __repr__(self) -> str:
        alive = "running" if self._thread.is_alive() else "not running"
        return f"<IOThread {self._session.name} {alive}>"

    # For other threads ----------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        return native_ident() == self._ident

    @property
    def is_leaving(self) -> bool:
        """True after `force_reconnect`, until the server is left."""
        # Read the flag first: `_maybe_reconnect` clears it after it has set
        # `_pending_reconnect`.
        if self._reconnect_requested:
            return True
        pending = self._pending_reconnect
        return pending is not None and pending.by_user

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Close the connection and end the thread, without waiting for either."""
        self._stopping = True
        self._io_loop.interrupt()

    def reconnect(self) -> None:
        """Start the move to the next server, or end a pause between attempts.

        Does not wait.
        """
        self._reconnect_requested = True
        self._io_loop.interrupt()

    def set_servers(self, servers: list[ServerAddress]) -> None:
        """Replace the servers of the pool soon, without waiting for it."""
        with self._session.lock:
            self._new_servers = servers
        self._io_loop.interrupt()

    @property
    def servers(self) -> list[ServerAddress]:
        """The servers of the pool, or the ones that will replace them."""
        with self._session.lock:
            return self._new_servers or self.pool.servers

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the thread. Return whether it has ended."""
        try:
            self._thread.join(timeout)
        except RuntimeError:  # not started, or Ctrl-C interrupted the start
            return False
        return not self._thread.is_alive()

    def close_fd(self) -> None:
        """Close the descriptor only: in a forked child, the connection is the parent's."""
        if self._stream is not None:
            self._stream.close_fd()

    # Its life -------------------------------------------------------------------------

    def _run(self) -> None:
        # Python runs signal handlers on the main thread, so signals need not wake this
        # one. On Windows, threads have no signal mask.
        if sys.platform != "win32":
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._io_loop.bind_to_thread()
        self._ident = native_ident()
        error: Exception | None = None
        try:
            if not self._stopping:
                error = self._run_until_closed()
        except CancelledError:
            pass
        except Exception as unexpected:
            logger.exception("%s: the I/O thread failed", self._session.name)
            error = unexpected
        finally:
            self._session.on_closed(error)
            self._io_loop.finish()
            self._drop_stream()
            self._session.waker.close()
            self._ident = None

    def _run_until_closed(self) -> Exception | None:
        """Connect, serve, reconnect. Return the cause of the end, or None after `stop`."""
        opened = self._first_connect()
        if opened is None:
            if not self._options.retry_on_failed_connect:
                return self._no_servers_error("cannot connect")
            self._session.first_attempt.set(None)
        while opened := opened or self._reconnect():
            loss = self._serve(opened)
            if loss is None:
                return None
            opened = None
            self._session.on_disconnected(loss)
            pending, self._pending_reconnect = self._pending_reconnect, None
            if self._stream and pending and pending.pong and pending.pong.done:
                self._stream.drain_incoming(monotonic() + pending.seconds)
            self._drop_stream()
            self._start_round(loss, requested=pending is not None and pending.by_user)
            if not self._options.allow_reconnect:
                return loss
        return self._no_servers_error("gave up reconnecting")

    def _start_round(self, loss: Exception, *, requested: bool) -> None:
        # A server may accept every connection and drop it immediately. Without a limit on
        # rounds, jsync would reconnect as fast as it can.
        now = monotonic()
        again = (
            not requested and now - self._round_started < self._options.reconnect_wait
        )
        if not again:
            self._round_started = now
        self.pool.lost(loss, self._credentials_sent, again=again)

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _cancelled(self) -> bool:
        """Make the calls that are due, and return whether to stop connecting.

        Waits call this often, so that deadlines are kept without a connection.
        """
        self._call_due_timers(self._session.deadlines)
        return self._stopping

    def _check_cancelled(self) -> None:
        if self._cancelled():
            raise CancelledError

    def _should_stop_waiting(self) -> bool:
        return (
            self._cancelled()
            or self._reconnect_requested
            or self._new_servers is not None
        )

    # Connecting -----------------------------------------------------------------------

    def _first_connect(self) -> HandshakeResult | None:
        """Try each server once, all within `connect_timeout`."""
        deadline = monotonic() + self._options.connect_timeout
        untried = len(self.pool.servers)
        while untried and (server := self.pool.select()):
            now = monotonic()
            # Give each server its share of the time, so that one silent server does not
            # use it up.
            if opened := self._attempt(server, now + (deadline - now) / untried):
                return opened
            untried -= 1
        return None

    def _reconnect(self) -> HandshakeResult | None:
        """Try servers until one accepts. Return None when the pool is empty."""
        while self.pool.servers:
            seconds = self._choose_server()
            server = self.pool.servers[0]
            if not self._wait_backoff(server, seconds):
                continue
            deadline = monotonic() + self._options.connect_timeout
            if opened := self._attempt(server, deadline):
                return opened
        return None

    def _call(
        self, seconds: float, what: str, function: Callable[[], Result]
    ) -> Result:
        """Call user code on another thread. Raises `TimeoutError` after `seconds`.

        While calls of this name hang, each further one waits longer, so that threads do not pile
        up, but a callable that hung once is still called again.
        """
        deadline = monotonic() + seconds
        hanging = [call for call in self._hanging.get(what, ()) if not call.has_ended]
        if hanging:
            last = hanging[-1]
            until = last.started + HANGING_SECONDS * len(hanging)
            self._wait_until_ended(last, min(until, deadline))
            if until >= deadline and not last.has_ended:
                raise errors.TimeoutError(
                    f"{what} has not returned from an earlier call"
                )
        started = _Call(monotonic())

        def call() -> Result:
            try:
                return function()
            finally:
                started.has_ended = True
                self._io_loop.interrupt()

        left = deadline - monotonic()
        try:
            return call_with_timeout(
                *(left, self._session.thread_factory, what, call),
                check=self._check_cancelled,
            )
        except errors.TimeoutError:
            if not started.has_ended:  # otherwise the user code raised the timeout
                hanging.append(started)
            raise
        finally:
            self._hanging[what] = hanging

    def _wait_until_ended(self, call: _Call, until: float) -> None:
        """Wait until a call that hangs returns. Raises `CancelledError` after `stop`."""
        with contextlib.suppress(CancelledError):
            wait(
                *(None, 0, until, self._session.waker),
                lambda: self._cancelled() or call.has_ended,
            )
        self._check_cancelled()

    def _choose_server(self) -> float | None:
        """Let `reconnect_to_server` choose the next server, if the user gave it.

        Return the seconds to wait, or None if the user gave no number.
        """
        choose = self._options.reconnect_to_server
        if choose is None:
            return None
        candidates, info = self.pool.candidates(), self._session.info
        try:
            choice = self._call(
                self._options.connect_timeout,
                "reconnect_to_server",
                lambda: choose(list(candidates), info),
            )
            return self.pool.choose(candidates, choice)
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (user code)
            self._session.callbacks.report(
                as_callback_error("reconnect_to_server", error)
            )
            return None

    def _wait_backoff(self, server: ServerAddress, chosen: float | None) -> bool:
        """Wait before `server` is tried. Return False if the user set other servers."""
        seconds = self._backoff_seconds(server) if chosen is None else chosen
        if seconds is None:
            return not self._apply_new_servers()
        until = monotonic() + seconds
        try:
            wait(None, 0, until, self._session.waker, self._should_stop_waiting)
        except CancelledError:
            if self._stopping:
                raise
            self._reconnect_requested = False
        return not self._apply_new_servers()

    def _backoff_seconds(self, server: ServerAddress) -> float | None:
        """Return the seconds to wait before `server` is tried, or None for no wait."""
        pause = self.pool.retry_delay
        if pause is None:
            return None
        tls = self._wants_tls(server)
        if self._options.reconnect_delay is not None:
            try:
                return self._call(
                    self._options.connect_timeout,
                    "reconnect_delay",
                    lambda: self._backoff.delay(pause, tls=tls),
                )
            except CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 (user code)
                self._session.callbacks.report(
                    as_callback_error("reconnect_delay", error)
                )
        return self._backoff.default_delay(pause, tls=tls)

    def _apply_new_servers(self) -> bool:
        """Give the pool the servers that the user set. Return whether there were any."""
        with self._session.lock:
            servers, self._new_servers = self._new_servers, None
            if servers is None:
                return False
            self.pool.replace(servers)
            return True

    def _no_servers_error(self, what: str) -> Exception:
        failures = self.pool.errors()
        for url, failure in self.pool.auth_failures.items():
            failures[url] = AuthenticationError(
                f"{failure}: {url} refused the same credentials twice in a row, so jsync "
                "gave it up. ignore_auth_error_abort=True keeps it"
            )
        if len(failures) == 1:
            (error,) = failures.values()
            if isinstance(error, Error):
                return error
        listed = "; ".join(f"{url}: {error}" for url, error in failures.items())
        return NoServersError(f"{what}: {listed}", errors=failures)

    def _wants_tls(self, server: ServerAddress) -> bool:
        return server.tls or self._options.wants_tls

    def _attempt(
        self, server: ServerAddress, deadline: float
    ) -> HandshakeResult | None:
        """Connect to `server` and shake hands.

        After a failure, report it to the pool and return None.
        """
        try:
            self._stream = self._dial(server, deadline)
            return self._handshake(server, self._stream, deadline)
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (`_log_unexpected` logs faults of jsync)
            self._drop_stream()
            self._log_unexpected(error)
            failure = _as_error(server, error)
            self._session.last_error = failure
            self.pool.failed(server, failure, self._credentials_sent)
            logger.debug(
                "%s: %s: %s", self._session.name, printable(server.url), failure
            )
            return None

    def _dial(self, server: ServerAddress, deadline: float) -> NetworkStream:
        waker = self._session.waker
        host, port = server.host, server.port
        dialer = self._dialer_for(server)
        if dialer is None:
            return NetworkStream.connect(
                f"{host}:{port}",
                self._resolve(host, port, deadline),
                deadline,
                waker,
                self._cancelled,
                self._shuffle,
            )
        timeout = max(0.0, deadline - monotonic())
        dialing = DialerCall(
            "dialer",
            lambda: check_socket(dialer(host, port, timeout)),
            self._session.thread_factory.start,
            self._io_loop.interrupt,
        )
        try:
            late = f"the dialer took longer than {timeout:.1f} s"
            sock = self._wait_for_call(dialing, deadline, late)
        except BaseException:
            dialing.discard_result()
            raise
        return NetworkStream.from_socket(sock, waker, self._cancelled)

    def _resolve(self, host: str, port: int, deadline: float) -> list[Address]:
        """Return the addresses of a host.

        A resolver that hangs uses up the time of this server only.
        """
        if is_literal(host):
            return resolve(host, port)
        resolving = self._resolving.pop((host, port), None)
        if resolving is None or (
            resolving.done and not resolving.succeeded_since(monotonic() - LATE_SECONDS)
        ):
            try:
                resolving = DialerCall(
                    "resolver",
                    lambda: resolve(host, port),
                    self._session.thread_factory.start_native,
                    self._io_loop.interrupt,
                )
            except RuntimeError:  # no thread can be started
                return resolve(host, port)
        try:
            late = f"cannot resolve {host!r} in time"
            return self._wait_for_call(resolving, deadline, late)
        except errors.TimeoutError:
            # The next attempt takes the result of this lookup: a resolver that always takes
            # longer than an attempt still leads to the server, and threads do not pile up.
            self._resolving[host, port] = resolving
            raise

    def _wait_for_call(
        self, dialing: DialerCall[Result], deadline: float, late: str
    ) -> Result:
        """Return the result of a call on another thread.

        Raises `TimeoutError` at the deadline.
        """
        try:
            wait(
                *(None, 0, deadline, self._session.waker),
                lambda: self._cancelled() or dialing.done,
            )
            raise errors.TimeoutError(late)
        except CancelledError:
            if self._stopping:
                raise
        return dialing.result()

    def _dialer_for(self, server: ServerAddress) -> Dialer | None:
        """Return the dialer or proxy for `server`, or None for a plain connection."""
        options = self._options
        if options.dialer is not None:
            return options.dialer
        if not options.proxy:
            return None
        from .proxies import environment_proxy  # noqa: PLC0415 (few have a proxy)

        return self._proxy or environment_proxy(without_dot(server.host))

    def _log_unexpected(self, error: Exception) -> None:
        # A fault of jsync: log it, and reconnect.
        if not isinstance(error, Error | OSError | EOFError):
            logger.error(
                "%s: the I/O thread failed", self._session.name, exc_info=error
            )

    def _handshake(
        self, server: ServerAddress, stream: NetworkStream, deadline: float
    ) -> HandshakeResult:
        """Do the handshake, from the first byte to PONG."""
        options = self._options
        events: deque[tuple[str, object]] = deque()
        if server.websocket:
            events.extend(self._io_loop.feed(self._upgrade(server, stream, deadline)))
            stream.send(self._write_buffer.take_control(), deadline, framed=True)
        else:
            self._write_buffer.set_framing(framed=False)
            self._io_loop.reset()
        handshake = Handshake(
            tls=self._wants_tls(server),
            tls_first=options.tls_handshake_first,
            websocket_tls=stream.encrypted if server.websocket else None,
        )
        step = handshake.step
        pinged = inf
        while handshake.state is not HandshakeState.READY:
            match step:
                case NextStep.START_TLS:
                    name = without_dot(options.tls_hostname or server.certificate_name)
                    stream.start_tls(options, name, deadline)
                    step = handshake.secured()
                case NextStep.SEND_CONNECT:
                    assert handshake.info is not None
                    auth = self._credentials(server, handshake.info, deadline)
                    # The signature is another for each nonce.
                    lasting = {**auth, "sig": ""}
                    self._credentials_sent = hash(frozenset(lasting.items()))
                    command = connect_command(
                        auth=auth,
                        tls=handshake.encrypted,
                        name=options.name,
                        echo=not options.no_echo,
                        pedantic=options.pedantic,
                    )
                    pinged = monotonic()
                    stream.send(command + PING, deadline)
                    step = handshake.connect_sent()
                case NextStep.SEND_PONG:
                    stream.send(PONG, deadline)
                    step = handshake.step
                case _:
                    while not events:
                        data = self._receive(handshake, stream, deadline)
                        handshake.observe(data)
                        events.extend(self._io_loop.feed(data))
                        stream.send(
                            self._write_buffer.take_control(), deadline, framed=True
                        )
                    step = handshake.receive(*events.popleft())
        assert handshake.info is not None
        return HandshakeResult(
            server, stream, handshake.info, events, monotonic() - pinged
        )

    def _upgrade(
        self, server: ServerAddress, stream: NetworkStream, deadline: float
    ) -> bytes:
        """Upgrade the stream to a WebSocket. Return the bytes that follow the answer."""
        from .websocket import (  # noqa: PLC0415 (few have one)
            Deflater,
            Inflater,
            Upgrade,
        )

        options = self._options
        if self._wants_tls(server):
            name = without_dot(options.tls_hostname or server.certificate_name)
            stream.start_tls(options, name, deadline)
        upgrade = Upgrade(
            server,
            self._ws_headers(deadline),
            key=os.urandom(16),
            encrypted=stream.encrypted,
            compression=options.ws_compression,
            masking=options.ws_masking,
        )
        stream.send(upgrade.request, deadline)
        upgraded = None
        while upgraded is None:
            try:
                data = stream.receive(deadline)
            except errors.TimeoutError:
                raise errors.TimeoutError(upgrade.timed_out()) from None
            except ConnectionResetError as error:
                raise upgrade.eof() from error
            if not data:
                raise upgrade.eof()
            upgraded = upgrade.receive(data)
        self._write_buffer.set_framing(framed=True, masked=upgraded.masked)
        stream.compressed = upgraded.compressed
        stream.frame = self._write_buffer.frame
        if upgraded.compressed:
            stream.frame = Deflater(self._write_buffer.frame)
        self._io_loop.reset(
            framed=True, inflate=Inflater() if upgraded.compressed else None
        )
        return upgraded.rest

    def _ws_headers(self, deadline: float) -> list[tuple[str, str]]:
        from .websocket import check_headers  # noqa: PLC0415 (few have a WebSocket)

        headers = self._options.ws_headers
        if not callable(headers):
            return check_headers(headers or {})
        left = deadline - monotonic()
        try:
            found = self._call(left, "ws_headers", headers)
        except (
            errors.TimeoutError,
            RuntimeError,
        ) as error:  # no time left, or no more threads
            raise WebSocketError(f"no ws_headers: {error}") from error
        return check_headers(found)

    @staticmethod
    def _receive(handshake: Handshake, stream: NetworkStream, deadline: float) -> bytes:
        try:
            data = stream.receive(deadline)
        except errors.TimeoutError:
            raise handshake.timed_out() from None
        except ConnectionResetError as error:
            raise handshake.eof() from error
        if not data:
            raise handshake.eof()
        return data

    def _credentials(
        self, server: ServerAddress, info: ServerInfo, deadline: float
    ) -> dict[str, str]:
        def fields() -> dict[str, str]:
            return self._authenticator.connect_fields(info.nonce, server)

        if not self._authenticator.needs_callables:
            return fields()
        left = deadline - monotonic()
        try:
            return self._call(left, "credentials", fields)
        except (errors.TimeoutError, RuntimeError) as error:
            # No time left, or no thread could be started.
            raise AuthenticationError(f"no credentials: {error}") from error

    def _apply_max_payload(self, server: ServerAddress | None) -> None:
        info = self._session.info
        limit = info.max_payload if info.max_payload >= 0 else MAX_PAYLOAD
        limit = min(limit, MAX_PAYLOAD)
        for subject, size in self._write_buffer.set_max_payload(limit):
            self._session.report(
                MaxPayloadError(
                    f"a message on {subject!r} was buffered until the reconnect, and is "
                    f"dropped: it has {size} bytes of headers and payload, and the "
                    f"max_payload of {server.url if server else 'the server'} is {limit}",
                    subject=subject,
                )
            )

    def _discover(self) -> None:
        new = self.pool.discover(self._session.info.connect_urls)
        if new:
            urls = [server.url for server in new]
            self._session.callbacks.dispatch(
                ServersDiscovered(servers=urls), self._options.on_discovered, urls
            )

    # Serving --------------------------------------------------------------------------

    def _serve(self, opened: HandshakeResult) -> Exception | None:
        """Serve the connection. Return the cause of its loss, or None after `stop`."""
        loss = self._serve_until_lost(opened)
        self._dispatch_remaining()
        return loss

    def _serve_until_lost(self, opened: HandshakeResult) -> Exception | None:
        all_sent = True
        try:
            self._resume(opened)
            while not self._stopping:
                all_sent = self._run_iteration(opened.stream, all_sent)
            self._write_buffer.flush()
            self._send_close_frame(opened.stream)
        except Exception as error:  # noqa: BLE001 (`_log_unexpected` logs faults of jsync)
            self._log_unexpected(error)
            # After `stop`, a lost connection is no error.
            return None if self._stopping else error
        return None

    def _dispatch_remaining(self) -> None:
        """Stop reading, and handle the events that mailboxes and windows still have.

        A waiting thread reads the socket itself, also after the last turn of this thread.
        Callbacks may still be due for the messages that it has read.
        """
        left, self._unhandled = self._unhandled, []
        for name, value in left + self._io_loop.close():
            if name not in _SERVER_EVENTS:
                self._call_timer(partial(self._handle, name, value))

    def _send_close_frame(self, stream: NetworkStream) -> None:
        """Announce the end of the connection: a WebSocket sends a close frame."""
        self._write_buffer.send_close_frame()
        if not stream.direct and stream.send_pending():
            stream.encrypt(self._write_buffer.take_control(), framed=True)
            stream.send_pending()

    def _resume(self, opened: HandshakeResult) -> None:
        """Switch to the new connection, and handle the frames that came after its PONG."""
        server, stream, info = opened.server, opened.stream, opened.info
        with self._session.lock:
            # The user may have left this server for others while it was being tried.
            self._reconnect_requested &= (
                self._new_servers is not None and server not in self._new_servers
            )
        self._next_ping = monotonic() + self._options.ping_interval
        self.pool.connected(server)
        self._session.info = info
        self._session.round_trip = opened.round_trip
        self._apply_max_payload(server)
        self._session.on_connected(server, stream)
        self._discover()
        if info.ldm:
            self._on_lame_duck()
        while opened.read_ahead:
            self._handle(*opened.read_ahead.popleft())

    def _run_iteration(self, stream: NetworkStream, all_sent: bool) -> bool:
        """Read, write and handle events. Return whether all ciphertext was sent.

        This is a separate method so that its local names do not keep objects of the user
        alive during the next turn, which may last long.
        """
        events = iter(self._io_loop.run_once(self._next_wakeup(), not all_sent))
        try:
            for name, value in events:
                if not stream.direct:
                    readable = name == Event.READABLE
                    all_sent = self._compressed_io(stream, readable=readable)
                self._handle(name, value)
        except Exception:
            self._unhandled += events
            raise
        self._call_due_timers(self._session.timers)
        self._call_due_timers(self._session.deadlines)
        self._keep_alive()
        if self._new_servers is not None:
            self._apply_new_servers()
        self._maybe_reconnect()
        return all_sent

    def _call_due_timers(self, timers: Timers) -> None:
        for call in timers.due(monotonic()):
            self._call_timer(call)

    def _call_timer(self, call: Callable[[], object]) -> None:
        """Make a call that is due, and log an exception instead of raising it.

        So a faulty call affects neither the other calls nor the connection.
        """
        try:
            call()
        except Exception:
            logger.exception("%s: a timer failed", self._session.name)

    def _next_wakeup(self) -> float:
        session = self._session
        turn = min(self._next_ping, session.timers.next, session.deadlines.next)
        if self._pending_reconnect is not None:
            turn = min(turn, self._pending_reconnect.deadline, monotonic() + 0.05)
        return turn

    def _compressed_io(self, stream: NetworkStream, *, readable: bool) -> bool:
        """Read and write a compressed stream. Return whether all was sent."""
        if readable:
            data, closed = stream.decrypt()
            events = iter(self._io_loop.decrypted(data))
            try:
                stream.encrypt(self._write_buffer.take_control(), framed=True)
                stream.send_pending()
                for name, value in events:
                    self._handle(name, value)
            except Exception:
                self._unhandled += events
                raise
            if closed:
                raise EOFError("closed by the server")
        # Take bytes only after the previous ones were sent, because taken bytes are lost
        # with the connection.
        all_sent = stream.send_pending()
        if all_sent and (plain := self._write_buffer.take(PIECE_SIZE)):
            stream.encrypt(plain)
            all_sent = stream.send_pending()
        return all_sent

    def _handle(self, name: str, value: object) -> None:
        """Handle an event of the I/O loop. Raises the error that ends the connection."""
        match name, value:
            case Event.STATUS, (JetStreamMailbox() as mailbox, Msg() as msg):
                tell = mailbox.on_status  # another thread may set this to None
                if tell is not None:
                    tell(msg)
            case Event.PING, _:  # a PING that came with the end of the handshake
                self._write_buffer.command(PONG)
            case Event.PONG, _:
                self._io_loop.on_pong()
            case Event.INFO, bytes(data):
                self._on_info(parse_info(data))
            case Event.ERR, str(text):
                self._on_server_error(server_error(text))
            case Event.SLOW, Mailbox() as mailbox:
                self._on_slow_consumer(mailbox)
            case Event.FIRST, Mailbox() as mailbox:
                begin = mailbox.claim_first()
                if begin is not None:
                    begin()
            case Event.CALL, call if callable(call):
                call()
            case Event.ENDED, Mailbox() as mailbox:
                self._session.on_auto_unsubscribed(mailbox.sid)
            case Event.ORDER, JetStreamMailbox() as mailbox:
                on_order = mailbox.on_order
                if on_order is not None:
                    on_order()
            case Event.BROKEN, Exception() as error:
                raise error

    def _on_info(self, info: ServerInfo) -> None:
        was_lame = self._session.info.ldm
        self._session.info = info
        self._apply_max_payload(self._session.server)
        self._discover()
        if info.ldm and not was_lame:
            self._on_lame_duck()

    def _on_lame_duck(self) -> None:
        server = self._session.server
        self._session.callbacks.dispatch(
            LameDuck(url=server.url if server else ""), self._options.on_lame_duck
        )
        if self._options.allow_reconnect and len(self.pool.servers) > 1:
            self._pending_reconnect = PendingReconnect(
                "left the server, which is in lame duck mode",
                LAME_DUCK_SECONDS,
                monotonic() + LAME_DUCK_SECONDS,
                by_user=False,
            )

    def _maybe_reconnect(self) -> None:
        if self._reconnect_requested:
            self._pending_reconnect = PendingReconnect(
                "you asked to reconnect",
                RECONNECT_SECONDS,
                monotonic() + RECONNECT_SECONDS,
                by_user=True,
            )
            # Clear the flag last, because `is_leaving` reads it first.
            self._reconnect_requested = False
        pending = self._pending_reconnect
        if pending is None:
            return
        if pending.pong is None:
            if len(self._session.reply_mux) and monotonic() < pending.deadline:
                return
            # Once the PONG is read, everything that the server sent before it is read.
            pending.pong = Waiter(self._write_buffer)
            pending.deadline = monotonic() + pending.seconds
            self._io_loop.ping(pending.pong)
        if pending.pong.done or monotonic() >= pending.deadline:
            raise ConnectionLostError(pending.reason)

    def _on_server_error(self, error: Error) -> None:
        if isinstance(error, SubscriptionLimitError):
            self._session.on_subscription_limit()
            return
        if isinstance(error, PermissionsError):
            self._session.on_permission_error(error)
        self._session.last_error = error
        if is_fatal(error):
            if isinstance(error, ServerLimitError):
                # Messages may be lost with the connection, which no call reports.
                self._session.callbacks.report(error)
            raise error
        self._session.callbacks.report(error)

    def _on_slow_consumer(self, mailbox: Mailbox) -> None:
        interest = self._session.interests.get(mailbox.sid)
        subject = interest.subject if interest else ""
        describe = interest.describe if interest else None
        name = f"to {subject!r}" if describe is None else describe()
        what = "dropped" if mailbox.overflow is None else "refused"
        error = SlowConsumerError(
            f"the subscription {name} is at its limit with {len(mailbox)} unread "
            f"messages of {mailbox.bytes} bytes: new messages are {what}",
            subject=subject,
            dropped=mailbox.dropped,
        )
        self._session.slow_consumers += 1
        self._session.last_error = error
        self._session.callbacks.report(error)

    def _keep_alive(self) -> None:
        now = monotonic()
        if now < self._next_ping:
            return
        if self._io_loop.unanswered >= self._options.max_pings_out:
            raise StaleConnectionError(
                f"{self._io_loop.unanswered} pings without an answer"
            )
        self._next_ping = now + self._options.ping_interval
        self._io_loop.ping()


def _as_error(server: ServerAddress, error: Exception) -> Error:
    if isinstance(error, errors.TimeoutError) and not isinstance(
        error, errors.ConnectionError
    ):
        late = ConnectTimeoutError(str(error))
        late.__cause__ = error.__cause__
        return late
    if isinstance(error, Error):
        return error
    failure = errors.ConnectionError(
        f"{server.url}: {getattr(error, 'strerror', None) or error}"
    )
    failure.__cause__ = error
    return failure
