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
    r"""The root of every error that jsync raises on purpose.

    `str(error)` is safe to print and to log. Errors carry words of servers and subjects of
    strangers, so control characters in them become escapes such as `\u001b`. The attributes
    and `args` have the text as it came.
    """

    def __str__(self) -> str:
        return printable(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with `args`, which fails for the classes
        # below that take keywords; Spark and multiprocessing pickle errors.
        return _rebuild, (type(self), self.args, self.__dict__)


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed before the call was done.

    Reading is safe to try again, and so is a publish with a `msg_id`: anything else may have
    happened on the server all the same.
    """


class DrainTimeoutError(TimeoutError):
    """A drain did not finish in time; what was left has been dropped by the close.

    Look for a callback that does not return, or give `drain_timeout` more.
    """


class WriteTimeoutError(TimeoutError):
    """The write buffer stayed full for `write_timeout`: the server reads too slowly.

    The message was not sent. Publish less, or give `write_buffer_size` more.
    """


class StallTimeoutError(TimeoutError):
    """A message waited for `stall_timeout` and could not be published.

    The publisher's window stayed full, or its connection lost. The message was not sent:
    publish it again.
    """


class ConnectionError(Error, builtins.ConnectionError):
    """Something is wrong with the connection itself.

    As such, a server that refused it, cannot be reached, or hung up; the words say which.
    """


class NoServersError(ConnectionError):
    """No server could be connected to. `errors` maps each server's URL to its failure.

    Look at those: usually a server that does not run, or another port.
    """

    def __init__(
        self, message: str, *, errors: dict[str, Exception] | None = None
    ) -> None:
        super().__init__(message)
        self.errors = errors or {}


class ConnectionClosedError(ConnectionError):
    """The connection is closed. `__cause__` says why when it was not closed by you.

    Call `connect` again. A connection closes by itself if every server refused the
    credentials twice, if a `max_reconnects` that you set is used up, or without
    `allow_reconnect`.
    """


class ConnectionLostError(ConnectionError):
    """The connection broke while this call was waiting; it is made again by itself.

    What was asked for may or may not have happened on the server: ask, or do it again where
    twice does no harm.
    """


class StaleConnectionError(ConnectionLostError):
    """The server left `max_pings_out` pings unanswered, or called us stale.

    The network lost the line without a word, or the server is stuck. `ping_interval` says how
    soon that is noticed.
    """


class ReconnectBufferFullError(ConnectionError):
    """More than `reconnect_buffer_size` bytes were published while disconnected.

    The message was not kept. Publish it again once `is_connected`, or give it more.
    """


class ProtocolError(ConnectionError):
    """The peer sent something that is not the NATS protocol.

    Look at host and port: something else listens there. 4222 is usual for clients.
    """


class AuthenticationError(ConnectionError):
    """The server refused the credentials, or they have expired or been revoked.

    The server's log says more. A server that refuses the same credentials twice in a row is
    not tried again, unless you set `ignore_auth_error_abort`.
    """


class TLSError(ConnectionError):
    """The TLS handshake failed: certificate, hostname, or one side without TLS.

    `tls_ca` names an authority of your own, `tls_hostname` the name in the certificate,
    `tls_handshake_first` suits a server that begins with TLS.
    """


class ServerLimitError(ConnectionError):
    """The server ended the connection for one of its limits.

    Too many connections or subscriptions, too large a message, or this client reads too
    slowly; the words say which, and its configuration has them.
    """


class ForkedProcessError(ConnectionError):
    """The connection was made before a fork; the child has to connect anew.

    So connect in what your server runs in each worker, after the fork.
    """


class ConfigError(Error, ValueError):
    """An option, or a combination of options, that cannot be. Nothing was sent.

    The words say which, and what would do.
    """


class PipelineFileError(ConfigError):
    """A pipeline's file that cannot be run: a line of the message for each problem."""

    def __init__(
        self, message: str, *, problems: Sequence[tuple[int, str]] = ()
    ) -> None:
        super().__init__(message)
        self.problems = list(problems)
        """The line in the file, and what is wrong there."""


class PipelineError(Error):
    """A pipeline began and failed; `__cause__` is what Spark raised."""


class InvalidSubjectError(Error, ValueError):
    """The subject is empty, too long, or has an empty token, white space, or a wildcard.

    A server closes the connection for a command of more than 4096 bytes, if it is not set
    up otherwise (`max_control_line`); so a subject may have 4000, and 4040 with its reply
    or queue.
    """


class InvalidHeaderError(Error, ValueError):
    """A header name or value that the wire cannot carry.

    Names are of visible ASCII without a colon; neither may have a line break.
    """


class MaxPayloadError(Error, ValueError):
    """Headers and payload together are larger than the server's `max_payload`.

    That is `Connection.max_payload`, 1 MiB by default. Nothing was sent: make it smaller.
    """


class NoRespondersError(Error):
    """Nobody is subscribed to the subject of a request (status 503).

    Is the service running, and the subject right? Of a pull: there is no such consumer.
    """


class NoReplySubjectError(Error):
    """`respond` on a message that was not sent as a request."""


class PermissionsError(Error):
    """The account may not publish or subscribe there. `subject` says where.

    The server's configuration or the user's JWT has to allow it.
    """

    def __init__(self, message: str, *, subject: str = "", operation: str = "") -> None:
        super().__init__(message)
        self.subject = subject
        self.operation = operation
        """`publish` or `subscribe`."""


class SlowConsumerError(Error):
    """A subscription's backlog is at its limit and messages are being dropped.

    Reported once an episode: an episode ends when the backlog has halved. Read faster, share
    the work in a queue group, raise `max_pending_messages`, or store them in a stream.
    """

    def __init__(self, message: str, *, subject: str = "", dropped: int = 0) -> None:
        super().__init__(message)
        self.subject = subject
        self.dropped = dropped
        """Messages dropped by this subscription so far."""


class SubscriptionClosedError(Error):
    """The subscription was unsubscribed or drained, and its backlog is empty."""


class ConcurrentUseError(Error, RuntimeError):
    """A second thread waits on an object that only one thread may read at a time.

    Give each thread its own, or take `consume(workers=n)`.
    """


class BlockingCallError(Error, RuntimeError):
    """A blocking call where it would wait for itself; do it on another thread.

    From the connection's I/O thread, as in a finaliser, or of a handler that waits for its own
    end.
    """


class CallbackError(Error):
    """One of your callbacks raised. `__cause__` is the exception."""
