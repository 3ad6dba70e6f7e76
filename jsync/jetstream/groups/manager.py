"""The methods of `JetStream` that create, find and delete consumer groups."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

from ...errors import (
    APIError,
    BucketExistsError,
    BucketNotFoundError,
    ConfigError,
    ConsumerGroupExistsError,
    ConsumerNotFoundError,
    Error,
    InvalidConsumerGroupError,
    InvalidKeyError,
    InvalidStreamConfigError,
    KeyDeletedError,
    KeyExistsError,
    KeyNotFoundError,
    StreamNotFoundError,
)
from ...models import check_name
from .. import management
from ..features import PRIORITY_GROUPS, WHOLE_SUBJECTS
from ..keyvalue.manager import KeyValueManager
from .engine import (
    BUCKETS,
    consumer_name,
    group_config,
    group_stream,
    is_group_stream,
    is_member_consumer,
    key_of,
    read_config,
    stream_of,
    write_config,
)
from .group import ConsumerGroup, group_not_found_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ...models import StreamConfig
    from ..keyvalue.bucket import KeyValue
    from .engine import ConsumerGroupConfig, Filters, GroupFormat, GroupKind

BUCKET_BYTES: Final = 4 << 20
"""The `max_bytes` of the bucket of all groups, if the account requires one."""
MAX_BYTES_REQUIRED: Final = 10113
"""The error code for a stream without `max_bytes`, if the account requires it."""
_KINDS: Final[tuple[GroupKind, ...]] = ("elastic", "static")


class ConsumerGroupManager(KeyValueManager):
    """The part of `JetStream` that has consumer groups."""

    def create_consumer_group(
        self,
        stream: str,
        name: str,
        *,
        partitions: int,
        filters: Filters = None,
        members: Iterable[str] = (),
        mappings: Mapping[str, Iterable[int]] | None = None,
        kind: GroupKind = "elastic",
        max_buffered_messages: int | None = None,
        max_buffered_bytes: int | None = None,
        format: GroupFormat = "0.2",  # noqa: A002
    ) -> ConsumerGroup:
        """Create a consumer group by key. Blocks until the server has answered.

        An elastic group copies the messages to a stream of its own, `<stream>-<name>`,
        which numbers the partitions. A static group reads the stream itself, whose
        subjects begin with the partition. If the group exists with the same configuration,
        nothing is changed. Needs nats-server 2.11.

        Args:
            stream: The stream.
            name: The name of the group.
            partitions: The number of partitions, which is also the most members. It never
                changes.
            filters: The subjects of the group, with `*` or a `>` at the end. By default
                the whole subject is the key, which needs nats-server 2.12 in an elastic
                group. A mapping gives the wildcards that are the
                key, counted from 1: `{"orders.*.*": [1]}`. Default: all subjects.
            members: The first members. They share the partitions evenly.
            mappings: The partitions of each member, instead of `members`.
            kind: `elastic`: members come and go. `static`: the members never change.
            max_buffered_messages: The most messages of the group's own stream. When it is
                full, the server waits for at least a second. Default: no limit.
            max_buffered_bytes: The most bytes of the group's own stream. Default: no limit,
                which an account may refuse.
            format: The version of orbit.go's `pcgroups` that has to read the
                configuration. Default: 0.2.

        Returns:
            The group. Its `config` is the stored one: the members of an elastic group that
            exists may be others than `members`.

        Raises:
            ConsumerGroupExistsError: The group exists with another configuration.
            StreamNotFoundError: The stream does not exist.
            ConfigError: An argument is not valid. Nothing is sent.
            UnsupportedFeatureError: The server is older than 2.11, or than 2.12 with a
                whole subject as the key. Nothing is sent.

        Example:
            ```python
            group = js.create_consumer_group(
                "ORDERS", "billing", partitions=4, filters={"orders.*": [1]}
            )
            group.add_members("a", "b")
            ```
        """
        key = key_of(stream, name)
        requested = group_config(
            kind,
            partitions,
            filters,
            members,
            mappings,
            max_buffered_messages,
            max_buffered_bytes,
            format,
        )
        whole = requested.kind == "elastic" and not all(
            requested.filters.values() or [()]
        )
        self._api.require(
            {**PRIORITY_GROUPS, **WHOLE_SUBJECTS} if whole else PRIORITY_GROUPS
        )
        source = management.stream_info(self._api, stream).config
        bucket = self._make_bucket(requested.kind, source)
        revision = None
        try:
            revision = seen = bucket.create(key, write_config(requested))
        except KeyExistsError as error:
            seen = error.revision or 0
            self._check_same(bucket, stream, name, requested)
        if requested.kind == "elastic":
            own = group_stream(requested, source, name)
            try:
                management.create_stream(self._api, own, {}, None)
            except APIError as error:
                if revision is not None:
                    with contextlib.suppress(Error):
                        bucket.delete(key, last=revision)
                if error.err_code == MAX_BYTES_REQUIRED:
                    raise ConfigError(
                        "the account requires a limit for each stream: give "
                        "max_buffered_bytes for that of the group"
                    ) from error
                raise
        # Another program may have created the group, or have changed its members.
        try:
            stored = read_config(requested.kind, bucket.get(key).value, key)
        except KeyNotFoundError as error:
            # A marker that is older than the configuration shows no deletion of it.
            if isinstance(error, KeyDeletedError) and error.revision > seen:
                self._delete_rest(requested.kind, stream, name)
            raise group_not_found_error(stream, name) from error
        return ConsumerGroup(self._api, bucket, requested.kind, stream, name, stored)

    def _group_bucket(self, kind: GroupKind) -> KeyValue:
        """Get the bucket of all groups of a kind, as its leader has it.

        A group, and each of its members, reads its configuration from this bucket.
        """
        return self.key_value(BUCKETS[kind])._from_leader()

    def _make_bucket(self, kind: GroupKind, source: StreamConfig) -> KeyValue:
        with contextlib.suppress(BucketNotFoundError):
            return self._group_bucket(kind)
        # Another program may create the bucket at the same time.
        with contextlib.suppress(BucketExistsError):
            create = partial(
                self.create_key_value,
                bucket=BUCKETS[kind],
                replicas=source.num_replicas or 1,
            )
            try:
                create()
            except InvalidStreamConfigError as error:
                if error.err_code != MAX_BYTES_REQUIRED:
                    raise
                create(max_bytes=BUCKET_BYTES)
        return self._group_bucket(kind)

    def _check_same(
        self, bucket: KeyValue, stream: str, name: str, requested: ConsumerGroupConfig
    ) -> None:
        key = key_of(stream, name)
        try:
            existing = read_config(requested.kind, bucket.get(key).value, key)
        except KeyNotFoundError as error:
            raise group_not_found_error(stream, name) from error
        if not requested.is_compatible(existing):
            raise ConsumerGroupExistsError(
                f"consumer group {key!r} exists as {existing!r}; bind to it with "
                "consumer_group, or delete it first"
            )

    def consumer_group(
        self, stream: str, name: str, *, kind: GroupKind | None = None
    ) -> ConsumerGroup:
        """Get an existing consumer group. Blocks.

        Args:
            stream: The stream of the group.
            name: The name of the group.
            kind: `elastic` or `static`. Default: look for both, elastic first.

        Returns:
            The group.

        Raises:
            ConsumerGroupNotFoundError: The group does not exist.
            InvalidConsumerGroupError: The stored configuration is not valid.
            ConfigError: A name is not allowed, or `kind` is another word. Nothing is sent.

        Example:
            ```python
            js.create_consumer_group(
                "ORDERS", "billing", partitions=4, filters={"orders.*": [1]}
            )
            group = js.consumer_group("ORDERS", "billing")
            print(group.members())
            ```
        """
        key = key_of(stream, name)
        for group_kind in _kinds(kind):
            with contextlib.suppress(BucketNotFoundError, KeyNotFoundError):
                bucket = self._group_bucket(group_kind)
                config = read_config(group_kind, bucket.get(key).value, key)
                return ConsumerGroup(
                    self._api, bucket, group_kind, stream, name, config
                )
        raise group_not_found_error(stream, name)

    def delete_consumer_group(
        self, stream: str, name: str, *, kind: GroupKind | None = None
    ) -> None:
        """Delete a consumer group. Blocks.

        Its members end. The stream of an elastic group is deleted with all its messages,
        and so are the consumers of a static group. If a call fails half-way, call it again: it
        deletes the rest.

        Args:
            stream: The stream of the group.
            name: The name of the group.
            kind: `elastic` or `static`. Default: look for both, elastic first.

        Raises:
            ConsumerGroupNotFoundError: The group does not exist, and nothing of it is left.
            ConfigError: A name is not allowed, or `kind` is another word. Nothing is sent.
        """
        key_of(stream, name)  # checks the names
        kinds = _kinds(kind)
        # A group that exists comes before the rest of another one.
        for delete in (self._delete_stored, self._delete_rest):
            for group_kind in kinds:
                if delete(group_kind, stream, name):
                    return
        raise group_not_found_error(stream, name)

    def _delete_stored(self, kind: GroupKind, stream: str, name: str) -> bool:
        """Delete a group whose configuration exists. Return False if it does not."""
        key = key_of(stream, name)
        try:
            bucket = self._group_bucket(kind)
            bucket.get(key)
        except (BucketNotFoundError, KeyNotFoundError):
            return False
        # First, because members end only when their group is gone.
        bucket.delete(key)
        self._delete_rest(kind, stream, name)
        return True

    def _delete_rest(self, kind: GroupKind, stream: str, name: str) -> bool:
        """Delete the rest of a group without a configuration. Return False if none is left.

        Only streams and consumers that are recognised as parts of a group are deleted.
        """
        try:
            if kind == "static":
                return self._delete_consumers(stream, name)
            own = stream_of(kind, stream, name)
            config = management.stream_info(self._api, own).config
            if not is_group_stream(config, stream):
                return False
            management.delete_stream(self._api, own)
        except StreamNotFoundError:
            return False
        return True

    def _delete_consumers(self, stream: str, name: str) -> bool:
        """Delete the consumers of a static group. Return False if there are none.

        Their names begin with the name of the group. A group with a longer name may begin
        with the same name, but has a configuration, so its consumers are kept. If that
        configuration cannot be read, all consumers that begin with its name are kept.
        """
        kept: set[str] = set()
        unknown: tuple[str, ...] = ()  # prefixes of further names to keep
        for _, key, config in self._stored("static", f"{stream}.*"):
            other = key.removeprefix(f"{stream}.")
            if other == name:
                continue
            if config is None:
                unknown += (consumer_name("static", other, ""),)
            else:
                kept |= {consumer_name("static", other, m) for m in config.member_names}
        found = False
        for info in list(management.consumers(self._api, stream, None)):
            if (
                info.name.startswith(consumer_name("static", name, ""))
                and info.name not in kept
                and not info.name.startswith(unknown)
                and is_member_consumer(info.config)
            ):
                with contextlib.suppress(ConsumerNotFoundError):
                    management.delete_consumer(self._api, stream, info.name)
                    found = True
        return found

    def consumer_groups(self, stream: str | None = None) -> Iterator[ConsumerGroup]:
        """Iterate over the consumer groups, elastic ones first. Blocks.

        Groups whose configuration is not valid are left out, and so are keys of the bucket that
        are no group's.

        Args:
            stream: The stream of the groups. Default: all streams.

        Returns:
            An iterator over the groups.

        Raises:
            ConfigError: No stream may have that name. Nothing is sent.
        """
        if stream is not None:
            check_name(stream, "stream")
        filters = () if stream is None else (f"{stream}.*",)
        for kind in _KINDS:
            for bucket, key, config in self._stored(kind, *filters):
                of, _, name = key.partition(".")
                if config is None:
                    continue
                try:
                    group = ConsumerGroup(self._api, bucket, kind, of, name, config)
                except ConfigError:  # the key of another program
                    continue
                yield group

    def _stored(
        self, kind: GroupKind, *filters: str
    ) -> Iterator[tuple[KeyValue, str, ConsumerGroupConfig | None]]:
        """Iterate over the keys of a bucket with their configurations. None: unreadable."""
        try:
            bucket = self._group_bucket(kind)
        except BucketNotFoundError:
            return
        for key in sorted(bucket.keys(*filters)):
            config = None
            try:
                config = read_config(kind, bucket.get(key).value, key)
            except KeyNotFoundError:  # deleted since
                continue
            except (InvalidConsumerGroupError, InvalidKeyError):
                pass
            yield bucket, key, config


def _kinds(kind: GroupKind | None) -> tuple[GroupKind, ...]:
    """Return the kinds of groups to look for. Raises `ConfigError` for an unknown kind."""
    if kind is None:
        return _KINDS
    if kind in _KINDS:
        return (kind,)
    raise ConfigError(f"kind is elastic or static, not {kind!r}")
