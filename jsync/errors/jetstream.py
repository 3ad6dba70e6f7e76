"""Errors of JetStream that jsync finds by itself: replies of its API are in `api`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .client import (
    ConfigError,
    ConnectionError,
    ConnectionLostError,
    Error,
    TimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class JetStreamError(Error):
    """An error of JetStream, not of the connection."""


class UnsupportedFeatureError(JetStreamError):
    """The server is too old for this feature. Use the server version in `since`."""

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
        """The missing feature: a field such as `allow_atomic`, or a request."""
        self.since = since
        """The first nats-server that has it, such as `2.12`."""
        self.server_version = server_version
        """The version of the server, as far as it is known."""


class AtomicBatchUnsupportedError(UnsupportedFeatureError):
    """The server is older than nats-server 2.12, so it has no atomic batches.

    Such a server would store each message immediately.
    """

    def __init__(
        self, message: str, *, stored: Any = None, server_version: str = ""
    ) -> None:
        super().__init__(
            message, feature="allow_atomic", since="2.12", server_version=server_version
        )
        self.stored = stored
        """The `PubAck` of the stored message, the first or only one of the batch. None if
        nothing was sent."""


class AtomicBatchError(JetStreamError):
    """An atomic batch was not committed, or may not be. `__cause__` has the reason."""


class AtomicBatchClosedError(AtomicBatchError):
    """The batch has ended. You cannot add to it or commit it again. Begin a new one."""


class AtomicBatchLostError(AtomicBatchError, ConnectionLostError):
    """The connection was lost before the commit was sent, so nothing is stored.

    Send the messages again, in a new batch.
    """


class AmbiguousCommitError(AtomicBatchError):
    """The answer to a commit did not arrive. Either all messages are stored, or none.

    `resolve` searches the stream. You can also give each message a `msg_id` and send the whole
    batch again. `AtomicPublishDuplicateMessageError` then tells you that the first batch was
    stored.
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
            raise ConfigError(
                "this error was copied or pickled, and has no batch to ask about: call "
                "resolve() on the original"
            )
        return self._resolver(timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        # Leave the batch out: it belongs to one connection in one process.
        rebuild, (kind, args, state) = super().__reduce__()
        return rebuild, (kind, args, {**state, "_resolver": None})


class LostRange(NamedTuple):
    """Messages that were not stored, as far as is known, and why."""

    first: int
    last: int
    error: Exception | None
    """None: they did not reach the stream, or they followed a rejected message."""


class UnconfirmedRange(NamedTuple):
    """Messages that may or may not be stored."""

    first: int
    last: int
    error: Exception | None
    """Why it is unknown. None: one leader did not get them, but another may have."""


class IngestError(JetStreamError):
    """A fast ingest ended early. `__cause__` has the reason.

    Sequences count the added messages from 1. Each message is in `lost`, or in
    `unconfirmed_ranges`, or it is stored.
    """

    def __init__(
        self,
        message: str,
        *,
        acked: int = 0,
        lost: tuple[LostRange, ...] = (),
        unconfirmed: tuple[UnconfirmedRange, ...] = (),
        pub_ack: object = None,
    ) -> None:
        super().__init__(message)
        self.acked = acked
        """All messages up to this one are stored.

        With `gaps="ok"` all but those in `lost` and in `unconfirmed_ranges`.
        """
        self.lost = lost
        """Messages that are surely not stored: first, last, and the server's error.

        You can send them again.
        """
        self.unconfirmed_ranges = unconfirmed
        """Messages that may be stored or not: first, last, and the reason.

        If you send them again, some may be stored twice, unless each has a `msg_id`.
        """
        self.unconfirmed = (
            (unconfirmed[0].first, unconfirmed[-1].last) if unconfirmed else None
        )
        """The first and the last message of `unconfirmed_ranges`, or None."""
        self.pub_ack = pub_ack
        """The `PubAck` that ended the batch, if one came."""


class IngestTimeoutError(IngestError, TimeoutError):
    """The server did not answer a fast ingest in time.

    `unconfirmed` has the messages that may be stored.
    """


class IngestConnectionError(IngestError, ConnectionError):
    """The connection of a fast ingest was closed, or lost for too long.

    `unconfirmed` has the messages that may be stored.
    """


class IngestUnsupportedError(UnsupportedFeatureError):
    """The server is older than nats-server 2.14, so it has no fast ingest.

    The server has stored the first message as a normal message.
    """

    def __init__(self, message: str, *, stored: Any = None) -> None:
        super().__init__(message, feature="allow_batched", since="2.14")
        self.stored = stored
        """The `PubAck` of that message."""


class IngestClosedError(JetStreamError):
    """The ingest has ended, or you read a result that it has only at its end."""


class MessagesUnconfirmedError(JetStreamError):
    """Messages of a fast ingest with `gaps="ok"` may be stored. The ingest continues.

    The messages are `first` to `last`, counted from 1 in the order you added them.
    """

    def __init__(self, message: str, *, first: int = 0, last: int = 0) -> None:
        super().__init__(message)
        self.first = first
        self.last = last


class MessagesLostError(JetStreamError):
    """Messages of a fast ingest with `gaps="ok"` were not stored. The ingest continues.

    The messages are `first` to `last`, counted from 1 in the order you added them.
    """

    def __init__(self, message: str, *, first: int = 0, last: int = 0) -> None:
        super().__init__(message)
        self.first = first
        self.last = last


class BackupError(JetStreamError):
    """The backup of a stream broke off, or is damaged.

    Begin again. An interrupted backup leaves no files. An interrupted restore leaves no
    stream, unless your process was killed or the server was away: then the error of the next
    restore says which stream to delete.
    """


class CountersNotEnabledError(JetStreamError):
    """The stream is not for counters.

    Create a stream with `allow_msg_counter=True` and `allow_direct=True`. Streams cannot
    get `allow_msg_counter` later.
    """


class CounterNotFoundError(JetStreamError):
    """Nothing was added to this counter yet.

    A counter begins at 0 with the first `Counters.add`.
    """


class SchedulesNotEnabledError(JetStreamError):
    """The stream has no `allow_msg_schedules`.

    Turn it on with `update_stream`.
    """


class ScheduleNotFoundError(JetStreamError):
    """The subject has no schedule.

    It was cancelled, or it published once and is gone.
    """


class NoStreamResponseError(JetStreamError):
    """No stream took the message, so it is not stored.

    No stream has the subject, or JetStream is off. Check the subject, the account and the
    domain.
    """


class FailedMessage(NamedTuple):
    """A message of a publisher that was not acknowledged, and why."""

    subject: str
    data: bytes
    headers: Mapping[str, str] | None
    error: Exception

    def __repr__(self) -> str:
        # Show only the size: the payload may be large, and does not belong in a log.
        size = len(self.data)
        return f"<FailedMessage {self.subject!r}, {size} bytes: {self.error!r}>"


class PublisherError(JetStreamError):
    """Messages of a publisher were not acknowledged.

    `failures` has the messages whose errors have not been read, in the order of their failures:
    the first thousand of `count`.
    """

    def __init__(
        self, message: str, *, failures: Sequence[FailedMessage] = (), count: int = 0
    ) -> None:
        super().__init__(message)
        self.failures = list(failures)
        self.count = count


class PublisherClosedError(JetStreamError):
    """The publisher was closed before the ack arrived, or before you published."""


class NotJetStreamMessageError(JetStreamError):
    """The message did not come from a consumer, so it has no ack and no metadata."""


class NoCachedInfoError(JetStreamError):
    """The consumer was bound without a request. Call `info()` first."""


class AmbiguousSubjectError(JetStreamError):
    """Several streams match the subject. `streams` has their names. Give `stream`."""

    def __init__(self, message: str, *, streams: list[str] | None = None) -> None:
        super().__init__(message)
        self.streams = streams or []


class IncompleteListError(JetStreamError):
    """Some streams or consumers are missing from a list.

    They are offline or have no leader. You got all others. Read the ones in `missing` again
    later.
    """

    def __init__(self, message: str, *, missing: list[str] | None = None) -> None:
        super().__init__(message)
        self.missing = missing or []
        """Their names."""


class DirectGetError(JetStreamError):
    """A direct get was rejected or interrupted. `status` is its number (ADR-31)."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class DirectGetNotAllowedError(DirectGetError):
    """No server answers direct gets. Set `allow_direct` on the stream."""


class TooManyResultsError(DirectGetError):
    """More than 1024 subjects match. Request fewer, or read with a consumer."""


class SubscribeError(JetStreamError):
    """The existing consumer does not fit the subscription. Nothing was changed."""


class DuplicateSubscriptionError(SubscribeError):
    """Another subscription uses the consumer. Join as a queue group, or wait."""


class ConsumerKindError(SubscribeError):
    """You requested a pull consumer and the existing one pushes, or the reverse."""


class PullRequiredError(ConsumerKindError):
    """The consumer is a pull consumer. Use `pull_subscribe`, or its `messages` and `fetch`."""


class PushRequiredError(ConsumerKindError):
    """The consumer is a push consumer. Use `subscribe`."""


class DeliverGroupError(SubscribeError):
    """The deliver group of the consumer differs from the queue of the subscription."""


class QueueRequiredError(DeliverGroupError):
    """The consumer is for a queue group. Subscribe with `queue=`."""


class OtherDeliverGroupError(DeliverGroupError):
    """The consumer is for another queue group. Give its name as `queue=`."""


class NoDeliverGroupError(DeliverGroupError):
    """The consumer has no deliver group, so a queue cannot share it.

    Subscribe without `queue`, or create another consumer.
    """


class DeliverGroupFeatureError(DeliverGroupError):
    """A consumer for a queue group cannot have flow control or heartbeats.

    Each member would see only some of them. Create the consumer without them.
    """


class FilterMismatchError(SubscribeError):
    """The consumer filters other subjects than you subscribe to.

    Subscribe to its filter, or leave the subject out.
    """


class ConfigMismatchError(SubscribeError):
    """The existing consumer has another configuration. It was not changed.

    `differences` has the fields: `{name: (requested, existing)}`. Request the existing values,
    or call `update_consumer`.
    """

    def __init__(
        self, message: str, *, differences: Mapping[str, tuple[Any, Any]] | None = None
    ) -> None:
        super().__init__(message)
        self.differences = dict(differences or {})


class ConsumerDeletedError(JetStreamError):
    """The consumer was deleted while you read it, or it is a push consumer.

    The server deletes an ephemeral consumer that is unused for `inactive_threshold`.
    """


class MissedHeartbeatError(JetStreamError):
    """A consumer sent no heartbeat for twice its interval. Consuming continues by itself.

    A push consumer may miss three intervals, unless you set another number (ADR-15). Often the
    server is busy or gone, or the consumer was deleted.
    """


class OrderedConsumerResetError(JetStreamError):
    """An ordered consumer was replaced by a new one. Nothing is lost.

    This is a warning to `on_error`, and `__cause__` has the reason. It is raised if jsync
    could not create a new consumer in `max_reset_attempts` attempts.
    """


class PullError(JetStreamError):
    """The server rejected a pull, or ended it early. `status` is its number.

    The message is from the server: a limit of the consumer such as `max_waiting`, a message
    larger than `max_bytes`, or a change of leader. `messages` and `consume` retry.
    """

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class MessageGapError(JetStreamError):
    """Messages of a push consumer did not arrive (ADR-15).

    This is a warning to `on_error`. With acks, the server sends them again after `ack_wait`.
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
        """The stream sequence of the message before them."""
        self.before_stream_sequence = before_stream_sequence
        """The stream sequence of the message after them. Unless they are redeliveries, the
        missing messages are between these two."""


class PushError(JetStreamError):
    """The server sent an error to a push subscription. `status` is its number.

    The message is from the server. The subscription continues.
    """

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class RetriesExhaustedError(JetStreamError):
    """A message used up its attempts, and was terminated. Consuming continues.

    This is a warning to `on_error` of `consume(retry=...)` and of workers. With a
    `dead_letter` subject, the message was stored there first. `__cause__` has the last
    exception of the handler.
    """

    def __init__(
        self,
        message: str,
        *,
        stream: str = "",
        consumer: str = "",
        sequence: int = 0,
        attempts: int = 0,
        dead_letter: str | None = None,
    ) -> None:
        super().__init__(message)
        self.stream = stream
        self.consumer = consumer
        self.sequence = sequence
        """Its sequence in the stream."""
        self.attempts = attempts
        self.dead_letter = dead_letter
        """The subject of its dead letter, or None if there is none."""


class DeadLetterError(JetStreamError):
    """A dead letter was not stored, so the server delivers the message again.

    This is a warning to `on_error`. `__cause__` has the reason. Often no stream takes the
    subject of the dead letters, or the message is too large to carry more headers. jsync
    reports a dead letter that is too large once, and tries again until you raise the limit.
    """

    def __init__(
        self,
        message: str,
        *,
        stream: str = "",
        consumer: str = "",
        sequence: int = 0,
        dead_letter: str = "",
    ) -> None:
        super().__init__(message)
        self.stream = stream
        self.consumer = consumer
        self.sequence = sequence
        """The sequence of the message in the stream."""
        self.dead_letter = dead_letter
        """The subject that its dead letter was for."""


class HandlerTimeoutError(JetStreamError, TimeoutError):
    """A handler of a worker took longer than its `time_limit`. Its message is retried.

    This is a warning to `on_error`. Python cannot end a thread, so the handler keeps its
    thread until it returns, and its result is ignored. Give your handler deadlines of its own.
    """


class DataLossError(JetStreamError):
    """A stream lost messages that Spark had still to read, or had written before.

    `stream` is its name. A source lost messages by a limit, a purge or a delete, or because
    the stream was recreated or restored from older data. `failOnDataLoss=false` accepts that.
    The stream of an exactly-once sink was recreated or restored from older data since the last
    batch, so rows may be missing. The message names the keys to delete before you continue.
    `failOnDataLoss` does not apply there.
    """

    def __init__(self, message: str, *, stream: str = "") -> None:
        super().__init__(message)
        self.stream = stream


class CheckpointError(JetStreamError):
    """This query cannot continue from the checkpoint of Spark."""


class ReplayWindowExceededError(CheckpointError):
    """Spark repeats an interrupted batch so late that the stream may have forgotten its ids.

    The rows could be stored twice. The message tells you how to continue. A longer
    `duplicate_window` of the stream leaves more time.
    """
