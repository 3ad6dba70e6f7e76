"""Consumer groups by key: configurations, partitions, consumers, and a member's states.

The stored format is that of orbit.go's `pcgroups`. Pure: no socket, thread or clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec

from ...errors import ConfigError, InvalidConsumerGroupError
from ...models import ConsumerConfig, StreamConfig, check_filter, check_name
from ...validation import check_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...models import ConsumerInfo

GroupKind: TypeAlias = Literal["elastic", "static"]
"""`elastic`: members come and go. `static`: the list of members never changes."""
GroupFormat: TypeAlias = Literal["0.1", "0.2"]
"""The version of orbit.go's `pcgroups` that can read a configuration."""
Filters: TypeAlias = "Mapping[str, Sequence[int]] | Iterable[str] | str | None"

BUCKETS: Final[dict[GroupKind, str]] = {
    "elastic": "elastic-consumer-groups",
    "static": "static-consumer-groups",
}
PRIORITY_GROUP: Final = "PCG"
ACK_WAIT: Final = 5.0
"""The default of orbit.go in seconds. All other times follow from it."""
MIN_PRIORITY_TIMEOUT: Final = 1.0
"""The shortest time of a pin, in seconds."""
ALL: Final = ">"
STAR: Final = "*"
MAX_PARTITIONS: Final = 100_000


# Configurations -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerGroupConfig:
    """The configuration of a consumer group, as its bucket has it.

    Example:
        ```python
        group = js.create_consumer_group(
            "ORDERS", "billing", partitions=4, filters={"orders.*": [1]}
        )
        print(group.config.partitions, group.config.filters)
        ```
    """

    kind: GroupKind
    """`elastic` or `static`."""
    partitions: int
    """The number of partitions, which is also the most members."""
    filters: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The subjects of the group: the `*` wildcards of each that are the key, from 1.

    No numbers: the whole subject is the key. Empty: all subjects. Static groups have no
    numbers, because the partition is in the subject.
    """
    members: tuple[str, ...] = ()
    """The members, which share the partitions evenly."""
    mappings: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The partitions of each member, instead of `members`."""
    max_buffered_messages: int | None = None
    """The most messages of the group's own stream. None: no limit. Elastic groups only."""
    max_buffered_bytes: int | None = None
    """The most bytes of the group's own stream. None: no limit. Elastic groups only."""
    format: GroupFormat = "0.2"
    """The version of orbit.go's `pcgroups` that can read the configuration."""

    @property
    def member_names(self) -> tuple[str, ...]:
        """The members that have partitions, in the order of the partitions."""
        if self.mappings:
            return tuple(self.mappings)
        return tuple(sorted({*self.members}))[: self.partitions]

    def partitions_of(self, member: str) -> tuple[int, ...]:
        """The partitions of a member. Empty if it is no member.

        Args:
            member: The name of the member.

        Returns:
            The numbers, from 0.
        """
        if self.mappings:
            return self.mappings.get(member, ())
        assigned = self.assignment()
        return tuple(each for each, name in assigned.items() if name == member)

    def assignment(self) -> dict[int, str]:
        """The member of each partition that has one.

        Returns:
            The names of the members, by partition.
        """
        if self.mappings:
            return {
                partition: name
                for name, own in self.mappings.items()
                for partition in own
            }
        names = self.member_names
        if not names:
            return {}
        share = self.partitions // len(names)
        even = len(names) * share
        return {
            partition: names[
                partition // share if partition < even else partition - even
            ]
            for partition in range(self.partitions)
        }

    def is_compatible(self, other: ConsumerGroupConfig) -> bool:
        """Return whether a running member can change to another configuration.

        Args:
            other: The other configuration.

        Returns:
            True if only the members of an elastic group differ.
        """
        if self.kind == "static":
            return self == other
        return replace(self, members=(), mappings={}) == replace(
            other, members=(), mappings={}
        )


def group_config(
    kind: GroupKind,
    partitions: int,
    filters: Filters,
    members: Iterable[str],
    mappings: Mapping[str, Iterable[int]] | None,
    max_buffered_messages: int | None,
    max_buffered_bytes: int | None,
    format_: GroupFormat,
) -> ConsumerGroupConfig:
    """Check the arguments of a user, and return the configuration. Raises `ConfigError`."""
    if kind not in get_args(GroupKind):
        raise ConfigError(f"kind is elastic or static, not {kind!r}")
    if format_ not in get_args(GroupFormat):
        raise ConfigError(f"format is 0.2 or 0.1, not {format_!r}")
    if kind == "static" and (max_buffered_messages, max_buffered_bytes) != (None, None):
        raise ConfigError(
            "max_buffered_messages and max_buffered_bytes are for elastic groups: a static "
            "group has no stream of its own"
        )
    for limit, name in (
        (max_buffered_messages, "max_buffered_messages"),
        (max_buffered_bytes, "max_buffered_bytes"),
    ):
        if limit is not None:
            check_count(limit, name, 1, 1 << 62)
    config = ConsumerGroupConfig(
        kind=kind,
        partitions=check_count(partitions, "partitions", 1, MAX_PARTITIONS),
        filters=_filters(filters),
        members=_names(members),
        mappings=_mappings(mappings),
        max_buffered_messages=max_buffered_messages,
        max_buffered_bytes=max_buffered_bytes,
        format=format_,
    )
    fault = validate(config)
    if fault is not None:
        raise ConfigError(fault)
    return config


def _filters(filters: Filters) -> dict[str, tuple[int, ...]]:
    if filters is None:
        return {}
    if isinstance(filters, str):
        return {filters: ()}
    if hasattr(filters, "items"):
        return {
            each: _numbers(numbers, f"filters: {each!r}: the numbers of its wildcards")
            for each, numbers in filters.items()
        }
    if not isinstance(filters, Iterable):
        raise ConfigError(f"filters: subjects, or a mapping of them, not {filters!r}")
    return dict.fromkeys(filters, ())


def _numbers(numbers: object, what: str) -> tuple[int, ...]:
    if isinstance(numbers, str) or not isinstance(numbers, Iterable):
        raise ConfigError(f"{what} have to be a list, not {numbers!r}")
    return tuple(numbers)


def _names(members: Iterable[str]) -> tuple[str, ...]:
    if isinstance(members, str):
        raise ConfigError(f"members: a list of names, not the string {members!r}")
    if not isinstance(members, Iterable):
        raise ConfigError(f"members: a list of names, not {members!r}")
    return tuple(dict.fromkeys(members))


def _mappings(
    mappings: Mapping[str, Iterable[int]] | None,
) -> dict[str, tuple[int, ...]]:
    if mappings is None:
        return {}
    if not isinstance(mappings, Mapping):
        raise ConfigError(
            f"mappings: a mapping of members to partitions, not {mappings!r}"
        )
    return {
        name: _numbers(numbers, f"mappings: the partitions of {name!r}")
        for name, numbers in mappings.items()
    }


def with_members(
    config: ConsumerGroupConfig, members: Iterable[str]
) -> ConsumerGroupConfig:
    """Return `config` with other members. Raises `ConfigError` if they are not valid."""
    return _checked(replace(config, members=_names(members), mappings={}))


def with_mappings(
    config: ConsumerGroupConfig, mappings: Mapping[str, Iterable[int]]
) -> ConsumerGroupConfig:
    """Return `config` with other partitions for each member. Raises `ConfigError`."""
    return _checked(replace(config, members=(), mappings=_mappings(mappings)))


def _checked(config: ConsumerGroupConfig) -> ConsumerGroupConfig:
    fault = validate(config)
    if fault is not None:
        raise ConfigError(fault)
    return config


def validate(config: ConsumerGroupConfig) -> str | None:
    """Return why a configuration breaks the rules of orbit.go, or None if it does not."""
    try:
        for name in (*config.members, *config.mappings):
            check_name(name, "member")
        for subject in config.filters:
            check_filter(subject, "filters")
    except ConfigError as error:
        return str(error)
    if not 1 <= config.partitions <= MAX_PARTITIONS:
        return f"partitions: from 1 to {MAX_PARTITIONS}, not {config.partitions}"
    for each, numbers in config.filters.items():
        fault = _validate_filter(config, each, numbers)
        if fault is not None:
            return fault
    if config.format == "0.1" and config.kind == "elastic" and len(config.filters) != 1:
        return "format 0.1 needs exactly one filter, with its wildcards"
    if config.format == "0.1" and config.kind == "static" and config.filters:
        return "format 0.1 has no filters in static groups; use 0.2"
    if config.members and config.mappings:
        return "members and mappings: give one of them"
    if config.kind == "static" and not (config.members or config.mappings):
        return "a static group needs its members, or mappings, when it is created"
    return _validate_mappings(config)


def _validate_filter(
    config: ConsumerGroupConfig, filter_: str, numbers: tuple[int, ...]
) -> str | None:
    if config.kind == "static":
        if numbers:
            return f"filters: {filter_!r}: a static group takes no wildcards as its key"
        return None
    tokens = filter_.split(".")
    stars = tokens.count(STAR)
    if not stars and tokens[-1] != ALL:
        return f"filters: {filter_!r} has no wildcard; use * or >"
    if len({*numbers}) != len(numbers):
        return f"filters: {filter_!r}: a wildcard is named twice in {[*numbers]}"
    if any(type(n) is not int or not 1 <= n <= stars for n in numbers):
        return (
            f"filters: {filter_!r}: the key is wildcards 1 to {stars}, not {[*numbers]}"
        )
    if config.format == "0.1" and not numbers:
        return f"filters: {filter_!r}: format 0.1 needs the wildcards of the key"
    return None


def _validate_mappings(config: ConsumerGroupConfig) -> str | None:
    if not config.mappings:
        return None
    used = [number for numbers in config.mappings.values() for number in numbers]
    if len(config.mappings) > config.partitions:
        return f"mappings: more members than the {config.partitions} partitions"
    if any(
        type(number) is not int or not 0 <= number < config.partitions
        for number in used
    ):
        return f"mappings: partitions are numbers from 0 to {config.partitions - 1}"
    if len({*used}) != len(used):
        return "mappings: a partition has two members"
    if len(used) != config.partitions:
        missing = sorted({*range(config.partitions)} - {*used})
        return f"mappings: partitions without a member: {missing}"
    return None


# The bucket ---------------------------------------------------------------------------


class _Mapping(msgspec.Struct):
    member: str
    partitions: list[int] | None = None


class _Filter(msgspec.Struct):
    filter: str
    partitioning_wildcards: list[int] | None = None


class _StoredConfig(msgspec.Struct):
    """The JSON of both versions and both kinds. Go writes an empty list as null."""

    max_members: int
    partitioning_filters: list[_Filter] | None = None
    filter: str | None = None
    partitioning_wildcards: list[int] | None = None
    filters: list[str] | None = None
    max_buffered_msg: int = 0
    max_buffered_bytes: int = 0
    members: list[str] | None = None
    member_mappings: list[_Mapping] | None = None


def key_of(stream: str, group: str) -> str:
    """Return the key of a group in its bucket. Raises `ConfigError` for a bad name."""
    check_name(stream, "stream")
    check_name(group, "group")
    return f"{stream}.{group}"


def read_config(kind: GroupKind, data: bytes, which: str) -> ConsumerGroupConfig:
    """Read a stored configuration. Raises `InvalidConsumerGroupError` if it is not valid."""
    try:
        stored = msgspec.json.decode(data, type=_StoredConfig)
    except (ValueError, RecursionError) as error:
        raise InvalidConsumerGroupError(f"consumer group {which!r}: {error}") from error
    old = (
        kind == "elastic"
        and stored.partitioning_filters is None
        and bool(stored.filter)
    )
    filters: dict[str, tuple[int, ...]]
    if kind == "static":
        filters = dict.fromkeys(stored.filters or (), ())
    elif old:
        filters = {stored.filter or "": tuple(stored.partitioning_wildcards or ())}
    else:
        filters = {
            part.filter: tuple(part.partitioning_wildcards or ())
            for part in stored.partitioning_filters or ()
        }
    mapped = stored.member_mappings or ()
    config = ConsumerGroupConfig(
        kind=kind,
        partitions=stored.max_members,
        filters=filters,
        members=tuple(stored.members or ()),
        mappings={
            mapping.member: tuple(mapping.partitions or ()) for mapping in mapped
        },
        max_buffered_messages=_limit(stored.max_buffered_msg),
        max_buffered_bytes=_limit(stored.max_buffered_bytes),
        format="0.1"
        if old or (kind == "static" and stored.filter is not None)
        else "0.2",
    )
    fault = validate(config)
    if len(mapped) != len(config.mappings):
        fault = "mappings: a member is named twice"
    if fault is not None and not (kind == "static" and fault.startswith("a static")):
        raise InvalidConsumerGroupError(f"consumer group {which!r}: {fault}")
    return config


def _limit(number: int) -> int | None:
    return number if number > 0 else None


def write_config(config: ConsumerGroupConfig, before: bytes | None = None) -> bytes:
    """Return the JSON of a configuration.

    If `before` has the stored one, only the members are replaced in it. Running members of
    orbit.go end if anything else differs, even an empty list instead of null.
    """
    fields: dict[str, Any] = {} if before is None else msgspec.json.decode(before)
    if before is None:
        fields["max_members"] = config.partitions
        _write_filters(config, fields)
        if config.max_buffered_messages:
            fields["max_buffered_msg"] = config.max_buffered_messages
        if config.max_buffered_bytes:
            fields["max_buffered_bytes"] = config.max_buffered_bytes
    fields.pop("members", None)
    fields.pop("member_mappings", None)
    if config.members:
        fields["members"] = [*config.members]
    if config.mappings:
        fields["member_mappings"] = [
            {"member": member, "partitions": [*numbers]}
            for member, numbers in config.mappings.items()
        ]
    return msgspec.json.encode(fields)


def _write_filters(config: ConsumerGroupConfig, fields: dict[str, Any]) -> None:
    match config.kind, config.format:
        case "static", "0.1":
            fields["filter"] = ""
        case "static", _:
            if config.filters:
                fields["filters"] = [*config.filters]
        case _, "0.1":
            [(filter_, numbers)] = config.filters.items()
            fields["filter"] = filter_
            fields["partitioning_wildcards"] = [*numbers]
        case _:
            fields["partitioning_filters"] = [
                {"filter": filter_, "partitioning_wildcards": [*numbers]}
                for filter_, numbers in config.filters.items()
            ] or None


# Streams and consumers ----------------------------------------------------------------


def stream_of(kind: GroupKind, stream: str, group: str) -> str:
    """Return the name of the stream that members read. Elastic groups have a separate one."""
    return f"{stream}-{group}" if kind == "elastic" else stream


def group_stream(
    config: ConsumerGroupConfig, source: StreamConfig, group: str
) -> StreamConfig:
    """Return the configuration of the stream of an elastic group.

    It is a work queue, and each subject has the partition as its first token.
    """
    filters = config.filters or {ALL: ()}
    stream = source.name or ""
    return StreamConfig.from_any(
        {
            "name": stream_of("elastic", stream, group),
            "retention": "workqueue",
            "num_replicas": source.num_replicas,
            "storage": source.storage,
            "max_msgs": config.max_buffered_messages,
            "max_bytes": config.max_buffered_bytes,
            "discard": "new",
            "allow_direct": True,
            "sources": [
                {
                    "name": stream,
                    "subject_transforms": [
                        {"src": each, "dest": _transform(each, numbers, config)}
                        for each, numbers in filters.items()
                    ],
                }
            ],
        },
        {},
    )


def _transform(
    filter_: str, numbers: tuple[int, ...], config: ConsumerGroupConfig
) -> str:
    """Return the transform to the group's stream.

    For example, `orders.*` becomes `{{Partition(8,1)}}.orders.{{Wildcard(1)}}`.
    """
    tokens = filter_.split(".")
    stars = 0
    for at, token in enumerate(tokens):
        if token == STAR:
            stars += 1
            tokens[at] = f"{{{{Wildcard({stars})}}}}"
    given = ",".join(map(str, (config.partitions, *numbers)))
    return ".".join([f"{{{{Partition({given})}}}}", *tokens])


def is_group_stream(config: StreamConfig, stream: str) -> bool:
    """Return whether jsync or orbit.go must have created a stream for an elastic group."""
    if config.retention != "workqueue" or config.subjects or not config.sources:
        return False
    [source, *others] = config.sources
    transforms = source.subject_transforms or ()
    return (
        source.name == stream
        and not others
        and bool(transforms)
        and all(
            (transform.dest or "").lower().startswith("{{partition(")
            for transform in transforms
        )
    )


def is_member_consumer(config: ConsumerConfig) -> bool:
    """Return whether a consumer must be one of a member of a static group."""
    filters = config.filter_subjects or [config.filter_subject or ""]
    return config.priority_policy == "pinned_client" and all(
        subject.partition(".")[0].isdecimal() for subject in filters
    )


def consumer_name(kind: GroupKind, group: str, member: str) -> str:
    """Return the name of a member's consumer."""
    return member if kind == "elastic" else f"{group}-{member}"


def subjects_of(config: ConsumerGroupConfig, member: str) -> list[str]:
    """Return the subjects of a member, with the partition as the first token.

    With mappings, orbit.go reads whole partitions and ignores the filters.
    """
    numbers = config.partitions_of(member)
    filters = [*config.filters] or [ALL]
    if config.mappings or config.format == "0.1":
        filters = [ALL]
    return [f"{number}.{subject}" for subject in filters for number in numbers]


def priority_group(config: ConsumerGroupConfig, member: str) -> str:
    """Return the priority group of a member's consumer."""
    return member if config.format == "0.1" else PRIORITY_GROUP


def member_consumer(
    config: ConsumerGroupConfig,
    group: str,
    member: str,
    ack_wait: float,
    max_ack_pending: int,
) -> ConsumerConfig:
    """Return the configuration of a member's consumer, as orbit.go creates it."""
    name = consumer_name(config.kind, group, member)
    lasting = config.kind == "static"
    return ConsumerConfig(
        name=None if lasting else name,
        durable_name=name if lasting else None,
        filter_subjects=subjects_of(config, member),
        ack_policy="explicit",
        ack_wait=ack_wait,
        max_ack_pending=max_ack_pending,
        inactive_threshold=None if lasting else ack_wait,
        priority_groups=[priority_group(config, member)],
        priority_policy="pinned_client",
        priority_timeout=max(ack_wait, MIN_PRIORITY_TIMEOUT),
    )


def pull_seconds(ack_wait: float) -> float:
    """Return the seconds after which a pull request expires.

    This is so short that a waiting member keeps its pin, and that no message of the pull
    request `is_stale` if it comes in time.
    """
    return ack_wait / 2


# A member -----------------------------------------------------------------------------


class MemberState(Enum):
    """The state of a member.

    Example:
        ```python
        group = js.create_consumer_group(
            "ORDERS", "billing", partitions=4, filters={"orders.*": [1]}, members=["a"]
        )
        with group.join("a") as member:
            print(member.state in set(jsync.MemberState))
        ```
    """

    JOINING = "joining"
    """Its consumer is to be made."""
    IDLE = "idle"
    """It has no partitions: it is not in the list of members."""
    WAITING = "waiting"
    """Another member, or another instance, still holds its partitions."""
    ACTIVE = "active"
    """It pulls. The server serves one instance of each member."""
    ENDED = "ended"
    """It gets no more messages."""


TRANSITIONS: Final[dict[MemberState, frozenset[MemberState]]] = {
    MemberState.JOINING: frozenset(
        {MemberState.IDLE, MemberState.WAITING, MemberState.ACTIVE, MemberState.ENDED}
    ),
    MemberState.IDLE: frozenset({MemberState.JOINING, MemberState.ENDED}),
    MemberState.WAITING: frozenset({MemberState.JOINING, MemberState.ENDED}),
    MemberState.ACTIVE: frozenset({MemberState.JOINING, MemberState.ENDED}),
    MemberState.ENDED: frozenset(),
}


class HandoverAction(Enum):
    """The next step for the consumer of a member whose partitions have changed."""

    DELETE = "nothing is under way: delete the consumer"
    WAIT = "acks are on their way: check again"
    LEAVE = "another instance is served: it sees to that"


MAX_ACK_WAIT: Final = 0.5
"""The most seconds to wait for acks that are on their way."""
NEW_SECONDS: Final = 1.0
"""The age in seconds up to which the creator of a consumer may not have pulled yet."""


def decide_handover(
    info: ConsumerInfo,
    pin: str,
    *,
    has_received: bool,
    waited: float,
) -> HandoverAction:
    """Decide on the next step by the server's info of the consumer, after `waited` seconds.

    `pin` is the id that the server gave this instance, and `has_received` says whether this
    instance got a message of the consumer. A message that was returned with a delay stays
    pending, so the wait ends after `MAX_ACK_WAIT`. A message of another instance keeps
    the consumer until that instance has acked it, also if it takes longer than its pin
    lasts. If that instance is dead, the server deletes the consumer. An instance that has
    just created the consumer is about to pull.
    """
    served = next(
        (state.pinned_client_id for state in info.priority_groups or ()), None
    )
    if served and served != pin:
        return HandoverAction.LEAVE
    if not served and (info.num_waiting or _is_new(info)):
        return HandoverAction.LEAVE
    if info.num_ack_pending and not has_received:
        return HandoverAction.LEAVE
    if info.num_ack_pending and waited < MAX_ACK_WAIT:
        return HandoverAction.WAIT
    if info.num_ack_pending and not served:
        return HandoverAction.LEAVE
    return HandoverAction.DELETE


def _is_new(info: ConsumerInfo) -> bool:
    """Return whether the consumer was created a moment ago, by the clock of the server."""
    if info.created is None or info.ts is None:
        return False
    return (info.ts - info.created).total_seconds() < NEW_SECONDS


def is_stale(sent: float, now: float, ack_wait: float) -> bool:
    """Return whether the server may have redelivered a message to another instance.

    The message answers a pull request of the time `sent`, so it was not delivered before.
    A process that was suspended finds stale messages when it resumes.
    """
    return now - sent >= ack_wait


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupMemberInfo:
    """A member of a consumer group, and its consumer.

    Example:
        ```python
        group = js.create_consumer_group(
            "ORDERS", "billing", partitions=4, filters={"orders.*": [1]}, members=["a"]
        )
        for member in group.members():
            print(member.name, member.active, member.partitions)
        ```
    """

    name: str
    """The name of the member."""
    partitions: tuple[int, ...]
    """The partitions of the member."""
    active: bool = False
    """True if the server has a consumer of the member, and an instance uses it."""
    pinned: bool = False
    """True if the server serves an instance now."""
    waiting: int = 0
    """The pulls that wait at the server."""
    pending: int = 0
    """The messages that are not delivered yet."""
    ack_pending: int = 0
    """The messages that are delivered and wait for an ack."""
