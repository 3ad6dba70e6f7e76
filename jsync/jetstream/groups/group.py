"""A consumer group: its members, their partitions, its lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...core.resources import NotCopyable
from ...errors import (
    ConfigError,
    ConsumerGroupNotFoundError,
    ConsumerNotFoundError,
    KeyNotFoundError,
    WrongRevisionError,
)
from ...models import check_name
from ...validation import check_count, check_optional_callable, check_positive_seconds
from .. import management
from ..consumer import Consumer
from .engine import (
    ACK_WAIT,
    GroupMemberInfo,
    consumer_name,
    key_of,
    member_consumer,
    read_config,
    stream_of,
    with_mappings,
    with_members,
    write_config,
)
from .member import GroupMember
from .member_loop import Membership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ...models import ConsumerInfo
    from ...validation import Seconds
    from ..api import API
    from ..keyvalue.bucket import KeyValue
    from .engine import ConsumerGroupConfig, GroupKind

MAX_ATTEMPTS: Final = 20
"""The attempts of a change while other programs change the same configuration."""


class ConsumerGroup(NotCopyable):
    """A consumer group: members that share the partitions of a stream by key.

    `create_consumer_group` and `consumer_group` of `JetStream` return it. Any thread may
    use it. Groups need nats-server 2.11. orbit.go's `pcgroups` are the same
    groups, whose members may be in the same group.

    Example:
        ```python
        group = js.create_consumer_group(
            "ORDERS", "billing", partitions=4, filters={"orders.*": [1]}
        )
        group.add_members("a", "b")
        print(group.lag())
        ```
    """

    def __init__(
        self,
        api: API,
        bucket: KeyValue,
        kind: GroupKind,
        stream: str,
        name: str,
        config: ConsumerGroupConfig,
    ) -> None:
        self._api, self._bucket = api, bucket
        self._kind, self._stream, self._name = kind, stream, name
        self._config = config
        self._key = key_of(stream, name)
        self._reads = stream_of(kind, stream, name)

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._name

    @property
    def stream_name(self) -> str:
        """The stream that the group is for."""
        return self._stream

    @property
    def kind(self) -> GroupKind:
        """`elastic`, or `static`."""
        return self._kind

    @property
    def config(self) -> ConsumerGroupConfig:
        """The latest configuration that was read. Sends nothing."""
        return self._config

    def info(self) -> ConsumerGroupConfig:
        """Get the configuration from the server. Blocks.

        Returns:
            The configuration, which `config` keeps.

        Raises:
            ConsumerGroupNotFoundError: The group was deleted.
            InvalidConsumerGroupError: The stored configuration is not valid.
        """
        self._read()
        return self._config

    def _read(self) -> tuple[bytes, int]:
        try:
            entry = self._bucket.get(self._key)
        except KeyNotFoundError as error:
            raise group_not_found_error(self._stream, self._name) from error
        self._config = read_config(self._kind, entry.value, self._key)
        return entry.value, entry.revision

    # Members --------------------------------------------------------------------------

    def add_members(self, *members: str) -> tuple[str, ...]:
        """Add members to an elastic group. Running members share the partitions again.

        Blocks. A member that is in the group already stays.

        Args:
            *members: The names of the members.

        Returns:
            The members of the group.

        Raises:
            ConfigError: The group is static, or has mappings, or would have more members than
                partitions, or a name is not allowed. Nothing is changed.
            ConsumerGroupNotFoundError: The group was deleted.
        """

        def change(config: ConsumerGroupConfig) -> ConsumerGroupConfig:
            self._check_list(config)
            changed = with_members(config, (*config.members, *members))
            if {*changed.members} > {*config.members}:
                # One member too many would take the partitions of another one.
                self._check_room(changed)
            return changed

        return self._change(change).members

    def delete_members(self, *members: str) -> tuple[str, ...]:
        """Drop members from an elastic group. Others get their partitions.

        Blocks. A dropped member that still runs finishes its message, and then waits until
        it is added again.

        Args:
            *members: The names of the members. A name that is no member changes nothing.

        Returns:
            The members of the group.

        Raises:
            ConfigError: The group is static, or has mappings.
            ConsumerGroupNotFoundError: The group was deleted.
        """

        def change(config: ConsumerGroupConfig) -> ConsumerGroupConfig:
            self._check_list(config)
            left = [name for name in config.members if name not in members]
            return with_members(config, left)

        return self._change(change).members

    def set_mappings(self, mappings: Mapping[str, Iterable[int]]) -> None:
        """Give each member of an elastic group its partitions, instead of equal shares.

        Blocks.

        Args:
            mappings: The partitions of each member. Each partition has one member. An
                empty mapping removes all of them, and you add members again.

        Raises:
            ConfigError: The group is static, or a partition has no member or two.
            ConsumerGroupNotFoundError: The group was deleted.

        Example:
            ```python
            group = js.create_consumer_group(
                "ORDERS", "billing", partitions=4, filters={"orders.*": [1]}
            )
            group.set_mappings({"a": [0, 1], "b": [2, 3]})
            print(group.members())
            ```
        """
        self._change(lambda config: with_mappings(config, mappings))

    def _check_list(self, config: ConsumerGroupConfig) -> None:
        if config.mappings:
            raise ConfigError(
                f"group {self._name!r} has mappings: change them with set_mappings, or end them "
                "with set_mappings({})"
            )

    def _check_room(self, config: ConsumerGroupConfig) -> None:
        if len(config.members) > config.partitions:
            raise ConfigError(
                f"group {self._name!r} would have more members than its "
                f"{config.partitions} partitions: {', '.join(config.members)}; first drop "
                "members that do not run any more, with ConsumerGroup.delete_members or jsync group drop"
            )

    def _change(
        self, change: Callable[[ConsumerGroupConfig], ConsumerGroupConfig]
    ) -> ConsumerGroupConfig:
        if self._kind == "static":
            raise ConfigError(
                f"group {self._name!r} is static: its members never change; delete the "
                "group and create it"
            )
        for tries in range(1, MAX_ATTEMPTS + 1):
            before, revision = self._read()
            changed = change(self._config)
            if changed == self._config:
                break
            data = write_config(changed, before)
            try:
                self._bucket.update(self._key, data, last=revision)
            except WrongRevisionError:
                if tries == MAX_ATTEMPTS:
                    raise
                continue
            self._config = changed
            break
        return self._config

    def members(self) -> list[GroupMemberInfo]:
        """List the members, their partitions, and the state of their consumers. Blocks.

        Returns:
            The members, in the order of their partitions.

        Raises:
            ConsumerGroupNotFoundError: The group was deleted.

        Example:
            ```python
            group = js.create_consumer_group(
                "ORDERS", "billing", partitions=4, filters={"orders.*": [1]}
            )
            group.add_members("a", "b")
            print(group.members())
            ```
        """
        config = self.info()
        return [self._member_info(config, name) for name in config.member_names]

    def _member_info(self, config: ConsumerGroupConfig, name: str) -> GroupMemberInfo:
        partitions = config.partitions_of(name)
        info = self._consumer_info(name)
        if info is None:
            return GroupMemberInfo(name=name, partitions=partitions)
        pinned = any(state.pinned_client_id for state in info.priority_groups or ())
        return GroupMemberInfo(
            name=name,
            partitions=partitions,
            active=pinned or info.num_waiting > 0,
            pinned=pinned,
            waiting=info.num_waiting,
            pending=info.num_pending,
            ack_pending=info.num_ack_pending,
        )

    def _consumer_info(self, member: str) -> ConsumerInfo | None:
        name = consumer_name(self._kind, self._name, member)
        try:
            return management.consumer_info(self._api, self._reads, name)
        except ConsumerNotFoundError:
            return None

    def lag(self) -> dict[int, int]:
        """Count the messages of each partition that are not acknowledged yet. Blocks.

        An elastic group also has messages that its own stream has not copied yet. `source_lag`
        counts those. In a static group on a stream that keeps its messages, the members
        that have not joined yet count from the beginning of the stream.

        Returns:
            The messages of each partition.

        Raises:
            ConsumerGroupNotFoundError: The group was deleted.

        Example:
            ```python
            group = js.create_consumer_group(
                "ORDERS", "billing", partitions=4, filters={"orders.*": [1]}
            )
            print(group.lag())
            ```
        """
        config = self.info()
        if self._kind == "elastic":
            return self._stored(config)
        retention = management.stream_info(self._api, self._reads).config.retention
        if retention == "workqueue":
            return self._stored(config)
        # Servers refuse fewer replicas than a stream has that keeps messages for consumers.
        replicas = 1 if retention == "limits" else None
        floors = {}
        for name in config.member_names:
            info = self._consumer_info(name)
            floors[name] = 0 if info is None else info.ack_floor.stream_seq
        owners = config.assignment()
        return {
            number: self._after(
                config, number, floors.get(owners.get(number, ""), 0), replicas
            )
            for number in range(config.partitions)
        }

    def _stored(self, config: ConsumerGroupConfig) -> dict[int, int]:
        """Count the stored messages by partition: in a work queue, none is acknowledged."""
        lag = dict.fromkeys(range(config.partitions), 0)
        info = management.stream_info(self._api, self._reads, subjects_filter=">")
        for subject, messages in (info.state.subjects or {}).items():
            first = subject.partition(".")[0]
            if first.isdecimal() and int(first) in lag:
                lag[int(first)] += messages
        return lag

    def _after(
        self,
        config: ConsumerGroupConfig,
        number: int,
        floor: int,
        replicas: int | None,
    ) -> int:
        """Count the messages of a partition after a sequence, by a temporary consumer."""
        subjects = [f"{number}.{subject}" for subject in config.filters or (">",)]
        if config.mappings:
            subjects = [f"{number}.>"]
        fields = {
            "filter_subjects": subjects,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": floor + 1,
            "ack_policy": "none",
            "inactive_threshold": 5.0,
            "mem_storage": True,
            "num_replicas": replicas,
        }
        info = management.upsert_consumer(
            self._api, self._reads, "create", None, fields, None
        )
        management.delete_consumer(self._api, self._reads, info.name)
        return info.num_pending

    def source_lag(self) -> int:
        """Count the messages that the stream of an elastic group has not copied yet. Blocks.

        Returns:
            The number of messages. 0 for a static group, which copies nothing.
        """
        if self._kind == "static":
            return 0
        info = management.stream_info(self._api, self._reads)
        return sum(source.lag for source in info.sources or ())

    def step_down(self, member: str) -> None:
        """Have the server serve another instance of a member. Blocks.

        If there is no other instance, the server serves the same one again.

        Args:
            member: The name of the member.

        Raises:
            ConsumerNotFoundError: No instance of the member is in the group.
            PriorityGroupError: The consumer of the member is not one of a group.
        """
        check_name(member, "member")
        name = consumer_name(self._kind, self._name, member)
        info = management.consumer_info(self._api, self._reads, name)
        consumer = Consumer(self._api, self._reads, name, info)
        for group in info.config.priority_groups or ():
            consumer.unpin(group)

    # At work --------------------------------------------------------------------------

    def join(
        self,
        member: str,
        *,
        ack_wait: Seconds = ACK_WAIT,
        max_ack_pending: int = 1,
        on_error: Callable[[Exception], object] | None = None,
    ) -> GroupMember:
        """Read the messages of a member. Blocks until the configuration is read.

        You may join an elastic group before the member is added. Join as the same member
        from several processes for a standby: the server serves one of them, and another
        one if that one is silent for `ack_wait`. All of them need the same `ack_wait` and
        `max_ack_pending`.

        Args:
            member: The name of the member.
            ack_wait: Seconds until the server redelivers the message of a member that is
                dead, and serves another instance. At least 1. Default: 5.
            max_ack_pending: The most messages without an ack. With more than 1, messages
                of the same key may be handled before one that failed. Default: 1.
            on_error: Called with each error that does not end the member, on the
                connection's callback thread. Default: the connection's `on_error`.

        Returns:
            The member, to be used in a `with` statement.

        Raises:
            ConsumerGroupNotFoundError: The group was deleted.
            NotInConsumerGroupError: The static group has no such member.
            InvalidConsumerGroupError: The stored configuration is not valid.
            ConfigError: An argument is not valid. Nothing is sent.
            UnsupportedFeatureError: The server is older than 2.11. Raised by reading.

        Example:
            ```python
            group = js.create_consumer_group(
                "ORDERS", "billing", partitions=4, filters={"orders.*": [1]}
            )
            group.add_members("a")
            member = group.join("a")
            print(member.next(timeout=10).data)
            member.stop()
            ```
        """
        check_name(member, "member")
        wait = check_positive_seconds(ack_wait, "ack_wait")
        if wait < 1:
            raise ConfigError(
                f"ack_wait has to be at least 1 second, not {ack_wait!r}: the server does "
                "not pin a client for less"
            )
        limit = check_count(max_ack_pending, "max_ack_pending", 1)
        check_optional_callable(on_error, "on_error")
        membership = Membership(
            self._api,
            self._bucket,
            self._kind,
            self._stream,
            self._name,
            member,
            ack_wait=wait,
            max_ack_pending=limit,
            on_error=on_error,
        )
        template = member_consumer(self._config, self._name, member, wait, limit)
        return GroupMember(membership, template, self._api.timeout)

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self._name!r} of {self._stream!r}, {self._kind}>"


def group_not_found_error(stream: str, name: str) -> ConsumerGroupNotFoundError:
    """Return the error for a group that does not exist."""
    return ConsumerGroupNotFoundError(
        f"stream {stream!r} has no consumer group {name!r}; create it with "
        "create_consumer_group"
    )
