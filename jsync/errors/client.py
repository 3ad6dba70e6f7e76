"""Errors of the connection and of core NATS, and the root of them all."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from ..terminal import printable

if TYPE_CHECKING:
    from collections.abc import Sequence


def _rebuild(
    kind: type[BaseException], args: tuple[object, ...], state: dict[str, Any]
) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class Error(Exception):
    r"""The base of every error that jsync raises on purpose.

    `str(error)` is safe to print and to log. Errors quote untrusted text of servers and subjects,
    so control characters become escapes such as `\u001b`. The attributes and `args` keep the
    original text.
    """

    def __str__(self) -> str:
        return printable(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with `args`, which fails for the classes below
        # with keyword arguments. Spark and multiprocessing pickle errors.
        return _rebuild, (type(self), self.args, self.__dict__)


class TimeoutError(Error, builtins.TimeoutError):
    """The deadline of a call passed.

    You can safely repeat a read, and a publish with a `msg_id`. The server may have done any
    other operation.
    """


class DrainTimeoutError(TimeoutError):
    """A drain did not finish in time. The close dropped the messages that were left.

    The messages of `consume` went back to the server. Look for a callback that does not return, or
    raise `drain_timeout`.
    """


class WriteTimeoutError(TimeoutError):
    """The write buffer stayed full for `write_timeout`, so the message was not sent.

    The server reads too slowly. Publish less, or raise `write_buffer_size`.
    """


class StallTimeoutError(TimeoutError):
    """A message waited for `stall_timeout` and was not published.

    The window of the publisher stayed full, or its connection was lost. The message was not
    sent, so you can publish it again.
    """


class ConnectionError(Error, builtins.ConnectionError):
    """The connection failed.

    Subclasses name the reason. Without a subclass, a server refused the connection, hung up,
    or cannot be reached. The message says which.
    """


class NoServersError(ConnectionError):
    """No server accepted the connection. `errors` maps the URL of each server to its error.

    Look at `errors`. Often the server does not run, or uses another port.
    """

    def __init__(
        self, message: str, *, errors: dict[str, Exception] | None = None
    ) -> None:
        super().__init__(message)
        self.errors = errors or {}


class ConnectTimeoutError(ConnectionError, TimeoutError):
    """The server did not take the connection within `connect_timeout`.

    It is also a `TimeoutError`. Check host and port: a firewall may drop what you send, or
    something else listens there. A busy or distant server may need a longer `connect_timeout`.
    """


class ConnectionClosedError(ConnectionError):
    """The connection is closed. If you did not close it, `__cause__` has the reason.

    Call `connect` again. A connection closes by itself if every server refused the credentials
    twice, if a `max_reconnects` that you set is used up, or without `allow_reconnect`.
    """


class ConnectionLostError(ConnectionError):
    """The connection was lost while this call waited. jsync reconnects by itself.

    The server may or may not have done the operation. Check, or repeat the operation if it is
    safe to do twice.
    """


class StaleConnectionError(ConnectionLostError):
    """The server left `max_pings_out` pings unanswered, or reported a stale connection.

    The network dropped the connection in silence, or the server is stuck. `ping_interval`
    decides how soon jsync notices.
    """


class ReconnectBufferFullError(ConnectionError):
    """You published more than `reconnect_buffer_size` bytes while disconnected.

    The message was dropped. Publish it again once `is_connected` is true, or raise
    `reconnect_buffer_size`.
    """


class ProtocolError(ConnectionError):
    """The peer does not speak the NATS protocol.

    Check host and port. Something else may listen there. Clients usually use port 4222.
    """


class AuthenticationError(ConnectionError):
    """The server refused the credentials, or they have expired or been revoked.

    The log of the server says more. jsync does not retry a server that refuses the same
    credentials twice in a row, unless you set `ignore_auth_error_abort`.
    """


class TLSError(ConnectionError):
    """The TLS handshake failed: the certificate, the host name, or one side without TLS.

    Set `tls_ca` for an authority of your own, `tls_hostname` for the name in the certificate,
    or `tls_handshake_first` for a server that begins with TLS.
    """


class ProxyError(ConnectionError):
    """The proxy cannot be reached, or does not connect to the server.

    The message says which. Check the `proxy` given to `connect`, its user and password, and
    whether it may connect to the port of the server.
    """


class WebSocketError(ConnectionError):
    """The server, or a proxy before it, did not make a WebSocket. `status` is its HTTP status.

    The message says which answer came instead. Check scheme, port and path of the URL, and
    the `ws_headers` given to `connect`. Without an HTTP answer `status` is None.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ServerLimitError(ConnectionError):
    """The server closed the connection because of a limit.

    The connection count, the size of a message or the speed of your reader exceeds the
    configuration of the server. The message says which. `on_error` gets it, too, if the
    connection was open, because messages may be lost.
    """


class ForkedProcessError(ConnectionError):
    """The connection was made before a fork. Connect again in the child.

    A web server has a hook that runs in each worker after the fork.
    """


class ConfigError(Error, ValueError):
    """An option, or a combination of options, is not valid. Nothing was sent.

    The message names the option and a valid value.
    """


class PipelineFileError(ConfigError):
    """The file of a pipeline is not valid. The message has one line for each problem."""

    def __init__(
        self, message: str, *, problems: Sequence[tuple[int, str]] = ()
    ) -> None:
        super().__init__(message)
        self.problems = list(problems)
        """The line in the file, and what is wrong there."""


class PipelineError(Error):
    """A pipeline started and failed. `__cause__` is the error of Spark."""


class InvalidSubjectError(Error, ValueError):
    """The subject is empty, too long, or has an empty token, white space, or a wildcard.

    A subject may have 4000 bytes, and 4040 together with its reply subject or queue. Servers
    close the connection for a command of more than 4096 bytes (`max_control_line`).
    """


class InvalidHeaderError(Error, ValueError):
    """A header has a name or a value that NATS cannot carry.

    Names consist of visible ASCII characters without a colon. Names and values have no line
    breaks.
    """


class UnreadableHeadersError(Error):
    """The header block of a message is not one of NATS, or only a part of it is.

    `on_error` gets it when you first read the headers of the message. You receive the message
    with the headers that are readable. `Msg.headers_error` has the reason, and
    `Msg.raw_headers` has the bytes. Another client published them.
    """

    def __init__(self, message: str, *, subject: str = "") -> None:
        super().__init__(message)
        self.subject = subject
        """The subject of the message."""


class MaxPayloadError(Error, ValueError):
    """Headers and payload together exceed the `max_payload` of the server. Nothing was sent.

    `Connection.max_payload` has the limit, 1 MiB by default. Send smaller messages. `on_error`
    gets it for a message that was published while disconnected and is too large for the
    server after the reconnect. A server does not tell connected clients that its limit was
    raised: call `force_reconnect`. It closes the connection for the first message above a
    lowered limit: calls raise `ConnectionLostError`, and `on_error` gets a `ServerLimitError`.
    """

    def __init__(self, message: str, *, subject: str = "") -> None:
        super().__init__(message)
        self.subject = subject
        """The subject of a message that was buffered. Empty if a call raised the error."""


class NoRespondersError(Error):
    """The subject of a request has no subscribers (status 503).

    Check the subject, and whether the service runs. For a pull, the consumer does not exist.
    """


class NoReplySubjectError(Error):
    """You called `respond` on a message that is not a request."""


class PermissionsError(Error):
    """The account may not publish or subscribe to `subject`.

    Allow it in the configuration of the server, or in the JWT of the user.
    """

    def __init__(self, message: str, *, subject: str = "", operation: str = "") -> None:
        super().__init__(message)
        self.subject = subject
        self.operation = operation
        """`publish` or `subscribe`."""


class SubscriptionLimitError(PermissionsError):
    """The server refused a subscription, because the connection has its maximum number.

    Close other subscriptions, use another connection, or raise `max_subscriptions` of the
    server or of the account. Pulls, watches and replies to requests need one each.
    """


class SlowConsumerError(Error):
    """The backlog of a subscription reached its limit, and messages are dropped.

    jsync reports this once, and again after the backlog has halved. Read faster, share the
    work in a queue group, raise `max_pending_messages`, or store the messages in a stream.
    """

    def __init__(self, message: str, *, subject: str = "", dropped: int = 0) -> None:
        super().__init__(message)
        self.subject = subject
        self.dropped = dropped
        """Messages dropped by this subscription so far."""


class CallbackPoolExhaustedError(Error):
    """Messages have waited for a second, because all threads for callbacks are busy.

    jsync reports this once, and again after no message has waited for a while. Raise
    `callback_threads` of `jsync.connect`, or give slow callbacks threads by `workers`.
    """

    def __init__(self, message: str, *, threads: int = 0, waiting: int = 0) -> None:
        super().__init__(message)
        self.threads = threads
        """The threads of the pool, which are all busy."""
        self.waiting = waiting
        """Subscriptions, watches and consumers whose messages wait."""


class SubscriptionClosedError(Error):
    """The subscription has ended, and its backlog is empty."""


class ConcurrentUseError(Error, RuntimeError):
    """A second thread reads an object that only one thread may read at a time.

    Give each thread an object of its own, or use `consume(workers=n)`.
    """


class BlockingCallError(Error, RuntimeError):
    """A blocking call would wait for itself. Make the call on another thread.

    The call came from the I/O thread of the connection (in a finalizer), or from a handler
    that waits for its own end.
    """


class WorkerError(Error):
    """The processes of a worker cannot run. Their logs have the reason.

    Five processes in a row ended before they handled messages, or one cannot be set up.
    """


class UnsupportedPlatformError(Error):
    """The call does not work on this operating system.

    The message names an alternative.
    """


class InvalidPayloadError(Error, ValueError):
    """The payload of a message is not of the type that its handler takes.

    A worker with a `dead_letter` stores the message there immediately, because a retry would
    find the same bytes. A service answers the request with error 400.
    """


class CallbackError(Error):
    """One of your callbacks raised an exception. `__cause__` has it."""
