"""What `Connection.jetstream` returns: the entry to streams, consumers and publishing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..models import check_name
from . import management
from .advisory import BatchAdvisories
from .api import API, api_prefix
from .atomic.batch import AtomicBatch
from .atomic.engine import MAX_MESSAGES
from .atomic.lookup import StreamLookup
from .consumer import Consumer
from .ingest.driver import FastIngest
from .ingest.engine import DEFAULT_FLOW, DEFAULT_WINDOW_BYTES, IngestEngine
from .keyvalue.manager import KeyValueManager
from .ordered.consumer import ordered_consumer
from .publishing.options import newer_options, publish_headers
from .publishing.publish import RETRIES, RETRY_SECONDS, publish
from .publishing.publisher import Publisher
from .push.consumer import push_consumer, put_push_consumer
from .stored import get as stored
from .stream import Stream, consumers, known_stream, put_consumer
from .subscribing import Subscribing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime
    from typing import Unpack

    from ..checks import Seconds
    from ..core.requests import Data
    from ..core.session import Owner
    from ..models import (
        AccountInfo,
        ConsumerConfig,
        PubAck,
        StoredMessage,
        StreamConfig,
    )
    from ..models.publish import PublishOptions
    from .atomic.batch import BatchMessage
    from .ingest.engine import Gaps
    from .ordered.consumer import OrderedConsumer, OrderedOptions
    from .publishing.acks import OnError
    from .push.consumer import PushConsumer


class JetStream(Subscribing, KeyValueManager):
    """JetStream on a connection. Any thread may use it; making one costs nothing.

    What asks the server blocks for at most `timeout` seconds, by default those of
    `Connection.jetstream`, and while reconnecting waits for the connection first. Besides
    what each call says it raises `TimeoutError`, `ConnectionLostError`,
    `ConnectionClosedError`, `PermissionsError`, `JetStreamNotEnabledError` where nobody
    answers, as with a wrong domain, and `JetStreamUnavailableError` while there is no
    leader. So do the objects that it gives.
    """

    def __init__(
        self,
        connection: Owner,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: Seconds = 5.0,
    ) -> None:
        self._api = API(connection, api_prefix(domain, prefix), timeout)
        self._lookup = StreamLookup(self._api)

    def account_info(self, *, timeout: Seconds | None = None) -> AccountInfo:
        """What the account has of JetStream, and may have; blocks.

        Raises `JetStreamNotEnabledForAccountError` when it has none.
        """
        return management.account_info(self._api, timeout)

    # Streams --------------------------------------------------------------------------

    def create_stream(
        self,
        config: StreamConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Stream:
        """Create a stream from a `StreamConfig`, or from its fields as keywords.

        Blocks. One with the same name and configuration is returned as it is; with
        another configuration raises `StreamNameInUseError`, which names the fields that
        differ and has them as `differences`. Raises `ConfigError` before
        anything is sent, `UnsupportedFeatureError` for fields that the server is too old
        for, and `APIError` for what it refuses.
        """
        info = management.create_stream(self._api, config, fields, timeout)
        return known_stream(self._api, info)

    def update_stream(
        self,
        config: StreamConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Stream:
        """Give a stream a whole configuration, or change what keywords name. Blocks.

        `name` says which. A configuration replaces all, so that what is unset gets the
        server's default; keywords leave the rest as it is, None unsets. Raises
        `StreamNotFoundError`, `UnsupportedFeatureError` for fields that the server is too
        old for, and `APIError` for what cannot be changed.
        """
        info = management.update_stream(self._api, config, fields, timeout)
        return known_stream(self._api, info)

    def create_or_update_stream(
        self,
        config: StreamConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Stream:
        """Have a stream be like this, whether or not there is one yet. Blocks.

        Keywords are a whole configuration, as with `create_stream`.
        """
        info = management.create_or_update_stream(self._api, config, fields, timeout)
        return known_stream(self._api, info)

    def stream(self, name: str, *, timeout: Seconds | None = None) -> Stream:
        """The stream of that name; blocks. Raises `StreamNotFoundError`.

        `bind_stream` asks nothing.
        """
        info = management.stream_info(self._api, name, timeout=timeout)
        return known_stream(self._api, info)

    def bind_stream(self, name: str) -> Stream:
        """Bind to a stream without asking the server, which saves a request.

        The stream may not exist: its calls raise `StreamNotFoundError` then. Its
        `cached_info` and `config` raise `NoCachedInfoError` until you call `info`.

        Args:
            name: The name of the stream.

        Returns:
            The stream, with every call of the one that `stream` returns.

        Raises:
            ConfigError: No stream may have that name. Nothing is sent.
        """
        check_name(name, "stream")
        return Stream(self._api, name)

    def get_message(
        self,
        stream: str,
        sequence: int | None = None,
        *,
        last_by_subject: str | None = None,
        next_by_subject: str | None = None,
        start_time: datetime | None = None,
        direct: bool = False,
        timeout: Seconds | None = None,
    ) -> StoredMessage:
        """Get one message from a stream, without asking for the stream first. Blocks.

        Like `Stream.get_message`, except that the leader of the stream is asked by default.

        Args:
            stream: The name of the stream.
            sequence: The sequence of the message.
            last_by_subject: Get the last message of this subject.
            next_by_subject: Get the first message of this subject at or after `sequence`
                or `start_time`.
            start_time: Get the first message at or after this time (nats-server 2.11).
            direct: Let any replica or mirror answer, which may lag. Without `allow_direct`
                on the stream, the leader is asked after that.
            timeout: Seconds to wait. Default: the timeout of this context.

        Raises:
            MessageNotFoundError: The stream has no such message.
            StreamNotFoundError: There is no stream of that name.
            ConfigError: The arguments cannot be combined. Nothing is sent.
        """
        check_name(stream, "stream")
        return stored.get_message(
            self._api,
            stream,
            sequence=sequence,
            last_by_subject=last_by_subject,
            next_by_subject=next_by_subject,
            start_time=start_time,
            direct=direct,
            timeout=timeout,
        )

    def delete_stream(self, name: str, *, timeout: Seconds | None = None) -> None:
        """Delete a stream with all its messages and consumers; blocks.

        Raises `StreamNotFoundError`.
        """
        management.delete_stream(self._api, name, timeout)

    def streams(
        self, *, subject: str | None = None, timeout: Seconds | None = None
    ) -> Iterator[Stream]:
        """Iterate over the streams, or those that take some of `subject`, by name.

        Iterating blocks, at most `timeout` seconds for each page of 256. Those that do
        not answer, being offline or without a leader, are named at the end by an
        `IncompleteListError`.
        """
        infos = management.streams(self._api, subject, timeout)
        return (known_stream(self._api, info) for info in infos)

    def stream_names(
        self, *, subject: str | None = None, timeout: Seconds | None = None
    ) -> Iterator[str]:
        """Iterate over the names of streams, or those that take some of `subject`.

        Iterating blocks, at most `timeout` seconds for each page of 1024.
        """
        return management.stream_names(self._api, subject, timeout)

    def stream_name_by_subject(
        self, subject: str, *, timeout: Seconds | None = None
    ) -> str:
        """The name of the stream that takes `subject`; blocks.

        Raises `StreamNotFoundError` when there is none, and `AmbiguousSubjectError` when
        several streams take what a subject with wildcards matches.
        """
        return management.stream_name_by_subject(self._api, subject, timeout)

    # Consumers ------------------------------------------------------------------------

    def create_consumer(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Consumer:
        """`Stream.create_consumer`, without asking for the stream first."""
        return put_consumer(self._api, stream, "create", config, fields, timeout)

    def update_consumer(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Consumer:
        """`Stream.update_consumer`, without asking for the stream first."""
        return put_consumer(self._api, stream, "update", config, fields, timeout)

    def create_or_update_consumer(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Consumer:
        """`Stream.create_or_update_consumer`, without asking for the stream first."""
        return put_consumer(self._api, stream, "", config, fields, timeout)

    def create_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PushConsumer:
        """`Stream.create_push_consumer`, without asking for the stream first."""
        return put_push_consumer(self._api, stream, "create", config, fields, timeout)

    def update_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PushConsumer:
        """`Stream.update_push_consumer`, without asking for the stream first."""
        return put_push_consumer(self._api, stream, "update", config, fields, timeout)

    def create_or_update_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PushConsumer:
        """`Stream.create_or_update_push_consumer`, without asking for the stream first."""
        return put_push_consumer(self._api, stream, "", config, fields, timeout)

    def push_consumer(
        self, stream: str, name: str, *, timeout: Seconds | None = None
    ) -> PushConsumer:
        """`Stream.push_consumer`, without asking for the stream first."""
        return push_consumer(self._api, stream, name, timeout)

    def consumer(self, stream: str, name: str) -> Consumer:
        """Bind to a consumer; asks nothing, so that it may not exist.

        For one that another account exports, too, of which only `CONSUMER.MSG.NEXT` may
        be there to be imported. `Stream.consumer` asks for its info.
        """
        check_name(stream, "stream")
        check_name(name, "consumer")
        return Consumer(self._api, stream, name)

    def ordered_consumer(
        self,
        stream: str,
        **options: Unpack[OrderedOptions],
    ) -> OrderedConsumer:
        """`Stream.ordered_consumer`, without asking for the stream first."""
        return ordered_consumer(self._api, stream, options)

    def delete_consumer(
        self, stream: str, name: str, *, timeout: Seconds | None = None
    ) -> None:
        """Delete a consumer; blocks. Raises `ConsumerNotFoundError`."""
        management.delete_consumer(self._api, stream, name, timeout)

    def consumers(
        self, stream: str, *, timeout: Seconds | None = None
    ) -> Iterator[Consumer]:
        """Iterate over the consumers of a stream, by name.

        Iterating blocks, at most `timeout` seconds for each page of 256. Those that do
        not answer, being offline or without a leader, are named at the end by an
        `IncompleteListError`.
        """
        return consumers(self._api, stream, timeout)

    def consumer_names(
        self, stream: str, *, timeout: Seconds | None = None
    ) -> Iterator[str]:
        """Iterate over the names of a stream's consumers.

        Iterating blocks, at most `timeout` seconds for each page of 1024.
        """
        return management.consumer_names(self._api, stream, timeout)

    # Publishing -----------------------------------------------------------------------

    def publish(
        self,
        subject: str,
        data: Data = b"",
        *,
        timeout: Seconds | None = None,
        retry_attempts: int = RETRIES,
        retry_wait: Seconds = RETRY_SECONDS,
        **options: Unpack[PublishOptions],
    ) -> PubAck:
        """Publish a message and block until its stream has stored it.

        Two answers mean that the message was not stored, and it is sent again after them.
        If no stream answers, as during an election, it is sent again `retry_attempts`
        times. If the server is too busy, it is sent again with a growing wait until
        `timeout`.

        Args:
            subject: The subject to publish to.
            data: The payload.
            timeout: Seconds to wait in all, retries included. Default: the context's.
            retry_attempts: Retries while no stream answers. -1 retries until `timeout`.
            retry_wait: Seconds between these retries, above 0.
            **options: The options of `PublishOptions`: `headers`, `msg_id` against
                duplicates, expectations, `ttl`, `schedule`, `incr` for counters.

        Returns:
            The ack of the stream.

        Raises:
            ConfigError, InvalidSubjectError, InvalidHeaderError, MaxPayloadError,
                UnsupportedFeatureError: Before anything is sent.
            NoStreamResponseError: No stream takes the subject. The message is not stored.
            APIError: The stream rejects the message. The message is not stored.
            TooManyRequestsError: The server was too busy until `timeout`. The message is
                not stored.
            TimeoutError, ConnectionLostError: The message may have been stored. Only a
                `msg_id` makes it safe to publish it again.
        """
        headers = None
        if options:
            headers = publish_headers(subject, data, options)
            self._api.require(newer_options(options))
        return publish(
            self._api.session,
            subject,
            data,
            headers,
            self._api.seconds(timeout),
            retry_attempts,
            retry_wait,
        )

    def publisher(
        self,
        *,
        window: int = 4000,
        window_bytes: int = 8 << 20,
        ack_timeout: float = 30.0,
        stall_timeout: float = 30.0,
        resend: bool = False,
        retry_attempts: int | None = None,
        retry_wait: float = RETRY_SECONDS,
        on_error: OnError | None = None,
    ) -> Publisher:
        """Make a publisher that does not wait for each ack; asks nothing of the server.

        A message that does not fit into the window waits for room. While there is no
        connection, new messages wait as well. Nothing is dropped, and nothing is kept to
        be sent late.

        If the server is too busy (`TooManyRequestsError`, 10167), the message was not
        stored. It is sent again with a growing wait until `ack_timeout`, and new messages
        wait meanwhile. Messages that were already under way may be stored before it.
        `window=1` keeps the order in every case.

        When the connection breaks, all pending messages fail with `ConnectionLostError`.
        With `resend` they are sent again after the reconnect, in order and before new
        messages. A message without an answer for two seconds, as when a leader steps down,
        is sent again too. So is one whose first copy is still being stored. Each message
        needs a `msg_id` then, and the stream a `duplicate_window` above `ack_timeout`, so
        that nothing is stored twice. After a change of leader, later messages may be
        stored before earlier ones.

        Every failure is on its future, and `PubAckFuture` says which errors mean that the
        message is not stored. `flush`, `close` and the end of `with` raise
        `PublisherError` for failures that you have not seen on their futures. If
        the block raises its own exception, that exception gets a note about the failures,
        and the publisher does not wait for the acks.

        Args:
            window: Messages that may wait for their acks, from 1 to 1,048,576.
            window_bytes: Bytes of subjects, headers and payloads that may wait for their
                acks. A larger message is sent alone.
            ack_timeout: Seconds until a message without an ack fails with `TimeoutError`,
                retries included.
            stall_timeout: Seconds that a message waits for room or for the connection
                before `publish` raises `StallTimeoutError`.
            resend: Send messages again after a lost connection.
            retry_attempts: Retries while no stream answers; -1 retries until
                `ack_timeout`. None: -1 with `resend`, otherwise 0, which keeps the order.
            retry_wait: Seconds between these retries, above 0.
            on_error: Called as `on_error(future, error)` for every failure, on the
                connection's callback thread.

        Returns:
            The publisher, to be used in a `with` statement.

        Raises:
            ConfigError: An argument is out of its range.
            ConnectionClosedError: The connection is closed.
        """
        return Publisher(
            self._api,
            window=window,
            window_bytes=window_bytes,
            ack_timeout=ack_timeout,
            stall_timeout=stall_timeout,
            resend=resend,
            retry_attempts=retry_attempts,
            retry_wait=retry_wait,
            on_error=on_error,
        )

    def atomic_batch(
        self,
        *,
        ack_first: bool = True,
        max_messages: int | None = MAX_MESSAGES,
        timeout: Seconds | None = None,
    ) -> AtomicBatch:
        """A batch to add messages to, of which the stream stores all or none (ADR-50).

        Sends nothing by itself. The stream has to `allow_atomic`; its server is
        nats-server 2.12 or later. With `ack_first` the second `add` waits until the server
        has acknowledged the first message, before more are sent. Without it that is left
        out where the API says that the stream takes batches, which is asked for once per
        stream and connection. `max_messages` is the limit of a server that is not set up
        otherwise, checked here, or None. `timeout` in seconds is the default of the batch's
        calls, by default that of this context.
        """
        return AtomicBatch(
            self._api,
            self._lookup,
            ack_first=ack_first,
            max_messages=max_messages,
            timeout=self._api.seconds(timeout),
        )

    def publish_batch(
        self,
        messages: Iterable[BatchMessage],
        *,
        max_messages: int | None = MAX_MESSAGES,
        timeout: Seconds | None = None,
    ) -> PubAck:
        """Publish messages of which the stream stores all or none; blocks for its ack.

        A message is `(subject, data)`, or `(subject, data, options)` with the options of
        `publish` in a dict. All are checked first, then sent in one write, once it is known
        that the stream takes batches: asked of the API, once per stream and connection, or
        found out by the first message. Raises like `AtomicBatch.add` and `commit`: with
        an `UnclearCommitError` it may have been stored, and the error's `resolve()` finds
        out. No messages are a `ConfigError`.
        """
        batch = self.atomic_batch(
            ack_first=False, max_messages=max_messages, timeout=timeout
        )
        return batch.publish_all(messages, self._api.seconds(timeout))

    def batch_advisories(self, stream: str | None = None) -> BatchAdvisories:
        """Listen for the atomic batches that streams give up, of all or of one `stream`.

        Does not block; what happened before is not told. The account has to be allowed
        `$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.*`. Since nats-server 2.12 (ADR-50).
        """
        return BatchAdvisories(self._api.owner, stream)

    def fast_ingest(
        self,
        *,
        gaps: Gaps = "fail",
        flow: int = DEFAULT_FLOW,
        outstanding: int = 2,
        window_bytes: int = DEFAULT_WINDOW_BYTES,
        ack_timeout: Seconds = 10.0,
        resume_bytes: int = 64 << 20,
        on_error: Callable[[Exception], object] | None = None,
    ) -> FastIngest:
        """Begin to add messages to a stream with `allow_batched`, as fast as it takes them.

        Does not block: the first `add` asks the stream. Since nats-server 2.14 (ADR-50).

        The stream acknowledges messages in groups of `flow`. At most `outstanding` groups
        may be unacknowledged, which limits the rate to that many messages per round trip.
        On a connection with a long round trip, raise `outstanding`: servers accept 32.

        A stream rejects messages while 128 MiB from all of its publishers wait to be
        stored. `window_bytes` keeps this ingest below that limit. For large messages the
        ingest asks for more acks.

        Args:
            gaps: What to do when messages are lost or rejected. `"fail"` sends lost
                messages again, and raises if that is impossible. `"ok"` continues, and
                calls `on_error` with `MessagesLostError` or `MessagesUnconfirmedError`.
            flow: Messages to an ack, up to 500. The stream may choose fewer.
            outstanding: Acks that may be missing at a time.
            window_bytes: Bytes that may be unacknowledged. A larger message is sent alone.
            ack_timeout: Seconds that the stream may be silent while the ingest waits. A
                lost connection may take 10 seconds more.
            resume_bytes: Bytes of unacknowledged messages to keep for a retry.
            on_error: Called on the connection's callback thread. Default: the connection's
                `on_error`.

        Raises:
            ConfigError: An argument is out of its range.
            ConnectionClosedError: The connection is closed.
        """
        return FastIngest(
            self._api,
            IngestEngine(gaps, flow, outstanding, window_bytes),
            ack_timeout=ack_timeout,
            resume_bytes=resume_bytes,
            on_error=on_error,
        )

    def __repr__(self) -> str:
        return f"<JetStream {self._api.prefix} on {self._api.owner!r}>"
