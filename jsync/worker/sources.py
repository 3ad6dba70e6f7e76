"""The source of a handler's messages: a consumer, or a member of a group."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Final, Protocol

from ..errors import (
    ConfigError,
    ConsumerNotFoundError,
    FilterMismatchError,
    StreamNotFoundError,
)
from ..health import CONFIRM_SECONDS
from ..jetstream.consumer import consume_held
from ..jetstream.groups.engine import (
    ACK_WAIT as MEMBER_ACK_WAIT,
    MemberState,
    consumer_name,
    member_consumer,
    stream_of,
)
from ..subjects import intersections

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..jetstream.consumer import Consumer
    from ..jetstream.context import JetStream
    from ..jetstream.groups.group import ConsumerGroup
    from ..jetstream.groups.member import GroupMember
    from ..jetstream.pulls.consume import ConsumeContext
    from ..jetstream.stream import Stream
    from ..models import ConsumerConfig
    from .routes import Route
    from .runner import HandlerRunner

DEFAULT_MAX_ACK_PENDING: Final = 1000
"""The limit of a consumer without one, if the account allows that many."""
SLOT_VARIABLE: Final = "JSYNC_WORKER_PLACE"
"""The environment variable with the number of a process below its supervisor, from 0."""


class RouteSource(Protocol):
    """The source of the messages of a route."""

    @property
    def config(self) -> ConsumerConfig:
        """The configuration of the consumer."""

    def admit(self) -> None:
        """Join the members, as `begin` needs it. Other members may lose partitions."""

    def withdraw(self) -> None:
        """Undo `admit`, because the start failed."""

    def begin(
        self, call: HandlerRunner, report: Callable[[Exception], object]
    ) -> ConsumeContext:
        """Begin to call the handler."""

    def confirm(self) -> bool | None:
        """Ask the server whether the consumer, or the membership, exists. Blocks.

        Sets `config` to the present configuration of the consumer.

        Returns None, or raises an `Error`, if that is not known now.
        """

    def lag(self) -> tuple[int, int]:
        """Request the numbers of waiting and of unacknowledged messages. Blocks."""


def open_source(js: JetStream, route: Route) -> RouteSource:
    """Find or create the consumer of a route, or find its group. Blocks."""
    return ConsumerSource(js, route) if route.group is None else GroupSource(js, route)


class ConsumerSource:
    """The durable consumer of a route, which all workers share."""

    def __init__(self, js: JetStream, route: Route) -> None:
        self._consumer = _consumer(js, route)

    @property
    def config(self) -> ConsumerConfig:
        """The last known configuration."""
        return self._consumer.config

    def admit(self) -> None:
        """Do nothing: all processes share the consumer."""

    def withdraw(self) -> None:
        """Do nothing."""

    def begin(
        self, call: HandlerRunner, report: Callable[[Exception], object]
    ) -> ConsumeContext:
        return consume_held(
            self._consumer,
            call.handle,
            workers=call.route.workers,
            max_messages=call.route.max_messages,
            on_error=report,
        )

    def confirm(self) -> bool | None:
        return _exists(self._consumer)

    def lag(self) -> tuple[int, int]:
        info = self._consumer.info()
        return info.num_pending, info.num_ack_pending


def _consumer(js: JetStream, of: Route) -> Consumer:
    stream = js.stream(of.stream)
    _check_stored(of, stream)
    try:
        consumer = stream.consumer(of.consumer)
    except ConsumerNotFoundError:
        one = len(of.subjects) == 1
        ahead = 2 * of.max_messages
        return stream.create_consumer(
            durable_name=of.consumer,
            ack_wait=of.ack_wait,
            # Without a number the server takes the largest that the account allows.
            max_ack_pending=ahead if ahead > DEFAULT_MAX_ACK_PENDING else None,
            filter_subject=of.subjects[0] if one else None,
            filter_subjects=None if one else [*of.subjects],
        )
    check_subjects(of, consumer.config)
    return consumer


def _check_stored(of: Route, stream: Stream) -> None:
    """Raise `FilterMismatchError` if the stream stores no message for a subject of a handler.

    Mirrors, sources and transforms store subjects that are not in the configuration.
    """
    config = stream.config
    if config.mirror or config.sources or config.subject_transform:
        return
    stored = config.subjects or [">"]
    for subject in of.subjects:
        if intersections([subject], stored):
            continue
        # Earlier messages may have subjects that the stream no longer stores.
        if not stream.info(subjects_filter=subject).state.subjects:
            raise FilterMismatchError(
                f"stream {of.stream!r} stores {', '.join(stored)}, so the handler for "
                f"{subject} gets no message; change the handler's subject, or add the "
                "subject to the stream"
            )


def check_subjects(of: Route, config: ConsumerConfig) -> None:
    """Raise `FilterMismatchError` unless a consumer gets exactly the subjects of its handler."""
    filters = config.filter_subjects or [config.filter_subject or ">"]
    if {*filters} != {*of.subjects}:
        raise FilterMismatchError(
            f"consumer {of.consumer!r} of {of.stream!r} gets {', '.join(filters)}, and "
            f"the handler is for {', '.join(of.subjects)}; call "
            "JetStream.update_consumer, or choose another consumer"
        )


class GroupSource:
    """A member of the group of a route, which reads the messages of its keys in order."""

    def __init__(self, js: JetStream, route: Route) -> None:
        assert route.group is not None
        group = js.consumer_group(route.stream, route.group)
        filters = [*group.config.filters] or [">"]
        if {*filters} != {*route.subjects}:
            raise FilterMismatchError(
                f"group {group.name!r} of {route.stream!r} gets {', '.join(filters)}, and "
                f"the handler is for {', '.join(route.subjects)}; give the handler the "
                "subjects of the group"
            )
        self._group = group
        self._joined: GroupMember | None = None
        self._member = route.member or member_of_this_process()
        self._ack_wait = route.ack_wait or MEMBER_ACK_WAIT
        self._was_added = False
        self._consumer = js.consumer(
            stream_of(group.kind, route.stream, group.name),
            consumer_name(group.kind, group.name, self._member),
        )
        self.config = member_consumer(
            group.config, group.name, self._member, self._ack_wait, 1
        )
        """The configuration with which the member creates its consumer."""

    def admit(self) -> None:
        """Add the member to the group. Running members lose partitions to it."""
        before = self._group.config.partitions_of(self._member)
        _ensure_member(self._group, self._member)
        self._was_added = not before

    def withdraw(self) -> None:
        """Drop the member, unless it was in the group before, or another instance uses it."""
        if self._was_added and not any(
            part.active for part in self._group.members() if part.name == self._member
        ):
            self._group.delete_members(self._member)

    def begin(
        self, call: HandlerRunner, report: Callable[[Exception], object]
    ) -> ConsumeContext:
        member = self._joined = self._group.join(
            self._member, ack_wait=self._ack_wait, on_error=report
        )
        try:
            return member.consume(call.handle)
        except BaseException:
            member.stop()
            raise

    def confirm(self) -> bool | None:
        match None if self._joined is None else self._joined.state:
            case MemberState.ACTIVE:
                return _exists(self._consumer)
            case MemberState.IDLE | MemberState.ENDED:
                return False
            case _:
                return None

    def lag(self) -> tuple[int, int]:
        infos = self._group.members()
        unacked = sum(info.ack_pending for info in infos)
        if self._group.kind == "static":
            return sum(info.pending for info in infos), unacked
        # A member that is not running has no consumer, so count by the streams.
        stored = sum(self._group.lag().values()) + self._group.source_lag()
        return max(0, stored - unacked), unacked


def _exists(consumer: Consumer) -> bool:
    try:
        consumer.info(timeout=CONFIRM_SECONDS)
    except (ConsumerNotFoundError, StreamNotFoundError):
        return False
    return True


def _ensure_member(group: ConsumerGroup, member: str) -> None:
    """Add the member to the group, unless the group has fixed members."""
    if group.config.partitions_of(member):
        return
    if group.kind == "static" or group.config.mappings:
        names = ", ".join(group.config.member_names)
        raise ConfigError(
            f"group {group.name!r} has no member {member!r}, only {names}; pass one of "
            "them as member"
        )
    group.add_members(member)
    if not group.config.partitions_of(member):  # another program added too many
        raise ConfigError(
            f"group {group.name!r} has more members than its {group.config.partitions} "
            "partitions; drop members that do not run any more with jsync group drop"
        )


def member_of_this_process() -> str:
    """Return the name of this machine with the number of this process.

    After a restart a process has the same name, and therefore the same keys.
    """
    machine = platform.node() or "worker"
    plain = "".join(part if part.isalnum() else "-" for part in machine)
    return f"{plain}-{os.environ.get(SLOT_VARIABLE, '0')}"
