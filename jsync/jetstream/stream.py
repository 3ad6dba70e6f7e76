"""Streams: what they hold, and their consumers."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Any

from ..core.clock import deadline_after
from ..errors import ConfigError, MessageNotFoundError, NoCachedInfoError
from ..hints import explain_arguments
from ..models import StoredMessage
from ..models.codec import wire_time
from ..models.name import check_filter
from ..validation import check_bool, check_int
from . import management
from .backups.driver import CHUNK_SECONDS, backup
from .consumer import Consumer
from .features import GET_BY_TIME
from .ordered.arrow import READ_ROWS, ArrowRange
from .ordered.consumer import ordered_consumer
from .pulls.arrow import PREFETCH_BYTES
from .push.consumer import push_consumer, put_push_consumer
from .stored import get as stored
from .stored.engine import (
    MAX_SUBJECTS,
    PAGE_BYTES,
    PAGE_MESSAGES,
    LastPerSubjectReader,
    SubjectReader,
)
from .stream_end.driver import stream_end
from .stream_end.engine import has_one_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime
    from os import PathLike
    from typing import Unpack

    from ..models import ConsumerConfig, StreamConfig, StreamInfo
    from ..validation import Seconds
    from .api import API
    from .backups.driver import StreamBackup
    from .management import Action
    from .ordered.consumer import OrderedConsumer, OrderedOptions
    from .push.consumer import PushConsumer


class Stream:
    """A stream. Any thread may use it.

    `JetStream.create_stream`, `JetStream.stream` and `JetStream.bind_stream` return it.

    Example:
        ```python
        stream = js.stream("ORDERS")
        print(stream.info().state.messages)
        print(stream.get_message(1).data)
        stream.purge(subject="orders.old")
        ```
    """

    def __init__(self, api: API, name: str, info: StreamInfo | None = None) -> None:
        """Bind to it by name. Without `info`, nothing is sent before the first call."""
        self._api = api
        self._name = name
        self._info = info

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self._name

    @property
    def cached_info(self) -> StreamInfo:
        """The latest info that the server gave. Sends nothing.

        Raises:
            NoCachedInfoError: No info was requested yet, as after
                `JetStream.bind_stream`.
        """
        if self._info is None:
            raise NoCachedInfoError(
                f"stream {self._name} was bound without asking the server: call info()"
            )
        return self._info

    @property
    def config(self) -> StreamConfig:
        """The configuration of the stream, from `cached_info`."""
        return self.cached_info.config

    # The stream -----------------------------------------------------------------------

    def info(
        self,
        *,
        deleted_details: bool = False,
        subjects_filter: str | None = None,
        timeout: Seconds | None = None,
    ) -> StreamInfo:
        """Get the configuration and the state of the stream from the server. Blocks.

        Args:
            deleted_details: Also get the sequences of deleted messages, as
                `state.deleted`.
            subjects_filter: Also get the number of messages of each subject that
                matches, as `state.subjects`. `>` matches all. One request is needed for
                every 100,000 subjects.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The info, which `cached_info` keeps.

        Raises:
            StreamNotFoundError: The stream does not exist.

        Example:
            ```python
            state = stream.info().state
            print(state.messages, state.bytes)
            ```
        """
        self._info = management.stream_info(
            self._api,
            self.name,
            deleted_details=deleted_details,
            subjects_filter=subjects_filter,
            timeout=timeout,
        )
        return self._info

    def leader_info(self, *, timeout: Seconds | None = None) -> StreamInfo:
        """Get the info from the leader of the stream. Blocks until there is a leader.

        Each message that was acknowledged before the call is in the `state`, except those
        that are gone. `info` can get an older state: other servers answer while there is no
        leader, and a leader that was cut off answers until it learns of its successor.

        Args:
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The info, which `cached_info` keeps.

        Raises:
            StreamNotFoundError: The stream does not exist.
            JetStreamUnavailableError: There was no leader, or most servers of the stream
                did not answer it.
            TimeoutError: No server has answered.
        """
        deadline = deadline_after(self._api.seconds(timeout))
        self._info = stream_end(self._api, self.name, deadline).info
        return self._info

    def update(
        self,
        config: StreamConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **changes: Any,
    ) -> StreamInfo:
        """Change the configuration of the stream. Blocks until the server has answered.

        Args:
            config: A whole configuration. Fields that are not set get the server's
                default.
            timeout: Seconds to wait. Default: the context's.
            **changes: The fields to change. All other fields stay as they are. None
                resets a field to the server's default.

        Returns:
            The info of the stream.

        Raises:
            StreamNotFoundError: The stream does not exist.
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            UnsupportedFeatureError: The server is too old for a field. Nothing is sent.
            APIError: The server rejects the change.
        """
        self._info = management.update_stream(
            self._api, config, changes, timeout, name=self.name
        )
        return self._info

    @explain_arguments
    def purge(
        self,
        *,
        subject: str | None = None,
        sequence: int | None = None,
        keep: int | None = None,
        timeout: Seconds | None = None,
    ) -> int:
        """Delete all messages of the stream, or some of them. Blocks.

        Args:
            subject: Only messages of this subject, wildcards allowed. Default: all.
            sequence: Only messages before this sequence.
            keep: Keep this number of the latest messages. You can give `sequence` or
                `keep`, not both.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The number of deleted messages.

        Raises:
            ConfigError: You gave both `sequence` and `keep`, or a value that is not
                allowed.
            StreamPurgeError: The stream has `deny_purge`.
            StreamSealedError: The stream is sealed.
            StreamNotFoundError: The stream does not exist.

        Example:
            ```python
            print(stream.purge(subject="orders.new"), "messages are deleted")
            ```
        """
        if sequence is not None and keep is not None:
            raise ConfigError("sequence and keep exclude each other: give one")
        if subject is not None:
            check_filter(subject, "subject")
        if sequence is not None:
            sequence = check_int(sequence, "sequence", 1)
        if keep is not None:
            keep = check_int(keep, "keep", 0)
        return management.purge_stream(
            self._api,
            self.name,
            subject=subject,
            sequence=sequence,
            keep=keep,
            timeout=timeout,
        )

    def leader_step_down(
        self, *, preferred: str | None = None, timeout: Seconds | None = None
    ) -> None:
        """Have the leader of the stream step down. Blocks until it has agreed.

        Another replica is elected within moments. Calls during the election are retried,
        or fail with `JetStreamUnavailableError` or `TimeoutError`.

        Args:
            preferred: The name of the server to become the leader. Since nats-server
                2.11.
            timeout: Seconds to wait. Default: the context's.

        Raises:
            StreamNotFoundError: The stream does not exist.
            APIError: The server rejects the request, for instance because it is not in a
                cluster.
        """
        where = f"STREAM.LEADER.STEPDOWN.{self.name}"
        management.step_down(self._api, where, preferred, timeout)

    def remove_peer(self, server: str, *, timeout: Seconds | None = None) -> None:
        """Remove a server from the replicas of the stream. Blocks.

        The cluster chooses another server in its place, if there is one. The consumers
        follow.

        Args:
            server: The name of the server, as in `info().cluster`.
            timeout: Seconds to wait. Default: the context's.

        Raises:
            StreamNotFoundError: The stream does not exist.
            APIError: The server rejects the request, for instance because the stream has
                no replica there.
        """
        self._api.request(
            f"STREAM.PEER.REMOVE.{self.name}", {"peer": server}, timeout=timeout
        )

    def backup(
        self,
        directory: str | PathLike[str],
        *,
        consumers: bool = True,
        check: bool = False,
        on_progress: Callable[[int, int], object] | None = None,
        timeout: Seconds = CHUNK_SECONDS,
    ) -> StreamBackup:
        """Write the stream with its messages to files. Blocks until all is written.

        `JetStream.restore_stream` and `nats stream restore` read the files. Messages that
        are published during the backup may be missing. The backup is complete when `backup.json`
        exists. An interrupted backup leaves none.

        Args:
            directory: A directory without a backup. It is created if it does not exist.
            consumers: Include the consumers and their positions.
            check: Have the server check the data first.
            on_progress: Called as `on_progress(done, total)` after each chunk, on this
                thread. `done` are bytes of the compressed archive, and `total` are the
                bytes of the messages.
            timeout: Seconds to wait for each chunk. Default: 30.

        Returns:
            The backup.

        Raises:
            StreamNotFoundError: The stream does not exist.
            BackupError: The server broke off the backup, or a chunk was lost.
            ConfigError: The directory already holds a backup.
            OSError: A file cannot be written.

        Example:
            ```python
            import tempfile

            with tempfile.TemporaryDirectory() as folder:
                stream.backup(f"{folder}/orders")
            ```
        """
        return backup(
            self._api,
            self.name,
            directory,
            consumers=consumers,
            check=check,
            on_progress=on_progress,
            timeout=timeout,
        )

    def delete(self, *, timeout: Seconds | None = None) -> None:
        """Delete the stream with all its messages and consumers. Blocks.

        Args:
            timeout: Seconds to wait. Default: the context's.

        Raises:
            StreamNotFoundError: The stream does not exist.

        Example:
            ```python
            old = js.create_stream(name="OLD", subjects=["old.>"])
            old.delete()
            ```
        """
        management.delete_stream(self._api, self.name, timeout)

    # Its messages ---------------------------------------------------------------------

    def get_message(
        self,
        sequence: int | None = None,
        *,
        last_by_subject: str | None = None,
        next_by_subject: str | None = None,
        start_time: datetime | None = None,
        direct: bool = True,
        timeout: Seconds | None = None,
    ) -> StoredMessage:
        """Get one message: by its sequence, or by its subject. Blocks.

        If the stream has `allow_direct`, any server with a replica or a mirror may
        answer. This is fast, but that server may lag behind the latest publishes. A
        mirror does not answer for several subjects, since it may not have all of them. A
        stream from `bind_stream` queries its leader, until you call `info`.

        Args:
            sequence: The sequence of the message.
            last_by_subject: Get the last message of this subject, wildcards allowed.
            next_by_subject: Get the first message of this subject at or after
                `sequence` or `start_time`. Wildcards are allowed.
            start_time: Get the first message at or after this time. Needs nats-server
                2.11.
            direct: False queries the leader. True queries any replica or mirror. Default:
                True if the stream has `allow_direct`.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The message.

        Raises:
            MessageNotFoundError: The stream has no such message.
            StreamNotFoundError: The stream does not exist.
            ConfigError: The arguments cannot be combined. Nothing is sent.

        Example:
            ```python
            print(stream.get_message(1).data)
            print(stream.get_message(last_by_subject="orders.new").data)
            ```
        """
        if check_bool(direct, "direct"):
            direct = self._info is not None and bool(self.config.allow_direct)
        return stored.get_message(
            self._api,
            self.name,
            sequence=sequence,
            last_by_subject=last_by_subject,
            next_by_subject=next_by_subject,
            start_time=start_time,
            direct=direct,
            timeout=timeout,
        )

    @explain_arguments
    def get_messages(
        self,
        subject: str = ">",
        *,
        sequence: int | None = None,
        start_time: datetime | None = None,
        up_to_sequence: int | None = None,
        up_to_time: datetime | None = None,
        max_messages: int | None = None,
        batch: int = PAGE_MESSAGES,
        max_bytes: int = PAGE_BYTES,
        timeout: Seconds | None = None,
    ) -> Iterator[StoredMessage]:
        """Iterate over the stored messages of a subject, without a consumer.

        The iteration ends after the last message, including messages that are published
        during the iteration. jsync requests the messages while you iterate, so that only one
        request's messages are in memory. Use the iterator from one thread at a time.

        Iterating blocks. If the connection or the server is lost, jsync continues after
        the last message that you got. The stream needs `allow_direct`, and nats-server
        2.11. (ADR-31)

        Args:
            subject: The subject, wildcards allowed. Default: all.
            sequence: Start at this sequence. Default: the first message.
            start_time: Start at this time, instead of `sequence`.
            up_to_sequence: End after this sequence.
            up_to_time: End before this time.
            max_messages: End after this number of messages.
            batch: Messages of each request.
            max_bytes: Bytes of each request.
            timeout: Seconds to wait for each message. Default: the context's. After the
                first message, jsync repeats a request once that is not answered in
                time, because the server that had received it may be gone.

        Returns:
            An iterator over the messages.

        Raises:
            DirectGetNotAllowedError: The stream has no `allow_direct`, or only a mirror
                answers that lacks some of its messages.
            DirectGetError: The stream was deleted and created again during the read.
            TimeoutError: No message came in time.
            ConnectionLostError: The connection was lost repeatedly.
            UnsupportedFeatureError: The server is older than 2.11. Nothing is sent.
            ConfigError: The arguments cannot be combined. Nothing is sent.

        Example:
            ```python
            for msg in stream.get_messages("orders.new", sequence=2):
                print(msg.data)
            ```
        """
        pages = SubjectReader(
            subject,
            sequence=sequence,
            start_time=start_time,
            up_to_sequence=up_to_sequence,
            up_to_time=up_to_time,
            max_messages=max_messages,
            batch=batch,
            max_bytes=max_bytes,
        )
        alone = has_one_server(self._info, time())
        return stored.get_messages(self._api, self.name, pages, timeout, alone=alone)

    def get_last_messages(
        self,
        subjects: str | Iterable[str],
        *,
        up_to_sequence: int | None = None,
        up_to_time: datetime | None = None,
        batch: int = MAX_SUBJECTS,
        max_bytes: int = PAGE_BYTES,
        timeout: Seconds | None = None,
    ) -> Iterator[StoredMessage]:
        """Iterate over the last message of each subject that matches, the oldest first.

        You get each subject once. With `up_to_sequence` or `up_to_time` you get the
        last message before that limit. If that message is deleted while you iterate,
        you get the last message of its subject instead. Iterating blocks, as with
        `get_messages`. The stream needs `allow_direct`, and nats-server 2.11. (ADR-31)

        Args:
            subjects: A subject, or several, wildcards allowed.
            up_to_sequence: Only messages up to this sequence.
            up_to_time: Only messages before this time.
            batch: Messages of each request.
            max_bytes: Bytes of each request.
            timeout: Seconds to wait for each message. Default: the context's. After the
                first message, jsync repeats a request once that is not answered in
                time, because the server that had received it may be gone.

        Returns:
            An iterator over the messages.

        Raises:
            TooManyResultsError: More than 1024 subjects match.
            DirectGetNotAllowedError: The stream has no `allow_direct`, or only a mirror
                answers that lacks some of its messages.
            DirectGetError: The stream was deleted and created again during the read.
            TimeoutError: No message came in time.
            ConnectionLostError: The connection was lost repeatedly.
            UnsupportedFeatureError: The server is older than 2.11. Nothing is sent.
            ConfigError: The arguments cannot be combined. Nothing is sent.
        """
        pages = LastPerSubjectReader(
            subjects,
            StoredMessage.from_answer,
            up_to_sequence=up_to_sequence,
            up_to_time=up_to_time,
            batch=batch,
            max_bytes=max_bytes,
        )
        alone = has_one_server(self._info, time())
        return stored.get_messages(self._api, self.name, pages, timeout, alone=alone)

    def read_arrow(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        start_time: datetime | None = None,
        columns: Sequence[str] | None = None,
        filter_subjects: str | Iterable[str] | None = None,
        headers_only: bool = False,
        max_rows: int = READ_ROWS,
        max_bytes: int = PREFETCH_BYTES,
        inactive_threshold: float | None = None,
        timeout: Seconds | None = None,
    ) -> ArrowRange:
        """Read a range of the stream as Arrow columns, in exact order.

        jsync reads the range when you pass the result to `pyarrow.table(...)`,
        `polars.DataFrame(...)` or DuckDB, or when you iterate over it. Reading
        continues through reconnects, as with an `OrderedConsumer`. Deleted messages are
        left out. `ArrowBatch` describes the columns.

        The call blocks while it queries the leader of the stream where the stream ends.

        Args:
            start: The first sequence to read. Default: the first message of the stream.
            end: The last sequence to read. Default: the last message at the time of the
                call.
            start_time: Start with the first message that was stored at this time or later,
                instead of `start`. Since nats-server 2.11.
            columns: The names of the columns, in their order. Default: all.
            filter_subjects: A subject, or several, wildcards allowed. Default: all.
            headers_only: Send no payloads. `data` is empty, and the header
                `Nats-Msg-Size` has the size.
            max_rows: Messages of a batch at most.
            max_bytes: Bytes to prefetch.
            inactive_threshold: Seconds after which the server deletes the consumer if
                your program crashes. Default: 30, or less if the stream's
                `consumer_limits` say so.
            timeout: Seconds that a request may take. Default: the context's.

        Returns:
            The range, which can be read more than once.

        Raises:
            StreamNotFoundError: The stream does not exist.
            UnsupportedFeatureError: The server is too old for `start_time`. Nothing is
                sent.
            ConfigError: An argument is not allowed. Nothing is sent.

        Example:
            ```python
            import pyarrow

            table = pyarrow.table(stream.read_arrow())
            print(table.num_rows)
            ```
        """
        if start is not None and start_time is not None:
            raise ConfigError("start and start_time are mutually exclusive: give one")
        start = check_int(1 if start is None else start, "start", 1)
        if end is not None:
            end = check_int(end, "end", 0)
        if start_time is not None:
            wire_time(start_time, "start_time")
            self._api.require(GET_BY_TIME)
        deadline = deadline_after(self._api.seconds(timeout))
        found_end = stream_end(self._api, self.name, deadline)
        self._info, last = found_end.info, found_end.sequence
        if start_time is not None:
            try:
                found = self.get_message(
                    start_time=start_time, direct=False, timeout=timeout
                )
            except MessageNotFoundError:
                start = last + 1
            else:
                start = found.sequence
        return ArrowRange(
            self._api,
            found_end.info,
            start,
            last if end is None else min(end, last),
            columns=columns,
            filter_subjects=filter_subjects,
            headers_only=headers_only,
            max_rows=max_rows,
            max_bytes=max_bytes,
            inactive_threshold=inactive_threshold,
            timeout=self._api.seconds(timeout),
        )

    def delete_message(self, sequence: int, *, timeout: Seconds | None = None) -> None:
        """Delete one message. Blocks.

        The bytes of the message may stay on the disk until the server overwrites them.

        Args:
            sequence: The sequence of the message.
            timeout: Seconds to wait. Default: the context's.

        Raises:
            MessageNotFoundError: The stream has no such message.
            MessageDeleteError: The stream has `deny_delete`.

        Example:
            ```python
            stream.delete_message(1)
            print(stream.info().state.messages)
            ```
        """
        stored.delete_message(
            self._api, self.name, sequence, erase=False, timeout=timeout
        )

    def secure_delete_message(
        self, sequence: int, *, timeout: Seconds | None = None
    ) -> None:
        """Delete one message, and overwrite it with random bytes. Slower, and blocks.

        Args:
            sequence: The sequence of the message.
            timeout: Seconds to wait. Default: the context's.

        Raises:
            MessageNotFoundError: The stream has no such message.
            MessageDeleteError: The stream has `deny_delete`.
        """
        stored.delete_message(
            self._api, self.name, sequence, erase=True, timeout=timeout
        )

    # Its consumers --------------------------------------------------------------------

    @explain_arguments
    def create_consumer(
        self,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Consumer:
        """Create a pull consumer. Blocks until the server has answered.

        If a durable consumer exists with the same configuration, nothing is changed.
        Without `durable_name` or `name` the consumer gets a random name, and the server
        deletes it after `inactive_threshold` seconds without use.

        Args:
            config: A `ConsumerConfig`, a mapping, or an object with `as_dict()`.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `ConsumerConfig` as keywords, instead of `config`.

        Returns:
            The consumer.

        Raises:
            ConsumerExistsError: The consumer exists with another configuration. The
                error's `differences` has the fields that differ. A consumer with a
                `name` and without an `inactive_threshold` always differs, because
                servers compare with their own threshold.
            StreamNotFoundError: The stream does not exist.
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            UnsupportedFeatureError: The server is too old for a field. Nothing is sent.
            APIError: The server rejects the configuration.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing", max_deliver=5)
            for msg in consumer.fetch_nowait(100):
                msg.ack()
            ```
        """
        return self._put("create", config, fields, timeout)

    def _put(
        self,
        action: Action,
        config: object | None,
        fields: dict[str, Any],
        timeout: Seconds | None,
    ) -> Consumer:
        info = management.upsert_consumer(
            self._api, self.name, action, config, fields, timeout
        )
        return Consumer(self._api, info.stream_name, info.name, info)

    def update_consumer(
        self,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Consumer:
        """Change the configuration of a pull consumer. Blocks.

        Args:
            config: A whole configuration. Fields that are not set get the server's
                default.
            timeout: Seconds to wait. Default: the context's.
            **fields: The name of the consumer as `durable_name` or `name`, and the
                fields to change. All other fields stay as they are. None resets a field
                to the server's default.

        Returns:
            The consumer.

        Raises:
            ConsumerNotFoundError: The stream has no consumer of that name.
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            UnsupportedFeatureError: The server is too old for a field. Nothing is sent.
            APIError: The server rejects the change.
        """
        return self._put("update", config, fields, timeout)

    @explain_arguments
    def create_or_update_consumer(
        self,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Consumer:
        """Create a pull consumer, or give an existing one this configuration. Blocks.

        Args:
            config: A `ConsumerConfig`, a mapping, or an object with `as_dict()`.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `ConsumerConfig` as keywords, instead of `config`.
                They are a whole configuration: other fields get the server's default.

        Returns:
            The consumer.

        Raises:
            StreamNotFoundError: The stream does not exist.
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            UnsupportedFeatureError: The server is too old for a field. Nothing is sent.
            APIError: The server rejects the configuration or the change.
        """
        return self._put("", config, fields, timeout)

    @explain_arguments
    def consumer(self, name: str, *, timeout: Seconds | None = None) -> Consumer:
        """Get an existing pull consumer, with its info. Blocks.

        You can also get a push consumer, for example to delete it, but pulling from it
        raises `ConsumerDeletedError`. `push_consumer` reads it.

        Args:
            name: The name of the consumer.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The consumer.

        Raises:
            ConsumerNotFoundError: The stream has no consumer of that name.

        Example:
            ```python
            stream.create_consumer(durable_name="billing")
            consumer = stream.consumer("billing")
            print(consumer.info().num_pending)
            ```
        """
        info = management.consumer_info(self._api, self.name, name, timeout)
        return Consumer(self._api, info.stream_name, info.name, info)

    def create_push_consumer(
        self,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PushConsumer:
        """Create a push consumer, to whose `deliver_subject` the server sends. Blocks.

        Everything else is as with `create_consumer`, errors included.

        Args:
            config: A `ConsumerConfig`, a mapping, or an object with `as_dict()`.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `ConsumerConfig` as keywords, instead of `config`.

        Returns:
            The consumer.
        """
        return put_push_consumer(
            self._api, self.name, "create", config, fields, timeout
        )

    def update_push_consumer(
        self,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PushConsumer:
        """Change the configuration of a push consumer. Blocks.

        Everything else is as with `update_consumer`, errors included.

        Args:
            config: A whole configuration. Fields that are not set get the server's
                default.
            timeout: Seconds to wait. Default: the context's.
            **fields: The name of the consumer as `durable_name` or `name`, and the
                fields to change.

        Returns:
            The consumer.
        """
        return put_push_consumer(
            self._api, self.name, "update", config, fields, timeout
        )

    def create_or_update_push_consumer(
        self,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PushConsumer:
        """Create a push consumer, or give an existing one this configuration. Blocks.

        Everything else is as with `create_or_update_consumer`, errors included.

        Args:
            config: A `ConsumerConfig`, a mapping, or an object with `as_dict()`.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `ConsumerConfig` as keywords, instead of `config`.

        Returns:
            The consumer.
        """
        return put_push_consumer(self._api, self.name, "", config, fields, timeout)

    def push_consumer(
        self, name: str, *, timeout: Seconds | None = None
    ) -> PushConsumer:
        """Get an existing push consumer, with its info. Blocks.

        Args:
            name: The name of the consumer.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The consumer.

        Raises:
            ConsumerNotFoundError: The stream has no consumer of that name.
            PullRequiredError: It is a pull consumer.
        """
        return push_consumer(self._api, self.name, name, timeout)

    def ordered_consumer(self, **options: Unpack[OrderedOptions]) -> OrderedConsumer:
        """Read the stream in exact order, each message once, whatever happens.

        The call blocks while it creates the first consumer. With `deliver_policy="new"`
        you read every message that is published after the call. If the consumer is
        lost, jsync recreates it, and you miss no message and get none twice. With
        `last_per_subject` there is one exception: if a subject got a newer message
        before you read the old one, you get only the newer message.

        Args:
            **options: The options of `OrderedOptions`.

        Returns:
            The ordered consumer, to be used in a `with` statement.

        Raises:
            StreamNotFoundError: The stream does not exist.
            ConfigError: An option has a value that is not allowed. Nothing is sent.
            APIError: The server rejects the consumer.

        Example:
            ```python
            with stream.ordered_consumer(filter_subjects=["orders.new"]) as reader:
                for msg in reader.fetch_nowait(100):
                    print(msg.data)
            ```
        """
        return ordered_consumer(self._api, self.name, options)

    def delete_consumer(self, name: str, *, timeout: Seconds | None = None) -> None:
        """Delete a consumer. Blocks.

        Args:
            name: The name of the consumer.
            timeout: Seconds to wait. Default: the context's.

        Raises:
            ConsumerNotFoundError: The stream has no consumer of that name.
        """
        management.delete_consumer(self._api, self.name, name, timeout)

    def consumers(self, *, timeout: Seconds | None = None) -> Iterator[Consumer]:
        """Iterate over the consumers of the stream, in the order of their names.

        Iterating blocks while jsync requests the next page of up to 256 consumers.
        If some are created or deleted during the iteration, you still get the others
        exactly once.

        Args:
            timeout: Seconds to wait for each page. Default: the context's.

        Returns:
            An iterator over the consumers.

        Raises:
            IncompleteListError: Raised at the end, if some consumers did not answer.
                They are offline or have no leader, and the error names them.

        Example:
            ```python
            stream.create_consumer(durable_name="billing")
            for consumer in stream.consumers():
                print(consumer.name, consumer.cached_info.num_pending)
            ```
        """
        infos = management.consumers(self._api, self.name, timeout)
        return (Consumer(self._api, self.name, info.name, info) for info in infos)

    def consumer_names(self, *, timeout: Seconds | None = None) -> Iterator[str]:
        """Iterate over the names of the consumers of the stream.

        Iterating blocks while jsync requests the next page of up to 1024 names.
        If some are created or deleted during the iteration, you still get the others
        exactly once.

        Args:
            timeout: Seconds to wait for each page. Default: the context's.

        Returns:
            An iterator over the names.
        """
        return management.consumer_names(self._api, self.name, timeout)

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"


def stream_from_info(api: API, info: StreamInfo) -> Stream:
    return Stream(api, info.config.name or "", info)
