"""The connection as the user has it: publish, request, subscribe, drain, close."""

from __future__ import annotations

import functools
import sys
import warnings
import weakref
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from ._fast import Mailbox, PlainPublisher
from .core.deadline import deadline_after
from .core.io_thread import IOThread
from .core.options import Options
from .core.requests import request, request_many
from .core.session import CLOSE_SECONDS, ConnectionState, Session
from .core.subscription import Subscription, subscribe
from .errors import ConfigError, DrainTimeoutError, TimeoutError as LateError
from .jetstream.context import JetStream

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from ._fast import Msg
    from .core.auth import Secret
    from .core.options import AuthCallback, Path
    from .core.protocol import ServerInfo
    from .headers import HeadersLike

Data = bytes | bytearray | memoryview


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection has done since `connect`, and how it is: see `Connection.stats`.

    Requests, pulls and acks are messages too, and so are their replies.
    """

    in_messages: int
    """Messages received."""
    out_messages: int
    """Messages published."""
    in_bytes: int
    """Bytes of header blocks and payloads received."""
    out_bytes: int
    """Bytes of header blocks and payloads published."""
    reconnects: int
    """How often the connection was lost and made again."""
    slow_consumers: int
    """How often a subscription began to drop messages, its reader being too slow."""
    subscriptions: int
    """Subscriptions there are now, those of pulls and replies included."""
    pending_messages: int
    """Messages that have arrived and wait for their reader, of all subscriptions."""
    pending_bytes: int
    """Their size: subject, reply, headers and payload."""
    unsent_bytes: int
    """Bytes in the write buffer, or kept for the next connection."""


def connect(
    servers: str | Sequence[str] = "nats://127.0.0.1:4222",
    *,
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
    connect_timeout: float = 5.0,
    retry_on_failed_connect: bool = False,
    allow_reconnect: bool = True,
    max_reconnects: int = -1,
    reconnect_wait: float = 2.0,
    reconnect_jitter: float = 0.1,
    reconnect_jitter_tls: float = 1.0,
    reconnect_delay: Callable[[int], float] | None = None,
    randomize: bool = True,
    ignore_discovered_servers: bool = False,
    ignore_auth_error_abort: bool = False,
    ping_interval: float = 120.0,
    max_pings_out: int = 2,
    no_echo: bool = False,
    pedantic: bool = False,
    inbox_prefix: str = "_INBOX",
    max_pending_messages: int = 512 * 1024,
    max_pending_bytes: int = 64 << 20,
    write_buffer_size: int = 8 << 20,
    write_timeout: float = 10.0,
    reconnect_buffer_size: int = 8 << 20,
    drain_timeout: float = 30.0,
    on_connect: Callable[[], object] | None = None,
    on_disconnect: Callable[[Exception], object] | None = None,
    on_reconnect: Callable[[], object] | None = None,
    on_closed: Callable[[Exception | None], object] | None = None,
    on_error: Callable[[Exception], object] | None = None,
    on_lame_duck: Callable[[], object] | None = None,
    on_discovered: Callable[[list[str]], object] | None = None,
) -> Connection:
    """Connect to a NATS server, or to one of several, and block until that is done.

    `servers` are URLs, `nats://[user:password@]host[:port]` or `tls://...`, in a list or
    separated by commas. All durations are seconds, all sizes bytes.

    Who you are, one of: `user` and `password`; `token`; `nkey_seed`, the seed itself;
    `creds`, the path of a creds file, read anew for every connection, or its content as
    bytes; `auth_callback`, which is given the server's nonce and returns CONNECT fields.
    `user`, `password` and `token` may be callables that fetch the secret. Callables run on
    a thread of their own and have what is left of `connect_timeout`.

    TLS is used when the server asks for it, when a URL says `tls://`, or when any `tls`
    option is given. Certificates are verified against the system's authorities, or
    `tls_ca`, and the host name, or `tls_hostname`. `tls_cert` and `tls_key` are the
    client's own; files are read anew for every connection. An `ssl.SSLContext` as `tls`
    takes their place. `tls_handshake_first` is for servers that begin with TLS.

    `connect_timeout` bounds the whole attempt, over all the servers, and after a loss
    each single one. With `retry_on_failed_connect` a first attempt that fails is treated
    like a loss, and the connection is returned while it still tries.

    When the connection is lost it is made again, to the next server of the list or one
    that the cluster has announced: at once to another server, and after `reconnect_wait`
    and a random part of `reconnect_jitter` (`reconnect_jitter_tls` with TLS) once all
    have been tried; `reconnect_delay(attempt)` may choose the seconds instead. By default
    the client never gives up a server that cannot be reached. `max_reconnects` is a bound:
    a server that fails so many times in a row is given up. So is a server that refuses the
    same credentials twice in a row, unless you set `ignore_auth_error_abort`. When no
    server is left the connection closes. While it reconnects publishes are kept, up to
    `reconnect_buffer_size`; subscriptions are made again. No message is published twice,
    and each connection keeps their order; but what was sent right before a loss may reach
    subscribers after what was sent next, since the server may still be reading the old line.

    A server that leaves `max_pings_out` pings unanswered, one each `ping_interval`, is
    lost. A publish blocks while `write_buffer_size` bytes wait for the server, and
    raises `WriteTimeoutError` after `write_timeout`. `max_pending_messages` and
    `max_pending_bytes` are the defaults for how far a subscription's reader may lag.

    The callbacks run one after the other on a thread of their own and may call anything
    of the connection; what they raise goes to `on_error`, or to the log. `on_error` gets
    what no call can raise: slow consumers, errors of the server, exceptions in callbacks.
    `on_disconnect(error)` is called for each loss, and not when you close or drain the
    connection. `on_closed(error)` is called once, at the end: with None if you closed it.

    Raises `AuthenticationError`, `TLSError`, `ProtocolError` (it is not a NATS server),
    `TimeoutError`, another `ConnectionError`, or with several servers `NoServersError`;
    `ConfigError` for options that cannot be. Any thread may use the connection; a forked
    child has to make its own. A server that has no headers, older than 2.2, is refused.
    """
    _refuse_gevent()
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
        connect_timeout=connect_timeout,
        retry_on_failed_connect=retry_on_failed_connect,
        allow_reconnect=allow_reconnect,
        max_reconnects=max_reconnects,
        reconnect_wait=reconnect_wait,
        reconnect_jitter=reconnect_jitter,
        reconnect_jitter_tls=reconnect_jitter_tls,
        reconnect_delay=reconnect_delay,
        randomize=randomize,
        ignore_discovered_servers=ignore_discovered_servers,
        ignore_auth_error_abort=ignore_auth_error_abort,
        ping_interval=ping_interval,
        max_pings_out=max_pings_out,
        no_echo=no_echo,
        pedantic=pedantic,
        inbox_prefix=inbox_prefix,
        max_pending_messages=max_pending_messages,
        max_pending_bytes=max_pending_bytes,
        write_buffer_size=write_buffer_size,
        write_timeout=write_timeout,
        reconnect_buffer_size=reconnect_buffer_size,
        drain_timeout=drain_timeout,
        on_connect=on_connect,
        on_disconnect=on_disconnect,
        on_reconnect=on_reconnect,
        on_closed=on_closed,
        on_error=on_error,
        on_lame_duck=on_lame_duck,
        on_discovered=on_discovered,
    )
    session = Session(options, IOThread)
    try:
        session.start()
        try:
            # A little later than the thread gives up, which knows better why.
            session.await_connected(monotonic() + options.connect_timeout + 0.25)
        except LateError:
            if not retry_on_failed_connect:
                raise
        return Connection(session)
    except BaseException:
        session.close(0)
        raise


def _refuse_gevent() -> None:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and any(
        monkey.is_module_patched(module) for module in ("socket", "thread", "select")
    ):
        raise ConfigError(
            "gevent has patched sockets or threads in this process: jsync waits on real "
            "threads, which would stop every greenlet. Use it in a process of its own, or "
            "patch with socket=False, thread=False, select=False"
        )


class Connection(PlainPublisher):
    """A connection to NATS, made by `jsync.connect`. Any thread may use it.

    As a context manager it drains at the end, for at most `drain_timeout`, and closes;
    when the body raised it closes at once. One left open is closed at interpreter exit,
    and with a ResourceWarning when it is collected.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._options = session.options
        super().__init__(session.outbox)
        self._finalizer = weakref.finalize(self, _forgotten, session)
        self._finalizer.atexit = False
        session.outbox.requester = functools.partial(request, session)

    @property
    def session(self) -> Session:
        """The inner half, for what is built on the connection."""
        return self._session

    # Messages -------------------------------------------------------------------------

    def request(
        self,
        subject: str,
        data: Data = b"",
        *,
        timeout: float = 5.0,
        headers: HeadersLike | None = None,
    ) -> Msg:
        """Publish a request and block until its reply has come, at most `timeout` seconds.

        While reconnecting it waits for the connection first. Raises `TimeoutError`,
        `NoRespondersError` when nobody is subscribed, `ConnectionLostError` when the
        connection breaks before the reply (the request may have been handled),
        `PermissionsError`, and what `publish` raises.
        """
        return request(self._session, subject, data, timeout, headers)

    def request_many(
        self,
        subject: str,
        data: Data = b"",
        *,
        timeout: float = 5.0,
        stall: float | None = None,
        max_messages: int | None = None,
        sentinel: Callable[[Msg], bool] | None = None,
        headers: HeadersLike | None = None,
    ) -> Iterator[Msg]:
        """Publish a request and iterate over its replies (ADR-47).

        The request is sent at the call. The iteration ends after `timeout` seconds in
        all, `stall` seconds without a reply, `max_messages` replies, or with the reply
        for which `sentinel` is true, which is not given. Raises like `request`, but for
        the time that is up, which just ends it.
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

    def subscribe(
        self,
        subject: str,
        *,
        queue: str | None = None,
        callback: Callable[[Msg], object] | None = None,
        max_pending_messages: int | None = None,
        max_pending_bytes: int | None = None,
    ) -> Subscription:
        """Subscribe to `subject`, which may have wildcards. Does not block.

        Iterate over the subscription, call its `next`, or give a `callback`, which is
        called with each message, one at a time, on a thread of its own. Of a `queue`
        group each message reaches one member. A reader that lags more than
        `max_pending_messages` or `max_pending_bytes` loses what comes then, and
        `on_error` gets a `SlowConsumerError`, once an episode.

        Raises `InvalidSubjectError` or `ConnectionClosedError`. When the account may not
        subscribe there, the reader gets a `PermissionsError`.
        """
        return subscribe(
            self,
            subject,
            queue=queue,
            callback=callback,
            max_pending_messages=max_pending_messages,
            max_pending_bytes=max_pending_bytes,
        )

    def flush(self, timeout: float = 10.0) -> None:
        """Block until the server has processed all that was published before.

        At most `timeout` seconds, then `TimeoutError`. Raises `ConnectionLostError` when
        the connection breaks meanwhile.
        """
        self._check_fork()
        self._session.ping(deadline_after(timeout))

    def rtt(self, timeout: float = 5.0) -> float:
        """Seconds that a ping and its answer take; blocks for as long.

        Raises `TimeoutError` after `timeout` seconds, and `ConnectionLostError`.
        """
        self._check_fork()
        deadline = deadline_after(timeout)
        begin = monotonic()
        self._session.ping(deadline)
        return monotonic() - begin

    def jetstream(
        self,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: float = 5.0,
    ) -> JetStream:
        """JetStream on this connection; asks nothing of the server.

        `domain` or `prefix` choose another API than `$JS.API`, for a leaf node's or an
        imported one; `timeout` in seconds is the default of its calls.
        """
        return JetStream(self, domain=domain, prefix=prefix, timeout=timeout)

    # The end --------------------------------------------------------------------------

    def drain(self, timeout: float | None = None) -> None:
        """Unsubscribe, handle what has come, send what was published, and close.

        Blocks for at most `timeout` seconds, by default the `drain_timeout` of
        `connect`; then closes all the same and raises `DrainTimeoutError`, or
        `ConnectionLostError` when the connection is lost meanwhile, as the server may not
        have read all that was published. Callbacks get to handle all that has arrived;
        what an iterator has not read stays readable. From a callback it does not wait for
        that same callback.
        """
        self._check_fork()
        seconds = self._options.drain_timeout if timeout is None else timeout
        deadline = deadline_after(seconds)
        session = self._session
        if session.state is ConnectionState.CLOSED:
            return
        try:
            session.drain(deadline, seconds)
        except DrainTimeoutError:
            raise
        except LateError as error:
            raise DrainTimeoutError(f"not drained within {seconds} s") from error
        finally:
            session.close(max(0.0, min(CLOSE_SECONDS, deadline - monotonic())))

    def close(self) -> None:
        """Close the connection. Every call that waits on it gets ConnectionClosedError.

        Waits at most a second for the server to have read what was published. May be
        called from any thread, from a callback, twice, and in a forked child, where it
        leaves the parent's connection alone.
        """
        self._session.close()
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None and not self._session.forked and not self.is_closed:
                self.drain()
        finally:
            self.close()

    # What it is -----------------------------------------------------------------------

    @property
    def state(self) -> ConnectionState:
        """`connecting`, `connected`, `reconnecting` or `closed`."""
        return self._session.state

    @property
    def name(self) -> str:
        """The `name` given to `connect`; without one, a number of this process's."""
        return self._options.name or self._session.name

    @property
    def is_connected(self) -> bool:
        """Whether it is connected now; a call may find it lost all the same."""
        return self._session.state is ConnectionState.CONNECTED

    @property
    def is_closed(self) -> bool:
        """Whether it is closed for good, by you or since no server is left."""
        return self._session.state is ConnectionState.CLOSED

    @property
    def server_info(self) -> ServerInfo:
        """What the server last said of itself."""
        return self._session.info

    @property
    def connected_url(self) -> str | None:
        """The URL of the server, without secrets; None while not connected."""
        server = self._session.server
        return server.url if server is not None and self.is_connected else None

    @property
    def servers(self) -> list[str]:
        """The URLs that may be connected to, discovered ones included."""
        return [server.url for server in self._session.io.pool.servers]

    @property
    def max_payload(self) -> int:
        """Bytes that headers and payload of one message may have."""
        return self._outbox.max_payload

    @property
    def client_id(self) -> int:
        """The server's number of this connection."""
        return self._session.info.client_id

    @property
    def client_ip(self) -> str:
        """Our address as the server sees it."""
        return self._session.info.client_ip

    @property
    def last_error(self) -> Exception | None:
        """The last thing that went wrong, whether or not it was reported."""
        return self._session.last_error

    def stats(self) -> Statistics:
        """Counts since `connect`, taken now; asks nothing of the server.

        They are kept anyway: being read costs a few microseconds, and some more for each
        subscription. From any thread, and after the end too. `jsync.metrics` has them as
        Prometheus text.
        """
        session = self._session
        in_messages, in_bytes = session.line.counters
        out_messages, out_bytes = self._outbox.counters
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
            unsent_bytes=self._outbox.pending,
        )

    def _check_fork(self) -> None:
        # Before any lock: one that another thread held at the fork stays locked.
        self._outbox.check_process()

    def __repr__(self) -> str:
        url = self.connected_url
        return f"<Connection {self.state.value}{f' to {url}' if url else ''}>"

    def __reduce__(self) -> str:
        raise TypeError(
            "a Connection cannot be pickled: call jsync.connect() in the other process"
        )


def _forgotten(session: Session) -> None:
    """A connection was collected without a close."""
    if session.state is not ConnectionState.CLOSED and not session.forked:
        warnings.warn(
            f"{session!r} was never closed: use `with jsync.connect(...)`",
            ResourceWarning,
            stacklevel=2,
        )
        session.io.stop()
