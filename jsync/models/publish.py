"""What a message may carry besides its payload, as every way to publish takes it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from ..headers import HeadersLike

TTL: TypeAlias = float | Literal["never"]
"""Whole seconds, or never."""
Schedule: TypeAlias = datetime | timedelta | str
"""Once at a time, again and again at an interval, or a pattern of the server's."""


class PublishOptions(TypedDict, total=False):
    """The options of a message. `None` is the same as not to give one."""

    headers: HeadersLike | None
    """Headers of your own. One that an option stands for is refused here."""

    msg_id: str | None
    """The stream drops what it has stored already within its `duplicate_window`; the ack
    says so."""

    expected_stream: str | None
    """Refuse the message (`StreamMismatchError`) when another stream takes it."""
    expected_last_sequence: int | None
    """Refuse it (`WrongLastSequenceError`) unless the stream ends at that sequence."""
    expected_last_subject_sequence: int | None
    """Refuse it (`WrongLastSequenceError`) unless that is the sequence of the last message
    of the subject; 0: unless there is none."""
    expected_last_subject: str | None
    """The subject that the former is for, wildcards allowed; by default the message's own.
    Since nats-server 2.11."""
    expected_last_msg_id: str | None
    """Refuse it (`WrongLastMsgIDError`) unless the last message has that id."""

    ttl: TTL | None
    """Seconds, a whole number from 1, until the message expires; `"never"` excepts it from
    the stream's `max_age`. The stream has to `allow_msg_ttl`. Since nats-server 2.11
    (ADR-43)."""

    schedule: Schedule | None
    """Keep the message, and have the server publish it to `schedule_target` later (ADR-51).

    An aware `datetime` is once, a `timedelta` from a second is again and again, and a str
    is a pattern as it stands: six fields of cron, seconds first, or `@hourly`, `@daily`,
    `@weekly`, `@monthly`, `@yearly`, `@every 90s`. Another message on the subject takes
    its place. The stream has to `allow_msg_schedules`. Since nats-server 2.12, all but the
    `datetime` since 2.14."""
    schedule_target: str | None
    """The subject to publish to: another one of the same stream."""
    schedule_source: str | None
    """Publish what the last message of that subject holds, if there is one. Since
    nats-server 2.14."""
    schedule_ttl: TTL | None
    """The `ttl` of what is published."""
    schedule_time_zone: str | None
    """The zone of a cron pattern, `Europe/Prague` for instance; UTC by default. Since
    nats-server 2.14."""
    schedule_rollup: bool | None
    """Let each message that is published replace all before it on `schedule_target`. Since
    nats-server 2.14."""

    incr: int | None
    """Add so much to the counter on the subject, however large; the ack has its new value.
    The message has no payload, the stream has to `allow_msg_counter`. Since nats-server
    2.12 (ADR-49)."""
