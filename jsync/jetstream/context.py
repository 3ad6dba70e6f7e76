"""The context of `Connection.jetstream`, for streams, consumers and publishing."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from ..errors import Error, UnsupportedFeatureError
from ..hints import explain_arguments, explain_attributes
from ..models import check_name
from ..validation import (
    check_bool,
    check_count,
    check_optional_callable,
    check_positive_seconds,
)
from . import management
from .advisory import Advisories, BatchAdvisories
from .api import API, api_prefix, event_subjects
from .atomic.batch import AtomicBatch
from .atomic.engine import MAX_MESSAGES
from .atomic.stream_lookup import StreamLookup
from .backups.account import backup_streams, restore_streams
from .backups.driver import CHUNK_SECONDS
from .backups.restoring import restore
from .consumer import Consumer
from .counters.counters import Counters
from .features import NO_FEATURES
from .groups.manager import ConsumerGroupManager
from .ingest.driver import FastIngest
from .ingest.engine import DEFAULT_FLOW, DEFAULT_WINDOW_BYTES, IngestEngine
from .objects.manager import ObjectStoreManager
from .publishing.options import publish_headers, required_features
from .publishing.publish import RETRIES, RETRY_FOR_EVER, RETRY_SECONDS, publish
from .publishing.publisher import MAX_WINDOW, Publisher
from .schedules.schedules import Schedules
from .stored import get as stored
from .stream import Stream, stream_from_info
from .subscribe.manager import SubscribeManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime
    from os import PathLike
    from typing import Unpack

    from ..core.requests import Data
    from ..core.session import HasSession
    from ..models import (
        AccountInfo,
        ConsumerConfig,
        PubAck,
        StoredMessage,
        StreamConfig,
    )
    from ..models.publish import PublishOptions
    from ..validation import Seconds
    from .advisory import AdvisoryT
    from .atomic.batch import BatchMessage
    from .backups.account import AccountBackup
    from .features import Features
    from .ingest.engine import Gaps
    from .ordered.consumer import OrderedConsumer, OrderedOptions
    from .publishing.ack_tracker import OnError
    from .push.consumer import PushConsumer


@explain_attributes
class JetStream(SubscribeManager, ConsumerGroupManager, ObjectStoreManager):
    """JetStream on a connection: streams, consumers and publishing.

    Any thread may use the context. Calls that send a request block for at most
    `timeout` seconds. By default this is the timeout of `Connection.jetstream`. While
    reconnecting, they wait for the connection first. Besides the errors that each call
    names, these calls and the calls of the objects that they return raise:

    Raises:
        TimeoutError: The server did not answer in time.
        ConnectionLostError: The connection broke before the answer.
        ConnectionClosedError: The connection is closed.
        PermissionsError: You may not use this part of the API.
        JetStreamNotEnabledError: No server answers. JetStream is off, or the domain is
            wrong.
        JetStreamUnavailableError: JetStream has no leader now.

    Example:
        ```python
        js = nc.jetstream(timeout=10)
        js.create_stream(name="EVENTS", subjects=["events.>"])
        ack = js.publish("events.started", b"now")
        print(ack.stream, ack.seq)
        ```
    """

    def __init__(
        self,
        connection: HasSession,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        event_prefix: str | None = None,
        pedantic: bool = False,
        timeout: Seconds = 5.0,
    ) -> None:
        chosen = api_prefix(domain, prefix)
        strict = check_bool(pedantic, "pedantic")
        self._api = API(connection, chosen, timeout, pedantic=strict)
        self._events = event_subjects(event_prefix)
        self._domain = domain
        self._lookup = StreamLookup(self._api)

    def account_info(self, *, timeout: Seconds | None = None) -> AccountInfo:
        """Get the limits and the use of JetStream by your account. Blocks.

        Args:
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The limits and the present use.

        Raises:
            JetStreamNotEnabledForAccountError: Your account may not use JetStream.

        Example:
            ```python
            print(js.account_info().streams)
            ```
        """
        return management.account_info(self._api, timeout)

    # Streams --------------------------------------------------------------------------

    @explain_arguments
    def create_stream(
        self,
        config: StreamConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Stream:
        """Create a stream. Blocks until the server has answered.

        If the stream exists with the same configuration, nothing is changed.

        Args:
            config: A `StreamConfig`, a mapping, or an object with `as_dict()`.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `StreamConfig` as keywords, instead of `config`.

        Returns:
            The stream.

        Raises:
            StreamNameInUseError: The stream exists with another configuration. The
                error's `differences` has the fields that differ.
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            UnsupportedFeatureError: The server is too old for a field. Nothing is sent.
            APIError: The server rejects the configuration.

        Example:
            ```python
            stream = js.create_stream(
                name="EVENTS", subjects=["events.>"], max_age=7 * 86400, max_bytes=10 << 30
            )
            print(stream.info().config.subjects)
            ```
        """
        info = management.create_stream(self._api, config, fields, timeout)
        return stream_from_info(self._api, info)

    @explain_arguments
    def update_stream(
        self,
        config: StreamConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Stream:
        """Change the configuration of a stream. Blocks until the server has answered.

        Args:
            config: A whole configuration. Fields that are not set get the server's
                default.
            timeout: Seconds to wait. Default: the context's.
            **fields: The name of the stream as `name`, and the fields to change. All
                other fields stay as they are. None resets a field to the server's
                default.

        Returns:
            The stream.

        Raises:
            StreamNotFoundError: There is no stream of that name.
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            UnsupportedFeatureError: The server is too old for a field. Nothing is sent.
            APIError: The server rejects the change.

        Example:
            ```python
            stream = js.update_stream(name="ORDERS", max_age=86400)
            print(stream.info().config.max_age)
            ```
        """
        info = management.update_stream(self._api, config, fields, timeout)
        return stream_from_info(self._api, info)

    @explain_arguments
    def create_or_update_stream(
        self,
        config: StreamConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Stream:
        """Create a stream, or give an existing stream this configuration. Blocks.

        Args:
            config: A `StreamConfig`, a mapping, or an object with `as_dict()`.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `StreamConfig` as keywords, instead of `config`.
                They are a whole configuration: other fields get the server's default.

        Returns:
            The stream.

        Raises:
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            UnsupportedFeatureError: The server is too old for a field. Nothing is sent.
            APIError: The server rejects the configuration or the change.
        """
        info = management.create_or_update_stream(self._api, config, fields, timeout)
        return stream_from_info(self._api, info)

    def stream(self, name: str, *, timeout: Seconds | None = None) -> Stream:
        """Get an existing stream, with its info. Blocks.

        `bind_stream` does the same without a request.

        Args:
            name: The name of the stream.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The stream.

        Raises:
            StreamNotFoundError: There is no stream of that name.
            ConfigError: No stream may have that name. Nothing is sent.

        Example:
            ```python
            stream = js.stream("ORDERS")
            print(stream.info().state.messages)
            ```
        """
        info = management.stream_info(self._api, name, timeout=timeout)
        return stream_from_info(self._api, info)

    def bind_stream(self, name: str) -> Stream:
        """Bind to a stream without a request, which saves a request.

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

    def restore_stream(
        self,
        directory: str | PathLike[str],
        *,
        name: str | None = None,
        config: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        on_progress: Callable[[int, int], object] | None = None,
        timeout: Seconds = CHUNK_SECONDS,
    ) -> Stream:
        """Create a stream from a backup, with its messages and consumers. Blocks.

        The backup is one of `Stream.backup` or of `nats stream backup`. jsync compares the
        archive with its digest first, if jsync has made the backup. The server checks it in
        any case.

        The stream takes no messages of others before it is complete: until then it has a
        private subject, and the key `jsync.restore` in its metadata. A restore that fails or
        is interrupted deletes the stream again, and never another one of the same name.
        If your process is killed or the server cannot be reached, this unfinished stream is
        left. It is in the way of the next restore, whose error says to delete it.

        Args:
            directory: The directory of the backup.
            name: Another name for the stream. If the stream of the backup still exists,
                change the subjects with `config`, too: two streams cannot have the same.
                Needs nats-server 2.15, for the backup and now.
            config: Called with the stored configuration, as it is on the wire. It returns
                the one to use, for instance with other replicas.
            on_progress: Called as `on_progress(done, total)` after each chunk, on this
                thread, in bytes of the archive.
            timeout: Seconds to wait for each answer of the server: the first one, and
                those to each chunk. Default: 30. At the end the server may take an hour,
                unless it does not answer for `timeout`. A restore that fails takes up to
                `timeout` more, but at most 5 seconds, to delete the unfinished stream.

        Returns:
            The stream.

        Raises:
            BackupError: The backup is damaged, the server gave up, or an unfinished
                restore is in the way.
            SubjectOverlapError: Another stream has some of the subjects. Nothing is sent.
            ConfigError: The directory holds no whole backup, or one by an older server that
                cannot get another name.
            UnsupportedFeatureError: The server is too old for another name, or for the
                archive of a newer server. Nothing is sent.
            APIError: The server rejects the backup, for instance because a stream of that
                name exists.
        """
        info = restore(
            self._api,
            directory,
            name=name,
            config=config,
            on_progress=on_progress,
            timeout=timeout,
        )
        return stream_from_info(self._api, info)

    def backup_streams(
        self,
        directory: str | PathLike[str],
        *,
        consumers: bool = True,
        check: bool = False,
        on_progress: Callable[[str, int, int], object] | None = None,
        timeout: Seconds = CHUNK_SECONDS,
    ) -> AccountBackup:
        """Write all streams of the account to files. Blocks until all is written.

        `restore_streams` and `nats account restore` read the files. Buckets and object
        stores are streams, too. Each stream is written in a directory of its name, one
        after the other, so the backups are of different moments.

        Args:
            directory: An empty directory. It is created if it does not exist.
            consumers: Include the consumers and their positions.
            check: Have the server check the data first.
            on_progress: Called as `on_progress(stream, done, total)` after each chunk, on
                this thread. `done` are bytes of the compressed archive, and `total` are
                the bytes of the messages.
            timeout: Seconds to wait for each chunk. Default: 30.

        Returns:
            The backups. `skipped` names the streams in memory, if the server is older than
            2.15.

        Raises:
            BackupError: Some streams could not be backed up, for the reasons in the
                message. The other ones are.
            ConfigError: The directory is not empty, or there are no streams.
            OSError: The directory cannot be created.
        """
        return backup_streams(
            self._api,
            directory,
            consumers=consumers,
            check=check,
            on_progress=on_progress,
            timeout=timeout,
        )

    def restore_streams(
        self,
        directory: str | PathLike[str],
        *,
        config: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        skip_existing: bool = False,
        on_progress: Callable[[str, int, int], object] | None = None,
        timeout: Seconds = CHUNK_SECONDS,
    ) -> list[Stream]:
        """Create all streams of a backup of an account. Blocks.

        The backup is one of `backup_streams` or of `nats account backup`. jsync first
        checks that each stream has a complete backup, and that none of the streams exists.

        Args:
            directory: The directory of the backup.
            config: Called with each stored configuration, as it is on the wire. It returns
                the one to use, for instance with other replicas.
            skip_existing: Leave streams that exist as they are, to continue after a restore
                that was interrupted. By default they are an error.
            on_progress: Called as `on_progress(stream, done, total)` after each chunk, on
                this thread, in bytes of the archive.
            timeout: Seconds to wait for each answer of the server: the first one, and
                those to each chunk. Default: 30. At the end of each stream the server may
                take an hour, unless it does not answer for `timeout`. A restore that fails
                takes up to `timeout` more, but at most 5 seconds, to delete the unfinished
                stream.

        Returns:
            The restored streams.

        Raises:
            BackupError: Some streams could not be restored, for the reasons in the message.
                The others are restored.
            ConfigError: The directory has no backups, one of them is not whole, or a stream
                exists already. Nothing is restored.
        """
        infos = restore_streams(
            self._api,
            directory,
            config=config,
            skip_existing=skip_existing,
            on_progress=on_progress,
            timeout=timeout,
        )
        return [stream_from_info(self._api, info) for info in infos]

    @explain_arguments
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
        """Get one message from a stream, without looking up the stream first. Blocks.

        Like `Stream.get_message`, except that the leader of the stream answers by default.

        Args:
            stream: The name of the stream.
            sequence: The sequence of the message.
            last_by_subject: Get the last message of this subject.
            next_by_subject: Get the first message of this subject at or after `sequence`
                or `start_time`.
            start_time: Get the first message at or after this time (nats-server 2.11).
            direct: Let any replica or mirror answer, which may lag. Without `allow_direct`
                on the stream, the leader is queried after that.
            timeout: Seconds to wait. Default: the timeout of this context.

        Raises:
            MessageNotFoundError: The stream has no such message.
            StreamNotFoundError: There is no stream of that name.
            ConfigError: The arguments cannot be combined. Nothing is sent.

        Example:
            ```python
            msg = js.get_message("ORDERS", last_by_subject="orders.new")
            print(msg.data)
            ```
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
        """Delete a stream with all its messages and consumers. Blocks.

        Args:
            name: The name of the stream.
            timeout: Seconds to wait. Default: the context's.

        Raises:
            StreamNotFoundError: There is no stream of that name.

        Example:
            ```python
            js.create_stream(name="OLD", subjects=["old.>"])
            js.delete_stream("OLD")
            ```
        """
        management.delete_stream(self._api, name, timeout)

    def streams(
        self, *, subject: str | None = None, timeout: Seconds | None = None
    ) -> Iterator[Stream]:
        """Iterate over the streams, in the order of their names.

        Iterating blocks while jsync requests the next page of up to 256 streams.
        If some are created or deleted during the iteration, you still get the others
        exactly once.

        Args:
            subject: Only the streams that store messages of this subject, wildcards
                allowed. Default: all.
            timeout: Seconds to wait for each page. Default: the context's.

        Returns:
            An iterator over the streams.

        Raises:
            IncompleteListError: Raised at the end, if some streams did not answer. They
                are offline or have no leader, and the error names them.
        """
        infos = management.streams(self._api, subject, timeout)
        return (stream_from_info(self._api, info) for info in infos)

    def stream_names(
        self, *, subject: str | None = None, timeout: Seconds | None = None
    ) -> Iterator[str]:
        """Iterate over the names of the streams.

        Iterating blocks while jsync requests the next page of up to 1024 names.
        If some are created or deleted during the iteration, you still get the others
        exactly once.

        Args:
            subject: Only the streams that store messages of this subject, wildcards
                allowed. Default: all.
            timeout: Seconds to wait for each page. Default: the context's.

        Returns:
            An iterator over the names.

        Example:
            ```python
            print(list(js.stream_names()))
            ```
        """
        return management.stream_names(self._api, subject, timeout)

    def stream_name_by_subject(
        self, subject: str, *, timeout: Seconds | None = None
    ) -> str:
        """Find the stream that stores the messages of a subject. Blocks.

        Args:
            subject: The subject, wildcards allowed.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The name of the stream.

        Raises:
            StreamNotFoundError: No stream stores messages of the subject.
            AmbiguousSubjectError: Several streams store messages that match the
                subject.

        Example:
            ```python
            print(js.stream_name_by_subject("orders.new"))
            ```
        """
        return management.stream_name_by_subject(self._api, subject, timeout)

    def counters(self, stream: str, *, timeout: Seconds | None = None) -> Counters:
        """Open the counters of a stream. Blocks: the configuration is checked.

        Each subject of the stream is a counter. Create the stream with
        `allow_msg_counter=True` and `allow_direct=True`. Needs nats-server 2.12. (ADR-49)

        Args:
            stream: The name of the stream.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The counters.

        Raises:
            StreamNotFoundError: There is no stream of that name.
            CountersNotEnabledError: The stream is not for counters.

        Example:
            ```python
            js.create_stream(
                name="HITS", subjects=["hits.*"], allow_msg_counter=True, allow_direct=True
            )
            hits = js.counters("HITS")
            print(hits.add("hits.home", 1))
            ```
        """
        return Counters(self._api, stream, timeout)

    def schedules(self, stream: str, *, timeout: Seconds | None = None) -> Schedules:
        """Open the schedules of a stream. Blocks: the configuration is checked.

        Create the stream with `allow_msg_schedules=True`, and with subjects for the
        schedules and for their targets. Needs nats-server 2.12, and 2.14 for schedules
        that repeat. (ADR-51)

        Args:
            stream: The name of the stream.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The schedules.

        Raises:
            StreamNotFoundError: There is no stream of that name.
            SchedulesNotEnabledError: The stream has no `allow_msg_schedules`.

        Example:
            ```python
            js.create_stream(
                name="JOBS", subjects=["at.>", "jobs.>"], allow_msg_schedules=True, allow_msg_ttl=True
            )
            schedules = js.schedules("JOBS")
            schedules.put("at.report", b"{}", schedule="@every 1h", target="jobs.report")
            ```
        """
        return Schedules(self._api, stream, timeout)

    # Consumers ------------------------------------------------------------------------

    @explain_arguments
    def create_consumer(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Consumer:
        """Create a pull consumer, without looking up the stream first. Blocks.

        `Stream.create_consumer` has the details and the errors.

        Args:
            stream: The name of the stream.
            config: A `ConsumerConfig`, a mapping, or an object with `as_dict()`.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `ConsumerConfig` as keywords, instead of `config`.

        Returns:
            The consumer.

        Example:
            ```python
            consumer = js.create_consumer(
                "ORDERS", durable_name="billing", filter_subject="orders.new", ack_wait=60
            )
            print(consumer.next(timeout=5).data)
            ```
        """
        bound = self.bind_stream(stream)
        return bound.create_consumer(config, timeout=timeout, **fields)

    def update_consumer(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Consumer:
        """Change a pull consumer, without looking up the stream first. Blocks.

        `Stream.update_consumer` has the details and the errors.

        Args:
            stream: The name of the stream.
            config: A whole configuration. Fields that are not set get the server's
                default.
            timeout: Seconds to wait. Default: the context's.
            **fields: The name of the consumer as `durable_name` or `name`, and the
                fields to change.

        Returns:
            The consumer.
        """
        bound = self.bind_stream(stream)
        return bound.update_consumer(config, timeout=timeout, **fields)

    @explain_arguments
    def create_or_update_consumer(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Consumer:
        """Create a pull consumer, or give an existing one this configuration. Blocks.

        `Stream.create_or_update_consumer` has the details and the errors.

        Args:
            stream: The name of the stream.
            config: A `ConsumerConfig`, a mapping, or an object with `as_dict()`.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `ConsumerConfig` as keywords, instead of `config`.

        Returns:
            The consumer.
        """
        bound = self.bind_stream(stream)
        return bound.create_or_update_consumer(config, timeout=timeout, **fields)

    def create_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PushConsumer:
        """Create a push consumer, without looking up the stream first. Blocks.

        `Stream.create_push_consumer` has the details and the errors.

        Args:
            stream: The name of the stream.
            config: A `ConsumerConfig`, a mapping, or an object with `as_dict()`.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `ConsumerConfig` as keywords, instead of `config`.

        Returns:
            The consumer.

        Example:
            ```python
            consumer = js.create_push_consumer(
                "ORDERS", durable_name="audit", deliver_subject="audit.orders"
            )
            print(consumer.info().name)
            ```
        """
        bound = self.bind_stream(stream)
        return bound.create_push_consumer(config, timeout=timeout, **fields)

    def update_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PushConsumer:
        """Change a push consumer, without looking up the stream first. Blocks.

        `Stream.update_push_consumer` has the details and the errors.

        Args:
            stream: The name of the stream.
            config: A whole configuration. Fields that are not set get the server's
                default.
            timeout: Seconds to wait. Default: the context's.
            **fields: The name of the consumer as `durable_name` or `name`, and the
                fields to change.

        Returns:
            The consumer.
        """
        bound = self.bind_stream(stream)
        return bound.update_push_consumer(config, timeout=timeout, **fields)

    def create_or_update_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PushConsumer:
        """Create a push consumer, or give an existing one this configuration. Blocks.

        `Stream.create_or_update_push_consumer` has the details and the errors.

        Args:
            stream: The name of the stream.
            config: A `ConsumerConfig`, a mapping, or an object with `as_dict()`.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `ConsumerConfig` as keywords, instead of `config`.

        Returns:
            The consumer.
        """
        bound = self.bind_stream(stream)
        return bound.create_or_update_push_consumer(config, timeout=timeout, **fields)

    def push_consumer(
        self, stream: str, name: str, *, timeout: Seconds | None = None
    ) -> PushConsumer:
        """Get an existing push consumer, without looking up the stream first. Blocks.

        Args:
            stream: The name of the stream.
            name: The name of the consumer.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The consumer.

        Raises:
            ConsumerNotFoundError: The stream has no consumer of that name.
            StreamNotFoundError: There is no stream of that name.
            PullRequiredError: It is a pull consumer.
        """
        return self.bind_stream(stream).push_consumer(name, timeout=timeout)

    @explain_arguments
    def consumer(self, stream: str, name: str) -> Consumer:
        """Bind to a pull consumer without a request.

        The consumer may not exist. You can also use a consumer that another account
        exports, even if you may only import `CONSUMER.MSG.NEXT`. `Stream.consumer` requests
        the info of the consumer.

        Args:
            stream: The name of the stream.
            name: The name of the consumer.

        Returns:
            The consumer.

        Raises:
            ConfigError: No stream or consumer may have that name. Nothing is sent.

        Example:
            ```python
            js.create_consumer("ORDERS", durable_name="billing")
            consumer = js.consumer("ORDERS", "billing")
            print(consumer.info().num_pending)
            ```
        """
        check_name(stream, "stream")
        check_name(name, "consumer")
        return Consumer(self._api, stream, name)

    @explain_arguments
    def ordered_consumer(
        self, stream: str, **options: Unpack[OrderedOptions]
    ) -> OrderedConsumer:
        """Read a stream in exact order, without looking up the stream first. Blocks.

        `Stream.ordered_consumer` has the details and the errors.

        Args:
            stream: The name of the stream.
            **options: The options of `OrderedOptions`.

        Returns:
            The ordered consumer.

        Example:
            ```python
            with js.ordered_consumer("ORDERS") as reader:
                for msg in reader.fetch_nowait(100):
                    print(msg.data)
            ```
        """
        return self.bind_stream(stream).ordered_consumer(**options)

    @explain_arguments
    def delete_consumer(
        self, stream: str, name: str, *, timeout: Seconds | None = None
    ) -> None:
        """Delete a consumer. Blocks.

        Args:
            stream: The name of the stream.
            name: The name of the consumer.
            timeout: Seconds to wait. Default: the context's.

        Raises:
            ConsumerNotFoundError: The stream has no consumer of that name.
            StreamNotFoundError: There is no stream of that name.
        """
        self.bind_stream(stream).delete_consumer(name, timeout=timeout)

    def consumers(
        self, stream: str, *, timeout: Seconds | None = None
    ) -> Iterator[Consumer]:
        """Iterate over the consumers of a stream, in the order of their names.

        Iterating blocks while jsync requests the next page of up to 256 consumers.
        If some are created or deleted during the iteration, you still get the others
        exactly once.

        Args:
            stream: The name of the stream.
            timeout: Seconds to wait for each page. Default: the context's.

        Returns:
            An iterator over the consumers.

        Raises:
            IncompleteListError: Raised at the end, if some consumers did not answer.
                They are offline or have no leader, and the error names them.
            StreamNotFoundError: There is no stream of that name.

        Example:
            ```python
            js.create_consumer("ORDERS", durable_name="billing")
            for consumer in js.consumers("ORDERS"):
                print(consumer.name, consumer.cached_info.num_pending)
            ```
        """
        return self.bind_stream(stream).consumers(timeout=timeout)

    def consumer_names(
        self, stream: str, *, timeout: Seconds | None = None
    ) -> Iterator[str]:
        """Iterate over the names of the consumers of a stream.

        Iterating blocks while jsync requests the next page of up to 1024 names.
        If some are created or deleted during the iteration, you still get the others
        exactly once.

        Args:
            stream: The name of the stream.
            timeout: Seconds to wait for each page. Default: the context's.

        Returns:
            An iterator over the names.
        """
        return self.bind_stream(stream).consumer_names(timeout=timeout)

    # Publishing -----------------------------------------------------------------------

    @explain_arguments
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

        Two answers mean that the message was not stored, and jsync retries after them.
        If no stream answers, as during an election, it retries `retry_attempts` times.
        If the server is too busy, it retries with a growing wait until `timeout`.

        Args:
            subject: The subject to publish to.
            data: The payload.
            timeout: Seconds to wait in total, including retries. Default: the context's.
            retry_attempts: Retries while no stream answers. -1 retries until `timeout`.
            retry_wait: Seconds between these retries, above 0.
            **options: The options of `PublishOptions`: `headers`, `msg_id` against
                duplicates, expectations, `ttl`, `schedule`, `incr` for counters.

        Returns:
            The ack of the stream.

        Raises:
            ConfigError: An option has a value that is not allowed. Nothing is sent.
            InvalidSubjectError: Nothing can be published to the subject. Nothing is
                sent.
            InvalidHeaderError: A header cannot be sent. Nothing is sent.
            MaxPayloadError: The message is too large for the server. Nothing is sent.
            UnsupportedFeatureError: The server is too old for an option, and nothing is
                sent. Or the server that leads the stream is, in a cluster of several
                versions: the error says that the message is stored without the option.
            NoStreamResponseError: No stream takes the subject. The message is not
                stored.
            APIError: The stream rejects the message. The message is not stored.
            TooManyRequestsError: The server was too busy until `timeout`. The message
                is not stored.
            TimeoutError: The message may have been stored. Only a `msg_id` makes it
                safe to publish it again.
            ConnectionLostError: The message may have been stored.
            ConnectionClosedError: The connection is closed. If another thread closed it
                during the call, the message may have been stored.
            PermissionsError: You may not publish to the subject, and nothing is stored. With
                the `operation` `"subscribe"`, you may not receive the ack, and the message
                may have been stored.

        Example:
            ```python
            ack = js.publish("orders.new", b'{"id": 7}', msg_id="order-7")
            print(ack.stream, ack.seq, ack.duplicate)
            ```
        """
        headers = None
        needs = NO_FEATURES
        seconds = self._api.seconds(timeout)
        deadline = monotonic() + seconds
        retry_attempts = check_count(retry_attempts, "retry_attempts", RETRY_FOR_EVER)
        retry_wait = check_positive_seconds(retry_wait, "retry_wait")
        if options:
            headers = publish_headers(subject, data, options)
            needs = required_features(options)
            self._api.require(needs)
        ack = publish(
            self._api.session,
            subject,
            data,
            headers,
            seconds,
            retry_attempts,
            retry_wait,
        )
        if needs:
            self._check_stored_whole(ack, needs, deadline)
        return ack

    def _check_stored_whole(
        self, ack: PubAck, needs: Features, deadline: float
    ) -> None:
        """Raise `UnsupportedFeatureError` if an old leader stored a message without options."""
        try:
            self._api.require_of_leader(
                ack.stream,
                needs,
                deadline - monotonic(),
                f"message {ack.seq} is stored without",
                domain=ack.domain,
            )
        except UnsupportedFeatureError:
            raise
        except Error:  # an error would say that the message may not be stored
            return

    @explain_arguments
    def publisher(
        self,
        *,
        window: int = 4000,
        window_bytes: int = 8 << 20,
        ack_timeout: Seconds = 30.0,
        stall_timeout: Seconds = 30.0,
        resend: bool = False,
        retry_attempts: int | None = None,
        retry_wait: Seconds = RETRY_SECONDS,
        on_error: OnError | None = None,
    ) -> Publisher:
        """Make a publisher that does not wait for each ack. Sends nothing.

        A message that does not fit into the window waits for room. While there is no
        connection, new messages wait as well. Nothing is dropped, and nothing is kept to
        be sent late.

        If the server is too busy (`TooManyRequestsError`, 10167), the message was not
        stored. It is sent again with a growing wait until `ack_timeout`, and new messages
        wait until then. Messages that were already under way may be stored before it.
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
                retries included. They begin with the last ack of an earlier message, so
                that a slow line has time for a full window.
            stall_timeout: Seconds that a message waits for room or for the connection
                before `publish` raises `StallTimeoutError`.
            resend: Send messages again after a lost connection.
            retry_attempts: Retries while no stream answers. -1 retries until
                `ack_timeout`. None: -1 with `resend`, otherwise 0, which keeps the order.
            retry_wait: Seconds between these retries, above 0.
            on_error: Called as `on_error(future, error)` for every failure, on the
                connection's callback thread.

        Returns:
            The publisher, to be used in a `with` statement.

        Raises:
            ConfigError: An argument is out of its range.
            ConnectionClosedError: The connection is closed.

        Example:
            ```python
            with js.publisher() as publisher:
                for number in range(10_000):
                    publisher.publish("orders.new", b"%d" % number)
            # Here the stream has stored all of them.
            ```
        """
        window = check_count(window, "window", 1, MAX_WINDOW)
        window_bytes = check_count(window_bytes, "window_bytes", 1)
        ack_timeout = check_positive_seconds(ack_timeout, "ack_timeout")
        stall_timeout = check_positive_seconds(stall_timeout, "stall_timeout")
        resend = check_bool(resend, "resend")
        if retry_attempts is None:
            retry_attempts = RETRY_FOR_EVER if resend else 0
        retry_attempts = check_count(retry_attempts, "retry_attempts", RETRY_FOR_EVER)
        retry_wait = check_positive_seconds(retry_wait, "retry_wait")
        check_optional_callable(on_error, "on_error")
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
        """Begin a batch of messages. The stream stores all of them or none.

        The call sends nothing. The stream needs `allow_atomic`, and nats-server 2.12.
        (ADR-50)

        Args:
            ack_first: Have the second `add` wait until the server has acknowledged the
                first message. If False, jsync queries the API once for each stream and
                connection whether the stream takes batches, and skips this wait if so.
            max_messages: The most messages of the batch, which jsync checks. Default:
                the server's default limit. None: no check.
            timeout: The default timeout of the batch's calls, in seconds. Default: the
                context's.

        Returns:
            The batch, to be used in a `with` statement.

        Example:
            ```python
            with js.atomic_batch() as batch:
                batch.add("orders.new", b"7")
                batch.add("orders.paid", b"7")
            print(stream.info().state.messages)
            ```
        """
        return AtomicBatch(
            self._api,
            self._lookup,
            ack_first=check_bool(ack_first, "ack_first"),
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
        """Publish several messages, of which the stream stores all or none. Blocks.

        jsync checks all messages first, and sends them in one write. Before that, it
        queries the API once for each stream and connection whether the stream takes
        batches, or finds it out by the first message. The call raises the errors of
        `AtomicBatch.add` and `AtomicBatch.commit`, too.

        Args:
            messages: Tuples of `(subject, data)` or `(subject, data, options)`. The
                options are a dict with the options of `publish`.
            max_messages: The most messages, which jsync checks. Default: the server's
                default limit. None: no check.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The ack of the stream.

        Raises:
            AmbiguousCommitError: The batch may have been stored. The error's `resolve()`
                finds out.
            ConfigError: There are no messages, or an option is not allowed.

        Example:
            ```python
            ack = js.publish_batch([("orders.new", b"7"), ("orders.paid", b"7")])
            print(ack.seq)
            ```
        """
        batch = self.atomic_batch(
            ack_first=False, max_messages=max_messages, timeout=timeout
        )
        return batch._publish_all(messages, self._api.seconds(timeout))

    def advisories(
        self,
        *kinds: type[AdvisoryT],
        stream: str | None = None,
        consumer: str | None = None,
        callback: Callable[[AdvisoryT], object] | None = None,
    ) -> Advisories[AdvisoryT]:
        """Listen for advisories: the events that servers publish. Does not block.

        Earlier events are not included. You need the permission to subscribe to
        `$JS.EVENT.ADVISORY.>`, or with one kind to the subject of that kind.

        Leaf nodes pass on the advisories of other JetStream domains, which may have streams of
        the same names. A context with a `domain` leaves out the advisories of others. Without it,
        compare the `domain` of each advisory.

        Args:
            *kinds: Types of `jsync.models`, such as `MaxDeliveries`. Default: all of them,
                and an `Advisory` for each type that jsync does not know.
            stream: Only advisories of this stream.
            consumer: Only advisories of this consumer of the stream.
            callback: Called with each advisory, on its own thread. Default: iterate, or
                call `next`.

        Returns:
            The advisories. Leave the `with` block, or call `close`, to end them.

        Raises:
            ConfigError: An argument is not valid. Nothing is sent.

        Example:
            ```python
            with js.advisories() as advisories:
                stream.create_consumer(durable_name="billing")
                print(advisories.next(timeout=5))
            ```
        """
        return Advisories(
            *(self._api.owner, kinds, stream, consumer, callback),
            prefix=self._events,
            domain=self._domain,
        )

    def batch_advisories(self, stream: str | None = None) -> BatchAdvisories:
        """Listen for atomic batches that streams have abandoned. Does not block.

        You get only the events that happen after the call. Your account needs
        permission to subscribe to `$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.*`. Needs
        nats-server 2.12. (ADR-50)

        Args:
            stream: The name of a stream. Default: all streams.

        Returns:
            An iterator over the events, to be used in a `with` statement.

        Example:
            ```python
            with js.batch_advisories("ORDERS") as advisories:
                for number in ("1", "3"):  # the second message of the batch is missing
                    headers = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": number}
                    nc.publish("orders.new", b"", headers=headers)
                print(advisories.next(timeout=5).reason)
            ```
        """
        return BatchAdvisories(
            self._api.owner, stream, prefix=self._events, domain=self._domain
        )

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
        """Begin to add messages to a stream as fast as possible. Does not block.

        The stream needs `allow_batched`, and nats-server 2.14. The first `add` finds
        out whether it has them. (ADR-50)

        The stream acknowledges messages in groups of `flow`. At most `outstanding`
        groups may be unacknowledged, which limits the rate to that many messages per
        round trip. On a connection with a long round trip, raise `outstanding`: servers
        accept 32.

        A stream rejects messages while 128 MiB from all of its publishers wait to be
        stored. `window_bytes` keeps this ingest below that limit. For large messages
        the ingest requests more acks.

        Args:
            gaps: What to do when messages are lost or rejected. `"fail"` sends lost
                messages again, and raises if that is impossible. `"ok"` continues, and
                calls `on_error` with `MessagesLostError` or `MessagesUnconfirmedError`.
            flow: Messages to an ack, up to 500. The stream may choose fewer.
            outstanding: Acks that may be missing at a time.
            window_bytes: Bytes that may be unacknowledged. A larger message is sent
                alone.
            ack_timeout: Seconds that the stream may be silent while the ingest waits. A
                lost connection may take 10 seconds more.
            resume_bytes: Bytes of unacknowledged messages to keep for a retry.
            on_error: Called on the connection's callback thread. Default: the
                connection's `on_error`.

        Returns:
            The ingest, to be used in a `with` statement.

        Raises:
            ConfigError: An argument is out of its range.
            ConnectionClosedError: The connection is closed.

        Example:
            ```python
            with js.fast_ingest() as ingest:
                for number in range(10_000):
                    ingest.add("orders.new", b"%d" % number)
            print(stream.info().state.messages)
            ```
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
