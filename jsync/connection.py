"""The public connection: publish, request, subscribe, drain, close."""

from __future__ import annotations

import functools
import os
import warnings
import weakref
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from . import errors
from ._fast import CorePublisher, Mailbox, ends_by, enter_self
from .contexts import connect_keywords
from .core.clock import deadline_after
from .core.events import ConnectionEvents
from .core.io_thread import IOThread
from .core.monkey import check_supported
from .core.options import Options
from .core.requests import request, request_many
from .core.server_address import parse_servers
from .core.session import CLOSE_SECONDS, ConnectionState, Session
from .core.subscription import Subscription, subscribe
from .errors import ConfigError, ConnectionClosedError, DrainTimeoutError
from .hints import explain_arguments
from .jetstream.context import JetStream
from .services.discovery import Services
from .services.engine import DEFAULT_PREFIX, DEFAULT_QUEUE
from .services.service import Service
from .system.system import System
from .tracing.tracing import trace
from .validation import check_seconds, format_seconds

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Unpack

    from ._fast import Msg
    from .core.auth import Secret
    from .core.options import AuthCallback, Path, ReconnectToServer
    from .core.protocol import ServerInfo
    from .core.proxies import Dialer
    from .core.websocket import HttpHeaders
    from .headers import HeadersLike
    from .services.messages import EndpointStats
    from .services.request import Request
    from .system.models import ServerFilter
    from .tracing.engine import Trace
    from .validation import Seconds

Data = bytes | bytearray | memoryview

DEFAULT_SERVER = "nats://127.0.0.1:4222"


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of a connection since `connect`, and its present state.

    `Connection.stats` returns them. Requests, pulls and acks count as messages too, and
    so do their replies.

    Example:
        ```python
        stats = nc.stats()
        print(stats.in_messages, stats.reconnects)
        ```
    """

    in_messages: int
    """The number of received messages."""
    out_messages: int
    """The number of published messages."""
    in_bytes: int
    """Bytes of header blocks and payloads received."""
    out_bytes: int
    """Bytes of header blocks and payloads published."""
    reconnects: int
    """The number of reconnects."""
    slow_consumers: int
    """The number of times that a subscription with a slow reader began to drop
    messages."""
    subscriptions: int
    """The number of subscriptions now, including pulls and replies."""
    pending_messages: int
    """The number of messages that wait for their readers, in all subscriptions."""
    pending_bytes: int
    """The bytes of these messages: subject, reply, headers and payload."""
    unsent_bytes: int
    """The bytes in the write buffer, or kept for the next connection."""


@explain_arguments
def connect(
    servers: str | Sequence[str] = DEFAULT_SERVER,
    *,
    context: str | bool | None = None,
    name: str | None = None,
    user: Secret | None = None,
    password: Secret | None = None,
    token: Secret | None = None,
    nkey_seed: str | bytes | None = None,
    creds: Path | bytes | None = None,
    auth_callback: AuthCallback | None = None,
    tls: bool | ssl.SSLContext | None = None,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    tls_hostname: str | None = None,
    tls_handshake_first: bool = False,
    proxy: str | bool | None = None,
    dialer: Dialer | None = None,
    ws_headers: HttpHeaders | Callable[[], HttpHeaders] | None = None,
    ws_compression: bool = True,
    ws_masking: bool = True,
    connect_timeout: Seconds = 5.0,
    retry_on_failed_connect: bool = False,
    allow_reconnect: bool = True,
    max_reconnects: int = -1,
    reconnect_wait: Seconds = 2.0,
    reconnect_jitter: Seconds = 0.1,
    reconnect_jitter_tls: Seconds = 1.0,
    reconnect_delay: Callable[[int], float] | None = None,
    reconnect_to_server: ReconnectToServer | None = None,
    randomize: bool = True,
    ignore_discovered_servers: bool = False,
    ignore_auth_error_abort: bool = False,
    ping_interval: Seconds = 120.0,
    max_pings_out: int = 2,
    no_echo: bool = False,
    pedantic: bool = False,
    inbox_prefix: str = "_INBOX",
    max_pending_messages: int = 512 * 1024,
    max_pending_bytes: int = 64 << 20,
    write_buffer_size: int = 8 << 20,
    write_timeout: Seconds = 10.0,
    reconnect_buffer_size: int = 8 << 20,
    drain_timeout: Seconds = 30.0,
    callback_threads: int = 64,
    on_connect: Callable[[], object] | None = None,
    on_disconnect: Callable[[Exception], object] | None = None,
    on_reconnect: Callable[[], object] | None = None,
    on_closed: Callable[[Exception | None], object] | None = None,
    on_error: Callable[[Exception], object] | None = None,
    on_lame_duck: Callable[[], object] | None = None,
    on_discovered: Callable[[list[str]], object] | None = None,
) -> Connection:
    """Connect to a NATS server, or to one of several.

    Blocks until the connection is made, at most `connect_timeout` seconds. Any thread
    may use the connection. A forked child has to make its own. Servers older than 2.2
    are rejected, because they have no headers.

    With a `context`, what you do not give comes from a file that the `nats` command
    stores (ADR-21): the servers, the credentials, TLS, `inbox_prefix`, a proxy, and the
    domain or prefix of `nc.jetstream()`. Your credentials override the
    context's.

    Choose one way to authenticate: `user` and `password`, `token`, `nkey_seed`,
    `creds`, or `auth_callback`.

    jsync uses TLS if the server requires TLS, if a URL says `tls://`, or if you give
    any `tls` option. Certificates and the host name are verified. TLS files and creds
    files are read again for every connection.

    If the connection is lost, jsync reconnects to the next server, and restores your
    subscriptions. By default it never gives up. Messages that you publish during an
    outage are buffered. No message is published twice, and each connection keeps their order. But
    messages that were sent right before the loss may reach subscribers after later
    ones, because the server may still be reading the old connection.

    Callbacks run one after the other on a thread of their own, and may call any method
    of the connection. Their exceptions are passed to `on_error`, or logged.

    Args:
        servers: URLs, `nats://[user:password@]host[:port]` or `tls://...`, as a list or
            separated by commas. For WebSocket: `ws://[user:password@]host[:port][/path]`
            or `wss://...`, for all servers or for none.
        context: The name of a context of the `nats` command, or the path of its file.
            True: the one that `NATS_CONTEXT` names, or the selected context. Default:
            none.
        name: A name for the connection, which the server shows to its operator.
        user: The user name, or a callable that returns it. This callable and those
            below run on a thread of their own, for the rest of `connect_timeout` at
            most.
        password: The password, or a callable that returns it.
        token: The token, or a callable that returns it.
        nkey_seed: The seed itself, not a file.
        creds: The path of a creds file, or its content as bytes.
        auth_callback: Gets the nonce of the server, and returns fields of CONNECT.
        tls: True for TLS with the defaults, or an `ssl.SSLContext`, which replaces the
            other TLS options.
        tls_ca: A file of authorities. Default: the system's.
        tls_cert: The client's certificate, a file.
        tls_key: The client's private key, a file.
        tls_hostname: The host name to verify. Default: the one of the URL.
        tls_handshake_first: Begin with TLS, for servers that are set up for it.
        proxy: The proxy to connect through, `http://[user:password@]host[:port]` for
            HTTP CONNECT, or `socks5://...` (`pip install jsync[socks]`). The proxy
            resolves the names of servers. True: the first of the variables
            `nats_proxy`, `all_proxy` and `https_proxy`, except for the hosts in
            `no_proxy`. Default: none.
        dialer: Called as `dialer(host, port, timeout)`. It connects within `timeout`
            seconds, and returns a connected `socket.socket` without TLS. jsync does TLS
            on it as on its own. It runs on a thread of its own.
        ws_headers: Headers of the HTTP request that begins a WebSocket, for a proxy for
            example: a mapping of names to a value or to a list of values. Or a callable
            that returns them. jsync calls it for every attempt, on a thread of its own.
        ws_compression: Offer compression to the server, for WebSocket. jsync uses it if
            the server has it turned on.
        ws_masking: Mask the bytes sent over a WebSocket. If False, jsync requests a connection
            without masks, and masks only if the server does not agree.
        connect_timeout: Seconds for the first connection, over all servers. After a
            loss: seconds for each attempt. Default: 5.
        retry_on_failed_connect: Treat a failed first attempt like a lost connection.
            The call returns the connection as soon as each server has failed once, and
            jsync keeps trying.
        allow_reconnect: Reconnect after a loss. Otherwise the connection closes.
        max_reconnects: Give up a server that fails this many times in a row. Default:
            -1, never.
        reconnect_wait: Seconds to wait after all servers have been tried. Default: 2.
        reconnect_jitter: Seconds of random wait at most, in addition. Default: 0.1.
        reconnect_jitter_tls: The same for TLS. Default: 1.
        reconnect_delay: Called with the number of the attempt. It returns the seconds
            to wait, instead of the three options above.
        reconnect_to_server: Chooses the server of each attempt to reconnect (ADR-40).
            Called as `reconnect_to_server(servers, info)` with the `PoolServer`s in the
            order of trying and the last `ServerInfo`, on a thread of its own, for
            `connect_timeout` at most. It returns one of the servers, and then the waits
            above apply, or a tuple of a server and the seconds to wait, or None for the
            first of them. Anything else, or an exception, is reported to `on_error`, and
            counts as None.
        randomize: Try the servers, and the addresses of a name, in a random order.
        ignore_discovered_servers: Do not use servers that the cluster announces.
        ignore_auth_error_abort: Keep a server that rejects the same credentials twice
            in a row. By default jsync gives it up.
        ping_interval: Seconds between pings to the server. Default: 120.
        max_pings_out: Pings without an answer after which the connection counts as
            lost. Default: 2.
        no_echo: Do not receive messages that this connection published.
        pedantic: Have the server check every subject, for debugging.
        inbox_prefix: The prefix of the subjects for replies.
        max_pending_messages: Messages that a subscription may buffer. Default: 524,288.
        max_pending_bytes: Bytes that a subscription may buffer. Default: 64 MiB.
        write_buffer_size: Bytes that may wait for the server. A publish then blocks.
            Default: 8 MiB.
        write_timeout: Seconds that a publish may block, before it raises
            `WriteTimeoutError`. Default: 10.
        reconnect_buffer_size: Bytes of messages to buffer while reconnecting. Default:
            8 MiB.
        drain_timeout: Seconds that `drain` may block. Default: 30.
        callback_threads: The most threads that call callbacks of subscriptions and
            watches, and handlers of `consume`. A thread starts when a message finds none
            free, and ends after ten idle seconds. While all are busy, messages for other
            callbacks wait, and after a second `on_error` gets a
            `CallbackPoolExhaustedError`. Default: 64.
        on_connect: Called once, when the first connection is made.
        on_disconnect: Called as `on_disconnect(error)` for each loss, and not when you
            close or drain the connection.
        on_reconnect: Called after each reconnect.
        on_closed: Called once, at the end, as `on_closed(error)`. The error is None if
            you closed the connection. Default: an error is logged.
        on_error: Called as `on_error(error)` with errors in the background: slow
            consumers, errors of the server, exceptions in callbacks. Default: the log.
        on_lame_duck: Called when the server announces that it will shut down.
        on_discovered: Called with the new URLs when the cluster announces servers.

    Returns:
        The connection, to be used in a `with` statement.

    Raises:
        AuthenticationError: The server rejects your credentials.
        TLSError: The TLS handshake failed.
        ProxyError: The proxy does not connect to the server.
        WebSocketError: The other end did not make a WebSocket.
        ProtocolError: The other end is not a NATS server.
        TimeoutError: The server did not answer in time.
        NoServersError: None of several servers can be used.
        ConnectionError: The server cannot be reached.
        ConfigError: An option has a value that is not allowed.

    Example:
        ```python
        with jsync.connect("nats://127.0.0.1:4222", name="billing") as nc:
            print(nc.rtt())
        ```
    """
    check_supported()
    options = Options(
        servers=servers,
        name=name,
        user=user,
        password=password,
        token=token,
        nkey_seed=nkey_seed,
        creds=creds,
        auth_callback=auth_callback,
        tls=tls,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_hostname=tls_hostname,
        tls_handshake_first=tls_handshake_first,
        proxy=proxy,
        dialer=dialer,
        ws_headers=ws_headers,
        ws_compression=ws_compression,
        ws_masking=ws_masking,
        connect_timeout=check_seconds(connect_timeout, "connect_timeout"),
        retry_on_failed_connect=retry_on_failed_connect,
        allow_reconnect=allow_reconnect,
        max_reconnects=max_reconnects,
        reconnect_wait=check_seconds(reconnect_wait, "reconnect_wait"),
        reconnect_jitter=check_seconds(reconnect_jitter, "reconnect_jitter"),
        reconnect_jitter_tls=check_seconds(
            reconnect_jitter_tls, "reconnect_jitter_tls"
        ),
        reconnect_delay=reconnect_delay,
        reconnect_to_server=reconnect_to_server,
        randomize=randomize,
        ignore_discovered_servers=ignore_discovered_servers,
        ignore_auth_error_abort=ignore_auth_error_abort,
        ping_interval=check_seconds(ping_interval, "ping_interval"),
        max_pings_out=max_pings_out,
        no_echo=no_echo,
        pedantic=pedantic,
        inbox_prefix=inbox_prefix,
        max_pending_messages=max_pending_messages,
        max_pending_bytes=max_pending_bytes,
        write_buffer_size=write_buffer_size,
        write_timeout=check_seconds(write_timeout, "write_timeout"),
        reconnect_buffer_size=reconnect_buffer_size,
        drain_timeout=check_seconds(drain_timeout, "drain_timeout"),
        callback_threads=callback_threads,
        on_connect=on_connect,
        on_disconnect=on_disconnect,
        on_reconnect=on_reconnect,
        on_closed=on_closed,
        on_error=on_error,
        on_lame_duck=on_lame_duck,
        on_discovered=on_discovered,
    )
    jetstream: dict[str, Any] = {}
    if context is not None and context is not False:
        options, jetstream = _in_context(options, context)
    session = Session(options, IOThread)
    try:
        session.start()
        # Wait a little longer than the I/O thread, which knows the reason.
        deadline = monotonic() + options.connect_timeout + 0.25
        if options.retry_on_failed_connect:
            session.wait_first_attempt(deadline)
        else:
            session.wait_connected(deadline)
        return Connection(session, jetstream)
    except BaseException as error:
        session.close(0)
        if type(error) is errors.TimeoutError:  # the I/O thread is late with the reason
            raise errors.ConnectTimeoutError(
                f"not connected within {format_seconds(options.connect_timeout)}"
            ) from None
        raise


_CREDENTIALS = ("user", "password", "token", "nkey_seed", "creds", "auth_callback")
_DEFAULTS = {
    "servers": DEFAULT_SERVER,
    "inbox_prefix": "_INBOX",
    "tls_handshake_first": False,
}
"""The defaults of `connect` other than None, for the options that a context can set."""


def _in_context(
    options: Options, context: str | bool
) -> tuple[Options, dict[str, Any]]:
    """Return the options with the options of a context, and its arguments of `jetstream`."""
    if not isinstance(context, str | bool):
        raise ConfigError(f"context has to be a name or True, not {context!r}")
    name = "" if context is True else str(context)
    stored, jetstream = connect_keywords(name, os.environ)
    given = {name for name in stored if getattr(options, name) != _DEFAULTS.get(name)}
    if any(getattr(options, name) is not None for name in _CREDENTIALS):
        given.update(_CREDENTIALS)
    if options.dialer is not None:
        given.add("proxy")
    if not (options.tls is None or isinstance(options.tls, bool)):
        given.update(("tls_ca", "tls_cert", "tls_key"))
    added = {name: value for name, value in stored.items() if name not in given}
    return replace(options, **added), jetstream


class Connection(CorePublisher):
    """A connection to NATS. `jsync.connect` returns it. Any thread may use it.

    At the end of a `with` block the connection drains for at most `drain_timeout`
    seconds, and closes. If the block raised an exception, the connection closes
    immediately. An open connection is closed when the interpreter exits. If Python collects it
    before, you get a ResourceWarning.

    Example:
        ```python
        with jsync.connect("nats://127.0.0.1:4222") as nc:
            nc.publish("orders.new", b'{"id": 1}')
            print(nc.state, nc.connected_url)
        ```
    """

    def __init__(
        self, session: Session, jetstream: Mapping[str, Any] | None = None
    ) -> None:
        self._session = session
        self._jetstream = dict(jetstream or {})
        self._options = session.options
        super().__init__(session.write_buffer)
        self._finalizer = weakref.finalize(self, _warn_unclosed, session)
        self._finalizer.atexit = False
        session.write_buffer.requester = functools.partial(request, session)

    # Messages -------------------------------------------------------------------------

    @explain_arguments
    def request(
        self,
        subject: str,
        data: Data = b"",
        *,
        timeout: Seconds = 5.0,
        headers: HeadersLike | None = None,
    ) -> Msg:
        """Publish a request and block until its reply has come.

        While reconnecting, the call waits for the connection first.

        Args:
            subject: The subject to publish to.
            data: The payload.
            timeout: Seconds to wait. Default: 5.
            headers: The headers of the request.

        Returns:
            The reply.

        Raises:
            TimeoutError: No reply came in time.
            NoRespondersError: The subject has no subscribers.
            ConnectionLostError: The connection broke before the reply. The request may
                have been handled.
            ConnectionClosedError: The connection is closed.
            PermissionsError: You may not publish to the subject.
            InvalidSubjectError: Nothing can be published to the subject.
            InvalidHeaderError: A header cannot be sent.
            MaxPayloadError: The message is too large for the server.

        Example:
            ```python
            with nc.service("greeter", "1.0.0") as service:

                @service.endpoint("greet")
                def greet(request: jsync.Request) -> None:
                    request.respond(b"hello " + request.data)

                print(nc.request("greet", b"ann", timeout=5).data)
            ```
        """
        return request(self._session, subject, data, timeout, headers)

    @explain_arguments
    def request_many(
        self,
        subject: str,
        data: Data = b"",
        *,
        timeout: Seconds = 5.0,
        stall: Seconds | None = None,
        max_messages: int | None = None,
        sentinel: Callable[[Msg], bool] | None = None,
        headers: HeadersLike | None = None,
    ) -> Iterator[Msg]:
        """Publish a request and iterate over its replies.

        The call sends the request, and does not wait. The iteration blocks, and ends at
        the first of the limits below. Reaching a limit raises nothing. (ADR-47)

        Args:
            subject: The subject to publish to.
            data: The payload.
            timeout: Seconds for the whole iteration. Default: 5.
            stall: Seconds to wait for each further reply. Default: no limit.
            max_messages: The number of replies to wait for. Default: no limit.
            sentinel: Called with each reply. The first reply for which it returns true
                ends the iteration, and is left out.
            headers: The headers of the request.

        Returns:
            An iterator over the replies.

        Raises:
            NoRespondersError: The subject has no subscribers.
            ConnectionLostError: The connection broke.
            ConnectionClosedError: The connection is closed.
            PermissionsError: You may not publish to the subject.
            InvalidSubjectError: Nothing can be published to the subject.
            InvalidHeaderError: A header cannot be sent.
            MaxPayloadError: The message is too large for the server.

        Example:
            ```python
            with nc.service("greeter", "1.0.0"):
                for reply in nc.request_many("$SRV.PING", stall=0.2):
                    print(reply.data)
            ```
        """
        return request_many(
            self._session,
            subject,
            data,
            timeout,
            stall,
            max_messages,
            sentinel,
            headers,
        )

    @explain_arguments
    def subscribe(
        self,
        subject: str,
        *,
        queue: str | None = None,
        callback: Callable[[Msg], object] | None = None,
        max_pending_messages: int | None = None,
        max_pending_bytes: int | None = None,
        workers: int | None = None,
    ) -> Subscription:
        """Subscribe to a subject. Does not block.

        Iterate over the subscription, call its `next`, or give a `callback`. A reader
        that falls too far behind loses new messages, and `on_error` gets one
        `SlowConsumerError` each time that this begins. If your account may not
        subscribe to the subject, reading raises `PermissionsError`.

        Args:
            subject: The subject, which may have the wildcards `*` and `>`.
            queue: The name of a queue group. Each message reaches one member of the
                group.
            callback: Called with each message, one at a time, on a thread of the
                connection's callback pool: see `callback_threads` of `connect`.
            max_pending_messages: Messages that may be buffered. Default: the value
                given to `connect`.
            max_pending_bytes: Bytes that may be buffered. Default: the value given to
                `connect`.
            workers: Threads that call this callback alone, instead of the pool. They
                start with the first message. With several, they call it at the same
                time, and the order of the messages is lost.

        Returns:
            The subscription.

        Raises:
            InvalidSubjectError: A subscription to the subject is impossible.
            ConnectionClosedError: The connection is closed.
            PermissionsError: Raised by reading, if you may not subscribe to the
                subject.

        Example:
            ```python
            with nc.subscribe("news.*") as news:
                nc.publish("news.sport", b"1:0")
                msg = news.next(timeout=5)
                print(msg.subject, msg.data)
            ```
        """
        return subscribe(
            self,
            subject,
            queue=queue,
            callback=callback,
            max_pending_messages=max_pending_messages,
            max_pending_bytes=max_pending_bytes,
            workers=workers,
        )

    def flush(self, timeout: Seconds = 10.0) -> None:
        """Block until the server has processed all messages that were published before.

        Args:
            timeout: Seconds to wait. Default: 10.

        Raises:
            TimeoutError: The server did not answer in time.
            ConnectionLostError: The connection was lost.

        Example:
            ```python
            nc.publish("orders.new", b"7")
            nc.flush()  # the server has the message
            ```
        """
        self._check_fork()
        self._session.ping(deadline_after(timeout))

    def rtt(self, timeout: Seconds = 5.0) -> float:
        """Measure the time that a ping and its answer take. Blocks for as long.

        Args:
            timeout: Seconds to wait. Default: 5.

        Returns:
            The round-trip time in seconds.

        Raises:
            TimeoutError: The server did not answer in time.
            ConnectionLostError: The connection was lost.

        Example:
            ```python
            print(f"{nc.rtt() * 1000:.1f} ms")
            ```
        """
        self._check_fork()
        deadline = deadline_after(timeout)
        begin = monotonic()
        self._session.ping(deadline)
        return monotonic() - begin

    @explain_arguments
    def jetstream(
        self,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        event_prefix: str | None = None,
        pedantic: bool = False,
        timeout: Seconds = 5.0,
    ) -> JetStream:
        """Get JetStream on this connection. Sends nothing to the server.

        If you gave a `context` to `connect`, the defaults come from that context.

        Args:
            domain: The JetStream domain to use, such as that of a leaf node. Default:
                the server's own.
            prefix: The prefix of an imported JetStream API, instead of `domain`.
                Default: `$JS.API`.
            event_prefix: The prefix of imported advisories. Default: `$JS.EVENT`.
            pedantic: Have the server reject a configuration of a stream or a consumer
                (`PedanticError`) that it would otherwise adjust. Since nats-server 2.11.
            timeout: The default timeout of its calls, in seconds. Default: 5.

        Returns:
            The JetStream context. Making one costs nothing.

        Raises:
            ConfigError: You gave both `domain` and `prefix`, or a value that is not
                allowed.

        Example:
            ```python
            js = nc.jetstream(timeout=10)
            print(js.publish("orders.new", b"7").seq)
            ```
        """
        defaults = self._jetstream
        if domain is None and prefix is None:
            domain, prefix = defaults.get("domain"), defaults.get("prefix")
        if event_prefix is None:
            event_prefix = defaults.get("event_prefix")
        return JetStream(
            self,
            domain=domain,
            prefix=prefix,
            event_prefix=event_prefix,
            pedantic=pedantic,
            timeout=timeout,
        )

    @explain_arguments
    def service(
        self,
        name: str,
        version: str,
        *,
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        queue: str | None = DEFAULT_QUEUE,
        stats_handler: Callable[[EndpointStats], object] | None = None,
        on_done: Callable[[Service], object] | None = None,
        expose_errors: bool = False,
        around: Callable[[Request], AbstractContextManager[Any]] | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> Service:
        """Start an instance of a service, which tools can find (ADR-32). Does not block.

        Add endpoints with `Service.endpoint`. PING, INFO and STATS are answered on a thread
        of their own, however busy your handlers are. Leaving the `with` block stops the
        service.

        Args:
            name: The kind of the service: letters, digits, `-` and `_`.
            version: A semantic version, such as `1.2.0`.
            description: A human-readable description.
            metadata: More about this instance, strings by strings.
            queue: The queue group of its endpoints, of which each request reaches one
                instance. None: each instance gets each request.
            stats_handler: Called for each endpoint when STATS is requested, with its
                statistics. The result, written as JSON, is the `data` of the answer. It runs
                on a thread of its own. After one second STATS is answered without it.
            on_done: Called once when the service has stopped, on a thread of the service.
            expose_errors: Send the words of your exceptions to the requester, not only the
                name of their class.
            around: Called with each request. It returns a context manager, and the handler
                is called inside of its `with` block.
            prefix: Another one than `$SRV` for PING, INFO and STATS.

        Raises:
            ConfigError: An argument cannot be.
            InvalidSubjectError: The queue group cannot be.
            ConnectionClosedError: The connection is closed.

        Example:
            ```python
            with nc.service("prices", "1.0.0", description="Prices in euros") as service:

                @service.endpoint("price")
                def price(request: jsync.Request) -> None:
                    request.respond(b"9.50")

                print(nc.request("price", b"book").data)
            ```
        """
        service = Service(
            self,
            name,
            version,
            description=description,
            metadata=metadata,
            queue=queue,
            stats_handler=stats_handler,
            on_done=on_done,
            expose_errors=expose_errors,
            around=around,
            prefix=prefix,
        )
        service._begin()
        return service

    def new_inbox(self) -> str:
        """Make a subject that no other connection uses, for replies.

        It begins with the `inbox_prefix` given to `connect`. Subscribe to it, and publish
        it as `reply`.

        Returns:
            The subject.

        Example:
            ```python
            inbox = nc.new_inbox()
            with nc.subscribe(inbox) as replies:
                nc.publish(inbox, b"pong")
                print(replies.next(timeout=5).data)
            ```
        """
        return f"{self._options.inbox_prefix}.{os.urandom(11).hex()}"

    @property
    def services(self) -> Services:
        """The services on the other end: find them, look at them, call them."""
        return Services(self)

    # Control --------------------------------------------------------------------------

    def system(
        self,
        *,
        timeout: Seconds = 5.0,
        stall: Seconds = 0.3,
        **servers: Unpack[ServerFilter],
    ) -> System:
        """Query and manage the servers themselves. Sends nothing.

        Connect as a user of the system account.

        Args:
            timeout: Seconds that each call may take. Default: 5.
            stall: Seconds to wait for the next server after the latest reply. Default:
                0.3.
            **servers: The filter of `ServerFilter`, such as `cluster="EU"`. Default: all
                servers.

        Returns:
            The servers.

        Example:
            ```python
            system = nc.system()
            try:
                for server in system.ping():
                    print(server.name)
            except jsync.errors.Error as error:
                print(error)  # needs a user of the system account
            ```
        """
        return System(self, servers, timeout, stall)

    def trace(
        self,
        subject: str,
        data: Data = b"",
        *,
        headers: HeadersLike | None = None,
        deliver: bool = False,
        timeout: Seconds = 5.0,
    ) -> Trace:
        """Send a message, and learn which way it takes (ADR-41). Blocks.

        The servers tell through which servers and accounts the message goes, and which
        streams and clients it reaches. By default no subscriber gets the message. Another
        account has to allow traces, with `allow_trace` at its export or import. Needs
        nats-server 2.11.

        Args:
            subject: The subject to publish to.
            data: The payload.
            headers: Your own headers.
            deliver: Deliver the message, and store it in streams. Default: it is only
                traced.
            timeout: Seconds to wait for all servers. Default: 5.

        Returns:
            The way of the message. `complete` says whether all servers have told.

        Raises:
            UnsupportedFeatureError: The server is too old. Nothing is sent.
            TimeoutError: No server told in time. You may not be allowed to publish.

        Example:
            ```python
            for hop in nc.trace("orders.new", b"7").hops:
                print(hop.server.name, hop.events)
            ```
        """
        return trace(self, subject, data, headers, deliver=deliver, timeout=timeout)

    def events(self) -> ConnectionEvents:
        """Watch this connection: each loss, reconnect and background error, in order.

        The events begin with this call. Any number of threads may watch.

        Returns:
            An iterator that blocks until the next event, and ends after `Closed`. Use it
            in a `with` statement, or call its `close` when you stop before.

        Raises:
            ConnectionClosedError: The connection is closed.

        Example:
            ```python
            with nc.events() as events:
                nc.force_reconnect()
                print(events.next(timeout=5))
            ```
        """
        self._check_fork()
        session = self._session
        events = ConnectionEvents(self, self._check_fork)
        with session.lock:
            session.check_open()
            session.callbacks.watch(events)
        return events

    def force_reconnect(self) -> None:
        """Leave the server, and connect to the next one. Does not block.

        Use it to spread connections over a cluster that has grown, or after a change of
        the network. jsync first gives the server at most a second to answer requests,
        and a second to read all that you published. If there is only one server, jsync
        connects to it again. While reconnecting, the call ends the wait before the next
        attempt.

        `flush` afterwards blocks until the new connection is made.

        Raises:
            ConfigError: You gave `allow_reconnect=False` to `connect`.
            ConnectionClosedError: The connection is closed.

        Example:
            ```python
            nc.force_reconnect()
            print(nc.rtt())  # waits for the new connection
            ```
        """
        self._check_fork()
        if not self._options.allow_reconnect:
            raise ConfigError(
                "the connection may not reconnect: pass allow_reconnect=True to connect"
            )
        self._session.check_open()
        self._session.io.reconnect()

    def set_servers(self, servers: str | Sequence[str]) -> None:
        """Replace the servers that jsync reconnects to, the discovered ones too.

        Does not block. The connection stays where it is, even if its server is not among
        them. Call `force_reconnect` to leave it. While reconnecting, jsync tries the new
        servers immediately. Servers that a cluster announces later are added, unless you
        gave `ignore_discovered_servers=True` to `connect`.

        Args:
            servers: URLs, as for `connect`.

        Raises:
            ConfigError: A URL is wrong, or there is none.
            ConnectionClosedError: The connection is closed.
        """
        self._check_fork()
        parsed = parse_servers(servers)
        self._session.check_open()
        self._session.io.set_servers(parsed)

    # The end --------------------------------------------------------------------------

    def drain(self, timeout: Seconds | None = None) -> None:
        """Unsubscribe, handle all messages that have arrived, and close.

        Blocks until that is done. Callbacks and the handlers of `consume` handle all
        messages that have arrived. An iterator can still read the messages that are
        buffered. A callback that calls `drain` is not waited for. Messages that wait for
        a handler of `consume` that calls `drain`, or that is not done in time, go back to
        the server. The connection is closed at the end in every case.

        Args:
            timeout: Seconds to wait. Default: the `drain_timeout` given to `connect`.

        Raises:
            DrainTimeoutError: The drain did not end in time.
            ConnectionLostError: The connection was lost. The server may not
                have read all that you published.

        Example:
            ```python
            nc = jsync.connect("nats://127.0.0.1:4222")
            nc.publish("orders.new", b"7")
            nc.drain(timeout=10)  # sends everything, lets callbacks finish, then closes
            ```
        """
        self._check_fork()
        timeout = self._options.drain_timeout if timeout is None else timeout
        timeout = check_seconds(timeout, "timeout")
        deadline = deadline_after(timeout)
        session = self._session
        if session.state is ConnectionState.CLOSED:
            return
        try:
            session.drain(deadline, timeout)
        except DrainTimeoutError:
            raise
        except errors.TimeoutError as error:
            raise DrainTimeoutError(
                f"not drained within {format_seconds(timeout)}"
            ) from error
        except ConnectionClosedError:
            if not session.drained:  # otherwise another thread has drained it
                raise
        finally:
            session.close(max(0.0, min(CLOSE_SECONDS, deadline - monotonic())))

    def close(self) -> None:
        """Close the connection.

        Every call that waits on it raises `ConnectionClosedError`.

        Blocks for at most a second, until the server has read the messages that you
        published. If the server does not confirm it in that time, `on_error` gets a
        `ConnectionClosedError`, because the last messages may be lost. You may call `close` from any thread, from a callback, twice, and in
        a forked child, where it leaves the parent's connection alone.

        Example:
            ```python
            def on_shutdown() -> None:
                nc.close()  # ends every call that waits, on any thread
            ```
        """
        self._session.close()
        self._finalizer.detach()

    __enter__ = enter_self

    @ends_by(lambda self: self._session.close(0))
    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if error is None and not self._session.forked and not self.is_closed:
                self.drain()
        finally:
            self.close()

    # State ----------------------------------------------------------------------------

    @property
    def state(self) -> ConnectionState:
        """The state: `connecting`, `connected`, `reconnecting` or `closed`."""
        return self._session.state

    @property
    def name(self) -> str:
        """The `name` given to `connect`. Default: a number within this process."""
        return self._options.name or self._session.name

    @property
    def is_connected(self) -> bool:
        """True while the connection is up. A call may still find the connection lost.

        False in a forked child, to which the connection does not belong.
        """
        session = self._session
        return session.state is ConnectionState.CONNECTED and not session.forked

    @property
    def is_closed(self) -> bool:
        """True once the connection is closed, by you or because no server is left."""
        return self._session.state is ConnectionState.CLOSED

    @property
    def server_info(self) -> ServerInfo:
        """The latest INFO of the server."""
        return self._session.info

    @property
    def connected_url(self) -> str | None:
        """The URL of the server, without secrets. None while not connected."""
        server = self._session.server
        return server.url if server is not None and self.is_connected else None

    @property
    def servers(self) -> list[str]:
        """The URLs of the servers to connect to, including discovered ones."""
        return [server.url for server in self._session.io.servers]

    @property
    def max_payload(self) -> int:
        """The most bytes that headers and payload of one message may have together."""
        return self._write_buffer.max_payload

    @property
    def client_id(self) -> int:
        """The number that the server gave to this connection."""
        return self._session.info.client_id

    @property
    def client_ip(self) -> str:
        """The address of this client, as the server sees it."""
        return self._session.info.client_ip

    @property
    def last_error(self) -> Exception | None:
        """The latest error of this connection, whether or not it was reported."""
        return self._session.last_error

    def stats(self) -> Statistics:
        """Get the counters of this connection. Sends nothing to the server.

        Every connection keeps these counters. A call costs a few microseconds, and a
        little more for each subscription. You may call `stats` from any thread, and
        after the end. `jsync.metrics` prints the counters as Prometheus text.

        Returns:
            The counters since `connect`, as of now.

        Example:
            ```python
            nc.publish("orders.new", b"7")
            print(nc.stats().out_messages)
            ```
        """
        session = self._session
        in_messages, in_bytes = session.io_loop.counters
        out_messages, out_bytes = self._write_buffer.counters
        interests = list(session.interests.values())
        mailboxes = [i.sink for i in interests if isinstance(i.sink, Mailbox)]
        return Statistics(
            in_messages=in_messages,
            out_messages=out_messages,
            in_bytes=in_bytes,
            out_bytes=out_bytes,
            reconnects=session.reconnects,
            slow_consumers=session.slow_consumers,
            subscriptions=len(interests),
            pending_messages=sum(len(mailbox) for mailbox in mailboxes),
            pending_bytes=sum(mailbox.bytes for mailbox in mailboxes),
            unsent_bytes=self._write_buffer.pending,
        )

    def _check_fork(self) -> None:
        # Check for a fork before taking any lock: a lock that another thread held at the
        # fork stays locked.
        self._write_buffer.check_process()

    def __repr__(self) -> str:
        url = self.connected_url
        return f"<Connection {self.state.value}{f' to {url}' if url else ''}>"

    def __reduce__(self) -> str:
        raise TypeError(
            "a Connection cannot be pickled: call jsync.connect() in the other process"
        )


def _warn_unclosed(session: Session) -> None:
    """Warn about a connection that was collected without a close, and end it."""
    if session.state is not ConnectionState.CLOSED and not session.forked:
        warnings.warn(
            f"{session!r} was never closed: use `with jsync.connect(...)`",
            ResourceWarning,
            stacklevel=2,
        )
        session.io.stop()
