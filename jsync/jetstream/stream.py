"""Streams: what they hold, and their consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..checks import whole
from ..errors import NoCachedInfoError
from . import management
from .consumer import Consumer
from .ordered.arrow import READ_ROWS, ArrowRange
from .ordered.consumer import ordered_consumer
from .pulls.arrow import AHEAD_BYTES
from .push.consumer import push_consumer, put_push_consumer
from .stored import get as stored
from .stored.engine import (
    MOST_SUBJECTS,
    PAGE_BYTES,
    PAGE_MESSAGES,
    LastOfEach,
    Range,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime
    from typing import Unpack

    from ..checks import Seconds
    from ..models import (
        ConsumerConfig,
        ConsumerInfo,
        StoredMessage,
        StreamConfig,
        StreamInfo,
    )
    from .api import API
    from .management import Action
    from .ordered.consumer import OrderedConsumer, OrderedOptions
    from .push.consumer import PushConsumer


class Stream:
    """A stream, as `JetStream.create_stream`, `stream` or `bind_stream` gives it.

    Any thread may use it.
    """

    def __init__(self, api: API, name: str, info: StreamInfo | None = None) -> None:
        """One that is bound without `info` asks the server nothing."""
        self._api = api
        self._name = name
        self._info = info

    @property
    def name(self) -> str:
        """Its name on the server."""
        return self._name

    @property
    def cached_info(self) -> StreamInfo:
        """What the server last said of it; asks nothing.

        Raises `NoCachedInfoError` when nothing has been asked yet, as after
        `JetStream.bind_stream`.
        """
        if self._info is None:
            raise NoCachedInfoError(
                f"stream {self._name} was bound without asking the server: call info()"
            )
        return self._info

    @property
    def config(self) -> StreamConfig:
        """Its configuration, as of `cached_info`."""
        return self.cached_info.config

    # The stream -----------------------------------------------------------------------

    def info(
        self,
        *,
        deleted_details: bool = False,
        subjects_filter: str | None = None,
        timeout: Seconds | None = None,
    ) -> StreamInfo:
        """Ask the server; blocks. Raises `StreamNotFoundError`.

        With `deleted_details`, `state.deleted` has the sequences that are gone. With
        `subjects_filter`, `>` for all, `state.subjects` has how many messages each
        matching subject has; they are asked for 100,000 at a time.
        """
        self._info = management.stream_info(
            self._api,
            self.name,
            deleted_details=deleted_details,
            subjects_filter=subjects_filter,
            timeout=timeout,
        )
        return self._info

    def update(
        self,
        config: StreamConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **changes: Any,
    ) -> StreamInfo:
        """Give it a whole configuration, or change what keywords name. Blocks.

        Like `JetStream.update_stream`.
        """
        self._info = management.update_stream(
            self._api, config, changes, timeout, name=self.name
        )
        return self._info

    def purge(
        self,
        *,
        subject: str | None = None,
        sequence: int | None = None,
        keep: int | None = None,
        timeout: Seconds | None = None,
    ) -> int:
        """Delete messages, and return how many; blocks.

        All of them, or those whose subject matches `subject`, wildcards allowed; of these
        only the ones before `sequence`, or all but the last `keep`: `ConfigError` for both.
        Raises `StreamPurgeError` when the stream has `deny_purge`, `StreamSealedError`.
        """
        return management.purge_stream(
            self._api,
            self.name,
            subject=subject,
            sequence=sequence,
            keep=keep,
            timeout=timeout,
        )

    def delete(self, *, timeout: Seconds | None = None) -> None:
        """Delete it with all its messages and consumers; blocks.

        Raises `StreamNotFoundError`.
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
        """One message: at a sequence, the last of a subject, or the next one. Blocks.

        `next_by_subject` gives the first that matches at or after `sequence`, or at or
        after `start_time` (nats-server 2.11), or of all; subjects may have wildcards.
        Raises `MessageNotFoundError`, and `ConfigError` for what cannot be combined.

        A stream with `allow_direct` is read by a direct get: whichever server has a
        replica or a mirror answers, which is quick, and may be a moment behind what was
        last published. `direct=False` asks the leader. So does a stream that was bound
        without asking, until you call `info`.
        """
        direct = direct and self._info is not None and bool(self.config.allow_direct)
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
        """Iterate over the messages of a subject, wildcards allowed, in their order.

        From `sequence` or `start_time`, or the first, until there is none left, what is
        published meanwhile included; or until `up_to_sequence`, that one included, the
        last before `up_to_time`, or `max_messages`. They are asked for as they are
        iterated over, `batch` messages or `max_bytes` at a time, which is what is held in
        memory at most. Unlike a consumer this leaves no trace on the server, and has
        neither acks nor redeliveries. The iterator is for one thread at a time.

        Iterating blocks, `timeout` seconds at most for each message. What does not come,
        for a lost connection or a server that ended, is asked for again from there; then
        raises `TimeoutError`, or `ConnectionLostError` when it is lost again and again.
        `DirectGetNotAllowedError` says that the stream has no `allow_direct`. Needs
        nats-server 2.11 (ADR-31).
        """
        pages = Range(
            subject,
            sequence=sequence,
            start_time=start_time,
            up_to_sequence=up_to_sequence,
            up_to_time=up_to_time,
            max_messages=max_messages,
            batch=batch,
            max_bytes=max_bytes,
        )
        return stored.get_messages(self._api, self.name, pages, timeout)

    def get_last_messages(
        self,
        subjects: str | Iterable[str],
        *,
        up_to_sequence: int | None = None,
        up_to_time: datetime | None = None,
        batch: int = MOST_SUBJECTS,
        max_bytes: int = PAGE_BYTES,
        timeout: Seconds | None = None,
    ) -> Iterator[StoredMessage]:
        """Iterate over the last message of each subject that matches, oldest first.

        Each subject comes once: with its last message up to `up_to_sequence`, or before
        `up_to_time`, if that is still there; else with what is its last when its part of
        the answer is made. Everything else is as with `get_messages`. Raises
        `TooManyResultsError` when more than 1024 subjects match. Needs nats-server 2.11
        (ADR-31).
        """
        pages = LastOfEach(
            subjects,
            up_to_sequence=up_to_sequence,
            up_to_time=up_to_time,
            batch=batch,
            max_bytes=max_bytes,
        )
        return stored.get_messages(self._api, self.name, pages, timeout)

    def read_arrow(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter_subjects: str | Iterable[str] | None = None,
        headers_only: bool = False,
        max_rows: int = READ_ROWS,
        max_bytes: int = AHEAD_BYTES,
        inactive_threshold: float | None = None,
        timeout: Seconds | None = None,
    ) -> ArrowRange:
        """The messages from sequence `start` to `end`, both included, as Arrow.

        Without an object for each message; what has been deleted is not in it. By default
        from the first to the last that the stream holds now, of all subjects: for that the
        call asks for the stream, which blocks, `timeout` seconds at most, and raises
        `StreamNotFoundError`. What it returns is read when something takes it, as
        `pyarrow.table(...)`, `polars.DataFrame(...)` and DuckDB do, or by iterating over it.
        It reads as an `OrderedConsumer` does, in exact order, whatever happens to the
        server; `max_bytes` are asked for ahead. See `ArrowBatch` for the columns, of which
        `columns` names those that are wanted, in that order; a batch has `max_rows` or
        fewer. With `headers_only` no payloads are sent: `data` is empty, and the headers
        have its size as `Nats-Msg-Size`. If the program crashes, the server deletes the
        consumer after `inactive_threshold` seconds: by default 30, or less if the stream's
        `consumer_limits` say so.
        """
        start = whole(1 if start is None else start, "start", 1)
        if end is not None:
            end = whole(end, "end", 0)
        last = self.info(timeout=timeout).state.last_seq
        return ArrowRange(
            self._api,
            self.name,
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
        """Delete one message; blocks. On the disk it may stay until it is overwritten.

        Raises `MessageNotFoundError`, `MessageDeleteError` when the stream has
        `deny_delete`.
        """
        stored.delete_message(
            self._api, self.name, sequence, erase=False, timeout=timeout
        )

    def secure_delete_message(
        self, sequence: int, *, timeout: Seconds | None = None
    ) -> None:
        """Like `delete_message`, and overwrite it with random bytes; slower."""
        stored.delete_message(
            self._api, self.name, sequence, erase=True, timeout=timeout
        )

    # Its consumers --------------------------------------------------------------------

    def create_consumer(
        self,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Consumer:
        """Create a consumer from a `ConsumerConfig`, or from its fields as keywords.

        Blocks. A durable one with the same name and configuration is returned as it is;
        with another configuration raises `ConsumerExistsError`, which names the fields
        that differ and has them as `differences`. So does any second one
        that has a `name` without an `inactive_threshold`: servers compare with the
        threshold that they have put in. Without `durable_name` or `name` it gets a
        random name, and goes when it is not used for `inactive_threshold` seconds.
        Raises `ConfigError` before anything is sent, `UnsupportedFeatureError` for fields
        that the server is too old for, and `APIError` for what it refuses.
        """
        return put_consumer(self._api, self.name, "create", config, fields, timeout)

    def update_consumer(
        self,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Consumer:
        """Give a consumer a whole configuration, or change what keywords name. Blocks.

        `durable_name` or `name` says which. A configuration replaces all, so that what is
        unset gets the server's default; keywords leave the rest as it is, None unsets.
        Raises `ConsumerNotFoundError`, and `APIError` for what cannot be changed.
        """
        return put_consumer(self._api, self.name, "update", config, fields, timeout)

    def create_or_update_consumer(
        self,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> Consumer:
        """Have a consumer be like this, whether or not there is one yet. Blocks.

        Keywords are a whole configuration, as with `create_consumer`.
        """
        return put_consumer(self._api, self.name, "", config, fields, timeout)

    def consumer(self, name: str, *, timeout: Seconds | None = None) -> Consumer:
        """The consumer of that name; blocks. Raises `ConsumerNotFoundError`."""
        info = management.consumer_info(self._api, self.name, name, timeout)
        return known_consumer(self._api, info)

    def create_push_consumer(
        self,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> PushConsumer:
        """Create a consumer that the server pushes: one with a `deliver_subject`. Blocks.

        Everything else is as with `create_consumer`.
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
        """Change a push consumer; blocks. As `update_consumer`."""
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
        """Have a push consumer be like this, whether or not there is one yet. Blocks.

        As `create_or_update_consumer`.
        """
        return put_push_consumer(self._api, self.name, "", config, fields, timeout)

    def push_consumer(
        self, name: str, *, timeout: Seconds | None = None
    ) -> PushConsumer:
        """The push consumer of that name; blocks.

        Raises `ConsumerNotFoundError`, and `PullRequiredError` for a pull consumer.
        """
        return push_consumer(self._api, self.name, name, timeout)

    def ordered_consumer(
        self,
        **options: Unpack[OrderedOptions],
    ) -> OrderedConsumer:
        """Read the stream in exact order, each message once, whatever happens.

        The call blocks while it creates the first consumer. With `deliver_policy="new"` you
        read every message that is published after the call. If the consumer is lost, jsync
        recreates it, and you miss no message and get none twice. With `last_per_subject`
        there is one exception: if a subject got a newer message before you read the old
        one, you get only the newer message.

        Raises `StreamNotFoundError`, `ConfigError` before anything is sent, and
        `APIError` for what the server refuses.
        """
        return ordered_consumer(self._api, self.name, options)

    def delete_consumer(self, name: str, *, timeout: Seconds | None = None) -> None:
        """Delete a consumer; blocks. Raises `ConsumerNotFoundError`."""
        management.delete_consumer(self._api, self.name, name, timeout)

    def consumers(self, *, timeout: Seconds | None = None) -> Iterator[Consumer]:
        """Iterate over its consumers; see `JetStream.consumers`."""
        return consumers(self._api, self.name, timeout)

    def consumer_names(self, *, timeout: Seconds | None = None) -> Iterator[str]:
        """Iterate over the names of its consumers; see `JetStream.consumer_names`."""
        return management.consumer_names(self._api, self.name, timeout)

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"


# What `JetStream` does as well, without asking for the stream first -------------------


def known_stream(api: API, info: StreamInfo) -> Stream:
    return Stream(api, info.config.name or "", info)


def known_consumer(api: API, info: ConsumerInfo) -> Consumer:
    return Consumer(api, info.stream_name, info.name, info)


def put_consumer(
    api: API,
    stream: str,
    action: Action,
    config: object | None,
    fields: dict[str, Any],
    timeout: Seconds | None,
) -> Consumer:
    info = management.put_consumer(api, stream, action, config, fields, timeout)
    return known_consumer(api, info)


def consumers(api: API, stream: str, timeout: Seconds | None) -> Iterator[Consumer]:
    infos = management.consumers(api, stream, timeout)
    return (known_consumer(api, info) for info in infos)
