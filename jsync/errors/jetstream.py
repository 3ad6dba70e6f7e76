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
    """The batch has ended: no more can be added, and it cannot be committed again.

    Begin another one.
    """


class AtomicBatchLostError(AtomicBatchError, ConnectionLostError):
    """The connection broke before the commit was sent: nothing of the batch is stored.

    Send it again, in a new batch.
    """


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
        rebuild, (kind, args, state) = super().__reduce__()
        return rebuild, (kind, args, {**state, "_resolver": None})


class Lost(NamedTuple):
    """Messages that were not stored, as far as is known, and why."""

    first: int
    last: int
    error: Exception | None
    """None: they did not reach the stream, or they followed a rejected message."""


class Unconfirmed(NamedTuple):
    """Messages that may or may not be stored."""

    first: int
    last: int
    error: Exception | None
    """Why it is unknown. None: one leader did not get them, but another may have."""


class IngestError(JetStreamError):
    """A fast ingest ended before its end. `__cause__` says why.

    Sequences count the messages added to it, from 1. Each message is in `lost`, or in
    `unconfirmed_ranges`, or else it is stored.
    """

    def __init__(
        self,
        message: str,
        *,
        acked: int = 0,
        lost: tuple[Lost, ...] = (),
        unconfirmed: tuple[Unconfirmed, ...] = (),
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
        """The first and the last message of `unconfirmed_ranges`; None: there is none."""
        self.pub_ack = pub_ack
        """The `PubAck` that ended the batch, if one came."""


class IngestTimeoutError(IngestError, TimeoutError):
    """A fast ingest was not answered in time.

    As with any `IngestError`, `unconfirmed` says what may be stored or not.
    """


class IngestConnectionError(IngestError, ConnectionError):
    """The connection of a fast ingest was lost for too long, or closed.

    As with any `IngestError`, `unconfirmed` says what may be stored or not.
    """


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


class MessagesUnconfirmedError(JetStreamError):
    """Messages of a fast ingest with `gaps="ok"` may be stored or not; it goes on.

    From `first` to `last`, counted from 1 as they were added.
    """

    def __init__(self, message: str, *, first: int = 0, last: int = 0) -> None:
        super().__init__(message)
        self.first = first
        self.last = last


class MessagesLostError(JetStreamError):
    """Messages of a fast ingest with `gaps="ok"` were not stored; it goes on.

    From `first` to `last`, counted from 1 as they were added.
    """

    def __init__(self, message: str, *, first: int = 0, last: int = 0) -> None:
        super().__init__(message)
        self.first = first
        self.last = last


class NoStreamResponseError(JetStreamError):
    """No stream took the message: no stream listens on its subject, or JetStream is off.

    Look at the subject, the account and the domain. The message is not stored.
    """


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
    """More than one stream matches the subject. `streams` are their names: give `stream`."""

    def __init__(self, message: str, *, streams: list[str] | None = None) -> None:
        super().__init__(message)
        self.streams = streams or []


class IncompleteListError(JetStreamError):
    """Some did not answer, being offline or without a leader; all others were given.

    Ask again later for those that are `missing`.
    """

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
    """The consumer is for another queue group: take its name as `queue=`."""


class NoDeliverGroupError(DeliverGroupError):
    """The consumer was created without a deliver group, so that no queue can share it.

    Subscribe without `queue`, or create another consumer.
    """


class DeliverGroupFeatureError(DeliverGroupError):
    """The consumer has flow control or heartbeats, of which a group sees a part each.

    Create it without them.
    """


class FilterMismatchError(SubscribeError):
    """The consumer is for other subjects than the subscription.

    Subscribe to what it filters by, or leave the subject out.
    """


class ConfigMismatchError(SubscribeError):
    """The consumer is set up otherwise than it was asked for; it was not changed.

    `differences` has the fields: `{name: (asked for, as it is)}`. Ask for what is there, or
    change it by `update_consumer`.
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
    """The consumer was deleted, or became a push consumer, while it was being read.

    An ephemeral one goes when it is not used for its `inactive_threshold`.
    """


class MissedHeartbeatError(JetStreamError):
    """No heartbeat of a consumer for twice its interval; consuming goes on by itself.

    Of a push consumer for three times its interval, unless set otherwise (ADR-15). Often a
    server that is busy or gone, or a consumer that was deleted.
    """


class OrderedConsumerResetError(JetStreamError):
    """An ordered consumer lost its consumer and goes on with a new one; nothing is lost.

    A warning to `on_error`, whose `__cause__` is what happened. Raised when no new one
    could be made in `max_reset_attempts` attempts.
    """


class PullError(JetStreamError):
    """The server refused a pull, or ended it early. `status` is its number.

    The words are the server's: a limit of the consumer, such as `max_waiting`, a message
    larger than `max_bytes`, a leader that changed. `messages` and `consume` pull again.
    """

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
    """The server has sent an error to a push subscription. `status` is its number.

    The words are the server's; the subscription goes on.
    """

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class DataLossError(JetStreamError):
    """A stream lost messages that Spark had still to read, or had written before. `stream` is its name.

    Of a source: by a limit, a purge, a delete of the first messages, or since the stream was
    recreated or restored from older data. Raised by `jsync.spark`, unless its option
    failOnDataLoss is false.

    Of an exactly-once sink: the stream was recreated or restored from older data since the
    batch before, whose rows may be missing. The message says which keys to delete to go on.
    failOnDataLoss has no effect there.
    """

    def __init__(self, message: str, *, stream: str = "") -> None:
        super().__init__(message)
        self.stream = stream


class CheckpointError(JetStreamError):
    """A checkpoint of Spark that this query cannot go on from."""


class ReplayTooLateError(CheckpointError):
    """A batch of Spark that was broken off is written again so late that its stream may
    have forgotten which ids it has: rows would be stored twice. The message says what to
    do; a longer `duplicate_window` of the stream leaves more time.
    """
