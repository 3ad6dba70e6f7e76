"""Errors that jsync finds by itself, or is told of by the connection."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def _rebuild(
    kind: type[BaseException], args: tuple[object, ...], state: dict[str, Any]
) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class Error(Exception):
    """The root of every error that jsync raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with `args`, which fails for the classes
        # below that take keywords; Spark and multiprocessing pickle errors.
        return _rebuild, (type(self), self.args, self.__dict__)


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed before the call was done."""


class DrainTimeoutError(TimeoutError):
    """A drain did not finish in time; what was left has been dropped by the close."""


class WriteTimeoutError(TimeoutError):
    """The write buffer stayed full for `write_timeout`: the server reads too slowly."""


class StallTimeoutError(TimeoutError):
    """A message waited for `stall_timeout` and could not be published.

    The publisher's window stayed full, or its connection lost. The message was not sent.
    """


class ConnectionError(Error, builtins.ConnectionError):
    """Something is wrong with the connection itself."""


class NoServersError(ConnectionError):
    """No server could be connected to. `errors` maps each server's URL to its failure."""

    def __init__(
        self, message: str, *, errors: dict[str, Exception] | None = None
    ) -> None:
        super().__init__(message)
        self.errors = errors or {}


class ConnectionClosedError(ConnectionError):
    """The connection is closed. `__cause__` says why when it was not closed by you."""


class ConnectionLostError(ConnectionError):
    """The connection broke while this call was waiting.

    What was asked for may or may not have happened on the server.
    """


class StaleConnectionError(ConnectionLostError):
    """The server left `max_pings_out` pings unanswered, or called us stale."""


class ReconnectBufferFullError(ConnectionError):
    """More than `reconnect_buffer_size` bytes were published while disconnected."""


class ProtocolError(ConnectionError):
    """The peer sent something that is not the NATS protocol."""


class AuthenticationError(ConnectionError):
    """The server refused the credentials, or they have expired or been revoked."""


class TLSError(ConnectionError):
    """The TLS handshake failed: certificate, hostname, or one side without TLS."""


class ServerLimitError(ConnectionError):
    """The server ended the connection for one of its limits."""


class ForkedProcessError(ConnectionError):
    """The connection was made before a fork; the child has to connect anew."""


class ConfigError(Error, ValueError):
    """An option, or a combination of options, that cannot be."""


class InvalidSubjectError(Error, ValueError):
    """The subject is empty, too long, or has an empty token, white space, or a wildcard.

    A server closes the connection for a command of more than 4096 bytes, if it is not set
    up otherwise (`max_control_line`); so a subject may have 4000, and 4040 with its reply
    or queue.
    """


class InvalidHeaderError(Error, ValueError):
    """A header name or value that the wire cannot carry."""


class MaxPayloadError(Error, ValueError):
    """Headers and payload together are larger than the server's `max_payload`."""


class NoRespondersError(Error):
    """Nobody is subscribed to the subject of a request (status 503)."""


class NoReplySubjectError(Error):
    """`respond` on a message that was not sent as a request."""


class PermissionsError(Error):
    """The account may not publish or subscribe there. `subject` says where."""

    def __init__(self, message: str, *, subject: str = "", operation: str = "") -> None:
        super().__init__(message)
        self.subject = subject
        self.operation = operation
        """`publish` or `subscribe`."""


class SlowConsumerError(Error):
    """A subscription's backlog is at its limit and messages are being dropped.

    Reported once an episode: an episode ends when the backlog has halved.
    """

    def __init__(self, message: str, *, subject: str = "", dropped: int = 0) -> None:
        super().__init__(message)
        self.subject = subject
        self.dropped = dropped
        """Messages dropped by this subscription so far."""


class SubscriptionClosedError(Error):
    """The subscription was unsubscribed or drained, and its backlog is empty."""


class ConcurrentUseError(Error, RuntimeError):
    """A second thread waits on an object that only one thread may read at a time."""


class BlockingCallError(Error, RuntimeError):
    """A blocking call on the connection's I/O thread would wait for itself."""


class CallbackError(Error):
    """One of your callbacks raised. `__cause__` is the exception."""


class JetStreamError(Error):
    """Something is wrong in JetStream rather than in the connection."""


class UnsupportedFeatureError(JetStreamError):
    """The server is older than what was asked of it. Use a newer one, or do without."""

    def __init__(
        self,
        message: str,
        *,
        feature: str = "",
        since: str = "",
        server_version: str = "",
    ) -> None:
        super().__init__(message)
        self.feature = feature
        """What it lacks: a field such as `allow_atomic`, or a request."""
        self.since = since
        """The first nats-server that has it, `2.12` for instance."""
        self.server_version = server_version
        """The version of the server that was asked, as far as it is known."""


class AtomicBatchUnsupportedError(UnsupportedFeatureError):
    """The server of the stream is older than nats-server 2.12: it takes no atomic batches.

    Such a server stores each message that it gets at once.
    """

    def __init__(
        self, message: str, *, stored: Any = None, server_version: str = ""
    ) -> None:
        super().__init__(
            message,
            feature="allow_atomic",
            since="2.12",
            server_version=server_version,
        )
        self.stored = stored
        """The `PubAck` of the message that it has stored, the first of the batch unless
        that had one alone; None: nothing was sent."""


class AtomicBatchError(JetStreamError):
    """An atomic batch was not committed, or not for certain. `__cause__` says why."""


class AtomicBatchClosedError(AtomicBatchError):
    """The batch has ended: no more can be added, and it cannot be committed again."""


class AtomicBatchLostError(AtomicBatchError, ConnectionLostError):
    """The connection broke before the commit was sent: nothing of the batch is stored."""


class UnclearCommitError(AtomicBatchError):
    """The commit of a batch was sent, and no answer came: all of it is stored, or nothing.

    `resolve` asks the stream. Or add each message with a `msg_id` and send the whole batch
    again: `AtomicPublishDuplicateMessageError` then says that it was stored before.
    """

    def __init__(
        self,
        message: str,
        *,
        batch: str = "",
        resolver: Callable[[float | None], Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.batch = batch
        """The id of the batch."""
        self._resolver = resolver

    def resolve(self, timeout: float | None = None) -> Any:
        """Find out what became of the batch: `AtomicBatch.resolve` says how.

        Raises `ConfigError` when this error has come from another process.
        """
        if self._resolver is None:
            raise ConfigError("this error is a copy without its batch: it cannot ask")
        return self._resolver(timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        # A batch is of one connection, of one process.
        return _rebuild, (type(self), self.args, {**vars(self), "_resolver": None})


class Lost(NamedTuple):
    """Messages that were not stored, as far as is known, and why."""

    first: int
    last: int
    error: Exception | None
    """None: they did not arrive at the stream, or behind one that was refused."""


class IngestError(JetStreamError):
    """A fast ingest ended before its end. `__cause__` says why.

    Sequences count the messages added to it, from 1.
    """

    def __init__(
        self,
        message: str,
        *,
        acked: int = 0,
        lost: tuple[Lost, ...] = (),
        unconfirmed: tuple[int, int] | None = None,
        pub_ack: object = None,
    ) -> None:
        super().__init__(message)
        self.acked = acked
        """All up to this one is stored; with `gaps="ok"` all but what is `lost`."""
        self.lost = lost
        """What is not stored: first, last, and the server's error if it has refused it."""
        self.unconfirmed = unconfirmed
        """The first and the last of what was sent and may be stored or not."""
        self.pub_ack = pub_ack
        """The `PubAck` that ended the batch, if one came."""


class IngestTimeoutError(IngestError, TimeoutError):
    """A fast ingest was not answered in time."""


class IngestConnectionError(IngestError, ConnectionError):
    """The connection of a fast ingest was lost for too long, or closed."""


class IngestUnsupportedError(UnsupportedFeatureError):
    """The server of the stream is older than nats-server 2.14: it has no fast ingest.

    It has stored the first message as any other.
    """

    def __init__(self, message: str, *, stored: Any = None) -> None:
        super().__init__(message, feature="allow_batched", since="2.14")
        self.stored = stored
        """The `PubAck` of that message."""


class IngestClosedError(JetStreamError):
    """The ingest has been ended or abandoned, or what is asked for comes with its end."""


class MessagesLostError(JetStreamError):
    """Messages of a fast ingest with `gaps="ok"` were not stored; it goes on."""

    def __init__(self, message: str, *, first: int = 0, last: int = 0) -> None:
        super().__init__(message)
        self.first = first
        self.last = last


class NoStreamResponseError(JetStreamError):
    """No stream took the message: no stream listens on its subject, or JetStream is off."""


class FailedMessage(NamedTuple):
    """A message of a publisher that was not acknowledged, and why."""

    subject: str
    data: bytes
    headers: Mapping[str, str] | None
    error: Exception

    def __repr__(self) -> str:
        # What it carried may be large, and is nothing for a log.
        size = len(self.data)
        return f"<FailedMessage {self.subject!r}, {size} bytes: {self.error!r}>"


class PublisherError(JetStreamError):
    """Messages of a publisher were not acknowledged.

    `failures` are those whose errors nobody had seen yet, the first thousand of `count`,
    in the order in which they failed.
    """

    def __init__(
        self,
        message: str,
        *,
        failures: Sequence[FailedMessage] = (),
        count: int = 0,
    ) -> None:
        super().__init__(message)
        self.failures = list(failures)
        self.count = count


class PublisherClosedError(JetStreamError):
    """The publisher was closed; the ack of what was on its way has not been waited for."""


class NotJetStreamMessageError(JetStreamError):
    """The message did not come from a consumer, so it has neither ack nor metadata."""


class NoCachedInfoError(JetStreamError):
    """The consumer was bound without asking the server: call `info()` first."""


class AmbiguousSubjectError(JetStreamError):
    """More than one stream matches the subject. `streams` are their names."""

    def __init__(self, message: str, *, streams: list[str] | None = None) -> None:
        super().__init__(message)
        self.streams = streams or []


class IncompleteListError(JetStreamError):
    """Some did not answer, being offline or without a leader; all others were given."""

    def __init__(self, message: str, *, missing: list[str] | None = None) -> None:
        super().__init__(message)
        self.missing = missing or []
        """Their names."""


class DirectGetError(JetStreamError):
    """A direct get was refused or broken off. `status` is its number (ADR-31)."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class DirectGetNotAllowedError(DirectGetError):
    """Nobody answers direct gets: the stream has to be set to `allow_direct`."""


class TooManyResultsError(DirectGetError):
    """More than 1024 subjects match: ask for fewer, or read with a consumer."""


class SubscribeError(JetStreamError):
    """The consumer that is there does not fit the subscription: nothing was changed."""


class DuplicateSubscriptionError(SubscribeError):
    """Somebody is subscribed to the consumer already. Join as a queue group, or wait."""


class ConsumerKindError(SubscribeError):
    """The consumer pushes and was to be pulled from, or the reverse."""


class PullRequiredError(ConsumerKindError):
    """It is a pull consumer: use `pull_subscribe`, or its `messages` and `fetch`."""


class PushRequiredError(ConsumerKindError):
    """It is a push consumer: use `subscribe`."""


class DeliverGroupError(SubscribeError):
    """The consumer's deliver group and the subscription's queue do not fit together."""


class QueueRequiredError(DeliverGroupError):
    """The consumer is for a queue group: subscribe with `queue=`."""


class OtherDeliverGroupError(DeliverGroupError):
    """The consumer is for another queue group."""


class NoDeliverGroupError(DeliverGroupError):
    """The consumer was created without a deliver group, so that no queue can share it."""


class DeliverGroupFeatureError(DeliverGroupError):
    """The consumer has flow control or heartbeats, of which a group sees a part each."""


class FilterMismatchError(SubscribeError):
    """The consumer is for other subjects than the subscription."""


class ConfigMismatchError(SubscribeError):
    """The consumer is set up otherwise than it was asked for; it was not changed.

    `differences` has the fields: `{name: (asked for, as it is)}`.
    """

    def __init__(
        self,
        message: str,
        *,
        differences: Mapping[str, tuple[Any, Any]] | None = None,
    ) -> None:
        super().__init__(message)
        self.differences = dict(differences or {})


class ConsumerDeletedError(JetStreamError):
    """The consumer was deleted, or became a push consumer, while it was being read."""


class MissedHeartbeatError(JetStreamError):
    """No heartbeat of a consumer for twice its interval; consuming goes on by itself.

    Of a push consumer for three times its interval, unless set otherwise (ADR-15).
    """


class OrderedConsumerResetError(JetStreamError):
    """An ordered consumer lost its consumer and goes on with a new one; nothing is lost.

    A warning to `on_error`, whose `__cause__` is what happened. Raised when no new one
    could be made in `max_reset_attempts` attempts.
    """


class PullError(JetStreamError):
    """The server refused a pull, or ended it early. `status` is its number."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class MessageGapError(JetStreamError):
    """Messages that a push consumer has sent have not come (ADR-15).

    A warning to `on_error`. With acks they are sent again after the consumer's `ack_wait`.
    """

    def __init__(
        self,
        message: str,
        *,
        first: int = 0,
        last: int = 0,
        after_stream_sequence: int = 0,
        before_stream_sequence: int = 0,
    ) -> None:
        super().__init__(message)
        self.first = first
        """The first consumer sequence that is missing."""
        self.last = last
        """The last one."""
        self.after_stream_sequence = after_stream_sequence
        """The stream sequence of what came before them."""
        self.before_stream_sequence = before_stream_sequence
        """The one of what came after them; they are between these two, if not redelivered."""


class PushError(JetStreamError):
    """The server has sent an error to a push subscription. `status` is its number."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class DataLossError(JetStreamError):
    """What was still to be read of a stream is not in it any more. `stream` is its name.

    By a limit, a purge, a delete of the first messages, or since another stream has that
    name now. Raised by `jsync.spark`, unless its option failOnDataLoss is false.
    """

    def __init__(self, message: str, *, stream: str = "") -> None:
        super().__init__(message)
        self.stream = stream


class CheckpointError(JetStreamError):
    """A checkpoint of Spark that this query cannot go on from."""
